"""Draws what applications in ``examples`` compute, from a run of each in the simulator.

    NUMBA_ENABLE_CUDASIM=1 mpiexec -n 4 python docs/figures/applications.py [NAME...] [--to FOLDER]

Writes NAME.png, beside this file or to FOLDER; needs the extra "plot". A minute. What a rank
has is what the example's own ``run`` gave it; ``heat.png`` is drawn by the example.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt
import numpy as np
from mpi4py import MPI

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "examples"))

import bfs  # noqa: E402
import hacc  # noqa: E402
import particles  # noqa: E402
import reshape  # noqa: E402
import spin_glass  # noqa: E402

folder = HERE
COLOURS = plt.get_cmap("tab10").colors


def run_of(example: Any, *arguments: str) -> tuple[tuple[Any, ...], Any]:
    """Runs the example, which checks itself; arguments and result of its last ``run``."""
    kept: list[tuple[tuple[Any, ...], Any]] = []

    def run(*given: Any) -> Any:
        kept.append((given, example.run(*given)))
        return kept[-1][1]

    sys.argv = [example.__name__, *arguments]
    if example.main(run):
        raise SystemExit(f"{example.__name__} is wrong")
    return kept[-1]


def panels(title: str) -> tuple[Any, Any]:
    figure, plots = plt.subplots(1, 2, figsize=(7.6, 3.5))
    figure.suptitle(title, fontsize=10)
    return figure, plots


def save(figure: Any, name: str) -> None:
    figure.tight_layout()
    figure.savefig(folder / f"{name}.png", dpi=80, metadata={"Software": None})
    plt.close(figure)


def draw_spin_glass(comm: MPI.Comm) -> None:
    """A plane of the lattice, and how many couplings of each of its spins are satisfied."""
    arguments = ("--length", "16", "--sweeps", "20", "--temperature", "0.5")
    (_, n, *_), (mine, *_) = run_of(spin_glass, *arguments)
    parts = comm.gather(mine)
    if parts is None:
        return
    spins = np.concatenate(parts).astype(int)
    after, before = spin_glass.fields(spins, spin_glass.some_couplings(n, range(n), 0.5))
    x, y = np.ix_(np.arange(n), np.arange(n))
    plane = ((x + y) % n, x, y)  # slice s has the spins with x + y + z = s
    figure, plots = panels(f"{n}³ spins on {comm.size} ranks after 20 sweeps, T = 0.5: z = 0")
    plots[0].imshow(spins[plane], cmap="gray")
    plots[0].set_title("up and down", fontsize=9)
    satisfied = (3 + spins * (after + before) / 2)[plane]
    picture = plots[1].imshow(satisfied, cmap="viridis", vmin=0, vmax=6)
    plots[1].set_title("satisfied couplings of six", fontsize=9)
    figure.colorbar(picture, ax=plots[1], shrink=0.8)
    save(figure, "spin_glass")


def draw_particles(comm: MPI.Comm) -> None:
    """Who has the particles of two layers of cells, and the domains."""
    cells, steps = 8, 5
    rows = particles.some_particles(cells, particles.DENSITY)
    owner = particles.state_of(comm, cells, rows).owner.copy_to_host().reshape((cells,) * 3)
    mine, _ = particles.run(comm, cells, rows, steps)
    all_of = comm.gather((rows, mine))
    if all_of is None:
        return
    most = max(range(cells), key=lambda z: len(np.unique(owner[:, :, z])))  # ranks in this layer
    figure, plots = panels(f"{len(rows)} particles on {comm.size} ranks")
    for plot, when in zip(plots, (0, steps), strict=True):
        shown = {"cmap": "tab10", "alpha": 0.25, "vmin": -0.5, "vmax": 9.5}
        plot.imshow(owner[:, :, most].T, origin="lower", extent=(0, cells, 0, cells), **shown)
        for rank, (start, end) in enumerate(all_of):
            if when:
                at = end
            else:
                cell = start[:, 1:4] >> particles.BITS
                at = start[owner[tuple(cell.T)] == rank]
            x = at[:, 1:4] / (1 << particles.BITS)
            layer = np.floor(x[:, 2]) == most
            plot.scatter(*x[layer, :2].T, s=6, color=COLOURS[rank], label=f"rank {rank}")
        plot.set_title(f"after {when} steps: one layer of cells", fontsize=9)
    plots[1].legend(fontsize=6, loc="upper right")
    save(figure, "particles")


def draw_bfs(comm: MPI.Comm) -> None:
    """The adjacency matrix by owner, and the levels of a search."""
    (_, rows, columns, n, _, roots), found = run_of(bfs, "--scale", "8", "--roots", "1")
    trees = comm.gather(found[0][0])
    if trees is None:
        return
    edges, *_ = bfs.graph(8, rows, columns, n, 0, 0)
    parent = np.array(trees).reshape(rows, columns, n).transpose(1, 0, 2).ravel()
    level = np.where(np.arange(parent.size) == roots[0], 0, -1)
    while (new := (level < 0) & (parent >= 0) & (level[parent] >= 0)).any():
        level[new] = level[parent[new]] + 1
    figure, plots = panels(f"R-MAT, scale 8, on {rows} x {columns} ranks")
    u, v = np.concatenate((edges, edges[::-1]), axis=1)
    at = (v // n % rows) * columns + u // (rows * n)
    for rank in range(comm.size):
        of = at == rank
        plots[0].scatter(u[of], v[of], s=0.3, color=COLOURS[rank], label=f"rank {rank}")
    plots[0].set_title("the edges of each rank, from x to y", fontsize=9)
    plots[0].legend(fontsize=6, markerscale=6, loc="upper right")
    numbers = np.bincount(level[level >= 0])
    plots[1].bar(range(len(numbers)), numbers, color="0.4")
    plots[1].set_xticks(range(len(numbers)))
    plots[1].set_title("vertices reached, by level", fontsize=9)
    save(figure, "bfs")


def draw_reshape(comm: MPI.Comm) -> None:
    """A picture of rows of ranks, and its spectrum, of which they have columns."""
    n = 32
    y, x = np.ogrid[:n, :n]
    image = ((abs(x - n // 2) < 3) & (abs(y - n // 2) < 7)).astype(complex)
    first = n * np.arange(comm.size + 1) // comm.size
    own = slice(first[comm.rank], first[comm.rank + 1])
    mine, _ = reshape.run(comm, image[own].copy(), first, "turned", "messages", 1)
    parts = comm.gather(mine)
    if parts is None:
        return
    spectrum = np.concatenate(parts).T
    if not np.allclose(spectrum, np.fft.fft2(image)):
        raise SystemExit("reshape is wrong")
    figure, plots = panels(f"A 2-D FFT on {comm.size} ranks")
    plots[0].imshow(image.real, cmap="gray")
    plots[0].set_title("before: each rank has rows", fontsize=9)
    plots[1].imshow(np.log1p(np.abs(spectrum)), cmap="inferno")
    plots[1].set_title("after: each rank has columns", fontsize=9)
    for at in first[1:-1] - 0.5:
        plots[0].axhline(at, color=COLOURS[0], linewidth=1)
        plots[1].axvline(at, color=COLOURS[0], linewidth=1)
    save(figure, "reshape")


def draw_hacc(comm: MPI.Comm) -> None:
    """Voids of the block of rank 0 and of its visitors, and the pairs that are near."""
    options = ("--particles", "64", "--how", "struct", "--rounds", "1")
    (_, how, content, *_), (_, near, *_) = run_of(hacc, *options)
    blocks = comm.gather(content)
    if blocks is None:
        return
    voids = [
        block[0][hacc.SITES].reshape(-1, 3)[block[0][hacc.VOLS] > hacc.LARGE] for block in blocks
    ]
    figure, plots = panels(f"Blocks of {comm.size} ranks go around: what rank 0 counts")
    pairs = []
    for rank, sites in enumerate(voids):
        plots[0].scatter(*sites[:, :2].T, s=14, color=COLOURS[rank], label=f"block {rank}")
        close = (abs(voids[0][:, None] - sites) < hacc.NEAR).all(-1)
        pairs.append(int(close.sum()))
        for i, j in np.argwhere(close) if rank else ():
            line = np.array((voids[0][i], sites[j]))[:, :2].T
            plots[0].plot(*line, color=COLOURS[rank], linewidth=0.7, alpha=0.6)
    if pairs != np.ravel(near).tolist():
        raise SystemExit(f"hacc, {how}: {np.ravel(near).tolist()} pairs; {pairs} expected")
    plots[0].set_title("voids, and pairs that are near", fontsize=9)
    plots[0].legend(fontsize=6, loc="upper right")
    plots[1].bar(range(comm.size), pairs, color=COLOURS[: comm.size])
    plots[1].set_xticks(range(comm.size))
    plots[1].set_title("near pairs, by the visitor's number", fontsize=9)
    save(figure, "hacc")


DRAWN: dict[str, Callable[[MPI.Comm], None]] = {
    "spin_glass": draw_spin_glass,
    "particles": draw_particles,
    "bfs": draw_bfs,
    "reshape": draw_reshape,
    "hacc": draw_hacc,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(DRAWN))
    parser.add_argument("--to", type=Path, default=HERE)
    options = parser.parse_args()
    folder = options.to
    for wanted in options.names or DRAWN:
        DRAWN[wanted](MPI.COMM_WORLD)
