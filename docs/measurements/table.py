"""Writes the tables of measured figures in docs/measuring.md, and a short one in README.md.

    python docs/measurements/table.py [--check]

They come from the JSON files beside this program, which ``tests/gpu/measure.sh`` makes; README.md
here says what is in them. A figure whose file is missing is "not measured". Nothing is rounded in
favour of a bar: a figure is compared as it stands in the file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
from tabulate import tabulate

from docs.pages import fill

HERE = Path(__file__).resolve().parent
PROGRAM = "docs/measurements/table.py"

#: Suffix of the files -> heading of their column.
KINDS = {"2gpu": "2 GPUs", "1gpu": "1 GPU, 2 ranks under MPS", "simulator": "simulator"}
SIZES = [8, 1 << 10, 1 << 13, 1 << 16, 1 << 20, 1 << 24, 1 << 26]
FEW_SIZES = [8, 1 << 16, 1 << 20]  # in README.md
ROAD_SIZES = [8, 1 << 10, 1 << 16, 1 << 20]
ROAD_THREADS = 256

Files = dict[str, dict[str, Any]]


class Measured(NamedTuple):
    text: str
    met: bool | None  # None: there is no bar


class Figure(NamedTuple):
    """One row: ``of`` gets the files of one kind by their stems; KeyError: not measured there."""

    name: str
    bar: str
    of: Callable[[Files], Measured]
    kinds: tuple[str, ...] = ("2gpu", "1gpu")


def _us(times: dict[str, float]) -> str:
    return f"{times['p50']:.2f} us (p99 {times['p99']:.2f})"


def _row(files: Files, size: int, program: str = "pingpong") -> dict[str, Any]:
    for row in files[program]["rows"]:
        if row["size"] == size:
            found: dict[str, Any] = row
            return found
    raise KeyError(size)


def _conventional(row: dict[str, Any]) -> float:
    return float(min(variant["p50"] for variant in row["conventional"].values()))


def _null_request(files: Files) -> Measured:
    null, echo = files["pingpong"]["null_request"], files["pingpong"]["echo"]
    ratio = null["p50"] / echo["p50"]
    return Measured(f"{ratio:.2f} ({null['p50']:.2f} / {echo['p50']:.2f} us)", ratio <= 1.25)


def _eight_bytes(files: Files) -> Measured:
    row = _row(files, 8)
    times = _conventional(row) / row["gmpi"]["p50"]
    text = f"{_us(row['gmpi'])}, {times:.1f} x faster"
    return Measured(text, row["gmpi"]["p50"] <= 3.0 and times >= 4)


def _against_conventional(size: int, bar: float) -> Callable[[Files], Measured]:
    def of(files: Files) -> Measured:
        row = _row(files, size)
        ratio = row["gmpi"]["p50"] / _conventional(row)
        return Measured(f"{ratio:.2f} ({_us(row['gmpi'])})", ratio <= bar)

    return of


def _against_host(size: int, bar: float) -> Callable[[Files], Measured]:
    def of(files: Files) -> Measured:
        row = _row(files, size)
        ratio = row["gmpi"]["p50"] / row["host"]["p50"]
        return Measured(f"{ratio:.2f} ({_us(row['gmpi'])})", ratio <= bar)

    return of


def _records(blocks: int, bar: float) -> Callable[[Files], Measured]:
    def of(files: Files) -> Measured:
        if "rates_runs" in files:
            return _range(files["rates_runs"]["runs"], f"records_{blocks}", bar, 1)
        for found in files["rates"]["records"]:
            if found["blocks"] == blocks:
                return Measured(f"{found['per_s'] / 1e6:.1f} M/s", found["per_s"] >= bar)
        raise KeyError(blocks)

    return of


def _rate(name: str, bar: float) -> Callable[[Files], Measured]:
    def of(files: Files) -> Measured:
        if "rates_runs" in files:
            return _range(files["rates_runs"]["runs"], name, bar, 2)
        per_s = files["rates"][name]["per_s"]
        return Measured(f"{per_s / 1e6:.2f} M/s", per_s >= bar)

    return of


def _range(runs: list[dict[str, Any]], name: str, bar: float, digits: int) -> Measured:
    """Of a rate that was measured several times: met where the slowest run meets the bar."""
    found = [run["per_s"][name] for run in runs]
    low, high = (f"{value / 1e6:.{digits}f}" for value in (min(found), max(found)))
    machines = len({run["machine"].get("gpu_id") for run in runs})
    text = f"{low} to {high} M/s ({len(found)} runs, {_some(machines, 'machine')})"
    return Measured(text, min(found) >= bar)


def _some(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _record_cost(files: Files) -> Measured:
    found = {row["arguments"]: row["p50"] for row in files["rates"]["record_cost"]}
    us = [f"{found[n]:.2f}" for n in (1, 7, 16, 25)]
    return Measured(" / ".join(us) + " us", None)


def _launch_cost(program: str) -> Callable[[Files], Measured]:
    def of(files: Files) -> Measured:
        found = files["rates"]["launch_cost"]
        us = [f"{found[f'{program}_{kind}']['p50']:.2f}" for kind in ("launch", "stream", "device")]
        return Measured(" / ".join(us) + " us", None)

    return of


def _allreduce(files: Files) -> Measured:
    rates = files["rates"]
    mine, host = rates["allreduce"]["gmpi"], rates["allreduce"]["host"]
    bound = 2 * host["p50"] + rates["echo"]["p50"]
    return Measured(f"{_us(mine)}; bar {bound:.2f} us", mine["p50"] <= bound)


def _busy(files: Files) -> Measured:
    quiet, busy = (files["rates"][f"one_way_{name}"]["p50"] for name in ("quiet", "busy"))
    return Measured(f"{busy / quiet:.2f} ({busy:.2f} / {quiet:.2f} us)", busy / quiet <= 1.1)


def _engines(files: Files) -> Measured:
    compiled = _row(files, 8)["gmpi"]["p50"]
    plain = _row(files, 8, "pingpong-mpi4py")["gmpi"]["p50"]
    return Measured(f"{compiled:.2f} us, {plain:.2f} us", None)


def _idle(files: Files) -> Measured:
    idle = files["rates"]["idle"]
    share, first = idle["core_share"]["p50"], idle["first_request_us"]
    text = f"{100 * share:.1f} %; {first['p50']:.0f} us, at most {first['max']:.0f}"
    return Measured(text, share <= 0.05 and first["max"] <= 100)


def _waiting_blocks(files: Files) -> Measured:
    rows = {row["blocks"]: row for row in files["waiting_blocks"]["rows"]}
    none, most = rows[0], rows[max(rows)]
    names = ("to_gpu", "to_host", "launch")
    us = ", ".join(f"{most[n]['p50']:.1f} / {none[n]['p50']:.1f}" for n in names)
    worst = max(row[name]["ratio"] for row in rows.values() for name in names)
    return Measured(f"{worst:.2f} (with {max(rows)}: {us} us)", worst <= 2)


def _simulator(files: Files) -> Measured:
    times = _row(files, 8)["gmpi"]
    round_trip_ms = 2 * times["p50"] / 1000
    return Measured(f"{round_trip_ms:.2f} ms", round_trip_ms <= 3)


FIGURES = [
    Figure("null request, round trip ÷ 8-byte echo", "≤ 1.25", _null_request),
    Figure("8 B one way", "≤ 3.0 us, ≥ 4 x faster than conventional", _eight_bytes),
    Figure(
        "64 KiB one way, one block, ÷ conventional", "≤ 0.6", _against_conventional(1 << 16, 0.6)
    ),
    Figure("1 MiB one way ÷ plain mpi4py on the host", "≤ 1.2", _against_host(1 << 20, 1.2)),
    Figure("16 MiB one way ÷ plain mpi4py on the host", "≤ 1.2", _against_host(1 << 24, 1.2)),
    Figure("null records through one ring, 16 blocks x 4 warps", "≥ 20 M/s", _records(16, 20e6)),
    Figure("null records through one ring, 132 blocks x 4 warps", "≥ 10 M/s", _records(132, 10e6)),
    Figure("null requests, posted and waited for, 16 x 4 warps", "≥ 5 M/s", _rate("requests", 5e6)),
    Figure("8-byte messages, 64 warps, window of 16", "≥ 1.5 M/s", _rate("messages", 1.5e6)),
    Figure("the same with `no_any_tag`", "≥ 1.5 M/s", _rate("messages_no_any_tag", 1.5e6)),
    Figure("Allreduce of one double", "≤ 2 x the host's + one echo", _allreduce),
    Figure("8 B one way while Python is busy ÷ quiet", "≤ 1.1", _busy),
    Figure("8 B one way, compiled engine and mpi4py engine", "stated", _engines),
    Figure("a record of 1 / 7 / 16 / 25 arguments, there and back", "stated", _record_cost),
    Figure("launch / and wait for stream / for device, CuPy", "stated", _launch_cost("cupy")),
    Figure("launch / and wait for stream / for device, Numba", "stated", _launch_cost("numba")),
    Figure("proxy after 1 s of silence: core; first request", "≤ 5 %; ≤ 100 us", _idle),
    Figure("copies of 8 B, a launch: beside blocks that wait ÷ alone", "≤ 2", _waiting_blocks),
    Figure(
        "simulator, 2 ranks on 2 cores, 8 B round trip of 32 lanes",
        "≤ 3 ms",
        _simulator,
        ("simulator",),
    ),
]


def load(directory: Path) -> dict[str, Files]:
    """The files of each kind by what is before the kind in their names, such as ``pingpong``."""
    found: dict[str, Files] = {kind: {} for kind in KINDS}
    for path in sorted(directory.glob("*.json")):
        stem, _, kind = path.stem.rpartition("-")
        if kind in found:
            found[kind][stem] = json.loads(path.read_text())
    return found


def bars(kinds: dict[str, Files]) -> str:
    """The figures that have a bar, with what was measured."""
    shown = [kind for kind in ("2gpu", "1gpu") if kinds[kind]] or ["2gpu"]
    rows = []
    for figure in FIGURES:
        cells = []
        on_gpu = figure.kinds != ("simulator",)
        for kind in shown if on_gpu else figure.kinds:
            try:
                measured = figure.of(kinds[kind])
            except KeyError:
                cells.append("not measured")
                continue
            verdict = {True: ": met", False: ": **not met**", None: ""}[measured.met]
            cells.append(measured.text + verdict)
        cells += [""] * (len(shown) - len(cells))
        rows.append([figure.name, figure.bar, *cells])
    headers = ["figure (both sides of a ratio in the same run)", "bar", *(KINDS[k] for k in shown)]
    return str(tabulate(rows, headers=headers, tablefmt="github", disable_numparse=True))


#: Columns of what users would pick instead, by the names in ``peers-2gpu.json``.
PEERS = {"device_pointers": "MPI with device pointers", "nvshmem": "NVSHMEM"}
ROAD_PEERS = ("nvshmem", "device_pointers")


def _peers(files: Files, size: int) -> list[str]:
    """Their times, if they were measured in the run that the other columns are of."""
    found = files.get("peers")
    run = files["pingpong"].get("machine", {}).get("run")
    if found is None or not run or found["machine"]["run"] != run:
        return []
    rows: dict[str, Any] = {}
    for row in found["rows"]:
        if row["size"] == size:
            rows = row
    return [f"{rows[peer]['p50']:.2f}" if peer in rows else "-" for peer in PEERS]


def latencies(files: Files, sizes: list[int] = SIZES) -> str:
    """One-way times by message size, in us; empty when there are none."""
    rows = []
    for size in sizes:
        try:
            row = _row(files, size)
        except KeyError:
            continue
        conventional = f"{_conventional(row):.2f}" if "conventional" in row else "-"
        times = row["gmpi"]
        host = f"{row['host']['p50']:.2f}"
        cells = [_size(size), f"{times['p50']:.2f}", f"{times['p99']:.2f}", conventional, host]
        rows.append(cells + _peers(files, size))
    if not rows:
        return ""
    headers = ["one way, us", "GMPI p50", "p99", "kernel exit + copies + mpi4py", "host mpi4py"]
    headers += list(PEERS.values())[: len(rows[0]) - len(headers)]
    return str(tabulate(rows, headers=headers, tablefmt="github", disable_numparse=True))


def roads(files: Files) -> str:
    """Both roads by message size, in us, and the peers where the same GPUs measured them at the
    same commit; empty where there are none."""
    found = files.get("roads")
    if found is None:
        return ""
    peers = files.get("peers", {"machine": {}, "rows": []})
    same = all(peers["machine"].get(n) == found["machine"].get(n) for n in ("gpu_id", "commit"))
    beside = {row["size"]: row for row in peers["rows"] if same}
    later = files.get("roads_announced", {"rows": []})["rows"]
    today = {row["size"]: _today(row) for row in later if row["threads"] == ROAD_THREADS}
    rows = []
    for row in found["rows"]:
        if row["threads"] == ROAD_THREADS and row["size"] in ROAD_SIZES:
            cells = [f"{row[road]['p50']:.2f}" for road in ("direct", "proxied")]
            cells.insert(1, today.get(row["size"], "-"))
            peer = beside.get(row["size"], {})
            cells += [f"{peer[name]['p50']:.2f}" if name in peer else "-" for name in ROAD_PEERS]
            rows.append([_size(row["size"]), *cells])
    headers = [f"one way, us; {found['where']}"]
    headers += ["GMPI, `wildcards=False`", "the same, later", "GMPI, through the proxies"]
    headers += [PEERS[name] for name in ROAD_PEERS]
    return str(tabulate(rows, headers=headers, tablefmt="github", disable_numparse=True))


def _today(row: dict[str, Any]) -> str:
    """Of a later run; into registered arrays, too, where that is another way."""
    times = [f"{row['direct']['p50']:.2f}"]
    if "registered" in row and row["registered"]["p50"] < 0.9 * row["direct"]["p50"]:
        times.append(f"{row['registered']['p50']:.2f} registered")
    return "; ".join(times)


def _size(nbytes: int) -> str:
    for unit, shift in (("MiB", 20), ("KiB", 10)):
        if nbytes >= 1 << shift:
            return f"{nbytes >> shift} {unit}"
    return f"{nbytes} B"


def machines(kinds: dict[str, Files]) -> str:
    """Where the figures come from: a line for each machine, with its files and their commits."""
    lines: list[str] = []
    found: dict[str, list[str]] = {}
    for kind, files in kinds.items():
        for stem, data in files.items():
            if "runs" in data:
                commits = sorted({run["machine"]["commit"] for run in data["runs"]})
                machines = len({run["machine"].get("gpu_id") for run in data["runs"]})
                runs = f"{_some(len(data['runs']), 'run')} on {_some(machines, 'machine')}"
                named = "commit" if len(commits) == 1 else "commits"
                lines.append(f"* `{stem}-{kind}.json`: {runs}; {named} {', '.join(commits)}")
            machine = data.get("machine", {})
            if "gpu" not in machine:
                continue
            gpus = machine["gpu"]
            where = f"{len(gpus)} x {gpus[0]}" if isinstance(gpus, list) else gpus
            versions = machine["versions"]
            names = ("numba", "numba-cuda", "mpi4py", "numpy")
            packages = ", ".join(f"{name} {versions[name]}" for name in names)
            text = (
                f"{where}; {machine['cpu']}, {machine['cores']} cores; "
                f"{' '.join(machine['mpi'].split())}; Python {machine['python']}, {packages}"
            )
            found.setdefault(text, []).append(f"`{stem}-{kind}.json` ({machine['commit']})")
    return "\n".join([*lines, *(f"* {text}: {', '.join(names)}" for text, names in found.items())])


def gpu_tests(kinds: dict[str, Files]) -> str:
    """At which commit the tests of ``tests/gpu/run.sh`` last passed, a line for each machine."""
    lines = []
    for kind, files in kinds.items():
        found = files.get("gpu_tests")
        if found is None:
            continue
        counts = ", ".join(f"{n} {outcome}" for outcome, n in found["counts"].items())
        complete = "**failed**" if "failed" in found["counts"] else "**did not all end**"
        verdict = "passed" if found["passed"] else complete
        commit = found["machine"]["commit"]
        lines.append(f"The GPU tests {verdict} at commit {commit}, {KINDS[kind]}: {counts}.")
    return "\n".join(lines)


def texts(directory: Path) -> dict[str, str]:
    """What stands between markers, by the name in them."""
    kinds = load(directory)
    best = kinds["2gpu"] or kinds["1gpu"]
    parts = [latencies(best), bars(kinds), gpu_tests(kinds), machines(kinds)]
    measured = "\n\n".join(part for part in parts if part)
    short = [part for part in (roads(best), latencies(best, FEW_SIZES)) if part]
    return {"measured": measured, "short": "\n\n".join(short) or "not measured"}


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--check", is_flag=True, help="Only say whether the pages are up to date.")
@click.option("--directory", type=click.Path(path_type=Path), default=HERE, show_default=True)
@click.option("--page", type=click.Path(path_type=Path), default=HERE.parent / "measuring.md")
@click.option("--readme", type=click.Path(path_type=Path), default=HERE.parents[1] / "README.md")
def main(check: bool, directory: Path, page: Path, readme: Path) -> None:
    found = texts(directory)
    for path, name in ((page, "measured"), (readme, "short")):
        old = path.read_text()
        new = fill(old, PROGRAM, name, found[name])
        if new == old:
            continue
        if check:
            sys.exit(f"{path} is out of date: run python {PROGRAM}")
        path.write_text(new)


if __name__ == "__main__":
    main()
