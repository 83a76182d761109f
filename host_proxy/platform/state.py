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
from typing import Any

import numpy as np

from gmpi.contract.moves import ROWS
from gmpi.contract.rules import TAG_DUPLICATES
from gmpi.contract.sizes import Layout
from gmpi.contract.wire import (
    BLOCK_BITS,
    CONTROL_CONSUMED,
    LOW_32,
    NARROW_WORDS,
    PRIVATE_COMMUNICATOR,
)
from host_proxy.platform.communicator import Communicator
from host_proxy.platform.notes import Notes
from host_proxy.platform.pages import Pages
from host_proxy.platform.reductions import Reductions

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
    G_MAILBOXES,  # mailboxes, for the GPU; 0: there are none
    G_REQUEST_SLOTS,
    G_LARGE_SLOTS,
    G_FIRST_NARROW,
    G_SLOTS,
    G_EAGER,
    G_CHUNK,
    G_NOTES,  # NOTE_BYTES for each slot: see streams.py
    G_HANDLES,  # MPI_Request[capacity + 1]
    G_CAPACITY,
    G_STATUSES,  # MPI_Status[WINDOW]
    G_INDICES,  # int[WINDOW]
    G_OUTCOUNT,  # int
    G_STATUS,  # MPI_Status
    G_CLOCK,  # struct timespec
    # counters
    G_HEAD,  # records taken from the ring
    G_LATE_SINCE,  # when the one at the head was first seen without its payload, ns; 0: never
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
    G_HANDED,  # of these, those that the mpi4py engine has not looked at yet
    G_FAULTS,  # errors logged
    G_DOORBELL,  # large slots (bits) with commands that nobody has come for: as kernels see it
    G_COMMANDED,  # those with commands
    G_QUIET,  # those of which nothing was heard since G_QUIET_SINCE, ns
    G_QUIET_SINCE,
    G_HELPED,  # those whose requests nobody seems to wait for
    G_BLOCKS,  # bits of CONTROL_BLOCKS for them
    G_NARROW,  # of narrow slots with commands, see narrow.py: where there are more words
    G_NARROW_BLOCKS,  # their bits of CONTROL_BLOCKS
    G_NARROW_HELPED,  # 1: nobody has come for some order of theirs
    G_PATIENCE_NS,  # how long nobody may come for a command, and at most twice as long
    G_SLEEPS,
    G_NULLS,  # NULL records seen
    G_NULL_SUM,  # and the sum of their values
    G_TRACE,  # entries of the trace, 0: off
    G_TRACE_AT,  # its address
    G_ARRIVED,  # when what is being carried on arrived, ns; 0: nothing is, or no trace
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
    G_STATUS_COUNT,  # of bytes, below 2**31
    F_ISEND,
    F_ISSEND,
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
    G_CHANNELS,  # 1: there is a direct road, whose control messages Python looks for
    G_TICKED,  # when it last did, ns
    G_IDLE_SINCE,  # when the proxy first found nothing to do since its last work, ns; 0: it works
    G_OPENING,  # partitioned requests whose other end is not known, for which Python looks, too
    G_BUFFERED,  # 1: buffered sends are under way, for which it looks, or the host asks something
    G_PROBED,  # messages that probes have taken from MPI: receives look among them first
    F_MOVING,  # of the first collective that moves blocks; the others follow, in the table's order
) = range(109)
G_COUNT = F_MOVING + len(ROWS)

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
    S_CALL,  # which call of the user's it was
    S_SERIAL,
    S_PENDING,  # MPI requests of this slot
    S_FAILED,  # error class; the request ends once nothing of it is pending
    S_PYTHON,  # ENGINE: in the hands of the mpi4py engine; HANDED: it is to take it
    S_COMMANDS,  # commands that nobody has executed yet
    S_TOLD,  # 1: the completion is written, though commands may still be open
    S_SOURCE,
    S_SOURCE_TAG,
    S_SLOT,  # the number of this row; constant
    S_PICKED_UP,  # when its record was, ns; 0: the trace has it, or there is none
    S_ADDRESS,  # of the user's buffer, as the record says; of requests of the large class
    # progress of a chunked message, see begin_transfer()
    S_CHUNK,  # bytes of its chunks; 0: nothing follows the first message
    S_TOTAL,  # bytes of the message, as its header says
    S_CHUNKS,
    S_TRANSFER,  # its number: the tags of what follows the first message
    S_SHARED,  # sender's large slot when the receiver reads the sender's buffers, else NOT_SHARED
    S_SENT,  # our messages behind the header that are sent, and how many there are
    S_OURS,
    S_POSTED,  # receives posted for those of the other rank
    S_ARRIVED,  # how many of these are here, and how many there are
    S_THEIRS,
    S_BUFFERS,  # bit i: chunk buffer i is full (send) or free (receive)
    S_READ,  # bit i: chunk buffer i has been read and its sender not told yet (receive)
    S_FINISHED,  # chunks done with
    S_STARTED,  # 1: MPI has sent the header
    S_COUNT,
) = range(37)
S_ROW_BYTES = S_COUNT * 8

