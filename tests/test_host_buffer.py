"""Buffer specifications of the host's calls: what they mean, and what is wrong with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import gmpi
from gmpi.datatypes.plans import Plan
from gmpi.datatypes.plans import plan as make_plan
from gmpi.host.arguments import Argument
from gmpi.host.buffer import HostBuffer

HANDLE = 0x5000_0001


def buffer(spec: Any, writable: bool = True, plans: dict[int, Plan] | None = None) -> HostBuffer:
    return HostBuffer(spec, Argument("Isend", "buf"), writable, lambda: plans or {})


@pytest.mark.parametrize(
    ("rest", "begin", "end"),
    [
        ([], 0, 12),
        ([5], 0, 5),
        ([(5, 2)], 2, 7),
        ([MPI.INT32_T], 0, 12),
        (["i"], 0, 12),
        ([4, MPI.INT32_T], 0, 4),
        ([(4, 3), MPI.INT32_T], 3, 7),
        ([None, gmpi.INT32_T], 0, 12),
        ([0, gmpi.INT32_T], 0, 0),
    ],
)
def test_contiguous_data_are_the_users_memory(rest: list[Any], begin: int, end: int) -> None:
    array = np.arange(12, dtype=np.int32)
    found = buffer((array, *rest))
    assert (found.count, found.itemsize, found.nbytes) == (end - begin, 4, 4 * (end - begin))
    assert (found.data.view(np.int32) == array[begin:end]).all()
    found.data[:] = 0
    assert (array[begin:end] == 0).all() and array.sum() == sum({*range(12)} - {*range(begin, end)})


def test_scattered_data_are_packed_and_come_back() -> None:
    column = MPI.INT32_T.Create_vector(3, 1, 4).Create_resized(0, 4)
    array = np.arange(12, dtype=np.int32).reshape(3, 4)
    for datatype in (column, HANDLE):
        plans = {HANDLE: make_plan(column)}
        found = buffer([array, (2, 1), datatype], writable=False, plans=plans)
        assert found.data.view(np.int32).tolist() == [1, 5, 9, 2, 6, 10]
        back = np.zeros((3, 4), np.int32)
        target = buffer([back, (2, 1), datatype], plans=plans)
        target.data[:] = found.data
        target.unpack(16)  # a shorter message
        assert back.tolist() == [[0, 1, 2, 0], [0, 5, 0, 0], [0, 9, 0, 0]]
        target.unpack(24)
        assert (back[:, 1:3] == array[:, 1:3]).all() and not back[:, [0, 3]].any()
    column.Free()


def test_blocks_of_different_lengths() -> None:
    datatype = MPI.INT16_T.Create_indexed([1, 3], [7, 2])
    array = np.arange(10, dtype=np.int16)
    found = buffer([array, 1, datatype])
    found.pack()
    assert found.data.view(np.int16).tolist() == [7, 2, 3, 4]
    found.data[:] = 0xFF
    found.unpack(8)
    assert array.tolist() == [0, 1, -1, -1, -1, 5, 6, -1, 8, 9]
    datatype.Free()


def test_absolute_addresses() -> None:
    array = np.arange(8, dtype=np.float64)
    at = MPI.Get_address(array)
    datatype = MPI.DOUBLE.Create_hindexed([1, 2], [at + 40, at + 8])
    found = buffer([MPI.BOTTOM, 1, datatype], writable=False)
    assert found.data.view(np.float64).tolist() == [5, 1, 2]
    datatype.Free()


@pytest.mark.parametrize(
    ("rest", "error", "text"),
    [
        ([13], gmpi.DatatypeError, "13 elements of the datatype leave buf: bytes 0..52, of the"),
        ([(1, 12)], gmpi.DatatypeError, "leave buf: bytes 48..52, of the buffer"),
        ([7, MPI.DOUBLE], gmpi.DatatypeError, "7 elements of the datatype leave buf: "),
        ([-1], ValueError, "the count of buf is -1, allowed is 0 and up"),
        ([1.5], TypeError, "the count of buf is float, allowed is a whole number"),
        ([(1, 2, 3)], ValueError, r"allowed is \(count, displacement\)"),
        ([1, 1.5], TypeError, "the datatype of buf is float, allowed is an mpi4py datatype"),
        ([1, 77], gmpi.DatatypeError, "the datatype of buf is 0x4d, allowed is a constant such"),
        ([1, MPI.INT, 3], ValueError, "buf is a sequence of 4, allowed is buf, "),
        ([gmpi.INT], ValueError, r"to pass the handle gmpi.INT, write \[buf, None, handle\]"),
        ([MPI.INT.Create_contiguous(5)], ValueError, "48 bytes, no multiple of the datatype's"),
        ([1, MPI.DATATYPE_NULL], gmpi.DatatypeError, "DATATYPE_NULL"),
    ],
)
def test_what_is_wrong_is_named(rest: list[Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        buffer([np.zeros(12, np.int32), *rest])


def test_receiving_into_overlapping_elements_is_refused() -> None:
    twice = MPI.INT.Create_indexed([2, 2], [0, 1])
    array = np.arange(3, dtype=np.int32)
    assert buffer([array, 1, twice], writable=False).data.view(np.int32).tolist() == [0, 1, 1, 2]
    with pytest.raises(gmpi.DatatypeError, match="overlap, and MPI forbids to receive into"):
        buffer([array, 1, twice])
    twice.Free()


def test_bottom_needs_count_and_datatype() -> None:
    with pytest.raises(ValueError, match=r"needs \[MPI.BOTTOM, count, datatype\]"):
        buffer(MPI.BOTTOM)


def test_what_has_no_buffer_is_refused() -> None:
    with pytest.raises(TypeError, match="buf is int, allowed is a NumPy array or another object"):
        buffer(5)
