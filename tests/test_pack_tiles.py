"""Short blocks of any length at one pitch. On a GPU, or with NUMBA_ENABLE_CUDASIM=1."""

from __future__ import annotations

import sys
from typing import Any

import launcher
import numpy as np
import pytest
from mpi4py import MPI
from numba import cuda
from test_datatypes_device import check, roll, to_device

import gmpi
from gmpi.datatypes import plan
from gmpi.packing import kernels_tiles
from gmpi.packing.kernels_strided import Shape
from gmpi.packing.memory import span_of

sys.path.append(str(launcher.ROOT / "tests" / "gpu"))

import unpack_bytes

LAYOUTS = [
    (17, 24),
    (5, 8),
    (3, 4),
    (13, 40),
    (1, 2),
    (2, 3),
    (15, 16),
    (16, 17),
    (33, 50),
    (127, 508),
]
OFFSETS = [(0, 0), (1, 0), (0, 1), (4, 8), (3, 7), (15, 9), (14, 15)]


def blocks_of(atom: int, pitch: int) -> MPI.Datatype:
    return MPI.BYTE.Create_contiguous(atom).Create_resized(0, pitch)


def per_tile(atom: int, pitch: int) -> int:
    found = kernels_tiles.tiling(atom, [(1, pitch)])
    assert found is not None
    return found.arguments[7]


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[tuple[bool, int, bool]]:
    """(long, outer, unpack) of each kernel that was asked for."""
    asked = []
    make = kernels_tiles.tiles_body

    def spy(*variant: Any) -> Any:
        asked.append(variant[:3])
        return make(*variant)

    monkeypatch.setattr(kernels_tiles, "tiles_body", spy)
    return asked


@pytest.mark.parametrize(("atom", "pitch"), LAYOUTS)
def test_counts_around_tiles(atom: int, pitch: int, used: list[tuple[bool, int, bool]]) -> None:
    each = per_tile(atom, pitch)
    datatype = blocks_of(atom, pitch)
    for count in sorted({0, 1, 2, 3, 15, 16, 17, each - 1, each, each + 1, 2 * each + 5}):
        used.clear()
        check(datatype, count, 1)  # an odd pointer: lengths of whole words go this way too
        assert used == ([(atom >= 16, 0, False), (atom >= 16, 0, True)] if count > 1 else [])


@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize(("atom", "pitch"), LAYOUTS[:-2])
def test_pointers_of_any_alignment(atom: int, pitch: int, offsets: tuple[int, int]) -> None:
    for count in (2, 3, 29, per_tile(atom, pitch) + 19):
        check(blocks_of(atom, pitch), count, *offsets)


def test_the_layout_may_begin_anywhere() -> None:
    check(MPI.BYTE.Create_vector(700, 5, 7).Create_hindexed_block(1, [13]), 1, 2, 3)
    check(MPI.BYTE.Create_vector(700, 5, 7).Create_hindexed_block(1, [-13]), 1, 2, 3)


def test_a_struct_with_a_char_at_its_end(used: list[tuple[bool, int, bool]]) -> None:
    fields = MPI.Datatype.Create_struct([1, 2, 1], [0, 8, 16], [MPI.DOUBLE, MPI.INT, MPI.CHAR])
    check(fields.Create_resized(0, 24), 1000)
    assert used == [(True, 0, False), (True, 0, True)]


@pytest.mark.parametrize(("atom", "pitch"), [(17, 23), (3, 4)])
def test_rows_of_rows(atom: int, pitch: int, used: list[tuple[bool, int, bool]]) -> None:
    count = per_tile(atom, pitch) + 37
    row = MPI.BYTE.Create_vector(count, atom, pitch)
    plane = row.Create_hvector(3, 1, count * pitch + 5)
    check(plane, 1, 1, 2)
    check(plane.Create_hvector(2, 1, 4 * count * pitch + 3), 1, 3, 1)
    check(row.Create_hvector(3, 1, -count * pitch - 1), 1)
    long = atom >= 16
    assert used == [(long, outer, unpack) for outer in (1, 2, 1) for unpack in (False, True)]
    used.clear()
    check(MPI.BYTE.Create_vector(20, atom, pitch).Create_hvector(9, 1, 25 * pitch), 1)
    assert used == []  # short rows


