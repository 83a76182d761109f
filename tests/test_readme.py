"""What README.md shows runs: its Python as one program on two ranks, its commands by name."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import launcher
import pytest

import gmpi
from gmpi.config import Config
from host_proxy.platform import operations

ROOT = launcher.ROOT
README = (ROOT / "README.md").read_text()
API = (ROOT / "docs" / "api.md").read_text()
FIGURES = (ROOT / "docs" / "measuring.md").read_text()
TABLE = ROOT / "docs" / "measurements" / "table.py"


def run(command: list[str]) -> tuple[int, str]:
    status, out, err = run_apart(command)
    return status, out + err


def run_apart(command: list[str]) -> tuple[int, str, str]:
    """Exit status, stdout and stderr."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=100 * launcher.TIME_FACTOR,
    )
    return done.returncode, done.stdout, done.stderr


def test_programs_and_files_in_the_readme_exist() -> None:
    for name in re.findall(r"\b(?:benchmarks|examples|tests|docs)/[\w/]+\.(?:py|md|sh)\b", README):
        assert (ROOT / name).exists(), name
    for target in re.findall(r"\]\(([\w./]+)\)", README):
        assert (ROOT / target).exists(), target
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for names in re.findall(r"\.\[([\w,]+)\]", README):
        assert set(names.split(",")) <= set(extras)


def test_gmpi_info_says_what_there_is() -> None:
    # On stderr may be that it waits for a compiler, where the cache is empty.
    status, text, said = run_apart([sys.executable, "-m", "gmpi", "info", "--open", "--json"])
    facts = json.loads(text)
    assert status == 0 and facts["context"]["opens"] is True, text + said
    assert facts["cuda"]["simulator"] and facts["mpi"]["loaded"]
    assert facts["versions"]["gmpi"] == gmpi.__version__
    assert facts["settings"]["values"]["engine"]["origin"] in ("default", "environment")


def test_gmpi_info_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPI4PY_LIBMPI", "/nowhere/libmpi.so")
    status, text = run([sys.executable, "-m", "gmpi", "info"])
    assert status == 1
    assert "pip install mpich" in text and "/nowhere/libmpi.so" in text
    status, text = run([sys.executable, "-c", "from gmpi import GMPI_Isend"])
    assert status == 1
    assert "gmpi.GMPI_Isend needs MPI" in text and "pip install mpich" in text


def test_gmpi_cache_is_shown_and_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GMPI_CACHE_DIR", str(tmp_path))
    mine = tmp_path / "gmpi_open_any_block-sm90-0123.ptx"
    other = tmp_path / "notes.txt"
    for path in (mine, other):
        path.write_text("x" * 2048)
    status, text = run([sys.executable, "-m", "gmpi", "cache", "show"])
    assert status == 0 and re.search(r"sm90 +1 +2 KiB", text)
    assert run([sys.executable, "-m", "gmpi", "cache", "clear"]) == (0, "1 files deleted\n")
    assert not mine.exists() and other.exists()


@pytest.mark.parametrize(
    ("simulator", "options", "message"),
    [
        ("0", [], "no usable GPU here: say for which with --cc, such as --cc 9.0"),
        ("0", ["--cc", "9x"], "a compute capability is two numbers such as 9.0, got '9x'"),
        (
            "0",
            ["--cc", "9.0", "--cc", "1.0"],
            "must be at least 7.5, got 1.0; CUDA's compiler knows 7.5, 8.0, ",
        ),
        ("1", ["--cc", "9.0"], "the simulator compiles nothing: unset NUMBA_ENABLE_CUDASIM"),
    ],
)
def test_gmpi_cache_is_not_filled_for_nothing(
    simulator: str,
    options: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GMPI_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", simulator)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    status, text = run([sys.executable, "-m", "gmpi", "cache", "fill", *options])
    assert status == 2 and message in text, text
    assert list(tmp_path.iterdir()) == []


def test_gmpi_cache_names_the_extra_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "0")
    program = """
from cuda.bindings import nvvm
def missing():
    raise RuntimeError("Failed to find libnvvm\\nin 30 places")
nvvm.version = missing
from gmpi.__main__ import main
main(["cache", "fill", "--cc", "9.0"])
"""
    status, text = run([sys.executable, "-c", program])
    told = (
        'Error: CUDA\'s compilers are not installed: pip install ".[cu13]" (Failed to find libnvvm)'
    )
    assert status == 1 and text.strip().splitlines()[-1] == told, text


