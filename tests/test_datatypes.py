"""Plans against the packing of two MPI libraries: each of them runs this file."""

from __future__ import annotations

import time

import numpy as np
import pytest
from datatype_family import BASES, MAKERS, PAIRS, family, memory_for, mpi_pack, words
from datatype_random import random_types
from hypothesis import HealthCheck, event, given, note, settings
from hypothesis import strategies as st
from mpi4py import MPI
from typemap import typemap

from gmpi.datatypes import RunList, StridedBlock, plan
from gmpi.datatypes.interpret import pack, unpack
from gmpi.errors import DatatypeError

pytestmark = [pytest.mark.mpi, pytest.mark.quick]
POISON = 0xA5


class LibraryDisagrees(Exception):
    """This MPI library does not pack what the standard's type map says."""


def check(datatype: MPI.Datatype, count: int) -> None:
    p = plan(datatype)
    assert p.size == datatype.Get_size()
    memory, origin = memory_for(p, count)
    elements = np.arange(count)[:, None] * p.extent
    places = (origin + elements + typemap(datatype)[None, :]).reshape(-1)
    packed = pack(p, memory, count, origin)
    np.testing.assert_array_equal(packed, memory[places])
    # Unpacking into poisoned memory restores the bytes of the type map and leaves every gap.
    target = np.full_like(memory, POISON)
    unpack(p, packed, target, count, origin)
    expected = np.full_like(memory, POISON)
    expected[places] = memory[places]
    np.testing.assert_array_equal(target, expected)
    if ends_mpich(datatype):
        return
    if not np.array_equal(packed, mpi_pack(datatype, memory, origin, count)):
        raise LibraryDisagrees


def ends_mpich(datatype: MPI.Datatype) -> bool:
    """Whether MPI_Pack may end the process: MPICH 5.0 divides by zero where a struct has a member
    of indexed blocks without elements."""
    return MPI.get_vendor()[0] == "MPICH" and "INDEXED_BLOCK(blocklength=0" in words(datatype)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_every_constructor_over_every_other(count: int) -> None:
    failed = []
    disagreed = []
    for name, datatype in family():
        try:
            check(datatype, count)
        except AssertionError as exc:
            failed.append(f"{name}: {str(exc)[:200]}")
        except LibraryDisagrees:
            disagreed.append(name)
    assert not failed, "\n".join(failed[:20])
    # Blocks whose stride is minus their length are taken for contiguous by both libraries, in
    # different constructors.
    assert len(disagreed) <= 10, disagreed


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(random_types(), st.integers(0, 3))
def test_random_nested_types(datatype: MPI.Datatype, count: int) -> None:
    note(words(datatype))
    try:
        check(datatype, count)
    except LibraryDisagrees:
        event("the MPI library disagrees with the type map")


