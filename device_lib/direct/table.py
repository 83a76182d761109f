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
    add_gpu,
    cas_gpu,
    device,
    fence_gpu,
    load_8,
    load_gpu,
    pause,
    store_gpu,
)
from gmpi.contract.channels import (
    COUNTER_BYTES,
    COUNTER_FREE,
    COUNTER_NUMBER,
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
    ROW_KEY,
    ROW_LOCAL,
    ROW_REMOTE,
)
from gmpi.contract.wire import (
    COMMUNICATOR_MASK,
    COMMUNICATORS,
    DEVICE_CHANNELS,
    DEVICE_CHANNELS_MASK,
    DEVICE_PROXIED,
    LOW_32,
    OP_IRECV,
)

NO_KEY = 0
NOBODY = -1  # in place of a row
UNKNOWN = -1  # in place of where our end is: the proxy has not said so
NEVER = -2  # the same: on no channel of the two ranks
_HASH = 0x9E3779B1


@device
def key_of(word0, peer_tag):
    """What names the channel of a call; NO_KEY: none can, by its arguments.

    Args:
        word0, peer_tag: as in the call's record.
    """
    comm = word0 >> 16 & COMMUNICATOR_MASK
    peer = peer_tag & LOW_32
    tag = peer_tag >> 32
    if comm >= COMMUNICATORS or peer >= KEY_PEERS or tag < 0:
        return NO_KEY
    receives = 1 if word0 & 0xFF == OP_IRECV else 0
    key = KEY_MARK | receives << KEY_RECEIVES_SHIFT | comm << KEY_COMM_SHIFT
    return key | peer << KEY_PEER_SHIFT | tag


@device
def peer_key(key):
    """What names all channels with the same other rank, where none of them is ours."""
    return key & ~(KEY_MARK | 1 << KEY_RECEIVES_SHIFT | KEY_TAG_MASK) | 1


@device
def look_up(ctx, key):
    """``find``, also by ``peer_key``."""
    row, remote, local = find(ctx, key)
    if row == NOBODY:
        row, remote, local = find(ctx, peer_key(key))
    return row, remote, local


@device
def _begin(ctx, key):
    """(where the table is, its rows less 1, the row to begin at)."""
    table = load_8(ctx.device + DEVICE_CHANNELS)
    mask = load_8(ctx.device + DEVICE_CHANNELS_MASK)
    mixed = (key ^ key >> 29) & 0xFFFFFFFF
    return table, mask, mixed * _HASH >> 12 & mask


@device
def row_of(ctx, index):
    return load_8(ctx.device + DEVICE_CHANNELS) + index * ROW_BYTES


@device
def _counter(ctx, index):
    rows = load_8(ctx.device + DEVICE_CHANNELS_MASK) + 1
    return row_of(ctx, rows) + index * COUNTER_BYTES


@device
def find(ctx, key):
    """(row, where the other end is, where ours is) of a key; row NOBODY: nobody has asked for it.

    A row is its index.
    """
    table, mask, at = _begin(ctx, key)
    known = NO_KEY
    remote = OPENING
    local = 0
    looking = True
    while looking:
        row = table + at * ROW_BYTES
        known = load_8(row + ROW_KEY)
        remote = load_8(row + ROW_REMOTE)
        local = load_8(row + ROW_LOCAL)
        looking = known != key and known != NO_KEY
        if looking:
            at = (at + 1) & mask
    if known == NO_KEY:
        return NOBODY, 0, 0
    if remote == OPENING or (local == 0 and is_direct(remote)):
        remote = _when_open(table + at * ROW_BYTES)
        local = load_8(table + at * ROW_BYTES + ROW_LOCAL)
    return at, remote, local


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
    if remote == PROXIED and add_gpu(ctx.device + DEVICE_PROXIED, 1) > mask >> 2:
        return NOBODY, PROXIED, 0  # the rest of the table is for channels; the proxy knows others
    row = table + at * ROW_BYTES
    known = cas_gpu(row + ROW_KEY, NO_KEY, key)
    while known != key and known != NO_KEY:
        at = (at + 1) & mask
        row = table + at * ROW_BYTES
        known = cas_gpu(row + ROW_KEY, NO_KEY, key)
    if known == NO_KEY:
        if is_direct(remote) and key >> KEY_RECEIVES_SHIFT & 1 == 0:
            cells.begin(local)
        store_gpu(row + ROW_LOCAL, local)
        fence_gpu()
        store_gpu(row + ROW_REMOTE, remote)
    else:
        remote = _when_open(row)
    fence_gpu()
    return at, remote, load_gpu(row + ROW_LOCAL)


@device
def is_direct(remote):
    return remote > PROXIED


@device
def next_number(ctx, row):
    """The number of the next message of a channel."""
    return add_gpu(_counter(ctx, row) + COUNTER_NUMBER, 1) & NUMBERS


@device
def known_free(ctx, row):
    """The slots of all messages before this one are free, as far as we know."""
    return load_gpu(_counter(ctx, row) + COUNTER_FREE)


@device
def set_known_free(ctx, row, number):
    store_gpu(_counter(ctx, row) + COUNTER_FREE, number)
