"""Writes the figures of the applications in docs/applications.md.

    python docs/measurements/applications_table.py [--check]

They come from the files applications*-2gpu.json beside this program, which
``tests/gpu/applications.sh`` makes. A program and its twin are divided only where one run has both.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
from tabulate import tabulate

from docs.pages import fill

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "applications.md"
PROGRAM = "docs/measurements/applications_table.py"
HEADERS = ("program", "case", "unit", "GMPI", "CUDA + MPI", "times as fast")


def _number(value: float | None) -> str:
    """Three digits: two runs differ in the third."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _scaled(row: dict[str, Any]) -> dict[str, Any]:
    if row["unit"] != "TEPS":
        return row
    ways = {way: row[way] / 1e6 for way in ("gmpi", "cuda_mpi") if way in row}
    return {**row, **ways, "unit": "million TEPS"}


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Sizes by their number, NPB's classes by theirs."""
    words = row["case"].split()
    first = "SWAB".find(words[0]) if words[0] in "SWAB" else int(words[0])
    return row["name"], first, words[1:]


def figures(path: Path) -> str:
    data = json.loads(path.read_text())
    rows = [
        [
            row["name"],
            row["case"],
            row["unit"],
            *(_number(row.get(key)) for key in ("gmpi", "cuda_mpi", "speedup")),
        ]
        for row in map(_scaled, sorted(data["rows"], key=_key))
    ]
    machine = data["machine"]
    table = tabulate(rows, HEADERS, tablefmt="github", disable_numparse=True)
    ranks, gpus = data["ranks"], len(machine["gpu"])
    used = f"{ranks} of {gpus}" if ranks < gpus else gpus
    return (
        f"{table}\n\n`{path.name}`: {ranks} ranks on {used} x "
        f"{machine['gpu'][0]}; {machine['cpu']}, {machine['cores']} cores; "
        f"{' '.join(machine['mpi'].split())}; commit {machine['commit']}."
    )


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--check", is_flag=True, help="fail where the page is out of date")
def main(check: bool) -> None:
    content = "\n\n".join(figures(path) for path in sorted(HERE.glob("applications*-2gpu.json")))
    old = PAGE.read_text()
    new = fill(old, PROGRAM, "figures", content)
    if new != old and check:
        sys.exit(f"{PAGE} is out of date: run python {PROGRAM}")
    PAGE.write_text(new)


if __name__ == "__main__":
    main()
