"""The bytes of one-sided communication: windows of GPU memory that other ranks reach (MPI 4.1
chapter 12).

A *window* is an array in each rank's GPU memory that all ranks of a communicator map. Each rank has
a *row* for it in device memory, and a *target row* for each rank. Kernels find there where the
target's memory is mapped here, so a call needs neither the target nor a proxy: the calling threads
load, store and make atomic operations of system scope. The target rows of the first ranks are part
of the window's row: a call then reads both at once, and not one after the other.

Both kinds of rows are written by the host when no kernel of the context runs, and read through L1;
only the epoch changes, in a line of its own.
"""

from __future__ import annotations

from gmpi.contract.constants import (
    ERR_ARG,
    ERR_ASSERT,
    ERR_BUFFER,
    ERR_COUNT,
    ERR_DISP,
    ERR_OP,
    ERR_RANK,
    ERR_RMA_RANGE,
    ERR_RMA_SYNC,
    ERR_TYPE,
    ERR_WIN,
    MODE_NOPRECEDE,
    MODE_NOPUT,
    MODE_NOSTORE,
    MODE_NOSUCCEED,
)
from gmpi.contract.wire import CALL_SHIFT, WINDOW_ROW_BYTES, WINDOW_ROWS

# --- a handle: mark | generation << GENERATION_SHIFT | row ----------------------------------------
MARK = 0x6 << 28
GENERATION_SHIFT = 6
GENERATIONS = 1 << 22
assert WINDOW_ROWS == 1 << GENERATION_SHIFT

# --- a row ----------------------------------------------------------------------------------------
HANDLE = 0  # 0: nobody's
RANKS = 8  # how many | handle of the window's communicator << COMM_SHIFT
TARGETS = 16  # address of all target rows
OWN_COUNTERS = 32  # address of this rank's counters of notifications,
OWN_COUNTER_COUNT = 40  # and how many there are
EPOCH = 128  # 0: no epoch is open; else FENCED | passive ones that are << PASSIVE_SHIFT
NEAR = 256  # target rows of the ranks below NEAR_RANKS, again
NEAR_RANKS = 8
COMM_SHIFT = 32
FENCED = 1  # GMPI_Win_fence has opened one
PASSIVE_SHIFT = 32  # of GMPI_Win_lock_all
FENCE_MODES = MODE_NOSTORE | MODE_NOPUT | MODE_NOPRECEDE | MODE_NOSUCCEED

# --- a target row ---------------------------------------------------------------------------------
TARGET_BYTES = 64
BASE = 0  # where its memory is mapped here
SIZE = 8  # bytes of it
UNIT = 16  # of displacements, in bytes
MOST = 24  # the largest displacement, SIZE / UNIT | NO_ATOMICS
NO_ATOMICS = 1 << 62  # none that are atomic between the two GPUs
COUNTERS = 32  # where its counters of notifications are mapped here, int64 each,
COUNTER_COUNT = 40  # and how many there are
MOST_COUNTERS = 64
assert NEAR + NEAR_RANKS * TARGET_BYTES == WINDOW_ROW_BYTES

# --- calls: which of the user's it is, in a record that refuses one -------------------------------
CALLS = (
    "Put", "Get", "Accumulate", "Get_accumulate", "Fetch_and_op", "Compare_and_swap", "Rput",
    "Rget", "Win_fence", "Win_flush", "Win_flush_all", "Win_lock_all", "Win_unlock_all",
    "Raccumulate", "Rget_accumulate", "Win_flush_local", "Win_flush_local_all",
    "Put_notify", "Win_get_notify_value", "Win_reset_notify_value",
    "Get_notify", "Accumulate_notify", "Get_accumulate_notify",
    "Rput_notify", "Rget_notify", "Raccumulate_notify", "Rget_accumulate_notify",
)  # fmt: skip
PUT, GET, ACCUMULATE, GET_ACCUMULATE, FETCH_AND_OP, COMPARE_AND_SWAP = range(1, 7)
RPUT, RGET, FENCE, FLUSH, FLUSH_ALL, LOCK_ALL, UNLOCK_ALL = range(7, 14)
RACCUMULATE, RGET_ACCUMULATE, FLUSH_LOCAL, FLUSH_LOCAL_ALL = range(14, 18)
PUT_NOTIFY, GET_NOTIFY_VALUE, RESET_NOTIFY_VALUE = range(18, 21)
GET_NOTIFY, ACCUMULATE_NOTIFY, GET_ACCUMULATE_NOTIFY = range(21, 24)
RPUT_NOTIFY, RGET_NOTIFY, RACCUMULATE_NOTIFY, RGET_ACCUMULATE_NOTIFY = range(24, 28)
assert len(CALLS) << CALL_SHIFT < 1 << 32

# --- what is wrong with one -----------------------------------------------------------------------
# In the record's communicator field. Target, window and displacement are its peer, tag and handle;
# its count and datatype are the origin's, or those of which it is said; behind the error class:
WRONG_WINDOW = 1
WRONG_EPOCH = 2
WRONG_RANK = 3  # how many ranks there are
WRONG_RANGE = 4  # bytes of the window
WRONG_DISPLACEMENT = 5  # the same; a negative one
WRONG_COUNT = 6
WRONG_DATATYPE = 7
WRONG_LENGTH = 8  # bytes at the target, or of the result
WRONG_BUFFER = 9  # its flaws
WRONG_OP = 10  # the operation
WRONG_ALIGNMENT = 11  # bytes of an element
WRONG_GPU = 12
WRONG_ASSERTION = 13  # the assertion
WRONG_KIND = 14  # the target's datatype
WRONG_NOTIFICATION = 15  # how many counters there are; the number of one is the displacement


#: Which argument it is, for each of these.
FIELDS = (
    "argument", "win", "epoch", "target_rank", "target_disp", "target_disp", "count", "datatype",
    "count", "buffer", "op", "target_disp", "target_rank", "assertion", "target_datatype",
    "notification_idx",
)  # fmt: skip
_CLASSES = (
    0, ERR_WIN, ERR_RMA_SYNC, ERR_RANK, ERR_RMA_RANGE, ERR_DISP, ERR_COUNT, ERR_TYPE, ERR_COUNT,
    ERR_BUFFER, ERR_OP, ERR_DISP, ERR_OP, ERR_ASSERT, ERR_TYPE,
    ERR_ARG,
)  # fmt: skip


def class_of(wrong: int) -> int:
    """The error class of what is wrong; compiled, too."""
    return _CLASSES[wrong]
