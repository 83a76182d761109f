"""What traced kernels write: a ring of events for each warp that calls, in device memory.

A launch gets a region of so many rings as its grid has warps, in their order. A ring is a header
and ``rows`` events, a power of two; its warp alone writes it, so it needs no atomic operation. An
event says its number in the ring. The last ``rows`` of them are there.

Events are stamped with the clock of their multiprocessor, in cycles: a few cycles to read, but each
multiprocessor has another one, and its rate changes. So now and then a warp reads the GPU's timer
beside it. Such *pairs* are in events, and the last ones in the ring's header as well.
"""

from __future__ import annotations

EVENT_WORDS = 12
EVENT_BYTES = EVENT_WORDS * 8  # also of a header

# Words of an event, stored two at a time.
EVENT_BEGIN = 0  # cycles
EVENT_BEGIN_NS = 1  # the GPU's timer at the same moment, ns; 0: it was not read
EVENT_WHAT = 2  # which call | scope << 16 | number in the ring, modulo 2**32, << 32
EVENT_REQUEST = 3  # that it returns or waits for; 0: none
EVENT_TYPE = 4  # communicator | datatype << 32
EVENT_PEER = 5  # dest, source or root | tag, or partition << 32
EVENT_COUNT = 6  # elements
EVENT_END_NS = 7  # as EVENT_BEGIN_NS
EVENT_END = 8  # cycles
EVENT_ERROR = 9  # error class, | 1 << 32 where nothing was completed
EVENT_ORIGIN = 10  # of the status: source | tag << 32
EVENT_NBYTES = 11  # of the status
SCOPE_SHIFT = 16
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
NOTE_LAUNCH = 0  # of which launch, and
NOTE_DUE = 1  # which block the notes are << 32 | when the next pair is due, cycles modulo 2**32
NOTE_RING = 2  # its address
NOTE_PROGRESS = 3  # events so far, modulo 2**32 | pairs so far << 32
NOTE_WORDS = 4
