"""The direct road's quickest way: messages of at most 32 packets, by the leading warp alone.

Written for latency. A call is one function of the library, which calls no other. The leading warp
calls it, and the others of the scope come to its barriers from the user's kernel: a call would save
the registers of 32 warps for nothing. Of what memory is asked, everything that can be is under way
together, what does not touch the user's buffer before the first barrier; no fence is on the way:
what is read was stored in one piece, or has been there since the channel was opened. What is not as
expected (no channel yet, no credit, nobody there for a while) is left to ``requests``.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import own, packets, rows, table
from device_lib.direct.claims import CLAIMED, LOST, NOT_YET
from device_lib.direct.words import call_of, elements_of, length_word, peer_tag_of
from device_lib.move.copy import load_payload, store_payload
from device_lib.platform import primitives as gpu
from device_lib.platform.context import DeviceContext, may_go_direct
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import device, int64, uint32
from device_lib.platform.scope import ALL_LANES, FULL_WARP, Scope
from device_lib.proxied import slots
from device_lib.proxied.closing import COMPLETED, NO_ORIGIN
from gmpi.contract import channels
from gmpi.contract.constants import SUCCESS
from gmpi.contract.wire import (
    LOW_32,
    PACKET_BYTES,
    PACKET_PAYLOAD,
    SCATTERED,
)

ONE_WARP = channels.HEADER_PAYLOAD + (FULL_WARP - 1) * PACKET_PAYLOAD  # bytes of a message
PROXIED_ROAD = 0  # in place of a handle: the call goes by the proxy

_TAKEN = 5  # as ``claims``: the message is in the user's buffer

LOOKS = 2 if gpu.SIMULATOR else 64  # for a message, before others' requests are thought of


@device
def free_slots(mask, lanes, local, counters, number):
    """How many slots from a message's own on are free; all lanes of a warp, for lane 0's values.

    As many as DEPTH: all messages before have been taken.

    Args:
        mask, lanes: of the warp.
    """
    local = gpu.shuffle(mask, local, 0)
    number = gpu.shuffle_32(mask, number, 0)
    # All credits at once, each by a lane: the next messages need not ask.
    lane = gpu.lane_id()
    credit = False
    if lane < channels.DEPTH:
        credit = packets.has_credit(local, number + lane & channels.NUMBERS)
    ahead = gpu.first_bit(~gpu.ballot(mask, credit) & LOW_32 | 1 << min(channels.DEPTH, lanes))
    if lane == 0 and ahead > 0:
        table.set_known_free(counters, number + ahead & channels.NUMBERS)
    return ahead


@device
def _load(nbytes, address):
    """(low word, high word) of the lane's packet of a message: lanes without one, the last one."""
    if nbytes <= channels.HEADER_PAYLOAD:
        low, high = load_payload(address, nbytes)
        return low, int64(nbytes)
    last = uint32(packets.count(int64(nbytes)) - 1)
    return packets.load_packet(address, int64(nbytes), int64(min(uint32(gpu.lane_id()), last)))


@device
def _put(nbytes, address, remote, local, counters, number, free, draws):
    """Whether a message has been stored in its slot; the leading warp, in lane 0.

    Args:
        free: slots that are known to be free, as ``table.known_free``.
        draws: in lane 0, whether it has drawn ``number`` and ``free``. They are on their way: what
            does not depend on them comes first.
    """
    low, high = _load(nbytes, address)
    ahead = uint32(table.slots_ahead(free, number))
    if gpu.ballot(ALL_LANES, draws and ahead == 0) != 0:
        ahead = uint32(free_slots(ALL_LANES, FULL_WARP, local, counters, number))
    ready = draws and ahead > 0 and not packets.refreshed(number)
    puts = ready
    packet = uint32(0)
    if nbytes > channels.HEADER_PAYLOAD:
        packet = uint32(gpu.lane_id())
        number = gpu.shuffle_32(ALL_LANES, number, 0)
        puts = gpu.ballot(ALL_LANES, ready) != 0 and packet < uint32(packets.count(int64(nbytes)))
    if puts:
        at = packets.inbox_slot(remote, number) + packet * PACKET_BYTES
        gpu.write_packet(at, low, high | int64(packets.mark_of(number)) << 32)
    return ready


@device
def _store_some(ctx, target, nbytes, place, mark, come, low, word):
    """Whether the lanes have stored a message of several packets; not where waits were aborted.

    Args:
        place, low, word: the lane's packet, and what was there when last looked.
        come: bits of the packets that were there.
    """
    lane = uint32(gpu.lane_id())
    used = uint32(packets.count(int64(nbytes)))
    missing = (1 << int64(used)) - 1 & ~come
    if missing != 0:
        aborted = 0
        if missing >> int64(lane) & 1 != 0:
            low, word, aborted = packets.await_packet(ctx.mapped, place, int64(mark))
        if gpu.ballot(ALL_LANES, aborted != 0) != 0:
            return False
    if lane < used:
        packets.store_packet(target, int64(nbytes), int64(lane), low, word)
    return True