def test_the_readme_is_short_and_names_no_call_that_is_not_there() -> None:
    assert len(README.splitlines()) <= 150
    named = set(re.findall(r"\bGMPI_[A-Z][a-z]+\w*", README))
    assert len(named) > 5 and named <= set(gmpi.__all__)


def test_every_call_has_a_text_and_a_signature() -> None:
    import inspect

    for name in gmpi.__all__:
        if not re.match(r"GMPI_[A-Z][a-z]+", name):
            continue
        call = getattr(gmpi, name)
        scope = "block"
        if name.endswith(("_warp", "_grid")):
            scope = name[-4:]
        scope = f"all threads of the {scope}"
        if name.startswith(
            (
                "GMPI_Comm",
                "GMPI_Cart",
                "GMPI_Wtime",
                "GMPI_Type",
                "GMPI_Error",
                "GMPI_Get_count",
                "GMPI_Get_elements",
                "GMPI_Test_cancelled",
            )
        ):
            scope = "any thread"
        assert call.__name__ == name
        assert scope in call.__doc__, name
        assert next(iter(inspect.signature(call).parameters)) == "ctx"


def test_the_api_page_has_every_setting_as_it_is() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    for name, field in Config.model_fields.items():
        row = f"| `{name}` | `{field.default!r}` | {field.description} |"
        assert row in page, f"docs/api.md lacks: {row}"


def test_the_api_page_names_everything_that_is_exported() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    alone = re.search(r"all other calls above also exist with `_warp`:(.*?)\.\n", page, re.S)
    assert alone is not None

    def named(name: str) -> bool:
        return re.search(rf"(?<!\w){name}(?!\w)", page) is not None

    twins = [name.removesuffix("_warp") for name in gmpi.__all__ if name.endswith("_warp")]
    assert [name for name in twins if not named(name) or re.search(rf"\b{name}\b", alone[1])] == []
    assert [name for name in gmpi.__all__ if not name.endswith("_warp") and not named(name)] == []


def texts_of(path: Path) -> list[str]:
    """Every string of a source file; what an f-string fills in is a line break."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            parts = (getattr(p, "value", "") for p in node.values)
            found.append("".join(p if isinstance(p, str) else "\n" for p in parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return found


def test_messages_of_the_troubleshooting_page_exist() -> None:
    sources = [
        p for name in ("gmpi", "host_proxy", "device_lib") for p in (ROOT / name).rglob("*.py")
    ]
    texts = "\n".join(text for path in sources for text in texts_of(path))
    fields = set(operations.FIELD_NAMES.values())
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    bold = re.findall(r"\*\*(`.*?)\*\*", page, re.S)
    quoted = [" ".join(m.split()) for words in bold for m in re.findall(r"`(.*?)`", words, re.S)]
    messages = [m for m in quoted if re.match(r"[\w.]+( [\w.,]+){2}", m)]
    assert len(messages) > 30
    for message in messages:
        name, is_, _ = message.partition(" is ")
        if is_ and name in fields:  # worded by faults.describe: field is value, allowed is ...
            continue
        for part in re.split(r"\.\.\.|\b[NM]\b|\b10\.0\b", message):
            assert part.strip(" ,.:") in texts, (message, part)


def test_measured_tables_are_up_to_date() -> None:
    for path in (TABLE, TABLE.with_name("applications_table.py")):
        assert run([sys.executable, str(path), "--check"]) == (0, "")


def test_a_table_of_no_files_and_of_half_of_them(tmp_path: Path) -> None:
    page = tmp_path / "measuring.md"
    command = [sys.executable, str(TABLE), *pages(tmp_path)]
    page.write_text(f"before\n{page.read_text()}after\n")

    assert run(command) == (0, "")
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n")
    assert text.count("not measured") == 19

    times = {"p50": 2.5, "p99": 3.0}
    rows = [{"size": 8, "gmpi": times, "host": times, "conventional": {"graph": {"p50": 14.0}}}]
    echo = {"p50": 2.0, "p99": 2.5}
    data = {"null_request": times, "echo": echo, "rows": rows}
    (tmp_path / "pingpong-2gpu.json").write_text(json.dumps(data))
    status, message = run([*command, "--check"])
    assert status == 1 and "out of date" in message
    assert run(command) == (0, "")
    text = page.read_text()
    assert "2.50 us (p99 3.00), 5.6 x faster: met" in text
    assert "1.25 (2.50 / 2.00 us): met" in text
    assert text.count("not measured") == 17
    assert run([*command, "--check"]) == (0, "")

    data["null_request"]["p50"] = 2.51
    (tmp_path / "pingpong-2gpu.json").write_text(json.dumps(data))
    outcomes = {"machine": {"commit": "c0ffee"}, "passed": True, "counts": {"passed": 12}}
    (tmp_path / "gpu_tests-2gpu.json").write_text(json.dumps(outcomes))
    assert run(command) == (0, "")
    assert "**not met**" in page.read_text()
    assert "The GPU tests passed at commit c0ffee, 2 GPUs: 12 passed." in page.read_text()
    assert re.search(r"\| 8 B +(\| - +){5}\| 14.00 ", (tmp_path / "README.md").read_text())

    for other, verdict in (("failed", "**failed**"), ("not finished", "**did not all end**")):
        outcomes.update({"passed": False, "counts": {"passed": 11, other: 1}})
        (tmp_path / "gpu_tests-2gpu.json").write_text(json.dumps(outcomes))
        assert run(command) == (0, "")
        assert f"The GPU tests {verdict} at commit c0ffee" in page.read_text()


def pages(directory: Path) -> list[str]:
    """Writes pages with nothing but the markers; the program's options for them."""
    for name, text, mark in (("measuring.md", FIGURES, "measured"), ("README.md", README, "short")):
        begin, end = re.findall(rf"<!-- {mark}: .*? -->", text)
        (directory / name).write_text(f"{begin}\n{end}\n")
    places = {"--directory": "", "--page": "measuring.md", "--readme": "README.md"}
    return [word for option, name in places.items() for word in (option, str(directory / name))]


