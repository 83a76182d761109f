"""The table of channels: which calls go by the direct road, and where.

A row is entered when the proxies have answered, and never removed: two messages with one key never
take different roads. Rows are looked up through L1, which may not have seen a new one: whoever
finds nothing looks once more past it.

Called by one lane.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct import packets
from device_lib.platform import primitives as gpu
from device_lib.platform.context import may_go_direct
from device_lib.platform.primitives import device, int64, uint32
from device_lib.proxied import slots
from gmpi.contract import channels, wire
from gmpi.contract.constants import PROC_NULL

NO_KEY = 0
NOBODY = -1  # in place of a row
NO_ROW = -2  # the same: no row can be
UNSOUND = -3  # the same: nobody has asked for it, by the call's arguments
REFUSED = -4  # the same: the proxy could not be asked
UNKNOWN = -1  # in place of where our end is: the proxy could not be asked
NEVER = -2  # the same: on no channel of the two ranks
_HASH_LOW = 0x9E3779B1  # odd, without a pattern
_HASH_HIGH = 0x85EBCA77
# Bits that are 0 where the arguments are in the ranges of a key.
_NO_COMMUNICATOR = (wire.COMMUNICATOR_MASK ^ (wire.COMMUNICATORS - 1)) << 16
_NO_PEER_TAG = wire.LOW_32 ^ (channels.KEY_PEERS - 1) | -1 << 63


@device
def key_of(word0, peer_tag):
    """What names the channel of a call; NO_KEY: none can, by its arguments.

    Args:
        word0, peer_tag: as in the call's record.
    """
    return key_as_it_is(word0, peer_tag) if may_have_key(word0, peer_tag) else NO_KEY


@device
def may_have_key(word0, peer_tag):
    """Whether a channel can have a call's arguments."""
    return (word0 & _NO_COMMUNICATOR == 0) & (peer_tag & _NO_PEER_TAG == 0)


@device
def key_as_it_is(word0, peer_tag):
    """``key_of`` of a call for which ``may_have_key`` has said so."""
    key = channels.KEY_MARK | (peer_tag & wire.LOW_32) << channels.KEY_PEER_SHIFT | peer_tag >> 32
    key |= (word0 >> 16 & (wire.COMMUNICATORS - 1)) << channels.KEY_COMM_SHIFT
    if word0 & 0xFF == wire.OP_IRECV:
        key |= 1 << channels.KEY_RECEIVES_SHIFT
    return key


@device
def without_channel(ctx, word0, peer_tag):
    """The handle of a call without a key: one that is complete, to or from PROC_NULL; 0: the call
    goes by the proxy, which knows what is wrong with it. The rest of its arguments is sound."""
    nobody = peer_tag & wire.LOW_32 == PROC_NULL & wire.LOW_32 and peer_tag >= 0
    if nobody and word0 & _NO_COMMUNICATOR == 0 and may_go_direct(ctx, word0):
        return slots.nobody_handle()
    return 0


@device
def peer_key(key):
    """What names all channels with the same other rank, where none of them is ours."""
    return key & ~(channels.KEY_MARK | 1 << channels.KEY_RECEIVES_SHIFT | channels.KEY_TAG_MASK) | 1


@device
def look_up(ctx, key):
    """``find``, also by ``peer_key``."""
    row, remote, local, counters = find(ctx, key)
    if row == NOBODY:
        row, remote, local, counters = find(ctx, peer_key(key))
    return row, remote, local, counters


@device
def _begin(ctx, key):
    """(where the table is, its rows less 1, the row to begin at)."""
    table, rows = gpu.load_16(ctx.device + wire.DEVICE_CHANNELS)
    mask = uint32(rows)  # of 32 bits each: half the instructions
    # Both halves of the key, and the upper bits of the sum: peer, communicator and direction are
    # in the upper half, and two ranks that answer each other differ in one bit of it.
    mixed = uint32((key & wire.LOW_32) * _HASH_LOW + (key >> 32) * _HASH_HIGH)
    return table, mask, uint32(int64(mixed) * int64(uint32(mask + 1)) >> 32)


@device
def row_of(ctx, index):
    return gpu.load_8(ctx.device + wire.DEVICE_CHANNELS) + index * channels.ROW_BYTES


@device
def ends_of(ctx, index):
    """(key, where the other end is, where ours is) of a row by any number, which need not be that
    of a row."""
    table, mask = gpu.load_16(ctx.device + wire.DEVICE_CHANNELS)
    row = table + (index & mask) * channels.ROW_BYTES
    key, remote = gpu.load_16(row + channels.ROW_KEY)
    return key, remote, gpu.load_8(row + channels.ROW_LOCAL)


@device
def entries(row):
    """(key, where the other end is, where ours is, counters) of a row, by its address."""
    key, remote = gpu.load_16(row + channels.ROW_KEY)
    local, counters = gpu.load_16(row + channels.ROW_LOCAL)
    return key, remote, local, counters


@device
def find(ctx, key):
    """(row, where the other end is, where ours is, counters) of a key; row NOBODY: nobody has asked
    for it.

    A row is its index.
    """
    table, mask, at = _begin(ctx, key)
    known = NO_KEY
    remote = channels.OPENING
    local = 0
    counters = 0
    looking = True
    while looking:
        row = table + at * channels.ROW_BYTES
        known, remote, local, counters = entries(row)
        looking = known != key and known != NO_KEY
        if looking:
            at = uint32(at + 1 & mask)
    if known == NO_KEY:
        return NOBODY, 0, 0, 0
    if remote == channels.OPENING or ((local == 0 or counters == 0) and is_direct(remote)):
        remote = _when_open(table + at * channels.ROW_BYTES)
        local = gpu.load_8(table + at * channels.ROW_BYTES + channels.ROW_LOCAL)
        counters = gpu.load_8(table + at * channels.ROW_BYTES + channels.ROW_COUNTERS)
    return int64(at), remote, local, counters


