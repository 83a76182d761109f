"""Packing kernels against MPI_Pack. On a GPU as it is, elsewhere with NUMBA_ENABLE_CUDASIM=1."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from datatype_family import BASES, family, memory_for, mpi_pack
from mpi4py import MPI
from numba import cuda

import gmpi
from device_lib.move.pack_part import pack_part, part_begin, unpack_part
from device_lib.platform.divide import LIMIT, divide, magic_of, product
from device_lib.platform.primitives import thread_rank
from gmpi.datatypes import plan
from gmpi.datatypes.descriptor import DESCRIPTOR_BYTES, Tables, describe, table_arrays
from gmpi.datatypes.interpret import pack
from gmpi.errors import DatatypeError
from gmpi.packing.copies import Shape, is_quicker, shape_of
from gmpi.packing.driver import upload
from gmpi.packing.memory import span_of

POISON = 0xA5
SAMPLE = 60 if gmpi.SIMULATOR else 1000


def to_device(array: np.ndarray):
    return cuda.to_device(array)


def to_host(array) -> np.ndarray:
    return array.copy_to_host()


def roll(memory: np.ndarray, offset: int) -> np.ndarray:
    """The same bytes at an address that is ``offset`` more than a multiple of 256."""
    return np.concatenate([np.zeros(offset, np.uint8), memory])


def check(datatype: MPI.Datatype, count: int, user_offset: int = 0, packed_offset: int = 0) -> None:
    """By kernels, and by a copy where that can do it."""
    engines = (
        ["kernel"] if shape_of(plan(datatype).repeated(count).parts) is None else ["kernel", "copy"]
    )
    for engine in engines:
        check_engine(engine, datatype, count, user_offset, packed_offset)


def check_engine(
    engine: str, datatype: MPI.Datatype, count: int, user_offset: int, packed_offset: int
) -> None:
    p = plan(datatype)
    memory, origin = memory_for(p, count)
    memory, origin = roll(memory, user_offset), origin + user_offset
    expected = mpi_pack(datatype, memory, origin, count)
    there = to_device(memory)
    # Absolute displacements from the origin: negative ones are inside the array too.
    low = min(p.reach(count)[0], 0)
    base = there[origin + low :]
    moved = datatype.Create_hindexed_block(1, [-low]) if low else datatype
    if low and count > 1:
        moved = moved.Create_resized(0, p.extent)
    packed = to_device(np.full(len(expected) + packed_offset + 16, POISON, np.uint8))
    if low and shape_of(plan(moved).repeated(count).parts) is None:
        engine = "kernel"
    gmpi.pack(base, moved, count, out=packed[packed_offset:], engine=engine)
    result = to_host(packed)
    np.testing.assert_array_equal(result[packed_offset:][: len(expected)], expected)
    assert (result[:packed_offset] == POISON).all()
    assert (result[packed_offset + len(expected) :] == POISON).all()

    poisoned = to_device(np.full_like(memory, POISON))
    gmpi.unpack(packed[packed_offset:], moved, poisoned[origin + low :], count, engine=engine)
    touched = np.zeros(len(memory), bool)
    for at, length in p.segments(count):
        touched[origin + at : origin + at + length] = True
    target = to_host(poisoned)
    np.testing.assert_array_equal(target[touched], memory[touched])
    assert (target[~touched] == POISON).all()


def test_a_seeded_sample_of_the_family() -> None:
    names = dict(family())
    failed = []
    for name in random.Random(7).sample(sorted(names), min(SAMPLE, len(names))):
        try:
            check(names[name], 2)
        except AssertionError as exc:
            failed.append(f"{name}: {str(exc)[:300]}")
    assert not failed, f"{len(failed)} of {SAMPLE}:\n" + "\n".join(failed[:10])


def _transposed(b: MPI.Datatype) -> MPI.Datatype:
    column = b.Create_vector(41, 1, 67).Create_resized(0, b.Get_size())
    return column.Create_contiguous(67)


def _table(b: MPI.Datatype) -> MPI.Datatype:
    return b.Create_indexed_block(3, [4 * i + i * i % 3 for i in range(700)])


def _runs(b: MPI.Datatype) -> MPI.Datatype:
    lengths = [1 + i * i % 11 for i in range(400)]
    return b.Create_indexed(lengths, [15 * (i ^ 5) for i in range(400)])


# Large enough that a thread moves all the words of a turn, and that there are several tiles.
SHAPES = {
    "strided": lambda b: b.Create_vector(900, 3, 5),
    "3-D": lambda b: b.Create_subarray([19, 18, 17], [14, 15, 13], [2, 1, 3]),
    "transposed": _transposed,
    "transposed 4-D": lambda b: (
        b.Create_hindexed_block(1, [64])
        .Create_hvector(12, 1, 320 * b.Get_size())
        .Create_hvector(3, 1, 5000 * b.Get_size())
        .Create_hvector(9, 1, b.Get_size())
        .Create_hvector(2, 1, 20000 * b.Get_size())
    ),
    "table": _table,
    "runs": _runs,
    "repeated runs": lambda b: b.Create_indexed([2, 1, 4], [0, 3, 5]).Create_hvector(
        300, 1, 11 * b.Get_size()
    ),
    "parts": lambda b: MPI.Datatype.Create_struct(
        [1, 1, 1],
        [0, 1 << 16, 1 << 17],
        [b.Create_vector(700, 2, 5), b, b.Create_vector(400, 3, 4)],
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("base", [*BASES, "double complex"])
def test_every_kind_in_every_word_width(shape: str, base: str) -> None:
    datatype = SHAPES[shape]({**BASES, "double complex": MPI.C_DOUBLE_COMPLEX}[base])
    check(datatype, 1)


@pytest.mark.parametrize("offsets", [(4, 0), (0, 4), (8, 8), (1, 0), (0, 3), (5, 2)])
@pytest.mark.parametrize("shape", SHAPES)
def test_pointers_of_any_alignment(shape: str, offsets: tuple[int, int]) -> None:
    check(SHAPES[shape](MPI.DOUBLE), 1, *offsets)


@cuda.jit
def move_range(unpack, descriptors, parts, user, packed, begin, end, count):
    """Positions begin..end of a plan; ``packed`` is the address of position ``begin``."""
    for k in range(parts):
        part = descriptors + k * DESCRIPTOR_BYTES
        at = packed - begin + part_begin(part)
        low = begin - part_begin(part)
        high = end - part_begin(part)
        if unpack:
            unpack_part(part, user, at, max(low, 0), high, count, thread_rank(), 32)
        else:
            pack_part(part, user, at, max(low, 0), high, count, thread_rank(), 32)


@pytest.mark.parametrize("base", ["char", "float", "double"])
@pytest.mark.parametrize("shape", ["strided", "3-D", "table", "runs"])
def test_a_range_may_begin_and_end_at_every_packed_position(shape: str, base: str) -> None:
    datatype = SHAPES[shape](BASES[base])
    count = 2
    p = plan(datatype)
    (part,) = p.parts
    memory, origin = memory_for(p, count)
    expected = pack(p, memory, count, origin)
    keep: list = []
    words = describe(part, Tables(**upload(table_arrays(part), keep)), p.extent)
    there = to_device(memory)
    address = upload({"d": words}, keep)["d"]
    user = span_of(there, "memory")[0] + origin
    cuts = {*range(21), *random.Random(3).sample(range(len(expected)), 12), len(expected)}
    cuts = sorted(cuts)
    for begin, end in pairwise(cuts):
        packed = to_device(np.full(end - begin + 16, POISON, np.uint8))
        at = span_of(packed, "packed")[0]
        move_range[1, 32](False, address, 1, user, at, begin, end, count)
        result = to_host(packed)
        np.testing.assert_array_equal(result[: end - begin], expected[begin:end])
        assert (result[end - begin :] == POISON).all()


@pytest.mark.parametrize("runs", [1, 2, 3, 200, 301])
@pytest.mark.parametrize("packed_offset", [0, 8])
def test_runs_of_words_in_pairs(runs: int, packed_offset: int) -> None:
    """Runs of 1 to 5 doubles: pairs within a run, across two, and a word alone at the end."""
    rng = random.Random(runs)
    lengths = [rng.randint(1, 5) for _ in range(runs)]
    places = [6 * k + rng.randint(0, 1) for k in range(runs)]
    rng.shuffle(places)
    for last in (1, 2):
        lengths[-1] = last
        check(MPI.DOUBLE.Create_indexed(lengths, places), 1, 8, packed_offset)
        check(MPI.DOUBLE.Create_indexed(lengths, places), 3, 0, packed_offset)


def test_a_product_is_exact_or_too_large() -> None:
    numbers = [0, 1, 3, 1 << 20, LIMIT - 1, LIMIT, (1 << 38) - 1, 1 << 45, (1 << 62) - 1]
    for most in (0, 5, (1 << 38) - 1, 1 << 61):
        for a in numbers:
            for b in numbers:
                assert product(a, b, most) == (a * b if a * b <= most else -1), (a, b, most)


def test_divide_is_exact() -> None:
    if not gmpi.SIMULATOR:
        pytest.skip("calls the simulator's twin; the kernels above test the other one")
    rng = random.Random(5)
    divisors = [1, 2, 3, 5, 7, 641, LIMIT - 1, LIMIT // 2]
    divisors += [rng.randrange(1, LIMIT) for _ in range(300)]
    for d in divisors:
        magic = magic_of(d)
        assert magic & 0xFFFFFFFF > 0 and magic >> 32 < 32
        for n in [0, 1, d - 1, d, d + 1, 2 * d - 1, LIMIT - 1, LIMIT - d, rng.randrange(LIMIT)]:
            if 0 <= n < LIMIT:
                assert divide(n, d, magic) == divmod(n, d)


def test_a_strided_type_takes_no_device_memory() -> None:
    assert plan(MPI.DOUBLE.Create_subarray([9, 8, 7], [4, 5, 3], [2, 1, 3])).device_bytes == 0


def test_a_type_that_leaves_the_array_is_refused_by_segment() -> None:
    array = to_device(np.zeros(100, np.float64))
    column = MPI.DOUBLE.Create_vector(10, 1, 11)
    gmpi.pack(array, column)
    with pytest.raises(DatatypeError, match=r"segment 0 of element 1, bytes 800\.\.808"):
        gmpi.pack(array, column.Create_resized(0, 800), 2)
    with pytest.raises(DatatypeError, match=r"segment 0 of element 0, bytes -8\.\.0"):
        gmpi.unpack(array, MPI.DOUBLE.Create_indexed_block(1, [-1]), array)


def test_a_packed_array_that_is_too_small_is_refused() -> None:
    array = to_device(np.zeros(100, np.float64))
    with pytest.raises(DatatypeError, match="out has 16 bytes, the packed data has 24"):
        gmpi.pack(array, MPI.DOUBLE, 3, out=to_device(np.zeros(2)))
    with pytest.raises(ValueError, match="count is -1"):
        gmpi.pack(array, MPI.DOUBLE, -1)


def test_absolute_addresses_from_bottom() -> None:
    a, b = to_device(np.arange(6.0)), to_device(np.arange(10, dtype=np.int32))
    places = [span_of(x, "x")[0] for x in (a, b)]
    datatype = MPI.Datatype.Create_struct([6, 5], places, [MPI.DOUBLE, MPI.INT])
    out = to_device(np.zeros(68, np.uint8))
    gmpi.pack(MPI.BOTTOM, datatype, out=out)
    expected = to_host(a).tobytes() + to_host(b)[:5].tobytes()
    assert to_host(out).tobytes() == expected


def test_the_plan_of_a_freed_datatype_is_forgotten() -> None:
    array = to_device(np.arange(100.0))
    out = to_device(np.zeros(4))
    for stride in (2, 3, 5, 7):  # MPI reuses the handle of the freed datatype
        datatype = MPI.DOUBLE.Create_vector(4, 1, stride)
        gmpi.pack(array, datatype, out=out)
        assert to_host(out).tolist() == [0, stride, 2 * stride, 3 * stride]
        datatype.Free()


def shape(datatype: MPI.Datatype, count: int = 1) -> Shape | None:
    return shape_of(plan(datatype).repeated(count).parts)


def test_what_a_copy_can_do() -> None:
    """A face of a box is rows at a pitch; what jumps, or goes backwards, needs a kernel."""
    face = MPI.DOUBLE.Create_subarray([8, 8, 8], [8, 3, 8], [0, 5, 0])
    assert shape(face) == Shape(5 * 64, 3 * 64, 512, 8, 4096, 1)
    box = MPI.DOUBLE.Create_subarray([8, 8, 8], [2, 3, 4], [1, 2, 3])
    assert shape(box) == Shape(8 * (64 + 16 + 3), 32, 64, 3, 512, 2)
    assert shape(MPI.INT, 100) == Shape(0, 400, 400, 1, 400, 1)
    assert shape(MPI.INT.Create_hvector(5, 1, -8)) is None
    assert shape(MPI.INT.Create_indexed([1, 2], [0, 5])) is None
    odd = MPI.INT.Create_vector(3, 1, 2).Create_resized(0, 28)  # 28 is no multiple of 8
    assert shape(odd, 2) is None


def test_few_rows_are_for_the_copy_engine() -> None:
    def rows(n: int, width: int) -> bool:
        return is_quicker(Shape(0, width, 2 * width, n, 2 * width * n, 1))

    assert rows(1, 1 << 20) and rows(512, 12288) and rows(4096, 24)
    assert not rows(262144, 24) and not rows(1, 64 << 20)


def test_a_hint_that_cannot_be_followed_is_refused() -> None:
    a = cuda.to_device(np.zeros(64, np.uint8))
    jumps = MPI.BYTE.Create_indexed([1, 2], [0, 5])
    with pytest.raises(ValueError, match="is not one block repeated"):
        gmpi.pack(a, jumps, engine="copy")
    with pytest.raises(ValueError, match="engine is 'dma', allowed is auto, kernel, copy"):
        gmpi.pack(a, jumps, engine="dma")
