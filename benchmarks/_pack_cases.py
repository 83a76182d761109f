"""The layouts that ``pack_bench.py`` measures, each with a reference made by CuPy alone.

From the papers: 000 (chapter 4), 001 (chapter 5), 003 (chapter 6), and the issue tracker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

D = MPI.DOUBLE
MIB = 1 << 20
BIG = 256 * MIB  # packed bytes of what is measured against the memory's rate
UNPACK_BAR = 0.85  # of its own ceiling; which layouts miss it, and why: docs/datatypes.md


class Case(NamedTuple):
    """One layout.

    Attributes:
        name: in the tables.
        nbytes: of the array that it lies in.
        datatype, count: what is packed.
        reference: (uint8 CuPy array) -> the packed bytes, by CuPy's own means.
        bar: (kind, number): ``copy`` and ``ceiling`` are shares to reach, ``us`` a time to stay
            under, ``TB/s`` a rate of bytes read and written.
        pitch: (block bytes, pitch bytes, blocks) where cudaMemcpy2D can do it.
        box: (sizes, part, start, element bytes) where cudaMemcpy3D can do it.
        unpack: share of its own ceiling that an unpack has to reach.
    """

    name: str
    nbytes: int
    datatype: MPI.Datatype
    count: int
    reference: Callable[[Any], Any]
    bar: tuple[str, float] | None = None
    pitch: tuple[int, int, int] | None = None
    box: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int] | None = None
    unpack: float | None = None


def vector(block: int, pitch: int, nbytes: int, bar: tuple[str, float] | None = None) -> Case:
    """``nbytes`` of packed data in blocks at a pitch."""
    n = nbytes // block

    def reference(memory: Any) -> Any:
        return memory[: n * pitch].reshape(n, pitch)[:, :block].copy().reshape(-1)

    datatype = MPI.BYTE.Create_hvector(n, block, pitch)
    name = f"{block} B every {pitch} B, {nbytes // MIB} MiB"
    large = UNPACK_BAR if nbytes == BIG else None
    return Case(name, n * pitch, datatype, 1, reference, bar, (block, pitch, n), None, large)


def box(
    name: str, sizes: tuple[int, ...], part: tuple[int, ...], start: tuple[int, ...],
    element: int = 8, bar: tuple[str, float] | None = None,
) -> Case:  # fmt: skip
    """A box of a C-ordered array."""
    base = MPI.BYTE.Create_contiguous(element)
    datatype = base.Create_subarray(sizes, part, start)
    where = tuple(slice(s, s + n) for s, n in zip(start, part))

    def reference(memory: Any) -> Any:
        return memory.reshape(*sizes, element)[where].copy().reshape(-1)

    solid = (sizes, part, start, element) if len(sizes) == 3 else None
    nbytes = int(np.prod(sizes)) * element
    return Case(name, nbytes, datatype, 1, reference, bar, None, solid)


def faces(n: int, radius: int = 3) -> Iterator[Case]:
    """The three orientations of a halo face, inside the rim, of n**3 doubles."""
    bars = [("us", 15.0), ("us", 15.0), ("us", 40.0)] if n == 512 else [None] * 3
    for axis, bar in enumerate(bars):
        part = [n] * 3
        part[axis] = radius
        start = [0] * 3
        start[axis] = radius
        name = f"face {'ijk'[axis]}, radius {radius}, {n}^3 doubles"
        yield box(name, (n,) * 3, tuple(part), tuple(start), 8, bar)


def _by_index(lengths: np.ndarray, places: np.ndarray) -> Callable[[Any], Any]:
    """CuPy's own gather of runs of doubles."""

    def reference(memory: Any) -> Any:
        import cupy

        ends = np.cumsum(lengths)
        index = (
            np.arange(ends[-1]) - np.repeat(ends - lengths, lengths) + np.repeat(places, lengths)
        )
        return memory.view(cupy.float64)[cupy.asarray(index)].view(cupy.uint8)

    return reference


def indexed(name: str, lengths: np.ndarray, places: np.ndarray, bar: tuple[str, float]) -> Case:
    datatype = D.Create_indexed(lengths.tolist(), places.tolist())
    nbytes = int((places + lengths).max()) * 8
    return Case(name, nbytes, datatype, 1, _by_index(lengths, places), bar)


