"""The proxy's own state: int64 arrays that compiled and Python code share.

    globals       [G_COUNT]             one number each: addresses, sizes, counters, MPI constants
    slots         [slots, S_COUNT]      a row a request slot: the request that is open there
    pending       [capacity, A_COUNT]   a row a pending MPI request, beside the array of MPI handles
    datatypes, derived, reductions, communicators, peers     tables
    faults        [FAULTS, E_COUNT]     the last errors, for the host to word and raise
    record        [R_COUNT]             the record that is being served

Compiled code gets one argument, the address of ``globals``, and finds the rest from there: a Numba
array is seven words, and a dozen functions deep they would be most of the work of a record. The
host can read the arrays at any time: reports of pending requests come straight from ``slots``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from mpi4py import MPI

from gmpi.constants import DATATYPES, OPERATIONS_REDUCE
from gmpi.wire import (
    COMMUNICATORS,
    DERIVED_ROWS,
    LARGE_BUFFERS,
    MESSAGE_HEADER,
    TAG_DUPLICATES,
    Layout,
)
from host_proxy import mpi_library
from host_proxy.communicator import Communicator

# --- globals -----------------------------------------------------------------------------------
(
    G_STOP,  # set by the host: leave the loop
    # where the other arrays are
    G_SLOT_TABLE,
    G_PENDING_TABLE,
    G_DATATYPES,
    G_DERIVED,
    G_REDUCTIONS,
    G_COMMUNICATORS,
    G_PEERS,
    G_FAULT_TABLE,
    G_RECORD,
    # where shared memory is (addresses) and how large (bytes, slots)
    G_CONTEXT,
    G_CONTROL,
    G_RING,
    G_RING_SLOTS,
    G_COMPLETIONS,
    G_SMALL,
    G_SMALL_STRIDE,
    G_LARGE,
    G_LARGE_DEVICE,  # the same for the GPU
    G_STAGING,  # GPU staging, for the GPU; 0: there is none
    G_REQUEST_SLOTS,
    G_SLOTS,
    G_EAGER,
    G_CHUNK,
    G_DRAIN,  # a buffer for chunks that nobody wants
    G_HANDLES,  # MPI_Request[capacity]
    G_STATUSES,  # MPI_Status[WINDOW]
    G_INDICES,  # int[WINDOW]
    G_OUTCOUNT,  # int
    G_STATUS,  # MPI_Status
    G_CLOCK,  # struct timespec
    # counters
    G_HEAD,  # records taken from the ring
    G_SERIAL,  # requests opened
    G_CLOSED,  # requests completed
    G_ACTIVE,  # pending MPI requests
    G_KEPT,  # how far a sweep of them is: places in their array, see pending.py
    G_WINDOW,
    G_SWEEP,
    G_END,
    G_FOUND,  # FOUND_ONE times what a Testsome completes on average: see progress.py
    G_TRANSFERS,  # numbers of chunked messages sent
    G_SYNCS,  # SYNCHRONIZE requests that wait
    G_SYNC_SEEN,  # G_CLOSED when they were last looked at
    G_PYTHON,  # requests in Python's hands
    G_FETCHES,  # of these, those whose bytes Python is to fetch from GPU memory
    G_FAULTS,  # errors logged
    G_ATTENTION,
    G_SLEEPS,
    G_NULLS,  # NULL records seen
    G_NULL_SUM,  # and the sum of their values
    G_TRACE,  # entries of the trace, 0: off
    G_TRACE_AT,  # its address
    G_TURNS,  # of the loop: the watchdog sees whether it turns
    G_INSIDE,  # which function (F_*) of MPI was called last
    G_FLIGHT,  # events of the flight recorder so far
    G_FLIGHT_AT,  # where its ring is
    G_FLIGHT_LAST,  # entries of it, minus 1
    G_FLIGHT_OFF,
    G_NOW,  # the loop's last look at the clock, ns
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
    F_TEST,
    F_TESTSOME,
    F_IALLREDUCE,
    F_IBCAST,
    F_IBARRIER,
    F_ERROR_CLASS,
    F_REQUEST_FREE,
    F_CLOCK_GETTIME,
    F_YIELD,
    F_NANOSLEEP,
    G_COUNT,
) = range(86)

# --- slots ---------------------------------------------------------------------------------------
# What every request has comes first: two cache lines.
(
    S_STATE,
    S_HANDLE,
    S_OP,
    S_COMM,
    S_PEER,
    S_TAG,
    S_DATATYPE,
    S_ELEMENTS,
    S_BYTES,  # what the call said: room of a receive, length of a send
    S_BLOCK,
    S_SERIAL,
    S_PENDING,  # MPI requests of this slot
    S_FAILED,  # error class; the request ends once nothing of it is pending
    S_PYTHON,  # ENGINE: in the hands of the mpi4py engine; FETCH: it waits for Python to fetch
    S_ORDERS,  # orders that nobody has carried out yet
    S_TOLD,  # 1: the completion is written, though orders may still be open
    S_SOURCE,
    S_SOURCE_TAG,
    S_SLOT,  # the number of this row; constant
    # progress of a chunked message, see reset_transfer()
    S_TOTAL,  # bytes of the message, as its header says
    S_CHUNK,  # bytes of its chunks
    S_CHUNKS,
    S_TRANSFER,  # its number: the tags of what follows the first message
    S_SHARED,  # sender's large slot when the receiver reads the sender's buffers, else NOT_SHARED
    S_NEXT,  # next chunk to hand to MPI; chunks go strictly in order
    S_BUFFERS,  # bit i: chunk buffer i is full (send) or free (receive)
    S_ARRIVED,  # chunks that are here (receive)
    S_READ,  # bit i: chunk buffer i has been read and its sender not told yet (receive)
    S_RETURNED,  # chunk buffers given back to the sender (receive)
    S_FINISHED,  # chunks done with
    S_STARTED,  # 1: MPI has sent the header
    S_COUNT,
) = range(32)
S_ROW_BYTES = S_COUNT * 8

FREE = 0
OPEN = 1
COMPLETE = 2

ENGINE = 1
FETCH = 2

# --- pending -------------------------------------------------------------------------------------
(A_SLOT, A_KIND, A_INDEX, A_COUNT) = range(4)
A_ROW_BYTES = A_COUNT * 8
GONE = -1  # A_SLOT of a row whose MPI request has completed

(SEND, RECEIVE, SEND_CHUNK, RECEIVE_CHUNK, COLLECTIVE, DRAIN) = range(6)
WINDOW = 128  # MPI requests per Testsome, at most
WINDOW_LEAST = 16
FOUND_ONE = 64
FOUND_MUCH = FOUND_ONE * 64
RECEIVES_AHEAD = 2  # chunks of one message whose receives are posted at once

# --- tables ---------------------------------------------------------------------------------------
# of a datatype: handle (MPI's; of a derived one ours, 0: nobody's row), packed bytes
(D_HANDLE, D_SIZE, D_COUNT) = range(3)
# of a communicator: MPI handle for chunks, rank, number of ranks, collectives in Python's hands;
# addresses of arrays: which peer each rank is, -1 for one on another node, and whether kernels pack
# what they send to it into GPU staging; how many MPI handles for messages there are, less 1: more
# than one (duplicate_of says which) where no receive may use ANY_TAG; then these handles
(C_CHUNKS, C_RANK, C_SIZE, C_COLLECTIVES, C_PEERS, C_NEAR, C_LAST, C_HANDLE) = range(8)
C_COUNT = C_HANDLE + TAG_DUPLICATES
# of a rank of this node whose large staging is mapped here: address for the GPU and the CPU,
# whether that rank has mapped ours; and the same of GPU staging: address for the GPU
(P_DEVICE, P_HOST, P_READS, P_STAGING, P_MAPS, P_COUNT) = range(6)

# --- faults ---------------------------------------------------------------------------------------
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
FLIGHT_BYTES = 32  # an entry of the flight recorder (host_proxy/flight.py)
FAULTS = 256  # row 0 keeps the first one, the others the last

# --- record ---------------------------------------------------------------------------------------
(
    R_ADDRESS,
    R_MARK,  # the tag, where it stands in a unit's second word
    R_OP,
    R_FLAGS,
    R_COMM,
    R_DATATYPE,
    R_PEER,
    R_ELEMENTS,
    R_TAG,  # or the reduction
    R_HANDLE,
    R_DONE,  # address of the buffer; CHUNK: the order carried out; FAULT: error class
    R_BLOCK,
    R_BYTES,  # elements times size, filled in by the checks
    R_COUNT,
) = range(14)

# --- trace (Context(trace=n)) ---------------------------------------------------------------------
(TR_HANDLE, TR_OP, TR_PICKED_UP, TR_CALLED, TR_ARRIVED, TR_COMPLETED, TR_COUNT) = range(7)


#: (address, bytes) -> a copy in host memory
Fetch = Callable[[int, int], np.ndarray]


def no_gpu(address: int, nbytes: int) -> np.ndarray:
    """A Fetch for states without GPU staging."""
    raise RuntimeError(f"no GPU memory to fetch {nbytes} bytes at {address:#x} from")


@dataclass
class State:
    """The arrays, the memory that MPI writes to, and the communicators, of one context."""

    layout: Layout
    globals: np.ndarray
    slots: np.ndarray
    pending: np.ndarray
    datatypes: np.ndarray
    derived: np.ndarray
    reductions: np.ndarray
    communicator_table: np.ndarray
    peers: np.ndarray
    faults: np.ndarray
    record: np.ndarray
    fetch: Fetch  # copies GPU memory to the host while kernels run; any thread
    communicators: list[Communicator] = field(default_factory=list)
    keep: list[np.ndarray] = field(default_factory=list)  # memory behind addresses in globals

    @property
    def address(self) -> int:
        """What compiled functions take as ``g``."""
        return int(self.globals.ctypes.data)

    def row(self, slot: int) -> int:
        """What compiled functions take as ``row``."""
        return int(self.slots.ctypes.data) + slot * S_ROW_BYTES

    def buffer(self, nbytes: int) -> int:
        """Address of fresh host memory that lives as long as the state."""
        memory = np.zeros(nbytes + 64, np.uint8)
        self.keep.append(memory)
        return (int(memory.ctypes.data) + 63) // 64 * 64


def make_state(
    layout: Layout,
    mapped: int,
    large: tuple[int, int, int],
    peers: np.ndarray,
    context: int,
    trace: int,
    flight: int,
    idle: tuple[int, int, int],
    crowded: bool,
    fetch: Fetch,
) -> State:
    """Arrays for a context.

    Args:
        mapped: address of mapped memory.
        large: addresses of large staging, for the CPU and for the GPU, and of GPU staging.
        peers: int64[ranks of this node, P_COUNT].
        trace: how many requests to keep time stamps of.
        flight: how many events the flight recorder keeps, a power of two; 0: it is not read.
        idle: (spin, yield, sleep) in ns: how long to spin, then to yield, then each nap.
        crowded: there are fewer cores than threads that spin.
        fetch: copies GPU memory, of this process or of one that shares it, to the host.
    """
    # What is pending when a sweep begins, and what is added before it ends.
    capacity = 2 * (layout.slots + 2 * layout.large_slots * LARGE_BUFFERS)
    state = State(
        layout,
        globals=np.zeros(G_COUNT, np.int64),
        slots=np.zeros((layout.slots, S_COUNT), np.int64),
        pending=np.zeros((capacity, A_COUNT), np.int64),
        datatypes=np.zeros((len(DATATYPES), D_COUNT), np.int64),
        derived=np.zeros((DERIVED_ROWS, D_COUNT), np.int64),
        reductions=np.zeros(len(OPERATIONS_REDUCE), np.int64),
        communicator_table=np.zeros((COMMUNICATORS, C_COUNT), np.int64),
        peers=peers,
        faults=np.zeros((FAULTS, E_COUNT), np.int64),
        record=np.zeros(R_COUNT, np.int64),
        fetch=fetch,
    )
    g = state.globals
    g[G_SLOT_TABLE] = state.slots.ctypes.data
    g[G_PENDING_TABLE] = state.pending.ctypes.data
    g[G_DATATYPES] = state.datatypes.ctypes.data
    g[G_DERIVED] = state.derived.ctypes.data
    g[G_REDUCTIONS] = state.reductions.ctypes.data
    g[G_COMMUNICATORS] = state.communicator_table.ctypes.data
    g[G_PEERS] = state.peers.ctypes.data
    g[G_FAULT_TABLE] = state.faults.ctypes.data
    g[G_RECORD] = state.record.ctypes.data
    state.slots[:, S_SLOT] = np.arange(layout.slots)

    g[G_CONTEXT] = context
    g[G_CONTROL] = mapped
    g[G_RING] = mapped + layout.ring
    g[G_RING_SLOTS] = layout.ring_slots
    g[G_COMPLETIONS] = mapped + layout.completions
    g[G_SMALL] = mapped + layout.small
    g[G_SMALL_STRIDE] = layout.small_stride
    g[G_LARGE], g[G_LARGE_DEVICE], g[G_STAGING] = large
    g[G_REQUEST_SLOTS] = layout.request_slots
    g[G_SLOTS] = layout.slots
    g[G_EAGER] = layout.eager_bytes
    g[G_CHUNK] = layout.chunk_bytes
    g[G_DRAIN] = state.buffer(max(layout.chunk_bytes, layout.eager_bytes) + MESSAGE_HEADER)
    g[G_HANDLES] = state.buffer(capacity * mpi_library.HANDLE_BYTES)
    g[G_INDICES] = state.buffer(WINDOW * 4)
    g[G_OUTCOUNT] = state.buffer(8)
    g[G_CLOCK] = state.buffer(16)
    g[G_SPIN_NS], g[G_YIELD_NS], g[G_SLEEP_NS] = idle
    g[G_CROWDED] = crowded
    g[G_FLIGHT_AT] = state.buffer(max(flight, 1) * FLIGHT_BYTES)
    g[G_FLIGHT_LAST] = max(flight, 1) - 1
    g[G_FLIGHT_OFF] = flight == 0
    if trace:
        g[G_TRACE] = trace
        g[G_TRACE_AT] = state.buffer(trace * TR_COUNT * 8)
    _describe_mpi(state)
    return state


def fault_rows(state: State, since: int) -> list[np.ndarray]:
    """Rows of the error log from number ``since`` on, oldest first, as far as they are kept."""
    count = int(state.globals[G_FAULTS])
    last = range(max(since, 1, count - (FAULTS - 1)), count)
    rows = [state.faults[1 + (i - 1) % (FAULTS - 1)] for i in last]
    return [state.faults[0], *rows] if since == 0 < count else rows


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
    g[G_TAG_UB] = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)
    g[G_BYTE] = mpi_library.handle(MPI.BYTE)
    g[G_IN_PLACE] = int(MPI.IN_PLACE)
    g[G_UNDEFINED] = MPI.UNDEFINED
    g[G_ERR_IN_STATUS] = MPI.ERR_IN_STATUS
    g[G_HANDLE_BYTES] = mpi_library.HANDLE_BYTES

    functions = mpi_library.functions()
    g[F_ISEND] = functions["MPI_Isend"]
    g[F_IRECV] = functions["MPI_Irecv"]
    g[F_TEST] = functions["MPI_Test"]
    g[F_TESTSOME] = functions["MPI_Testsome"]
    g[F_IALLREDUCE] = functions["MPI_Iallreduce"]
    g[F_IBCAST] = functions["MPI_Ibcast"]
    g[F_IBARRIER] = functions["MPI_Ibarrier"]
    g[F_ERROR_CLASS] = functions["MPI_Error_class"]
    g[F_REQUEST_FREE] = functions["MPI_Request_free"]
    libc = ctypes.CDLL(None)
    g[F_CLOCK_GETTIME] = ctypes.cast(libc.clock_gettime, ctypes.c_void_p).value
    g[F_YIELD] = ctypes.cast(libc.sched_yield, ctypes.c_void_p).value
    g[F_NANOSLEEP] = ctypes.cast(libc.nanosleep, ctypes.c_void_p).value

    for i, (_, datatype, dtype) in enumerate(DATATYPES):
        state.datatypes[i] = mpi_library.handle(datatype), dtype.itemsize
    for i, (_, op) in enumerate(OPERATIONS_REDUCE):
        state.reductions[i] = mpi_library.handle(op)
