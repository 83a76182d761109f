"""Short blocks of any length at one pitch. On a GPU, or with NUMBA_ENABLE_CUDASIM=1."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from numba import cuda
from test_datatypes_device import POISON, check, roll, to_device, to_host

import gmpi
from gmpi.datatypes import plan
from gmpi.packing import byte_words, driver, kernels_bytes, kernels_tiles
from gmpi.packing.kernels_strided import Shape
from gmpi.packing.memory import span_of

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
    return found.arguments[6]


def ways(atom: int, outer: int = 0) -> list[tuple[str, bool | int, int]]:
    """What ``used`` records of a pack and an unpack."""
    return [("pack", atom >= 16, outer), ("unpack", 8 if atom >= 8 else 4, outer)]


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The kernels that were asked for, see ``ways``."""
    asked: list[tuple[Any, ...]] = []
    tiles_body, bytes_body = kernels_tiles.tiles_body, kernels_bytes.bytes_body
    monkeypatch.setattr(
        kernels_tiles, "tiles_body", lambda *way: asked.append(("pack", *way)) or tiles_body(*way)
    )
    monkeypatch.setattr(
        kernels_bytes, "bytes_body", lambda *way: asked.append(("unpack", *way)) or bytes_body(*way)
    )
    return asked


@pytest.mark.parametrize(("atom", "pitch"), LAYOUTS)
def test_counts_around_tiles(atom: int, pitch: int, used: list[tuple[Any, ...]]) -> None:
    each = per_tile(atom, pitch)
    datatype = blocks_of(atom, pitch)
    for count in sorted({0, 1, 2, 3, 15, 16, 17, each - 1, each, each + 1, 2 * each + 5}):
        used.clear()
        check(datatype, count, 1)  # an odd pointer: lengths of whole words go this way too
        assert used == (ways(atom) if count > 1 else [])


@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize(("atom", "pitch"), LAYOUTS[:-2])
def test_pointers_of_any_alignment(atom: int, pitch: int, offsets: tuple[int, int]) -> None:
    for count in (2, 3, 29, per_tile(atom, pitch) + 19):
        check(blocks_of(atom, pitch), count, *offsets)


def test_the_layout_may_begin_anywhere() -> None:
    check(MPI.BYTE.Create_vector(700, 5, 7).Create_hindexed_block(1, [13]), 1, 2, 3)
    check(MPI.BYTE.Create_vector(700, 5, 7).Create_hindexed_block(1, [-13]), 1, 2, 3)


def test_a_struct_with_a_char_at_its_end(used: list[tuple[Any, ...]]) -> None:
    fields = MPI.Datatype.Create_struct([1, 2, 1], [0, 8, 16], [MPI.DOUBLE, MPI.INT, MPI.CHAR])
    check(fields.Create_resized(0, 24), 1000)
    assert used == ways(17)


@pytest.mark.parametrize(("atom", "pitch"), [(17, 23), (3, 4)])
def test_rows_of_rows(atom: int, pitch: int, used: list[tuple[Any, ...]]) -> None:
    count = per_tile(atom, pitch) + 37
    row = MPI.BYTE.Create_vector(count, atom, pitch)
    plane = row.Create_hvector(3, 1, count * pitch + 5)
    check(plane, 1, 1, 2)
    check(plane.Create_hvector(2, 1, 4 * count * pitch + 3), 1, 3, 1)
    check(row.Create_hvector(3, 1, -count * pitch - 1), 1)
    assert used == [*ways(atom, 1), *ways(atom, 2), *ways(atom, 1)]
    used.clear()
    check(MPI.BYTE.Create_vector(20, atom, pitch).Create_hvector(9, 1, 25 * pitch), 1)
    assert used == []  # short rows


