"""What traced kernels write: a ring of events for each warp that calls, in device memory.

A launch gets a region of so many rings as its grid has warps. A ring is a header and ``rows``
events, a power of two; its warp alone writes it, so it needs no atomic operation. The header's
first word counts the events: the last ``rows`` of them are there.
"""

from __future__ import annotations

EVENT_WORDS = 12
EVENT_BYTES = EVENT_WORDS * 8  # also of a header

# Words of an event.
EVENT_BEGIN = 0  # of the GPU's timer, ns
EVENT_END = 1
EVENT_WHAT = 2  # which call | scope << 16 | block << 32
EVENT_REQUEST = 3  # that it returns or waits for; 0: none
EVENT_TYPE = 4  # communicator | datatype << 32
EVENT_PEER = 5  # dest, source or root | tag, or partition << 32
EVENT_COUNT = 6  # elements
EVENT_ERROR = 7  # error class, | 1 << 32 where nothing was completed
EVENT_ORIGIN = 8  # of the status: source | tag << 32
EVENT_NBYTES = 9  # of the status
EVENT_WARP = 10  # of the block
SCOPE_SHIFT = 16
BLOCK_SHIFT = 32
NOT_COMPLETE = 1 << 32
SCOPES = ("block", "warp", "grid")
PART_OF_STARTALL = "start of startall"  # in place of a call: which request it has started
