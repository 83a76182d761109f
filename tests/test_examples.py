"""Every example and benchmark as its users start it: exit status, output, files."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import launcher
import pytest
from test_applications import APPLICATIONS

EXAMPLES = launcher.ROOT / "examples"
BENCHMARKS = launcher.ROOT / "benchmarks"


def test_no_example_is_forgotten() -> None:
    places = (EXAMPLES, BENCHMARKS, BENCHMARKS / "himeno")
    names = {p.name for place in places for p in place.glob("[!_]*.py")}
    tests = "".join(p.read_text() for p in Path(__file__).parent.glob("test_*.py"))
    assert [name for name in sorted(names) if f'{name}"' not in tests] == []


def test_examples_are_listed_short_and_without_internals() -> None:
    page = (EXAMPLES / "README.md").read_text()
    known = {*sys.stdlib_module_names, "numpy", "mpi4py", "numba", "cupy", "gmpi"}
    known.add("matplotlib.pyplot")  # where a picture is asked for
    for path in EXAMPLES.glob("*.py"):
        source = path.read_text()
        beside = {"himeno"} if path.name == "himeno_partitioned.py" else set()
        assert f"| [{path.name}]({path.name}) |" in page
        most = 250 if path.name in APPLICATIONS else 200 if "himeno" in path.name else 80
        assert len(source.splitlines()) <= most, path.name
        assert not re.search(r"\bg\._", source), path.name
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                assert set(names or [node.module]) <= known | beside, (path.name, names)  # type: ignore


def program(ranks: int, path: Path, *arguments: str) -> str:
    status, text = launcher.mpi(ranks, str(path), *arguments)
    assert status == 0, text
    return text


@pytest.mark.mpi
@pytest.mark.mpich
def test_hello() -> None:
    text = program(2, EXAMPLES / "hello.py")
    for rank in (0, 1):
        assert f"rank {rank} (simulator): 8 numbers from rank {1 - rank}" in text
    assert text.count("as expected") == 2


# One start of MPI for all of them. Those behind "strict" run in strict mode (docs/strict.md).
IN_TURN = """
import os, runpy, sys
from mpi4py import MPI
for command in sys.argv[1:]:
    if command == "strict":
        os.environ["GMPI_SIM"] = "strict,seed=1"
        continue
    path, *sys.argv[1:] = command.split()
    status = None
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as end:
        status = end.code
    found = MPI.COMM_WORLD.gather(status)
    if found:
        how = " (strict)" if "GMPI_SIM" in os.environ else ""
        print(f"{path.rpartition('/')[2]}{how} ended with", found, flush=True)