@device
def glance(ctx, key):
    """(whether it is found, row, where the other end is, where ours is, counters) of a channel of
    the direct road, without waiting: not found where L1 does not have all of it.

    For any number of lanes at once, which all find the same or nothing. A row is its index.
    """
    table, mask, at = _begin(ctx, key)
    known, remote, local, counters = entries(table + at * channels.ROW_BYTES)
    while known != key and known != NO_KEY:
        at = uint32(at + 1 & mask)
        known, remote, local, counters = entries(table + at * channels.ROW_BYTES)
    found = (known == key) & is_direct(remote) & (local != 0) & (counters != 0)
    return found, at, remote, local, counters


@device
def row_seen(draws, at, remote):
    """The row for whoever goes on where ``glance`` has not been enough: NOBODY, who is to look it
    up. A channel that is known to go by the proxy need not be.

    Args:
        draws: whether a number of the row has been drawn.
    """
    return int64(at) if draws or remote == channels.PROXIED else NOBODY


@device
def row_left(sound, road, draws, at, remote):
    """The row of a call that its quick way leaves to ``requests``: UNSOUND, NO_ROW, or as
    ``row_seen``.

    Args:
        sound: whether its arguments are.
        road: what ``road_of`` returned.
    """
    row = NO_ROW
    if road != 0:
        row = row_seen(draws, at, remote)
    if not sound:
        row = UNSOUND
    return row


@device
def road_of(ctx, key):
    """Whether messages on the communicator of a key may take the direct road at all: then not 0."""
    comm = uint32(key >> channels.KEY_COMM_SHIFT) & uint32(wire.COMMUNICATORS - 1)
    return gpu.load_4(ctx.device + wire.DEVICE_P2P + wire.P2P_DIRECT + comm * wire.P2P_BYTES)


@device
def _when_open(row):
    remote = gpu.load_gpu(row + channels.ROW_REMOTE)
    while remote == channels.OPENING:
        gpu.pause(20)
        remote = gpu.load_gpu(row + channels.ROW_REMOTE)
    gpu.fence_gpu()  # L1 forgets what was there before
    return remote


@device
def enter(ctx, key, remote, local):
    """``find`` of a key for which the proxy's answer has come, entered if nobody has done so."""
    table, mask, at = _begin(ctx, key)
    if remote == channels.PROXIED and gpu.add_gpu(ctx.device + wire.DEVICE_PROXIED, 1) > int64(
        mask >> 2
    ):
        return NOBODY, channels.PROXIED, 0, 0  # the rest is for channels; the proxy knows others
    row = table + at * channels.ROW_BYTES
    known = gpu.cas_gpu(row + channels.ROW_KEY, NO_KEY, key)
    while known != key and known != NO_KEY:
        at = uint32(at + 1 & mask)
        row = table + at * channels.ROW_BYTES
        known = gpu.cas_gpu(row + channels.ROW_KEY, NO_KEY, key)
    if known == NO_KEY:
        if is_direct(remote) and key >> channels.KEY_RECEIVES_SHIFT & 1 == 0:
            packets.begin_cells(local)
        counters = table + (mask + 1) * channels.ROW_BYTES + at * channels.COUNTER_BYTES
        gpu.store_gpu(row + channels.ROW_COUNTERS, counters)
        gpu.store_gpu(row + channels.ROW_LOCAL, local)
        gpu.store_gpu(counters + channels.COUNTER_WIDE, channels.FIRST_WIDE)
        gpu.fence_gpu()
        gpu.store_gpu(row + channels.ROW_REMOTE, remote)
    else:
        remote = _when_open(row)
    gpu.fence_gpu()
    return (
        int64(at),
        remote,
        gpu.load_gpu(row + channels.ROW_LOCAL),
        gpu.load_gpu(row + channels.ROW_COUNTERS),
    )


@device
def is_watched(ctx):
    """Whether debug mode looks at the requests of this context (``watching.py``)."""
    return gpu.load_8(ctx.device + wire.DEVICE_WATCHED) != 0


@device
def is_direct(remote):
    return remote > channels.PROXIED


@device
def next_count(counters):
    """The number of the next message of a channel, as if they wrapped with 32 bits only."""
    return gpu.add_32_gpu(counters + channels.COUNTER_NUMBER, 1)


@device
def known_free(counters):
    """The slots of all messages before this one are free, as far as we know."""
    return gpu.load_gpu(counters + channels.COUNTER_FREE) & wire.LOW_32


@device
def slots_ahead(free, number):
    """How many slots from a message's own on are free, by what ``known_free`` has returned."""
    ahead = free - number & channels.NUMBERS
    return ahead if ahead <= channels.DEPTH else 0


@device
def set_known_free(counters, number):
    gpu.store_32_gpu(counters + channels.COUNTER_FREE, number)


@device
def next_wide(counters):
    """The number of the next message in the wide slot, which is free."""
    return gpu.add_gpu(counters + channels.COUNTER_WIDE, 1) & channels.NUMBERS


@device
def draw(ctx, key):
    """(row of the channel, where the other end is, number of the message, where our end is,
    counters).

    A number is drawn only on the direct road.
    """
    row, remote, local, counters = look_up(ctx, key)
    number = 0
    if is_direct(remote):
        number = next_count(counters) & channels.NUMBERS
    return row, remote, number, local, counters
