"""The proxy's own state: five int64 arrays that compiled and Python code share.

    g  [G_COUNT]             one number each: addresses, sizes, counters, MPI constants
    s  [slots, S_COUNT]      one row a request slot: the request that is open there
    a  [capacity, A_COUNT]   one row a pending MPI request, parallel to the array of MPI handles
    t  [tables]              datatypes, reductions, communicators
    e  [ERRORS, E_COUNT]     the last errors, for the host to word and raise

Plain arrays because the compiled loop takes them as they are, and because the host can read them
at any time: reports of pending requests come straight from ``s``.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

import numpy as np
from mpi4py import MPI

from gmpi.constants import DATATYPES, OPERATIONS_REDUCE
from gmpi.wire import COMMUNICATORS, LARGE_BUFFERS, MESSAGE_HEADER, Layout
from host_proxy import mpi_library

# --- g ----------------------------------------------------------------------------------------------
(
    G_STOP,  # set by the host: leave the loop
    G_CONTEXT,
    # where things are (addresses) and how large (bytes, slots)
    G_CONTROL,
    G_RING,
    G_RING_SLOTS,
    G_COMPLETIONS,
    G_SMALL,
    G_SMALL_STRIDE,
    G_LARGE,
    G_REQUEST_SLOTS,
    G_SLOTS,
    G_EAGER,
    G_CHUNK,
    G_DRAIN,  # a buffer for chunks that nobody wants
    G_HANDLES,  # MPI_Request[capacity]
    G_STATUSES,  # MPI_Status[WINDOW]
    G_INDICES,  # int[WINDOW]
    G_OUTCOUNT,  # int
    G_CLOCK,  # struct timespec
    # counters
    G_HEAD,  # records taken from the ring
    G_SERIAL,  # requests opened
    G_CLOSED,  # requests completed
    G_ACTIVE,  # pending MPI requests
    G_WINDOW,  # where the next Testsome begins
    G_TRANSFERS,  # numbers of chunked messages sent
    G_SYNCS,  # SYNCHRONIZE requests that wait
    G_SYNC_SEEN,  # G_CLOSED when they were last looked at
    G_PYTHON,  # requests in the hands of the mpi4py engine
    G_ERRORS,  # errors logged
    G_ATTENTION,
    G_SLEEPS,
    G_NULLS,  # NULL records seen
    G_NULL_SUM,  # and the sum of their values
    G_TRACE,  # entries of the trace, 0: off
    G_TRACE_AT,  # its address
    # idling
    G_SPIN_NS,
    G_YIELD_NS,
    G_SLEEP_NS,
    G_CROWDED,  # fewer cores than spinning threads: yield at every idle turn
    # MPI
    G_TAG_UB,
    G_BYTE,  # handle of MPI_BYTE
    G_IN_PLACE,
    G_UNDEFINED,
    G_ERR_IN_STATUS,
    G_HANDLE_BYTES,
    G_STATUS_BYTES,
    G_STATUS_SOURCE,
    G_STATUS_TAG,
    G_STATUS_ERROR,
    F_ISEND,
    F_IRECV,
    F_TESTSOME,
    F_IALLREDUCE,
    F_IBCAST,
    F_IBARRIER,
    F_ERROR_CLASS,
    F_CLOCK_GETTIME,
    F_YIELD,
    F_NANOSLEEP,
    G_COUNT,
) = range(60)

# --- s ----------------------------------------------------------------------------------------------
(
    S_STATE,
    S_HANDLE,
    S_OP,
    S_COMM,
    S_PEER,
    S_TAG,
    S_DATATYPE,
    S_ELEMENTS,
    S_REDUCTION,
    S_BYTES,  # what the call said: room of a receive, length of a send
    S_BLOCK,
    S_OPENED_NS,
    S_SERIAL,
    S_PYTHON,  # 1: in the hands of the mpi4py engine
    # progress of a chunked message
    S_TOTAL,  # bytes of the message, as its header says
    S_CHUNK,  # bytes of its chunks
    S_CHUNKS,
    S_TRANSFER,  # its number: the tag of the chunks
    S_NEXT,  # next chunk to hand to MPI; chunks go strictly in order
    S_BUFFERS,  # bit i: chunk buffer i is full (send) or free (receive)
    S_FINISHED,  # chunks done
    S_FRAGMENT,  # 1: the first fragment is done
    S_ORDERS,  # orders that nobody has carried out yet
    S_SOURCE,
    S_SOURCE_TAG,
    S_PENDING,  # MPI requests of this slot
    S_FAILED,  # error class; the request ends once nothing of it is pending
    S_ERROR,
    S_COUNT,
) = range(29)

FREE = 0
OPEN = 1
COMPLETE = 2

# --- a ----------------------------------------------------------------------------------------------
(A_SLOT, A_KIND, A_INDEX, A_COUNT) = range(4)

(SEND, RECEIVE, SEND_CHUNK, RECEIVE_CHUNK, COLLECTIVE, DRAIN) = range(6)
WINDOW = 64  # MPI requests per Testsome

# --- t: three tables in one array ----------------------------------------------------------------
T_DATATYPES = 0  # row: MPI handle, size
T_REDUCTIONS = 64
T_COMMUNICATORS = 96
(T_HANDLE, T_CHUNKS, T_RANK, T_PEERS, T_COLLECTIVES, T_COUNT) = range(6)
# of a communicator: handle, handle for chunks, rank, valid peers, collectives in Python's hands
T_SIZE = 1  # of a datatype, where a communicator has T_CHUNKS

# --- e ----------------------------------------------------------------------------------------------
(
    E_OP,
    E_FIELD,
    E_VALUE,
    E_LOW,
    E_HIGH,
    E_CLASS,
    E_CODE,  # MPI's own error code, 0 when we refused the call
    E_BLOCK,
    E_COMM,
    E_PEER,
    E_TAG,
    E_DATATYPE,
    E_ELEMENTS,
    E_SLOT,
    E_COUNT,
) = range(15)
ERRORS = 256

# --- trace (Context(trace=n)) -------------------------------------------------------------------------
(TR_HANDLE, TR_OP, TR_PICKED_UP, TR_CALLED, TR_ARRIVED, TR_COMPLETED, TR_COUNT) = range(7)


@dataclass
class State:
    """The arrays, the memory that MPI writes to, and the communicators, of one context."""

    layout: Layout
    g: np.ndarray
    s: np.ndarray
    a: np.ndarray
    t: np.ndarray
    e: np.ndarray
    communicators: list[Communicator] = field(default_factory=list)
    keep: list[np.ndarray] = field(default_factory=list)  # memory behind addresses in g

    def buffer(self, nbytes: int) -> int:
        """Address of fresh host memory that lives as long as the state."""
        memory = np.zeros(nbytes + 64, np.uint8)
        self.keep.append(memory)
        return (memory.ctypes.data + 63) // 64 * 64


@dataclass
class Communicator:
    """What the proxy holds of a user's communicator: two duplicates, so nothing else matches."""

    messages: MPI.Comm
    chunks: MPI.Comm
    rank: int
    size: int
    name: str