"""
FOR_TWO = ("pingpong.py", "error_handling.py")
FOR_ANY = (
    *("halo_1d.py", "halo_2d.py", "communicators.py", "master_worker.py", "pipeline.py"),
    *("without_gpu.py", "cupy_arrays.py"),
)
#: ``gmpi bench``, which says that all payloads were right.
BENCH = [
    f"{launcher.ROOT}/gmpi/__main__.py bench {words} -i 1 -x 0"
    for words in (
        *("latency -m 8:16 --json", "bandwidth -m 16", "bibw -m 16", "rate -m 8 --wildcards"),
        *("allreduce -m 8", "alltoall -m 8", "pack -m 256", "overhead -m 8"),
    )
]
#: Run in strict mode as well, in which nothing may be found; all of them with --full.
STRICT = ("halo_1d.py", "halo_2d.py", "communicators.py", "master_worker.py", "heat.py --small")
ALL_STRICT = (
    *FOR_ANY,
    *("himeno.py --size 8,4,5 --verify", "spin_glass.py --small", "workers.py --small"),
    *("stencil9.py --small", "cg.py --small", "heat.py --small", "bfs.py --small"),
    *("hacc.py --small", "halo26.py --small", "reshape.py --small", "particles.py --small"),
)


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("ranks", "names", "strict"),
    [
        pytest.param(2, FOR_TWO, STRICT, marks=pytest.mark.mpich),
        pytest.param(3, FOR_ANY, (), marks=pytest.mark.openmpi),
        pytest.param(2, FOR_ANY, (), marks=pytest.mark.full),
        pytest.param(2, (), ("hello.py", *FOR_TWO, *ALL_STRICT), marks=pytest.mark.full),
        pytest.param(3, (), ALL_STRICT, marks=pytest.mark.full),
    ],
)
def test_short_examples(ranks: int, names: tuple[str, ...], strict: tuple[str, ...]) -> None:
    benches = names == FOR_TWO
    commands = [f"{EXAMPLES}/{name}" for name in names]
    commands += BENCH if benches else []
    commands += ["strict", *(f"{EXAMPLES}/{name}" for name in strict)] if strict else []
    status, text = launcher.mpi(ranks, "-c", IN_TURN, *commands, timeout=280)
    assert status == 0, text
    for name in names:
        assert f"{name} ended with {[0] * ranks}" in text, text
    if benches:
        assert text.count("__main__.py ended with [0, 0]") == len(BENCH), text
        assert text.count("# payloads checked: all right") == len(BENCH) - 1, text
        assert text.count("these times mean nothing") == len(BENCH) - 1, text
        facts = json.loads(text[text.index("{\n") : text.index("\n}") + 2])
        assert [row["size"] for row in facts["rows"]] == [8, 16]
        assert all(row["value"] == row["slowest"] > 0 for row in facts["rows"])
        assert all(0 < row["p50"] <= row["p99"] for row in facts["rows"])
    for command in strict:
        name = command.split()[0]
        ended = re.search(rf"{name} \(strict\) ended with \[(.*)\]", text)
        assert ended and set(ended[1].split(", ")) <= {"0", "False", "None"}, text
    assert "WRONG" not in text and "LeakWarning" not in text and "strict:" not in text, text
    if "error_handling.py" in names:
        assert re.search(r"room for 4: .*[Mm]essage truncated, 4 numbers", text), text
        assert "the host was told: GMPI_Recv in block 0: message length is 64" in text, text
        assert re.search(r"^65536 +\d+\.\d\d$", text, re.M), text


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("name", "ranks", "size", "cut"),
    [
        pytest.param("", 2, "7,4,5", "2, 1", marks=pytest.mark.openmpi),  # parts of 2 and 3 planes
        pytest.param("", 4, "7,6,4", "2, 2", marks=pytest.mark.mpich),  # edges between parts
        pytest.param("_partitioned", 3, "9,8,5", "3, 1", marks=pytest.mark.mpich),  # 2 pieces
    ],
)
def test_himeno_gives_the_bits_of_the_serial_program(
    name: str, ranks: int, size: str, cut: str
) -> None:
    text = program(ranks, EXAMPLES / f"himeno{name}.py", "--size", size, "--verify")
    assert f"on [{cut}] ranks, 5 iterations: right" in text, text
    assert "pressures differ by at most 0e+00" in text, text


@pytest.mark.mpich
@pytest.mark.mpi
def test_himeno_starts_from_the_benchmarks_own_values() -> None:
    # After three iterations of the original program.
    text = program(1, EXAMPLES / "himeno.py", "--size", "6,6,8", "--iterations", "3")
    assert "Loop executed for 3 times\nGosa : 8.524085e-03\nMFLOPS measured" in text, text


@pytest.mark.mpich
@pytest.mark.mpi
def test_himeno_refuses_a_grid_that_is_too_small() -> None:
    status, text = launcher.mpi(2, str(EXAMPLES / "himeno.py"), "--size", "5,8,8")
    assert status != 0 and "[5, 8, 8] is too small for [2, 1] ranks" in text, text


@pytest.mark.mpi
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(EXAMPLES / "hello.py", marks=pytest.mark.mpich),
        *(
            pytest.param(BENCHMARKS / n, marks=pytest.mark.openmpi)
            for n in ("pingpong.py", "rates.py")
        ),
    ],
    ids=lambda path: path.name,
)
def test_the_wrong_number_of_ranks_is_refused(path: Path) -> None:
    status, text = launcher.mpi(1, str(path))
    assert status != 0
    assert re.search(r"needs 2 ranks, got 1: mpiexec -n 2 python", text), text


@pytest.mark.mpi
@pytest.mark.parametrize(
    "engine, doublings",
    [
        pytest.param("compiled", 14, marks=pytest.mark.openmpi),
        pytest.param("mpi4py", 8, marks=pytest.mark.mpich),
    ],
)
def test_pingpong(engine: str, doublings: int, tmp_path: Path) -> None:
    results, picture = tmp_path / "pingpong.json", tmp_path / "pingpong.png"
    quick = ["-m", f"0:{1 << doublings}", "-i", "3", "-x", "1"]
    options = [*quick, "--engine", engine, "--json", str(results)]
    text = program(2, BENCHMARKS / "pingpong.py", *options, "--plot", str(picture))
    assert "between 2 kernels on simulator" in text  # it says which
    assert "payloads checked: all right" in text
    table = [line for line in text.splitlines() if re.match(r"\d+ +\d+\.\d\d ", line)]
    sizes = [0, *(1 << k for k in range(doublings + 1))]
    assert [int(line.split()[0]) for line in table] == sizes
    # OSU's layout: the size in 10 columns, latencies in 20 each.
    assert all(re.fullmatch(r"\d+ *", line[:10]) and line[29].isdigit() for line in table)

    found = json.loads(results.read_text())
    assert found["benchmark"] == "pingpong" and found["engine"] == engine
    assert [row["size"] for row in found["rows"]] == sizes
    for row in found["rows"]:
        for way in ("gmpi", "host"):
            assert 0 < row[way]["min"] <= row[way]["p50"] <= row[way]["p99"] <= row[way]["max"]
    assert found["echo"]["p50"] > 0 and found["null_request"]["p50"] > 0
    legs = found["breakdown"]
    assert sum(legs.values()) - legs["total"] > 0
    assert found["machine"]["gpu"] == "none: simulator"
    assert picture.read_bytes().startswith(b"\x89PNG")


#: Commands of benchmarks, by test: one start of MPI for all of them.
MEASURED = {
    "test_roads": [("roads.py", "-m 8:8 --threads 8 --no-rates")],
    "test_partitioned": [("partitioned.py", "")],
    "test_both_ways": [("both_ways.py", "")],
    "test_late": [("late.py", "-m 8:1K")],
    "test_cold": [("cold.py", "-m 8:1K")],
    "test_streaming": [("streaming.py", "")],
    "test_onesided": [("onesided.py", "")],
    "test_collectives": [("collectives.py", "-m 8 --threads 8")],
    "test_long_collectives": [("collectives.py", "--long")],
    "test_collectives_with_counts": [("collectives.py", "--counts -m 24")],
    "test_rates": [("rates.py", ""), ("rates.py", "--only allreduce")],
}
Measured = dict[str, list[tuple[str, Any]]]


@pytest.fixture(scope="module")
def measured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """What those benchmarks print and write whose tests are going to run."""
    own = [item.name for item in request.session.items if item.path == request.path]
    wanted = [(name, " ".join(words)) for name in own for words in MEASURED.get(name, [])]
    where = tmp_path_factory.mktemp("measured")
    files = [where / f"{number}.json" for number in range(len(wanted))]
    commands = [f"{BENCHMARKS}/{words} --json {f}" for (_, words), f in zip(wanted, files)]
    status, text = launcher.mpi(2, "-c", IN_TURN, *commands, PYTHONPATH=str(BENCHMARKS))
    assert status == 0, text
    printed = re.split(r"^\w+\.py ended with .*\n", text, flags=re.M)
    ended = re.findall(r"^\w+\.py ended with \[(.*)\]$", text, re.M)
    assert len(ended) == len(wanted) and {*", ".join(ended).split(", ")} <= {"0", "None"}, text
    found: Measured = defaultdict(list)
    for (name, _), part, file in zip(wanted, printed, files):
        found[name].append((part, json.loads(file.read_text())))
    return found


@pytest.mark.mpich
@pytest.mark.mpi
def test_roads(measured: Measured) -> None:
    ((text, found),) = measured["test_roads"]
    assert "payloads checked: all right" in text
    (row,) = found["rows"]
    assert row["size"] == 8 and row["direct"]["p50"] > 0 and row["proxied"]["p50"] > 0
    grids = found["grid_rows"]
    assert {"contiguous", "sub-matrix", "triangle", "transpose"} < {r.get("name") for r in grids}
    assert all(row["direct"]["p50"] > 0 and row["registered"]["p50"] > 0 for row in grids)


@pytest.mark.mpich
@pytest.mark.mpi
def test_partitioned(measured: Measured) -> None:
    ((text, found),) = measured["test_partitioned"]
    assert "payloads checked: all right" in text
    assert {row["kind"] for row in found["rows"]} == {"own", "shared"}
    assert all(row["p50"] > 0 for row in found["rows"])
    alone = [row for row in found["rows"] if row["partitions"] == 1]
    assert alone and all(row["middle"] == row["p50"] for row in alone)


@pytest.mark.mpich
@pytest.mark.mpi
def test_both_ways(measured: Measured) -> None:
    ((text, found),) = measured["test_both_ways"]
    assert "payloads checked: all right" in text
    assert all(row["waitall"]["p50"] > 0 and row["waits"]["p50"] > 0 for row in found["rows"])


@pytest.mark.mpich
@pytest.mark.mpi
def test_late(measured: Measured) -> None:
    ((text, found),) = measured["test_late"]
    assert "payloads checked: all right" in text
    assert [row["size"] for row in found["rows"]] == [8, 1024]
    assert all(late["p50"] > 0 for row in found["rows"] for late in row["late_us"].values())


@pytest.mark.mpich
@pytest.mark.mpi
def test_cold(measured: Measured) -> None:
    ((text, found),) = measured["test_cold"]
    assert "payloads checked: all right" in text
    measured_ones = [(row["road"], row["size"]) for row in found["rows"]]
    assert measured_ones == [(road, n) for road in ("direct", "proxied") for n in (8, 1024)]
    for row in found["rows"]:
        assert all(one["p50"] > 0 and one["n"] == 2 for one in row["first"])
        assert row["later"]["p50"] > 0


@pytest.mark.mpich
@pytest.mark.mpi
def test_streaming(measured: Measured) -> None:
    ((text, found),) = measured["test_streaming"]
    assert "elements, messages and sums checked: all right" in text
    (row,) = found["rows"]
    assert row["ratio"] == row["linked"]["ms"]["p50"] / row["alone"]["ms"]["p50"] > 0


@pytest.mark.mpich
@pytest.mark.mpi
def test_onesided(measured: Measured) -> None:
    ((text, found),) = measured["test_onesided"]
    assert "payloads checked: all right" in text
    assert {row["call"] for row in found["rows"]} == {"put+flush", "fetch", "put", "get"}
    assert all(row["p50"] > 0 for row in found["rows"])


@pytest.mark.mpich
@pytest.mark.mpi
def test_collectives(measured: Measured) -> None:
    ((text, found),) = measured["test_collectives"]
    assert "results checked: all right" in text
    # Of one block, and some of grid scope.
    both = [(call, blocks) for call in ("Barrier", "Allreduce", "Bcast") for blocks in (1, 2)]
    one = [(call, 1) for call in ("Reduce", "Allgather", "Alltoall", "Scan", "Exscan")]
    one += [(call, 1) for call in ("Iallreduce", "its start", "four of it", "Ibarrier")]
    assert [(row["call"], row["blocks"]) for row in found["rows"]] == both + one
    assert all(r["direct"]["p50"] > 0 and r["proxied"]["p50"] > 0 for r in found["rows"])


@pytest.mark.full
@pytest.mark.mpich
@pytest.mark.mpi
def test_long_collectives(measured: Measured) -> None:
    ((text, found),) = measured["test_long_collectives"]
    assert "results checked: all right" in text
    rows = found["rows"]
    assert [row["call"] for row in rows[::2]] == ["Allreduce", "Allgather", "Alltoall"]
    assert [row["straight"] for row in rows] == [True, False] * 3
    assert all(row["gbps"] > 0 for row in rows)


@pytest.mark.full
@pytest.mark.mpich
@pytest.mark.mpi
def test_collectives_with_counts(measured: Measured) -> None:
    ((text, found),) = measured["test_collectives_with_counts"]
    assert "results checked: all right" in text
    assert [row["call"] for row in found["rows"][::2]] == [
        "Alltoallv", "Neighbor_alltoallv", "Neighbor_alltoallw", "Alltoallv IN_PLACE",
        "Reduce_scatter",
    ]  # fmt: skip
    assert all(r["direct"]["p50"] > 0 and r["proxied"]["p50"] > 0 for r in found["rows"])


@pytest.mark.mpich
@pytest.mark.mpi
def test_rates(measured: Measured) -> None:
    (text, found), (_, only) = measured["test_rates"]
    assert "counts, sums and payloads checked: all right" in text
    assert found["benchmark"] == "rates"
    rates = (found[name] for name in ("requests", "messages", "messages_no_any_tag"))
    for row in [*found["records"], *rates]:
        assert row["per_s"] > 0
    assert 0 <= found["idle"]["core_share"]["p50"] < 1
    units = {row["arguments"]: row["units"] for row in found["record_cost"]}
    assert units[1] == units[7] == 4 and units[8] == 5 and units[25] == 16
    assert all(row["p50"] > 0 for row in found["record_cost"])
    launch = found["launch_cost"]
    assert launch["numba_launch"]["p50"] > 0 and launch["numba_stream"]["p50"] > 0
    assert only["allreduce"]["gmpi"]["p50"] > 0
    assert not {"idle", "messages", "records", "launch_cost"} & set(only)


def test_pack_bench_says_that_it_needs_a_gpu() -> None:
    status, text = launcher.python(str(BENCHMARKS / "pack_bench.py"))
    assert status != 0 and "pack_bench measures a GPU" in text