@device
def _take(ctx, handle, looks, leave):
    """(what has become of it, bytes, LENGTH, origin), the same in all lanes; a receive of at most
    ONE_WARP bytes.

    All lanes load and decide alike: where they part, a warp loses more than the loads cost.
    """
    if not rows.names_request(ctx, handle):
        return LOST, 0, 0, NO_ORIGIN
    lane = uint32(gpu.lane_id())
    row = rows.row_of(ctx, handle)
    length = gpu.load_gpu(row + rows.LENGTH)
    target, stamp = gpu.read_packet(row + rows.ADDRESS)
    owner = gpu.cas_if(row + rows.OWNER, handle, handle | slots.CLAIMED, lane == 0)
    key, remote, local = table.ends_of(ctx, stamp >> 32 & rows.INDEX_MASK)
    number = uint32(handle >> 1 & channels.NUMBERS)
    # The row is all there, and what it says is for this way.
    quick = stamp & LOW_32 == handle & LOW_32 and target != SCATTERED
    quick = quick and key >> channels.KEY_RECEIVES_SHIFT & 1 != 0
    quick = quick and length >> rows.LENGTH_BITS + 8 & 0xFF != 0 and not packets.refreshed(number)
    if gpu.ballot(ALL_LANES, lane == 0 and owner != handle) != 0:
        return LOST, 0, 0, NO_ORIGIN
    if gpu.ballot(ALL_LANES, not quick) != 0:
        return CLAIMED, 0, 0, NO_ORIGIN
    mark = uint32(packets.mark_of(number))
    room = uint32(length & rows.LENGTH_MASK)
    place = packets.inbox_slot(local, number)
    if room > channels.HEADER_PAYLOAD and lane < uint32(packets.count(int64(room))):
        place += lane * PACKET_BYTES
    # What is needed afterwards, while nothing is there.
    credit = gpu.opaque(packets.credit_of(remote, number))
    origin = gpu.opaque(peer_tag_of(key))
    low, word = gpu.read_packet(place)
    come = gpu.ballot(ALL_LANES, uint32(word >> 32) == mark)
    tried = uint32(looks)
    while come & 1 == 0 and tried > 1:
        gpu.spin()
        low, word = gpu.read_packet(place)
        come = gpu.ballot(ALL_LANES, uint32(word >> 32) == mark)
        tried = uint32(tried - 1)
    if come & 1 == 0:
        if leave != 0 and lane == 0:
            rows.leave(ctx, handle)
        return NOT_YET if leave != 0 else CLAIMED, 0, 0, NO_ORIGIN
    nbytes = gpu.shuffle_32(ALL_LANES, uint32(word), 0)
    if nbytes > room:  # or not in the slot
        return CLAIMED, 0, 0, NO_ORIGIN
    if nbytes <= channels.HEADER_PAYLOAD:
        if lane == 0:
            store_payload(target, low, 0, nbytes)
    elif not _store_some(ctx, target, nbytes, place, mark, come, low, word):
        return CLAIMED, 0, 0, NO_ORIGIN
    if lane == 0:  # the lanes have seen their packets
        gpu.write_packet(credit, 0, int64(mark) << 32)
        rows.close_row(ctx, handle)
    return _TAKEN, int64(nbytes), length, origin