def measured_table(directory: Path, **files: object) -> str:
    """What the program writes into docs/measuring.md from files for two GPUs."""
    for name, data in files.items():
        (directory / f"{name}-2gpu.json").write_text(json.dumps(data))
    assert run([sys.executable, str(TABLE), *pages(directory)]) == (0, "")
    return (directory / "measuring.md").read_text()


def test_the_readme_has_all_roads_and_their_peers_of_the_same_gpus(tmp_path: Path) -> None:
    versions = dict.fromkeys(("numba", "numba-cuda", "mpi4py", "numpy"), "1")
    machine = {"gpu": ["NVIDIA H100 80GB, 580"] * 2, "gpu_id": "a", "commit": "c0ffee"}
    machine |= {"versions": versions, "cpu": "", "cores": 2, "mpi": "", "python": "3"}
    row = {"size": 8, "threads": 256, "direct": {"p50": 2.5}, "proxied": {"p50": 6}}
    roads: dict[str, object] = {
        "machine": machine,
        "where": "2 GPUs, NVIDIA H100 80GB",  # of a machine that may have more
        "rows": [row, {**row, "threads": 1024}, {**row, "size": 32}],
    }
    quicker = {"direct": {"p50": 1.75}, "registered": {"p50": 1.5}}
    by_all = {"direct": {"p50": 298.4}, "registered": {"p50": 285.0}}
    whole = {"name": "contiguous", "size": 1 << 26, "blocks": 132, **by_all}
    part = {**whole, "name": "triangle", "direct": {"p50": 400.0}}
    shorter = {"size": 8, "threads": 256, "blocks": 132, "direct": {"p50": 5.5}}
    slower = {**shorter, "threads": 1024, "direct": {"p50": 6.5}}
    today = {
        "machine": machine,
        "rows": [{"size": 8, "threads": 256, **quicker}],
        "grid_rows": [shorter, slower, whole, part],
    }
    for other, shown in (("a", ("1.25", "33.50")), ("b", ("-", "-"))):
        about = {"gpu_id": other, "commit": "c0ffee", "run": ""}
        times = {"nvshmem": {"p50": 1.25}, "device_pointers": {"p50": 33.5}}
        peers = {"machine": about, "rows": [{"size": 8, **times}]}
        measured_table(tmp_path, roads=roads, peers=peers, roads_grids=today)
        text = (tmp_path / "README.md").read_text()
        assert "2 GPUs, NVIDIA H100 80GB " in text and text.count("| 8 B ") == 1
        cells = " +\\| ".join(("8 B", "1.75; 1.50 registered", "5.50", "6.00", *shown))
        assert re.search(rf"\| {cells} +\|", text), text
        cells = " +\\| ".join(("64 MiB", "-", "298", "-", "-", "-"))
        assert re.search(rf"\| {cells} +\|", text), text


