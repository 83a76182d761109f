"""The bytes that cross between a running kernel and its proxy: this file is the whole contract.

Everything lives in one piece of pinned host memory that the GPU maps (*mapped memory*) and one
piece of GPU memory (*device memory*, never touched by the host while a kernel runs).

    mapped memory    control | communicators | ring | completions | small staging | large staging
    device memory    counters | busy bits | requests | claims

**Units.** All traffic travels in units of 16 bytes: an 8-byte low word, a 4-byte high word and a
4-byte tag. A unit is written by one 16-byte store and says itself whether it is valid, so neither
side needs a fence, a flag or a clearing pass, and a unit of zeros is an ordinary value. Tags are
odd, freshly zeroed memory is therefore valid for nobody.

**Record** (kernel to proxy): up to 16 units in the ring slot ``ticket % ring_slots``, tagged with
the ticket. Four header units (one cache line), then up to 144 bytes of payload, 12 a unit. Only
the units that a call needs are written and read.

**Completion** (proxy to kernel): up to 16 units in the slot of the request, tagged with the
ticket of the record that opened the request. Unit 0 says what happened; a receive adds unit 1
(source, tag) and then the payload. Requests of the large class use units 2..6 for *orders*.

**Order**: "move these bytes between the user's buffer and this staging buffer". Waiting threads
carry orders out and answer with a CHUNK record.

Versions are compared when a context opens: ranks must agree on ``VERSION`` and on the sizes.
"""

from __future__ import annotations

from typing import NamedTuple

VERSION = 1

# --- units -----------------------------------------------------------------------------------
UNIT_BYTES = 16
UNIT_PAYLOAD = 12  # bytes of user data in one unit: the low word and the high word
SLOT_UNITS = 16
SLOT_BYTES = SLOT_UNITS * UNIT_BYTES  # 256: one attribute record (paper III.B), one completion

# --- record: header units -----------------------------------------------------------------------
#   unit 0   low  = opcode | flags << 8 | communicator << 16 | datatype << 32   high = peer or root
#   unit 1   low  = count (elements, signed)                                    high = message tag
#   unit 2   low  = request handle (0: nobody waits)                            high = reduction
#   unit 3   low  = CHUNK: the order carried out; FAULT: error class            high = calling block
HEADER_UNITS = 4
INLINE_BYTES = (SLOT_UNITS - HEADER_UNITS) * UNIT_PAYLOAD  # 144

# The first element of a record names the operation (paper III.B).
OP_NULL = 1  # consumed, nothing happens: a claimed ticket that was not needed
OP_PING = 2  # completes at once; count = host clock in ns. Measures the path
OP_ISEND = 3
OP_IRECV = 4
OP_ALLREDUCE = 5
OP_BCAST = 6
OP_BARRIER = 7
OP_SYNCHRONIZE = 8  # completes once every request opened before it has completed
OP_CHUNK = 9  # an order has been carried out
OP_FAULT = 10  # the kernel itself refused a call: flags = its opcode, count = value, see unit 3
OP_WAIT = 11  # only named in faults

# What the kernel saw of the buffer. The proxy refuses a record with a flaw, naming it.
FLAG_INLINE = 1  # the payload is in this record
FLAG_NULL_BUFFER = 2
FLAG_SHORT_BUFFER = 4  # count elements do not fit the array that was passed
FLAG_STRIDED_BUFFER = 8  # the array is not contiguous
FLAG_PRIVATE_BUFFER = 16  # memory that not every thread that moves the data can address
FLAWS = FLAG_NULL_BUFFER | FLAG_SHORT_BUFFER | FLAG_STRIDED_BUFFER | FLAG_PRIVATE_BUFFER

# --- completion units ---------------------------------------------------------------------------
#   unit 0    low = payload bytes | error class << 48 | kind << 56    high = count (elements)
#   unit 1    low = source (32 bits) | message tag << 32              high = 0
#   unit 2..  payload (small class, posted with at most INLINE_BYTES), else orders:
#             low = position in the message, bytes | direction << 63  high = length, bytes
STATUS_UNITS = 2
KIND_DONE = 1
BYTES_MASK = (1 << 48) - 1
ERROR_SHIFT = 48
KIND_SHIFT = 56

