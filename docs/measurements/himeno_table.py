"""Writes the figures in docs/himeno.md from the JSON files in docs/measurements/himeno.

    python docs/measurements/himeno_table.py [--check]

The files come from ``tests/gpu/himeno.sh docs/measurements/himeno``. Nothing is rounded in favour
of a bar: a ratio is compared as it stands in the files.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
from tabulate import tabulate

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "examples"))

from _himeno_report import lines_table, pairs, read  # noqa: E402

BEGIN = "<!-- {}: begin. Written by docs/measurements/himeno_table.py -->"
END = "<!-- {}: end -->"
SHOWN = 5  # persistent plans of a size

Rows = list[dict[str, Any]]


def _table(rows: list[list[Any]], headers: list[str]) -> str:
    return str(tabulate(rows, headers=headers, tablefmt="github", disable_numparse=True))


def _us(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.1f}"


def results(measured: Rows) -> str:
    """Time of an iteration of both programs, and their ratio against its bar."""
    rows = []
    for row in pairs(measured):
        bar, ratio = row["wanted"], row["ratio"]
        verdict = "" if bar is None else ": met" if ratio >= bar else ": **not met**"
        rows.append(
            [
                *(row["size"], row["ranks"], row["cut"]),
                *(_us(row["GMPI us"]), _us(row["CUDA+MPI us"])),
                *(f"{ratio:.2f}", "" if bar is None else f"≥ {bar}{verdict}"),
                *(f"{row['GMPI GFLOPS']:.0f}", "yes" if row["same gosa"] else "**no**"),
            ]
        )
    headers = ["size", "ranks", "cut", "GMPI, us", "CUDA+MPI, us", "CUDA+MPI ÷ GMPI", "bar"]
    return _table(rows, [*headers, "GMPI, GFLOPS", "same gosa"])


def parts(measured: Rows) -> str:
    """Where the time of an iteration goes."""
    names = ["iteration", "compute", "boundary", "halo", "convergence", "exposed"]
    rows = [
        [row["program"], row["name"], row["ranks"]]
        + [f"{row['breakdown'][n]:.1f}" if n in row["breakdown"] else "-" for n in names]
        for row in measured
        if "breakdown" in row
    ]
    return _table(rows, ["program", "size", "ranks", *(f"{name}, us" for name in names)])


def lines() -> str:
    rows = [[row["program"], f"`{row['files']}`", row["lines"]] for row in lines_table()]
    return _table(rows, ["program", "files", "lines of code"])


def sweeps(directory: Path) -> str:
    """The sweep alone, on one GPU: the fastest launched and the fastest persistent plans."""
    path = directory / "sweeps.json"
    if not path.exists():
        return "not measured"
    found = json.loads(path.read_text())
    rows = []
    for size in dict.fromkeys(row["size"] for row in found["rows"]):
        mine = [row for row in found["rows"] if row["size"] == size]
        launched, persistent = (
            sorted((row for row in mine if row["kind"] == kind), key=lambda row: row["us"])
            for kind in ("launched", "persistent")
        )
        best = launched[0]["us"]
        for row in [launched[0], *persistent[:SHOWN]]:
            times = [f"{row['us']:.2f}", f"{row['us'] / best:.3f}"]
            times.append(f"{row['us'] / row['ideal_us']:.3f}")
            rows.append([size, row["kind"], row["plan"], row["registers"], *times])
    headers = ["size", "kernel", "plan", "registers", "us", "÷ launched", "÷ 56 B a point"]
    return _table(rows, headers)


def machines(directory: Path) -> str:
    """Where the figures come from, a line for each file."""
    found = []
    for path in sorted(directory.glob("*.json")):
        data = json.loads(path.read_text())
        if "machine" in data and path.stem != "himeno":
            machine = data["machine"]
            gpus = machine["gpu"]
            versions = ", ".join(f"{n} {v}" for n, v in machine["versions"].items())
            found.append(
                f"* `himeno/{path.name}`: {len(gpus)} x {gpus[0]}; {machine['cpu']}, "
                f"{machine['cores']} cores; {machine['mpi'].split(',')[0]}; Python "
                f"{machine['python']}, {versions}; commit {machine['commit']}"
            )
    return "\n".join(found)


def fill(text: str, name: str, content: str) -> str:
    """The page with new content between the markers of ``name``."""
    begin, end = BEGIN.format(name), END.format(name)
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise click.ClickException(f"the page lacks a marker: {end if found else begin}")
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--check", is_flag=True, help="Only say whether the page is up to date.")
@click.option("--directory", type=click.Path(path_type=Path), default=HERE / "himeno")
@click.option("--page", type=click.Path(path_type=Path), default=HERE.parent / "himeno.md")
def main(check: bool, directory: Path, page: Path) -> None:
    measured = read(directory)
    old = new = page.read_text()
    contents = {"results": results(measured), "parts": parts(measured), "lines": lines()}
    contents |= {"sweeps": sweeps(directory), "machines": machines(directory)}
    for name, content in contents.items():
        new = fill(new, name, content)
    if new != old and check:
        raise click.ClickException(
            f"{page} is out of date: run python docs/measurements/himeno_table.py"
        )
    if new != old:
        page.write_text(new)


if __name__ == "__main__":
    main()