@pytest.mark.parametrize("offset", [*range(4), 13, 15, 16])
@pytest.mark.parametrize(("atom", "pitch"), [(17, 24), (3, 4)])
def test_nothing_outside_the_layout_is_read(
    atom: int, pitch: int, offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes before the first block or behind the last may be in no allocation."""
    if not gmpi.SIMULATOR:
        pytest.skip("spies on the simulator's loads")
    read: list[tuple[int, int]] = []
    load_16_if, load_1 = kernels_tiles.load_16_if, kernels_tiles.load_1

    def spy_16(address: int, wanted: bool) -> tuple[int, int]:
        if wanted:
            read.append((address, address + 16))
        return load_16_if(address, wanted)

    def spy_1(address: int) -> int:
        read.append((address, address + 1))
        return load_1(address)

    monkeypatch.setattr(kernels_tiles, "load_16_if", spy_16)
    monkeypatch.setattr(kernels_tiles, "load_1", spy_1)
    for count in (2, 40, per_tile(atom, pitch) + 3):
        datatype = blocks_of(atom, pitch)
        reach = plan(datatype).reach(count)[1]
        user = np.zeros(offset + count * pitch, np.uint8)[offset:]
        packed = np.zeros(offset + count * atom, np.uint8)[offset:]
        for source, nbytes, unpack in ((user, reach, False), (packed, count * atom, True)):
            read.clear()
            if unpack:
                gmpi.unpack(packed, datatype, user, count)
            else:
                gmpi.pack(user, datatype, count, out=packed)
            begin = source.ctypes.data
            assert min(low for low, _ in read) == begin
            assert max(high for _, high in read) == begin + nbytes


@pytest.mark.parametrize(
    ("atom", "pitch"),
    [(17, 17), (17, 9), (17, 0), (17, -24), (1, 5), (129, 132), (127, 513), (17, 69)],
)
def test_other_layouts_go_another_way(
    atom: int, pitch: int, used: list[tuple[bool, int, bool]]
) -> None:
    assert kernels_tiles.tiling(atom, [(50, pitch)]) is None
    source = cuda.to_device(np.arange(50 * 520, dtype=np.uint8))
    if pitch >= atom:
        gmpi.pack(source, blocks_of(atom, pitch), 50)
    assert used == []


def test_aligned_blocks_of_words_go_another_way(used: list[tuple[bool, int, bool]]) -> None:
    check(blocks_of(12, 20), 50)
    assert used == []
    check(blocks_of(12, 20), 50, 0, 2)
    assert used == [(False, 0, False), (False, 0, True)]


@pytest.mark.parametrize(
    ("atom", "pitch", "more", "offset", "words"),
    [
        (17, 24, 48, 0, True),
        (17, 24, 48, 4, True),
        (17, 24, 48, 1, False),
        (17, 24, 50, 0, False),
        (100, 105, 420, 0, False),
    ],
)
def test_ways_to_unpack_by_where_blocks_begin(
    atom: int, pitch: int, more: int, offset: int, words: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole words where all blocks begin at words, else the bytes one by one."""
    asked = []
    make = kernels_tiles.tiles_body
    monkeypatch.setattr(kernels_tiles, "tiles_body", lambda *a: asked.append(a) or make(*a))
    rows = blocks_of(atom, pitch).Create_contiguous(80)
    check(rows.Create_hvector(3, 1, 80 * pitch + more), 1, offset)
    assert asked == [(True, 1, False, False), (True, 1, True, words)]


@pytest.mark.parametrize("shape", [Shape(64, 1), Shape(64, 2, True)])
@pytest.mark.parametrize(
    ("atom", "pitch"), [(8, 9), (9, 10), (10, 14), (17, 24), (33, 40), (100, 105), (13, 40)]
)
def test_ways_to_unpack_that_benchmarks_compare(
    atom: int, pitch: int, shape: Shape, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every byte of the layout and no other one is written, and none outside is read."""
    read: list[int] = []
    if gmpi.SIMULATOR:
        load = unpack_bytes._load_8
        monkeypatch.setattr(unpack_bytes, "_load_8", lambda at: read.append(at) or load(at))
    kernel = cuda.jit(unpack_bytes.bytes_body(shape))
    for count in (1, 3, 64 * 8 // pitch + 7):
        for offset in (0, 5, 127):
            made = unpack_bytes.arguments(atom, count, pitch, shape)
            assert made is not None
            (_, _, *numbers), blocks = made
            packed = (np.arange(count * atom) % 255 + 1).astype(np.uint8)
            user = np.zeros(offset + (count + 1) * pitch + 128, np.uint8)
            to, source = to_device(user), to_device(roll(packed, 9))[9:]
            addresses = span_of(to, "to")[0] + offset, span_of(source, "source")[0]
            begin, end = addresses[1], addresses[1] + count * atom
            read.clear()
            kernel[blocks, shape.threads](*addresses, *numbers)
            assert all(begin <= at & -8 and (at & -8) + 16 <= end for at in read)
            got = to.copy_to_host()
            rows = got[offset : offset + count * pitch].reshape(count, pitch)
            assert (rows[:, :atom].reshape(-1) == packed).all()
            got[offset : offset + count * pitch].reshape(count, pitch)[:, :atom] = 0
            assert not got.any()
