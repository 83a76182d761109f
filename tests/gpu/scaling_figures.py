"""Draws what scaling.sh has measured: scaling_figures.py scaling.json... DIRECTORY; without
arguments, docs/figures from docs/measurements.

One picture each: scaling-pairs.svg, -rates, -collectives, -himeno-strong, -himeno-weak and
-applications. Figures of later files stand in place of the same ones of earlier files; pairs are
those of the last file that has any. Needs the extra "plot".
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import _scaling_measured as measured

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "gmpi"  # the same file for the same figures
matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
import matplotlib.pyplot as plt  # noqa: E402

Points = Iterable[tuple[str, int, float]]  # a curve's name, ranks, value
Files = list[dict[str, Any]]


def save(figure: Any, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def curves(path: Path, pictures: dict[str, Points], what: str, **axes: Any) -> None:
    """Values by number of ranks, side by side, each with its title; no file without points."""
    drawn: dict[str, dict[str, dict[int, float]]] = {}
    for title, points in pictures.items():
        for name, ranks, value in points:
            drawn.setdefault(title, {}).setdefault(name, {})[ranks] = value
    if not drawn:
        return
    shape = {"figsize": (1 + 4.6 * len(drawn), 5.2), "layout": "constrained", "squeeze": False}
    figure, plots = plt.subplots(1, len(drawn), **shape)
    for plot, (title, by_name) in zip(plots[0], drawn.items(), strict=True):
        what_it_is = {
            name: name.removeprefix("CUDA + MPI, ").removeprefix("GMPI, ") for name in by_name
        }
        colours = {words: f"C{k}" for k, words in enumerate(dict.fromkeys(what_it_is.values()))}
        for name, values in by_name.items():
            look = {"linestyle": "--" if name.startswith("CUDA") else "-"}
            look["color"] = colours[what_it_is[name]]
            ranks = sorted(values)
            plot.plot(ranks, [values[n] for n in ranks], marker="o", label=name, **look)
        ranks = sorted({n for values in by_name.values() for n in values})
        plot.set_xticks(ranks, [str(n) for n in ranks])
        plot.set(xlabel="ranks, a GPU each", ylabel=what, title=title, **axes)
        plot.grid(alpha=0.3)
        plot.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2)
    save(figure, path)


def pairs(path: Path, files: Files) -> None:
    """One way between each pair, of the largest number of ranks."""
    runs = next((found["all_ranks"] for found in reversed(files) if found["all_ranks"]), None)
    if not runs:
        return
    ranks = max(runs, key=int)
    found = runs[ranks]["pairs"]
    kinds = sorted({(row["road"], row["size"]) for row in found})
    columns = min(2, len(kinds))
    shape = -(-len(kinds) // columns), columns
    figure, plots = plt.subplots(
        *shape, figsize=(7, 3.4 * shape[0]), layout="constrained", squeeze=False
    )
    for plot, kind in zip(plots.flat, kinds, strict=False):
        table = [[float("nan")] * int(ranks) for _ in range(int(ranks))]
        each = measured.of_pairs(found, *kind)
        for (a, b), us in each.items():
            table[a][b] = table[b][a] = us
        plot.imshow(table, cmap="viridis", vmin=0, alpha=0.6)
        for a, row in enumerate(table):
            for b, us in enumerate(row):
                if us == us:  # a rank and itself: not a number
                    plot.text(b, a, f"{us:.2f}", ha="center", va="center", fontsize=9)
        every = range(int(ranks))
        plot.set(title=f"{kind[0]}, {kind[1]} B, µs one way", xlabel="rank", ylabel="rank")
        plot.set(xticks=every, yticks=every)
    for plot in plots.flat[len(kinds) :]:
        plot.set_axis_off()
    save(figure, path)


def collectives(files: Files, road: str) -> Points:
    """Of 8 bytes, by a block of the fewest threads that were measured."""
    found = measured.collectives(files)
    fewest = min((key[2] for key in found), default=0)
    for (call, size, threads, grid, way), values in found.items():
        if size <= 8 and threads == fewest and not grid and way == road:
            for ranks, (us, _) in values.items():
                yield call, ranks, us


def himeno(files: Files, kind: str) -> Points:
    """The quickest cut of each number of ranks; of the grid, or of the part of a rank."""
    best: dict[tuple[str, int], float] = {}
    for row in measured.himeno(files):
        if kind in row:
            size = row["size"]
            shown = size if kind == "strong" else measured.part_of(size, row["decomposition"])
            name = f"{measured.PROGRAMS[row['program']]}, {measured.SIZES.get(shown, shown)}"
            best[name, row["ranks"]] = max(best.get((name, row["ranks"]), 0.0), row[kind])
    yield from ((name, ranks, value) for (name, ranks), value in best.items())


def main(*arguments: str) -> int:
    if arguments:
        *sources, directory = arguments
        files, out = [json.loads(Path(source).read_text()) for source in sources], Path(directory)
    else:
        files, out = measured.load(), measured.MEASURED.parent / "figures"
    pairs(out / "scaling-pairs.svg", files)
    rates = (
        (road, ranks, value)
        for road, values in measured.rates(files).items()
        for ranks, (value, _) in values.items()
    )
    picture = {"8 B, all ranks at once": rates}
    curves(out / "scaling-rates.svg", picture, "million messages/s of each", yscale="log")
    roads = {
        f"8 B, a block, {road} road": collectives(files, road) for road in ("direct", "proxied")
    }
    curves(out / "scaling-collectives.svg", roads, "µs", ylim=(0, None))
    for kind, words in (("strong", "T1 / (N TN)"), ("weak", "T1 / TN")):
        picture = {f"Himeno, {kind} scaling": himeno(files, kind)}
        curves(out / f"scaling-himeno-{kind}.svg", picture, words, ylim=(0, None))
    rows = [row for row in measured.applications(files) if "efficiency" in row]
    points = ((f"{row['name']}, {row['case']}", row["ranks"], row["efficiency"]) for row in rows)
    curves(out / "scaling-applications.svg", {"Applications": points}, "efficiency", ylim=(0, None))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