def make_state(
    layout: Layout, mapped: int, context: int, trace: int, idle: tuple[int, int, int], crowded: bool
) -> State:
    """Arrays for a context whose mapped memory is at address ``mapped``.

    Args:
        trace: how many requests to keep time stamps of.
        idle: (spin, yield, sleep) in ns: how long to spin, then to yield, then each nap.
        crowded: there are fewer cores than threads that spin.
    """
    capacity = layout.slots + layout.large_slots * LARGE_BUFFERS
    g = np.zeros(G_COUNT, np.int64)
    s = np.zeros((layout.slots, S_COUNT), np.int64)
    a = np.zeros((capacity, A_COUNT), np.int64)
    t = np.zeros((T_COMMUNICATORS + COMMUNICATORS, T_COUNT), np.int64)
    e = np.zeros((ERRORS, E_COUNT), np.int64)
    state = State(layout, g, s, a, t, e)

    status = mpi_library.status_layout()
    g[G_CONTEXT] = context
    g[G_CONTROL] = mapped
    g[G_RING] = mapped + layout.ring
    g[G_RING_SLOTS] = layout.ring_slots
    g[G_COMPLETIONS] = mapped + layout.completions
    g[G_SMALL] = mapped + layout.small
    g[G_SMALL_STRIDE] = layout.small_stride
    g[G_LARGE] = mapped + layout.large
    g[G_REQUEST_SLOTS] = layout.request_slots
    g[G_SLOTS] = layout.slots
    g[G_EAGER] = layout.eager_bytes
    g[G_CHUNK] = layout.chunk_bytes
    g[G_DRAIN] = state.buffer(max(layout.chunk_bytes, layout.eager_bytes) + MESSAGE_HEADER)
    g[G_HANDLES] = state.buffer(capacity * mpi_library.HANDLE_BYTES)
    g[G_STATUSES] = state.buffer(WINDOW * status.size)
    g[G_INDICES] = state.buffer(WINDOW * 4)
    g[G_OUTCOUNT] = state.buffer(8)
    g[G_CLOCK] = state.buffer(16)
    g[G_SPIN_NS], g[G_YIELD_NS], g[G_SLEEP_NS] = idle
    g[G_CROWDED] = crowded
    if trace:
        g[G_TRACE] = trace
        g[G_TRACE_AT] = state.buffer(trace * TR_COUNT * 8)

    g[G_TAG_UB] = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)
    g[G_BYTE] = mpi_library.handle(MPI.BYTE)
    g[G_IN_PLACE] = int(MPI.IN_PLACE)
    g[G_UNDEFINED] = MPI.UNDEFINED
    g[G_ERR_IN_STATUS] = MPI.ERR_IN_STATUS
    g[G_HANDLE_BYTES] = mpi_library.HANDLE_BYTES
    g[G_STATUS_BYTES] = status.size
    g[G_STATUS_SOURCE] = status.source
    g[G_STATUS_TAG] = status.tag
    g[G_STATUS_ERROR] = status.error

    functions = mpi_library.functions()
    g[F_ISEND] = functions["MPI_Isend"]
    g[F_IRECV] = functions["MPI_Irecv"]
    g[F_TESTSOME] = functions["MPI_Testsome"]
    g[F_IALLREDUCE] = functions["MPI_Iallreduce"]
    g[F_IBCAST] = functions["MPI_Ibcast"]
    g[F_IBARRIER] = functions["MPI_Ibarrier"]
    g[F_ERROR_CLASS] = functions["MPI_Error_class"]
    libc = ctypes.CDLL(None)
    g[F_CLOCK_GETTIME] = ctypes.cast(libc.clock_gettime, ctypes.c_void_p).value
    g[F_YIELD] = ctypes.cast(libc.sched_yield, ctypes.c_void_p).value
    g[F_NANOSLEEP] = ctypes.cast(libc.nanosleep, ctypes.c_void_p).value

    for i, (_, datatype, dtype) in enumerate(DATATYPES):
        t[T_DATATYPES + i, T_HANDLE] = mpi_library.handle(datatype)
        t[T_DATATYPES + i, T_SIZE] = dtype.itemsize
    for i, (_, op) in enumerate(OPERATIONS_REDUCE):
        t[T_REDUCTIONS + i, T_HANDLE] = mpi_library.handle(op)
    return state
