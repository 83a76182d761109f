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
from host_proxy.platform.reductions import Reductions
from host_proxy.platform.state import (
    A_COUNT,
    C_COUNT,
    D_COUNT,
    E_COUNT,
    F_CLOCK_GETTIME,
    F_ERROR_CLASS,
    F_IALLREDUCE,
    F_IBARRIER,
    F_IBCAST,
    F_IRECV,
    F_ISEND,
    F_ISSEND,
    F_MOVING,
    F_NANOSLEEP,
    F_REQUEST_FREE,
    F_TEST,
    F_TESTSOME,
    F_YIELD,
    FAULTS,
    FLIGHT_BYTES,
    G_BYTE,
    G_CAPACITY,
    G_CHUNK,
    G_CLOCK,
    G_COMMUNICATORS,
    G_COMPLETIONS,
    G_CONTEXT,
    G_CONTROL,
    G_COUNT,
    G_CROWDED,
    G_DATATYPES,
    G_DERIVED,
    G_EAGER,
    G_ERR_IN_STATUS,
    G_FAULT_TABLE,
    G_FIRST_NARROW,
    G_FLIGHT_AT,
    G_FLIGHT_LAST,
    G_FLIGHT_OFF,
    G_HANDLE_BYTES,
    G_HANDLES,
    G_IN_PLACE,
    G_INDICES,
    G_LARGE,
    G_LARGE_DEVICE,
    G_LARGE_SLOTS,
    G_MAILBOXES,
    G_NARROW,
    G_NOTES,
    G_OUTCOUNT,
    G_PATIENCE_NS,
    G_PEERS,
    G_PENDING_TABLE,
    G_RECORD,
    G_REDUCTIONS,
    G_REQUEST_SLOTS,
    G_RING,
    G_RING_SLOTS,
    G_SLEEP_NS,
    G_SLOT_TABLE,
    G_SLOTS,
    G_SMALL,
    G_SMALL_STRIDE,
    G_SPIN_NS,
    G_STAGING,
    G_STATUS,
    G_STATUS_BYTES,
    G_STATUS_COUNT,
    G_STATUS_ERROR,
    G_STATUS_SOURCE,
    G_STATUS_TAG,
    G_STATUSES,
    G_TAG_UB,
    G_TRACE,
    G_TRACE_AT,
    G_UNDEFINED,
    G_YIELD_NS,
    NARROW_BYTES,
    NOTE_BYTES,
    R_COUNT,
    S_COUNT,
    S_SLOT,
    TR_COUNT,
    WINDOW,
    Fetch,
    State,
)

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
    fetch: Fetch,
) -> State:
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
    state = State(
        layout,
        globals=np.zeros(G_COUNT, np.int64),
        slots=np.zeros((layout.slots, S_COUNT), np.int64),
        pending=np.zeros((capacity, A_COUNT), np.int64),
        datatypes=np.zeros((len(DATATYPES), D_COUNT), np.int64),
        derived=np.zeros((DERIVED_ROWS, D_COUNT), np.int64),
        reductions=Reductions(),
        communicator_table=np.zeros((PRIVATE_COMMUNICATOR + 1, C_COUNT), np.int64),
        peers=peers,
        faults=np.zeros((FAULTS, E_COUNT), np.int64),
        record=np.zeros(R_COUNT, np.int64),
        fetch=fetch,
    )
    state.slots[:, S_SLOT] = np.arange(layout.slots)
    state.globals[G_CONTEXT] = context
    _describe_tables(state, capacity)
    _describe_regions(state, mapped, gpu)
    _describe_habits(state, habits)
    _describe_mpi(state)
    return state


def _describe_tables(state: State, capacity: int) -> None:
    """Fills in where the arrays are, and the room for what MPI writes."""
    g = state.globals
    g[G_SLOT_TABLE] = state.slots.ctypes.data
    g[G_PENDING_TABLE] = state.pending.ctypes.data
    g[G_DATATYPES] = state.datatypes.ctypes.data
    g[G_DERIVED] = state.derived.ctypes.data
    g[G_REDUCTIONS] = state.reductions.table.ctypes.data
    g[G_COMMUNICATORS] = state.communicator_table.ctypes.data
    g[G_PEERS] = state.peers.ctypes.data
    g[G_FAULT_TABLE] = state.faults.ctypes.data
    g[G_RECORD] = state.record.ctypes.data
    g[G_NOTES] = state.buffer(state.layout.slots * NOTE_BYTES)
    g[G_CAPACITY] = capacity
    g[G_HANDLES] = state.buffer((capacity + 1) * mpi_library.HANDLE_BYTES)  # of what is not kept
    g[G_INDICES] = state.buffer(WINDOW * 4)
    g[G_OUTCOUNT] = state.buffer(8)
    g[G_CLOCK] = state.buffer(16)
    g[G_NARROW] = state.buffer(NARROW_BYTES)


