"""The direct road's quickest way: messages of at most 32 packets, by the leading warp alone.

Written for latency. Other warps only come to two barriers: a call of the library costs each warp
the registers that it saves. Of what memory is asked, everything that can be is under way together,
and no fence is on the way: what is read was stored in one piece, or has been there since the
channel was opened. What is not as expected (no channel yet, no credit, nobody there for a while) is
left to ``requests``.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import cells, packets, rows, table
from device_lib.direct.words import call_of, elements_of, length_word, peer_tag_of
from device_lib.platform.library import linked
from device_lib.platform.primitives import (
    SIMULATOR,
    ballot,
    cas_if,
    device,
    draw_if,
    first_bit,
    int64,
    lane_id,
    load_8,
    load_16,
    load_gpu,
    read_packet,
    shuffle,
    shuffle_32,
    spin,
    uint32,
    write_packet,
)
from device_lib.platform.scope import ALL_LANES, Scope
from device_lib.proxied import slots
from device_lib.proxied.closing import COMPLETED, NO_ORIGIN
from gmpi.contract.channels import (
    COUNTER_FREE,
    COUNTER_NUMBER,
    DEPTH,
    HEADER_PAYLOAD,
    KEY_RECEIVES_SHIFT,
    NUMBERS,
    ROW_BYTES,
    ROW_KEY,
    ROW_LOCAL,
)
from gmpi.contract.constants import SUCCESS
from gmpi.contract.wire import (
    DEVICE_CHANNELS,
    LOW_32,
    PACKET_BYTES,
    PACKET_PAYLOAD,
    SCATTERED,
)

FULL_WARP = 32  # threads of a leading warp that this way needs
ONE_WARP = HEADER_PAYLOAD + (FULL_WARP - 1) * PACKET_PAYLOAD  # bytes of a message
PROXIED_ROAD = 0  # in place of a handle: the call goes by the proxy

# What has become of a send.
_OTHER = 0  # its channel is none of ours
_SENT = 1
_LEFT = 2  # to ``requests``

# What has become of a wait, in place of COMPLETED.
NOT_YET = 0  # nobody has the request
CLAIMED = 1  # it is ours, and nothing has been done for it
RESUMED = 2  # the same, but somebody has gone on with it before
FOREIGN = 3
LOST = 4  # somebody else had it when we looked
_TAKEN = 5

LOOKS = 2 if SIMULATOR else 64  # for a message, before others' requests are thought of


@device
def free_slots(mask, lanes, local, counters, number):
    """How many slots from a message's own on are free; all lanes of a warp, for lane 0's values.

    As many as DEPTH: all messages before have been taken.

    Args:
        mask, lanes: of the warp.
    """
    local = shuffle(mask, local, 0)
    number = shuffle_32(mask, number, 0)
    # All credits at once, each by a lane: the next messages need not ask.
    lane = lane_id()
    credit = False
    if lane < DEPTH:
        credit = cells.has_credit(local, number + lane & NUMBERS)
    ahead = first_bit(~ballot(mask, credit) & LOW_32 | 1 << min(DEPTH, lanes))
    if lane == 0 and ahead > 0:
        table.set_known_free(counters, number + ahead & NUMBERS)
    return ahead


@device
def _send(ctx, word0, peer_tag, nbytes, address):
    """(what has become of it, row, where the other end is, number), in lane 0."""
    key = table.key_of(word0, peer_tag)
    if key == table.NO_KEY:
        return _OTHER, 0, 0, 0
    lane = uint32(lane_id())
    row, remote, local, counters = table.glance(ctx, key)
    draws = lane == 0 and row != table.NOBODY and table.is_direct(remote)
    counted, free = draw_if(counters + COUNTER_NUMBER, counters + COUNTER_FREE, draws)
    used = uint32(packets.count(nbytes))
    packet = min(lane, uint32(used - 1))  # the others load the last one, too: no branch
    low, high = packets.load_packet(address, nbytes, int64(packet))  # while these are under way
    number = uint32(counted & NUMBERS)
    ahead = table.slots_ahead(free, number)
    if ballot(ALL_LANES, draws and ahead == 0) != 0:
        ahead = free_slots(ALL_LANES, FULL_WARP, local, counters, number)
    ready = uint32(draws and ahead > 0 and not packets.refreshed(number))
    if used > 1:
        number = shuffle_32(ALL_LANES, number, 0)
        ready = shuffle_32(ALL_LANES, ready, 0)
    if ready != 0 and lane < used:
        at = packets.inbox_slot(remote, number) + packet * PACKET_BYTES
        write_packet(at, low, high | int64(packets.mark_of(number)) << 32)
    return _SENT if ready != 0 else _LEFT, row, remote, int64(number)


@device
def _post(ctx, word0, peer_tag, room, address):
    """(handle, row, where the other end is, number), in lane 0; handle 0: left to ``requests``."""
    key = table.key_of(word0, peer_tag)
    if lane_id() != 0 or key == table.NO_KEY:
        return 0, table.NO_ROW, 0, 0
    row, remote, local, counters = table.glance(ctx, key)
    if row == table.NOBODY or not table.is_direct(remote):
        return 0, row, remote, 0
    slot = slots.guess(ctx)
    number = table.next_count(counters) & NUMBERS
    before = slots.take_bit(ctx, slot)  # both are under way
    if not slots.was_free(slot, before):
        return 0, row, remote, number
    handle = rows.direct_handle(ctx, slot, number, room <= ONE_WARP)
    length = length_word(word0, room, 0)
    rows.open_row(ctx, slot, handle, address, row, rows.BEGINS, call_of(word0), length)
    return handle, row, remote, number


@device
def claim(ctx, handle):
    """(CLAIMED, RESUMED or FOREIGN | mark << 8, where its slot is, the user's buffer, LENGTH,
    origin, where the other end is); lane 0.

    SCATTERED in place of the buffer: there is no quick way for it.
    """
    claimed = rows.BUSY
    length = 0
    target = SCATTERED
    stamp = 0
    while claimed == rows.BUSY:
        claimed, length, target, stamp = rows.claim_and_read(ctx, handle)
        if claimed == rows.BUSY:
            spin()
    if claimed == rows.FOREIGN:
        return FOREIGN, 0, SCATTERED, 0, NO_ORIGIN, 0
    if claimed == rows.RESUMED:
        return RESUMED, 0, SCATTERED, 0, NO_ORIGIN, 0
    if target == SCATTERED:
        return CLAIMED, 0, SCATTERED, 0, NO_ORIGIN, 0
    channel = table.row_of(ctx, stamp >> 32 & rows.INDEX_MASK)
    key, remote = load_16(channel + ROW_KEY)
    number = stamp >> 1 & NUMBERS
    at = packets.inbox_slot(load_8(channel + ROW_LOCAL), number)
    if key >> KEY_RECEIVES_SHIFT & 1 == 0 or length >> rows.LENGTH_BITS + 8 & 0xFF == 0:
        target = SCATTERED
    if packets.refreshed(number):
        target = SCATTERED
    return CLAIMED | packets.mark_of(number) << 8, at, target, length, peer_tag_of(key), remote


@device
def claim_again(ctx, handle):
    """A request that somebody had: CLAIMED, RESUMED or FOREIGN; one lane."""
    ours = rows.claim(ctx, handle, slots.CLAIMED)
    while ours == rows.BUSY:  # a helper has it: soon
        spin()
        ours = rows.claim(ctx, handle, slots.CLAIMED)
    if ours == rows.FOREIGN:
        return FOREIGN
    return RESUMED if ours == rows.RESUMED else CLAIMED


@device
def end(ctx, handle, remote):
    """The message has been taken: its slot and the request's are free; one lane."""
    cells.give_back(remote, handle >> 1 & NUMBERS, False)
    rows.close_row(ctx, handle)


