"""Draws ``roads.svg``: one way times of all roads against the size of the message.

    python docs/figures/roads.py        (needs the extra "plot")

From files of ``docs/measurements``: two ranks that share one H200, and two H200 of other machines.
There the proxied road and what users would pick instead are of one run, messages of blocks and of
grids of another, and partitioned requests of a third.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "gmpi"  # the same file for the same figures
matplotlib.rcParams["svg.fonttype"] = "none"  # text stays text
import matplotlib.pyplot as plt  # noqa: E402

HERE = Path(__file__).resolve().parent
MEASURED = HERE.parent / "measurements"
UNITS = {1: "B", 1024: "KiB", 1048576: "MiB"}


Curves = dict[str, tuple[list[int], list[float]]]


def rows_of(name: str, kind: str = "1gpu", key: str = "rows") -> list[dict[str, Any]]:
    return json.loads((MEASURED / f"{name}-{kind}.json").read_text())[key]  # type: ignore[no-any-return]


def words(size: int) -> str:
    unit = max(u for u in UNITS if u <= size)
    return f"{size // unit} {UNITS[unit]}"


def best(pairs: list[tuple[int, float]]) -> tuple[list[int], list[float]]:
    """The quickest of what was measured for each size."""
    sizes = sorted({size for size, _ in pairs})
    return sizes, [min(time for size, time in pairs if size == wanted) for wanted in sizes]


def road(rows: list[dict[str, Any]], which: str, threads: int) -> tuple[list[int], list[float]]:
    """Of one block; into a registered array where that was measured, and is quicker."""
    ways = {which, "registered"} if which == "direct" else {which}
    return best(
        [
            (row["size"], row[way]["p50"])
            for row in rows
            for way in ways & set(row)
            if row["threads"] == threads
        ]
    )


def partitioned(name: str, kind: str) -> tuple[list[int], list[float]]:
    rows = [row for row in rows_of(name, kind) if row["kind"] == "shared"]
    return best([(row["size"], row["p50"]) for row in rows])


def one_gpu() -> Curves:
    pingpong = [row for row in rows_of("pingpong") if row["size"] >= 8]
    graph = best([(row["size"], row["conventional"]["graph"]["p50"]) for row in pingpong])
    rows = rows_of("roads")
    return {
        "CUDA + MPI (a graph, the kernel ends)": graph,
        "proxied road, one block of 256 threads": road(rows, "proxied", 256),
        "direct road, one block of 256": road(rows, "direct", 256),
        "direct road, one block of 1024": road(rows, "direct", 1024),
        "direct road, partitioned, 1 to 64 blocks": partitioned("partitioned", "1gpu"),
    }


def two_gpus() -> Curves:
    peers, rows = rows_of("peers_beside", "2gpu"), rows_of("roads_beside", "2gpu")
    grids = [
        (row["size"], row[way]["p50"])
        for row in rows_of("roads_beside", "2gpu", "grid_rows")
        for way in ("registered", "blocking")
        if way in row and "name" not in row and row["size"] <= 1 << 24
    ]
    of_peers = {
        peer: best([(row["size"], row[peer]["p50"]) for row in peers])
        for peer in ("device_pointers", "nvshmem")
    }
    return {
        "MPI with device pointers (the kernel ends)": of_peers["device_pointers"],
        "proxied road, one block of 256 threads": road(rows_of("roads", "2gpu"), "proxied", 256),
        "NVSHMEM, put with a signal, one block": of_peers["nvshmem"],
        "direct road, one block of 256": road(rows, "direct", 256),
        "direct road, a grid": best(grids),
        "direct road, partitioned, 1 to 64 blocks": partitioned("partitioned_beside", "2gpu"),
    }


def draw(axes: Any, title: str, curves: Curves) -> None:
    for (name, (sizes, times)), marker in zip(curves.items(), "sovD^P", strict=False):
        axes.loglog(sizes, times, marker=marker, markersize=4, linewidth=1.2, label=name)
    axes.set_xscale("log", base=2)
    shown = [8 << 3 * i for i in range(8)]
    axes.set_xticks(shown, [words(size) for size in shown])
    ticks = [1, 3, 10, 30, 100, 300, 1000, 3000]
    axes.set_yticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set(xlabel="size of the message", ylabel="one way, µs (median)")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)


def main() -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(13, 4.6))
    draw(left, "Two H200 with NVLink", two_gpus())
    draw(right, "Two ranks on one H200 under MPS", one_gpu())
    figure.tight_layout()
    figure.savefig(HERE / "roads.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