def _describe_regions(state: State, mapped: int, gpu: tuple[int, int, int]) -> None:
    """Fills in addresses and sizes of the memory that is shared with kernels."""
    g, layout = state.globals, state.layout
    g[G_CONTROL] = mapped
    g[G_RING] = mapped + layout.ring
    g[G_RING_SLOTS] = layout.ring_slots
    g[G_COMPLETIONS] = mapped + layout.completions
    g[G_SMALL] = mapped + layout.small
    g[G_SMALL_STRIDE] = layout.small_stride
    g[G_LARGE] = mapped + layout.large
    g[G_LARGE_DEVICE], g[G_STAGING], g[G_MAILBOXES] = gpu[0] + layout.large, *gpu[1:]
    g[G_REQUEST_SLOTS] = layout.request_slots
    g[G_LARGE_SLOTS] = layout.large_slots
    g[G_FIRST_NARROW] = layout.first_narrow
    g[G_SLOTS] = layout.slots
    g[G_EAGER] = layout.eager_bytes
    g[G_CHUNK] = layout.chunk_bytes


def _describe_habits(state: State, habits: Habits) -> None:
    g = state.globals
    g[G_SPIN_NS], g[G_YIELD_NS], g[G_SLEEP_NS] = habits.idle
    g[G_CROWDED] = habits.crowded
    g[G_PATIENCE_NS] = _PATIENCE_NS
    events = max(habits.flight, 1)
    g[G_FLIGHT_AT] = state.buffer(events * FLIGHT_BYTES)
    g[G_FLIGHT_LAST] = events - 1
    g[G_FLIGHT_OFF] = habits.flight == 0
    if habits.trace:
        g[G_TRACE] = habits.trace
        g[G_TRACE_AT] = state.buffer(habits.trace * TR_COUNT * 8)


def _describe_mpi(state: State) -> None:
    """Fills in what compiled code must know of the MPI library."""
    g = state.globals
    status = mpi_library.status_layout()
    g[G_STATUSES] = state.buffer(WINDOW * status.size)
    g[G_STATUS] = state.buffer(status.size)
    g[G_STATUS_BYTES] = status.size
    g[G_STATUS_SOURCE] = status.source
    g[G_STATUS_TAG] = status.tag
    g[G_STATUS_ERROR] = status.error
    g[G_STATUS_COUNT] = status.nbytes
    g[G_TAG_UB] = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)
    g[G_BYTE] = mpi_library.handle(MPI.BYTE)
    g[G_IN_PLACE] = int(MPI.IN_PLACE)
    g[G_UNDEFINED] = MPI.UNDEFINED
    g[G_ERR_IN_STATUS] = MPI.ERR_IN_STATUS
    g[G_HANDLE_BYTES] = mpi_library.HANDLE_BYTES

    functions = mpi_library.functions()
    g[F_ISEND] = functions["MPI_Isend"]
    g[F_ISSEND] = functions["MPI_Issend"]
    g[F_IRECV] = functions["MPI_Irecv"]
    g[F_TEST] = functions["MPI_Test"]
    g[F_TESTSOME] = functions["MPI_Testsome"]
    g[F_IALLREDUCE] = functions["MPI_Iallreduce"]
    g[F_IBCAST] = functions["MPI_Ibcast"]
    g[F_IBARRIER] = functions["MPI_Ibarrier"]
    g[F_ERROR_CLASS] = functions["MPI_Error_class"]
    g[F_REQUEST_FREE] = functions["MPI_Request_free"]
    for i, name in enumerate(mpi_library.MOVING):
        g[F_MOVING + i] = functions[name]
    libc = ctypes.CDLL(None)
    g[F_CLOCK_GETTIME] = ctypes.cast(libc.clock_gettime, ctypes.c_void_p).value
    g[F_YIELD] = ctypes.cast(libc.sched_yield, ctypes.c_void_p).value
    g[F_NANOSLEEP] = ctypes.cast(libc.nanosleep, ctypes.c_void_p).value

    for i, (_, datatype, dtype) in enumerate(DATATYPES):
        state.datatypes[i] = mpi_library.handle(datatype), dtype.itemsize
