"""The rows of persistent requests, in device memory: what a Start needs to know. Kernels make them,
without the proxy; the host looks at them when a context closes.
"""

from __future__ import annotations

from gmpi.contract.wire import PERSISTENT_ROW_BYTES

OWNER = 0  # the handle; 0: nobody's; TAKEN: somebody is filling it in
STATE = 8  # ACTIVE, or 0
INNER = 16  # the request of the round that has been started
WORD0 = 24  # of the record, with its flags
PEER_TAG = 32
COUNT = 40
NBYTES = 48
SEND = 56  # address of the buffer; of one that is scattered, of what is said of it below
RECV = 64
IS_SCATTERED = 72
FIRST_BUFFER = 80  # as ``primitives.describe`` writes it
BUFFER_WORDS = 20  # of up to 8 dimensions
SECOND_BUFFER = FIRST_BUFFER + 8 * BUFFER_WORDS
assert SECOND_BUFFER + 8 * BUFFER_WORDS <= PERSISTENT_ROW_BYTES

TAKEN = 1
ACTIVE = 1

# --- handle ---------------------------------------------------------------------------------------
#   row (10) | generation (22) << 10 | context (6) << HANDLE_CONTEXT_SHIFT | 3 << 61
ROW_BITS = 10
GENERATIONS = 1 << 22