def constructions(nx: int, ny: int, nz: int, part: tuple[int, int, int]) -> list[MPI.Datatype]:
    """One box of an array of doubles, row-major, 15 times differently (paper 003 section 6.1)."""
    d = MPI.DOUBLE
    a, b, c = part
    row, plane = nz * 8, ny * nz * 8
    line = d.Create_contiguous(c)
    face = d.Create_vector(b, c, nz)
    hface = line.Create_hvector(b, 1, row)
    rows = [x * plane + y * row for x in range(a) for y in range(b)]
    sub3 = d.Create_subarray([nx, ny, nz], [a, b, c], [0, 0, 0])
    sub2 = d.Create_subarray([ny, nz], [b, c], [0, 0])
    fortran = d.Create_subarray([nz, ny, nx], [c, b, a], [0, 0, 0], MPI.ORDER_F)
    byte_line = MPI.BYTE.Create_contiguous(8 * c)
    return [
        sub3,
        fortran,
        face.Create_hvector(a, 1, plane),
        hface.Create_hvector(a, 1, plane),
        sub2.Create_contiguous(a),
        sub2.Create_vector(a, 1, 1),
        line.Create_hindexed([1] * len(rows), rows),
        line.Create_hindexed_block(1, rows),
        d.Create_hindexed([c] * len(rows), rows),
        d.Create_hindexed_block(c, rows),
        d.Create_indexed([c] * len(rows), [r // 8 for r in rows]),
        MPI.Datatype.Create_struct([1] * a, [x * plane for x in range(a)], [hface] * a),
        byte_line.Create_hvector(b, 1, row).Create_hvector(a, 1, plane),
        face.Create_resized(0, plane).Create_contiguous(a),
        sub3.Dup(),
    ]


def test_fifteen_constructions_of_one_box_have_one_plan() -> None:
    types = constructions(16, 20, 24, (4, 5, 6))
    plans = [plan(t).node for t in types]
    assert len(plans) == 15
    assert all(p == plans[0] for p in plans)
    (part,) = plan(types[0]).parts
    assert isinstance(part, StridedBlock)
    assert part.atom == 48 and [tuple(d[:2]) for d in part.dims] == [(5, 192), (4, 3840)]
    assert plan(types[6]).device_bytes == 0


def test_a_commit_takes_less_than_a_millisecond() -> None:
    for datatype in constructions(64, 64, 64, (8, 8, 8)):
        plan(datatype)
        took = []
        for _ in range(5):
            begin = time.thread_time()  # not what others take of the processor meanwhile
            plan(datatype)
            took.append(time.thread_time() - begin)
        assert min(took) < 1e-3, f"{datatype.decode()[1]} took {min(took) * 1e3:.2f} ms"


def test_a_dimension_of_size_1_keeps_its_start() -> None:
    # TEMPI elides the stream and loses the offset that came with it.
    p = plan(MPI.FLOAT.Create_subarray([4, 8], [1, 2], [3, 5]))
    assert p.segments() == [(3 * 32 + 20, 8)]


def test_packed_order_is_never_sorted() -> None:
    # TEMPI sorts streams by stride, and so packs a transpose as if it were none.
    p = plan(MPI.FLOAT.Create_vector(4, 1, 4).Create_hvector(4, 1, 4))
    assert [at for at, _ in p.segments()] == [16 * i + 4 * j for j in range(4) for i in range(4)]


def test_extents_beyond_4_gib() -> None:
    far = 5 << 30
    p = plan(MPI.DOUBLE.Create_hvector(3, 2, far))
    assert p.segments() == [(0, 16), (far, 16), (2 * far, 16)]
    assert p.reach(1) == (0, 2 * far + 16)
    nested = plan(MPI.DOUBLE.Create_hvector(2, 1, far).Create_resized(0, 3 * far))
    assert nested.segments(2) == [(0, 8), (far, 8), (3 * far, 8), (4 * far, 8)]


def test_absolute_addresses() -> None:
    a, b = np.arange(6.0), np.arange(10, dtype=np.int32)
    places = [MPI.Get_address(a), MPI.Get_address(b)]
    p = plan(MPI.Datatype.Create_struct([6, 5], places, [MPI.DOUBLE, MPI.INT]))
    assert p.segments() == [(places[0], 48), (places[1], 20)]


def test_counts_join_where_elements_touch() -> None:
    p = plan(MPI.DOUBLE.Create_contiguous(4))
    assert p.is_contiguous and p.segments(1000) == [(0, 32000)]
    row = plan(MPI.DOUBLE.Create_vector(4, 1, 10).Create_resized(0, 320))
    assert row.repeated(5).parts[0].dims == ((20, 80, None),)


def test_equal_length_lists_are_tables_and_others_run_lists() -> None:
    (part,) = plan(MPI.DOUBLE.Create_indexed_block(2, [0, 7, 3, 20])).parts
    assert isinstance(part, StridedBlock) and part.table.tolist() == [0, 56, 24, 160]
    (part,) = plan(MPI.DOUBLE.Create_indexed([2, 1, 4], [0, 7, 30])).parts
    assert isinstance(part, RunList) and part.positions.tolist() == [0, 16, 24, 56]


def test_large_members_of_a_struct_keep_their_own_blocks() -> None:
    # Flattened, this would be a list of 2 x 4096 runs of 8 bytes: more list than data.
    column = MPI.DOUBLE.Create_vector(4096, 1, 512)
    p = plan(
        MPI.Datatype.Create_struct(
            [1, 1], [0, 1 << 25], [column, MPI.INT.Create_vector(4096, 2, 9)]
        )
    )
    assert [type(part) for part in p.parts] == [StridedBlock, StridedBlock]
    assert p.device_bytes == 0


def test_the_word_is_what_lengths_strides_and_offsets_allow() -> None:
    assert plan(MPI.DOUBLE.Create_vector(4, 2, 4)).width == 16
    assert plan(MPI.DOUBLE.Create_vector(4, 2, 5)).width == 8
    assert plan(MPI.FLOAT.Create_hvector(4, 1, 10)).width == 2
    assert plan(MPI.DOUBLE.Create_hindexed([2], [4])).width == 4


@pytest.mark.parametrize("name", ["INTEGER", "DOUBLE_PRECISION", "REAL8"])
def test_fortran_types_are_refused(name: str) -> None:
    datatype = getattr(MPI, name)
    if datatype == MPI.DATATYPE_NULL:
        pytest.skip(f"this MPI library has no {name}")
    with pytest.raises(DatatypeError, match="Fortran"):
        plan(datatype.Create_vector(2, 1, 3))


def test_datatype_null_is_refused() -> None:
    with pytest.raises(DatatypeError, match="DATATYPE_NULL"):
        plan(MPI.DATATYPE_NULL)


def test_a_plan_prints_what_it_packs() -> None:
    text = str(plan(MPI.DOUBLE.Create_vector(512, 1, 512)))
    for word in ("strided", "4096 packed bytes", "512 x stride 4096", "block of 8 bytes"):
        assert word in text
    assert "runs of 8..32 bytes" in str(plan(MPI.DOUBLE.Create_indexed([2, 1, 4], [0, 7, 30])))


def test_the_family_covers_every_base_and_constructor() -> None:
    combiners = {make(MPI.INT).decode()[1] for make in MAKERS.values()}
    assert combiners >= {
        "DUP", "CONTIGUOUS", "VECTOR", "HVECTOR", "INDEXED", "HINDEXED", "INDEXED_BLOCK",
        "HINDEXED_BLOCK", "STRUCT", "SUBARRAY", "DARRAY", "RESIZED",
    }  # fmt: skip
    most = len(MAKERS) * (len(BASES) + len(PAIRS) + len(MAKERS))
    assert most * 0.9 < len(list(family())) <= most
