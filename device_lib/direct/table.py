"""The table of channels: which calls go by the direct road, and where.

A row is entered when the proxies have answered, and never removed: two messages with one key never
take different roads. Rows are looked up through L1, which may not have seen a new one: whoever
finds nothing looks once more past it.

Called by one lane.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct import cells
from device_lib.platform.primitives import (
    add_32_gpu,
    add_gpu,
    cas_gpu,
    device,
    fence_gpu,
    int64,
    load_4,
    load_8,
    load_16,
    load_gpu,
    pause,
    store_gpu,
    uint32,
)
from gmpi.contract.channels import (
    COUNTER_BYTES,
    COUNTER_FREE,
    COUNTER_NUMBER,
    COUNTER_WIDE,
    DEPTH,
    KEY_COMM_SHIFT,
    KEY_MARK,
    KEY_PEER_SHIFT,
    KEY_PEERS,
    KEY_RECEIVES_SHIFT,
    KEY_TAG_MASK,
    NUMBERS,
    OPENING,
    PROXIED,
    ROW_BYTES,
    ROW_COUNTERS,
    ROW_KEY,
    ROW_LOCAL,
    ROW_REMOTE,
)
from gmpi.contract.wire import (
    COMMUNICATOR_MASK,
    COMMUNICATORS,
    DEVICE_CHANNELS,
    DEVICE_P2P,
    DEVICE_PROXIED,
    LOW_32,
    OP_IRECV,
    P2P_BYTES,
    P2P_DIRECT,
)

NO_KEY = 0
NOBODY = -1  # in place of a row
NO_ROW = -2  # the same: no row can be
UNKNOWN = -1  # in place of where our end is: the proxy has not said so
NEVER = -2  # the same: on no channel of the two ranks
_HASH_LOW = 0x9E3779B1  # odd, without a pattern
_HASH_HIGH = 0x85EBCA77
# Bits that are 0 where the arguments are in the ranges of a key.
_NO_COMMUNICATOR = (COMMUNICATOR_MASK ^ (COMMUNICATORS - 1)) << 16
_NO_PEER_TAG = LOW_32 ^ (KEY_PEERS - 1) | -1 << 63


@device
def key_of(word0, peer_tag):
    """What names the channel of a call; NO_KEY: none can, by its arguments.

    Args:
        word0, peer_tag: as in the call's record.
    """
    if word0 & _NO_COMMUNICATOR != 0 or peer_tag & _NO_PEER_TAG != 0:
        return NO_KEY
    key = KEY_MARK | (peer_tag & LOW_32) << KEY_PEER_SHIFT | peer_tag >> 32
    key |= (word0 >> 16 & (COMMUNICATORS - 1)) << KEY_COMM_SHIFT
    if word0 & 0xFF == OP_IRECV:
        key |= 1 << KEY_RECEIVES_SHIFT
    return key


@device
def peer_key(key):
    """What names all channels with the same other rank, where none of them is ours."""
    return key & ~(KEY_MARK | 1 << KEY_RECEIVES_SHIFT | KEY_TAG_MASK) | 1


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
    table, rows = load_16(ctx.device + DEVICE_CHANNELS)
    mask = uint32(rows)  # of 32 bits each: half the instructions
    # Both halves of the key, and the upper bits of the sum: peer, communicator and direction are
    # in the upper half, and two ranks that answer each other differ in one bit of it.
    mixed = uint32((key & LOW_32) * _HASH_LOW + (key >> 32) * _HASH_HIGH)
    return table, mask, uint32(int64(mixed) * int64(uint32(mask + 1)) >> 32)


@device
def row_of(ctx, index):
    return load_8(ctx.device + DEVICE_CHANNELS) + index * ROW_BYTES


@device
def ends_of(ctx, index):
    """(key, where the other end is, where ours is) of a row by any number, which need not be that
    of a row."""
    table, mask = load_16(ctx.device + DEVICE_CHANNELS)
    row = table + (index & mask) * ROW_BYTES
    key, remote = load_16(row + ROW_KEY)
    return key, remote, load_8(row + ROW_LOCAL)


@device
def entries(row):
    """(key, where the other end is, where ours is, counters) of a row, by its address."""
    key, remote = load_16(row + ROW_KEY)
    local, counters = load_16(row + ROW_LOCAL)
    return key, remote, local, counters


@device
def find(ctx, key):
    """(row, where the other end is, where ours is, counters) of a key; row NOBODY: nobody has asked
    for it.

    A row is its index.
    """
    table, mask, at = _begin(ctx, key)
    known = NO_KEY
    remote = OPENING
    local = 0
    counters = 0
    looking = True
    while looking:
        row = table + at * ROW_BYTES
        known, remote, local, counters = entries(row)
        looking = known != key and known != NO_KEY
        if looking:
            at = uint32(at + 1 & mask)
    if known == NO_KEY:
        return NOBODY, 0, 0, 0
    if remote == OPENING or ((local == 0 or counters == 0) and is_direct(remote)):
        remote = _when_open(table + at * ROW_BYTES)
        local = load_8(table + at * ROW_BYTES + ROW_LOCAL)
        counters = load_8(table + at * ROW_BYTES + ROW_COUNTERS)
    return int64(at), remote, local, counters


@device
def glance(ctx, key):
    """(whether it is found, row, where the other end is, where ours is, counters) of a channel of
    the direct road, without waiting: not found where L1 does not have all of it.

    For any number of lanes at once, which all find the same or nothing. A row is its index.
    """
    table, mask, at = _begin(ctx, key)
    known, remote, local, counters = entries(table + at * ROW_BYTES)
    while known != key and known != NO_KEY:
        at = uint32(at + 1 & mask)
        known, remote, local, counters = entries(table + at * ROW_BYTES)
    found = known == key and is_direct(remote) and local != 0 and counters != 0
    return found, at, remote, local, counters


@device
def row_seen(draws, at, remote):
    """The row for whoever goes on where ``glance`` has not been enough: NOBODY, who is to look it
    up. A channel that is known to go by the proxy need not be.

    Args:
        draws: whether a number of the row has been drawn.
    """
    return int64(at) if draws or remote == PROXIED else NOBODY


@device
def road_of(ctx, key):
    """Whether messages on the communicator of a key may take the direct road at all: then not 0."""
    comm = uint32(key >> KEY_COMM_SHIFT) & uint32(COMMUNICATORS - 1)
    return load_4(ctx.device + DEVICE_P2P + P2P_DIRECT + comm * P2P_BYTES)


@device
def _when_open(row):
    remote = load_gpu(row + ROW_REMOTE)
    while remote == OPENING:
        pause(20)
        remote = load_gpu(row + ROW_REMOTE)
    fence_gpu()  # L1 forgets what was there before
    return remote


@device
def enter(ctx, key, remote, local):
    """``find`` of a key for which the proxy's answer has come, entered if nobody has done so."""
    table, mask, at = _begin(ctx, key)
    if remote == PROXIED and add_gpu(ctx.device + DEVICE_PROXIED, 1) > int64(mask >> 2):
        return NOBODY, PROXIED, 0, 0  # the rest is for channels; the proxy knows others
    row = table + at * ROW_BYTES
    known = cas_gpu(row + ROW_KEY, NO_KEY, key)
    while known != key and known != NO_KEY:
        at = uint32(at + 1 & mask)
        row = table + at * ROW_BYTES
        known = cas_gpu(row + ROW_KEY, NO_KEY, key)
    if known == NO_KEY:
        if is_direct(remote) and key >> KEY_RECEIVES_SHIFT & 1 == 0:
            cells.begin(local)
        store_gpu(row + ROW_COUNTERS, table + (mask + 1) * ROW_BYTES + at * COUNTER_BYTES)
        store_gpu(row + ROW_LOCAL, local)
        fence_gpu()
        store_gpu(row + ROW_REMOTE, remote)
    else:
        remote = _when_open(row)
    fence_gpu()
    return int64(at), remote, load_gpu(row + ROW_LOCAL), load_gpu(row + ROW_COUNTERS)


@device
def is_direct(remote):
    return remote > PROXIED


@device
def next_count(counters):
    """The number of the next message of a channel, as if they wrapped with 32 bits only."""
    return add_32_gpu(counters + COUNTER_NUMBER, 1)


@device
def known_free(counters):
    """The slots of all messages before this one are free, as far as we know."""
    return load_gpu(counters + COUNTER_FREE)


@device
def slots_ahead(free, number):
    """How many slots from a message's own on are free, by what ``known_free`` has returned."""
    ahead = free - number & NUMBERS
    return ahead if ahead <= DEPTH else 0


@device
def set_known_free(counters, number):
    store_gpu(counters + COUNTER_FREE, number)


@device
def next_wide(counters):
    """The number of the next message in the wide slot, which is free."""
    return add_gpu(counters + COUNTER_WIDE, 1) & NUMBERS