def test_peers_stand_beside_figures_of_the_same_run_only(tmp_path: Path) -> None:
    times = {"p50": 2.5, "p99": 3.0}
    rows = [{"size": size, "gmpi": times, "host": times} for size in (8, 1024)]
    pingpong = {"machine": {"run": "1"}, "rows": rows}
    measured = [{"size": 8, "nvshmem": {"p50": 1.25}, "device_pointers": {"p50": 33.5}}]
    measured.append({"size": 1024, "nvshmem": {"p50": 1.5}})
    peers = {"machine": {"run": "1"}, "rows": measured}
    text = measured_table(tmp_path, pingpong=pingpong, peers=peers)
    assert re.search(r"host mpi4py +\| MPI with device pointers +\| NVSHMEM +\|", text), text
    assert re.search(r"\| 8 B +\| 2.50 .* 33.50 +\| 1.25 +\|", text)
    assert re.search(r"\| 1 KiB +\| 2.50 .* - +\| 1.50 +\|", text)  # that peer cannot do it
    peers["machine"] = {"run": "2"}
    assert "NVSHMEM" not in measured_table(tmp_path, pingpong=pingpong, peers=peers)


def test_the_slowest_of_several_runs_has_to_meet_the_bar(tmp_path: Path) -> None:
    rates = [{"requests": 6e6 + k, "records_16": 120e6, "messages": 1.6e6} for k in range(4)]
    runs = [
        {"machine": {"gpu_id": k % 2, "commit": "abc"}, "per_s": per_s}
        for k, per_s in enumerate(rates)
    ]
    text = measured_table(tmp_path, rates_runs={"runs": runs})
    assert re.search(r"window of 16 .*1.60 to 1.60 M/s \(4 runs, 2 machines\): met", text), text
    assert "`rates_runs-2gpu.json`: 4 runs on 2 machines; commit abc" in text
    runs[2]["per_s"]["messages"] = 1.49e6
    text = measured_table(tmp_path, rates_runs={"runs": runs})
    assert re.search(r"window of 16 .*1.49 to 1.60 M/s .*: \*\*not met\*\*", text), text


def test_costs_of_a_record_and_of_a_launch_are_stated(tmp_path: Path) -> None:
    record = [{"arguments": n, "p50": 2.0 + n / 100} for n in (1, 7, 16, 25)]
    launch = {f"{p}_{k}": {"p50": 3.25} for p in ("cupy", "numba") for k in ("launch", "stream")}
    launch |= {"cupy_device": {"p50": 9.5}, "numba_device": {"p50": 19.5}}
    text = measured_table(tmp_path, rates={"record_cost": record, "launch_cost": launch})
    assert "2.01 / 2.07 / 2.16 / 2.25 us" in text
    assert "3.25 / 3.25 / 9.50 us" in text and "3.25 / 3.25 / 19.50 us" in text


def test_what_waiting_blocks_cost_is_the_worst_of_all_numbers_of_blocks(tmp_path: Path) -> None:
    def row(blocks: int, us: float) -> dict[str, object]:
        times = {"p50": us, "ratio": us / 8}
        return {"blocks": blocks, "to_gpu": times, "to_host": times, "launch": times}

    rows = [row(0, 8.0), row(16, 15.0), row(128, 12.0)]
    text = measured_table(tmp_path, waiting_blocks={"rows": rows})
    assert "1.88 (with 128: 12.0 / 8.0, 12.0 / 8.0, 12.0 / 8.0 us): met" in text, text
    rows[1] = row(16, 17.0)
    assert "2.12 (with" in measured_table(tmp_path, waiting_blocks={"rows": rows})