FREE = 0
OPEN = 1
COMPLETE = 2

ENGINE = 1
HANDED = 2

# --- pending -------------------------------------------------------------------------------------
(A_SLOT, A_KIND, A_INDEX, A_COUNT) = range(4)
A_ROW_BYTES = A_COUNT * 8
GONE = -1  # A_SLOT of a row whose MPI request has completed

(SEND, RECEIVE, SEND_CHUNK, RECEIVE_CHUNK, COLLECTIVE, CREDIT) = range(6)
WINDOW = 128  # MPI requests per Testsome, at most
WINDOW_LEAST = 16
FOUND_ONE = 64
FOUND_MUCH = FOUND_ONE * 64
RECEIVES_AHEAD = 2  # chunks of one message whose receives are posted at once

# --- tables ---------------------------------------------------------------------------------------
# of a datatype: handle (MPI's; of a derived one ours, 0: nobody's row), packed bytes
(D_HANDLE, D_SIZE, D_COUNT) = range(3)
# of a communicator: MPI handle for chunks, rank, number of ranks, collectives in Python's hands;
# addresses of arrays: which peer each rank is, -1 for one on another node, and how kernels send
# long messages to it (P2P: in GPU staging; | MAILED: those that are short enough, in a mailbox); 1
# where no receive may use a wildcard, and messages may take the direct road; how
# many MPI handles for messages there are, less 1: more than one (duplicate_of says which) where no
# receive may use ANY_TAG; whether a collective has failed in MPI, see collective_failed; then these
# handles
(
    C_CHUNKS, C_RANK, C_SIZE, C_COLLECTIVES, C_PEERS, C_P2P, C_DIRECT, C_LAST, C_BROKEN, C_HANDLE,
) = range(10)  # fmt: skip
C_COUNT = C_HANDLE + TAG_DUPLICATES
# of a rank of this node: address (GPU) of its GPU staging, 0: it is not mapped here; whether that
# rank has mapped ours; where our mailboxes in it are, 0: there are none; where its direct
# memory is, 0: one of us cannot map that of the other
(P_STAGING, P_MAPS, P_MAILBOXES, P_DIRECT, P_COUNT) = range(5)

# --- faults ---------------------------------------------------------------------------------------
(
    E_OP,
    E_CALL,
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
) = range(16)
NOTE_BYTES = 64
NARROW_BYTES = (BLOCK_BITS + 1 + NARROW_WORDS) * 8  # see narrow.py
FLIGHT_BYTES = 32  # an entry of the flight recorder (host_proxy/platform/flight.py)
FAULTS = 256  # row 0 keeps the first one, the others the last

# --- record ---------------------------------------------------------------------------------------
(
    R_ADDRESS,
    R_SEQ,  # the tag, where it stands in a packet's second word
    R_OP,
    R_FLAGS,
    R_COMM,
    R_CALL,  # which call of the user's it was, see operations.name_of
    R_DATATYPE,
    R_PEER,
    R_ELEMENTS,
    R_TAG,  # or the reduction
    R_HANDLE,
    R_DONE,  # address of the buffer; CHUNK: the command executed; FAULT: error class
    R_BLOCK,
    R_BYTES,  # elements times size, filled in by the checks
    R_COUNT,
) = range(15)

