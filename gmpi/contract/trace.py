"""What traced kernels write: a ring of events for each warp that calls, in device memory.

A launch gets a region of so many rings as its grid has warps, in their order. A ring is a header
and ``rows`` events, a power of two; its warp alone writes it, so it needs no atomic operation. An
event says its number in the ring. The last ``rows`` of them are there.

Events are stamped with the clock of their multiprocessor, in cycles: a few cycles to read, but each
multiprocessor has another one, and its rate changes. So now and then a warp reads the GPU's timer
beside it. Such *pairs* are in events, and the last ones in the ring's header as well.
"""

from __future__ import annotations

EVENT_WORDS = 14
EVENT_BYTES = EVENT_WORDS * 8  # also of a header

# Words of an event, stored two at a time.
EVENT_BEGIN = 0  # cycles
EVENT_WHAT = 1  # which call | scope << 16 | NO_STATUS | number in the ring, modulo 2**32, << 32
EVENT_REQUEST = 2  # that it returns or waits for; 0: none
EVENT_TYPE = 3  # communicator | datatype << 32
EVENT_PEER = 4  # dest, source or root | tag, or partition << 32
EVENT_COUNT = 5  # elements
EVENT_END = 6  # cycles
EVENT_ERROR = 7  # error class, | 1 << 32 where nothing was completed
EVENT_ORIGIN = 8  # of the status: source | tag << 32
EVENT_NBYTES = 9  # of the status
EVENT_PAIRS = 10  # (cycles, ns) of its begin and of its end, of an earlier event there, or 0
SCOPE_SHIFT = 16
NO_STATUS = 1 << 24  # the words of the status were not stored
NUMBER_SHIFT = 32
NOT_COMPLETE = 1 << 32
SCOPES = ("block", "warp", "grid")
PART_OF_STARTALL = "start of startall"  # in place of a call: which request it has started

HEADER_PAIRS = 4  # the last pairs, (cycles, ns): the first words of a header

# How many cycles after a pair the next one is taken, by the next call: twice as many each time.
FIRST_PERIOD_SHIFT = 12  # 2 us
PERIOD_SHIFT = 17  # 70 us at most
LONG_WAIT = 1 << 15  # a wait of so many cycles has a pair at its end

# What a warp notes in shared memory, in words.
NOTE_KEY = 0  # of which launch ^ of which block
NOTE_PROGRESS = 1  # when the next pair is due | events so far << 32, both modulo 2**32
NOTE_FIRST = 2  # where the first event of its ring is
NOTE_PAIRS = 3  # how many so far
NOTE_WORDS = 4
