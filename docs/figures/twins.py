"""Draws applications beside their twins of CUDA and MPI: ``cg.svg``, ``mg.svg``, ``halo26.svg`` and
``stencil9.svg``.

    python docs/figures/twins.py [--to FOLDER]        (needs the extra "plot")

From ``docs/measurements/applications-2gpu.json``, as the tables of docs/applications.md are.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import click
import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "gmpi"  # the same file for the same figures
matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import LogLocator, NullLocator  # noqa: E402

HERE = Path(__file__).resolve().parent
MEASURED = HERE.parent / "measurements" / "applications-2gpu.json"


class Figure(NamedTuple):
    """What a figure shows of one application: title, words for its cases in their order."""

    title: str
    cases: dict[str, str]


FIGURES = {
    "cg": Figure("NPB CG on two H200", {k: f"class {k}" for k in "SWA"}),
    "mg": Figure("NPB MG on two H200", {k: f"class {k}" for k in "SWAB"}),
    "halo26": Figure(
        "A halo of 26 neighbours on two H200",
        {
            f"{points} {how}": f"{points}³ points,\n{how}"
            for points in (64, 256)
            for how in ("messages", "partitions")
        },
    ),
    "stencil9": Figure(
        "SHOC's 9-point stencil on two H200",
        {str(n): f"{n}²" for n in (128, 256, 512, 1024)},
    ),
}


def rows_of(name: str) -> list[dict[str, Any]]:
    """The measured cases, in the figure's order."""
    rows = {
        row["case"]: row
        for row in json.loads(MEASURED.read_text())["rows"]
        if row["name"] == name and "speedup" in row
    }
    return [rows[case] for case in FIGURES[name].cases]


def times_as_fast(row: dict[str, Any]) -> str:
    speedup = row["speedup"]
    return f"{speedup:.0f} x" if speedup >= 10 else f"{speedup:.1f} x"


def draw(name: str, to: Path) -> None:
    """Two marks for each case, joined by a line with what divides them: the axis is logarithmic."""
    rows, shown = rows_of(name), FIGURES[name]
    figure, axes = plt.subplots(figsize=(6.2, 3.2))
    places = range(len(rows))
    for place, row in zip(places, rows):
        pair = row["gmpi"], row["cuda_mpi"]
        axes.plot([place, place], pair, color="#b4b9c1", linewidth=2, zorder=1)
        middle = (pair[0] * pair[1]) ** 0.5
        axes.annotate(
            times_as_fast(row), (place, middle), (6, 0),
            textcoords="offset points", va="center", fontsize=9,
        )  # fmt: skip
    for way, label, marker, colour in (
        ("gmpi", "GMPI, one kernel", "o", "#2f7d1c"),
        ("cuda_mpi", "CUDA + MPI, kernels end", "s", "#8a4b08"),
    ):
        values = [row[way] for row in rows]
        axes.scatter(places, values, 40, colour, marker=marker, label=label, zorder=2)
    axes.set_yscale("log")
    axes.margins(x=0.15, y=0.1)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xticks(places, list(shown.cases.values()), fontsize=9)
    less = "" if rows[0]["unit"].endswith("/s") else " (less is better)"
    axes.set_ylabel(f"{rows[0]['unit'].replace('us', 'µs')}{less}", fontsize=9)
    axes.set_axisbelow(True)
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1), ncol=2, frameon=False)
    figure.suptitle(f"{shown.title}, and how many times as fast", fontsize=10)
    figure.tight_layout()
    figure.savefig(to / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)


@click.command()
@click.option("--to", type=click.Path(path_type=Path), default=HERE, help="[docs/figures]")
def main(to: Path) -> None:
    for name in FIGURES:
        draw(name, to)


if __name__ == "__main__":
    main()
