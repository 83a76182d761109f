"""The context as a kernel sees it, and the status that calls return.

Four integers passed by value: kernel arguments sit in the constant bank, so no load from memory
precedes the first store of a record. Four, because the arguments of a linked function travel in
registers up to six of these, and through the stack beyond.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import NamedTuple

from device_lib.platform.divide import divide
from device_lib.platform.primitives import device, load_8, load_gpu, store_8
from gmpi.contract import sizes, wire
from gmpi.contract.counts import BLOCK_ENTRY, most_blocks
from gmpi.contract.layouts import DERIVED_ROWS, LAYOUT_BLOCKS, LAYOUTS_BYTES, TYPE_BYTES
from gmpi.contract.rules import fits_mailbox

_fits_mailbox = device(fits_mailbox)
_most_blocks = device(most_blocks)


class DeviceContext(NamedTuple):
    """``Context.device``: the first argument of every ``GMPI_*`` call (see
    ``gmpi/contract/wire.py``)."""

    mapped: int
    device: int
    shape: int
    identity: int


class TracedContext(NamedTuple):
    """The same of a context with ``trace_file``: kernels that take it are compiled apart, and store
    what they call, and when (``device_lib/api/traced.py``).

    Attributes:
        trace: where the rings of the launch are.
        rows: of a ring, a power of two; 0: this launch is not traced.
        launch: which launch it is, a number that no other one has.
    """

    mapped: int
    device: int
    shape: int
    identity: int
    trace: int
    rows: int
    launch: int


#: What kernels get for a context.
CONTEXTS = (DeviceContext, TracedContext)
AnyContext = DeviceContext | TracedContext


class Status(NamedTuple):
    """What ``GMPI_Wait`` returns (MPI 4.1 section 3.2.5), the same in every thread of the scope.

    Attributes:
        error: error class, ``gmpi.SUCCESS`` when all is well.
        source: rank of the sender in the communicator of the receive.
        tag: tag of the message.
        count: received elements of the datatype of the receive; ``gmpi.UNDEFINED`` when the
            message is no whole number of elements.
        nbytes: received bytes.
    """

    error: int
    source: int
    tag: int
    count: int  # type: ignore[assignment]  # MPI's word; hides tuple.count
    nbytes: int


@device
def sign32(value):
    """The low 32 bits as a signed number."""
    return ((value & wire.LOW_32) ^ 0x80000000) - 0x80000000


@device
def status_of(outcome, count, origin):
    """What a wait returns, of the words of a completion."""
    return Status(
        outcome >> wire.ERROR_SHIFT & 0xFF,
        sign32(origin),
        sign32(origin >> 32),
        sign32(count),
        outcome & wire.BYTES_MASK,
    )


@device
def store_status(at, status):
    """Stores it as an element of an array of statuses."""
    store_8(at, status.error)
    store_8(at + 8, status.source)
    store_8(at + 16, status.tag)
    store_8(at + 24, status.count)
    store_8(at + 32, status.nbytes)


@device
def context_id(ctx):
    return ctx.shape >> sizes.SHAPE_CONTEXT_SHIFT & wire.HANDLE_CONTEXT_MASK


@device
def world_rank(ctx):
    return ctx.identity & 0xFFFFFFFF


@device
def world_size(ctx):
    return ctx.identity >> sizes.IDENTITY_SIZE_SHIFT


@device
def ring_slots(ctx):
    return 1 << (ctx.shape & 31)


@device
def request_slots(ctx):
    return 1 << (ctx.shape >> sizes.SHAPE_REQUEST_SHIFT & 31)


@device
def request_words(ctx):
    """Words of busy bits of the small class: a power of two."""
    return request_slots(ctx) >> 5


@device
def large_slots(ctx):
    return ctx.shape >> sizes.SHAPE_LARGE_SHIFT & 0x7F


@device
def large_words(ctx):
    return (large_slots(ctx) + 31) >> 5


@device
def first_narrow(ctx):
    """The first slot of the large class that has no chunk buffers."""
    return request_slots(ctx) + (large_words(ctx) << 5)


@device
def narrow_slots(ctx):
    return min(request_slots(ctx), wire.MAX_NARROW_SLOTS)


@device
def narrow_words(ctx):
    """Words of busy bits of narrow slots: a power of two."""
    return narrow_slots(ctx) >> 5


@device
def all_slots(ctx):
    return first_narrow(ctx) + narrow_slots(ctx)


@device
def eager_bytes(ctx):
    return (ctx.shape >> sizes.SHAPE_EAGER_SHIFT & 0x3FFF) * wire.POSITION_STEP


@device
def chunk_bytes(ctx):
    return (ctx.shape >> sizes.SHAPE_CHUNK_SHIFT & 0x3FFFFF) * wire.POSITION_STEP


@device
def record_address(ctx, ticket):
    return ctx.mapped + wire.MAPPED_RING + (ticket & (ring_slots(ctx) - 1)) * wire.SLOT_BYTES


@device
def completion_address(ctx, slot):
    return ctx.mapped + wire.MAPPED_RING + (ring_slots(ctx) + slot) * wire.SLOT_BYTES


@device
def small_address(ctx, slot):
    """The slot's small staging buffer (its lead, in front of the payload)."""
    begin = completion_address(ctx, all_slots(ctx))
    return begin + slot * (wire.STAGING_LEAD + eager_bytes(ctx))