def triangle(n: int = 4096) -> Case:
    rows = np.arange(n)
    return indexed(f"lower triangle, {n}^2 doubles", rows + 1, rows * n, ("copy", 0.85))


def stair(n: int = 4096, step: int = 64) -> Case:
    rows = np.arange(n)
    lengths = (rows // step + 1) * step
    return indexed(f"stair of {step}, {n}^2 doubles", lengths, rows * n, ("copy", 0.90))


def random_blocks(n: int = 100_000) -> Case:
    """Blocks of 1 to 16 doubles, 6.8 MB in all, at random places of 64 MiB."""
    rng = np.random.default_rng(4)
    lengths = rng.integers(1, 17, n)
    slots = rng.permutation(8 * MIB // 16)[:n] * 16
    return indexed(f"indexed, {n} random blocks", lengths, slots, ("us", 30.0))


def particles(n: int = 1_000_000) -> Case:
    members = MPI.Datatype.Create_struct([1, 2, 1], [0, 8, 16], [D, MPI.INT, MPI.CHAR])

    def reference(memory: Any) -> Any:
        return memory[: n * 24].reshape(n, 24)[:, :17].copy().reshape(-1)

    return Case(
        f"struct (double, 2 int, char) x {n}", n * 24, members, n, reference, ("ceiling", 0.5),
        unpack=UNPACK_BAR,
    )  # fmt: skip


def transpose(n: int = 8192) -> Case:
    column = D.Create_vector(n, 1, n).Create_resized(0, 8)

    def reference(memory: Any) -> Any:
        import cupy

        return memory.view(cupy.float64).reshape(n, n).T.copy().reshape(-1).view(cupy.uint8)

    return Case(f"transpose, {n}^2 doubles", n * n * 8, column, n, reference, ("TB/s", 3.0))


def box_4d() -> Case:
    return box("4-D box 32^4 of 64^4 doubles", (64,) * 4, (32,) * 4, (16,) * 4, 8, ("us", 15.0))


def halo(n: int = 256, fields: int = 8, radius: int = 3) -> tuple[Case, list[Case]]:
    """All 26 regions that a rank sends, as one datatype, and one by one."""
    size = n + 2 * radius
    regions = []
    for way in product((-1, 0, 1), repeat=3):
        if way == (0, 0, 0):
            continue
        part = tuple(n if w == 0 else radius for w in way)
        start = tuple({-1: radius, 0: radius, 1: n}[w] for w in way)
        regions.append(box(f"region {way}", (size,) * 3, part, start, 8 * fields))
    types = [region.datatype for region in regions]
    every = MPI.Datatype.Create_struct([1] * 26, [0] * 26, types)

    def reference(memory: Any) -> Any:
        import cupy

        return cupy.concatenate([region.reference(memory) for region in regions])

    name = f"26-neighbour halo, {n}^3 x {fields} doubles, radius {radius}"
    return Case(name, regions[0].nbytes, every, 1, reference, ("memcpy", 5.0)), regions


def all_cases() -> list[Case]:
    strided = [
        vector(8, 16, BIG, ("ceiling", 0.70)),
        *(vector(b, 2 * b, BIG, ("copy", 0.90)) for b in (32, 64, 128, 512, 4096)),
        *(vector(b, 2 * b, BIG, ("copy", 0.95)) for b in (1 << 16, MIB)),
        vector(24, 40, BIG),
        vector(12, 20, BIG),
        vector(17, 24, BIG),
    ]
    pitched = [vector(b, 512, n) for n in (1 << 10, MIB, 4 * MIB) for b in (8, 64, 512) if b < n]
    rows = box("sub-matrix 3840^2 of 4096^2 doubles", (4096,) * 2, (3840,) * 2, (128,) * 2, 8,
               ("copy", 0.94))  # fmt: skip
    return [
        *strided, *pitched, rows, triangle(), stair(), *faces(512), *faces(64), box_4d(),
        random_blocks(), particles(), transpose(),
    ]  # fmt: skip