@device
def _place_of(ctx, stamp):
    """(key, where the other end is, where our end is) of a request's channel, by its STAMP; any
    stamp names one."""
    channels, mask = load_16(ctx.device + DEVICE_CHANNELS)
    channel = channels + (stamp >> 32 & rows.INDEX_MASK & mask) * ROW_BYTES
    key, remote = load_16(channel + ROW_KEY)
    return key, remote, load_8(channel + ROW_LOCAL)


@device
def _take(ctx, handle, looks, leave):
    """(what has become of it, bytes, LENGTH, origin), in lane 0; a receive of at most ONE_WARP
    bytes.

    All lanes load and decide alike: where they part, a warp loses more than the loads cost.
    """
    if not rows.names_request(ctx, handle):
        return LOST, 0, 0, NO_ORIGIN
    lane = uint32(lane_id())
    row = rows.row_of(ctx, handle)
    length = load_gpu(row + rows.LENGTH)
    target, stamp = read_packet(row + rows.ADDRESS)
    owner = cas_if(row + rows.OWNER, handle, handle | slots.CLAIMED, lane == 0)
    key, remote, local = _place_of(ctx, stamp)
    ours = owner == handle or lane != 0
    number = uint32(handle >> 1 & NUMBERS)
    # The row is all there, and what it says is for this way.
    quick = stamp & LOW_32 == handle & LOW_32 and target != SCATTERED
    quick = quick and key >> KEY_RECEIVES_SHIFT & 1 != 0
    quick = quick and length >> rows.LENGTH_BITS + 8 & 0xFF != 0 and not packets.refreshed(number)
    if ballot(ALL_LANES, not (ours and quick)) != 0:
        return CLAIMED if ours else LOST, 0, 0, NO_ORIGIN
    mark = uint32(packets.mark_of(number))
    room = uint32(length & rows.LENGTH_MASK)
    at = packets.inbox_slot(local, number)
    place = at + (lane if lane < packets.count(room) else uint32(0)) * PACKET_BYTES
    low, word = read_packet(place)
    come = ballot(ALL_LANES, uint32(word >> 32) == mark)
    tried = uint32(looks)
    while come & 1 == 0 and tried > 1:
        spin()
        low, word = read_packet(place)
        come = ballot(ALL_LANES, uint32(word >> 32) == mark)
        tried = uint32(tried - 1)
    if come & 1 == 0:
        if leave != 0 and lane == 0:
            rows.leave(ctx, handle)
        return NOT_YET if leave != 0 else CLAIMED, 0, 0, NO_ORIGIN
    nbytes = shuffle_32(ALL_LANES, uint32(word), 0)
    if nbytes > room:  # or not in the slot
        return CLAIMED, 0, 0, NO_ORIGIN
    used = uint32(packets.count(nbytes))
    missing = (1 << int64(used)) - 1 & ~come
    if missing != 0:
        aborted = 0
        if missing >> int64(lane) & 1 != 0:
            low, word, aborted = packets.await_packet(ctx.mapped, place, int64(mark))
        if ballot(ALL_LANES, aborted != 0) != 0:
            return CLAIMED, 0, 0, NO_ORIGIN
    if lane < used:
        packets.store_packet(target, nbytes, int64(lane), low, word)
    if lane == 0:  # the lanes have seen their packets
        end(ctx, handle, remote)
    return _TAKEN, int64(nbytes), length, peer_tag_of(key)


