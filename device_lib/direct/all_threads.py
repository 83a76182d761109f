"""Messages in one piece that all threads of a scope move together: in a slot, or in the wide slot.

As ``one_warp``: one lane draws and claims, everything else is under way meanwhile, without a fence.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import own, packets, rows, table
from device_lib.direct.claims import CLAIMED, FOREIGN, NOT_YET, claim, end
from device_lib.direct.grid_team import share, shares_of
from device_lib.direct.one_warp import PROXIED_ROAD
from device_lib.direct.receives import begin_long
from device_lib.direct.warp_messages import LOOKS_ALONE, free_slots
from device_lib.direct.words import elements_of
from device_lib.platform import primitives as gpu
from device_lib.platform.context import may_go_direct
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import device, uint32
from device_lib.platform.scope import Scope, warp_lanes, warp_mask
from device_lib.proxied import slots
from device_lib.proxied.closing import COMPLETED, FAULT, NO_ORIGIN
from gmpi.contract import channels
from gmpi.contract.constants import ERR_REQUEST, SUCCESS
from gmpi.contract.grid import PUT_WIDE
from gmpi.contract.wire import ERROR_SHIFT, LOW_32, PACKET_BYTES, SCATTERED

# What has become of a send, beside the number of its message.
_LEFT = 0  # to ``requests``
_IN_SLOT = 1
_IN_WIDE_SLOT = 2
_LONG = 3  # in lane 0 only: its length may be sent before it is left to ``requests``
# Beside the number of a message that is left to ``requests``:
LENGTH_SENT = 1 << 32
SLOT_SHIFT = 33  # the request's slot + 1, where there is one


@device
def draw(ctx, key):
    """(row of the channel, where the other end is, number of the message, where our end is,
    counters); one lane.

    A number is drawn only on the direct road.
    """
    row, remote, local, counters = table.look_up(ctx, key)
    number = 0
    if table.is_direct(remote):
        number = table.next_count(counters) & channels.NUMBERS
    return row, remote, number, local, counters


@device
def _way(nbytes, draws, number, free, local, counters):
    """(which way is free for a message, its number in the wide slot), in lane 0; the leading warp.

    Args:
        draws: whether lane 0 has drawn ``number`` and ``free``, as in ``one_warp``.
    """
    in_wide = channels.ROOM < nbytes and nbytes <= channels.WIDE_ROOM
    wanted = channels.DEPTH if in_wide else 1
    ahead = table.slots_ahead(free, number)
    mask = warp_mask()
    if gpu.shuffle(mask, 1 if draws and ahead < wanted else 0, 0):
        ahead = free_slots(mask, warp_lanes(), local, counters, uint32(number))
    way = _LEFT
    wide = 0
    if draws and ahead >= wanted and not packets.refreshed(number):
        way = _IN_SLOT
        if in_wide:
            way = _IN_WIDE_SLOT
            wide = table.next_wide(counters)
        elif nbytes > channels.ROOM:
            way = _LONG
    return way, wide


def make_all_threads(scope: Scope, open_rest: Callable) -> SimpleNamespace:
    """For one scope, all of whose threads call it together.

    Args:
        open_rest: (ctx, word0, peer_tag, length, address, row, remote, number) -> handle: goes on
            with what ``draw`` has returned.
    """
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    sync = scope.sync
    shares = shares_of(scope)
    sync_or = scope.sync_or
    broadcast_5 = scope.broadcast_5

    # long: what is read once stays in registers to the end
    @device
    def send(ctx, word0, peer_tag, nbytes, address):
        """The handle of a send in one piece; PROXIED_ROAD: its channel is none of ours."""
        key = table.key_of(word0, peer_tag)
        if key == table.NO_KEY:
            return table.without_channel(ctx, word0, peer_tag)
        if not may_go_direct(ctx, word0):
            return PROXIED_ROAD
        row = table.NOBODY
        at = uint32(0)
        remote = 0
        local = 0
        counters = 0
        number = 0
        free = 0
        slot = -1
        draws = False
        if leads():
            found, at, remote, local, counters = table.glance(ctx, key)
            draws = found and gpu.lane_id() == 0
            number, free = gpu.draw_if(
                counters + channels.COUNTER_NUMBER, counters + channels.COUNTER_FREE, draws
            )
            number &= channels.NUMBERS
            if draws and nbytes > channels.WIDE_ROOM:
                likely = slots.guess(ctx)
                slot = likely if slots.take_if_free(ctx, likely) else -1
        sync()  # what other threads wrote to the buffer
        low = 0
        high = 0
        count = packets.count(nbytes) if nbytes <= channels.ROOM else 0
        if rank() < count:
            low, high = packets.load_packet(address, nbytes, rank())
        way = _LEFT
        wide = 0
        if leads():
            row = table.row_seen(draws, at, remote)
            way, wide = _way(nbytes, draws, number, free, local, counters)
            # A receiver that has been told holds a staging buffer. So whoever may have to wait for
            # a slot tells it later.
            if way == _LONG:
                way = _LEFT
                if slot >= 0:
                    packets.write_length(packets.inbox_slot(remote, number), nbytes, number)
                    number |= LENGTH_SENT
            number |= (slot + 1) << SLOT_SHIFT
        row, remote, number, way, wide = broadcast_5(row, remote, number, way, wide)
        if way == _LEFT:
            sync()
            return open_rest(ctx, word0, peer_tag, nbytes, address, row, remote, number)
        place = packets.inbox_slot(remote, number)
        if way == _IN_SLOT:
            mark = packets.mark_of(number) << 32
            packet = rank()
            while packet < count:
                gpu.write_packet(place + packet * PACKET_BYTES, low, high | mark)
                packet += gpu.opaque(size())
                if packet < count:
                    low, high = packets.load_packet(address, nbytes, packet)
        else:
            if rank() == 0:
                packets.write_wide_header(place, nbytes, number, wide)
            if shares(ctx):
                share(ctx, PUT_WIDE, remote + channels.WIDE_SLOT, address, nbytes, wide, 0)
            else:
                packets.put_wide(remote + channels.WIDE_SLOT, address, nbytes, wide, rank(), size())
        sync()  # the buffer is the caller's again
        return slots.error_handle(SUCCESS)

    # long: what is read once stays in registers to the end
    @device
    def take(ctx, handle, looks, leave):
        """As ``one_warp.take``."""
        sync()
        at = 0
        target = SCATTERED
        length = 0
        origin = NO_ORIGIN
        state = 0
        remote = 0
        if leads() and gpu.lane_id() == 0:
            state, at, target, length, origin, remote = claim(ctx, handle)
        at, target, length, origin, state = broadcast_5(at, target, length, origin, state)
        if state & 0xFF == FOREIGN:
            sync()
            return COMPLETED | FAULT | ERR_REQUEST << ERROR_SHIFT, 0, NO_ORIGIN
        if target == SCATTERED:
            sync()
            return state & 0xFF, 0, NO_ORIGIN
        mark = state >> 8
        room = length & rows.LENGTH_MASK
        packet = rank()
        mine = packet > 0 and packet < packets.count(min(room, channels.ROOM))
        low, word = gpu.read_packet(at)
        own_low = 0
        own_word = 0
        if mine:
            own_low, own_word = gpu.read_packet(at + packet * PACKET_BYTES)
        if looks > 1 and leave == 0 and not own.are_noted_besides(handle):
            looks += LOOKS_ALONE
        tried = 1
        while word >> 32 & LOW_32 != mark and tried < looks:
            gpu.spin()
            low, word = gpu.read_packet(at)
            if mine:
                own_low, own_word = gpu.read_packet(at + packet * PACKET_BYTES)
            tried += gpu.opaque(1)
        if not sync_or(1 if word >> 32 & LOW_32 == mark else 0):
            if leave != 0 and leads() and gpu.lane_id() == 0:
                rows.leave(ctx, handle)
            return NOT_YET if leave != 0 else CLAIMED, 0, NO_ORIGIN
        while word >> 32 & LOW_32 != mark:  # others have seen it
            gpu.spin()
            low, word = gpu.read_packet(at)
        nbytes = word & LOW_32
        aborted = 0
        if nbytes == channels.WIDE and low & LOW_32 <= room and not shares(ctx):
            nbytes = low & LOW_32
            wide = packets.wide_slot_of(at, mark >> 1)
            mark = low >> channels.WIDE_LENGTH_BITS & LOW_32
            aborted = packets.take_wide(ctx, wide, target, nbytes, nbytes, mark, packet, size())
        elif nbytes > room or nbytes > channels.ROOM:
            if nbytes == channels.LONG and leads() and gpu.lane_id() == 0:
                begin_long(ctx, handle, low, room)  # the sender waits for it
            sync()
            return CLAIMED, 0, NO_ORIGIN
        else:
            if packet == 0:
                own_low = low
                own_word = word
            count = packets.count(nbytes)
            while packet < count and aborted == 0:
                if own_word >> 32 & LOW_32 != mark:
                    place = at + packet * PACKET_BYTES
                    own_low, own_word, aborted = packets.await_packet(ctx.mapped, place, mark)
                packets.store_packet(target, nbytes, packet, own_low, own_word)
                own_word = 0
                packet += gpu.opaque(size())
        if sync_or(aborted):
            return CLAIMED, 0, NO_ORIGIN
        if leads() and gpu.lane_id() == 0:
            end(ctx, handle, remote)
        return COMPLETED | nbytes, elements_of(length, nbytes), origin

    part = parts_of(scope.name, "gmpi_direct")
    return SimpleNamespace(send=part("send_all", 7, 1, send), take=part("take_all", 6, 3, take))