# --- trace (Context(trace=n)) ---------------------------------------------------------------------
(
    TR_HANDLE,
    TR_OP,
    TR_PICKED_UP,
    TR_CALLED,
    TR_ARRIVED,
    TR_COMPLETED,
    TR_CALL,
    TR_COMM,
    TR_PEER,
    TR_TAG,
    TR_BYTES,
    TR_BLOCK,
    TR_ERROR,
    TR_SOURCE,
    TR_SOURCE_TAG,
    TR_SERIAL,
    TR_COUNT,
) = range(17)


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
    reductions: Reductions
    communicator_table: np.ndarray
    peers: np.ndarray
    faults: np.ndarray
    record: np.ndarray
    fetch: Fetch  # copies GPU memory to the host while kernels run; any thread
    communicators: list[Communicator] = field(default_factory=list)
    private: Communicator | None = None  # where partitioned requests travel
    first: int = 0  # ticket of the first record
    node_rank: int = 0  # our row of peers
    opening: Callable[[], object] = lambda: None  # looks for the other ends of such requests
    # makes and frees such requests for kernels: gmpi/host/partitioned_making.py
    making: Any = None
    registered: Any = None  # arrays that peers can store to: gmpi/memory/registered.py
    buffered: Any = None  # keeps buffered sends: gmpi/host/buffered.py
    # of committed datatypes, by handle (gmpi/committed.py): Plan
    plans: dict[int, Any] = field(default_factory=dict)
    # of open collectives with counts, by slot (host_proxy/reference/counts.py): Blocks
    blocks: dict[int, Any] = field(default_factory=dict)
    notes: Notes = field(default_factory=lambda: Notes(2 * FAULTS))
    keep: list[Any] = field(default_factory=list)  # memory behind addresses in globals

    def communicator(self, comm: int) -> Communicator:
        """The one that a record has named."""
        if comm == PRIVATE_COMMUNICATOR:
            assert self.private is not None
            return self.private
        return self.communicators[comm]

    def count_probed(self) -> None:
        """Notes how many messages probes have taken from MPI; the proxy's thread."""
        known = [one for one in self.communicators if not one.is_free]
        found = sum(d.probed for one in known for d in one.all_messages)
        self.globals[G_PROBED] = found

    @property
    def address(self) -> int:
        """What compiled functions take as ``g``."""
        return int(self.globals.ctypes.data)

    @property
    def taken(self) -> int:
        """How many records have been taken from the ring."""
        return int(self.globals[G_HEAD]) - self.first

    def record_number(self, handle: int) -> int:
        """Which record, from 0, opened a request."""
        return ((handle & LOW_32) >> 1) - self.first & (LOW_32 >> 1)

    def begin_at(self, first: int) -> None:
        """Says what the ticket of the first record is. Before the proxy's thread starts."""
        self.first = first
        self.globals[G_HEAD] = first
        consumed = int(self.globals[G_CONTROL]) + CONTROL_CONSUMED
        ctypes.c_int64.from_address(consumed).value = first

    def row(self, slot: int) -> int:
        """What compiled functions take as ``row``."""
        return int(self.slots.ctypes.data) + slot * S_ROW_BYTES

    def buffer(self, nbytes: int) -> int:
        """Address of fresh host memory that lives as long as the state."""
        memory = Pages(nbytes)
        self.keep.append(memory)
        return memory.address


def fault_rows(state: State, since: int) -> list[np.ndarray]:
    """Rows of the error log from number ``since`` on, oldest first, as far as they are kept."""
    count = int(state.globals[G_FAULTS])
    last = range(max(since, 1, count - (FAULTS - 1)), count)
    rows = [state.faults[1 + (i - 1) % (FAULTS - 1)] for i in last]
    return [state.faults[0], *rows] if since == 0 < count else rows
