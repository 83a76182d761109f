"""The arrays of a new context, filled with what its proxy must know: addresses, sizes, MPI."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from gmpi.contract.constants import DATATYPES
from gmpi.contract.layouts import DERIVED_ROWS
from gmpi.contract.sizes import Layout
from gmpi.contract.wire import LARGE_BUFFERS, PRIVATE_COMMUNICATOR
from host_proxy.platform import mpi_library
from host_proxy.platform import state as st
from host_proxy.platform.reductions import Reductions

# A block takes some 40 us to move the largest chunk between GPUs.
_PATIENCE_NS = 50_000


class Habits(NamedTuple):
    """What the settings of a context say of its proxy.

    Attributes:
        trace: how many requests to keep time stamps of.
        flight: how many events the flight recorder keeps, a power of two; 0: it is not read.
        idle: (spin, yield, sleep) in ns: how long to spin, then to yield, then each nap.
        crowded: there are fewer cores than threads that spin.
    """

    trace: int = 0
    flight: int = 0
    idle: tuple[int, int, int] = (0, 0, 0)
    crowded: bool = False


def make_state(
    layout: Layout,
    mapped: int,
    gpu: tuple[int, int, int],
    peers: np.ndarray,
    context: int,
    habits: Habits,
    fetch: st.Fetch,
) -> st.State:
    """Arrays for a context.

    Args:
        mapped: address of mapped memory.
        gpu: addresses for the GPU: of mapped memory, GPU staging and the mailboxes.
        peers: int64[ranks of this node, P_COUNT].
        fetch: copies GPU memory, of this process or of one that shares it, to the host.
    """
    # What is pending when a sweep begins, and what is added before it ends: a request of each small
    # slot; the header, chunks or credits, and the receipt, of each large or narrow one.
    long = layout.large_slots + layout.narrow_slots
    capacity = 2 * (layout.request_slots + long * (LARGE_BUFFERS + 2))
    state = st.State(
        layout,
        globals=np.zeros(st.G_COUNT, np.int64),
        slots=np.zeros((layout.slots, st.S_COUNT), np.int64),
        pending=np.zeros((capacity, st.A_COUNT), np.int64),
        datatypes=np.zeros((len(DATATYPES), st.D_COUNT), np.int64),
        derived=np.zeros((DERIVED_ROWS, st.D_COUNT), np.int64),
        reductions=Reductions(),
        communicator_table=np.zeros((PRIVATE_COMMUNICATOR + 1, st.C_COUNT), np.int64),
        peers=peers,
        faults=np.zeros((st.FAULTS, st.E_COUNT), np.int64),
        record=np.zeros(st.R_COUNT, np.int64),
        fetch=fetch,
    )
    state.slots[:, st.S_SLOT] = np.arange(layout.slots)
    state.globals[st.G_CONTEXT] = context
    _describe_tables(state, capacity)
    _describe_regions(state, mapped, gpu)
    _describe_habits(state, habits)
    _describe_mpi(state)
    return state


def _describe_tables(state: st.State, capacity: int) -> None:
    """Fills in where the arrays are, and the room for what MPI writes."""
    g = state.globals
    g[st.G_SLOT_TABLE] = state.slots.ctypes.data
    g[st.G_PENDING_TABLE] = state.pending.ctypes.data
    g[st.G_DATATYPES] = state.datatypes.ctypes.data
    g[st.G_DERIVED] = state.derived.ctypes.data
    g[st.G_REDUCTIONS] = state.reductions.table.ctypes.data
    g[st.G_COMMUNICATORS] = state.communicator_table.ctypes.data
    g[st.G_PEERS] = state.peers.ctypes.data
    g[st.G_FAULT_TABLE] = state.faults.ctypes.data
    g[st.G_RECORD] = state.record.ctypes.data
    g[st.G_NOTES] = state.buffer(state.layout.slots * st.NOTE_BYTES)
    g[st.G_CAPACITY] = capacity
    g[st.G_HANDLES] = state.buffer((capacity + 1) * mpi_library.HANDLE_BYTES)  # of what is not kept
    g[st.G_INDICES] = state.buffer(st.WINDOW * 4)
    g[st.G_OUTCOUNT] = state.buffer(8)
    g[st.G_CLOCK] = state.buffer(16)
    g[st.G_NARROW] = state.buffer(st.NARROW_BYTES)


def _describe_regions(state: st.State, mapped: int, gpu: tuple[int, int, int]) -> None:
    """Fills in addresses and sizes of the memory that is shared with kernels."""
    g, layout = state.globals, state.layout
    g[st.G_CONTROL] = mapped
    g[st.G_RING] = mapped + layout.ring
    g[st.G_RING_SLOTS] = layout.ring_slots
    g[st.G_COMPLETIONS] = mapped + layout.completions
    g[st.G_SMALL] = mapped + layout.small
    g[st.G_SMALL_STRIDE] = layout.small_stride
    g[st.G_LARGE] = mapped + layout.large
    g[st.G_LARGE_DEVICE], g[st.G_STAGING], g[st.G_MAILBOXES] = gpu[0] + layout.large, *gpu[1:]
    g[st.G_REQUEST_SLOTS] = layout.request_slots
    g[st.G_LARGE_SLOTS] = layout.large_slots
    g[st.G_FIRST_NARROW] = layout.first_narrow
    g[st.G_SLOTS] = layout.slots
    g[st.G_EAGER] = layout.eager_bytes
    g[st.G_CHUNK] = layout.chunk_bytes


def _describe_habits(state: st.State, habits: Habits) -> None:
    g = state.globals
    g[st.G_SPIN_NS], g[st.G_YIELD_NS], g[st.G_SLEEP_NS] = habits.idle
    g[st.G_CROWDED] = habits.crowded
    g[st.G_PATIENCE_NS] = _PATIENCE_NS
    events = max(habits.flight, 1)
    g[st.G_FLIGHT_AT] = state.buffer(events * st.FLIGHT_BYTES)
    g[st.G_FLIGHT_LAST] = events - 1
    g[st.G_FLIGHT_OFF] = habits.flight == 0
    if habits.trace:
        g[st.G_TRACE] = habits.trace
        g[st.G_TRACE_AT] = state.buffer(habits.trace * st.TR_COUNT * 8)


def _describe_mpi(state: st.State) -> None:
    """Fills in what compiled code must know of the MPI library."""
    g = state.globals
    status = mpi_library.status_layout()
    g[st.G_STATUSES] = state.buffer(st.WINDOW * status.size)
    g[st.G_STATUS] = state.buffer(status.size)
    g[st.G_STATUS_BYTES] = status.size
    g[st.G_STATUS_SOURCE] = status.source
    g[st.G_STATUS_TAG] = status.tag
    g[st.G_STATUS_ERROR] = status.error
    g[st.G_STATUS_COUNT] = status.nbytes
    g[st.G_TAG_UB] = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)
    g[st.G_BYTE] = mpi_library.handle(MPI.BYTE)
    g[st.G_IN_PLACE] = int(MPI.IN_PLACE)
    g[st.G_UNDEFINED] = MPI.UNDEFINED
    g[st.G_ERR_IN_STATUS] = MPI.ERR_IN_STATUS
    g[st.G_HANDLE_BYTES] = mpi_library.HANDLE_BYTES

    functions = mpi_library.functions()
    g[st.F_ISEND] = functions["MPI_Isend"]
    g[st.F_ISSEND] = functions["MPI_Issend"]
    g[st.F_IRECV] = functions["MPI_Irecv"]
    g[st.F_TEST] = functions["MPI_Test"]
    g[st.F_TESTSOME] = functions["MPI_Testsome"]
    g[st.F_IALLREDUCE] = functions["MPI_Iallreduce"]
    g[st.F_IBCAST] = functions["MPI_Ibcast"]
    g[st.F_IBARRIER] = functions["MPI_Ibarrier"]
    g[st.F_ERROR_CLASS] = functions["MPI_Error_class"]
    g[st.F_REQUEST_FREE] = functions["MPI_Request_free"]
    for i, name in enumerate(mpi_library.MOVING):
        g[st.F_MOVING + i] = functions[name]
    libc = ctypes.CDLL(None)
    g[st.F_CLOCK_GETTIME] = ctypes.cast(libc.clock_gettime, ctypes.c_void_p).value
    g[st.F_YIELD] = ctypes.cast(libc.sched_yield, ctypes.c_void_p).value
    g[st.F_NANOSLEEP] = ctypes.cast(libc.nanosleep, ctypes.c_void_p).value

    for i, (_, datatype, dtype) in enumerate(DATATYPES):
        state.datatypes[i] = mpi_library.handle(datatype), dtype.itemsize
