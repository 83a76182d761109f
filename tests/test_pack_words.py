"""Which kernel packs what, and the edges of its tiles. On a GPU, or with NUMBA_ENABLE_CUDASIM=1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mpi4py import MPI
from numba import cuda
from test_datatypes_device import check, to_device

import gmpi
from device_lib.platform.divide import LIMIT
from gmpi.datatypes import plan
from gmpi.datatypes.parts import MAX_DIMS, RUN_UNIT_BYTES, RunList
from gmpi.packing import kernels_along, kernels_parts, kernels_runs, kernels_strided
from gmpi.packing.calls import prepared_of

BASES = {16: MPI.C_DOUBLE_COMPLEX, 8: MPI.DOUBLE, 4: MPI.FLOAT}


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Each kernel that was asked for: (kind, its variant)."""
    asked: list[tuple[Any, ...]] = []

    def spy(module: Any, name: str, kind: str) -> None:
        make = getattr(module, name)

        def called(*variant: Any) -> Any:
            asked.append((kind, *variant))
            return make(*variant)

        monkeypatch.setattr(module, name, called)

    spy(kernels_strided, "strided_body", "strided")
    spy(kernels_along, "along_body", "along")
    spy(kernels_runs, "runs_body", "runs")
    spy(kernels_parts, "parts_body", "parts")
    return asked


@pytest.mark.parametrize("width", BASES)
def test_counts_around_tiles(width: int, used: list[tuple[Any, ...]]) -> None:
    tile = kernels_strided.tile_words(width, False)
    for count in (2, 3, kernels_strided.THREADS + 1, tile - 1, tile, tile + 1, 2 * tile + 5):
        used.clear()
        check(BASES[width].Create_vector(count, 1, 5), 1)
        assert used == [("strided", width, 1, False), ("strided", width, 1, True)]


@pytest.mark.parametrize("width", BASES)
@pytest.mark.parametrize("dims", range(MAX_DIMS + 1))
def test_every_number_of_dimensions(dims: int, width: int, used: list[tuple[Any, ...]]) -> None:
    """Strides that no two dimensions share; every other one goes backwards."""
    datatype = BASES[width].Create_contiguous(3)
    extent = 3 * width
    for d in range(dims):
        count = 2 + d % 2
        extent += width * (1 + d)
        datatype = datatype.Create_hvector(count, 1, -extent if d % 2 else extent)
        extent *= count
    assert len(plan(datatype).parts[0].dims) == dims
    check(datatype, 1)
    unpacked = ("along", width, 0) if dims == 1 else ("strided", width, dims, True)
    assert used == [("strided", width, dims, False), unpacked]


@pytest.mark.parametrize("offsets", [(8, 0), (0, 8), (4, 0), (0, 4)])
def test_the_pointers_decide_on_words(
    offsets: tuple[int, int], used: list[tuple[Any, ...]]
) -> None:
    check(MPI.DOUBLE.Create_vector(70, 4, 6), 1, *offsets)
    width = max(offsets)
    assert used == [("strided", width, 1, False), ("strided", width, 1, True)]


def along_tile(width: int) -> int:
    shape = kernels_along.SHAPES[width]
    return shape.threads * shape.words