@device
def large_staging(ctx):
    """Where the chunk buffers of all large slots are in host memory."""
    return load_gpu(ctx.device + wire.DEVICE_LARGE)


@device
def gpu_staging(ctx):
    """The same in our GPU memory; 0: there are none."""
    return load_gpu(ctx.device + wire.DEVICE_STAGING)


@device
def has_p2p(ctx):
    """Whether ``p2p_staging`` may find anything."""
    return ctx.shape >> sizes.SHAPE_P2P_SHIFT & 1


@device
def has_direct(ctx):
    """Whether messages on some communicator take the direct road."""
    return ctx.shape >> sizes.SHAPE_DIRECT_SHIFT & 1


@device
def leads_grid(ctx):
    """Whether the caller's block leads a call of grid scope, whose other blocks wait for jobs."""
    return ctx.shape >> sizes.SHAPE_GRID_SHIFT & 1


@device
def _marked(ctx, shift):
    return DeviceContext(ctx.mapped, ctx.device, ctx.shape | 1 << shift, ctx.identity)


@device
def as_leader(ctx):
    """The same context, for the block that leads a call of grid scope."""
    return _marked(ctx, sizes.SHAPE_GRID_SHIFT)


@device
def leads_block(ctx):
    """Whether the caller is a leading warp, for whose jobs the other threads of its block wait."""
    return ctx.shape >> sizes.SHAPE_LED_SHIFT & 1


@device
def as_leading_warp(ctx):
    """The same context, for such a warp."""
    return _marked(ctx, sizes.SHAPE_LED_SHIFT)


@device
def may_go_direct(ctx, word0):
    """Whether those on a call's communicator may.

    Args:
        word0: of the call's record.
    """
    if not has_direct(ctx):
        return False
    comm = word0 >> 16 & (wire.COMMUNICATORS - 1)
    return load_8(ctx.device + wire.DEVICE_P2P + comm * wire.P2P_BYTES + wire.P2P_DIRECT) != 0


@device
def may_collect_direct(ctx, word0):
    """Whether collectives on a call's communicator may, likewise."""
    return has_direct(ctx) and collects_direct(ctx, word0)


@device
def collects_direct(ctx, word0):
    """The same in a context with a direct road."""
    comm = word0 >> 16 & wire.COMMUNICATOR_MASK
    index = comm & (wire.COMMUNICATORS - 1)
    road = load_8(ctx.device + wire.DEVICE_P2P + index * wire.P2P_BYTES + wire.P2P_DIRECT)
    return (comm < wire.COMMUNICATORS) & (road & wire.COLLECTIVES_DIRECT != 0)