@pytest.mark.parametrize("offset", [*range(4), 13, 15, 16])
@pytest.mark.parametrize(("atom", "pitch"), [(17, 24), (3, 4), (1, 2), (100, 105)])
def test_nothing_outside_the_layout_is_read(
    atom: int, pitch: int, offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes before the first block or behind the last may be in no allocation."""
    if not gmpi.SIMULATOR:
        pytest.skip("spies on the simulator's loads")
    read: list[tuple[int, int]] = []

    def spy(module: Any, name: str, nbytes: int) -> None:
        load = getattr(module, name)

        def spied(address: int, *wanted: int) -> Any:
            if (times := int(wanted[0]) if wanted else 1) > 0:
                read.append((address, address + nbytes * times))
            return load(address, *wanted)

        monkeypatch.setattr(module, name, spied)

    spy(kernels_tiles, "load_16_if", 16)
    spy(kernels_tiles, "load_1", 1)
    spy(kernels_bytes, "load_1", 1)
    spy(byte_words, "load_words", 4)
    kernels_bytes.bytes_body.cache_clear()
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
def test_other_layouts_go_another_way(atom: int, pitch: int, used: list[tuple[Any, ...]]) -> None:
    assert kernels_tiles.tiling(atom, [(50, pitch)]) is None
    source = cuda.to_device(np.arange(50 * 520, dtype=np.uint8))
    if pitch >= atom:
        gmpi.pack(source, blocks_of(atom, pitch), 50)
    assert used == []


def test_aligned_blocks_of_words_go_another_way(used: list[tuple[Any, ...]]) -> None:
    check(blocks_of(12, 20), 50)
    assert used == []
    check(blocks_of(12, 20), 50, 0, 2)
    assert used == ways(12)


NARROW = Shape(32, 2)


@cache
def narrow_kernel(width: int) -> Any:
    body = kernels_bytes.bytes_body(width, 0, NARROW)
    return driver.kernel(0, body, kernels_bytes.ARGUMENTS, kernels_bytes.REGISTERS)


@pytest.mark.parametrize("atom", [*range(1, 14), 16, 17, 31, 33])
def test_unpack_of_any_block_and_gap_at_any_place(atom: int) -> None:
    """Every byte of the layout and no other one is written: also where a word has bytes of several
    blocks, or of one that neither begins nor ends with it."""
    kernel = narrow_kernel(kernels_bytes.width_of(atom))
    for gap in (1, 2, 3, 5, 7, 8, 9):
        pitch = atom + gap
        if pitch > 4 * atom:
            continue
        for count, offset, packed_offset in ((2, gap, 0), (3, 5 * gap, 3), (150, 127 - gap, 5)):
            packed = (np.arange(count * atom) % 255 + 1).astype(np.uint8)
            guarded = np.full(offset + count * pitch + 128, POISON, np.uint8)
            to, source = to_device(guarded), to_device(roll(packed, packed_offset))
            found = kernels_bytes.bytes_along(atom, [(count, pitch)], NARROW)
            assert found is not None
            addresses = span_of(to, "to")[0] + offset, span_of(source, "from")[0] + packed_offset
            launch = driver.Launch(kernel, found.arguments, found.blocks, 0, NARROW.threads)
            launch(*addresses, None)
            guarded[offset:][: count * pitch].reshape(count, pitch)[:, :atom] = packed.reshape(
                count, atom
            )
            np.testing.assert_array_equal(to_host(to), guarded, f"{atom} + {gap}, {count}")


@pytest.mark.parametrize(("atom", "pitch"), [(17, 24), (3, 5), (100, 105)])
def test_rows_that_are_too_long_for_one(
    atom: int, pitch: int, used: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes of a row are counted in 32 bits, so long ones are several."""
    each = 128 * pitch
    tile = kernels_bytes.SHAPES[kernels_bytes.width_of(atom)]
    room = tile.threads * tile.words * kernels_bytes.width_of(atom) + 2 * 128
    monkeypatch.setattr(kernels_bytes, "LONGEST_ROW", each + room)
    for count, outer in ((128, 0), (129, 1), (256, 1), (300, 1)):
        used.clear()
        check(blocks_of(atom, pitch), count, 1)
        assert used[1] == ways(atom, outer)[1]
    rows = blocks_of(atom, pitch).Create_contiguous(400).Create_hvector(2, 1, 500 * pitch)
    used.clear()
    check(rows, 1)
    assert used == ways(atom, 1)[:1]