def make_one_warp(scope: Scope, open_rest: Callable, all_threads: SimpleNamespace):
    """For one scope, all of whose threads call it together.

    Args:
        open_rest: (ctx, word0, peer_tag, length, address, row, remote, number) -> handle: goes on
            with what has been drawn.
        all_threads: ``send`` and ``take`` of ``all_threads``, for what is larger.
    """
    leads = scope.leads
    leading_lanes = scope.leading_lanes
    sync_full = scope.sync_full
    sync_full_or = scope.sync_full_or
    put_4 = scope.put_4
    get_4 = scope.get_4
    get_4_same = scope.get_4_same
    send_by_all = all_threads.send
    take_by_all = all_threads.take
    part = parts_of(scope.name, "gmpi_direct")

    @device
    def send_quickly(memory, key, nbytes, address):
        """(handle, row, where the other end is, number); handle 0: left to ``requests``.

        The leading warp calls; the others of the scope call ``follow_send``.

        Args:
            memory: of the context, on the device.
            nbytes: at most ONE_WARP.
        """
        ctx = DeviceContext(0, memory, 0, 0)
        road = table.road_of(ctx, key)
        found, at, remote, local, counters = table.glance(ctx, key)
        draws = found and gpu.lane_id() == 0
        counted, known = gpu.draw_if(
            counters + channels.COUNTER_NUMBER, counters + channels.COUNTER_FREE, draws
        )
        number = uint32(counted & channels.NUMBERS)
        free = uint32(known)
        sync_full()  # what other threads wrote to the buffer
        ready = False
        if road != 0:
            ready = _put(uint32(nbytes), address, remote, local, counters, number, free, draws)
        left = not ready and gpu.lane_id() == 0
        if sync_full_or(1 if left else 0):  # and the buffer is the caller's again
            row = table.NO_ROW
            if road != 0:
                row = table.row_seen(draws, at, remote)
            put_4(0, row, remote, int64(number))
            sync_full()
            return get_4(0, row, remote, int64(number))
        return slots.error_handle(SUCCESS), 0, 0, 0

    @device
    def follow_send():
        """What it returns, in the other warps: in the user's kernel, where a call would save their
        registers for nothing."""
        sync_full()
        if sync_full_or(0):
            sync_full()
            return get_4(0, 0, 0, 0)
        return slots.error_handle(SUCCESS), 0, 0, 0

    @device
    def post_quickly(memory, shape, key, length, address, call):
        """The same for a receive; the others call ``follow``.

        Args:
            memory, shape: of the context.
            length, call: as ``rows.open_row``.
        """
        ctx = DeviceContext(0, memory, shape, 0)
        road = table.road_of(ctx, key)
        handle = 0
        found, at, remote, local, counters = table.glance(ctx, key)
        draws = found and gpu.lane_id() == 0
        slot = slots.guess(ctx)
        counted, before = gpu.draw_two_if(
            counters + channels.COUNTER_NUMBER,
            slots.busy_word(ctx, slot),
            slots.busy_bit(slot),
            draws,
        )
        sync_full()  # what other threads still read from the buffer
        row = table.NO_ROW
        if road != 0:
            row = table.row_seen(draws, at, remote)
        if draws:
            counted &= channels.NUMBERS
            if slots.was_free(slot, before):
                small = length & rows.LENGTH_MASK <= ONE_WARP
                handle = rows.direct_handle(ctx, slot, counted, small)
                rows.open_row(ctx, slot, handle, address, row, rows.BEGINS, call, length)
        put_4(handle, row, remote, counted)
        sync_full()
        return get_4(handle, row, remote, counted)

    @device
    def take_quickly(ctx, handle, looks, leave):
        """(what has become of it, bytes, LENGTH, origin); the others call ``follow_same``."""
        sync_full()  # before the next ``put_4``
        state, nbytes, length, origin = _take(ctx, handle, looks, leave)
        put_4(state, nbytes, length, origin)
        sync_full()
        return get_4_same(state, nbytes, length, origin)

    @device
    def follow():
        """As ``follow_send``, of ``post_quickly``."""
        sync_full()
        sync_full()
        return get_4(0, 0, 0, 0)

    @device
    def follow_same():
        """The same of ``take_quickly``."""
        sync_full()
        sync_full()
        return get_4_same(0, 0, 0, 0)

    send_linked = part("send", 4, 4, send_quickly)
    post_linked = part("post", 6, 4, post_quickly)
    take_linked = part("take", 6, 4, take_quickly)

    @device
    def key_of(word0, peer_tag):
        """``table.key_of`` where the leading warp is full. The user's kernel works it out, the
        compiler often before a loop."""
        if leading_lanes() < FULL_WARP:
            return table.NO_KEY
        return table.key_of(word0, peer_tag)

    @device
    def send(ctx, word0, peer_tag, nbytes, address):
        """The handle of a send in one piece; PROXIED_ROAD: its channel is none of ours."""
        key = key_of(word0, peer_tag)
        if key == table.NO_KEY or nbytes > ONE_WARP:
            return send_by_all(ctx, word0, peer_tag, nbytes, address)
        if leads():
            handle, row, remote, number = send_linked(ctx.device, key, nbytes, address)
        else:
            handle, row, remote, number = follow_send()
        if handle != 0:
            return handle
        if row == table.NO_ROW:
            return PROXIED_ROAD
        return open_rest(ctx, word0, peer_tag, nbytes, address, row, remote, number)

    @device
    def post(ctx, word0, peer_tag, room, address):
        """The handle of a receive in one piece; PROXIED_ROAD: its channel is none of ours."""
        key = key_of(word0, peer_tag)
        row = table.NOBODY
        remote = 0
        number = 0
        if key != table.NO_KEY:
            if leads():
                length = length_word(word0, room, 0)
                handle, row, remote, number = post_linked(
                    ctx.device, ctx.shape, key, length, address, call_of(word0)
                )
            else:
                handle, row, remote, number = follow()
            if handle != 0:
                if room > channels.ROOM and leads() and gpu.lane_id() == 0:
                    own.note(ctx, handle)
                return handle
        elif table.key_of(word0, peer_tag) == table.NO_KEY:
            return table.without_channel(ctx, word0, peer_tag)
        elif not may_go_direct(ctx, word0):
            row = table.NO_ROW
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
        if not rows.is_small(handle) or leading_lanes() < FULL_WARP:
            return take_by_all(ctx, handle, looks, leave)
        if leads():
            state, nbytes, length, origin = take_linked(ctx, handle, looks, leave)
        else:
            state, nbytes, length, origin = follow_same()
        if state == _TAKEN:
            return COMPLETED | nbytes, elements_of(length, nbytes), origin
        return state, 0, NO_ORIGIN

    return SimpleNamespace(send=send, post=post, take=take)