@device
def p2p_staging(ctx, word0, peer):
    """For a send whose receiver reads our GPU memory, where it may lie: (chunk buffers of all large
    slots, our mailboxes there; 0: it has none). (0, 0) for any other call.

    The proxy comes to the same answer.

    Args:
        word0, peer: of the call's record.
    """
    staging = 0
    mailbox = 0
    if word0 & 0xFF == wire.OP_ISEND and has_p2p(ctx):
        comm = word0 >> 16 & (wire.COMMUNICATORS - 1)
        reach = ctx.device + wire.DEVICE_P2P + comm * wire.P2P_BYTES
        first = load_gpu(reach + wire.P2P_FIRST)
        magic = load_gpu(reach + wire.P2P_MAGIC)
        ranks = load_gpu(reach + wire.P2P_BITS)
        p2p = gpu_staging(ctx)
        rank = (peer & wire.LOW_32) - (first & 0xFFFFFFFF)
        if 0 <= rank:
            place, rest = divide(rank, first >> 32, magic)
            if rest == 0 and place < wire.P2P_RANKS and ranks >> place & 1 != 0:
                staging = p2p
                mailbox = load_gpu(reach + wire.P2P_MAILBOXES + place * 8)
    return staging, mailbox


@device
def staging_of(ctx, word0, peer):
    """(where the chunk buffers of a long request are, whether in GPU memory, our mailboxes at
    the receiver or 0); as ``p2p_staging``."""
    large = large_staging(ctx)
    p2p, mailbox = p2p_staging(ctx, word0, peer)
    return p2p if p2p != 0 else large, p2p != 0, mailbox


@device
def mailbox_of(ctx, mailbox, slot, nbytes, send):
    """The mailbox of a large slot's message; 0 if it has none.

    Args:
        mailbox: what ``p2p_staging`` found.
        send: the buffer's address, or what stands for it in the record.
    """
    if mailbox == 0 or not _fits_mailbox(nbytes, send, chunk_bytes(ctx)):
        return 0
    return mailbox + (slot - request_slots(ctx)) * wire.MAILBOX_STRIDE


@device
def our_mailboxes(ctx):
    """Our mailboxes, which others write to."""
    return load_gpu(ctx.device + wire.DEVICE_MAILBOXES)


@device
def chunk_buffers(ctx, large, slot):
    """The chunk buffers of a large slot, one after the other.

    Args:
        large: ``large_staging`` or ``p2p_staging``.
    """
    return large + (slot - request_slots(ctx)) * (
        wire.LARGE_BUFFERS * chunk_bytes(ctx) + wire.READY_BYTES
    )


@device
def ready_address(ctx, buffers):
    """The ready word of the chunk buffers of a slot in GPU staging."""
    return buffers + wire.LARGE_BUFFERS * chunk_bytes(ctx)


@device
def busy_address(ctx, word):
    return ctx.device + wire.DEVICE_BUSY + word * wire.BUSY_STRIDE


@device
def poll_delay_address(ctx, block):
    """Where calls of a block keep how soon to look for their answers: two words."""
    return (
        ctx.device + wire.DEVICE_POLL_DELAYS + (block & (wire.POLL_DELAYS - 1)) * wire.BUSY_STRIDE
    )


@device
def row_address(ctx, slot):
    """The slot's row in device memory: ``REQUEST_*`` fields."""
    return ctx.device + wire.DEVICE_ROWS + slot * wire.REQUEST_BYTES


@device
def claim_address(ctx, slot, index):
    """Claim word of one staging buffer of a slot of the large class."""
    row = (slot - request_slots(ctx)) * wire.CLAIM_BYTES + index * 8
    return row_address(ctx, all_slots(ctx)) + row


@device
def datatype_address(ctx, row):
    """Row of the table of derived datatypes."""
    claims = wire.DEVICE_ROWS + all_slots(ctx) * wire.REQUEST_BYTES
    claims += (all_slots(ctx) - request_slots(ctx)) * wire.CLAIM_BYTES
    table = (claims + TYPE_BYTES - 1) & ~(TYPE_BYTES - 1)
    return ctx.device + table + row * TYPE_BYTES


@device
def layouts_address(ctx, slot):
    """The slot's layouts: ``LAYOUT_*`` fields."""
    return datatype_address(ctx, DERIVED_ROWS) + slot * LAYOUTS_BYTES


@device
def blocks_address(ctx, slot):
    """Where the slot's table of blocks is (``gmpi/contract/counts.py``)."""
    place = slot - request_slots(ctx)
    if place < 0:
        return layouts_address(ctx, slot) + LAYOUT_BLOCKS
    return (
        layouts_address(ctx, all_slots(ctx)) + place * _most_blocks(eager_bytes(ctx)) * BLOCK_ENTRY
    )
