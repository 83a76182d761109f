"""Writes the tables of measured figures in docs/measuring.md, and a short one in README.md.

    python docs/measurements/table.py [--check]

They come from the JSON files beside this program, which scripts in ``tests/gpu`` make; README.md
here says what is in them. A figure whose file is missing is "not measured". Nothing is rounded in
favour of a bar: a figure is compared as it stands in the file.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
from tabulate import tabulate

from docs.measurements.bars import KINDS, Files, bars, conventional, row_of, some
from docs.pages import fill

HERE = Path(__file__).resolve().parent
PROGRAM = "docs/measurements/table.py"

SIZES = [8, 1 << 10, 1 << 13, 1 << 16, 1 << 20, 1 << 24, 1 << 26]
FEW_SIZES = [8, 1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 26]  # in README.md
ROAD_THREADS = 256


def _us(time: float) -> str:
    return f"{time:.2f}" if time < 100 else f"{time:.0f}"


def _p50(row: dict[str, Any], name: str) -> str:
    return _us(row[name]["p50"]) if name in row else "-"


def _by_copies(row: dict[str, Any]) -> str:
    return _us(conventional(row)) if "conventional" in row else "-"


def load(directory: Path) -> dict[str, Files]:
    """The files of each kind by what is before the kind in their names, such as ``pingpong``."""
    found: dict[str, Files] = {kind: {} for kind in KINDS}
    for path in sorted(directory.glob("*.json")):
        stem, _, kind = path.stem.rpartition("-")
        if kind in found:
            found[kind][stem] = json.loads(path.read_text())
    return found


#: Columns of what users would pick instead, by the names in ``peers-2gpu.json``.
PEERS = {"device_pointers": "MPI with device pointers", "nvshmem": "NVSHMEM"}
ROAD_PEERS = ("nvshmem", "device_pointers")
COPIES = "kernel exit + copies + mpi4py"


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
    return [_p50(rows, peer) for peer in PEERS]


def latencies(files: Files) -> str:
    """One-way times by message size, in us; empty when there are none."""
    rows = []
    for size in SIZES:
        try:
            row = row_of(files, size)
        except KeyError:
            continue
        times = row["gmpi"]
        host = f"{row['host']['p50']:.2f}"
        cells = [_size(size), f"{times['p50']:.2f}", f"{times['p99']:.2f}", _by_copies(row), host]
        rows.append(cells + _peers(files, size))
    if not rows:
        return ""
    headers = ["one way, us", "GMPI p50", "p99", COPIES, "host mpi4py"]
    headers += list(PEERS.values())[: len(rows[0]) - len(headers)]
    return str(tabulate(rows, headers=headers, tablefmt="github", disable_numparse=True))


def roads(files: Files) -> str:
    """One way by message size, in us: the direct road by one block and by all, today; the proxied
    one; the peers, where the same GPUs measured them at the same commit; and by copies. Empty where
    there is nothing."""
    found = files.get("roads", {"machine": {}, "where": "", "rows": []})
    peers = files.get("peers", {"machine": {}, "rows": []})
    same = all(peers["machine"].get(n) == found["machine"].get(n) for n in ("gpu_id", "commit"))
    beside = {row["size"]: row for row in peers["rows"] if same}
    proxied = {row["size"]: row for row in found["rows"] if row["threads"] == ROAD_THREADS}
    today = files.get("roads_grids", {"rows": [], "grid_rows": []})
    blocks = {row["size"]: row for row in today["rows"] if row["threads"] == ROAD_THREADS}
    grids = {
        row["size"]: row
        for row in today["grid_rows"]  # those with names are parts of matrices, but for one
        if row.get("threads") == ROAD_THREADS or row.get("name") == "contiguous"
    }
    copied = {row["size"]: row for row in files.get("pingpong", {"rows": []})["rows"]}
    rows = []
    for size in FEW_SIZES:
        cells = [_direct(blocks.get(size, {})), _direct(grids.get(size, {}))]
        cells.append(_p50(proxied.get(size, {}), "proxied"))
        cells += [_p50(beside.get(size, {}), name) for name in ROAD_PEERS]
        cells.append(_by_copies(copied.get(size, {})))
        if any(cell != "-" for cell in cells):
            rows.append([_size(size), *cells])
    if not rows:
        return ""
    headers = [f"one way, us; {found['where']}", "GMPI, one block", "GMPI, all blocks"]
    headers += ["GMPI, with wildcards", *(PEERS[name] for name in ROAD_PEERS), COPIES]
    return str(tabulate(rows, headers=headers, tablefmt="github", disable_numparse=True))


def _direct(row: dict[str, Any]) -> str:
    """Into registered arrays, too, where that is another way."""
    times = [_p50(row, "direct")]
    if "registered" in row and row["registered"]["p50"] < 0.9 * row["direct"]["p50"]:
        times.append(f"{_p50(row, 'registered')} registered")
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
                runs = f"{some(len(data['runs']), 'run')} on {some(machines, 'machine')}"
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
    return {"measured": measured, "short": roads(best) or "not measured"}


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