_send_leading = linked("gmpi_direct_send", 7, 4, _send)
_post_leading = linked("gmpi_direct_post", 7, 4, _post)
_take_leading = linked("gmpi_direct_take", 6, 4, _take)


def make_one_warp(scope: Scope, open_rest: Callable, all_threads: SimpleNamespace):
    """For one scope, all of whose threads call it together.

    Args:
        open_rest: (ctx, word0, peer_tag, length, address, row, remote, number) -> handle: goes on
            with what has been drawn.
        all_threads: ``send`` and ``take`` of ``all_threads``, for what is larger.
    """
    leads = scope.leads
    leading_lanes = scope.leading_lanes
    sync = scope.sync
    put_4 = scope.put_4
    get_4 = scope.get_4
    send_by_all = all_threads.send
    take_by_all = all_threads.take

    @device
    def send(ctx, word0, peer_tag, nbytes, address):
        """The handle of a send in one piece; PROXIED_ROAD: its channel is none of ours."""
        if nbytes > ONE_WARP or leading_lanes() < FULL_WARP:
            return send_by_all(ctx, word0, peer_tag, nbytes, address)
        sync()  # what other threads wrote to the buffer
        state = _OTHER
        row = 0
        remote = 0
        number = 0
        if leads():
            state, row, remote, number = _send_leading(ctx, word0, peer_tag, nbytes, address)
            put_4(state, row, remote, number)
        sync()  # and the buffer is the caller's again
        state, row, remote, number = get_4(state, row, remote, number)
        if state == _SENT:
            return slots.error_handle(SUCCESS)
        if state == _OTHER:
            return PROXIED_ROAD
        return open_rest(ctx, word0, peer_tag, nbytes, address, row, remote, number)

    @device
    def post(ctx, word0, peer_tag, room, address):
        """The handle of a receive in one piece; PROXIED_ROAD: its channel is none of ours."""
        sync()  # what other threads still read from the buffer
        handle = 0
        row = 0
        remote = 0
        number = 0
        if leads():
            handle, row, remote, number = _post_leading(ctx, word0, peer_tag, room, address)
            put_4(handle, row, remote, number)
        sync()
        handle, row, remote, number = get_4(handle, row, remote, number)
        if handle != 0:
            return handle
        if row == table.NO_ROW:
            return PROXIED_ROAD
        return open_rest(ctx, word0, peer_tag, room, address, row, remote, number)

    @device
    def take(ctx, handle, looks, leave):
        """Waits a little for a message in one piece: (outcome, count, origin).

        Args:
            looks: how often to look.
            leave: whether to give the claim back where it has not come.

        Returns:
            outcome COMPLETED; NOT_YET: it has been left; CLAIMED, RESUMED or LOST: the rest is for
            the slow way.
        """
        if leading_lanes() < FULL_WARP or not rows.is_small(handle):
            return take_by_all(ctx, handle, looks, leave)
        sync()  # before the next ``put_4``
        state = 0
        nbytes = 0
        length = 0
        origin = 0
        if leads():
            state, nbytes, length, origin = _take_leading(ctx, handle, looks, leave)
            put_4(state, nbytes, length, origin)
        sync()
        state, nbytes, length, origin = get_4(state, nbytes, length, origin)
        if state == _TAKEN:
            return COMPLETED | nbytes, elements_of(length, nbytes), origin
        return state, 0, NO_ORIGIN

    return SimpleNamespace(send=send, post=post, take=take)