@pytest.mark.parametrize("place", [0, 1, 5, 7])
@pytest.mark.parametrize(("width", "atom", "pitch"), [(4, 12, 20), (8, 24, 40), (16, 48, 80)])
def test_short_blocks_are_unpacked_along_the_users_memory(
    width: int, atom: int, pitch: int, place: int, used: list[tuple[Any, ...]]
) -> None:
    """From any word of a line on; the last word in the last thread, and in the next tile."""
    block = MPI.BYTE.Create_contiguous(atom)
    fits = along_tile(width) * width // pitch
    for count in (2, fits - 128 // pitch, fits, fits + 1, 2 * fits + 3):
        used.clear()
        check(block.Create_hvector(count, 1, pitch), 1, place * width)
        assert used == [("strided", width, 1, False), ("along", width, 0)]


def test_rows_of_short_blocks_are_unpacked_along_the_users_memory(
    used: list[tuple[Any, ...]],
) -> None:
    row = MPI.BYTE.Create_vector(90, 12, 20)
    plane = row.Create_hvector(3, 1, 90 * 20 + 4)  # each row begins elsewhere in a line
    check(plane, 1, 4)
    check(plane.Create_hvector(2, 1, 4 * 90 * 20), 1, 8)
    check(row.Create_hvector(3, 1, -90 * 20 - 4), 1)
    assert [kind for kind in used if kind[0] == "along"] == [("along", 4, n) for n in (1, 2, 1)]


@pytest.mark.parametrize(
    ("width", "atom", "pitch"),
    [
        (8, 8, 16),
        (16, 64, 128),
        (16, 32, 64),
        (4, 12, 28),
        (4, 132, 140),
        (4, 12, -20),
        (4, 12, 12),
    ],
)
def test_blocks_that_split_no_sector_or_few_are_unpacked_as_they_were(
    width: int, atom: int, pitch: int
) -> None:
    assert kernels_along.along(width, atom, [(5000, pitch)]) is None
    assert kernels_along.along(4, 12, [(5000, 20)]) is not None
    assert kernels_along.along(4, 12, [(80, 20), (5, 4000)]) is None  # short rows
    assert kernels_along.along(4, 12, [(LIMIT // 5, 20)]) is None


@pytest.mark.parametrize("near", [False, True])
@pytest.mark.parametrize("words", [1, 2, 4])
def test_shapes_that_benchmarks_compare(words: int, near: bool) -> None:
    """Every word once, whichever thread takes it."""
    shape = kernels_strided.Shape(64, words, near)
    count, numbers = 333, kernels_strided.numbers_of(8, 8, [(333, 24)])
    assert numbers is not None
    packed = np.arange(1, count + 1)
    user = np.zeros(3 * count, np.int64)
    body = kernels_strided.strided_body(8, 1, True, shape)
    addresses = user.ctypes.data, packed.ctypes.data
    if not gmpi.SIMULATOR:
        pytest.skip("takes addresses of the host's memory")
    cuda.jit(body)[-(-count // (64 * words)), 64](*addresses, *numbers)
    assert (user[::3] == packed).all() and not user[1::3].any()
    found = kernels_along.along(8, 24, [(100, 40)], shape)
    assert found is not None
    user[:] = 0
    addresses = user.ctypes.data + 8, packed.ctypes.data
    cuda.jit(kernels_along.along_body(8, 0, shape))[found.blocks, 64](
        *addresses, *found.arguments[2:]
    )
    rows = user[1:501].reshape(100, 5)
    assert (rows[:, :3].reshape(-1) == packed[:300]).all() and not rows[:, 3:].any()


def test_what_is_too_large_for_31_bits_goes_another_way() -> None:
    found = kernels_strided.numbers_of
    tile = kernels_strided.tile_words(16, False)
    assert found(16, 64, [(LIMIT // 4 - tile, 128)]) is not None
    assert found(16, 64, [(LIMIT // 4, 128)]) is None
    assert found(16, 64, [(1 << 20, 128), (1 << 20, 1 << 30)]) is None
    assert found(16, 16 * LIMIT, []) is None
    assert found(16, 16 * LIMIT, [(2, 1 << 40)]) is None


def test_a_limited_number_of_blocks_takes_tiles_in_turn(used: list[tuple[Any, ...]]) -> None:
    datatype = MPI.DOUBLE.Create_vector(9000, 1, 2)
    source = to_device(np.arange(18000.0))
    prepared_of(datatype, 1).most_blocks = 2
    packed = gmpi.pack(source, datatype)
    np.testing.assert_array_equal(packed.copy_to_host().view(np.float64), np.arange(0.0, 18000, 2))
    assert used == []


UNITS = {
    "one run fills some": [40, 3 * RUN_UNIT_BYTES, 56, RUN_UNIT_BYTES],
    "a run begins where a unit does": [RUN_UNIT_BYTES, RUN_UNIT_BYTES, 2 * RUN_UNIT_BYTES, 16],
    "the last one is short": [16, RUN_UNIT_BYTES, 24],
    "many in each": [8 * (1 + k * k % 7) for k in range(900)],
    "two": [8, 16],
    "a warp takes the last one alone": [RUN_UNIT_BYTES * 8 + 24, 8],
}


@pytest.mark.parametrize("width", BASES)
@pytest.mark.parametrize("name", UNITS)
def test_runs_and_units(name: str, width: int, used: list[tuple[Any, ...]]) -> None:
    lengths = [length * width // 8 for length in UNITS[name]]
    # Places in another order than the packed one, and far enough from each other.
    order = np.random.default_rng(3).permutation(len(lengths))
    pitch = max(lengths) + width
    places = [int(k) * pitch for k in order]
    datatype = MPI.BYTE.Create_hindexed(lengths, places)
    assert isinstance(plan(datatype).parts[0], RunList)
    check(datatype, 1)
    assert used == [("runs", width, False), ("runs", width, True)]
    used.clear()
    check(datatype, 2, 0, width)  # repeated: another kernel
    assert used == []


def _struct(*types: tuple[int, MPI.Datatype]) -> MPI.Datatype:
    places, members = zip(*types)
    return MPI.Datatype.Create_struct([1] * len(types), places, members)


@pytest.mark.parametrize("width", BASES)
def test_parts_of_every_kind(width: int, used: list[tuple[Any, ...]]) -> None:
    """Strided blocks of none to three dimensions, and a list of runs, each of several tiles."""
    b = BASES[width]
    tile = kernels_strided.tile_words(width, False)
    plane = b.Create_vector(40, 3, 5).Create_hvector(tile // 60, 1, 201 * width)
    solid = plane.Create_hvector(3, 1, (tile + 1) * 8 * width)
    lengths = [1 + k * k % 9 for k in range(900)]
    several = b.Create_indexed(lengths, [12 * (k ^ 6) for k in range(900)])
    line = b.Create_vector(2 * tile + 3, 1, 2)
    members = [solid, several, b.Create_contiguous(tile + 1), line, plane]
    datatype = _struct(*((k << 20, member) for k, member in enumerate(members)))
    kinds = [isinstance(part, RunList) for part in plan(datatype).parts]
    assert sum(kinds) > 0 and len(kinds) - sum(kinds) >= 3
    check(datatype, 1)
    assert used == [("parts", width, 3, True, unpack) for unpack in (False, True)]
    used.clear()
    check(datatype, 1, width // 2, 0)  # fewer bytes a word
    expected = [("parts", width // 2, 3, True, unpack) for unpack in (False, True)]
    assert used == (expected if width > 4 else [])


def test_strided_parts_alone(used: list[tuple[Any, ...]]) -> None:
    line, short = MPI.DOUBLE.Create_vector(1500, 1, 2), MPI.DOUBLE.Create_vector(40, 2, 3)
    check(_struct((0, line), (1 << 16, short)), 1)
    assert used == [("parts", 8, 1, False, False), ("parts", 8, 1, False, True)]


def test_a_part_of_repeated_runs_goes_another_way(used: list[tuple[Any, ...]]) -> None:
    runs = MPI.DOUBLE.Create_indexed([2, 1, 4], [0, 3, 5]).Create_hvector(300, 1, 88)
    datatype = _struct((0, runs), (1 << 16, MPI.DOUBLE.Create_vector(100, 1, 2)))
    assert any(isinstance(part, RunList) and part.dims for part in plan(datatype).parts)
    check(datatype, 1)
    assert used == []
