"""Draws what scaling.sh has measured: scaling_figures.py scaling.json DIRECTORY

One picture of each measurement: scaling-pairs.svg, -rates, -collectives, -himeno-strong,
-himeno-weak, and one of each application. Needs the extra "plot".
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib
from scaling_table import of_pairs

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "gmpi"  # the same file for the same figures
matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
import matplotlib.pyplot as plt  # noqa: E402

Points = Iterable[tuple[str, int, float]]  # a curve's name, ranks, value


def curves(path: Path, points: Points, what: str, title: str, **axes: Any) -> None:
    """A picture of values by number of ranks; none where there are no points."""
    by_name: dict[str, dict[int, float]] = {}
    for name, ranks, value in points:
        by_name.setdefault(name, {})[ranks] = value
    if not by_name:
        return
    figure, plot = plt.subplots(figsize=(6.5, 4.2))
    for name, values in by_name.items():
        plot.plot(sorted(values), [values[n] for n in sorted(values)], marker="o", label=name)
    ranks = sorted({n for values in by_name.values() for n in values})
    plot.set_xticks(ranks, [str(n) for n in ranks])
    plot.set(xlabel="ranks, a GPU each", ylabel=what, title=title, **axes)
    plot.grid(alpha=0.3)
    plot.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def pairs(path: Path, runs: dict[str, Any]) -> None:
    """One way between each pair, of the largest number of ranks."""
    if not runs:
        return
    ranks = max(runs, key=int)
    found = runs[ranks]["pairs"]
    kinds = sorted({(row["road"], row["size"]) for row in found})
    figure, plots = plt.subplots(1, len(kinds), figsize=(3.2 * len(kinds), 3.2), squeeze=False)
    for plot, kind in zip(plots[0], kinds, strict=True):
        table = [[float("nan")] * int(ranks) for _ in range(int(ranks))]
        for (a, b), us in of_pairs(found, *kind).items():
            table[a][b] = table[b][a] = us
        picture = plot.imshow(table, cmap="viridis")
        plot.set(title=f"{kind[0]}, {kind[1]} B, µs", xlabel="rank", ylabel="rank")
        figure.colorbar(picture, ax=plot, shrink=0.7)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def collectives(found: dict[str, Any]) -> Points:
    for ranks, run in found["collectives"].items():
        for row in run["rows"]:
            scope = "block" if row["blocks"] == 1 else "grid"
            name = f"{row['call']} {row['size']} B, {scope}, {row['threads']} threads"
            yield name, int(ranks), row["direct"]["p50"]


def himeno(found: dict[str, Any], kind: str) -> Points:
    """The quickest cut of each number of ranks; of the grid, or of the part of a rank."""
    best: dict[tuple[str, int], float] = {}
    for row in found["himeno"]:
        if kind not in row:
            continue
        sizes = (map(int, row[key].split("x")) for key in ("size", "decomposition"))
        parts = "x".join(str(whole // ranks) for whole, ranks in zip(*sizes, strict=True))
        shown = row["size"] if kind == "strong" else f"{parts} a rank"
        key = f"{row['program'].removeprefix('himeno_')}, {shown}", row["ranks"]
        best[key] = max(best.get(key, 0.0), row[kind])
    yield from ((name, ranks, value) for (name, ranks), value in best.items())


def main(source: str, directory: str) -> int:
    found, out = json.loads(Path(source).read_text()), Path(directory)
    pairs(out / "scaling-pairs.svg", found["all_ranks"])
    rates = (
        (rate["road"], int(ranks), rate["per_second"] / 1e6)
        for ranks, run in found["all_ranks"].items()
        for rate in run["rates"]
    )
    curves(out / "scaling-rates.svg", rates, "million messages/s of each", "8 B, all ranks at once")
    picture = out / "scaling-collectives.svg"
    curves(picture, collectives(found), "µs", "Collectives of kernels", yscale="log")
    for kind, words in (("strong", "T1 / (N TN)"), ("weak", "T1 / TN")):
        picture, title = out / f"scaling-himeno-{kind}.svg", f"Himeno, {kind} scaling"
        curves(picture, himeno(found, kind), words, title, ylim=(0, None))
    for name in sorted({row["name"] for row in found["applications"]}):
        rows = [r for r in found["applications"] if r["name"] == name and "efficiency" in r]
        points = ((row["case"], row["ranks"], row["efficiency"]) for row in rows)
        curves(out / f"scaling-{name}.svg", points, "efficiency", name, ylim=(0, None))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