# --- large class --------------------------------------------------------------------------------
# A message above ``eager_bytes`` uses a large slot: one *fragment* of eager_bytes (in the small
# staging of the slot) and LARGE_BUFFERS chunk buffers that pipeline packing, MPI and unpacking.
LARGE_BUFFERS = 4
FRAGMENT = LARGE_BUFFERS  # its index among the orders of a slot
ORDER_UNITS = LARGE_BUFFERS + 1
LARGE_UNITS = STATUS_UNITS + ORDER_UNITS
PACK = 0  # user buffer to staging
UNPACK = 1  # staging to user buffer
DIRECTION_SHIFT = 63
POSITION_MASK = (1 << 38) - 1  # 256 GiB: the longest message
POSITION_STEP = 128  # positions are multiples of this, so that an order number fits 32 bits
CHUNK_POSITION_SHIFT = 8  # in a CHUNK record: position << 8 | direction << 7 | buffer
CHUNK_DIRECTION_SHIFT = 7

# --- messages between proxies -------------------------------------------------------------------
# Every point-to-point message starts with this header, so that the receiver knows the true length
# (truncation is ours to report, exactly) and whether chunks follow on the chunk communicator.
#   word 0   payload bytes of the whole message
#   word 1   chunk bytes | transfer number << 32   (0: everything is in this message)
MESSAGE_HEADER = 16
STAGING_LEAD = 64  # payload starts here in a small staging buffer; the header sits just before

# --- control words (byte offsets in the control block) ------------------------------------------
CONTROL_ATTENTION = 0  # 8 bytes, bit i: large slot i has an order that nobody has carried out
CONTROL_ABORT = 8  # 8 bytes, non-zero: error class with which every wait ends
CONTROL_CONSUMED = 64  # 8 bytes, records taken from the ring; its own cache line
CONTROL_BYTES = 4096

COMMUNICATORS = 256
COMMUNICATOR_BYTES = 8  # rank (int32), size (int32)

# --- device memory (byte offsets) ----------------------------------------------------------------
# Each counter has its own 128-byte line: they are hot and used by different warps.
DEVICE_TICKET = 0
DEVICE_CONSUMED = 128  # last known CONTROL_CONSUMED
DEVICE_REFRESH = 256  # 1 while one warp reads CONTROL_CONSUMED for all
DEVICE_ABORT = 384  # copy of CONTROL_ABORT for warps that wait for room
DEVICE_COUNTERS = 512
BUSY_STRIDE = 128  # one word of busy bits per line
BUSY_BITS = 32  # requests per word
REQUEST_BYTES = 64
REQUEST_OWNER = 0  # handle of the open request, 0 when free
REQUEST_SEND = 8  # address that is packed from
REQUEST_RECV = 16  # address that is unpacked to
REQUEST_BACK = 24  # bytes that may come back
CLAIM_BYTES = 8 * ORDER_UNITS

# --- request handle ------------------------------------------------------------------------------
#   tag (32) | slot (16) << 32 | units to poll (4) << 48 | class (1) << 52 | context (6) << 53
HANDLE_SLOT_SHIFT = 32
HANDLE_SLOT_MASK = 0xFFFF
HANDLE_UNITS_SHIFT = 48
HANDLE_UNITS_MASK = 0xF
HANDLE_LARGE_SHIFT = 52
HANDLE_CONTEXT_SHIFT = 53
HANDLE_CONTEXT_MASK = 0x3F
HANDLE_ERROR_SHIFT = 60  # set: no request was opened, the low byte is the error class
TAG_MASK = 0xFFFFFFFF
REQUEST_NULL = 0


