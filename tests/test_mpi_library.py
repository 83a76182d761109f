"""What compiled code is told of the MPI library that mpi4py has loaded."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from mpi4py import MPI

from gmpi.contract.constants import DATATYPES, OPERATIONS_REDUCE
from host_proxy.platform import mpi_library
from host_proxy.platform import state as st
from host_proxy.platform.make_state import Habits, make_state
from host_proxy.platform.state import no_gpu

pytestmark = [pytest.mark.mpi, pytest.mark.quick]


@pytest.mark.parametrize(
    "source, tag, error", [(0, 0, 0), (3, 7, 15), (-1, -1, -2), (1 << 29,) * 3]
)
def test_fields_of_a_status_are_where_they_are_said_to_be(
    source: int, tag: int, error: int
) -> None:
    layout = mpi_library.status_layout()
    status = MPI.Status()
    status.Set_source(source)
    status.Set_tag(tag)
    status.Set_error(error)
    raw = ctypes.string_at(MPI._addressof(status), layout.size)
    assert layout.size == MPI._sizeof(MPI.Status)
    status.Set_elements(MPI.BYTE, 3 * abs(tag))
    assert status.Get_count(MPI.BYTE) == 3 * abs(tag)
    raw_count = ctypes.string_at(MPI._addressof(status) + layout.nbytes, 4)
    assert int.from_bytes(raw_count, "little") == 3 * abs(tag)
    for offset, value in ((layout.source, source), (layout.tag, tag), (layout.error, error)):
        assert int.from_bytes(raw[offset : offset + 4], "little", signed=True) == value


def test_handles_are_those_of_mpi4py() -> None:
    mask = (1 << 8 * mpi_library.HANDLE_BYTES) - 1
    things = [MPI.COMM_WORLD, MPI.COMM_SELF, MPI.BYTE, MPI.DOUBLE, MPI.SUM, MPI.BXOR]
    for thing in things:
        assert mpi_library.handle(thing) & mask == MPI._handleof(thing) & mask
    assert len({mpi_library.handle(thing) for thing in things}) == len(things)


def test_functions_can_be_called_by_address() -> None:
    found = mpi_library.functions()
    assert set(found) == set(mpi_library.FUNCTIONS) and all(found.values())
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
    result = ctypes.c_int(-1)
    assert kind(found["MPI_Error_class"])(MPI.ERR_TAG, ctypes.addressof(result)) == 0
    assert result.value == MPI.ERR_TAG


def test_tables_hold_sizes_and_handles() -> None:
    from machine import SMALL

    memory = np.zeros(SMALL.mapped_bytes, np.uint8)
    peers = np.zeros((1, st.P_COUNT), np.int64)
    at = int(memory.ctypes.data)
    state = make_state(SMALL, at, (at, 0, 0), peers, 1, Habits(), no_gpu)
    for row, (_, datatype, _) in zip(state.datatypes, DATATYPES):
        assert row[st.D_SIZE] == datatype.extent  # of pairs, gaps included
        assert row[st.D_HANDLE] == mpi_library.handle(datatype)
    for handle, (_, op) in zip(state.reductions.table, OPERATIONS_REDUCE):
        assert handle == mpi_library.handle(op)
    # Every address that compiled code follows is there.
    for name in dir(st):
        if name.startswith("F_"):
            assert state.globals[getattr(st, name)] != 0, name
