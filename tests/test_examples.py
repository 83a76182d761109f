"""Every example as its users start it: exit status, output, files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import launcher
import pytest

EXAMPLES = launcher.ROOT / "examples"


def test_no_example_is_forgotten() -> None:
    names = {p.name for p in EXAMPLES.glob("*.py") if not p.name.startswith("_")}
    tests = "".join(p.read_text() for p in Path(__file__).parent.glob("test_*.py"))
    assert [name for name in sorted(names) if f'{name}"' not in tests] == []


def example(ranks: int, name: str, *arguments: str) -> str:
    status, text = launcher.mpi(ranks, str(EXAMPLES / name), *arguments)
    assert status == 0, text
    return text


@pytest.mark.mpi
def test_hello() -> None:
    text = example(2, "hello.py")
    for rank in (0, 1):
        assert f"rank {rank} (simulator): 8 numbers from rank {1 - rank}" in text
    assert text.count("as expected") == 2


@pytest.mark.mpi
@pytest.mark.parametrize(
    "name",
    ["hello.py", *(pytest.param(n, marks=pytest.mark.mpich) for n in ("pingpong.py", "rates.py"))],
)
def test_the_wrong_number_of_ranks_is_refused(name: str) -> None:
    status, text = launcher.mpi(1, str(EXAMPLES / name))
    assert status != 0
    assert re.search(r"needs 2 ranks, got 1: mpiexec -n 2 python", text), text


@pytest.mark.mpi
@pytest.mark.parametrize(
    "engine, doublings",
    [
        pytest.param("compiled", 15, marks=pytest.mark.openmpi),
        pytest.param("mpi4py", 8, marks=pytest.mark.mpich),
    ],
)
def test_pingpong(engine: str, doublings: int, tmp_path: Path) -> None:
    results, picture = tmp_path / "pingpong.json", tmp_path / "pingpong.png"
    quick = ["-m", f"0:{1 << doublings}", "-i", "3", "-x", "1"]
    options = [*quick, "--engine", engine, "--json", str(results)]
    text = example(2, "pingpong.py", *options, "--plot", str(picture))
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


@pytest.mark.mpich
@pytest.mark.mpi
def test_rates(tmp_path: Path) -> None:
    results = tmp_path / "rates.json"
    text = example(2, "rates.py", "--json", str(results))
    assert "counts, sums and payloads checked: all right" in text
    found = json.loads(results.read_text())
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
    example(2, "rates.py", "--only", "allreduce", "--json", str(results))
    found = json.loads(results.read_text())
    assert found["allreduce"]["gmpi"]["p50"] > 0
    assert not {"idle", "messages", "records", "launch_cost"} & set(found)


def test_pack_bench_says_that_it_needs_a_gpu() -> None:
    status, text = launcher.python(str(EXAMPLES / "pack_bench.py"))
    assert status != 0 and "pack_bench measures a GPU" in text