# --- what a kernel is told: five integers, passed by value -----------------------------------------
#   mapped, device     addresses of the two regions
#   sizes              log2 ring_slots (5) | request_slots / 32 (12) << 5 | large_slots (7) << 17
#                      | eager_bytes / 128 (14) << 24 | chunk_bytes / 128 (22) << 38
#   identity           context (6) | rank (28) << 6 | size (28) << 34   in COMM_WORLD
#   resource_ns        how long a call waits for a free request slot
SIZES_REQUEST_SHIFT = 5
SIZES_LARGE_SHIFT = 17
SIZES_EAGER_SHIFT = 24
SIZES_CHUNK_SHIFT = 38
IDENTITY_RANK_SHIFT = 6
IDENTITY_SIZE_SHIFT = 34


def align(n: int, to: int) -> int:
    return (n + to - 1) // to * to


# Where the regions begin. Plain functions of the sizes, compiled for the device as well.
MAPPED_COMMUNICATORS = CONTROL_BYTES
MAPPED_RING = CONTROL_BYTES + COMMUNICATORS * COMMUNICATOR_BYTES + 2048  # 8192
DEVICE_BUSY = DEVICE_COUNTERS


def mapped_completions(ring_slots: int) -> int:
    return MAPPED_RING + ring_slots * SLOT_BYTES


def mapped_small(ring_slots: int, slots: int) -> int:
    return MAPPED_RING + (ring_slots + slots) * SLOT_BYTES


def mapped_large(ring_slots: int, slots: int, eager_bytes: int) -> int:
    small = MAPPED_RING + (ring_slots + slots) * SLOT_BYTES
    return (small + slots * (STAGING_LEAD + eager_bytes) + 4095) // 4096 * 4096


def device_requests(slots: int) -> int:
    return DEVICE_BUSY + (slots + BUSY_BITS - 1) // BUSY_BITS * BUSY_STRIDE


def device_claims(slots: int) -> int:
    words = (slots + BUSY_BITS - 1) // BUSY_BITS
    return DEVICE_BUSY + words * BUSY_STRIDE + slots * REQUEST_BYTES


class Layout(NamedTuple):
    """The sizes a context is opened with. Slots from ``request_slots`` on are the large ones."""

    ring_slots: int
    request_slots: int
    large_slots: int
    eager_bytes: int
    chunk_bytes: int

    @property
    def slots(self) -> int:
        return self.request_slots + self.large_slots

    @property
    def small_stride(self) -> int:
        return STAGING_LEAD + self.eager_bytes

    @property
    def ring(self) -> int:
        return MAPPED_RING

    @property
    def completions(self) -> int:
        return mapped_completions(self.ring_slots)

    @property
    def small(self) -> int:
        return mapped_small(self.ring_slots, self.slots)

    @property
    def large(self) -> int:
        return mapped_large(self.ring_slots, self.slots, self.eager_bytes)

    @property
    def mapped_bytes(self) -> int:
        return self.large + self.large_slots * LARGE_BUFFERS * self.chunk_bytes

    @property
    def device_bytes(self) -> int:
        return device_claims(self.slots) + self.large_slots * CLAIM_BYTES

    @property
    def word(self) -> int:
        """The ``sizes`` word of a device context."""
        return (
            self.ring_slots.bit_length() - 1
            | self.request_slots // BUSY_BITS << SIZES_REQUEST_SHIFT
            | self.large_slots << SIZES_LARGE_SHIFT
            | self.eager_bytes // POSITION_STEP << SIZES_EAGER_SHIFT
            | self.chunk_bytes // POSITION_STEP << SIZES_CHUNK_SHIFT
        )


def chunk_bytes_of(nbytes: int, eager_bytes: int, chunk_bytes: int) -> int:
    """Chunk size for a message of ``nbytes`` above ``eager_bytes``.

    Compiled for the device and for the proxy, which must agree. A message is cut into at least
    ``LARGE_BUFFERS`` chunks where that leaves chunks of 32 KiB or more: enough to overlap packing
    with MPI, few enough that MPI's cost per message does not show.
    """
    wanted = (nbytes - eager_bytes + LARGE_BUFFERS - 1) // LARGE_BUFFERS
    wanted = (wanted + 127) // 128 * 128
    return min(chunk_bytes, max(wanted, 32768))
