"""Messages that are too large for a slot: in the wide slot, moved by all threads. And what comes to
data with gaps, from either: by way of a staging buffer.

As ``one_warp``: the leading warp carries out the call. The others wait at a barrier of the user's
kernel, read what is to be moved from shared memory, and meet again when it has been. They run
through nothing else: of a block of 1024 threads, an instruction of all warps takes as long as eight
of one warp. What is longer than the wide slot, or not as expected, is left to ``requests``.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from types import SimpleNamespace

from device_lib.direct import own, packets, rows, staging, table
from device_lib.direct.announcing import begin_long, was_in_vain
from device_lib.direct.claims import CLAIMED, LOST
from device_lib.direct.grid_commands import others_move, store_straight
from device_lib.direct.long_moves import tell_pushed
from device_lib.direct.telling import make_tell
from device_lib.direct.warp_messages import (
    ANY,
    TAKEN,
    draw_send,
    make_take,
    number_of,
)
from device_lib.direct.wide_looks import (
    IN_WIDE_SLOT,
    LONG,
    ask_for_wide,
    await_pushed,
    look_for_place,
    way_of,
)
from device_lib.direct.words import call_of, elements, elements_of
from device_lib.move.copy import copy_to_staging
from device_lib.move.layouts import layout_of, unpack_layout
from device_lib.move.mailbox import put_mail, take_mail
from device_lib.move.message import size_of
from device_lib.platform import primitives as gpu
from device_lib.platform.context import leads_grid
from device_lib.platform.library import parts_of as functions_of
from device_lib.platform.primitives import device, int64, uint32
from device_lib.platform.scope import ALL_LANES, FULL_WARP, Scope
from device_lib.proxied import slots
from device_lib.proxied.closing import COMPLETED, NO_ORIGIN
from gmpi.contract import channels
from gmpi.contract.constants import SUCCESS
from gmpi.contract.layouts import LAYOUT_RECV
from gmpi.contract.wire import BLOCKING, CALL_SHIFT, LOW_32, READY_BLOCKING, SCATTERED

# Beside the number of a message that is left to ``requests``:
LENGTH_SENT = 1 << 32
SLOT_SHIFT = 33  # the request's slot + 1, where there is one

# What has become of a receive, in place of TAKEN or CLAIMED: the message is in the wide slot, or it
# goes to data with gaps from the wide slot or from its own, and all threads know that they have to
# move it.
_COMES = 6
_CUT_OFF = 7
_COMES_SCATTERED = 8
_SPREAD = 9  # as TAKEN, and the number of its elements comes in place of LENGTH

_TO_USER = -1  # in place of ``mail_word``: to the user's buffer, which has been announced


@device
def _blocks(word0):
    """Whether a send is one of a call that returns when its message has gone."""
    call = call_of(word0)
    return (call == BLOCKING >> CALL_SHIFT) | (call == READY_BLOCKING >> CALL_SHIFT)


def make_wide_messages(scope: Scope) -> SimpleNamespace:
    """For one scope, whose leading warp is full, and all of whose threads call it together."""
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    leading_lanes = scope.leading_lanes
    sync_full = scope.sync_full
    sync_full_or = scope.sync_full_or
    put_row = scope.put_row
    get_row = scope.get_row
    put_4 = scope.put_4
    get_4 = scope.get_4
    part = functions_of(scope.name, "gmpi_direct")
    tell = make_tell(scope)

    # --- sends ------------------------------------------------------------------------------------

    @device
    def carry(address, nbytes, handle, word, place, number):
        """Has a message moved that is not left: all threads, with what the leading warp has put.

        Args:
            word: ``mail_word``, or _TO_USER.
            place: 0: other blocks have moved it.
            number: of a message for the user's buffer, the bytes that are wanted.
        """
        sync_full()  # that is there
        handle, word, place, number = get_4(handle, word, place, number)
        if place != 0 and handle != 0:
            if word == _TO_USER:
                copy_to_staging(place, address, number, int64(rank()), int64(size()))
            else:
                put_mail(place, address, nbytes, word, int64(rank()), int64(size()))
        sync_full()  # the buffer is the caller's again
        return handle, word, place, number

    @device
    def moved_by_others(ctx, place, wanted, address, at, mark):
        """(place of a message, ``wanted``), both 0 where it goes to the user's buffer: the other
        blocks have moved it, and the receiver knows. The leading warp, whose lane 0 has the rest.
        """
        nbytes = gpu.shuffle(ALL_LANES, wanted, 0)
        if nbytes == 0:
            return place, wanted
        to = gpu.shuffle(ALL_LANES, place, 0)
        if store_straight(ctx, to, address, nbytes) == 0 and gpu.lane_id() == 0:
            tell_pushed(at, nbytes, mark)
        return 0, 0

    @device
    def send_by_leader(ctx, word0, peer_tag, count, address):
        """(handle, row, where the other end is, number with LENGTH_SENT and a slot beside it);
        handle 0: left to ``requests``."""
        sound, _, road, draws, at, remote, local, counters, number, free = draw_send(
            ctx, word0, peer_tag, count
        )
        nbytes = count * size_of(word0) if sound else 0
        wide, credit = ask_for_wide(ctx, nbytes, draws, local, counters)
        number &= channels.NUMBERS
        slot = int64(-1)
        if draws and nbytes > channels.WIDE_ROOM:
            likely = slots.guess(ctx)
            slot = likely if slots.take_if_free(ctx, likely) else -1
        way = way_of(nbytes, draws, number, free, local, counters, credit)
        handle = 0
        wanted = 0  # by who has announced the user's buffer
        place = 0
        told_at = 0
        mark = 0
        row = table.row_left(sound, road, draws, at, remote)
        if way == IN_WIDE_SLOT:
            slot_too = packets.inbox_slot(remote, number)
            packets.write_wide_header(slot_too, nbytes, number, wide)
            handle = slots.error_handle(SUCCESS)
            row = packets.wide_mail(nbytes, packets.mark_of(wide))
            remote += channels.WIDE_SLOT
        else:
            # A receiver that has been told holds a staging buffer. So whoever may have to wait for
            # a slot tells it later.
            if way == LONG and slot >= 0:
                told_at = packets.inbox_slot(remote, number)
                packets.write_length(told_at, nbytes, number)
                if leads_grid(ctx) == 0 or others_move(ctx):  # few blocks move it together
                    wanted, place = look_for_place(ctx, local, number, nbytes, _blocks(word0))
                if wanted > 0:
                    slots.release(ctx, slot)
                    handle = slots.error_handle(SUCCESS)
                    row = _TO_USER
                    remote += place
                    mark = packets.mark_of(number)
                    number = wanted
                else:
                    number |= LENGTH_SENT
            if wanted == 0:
                number |= (slot + 1) << SLOT_SHIFT
        sync_full()  # what other threads wrote to the buffer; and before ``put_4``
        if others_move(ctx):
            remote, wanted = moved_by_others(ctx, remote, wanted, address, told_at, mark)
        put_4(handle, row, remote, number)
        handle, row, remote, number = carry(address, nbytes, handle, row, remote, number)
        if wanted > 0:
            tell_pushed(told_at, wanted, mark)
        return handle, row, remote, number

    send_linked = part("send_wide", 7, 4, send_by_leader)

    @device
    def send(ctx, word0, peer_tag, count, nbytes, address):
        """(handle, row, where the other end is, number), as ``send_by_leader``."""
        if leads():
            return send_linked(ctx, word0, peer_tag, count, address)
        sync_full()
        return carry(address, nbytes, 0, 0, 0, 0)

    # --- receives ---------------------------------------------------------------------------------

    @device
    def move(ctx, target, place, nbytes, word):
        """Whether a message has been moved to the user's buffer, by all threads; not where waits
        were aborted."""
        aborted = take_mail(ctx, place, target, nbytes, word, int64(rank()), int64(size()))
        return not sync_full_or(aborted)

    @device
    def spread_by_all(ctx, handle, packed, place, nbytes, mail):
        """The same, 1 or 0, to data with gaps, by way of a staging buffer at ``packed``.

        Args:
            place: of the message in the wide slot, or its own slot.
            mail: ``mail_word``; of a message in its own slot 0.
        """
        if mail != 0:
            aborted = take_mail(ctx, place, packed, nbytes, mail, int64(rank()), int64(size()))
        else:
            number = int64(number_of(handle))
            aborted = packets.take_packets(
                ctx, place, packed, nbytes, nbytes, number, int64(rank()), int64(size())
            )
        if sync_full_or(aborted):
            return 0
        layout = layout_of(ctx, slots.slot_of(handle), LAYOUT_RECV)
        unpack_layout(layout, packed, 0, nbytes, rank(), size())
        sync_full()  # the staging buffer and the row are others' again
        return 1

    # Called, for its length: what ``follow`` has stands in the user's kernel once for each wait.
    spread = part("spread", 8, 1, spread_by_all)

    # wide: as ``warp_messages.make_take`` says
    @device
    def take_scattered(ctx, handle, length, origin, credit, slot, mark, nbytes, total, mail):
        """``take_beyond`` to data with gaps.

        Args:
            nbytes, total: what the first packet says, and how long the message is.
            mail: what its packets in the wide slot carry.
        """
        place = slot
        if nbytes == uint32(channels.WIDE):
            place = packets.wide_slot_of(slot, int64(mark >> 1))
        else:
            mail = 0
        taken = int64(-1)
        if total != 0:
            if gpu.lane_id() == 0:
                taken = staging.take(ctx)
            taken = gpu.shuffle(ALL_LANES, taken, 0)
        if taken < 0:
            tell(CLAIMED, 0, 0, NO_ORIGIN)
            return CLAIMED, 0, 0, NO_ORIGIN
        packed = staging.address_of(ctx, taken)
        count = elements(ctx, slots.slot_of(handle), length, total)
        put_row(gpu.lane_id(), place, packed, mail)
        tell(_COMES_SCATTERED, total, count, origin)
        if spread(ctx, handle, packed, place, total, mail) == 0:
            return _CUT_OFF, 0, 0, NO_ORIGIN
        if gpu.lane_id() == 0:
            staging.give_back(ctx, taken, 0)
        rows.close_taken(ctx, handle, credit, int64(mark) << 32, gpu.lane_id() == 0)
        return _SPREAD, total, count, origin

    # wide: as ``warp_messages.make_take`` says
    @device
    def take_beyond(ctx, handle, target, length, origin, credit, slot, mark, nbytes, found, waits):
        room = length & rows.LENGTH_MASK
        low = gpu.shuffle(ALL_LANES, found[0], 0)
        if nbytes == uint32(channels.LONG):
            before = mark >> 1 & channels.DEPTH - 1
            sender = credit - before * channels.CELL_BYTES
            inbox = slot - before * channels.INBOX_SLOT_BYTES
            straight = begin_long(ctx, handle, target, length, low, sender, inbox)
            if straight and low <= room and await_pushed(handle, slot, mark, low, waits):
                tell(TAKEN, low, length, origin)
                rows.close_taken(ctx, handle, credit, int64(mark) << 32, gpu.lane_id() == 0)
                return TAKEN, low, length, origin
        total = low & LOW_32
        mail = packets.wide_mail(total, low >> channels.WIDE_LENGTH_BITS & LOW_32)
        if nbytes < uint32(channels.ALL_OF_IT):
            total = int64(nbytes)
        elif nbytes != uint32(channels.WIDE):
            total = room + 1
        if total > room:
            tell(CLAIMED, 0, 0, NO_ORIGIN)
            return CLAIMED, 0, 0, NO_ORIGIN
        if target == SCATTERED:
            return take_scattered(
                ctx, handle, length, origin, credit, slot, mark, nbytes, total, mail
            )
        place = packets.wide_slot_of(slot, int64(mark >> 1))
        put_row(gpu.lane_id(), place, target, mail)
        tell(_COMES, total, length, origin)
        if not move(ctx, target, place, total, mail):
            return _CUT_OFF, 0, 0, NO_ORIGIN
        if gpu.lane_id() == 0:
            was_in_vain(length)
        rows.close_taken(ctx, handle, credit, int64(mark) << 32, gpu.lane_id() == 0)
        return _COMES, total, length, origin

    take_alone = make_take(ANY, tell, take_beyond)

    @device
    def take_by_leader(ctx, handle, looks, leave):
        """(what has become of it, bytes, LENGTH or elements, origin) of a receive."""
        sync_full()  # before ``put_4``
        state, nbytes, length, origin = take_alone(ctx, handle, looks, leave)
        if state == TAKEN or state == _COMES or state == _SPREAD:
            own.forget_by_lanes(handle)
        if state == _COMES:
            state = TAKEN
        elif state == _CUT_OFF:
            state = CLAIMED
        return state, nbytes, length, origin

    @device
    def follow(ctx, handle):
        """The same, in the other warps."""
        sync_full()
        sync_full()
        state, nbytes, length, origin = get_4(0, 0, 0, 0)
        if state == _COMES:
            place, target, mail = get_row(0, 0, 0, 0)
            state = TAKEN if move(ctx, target, place, nbytes, mail) else CLAIMED
        elif state == _COMES_SCATTERED:
            place, packed, mail = get_row(0, 0, 0, 0)
            done = spread(ctx, handle, packed, place, nbytes, mail)
            state = _SPREAD if done != 0 else CLAIMED
        return state, nbytes, length, origin

    take_linked = part("take_wide", 6, 4, take_by_leader)

    @device
    def take(ctx, handle, looks, leave):
        """Waits a little for a message: (outcome, count, origin), as ``one_warp.take``."""
        if leading_lanes() < FULL_WARP:
            return LOST, 0, NO_ORIGIN  # for the slow way, as if somebody else had it
        if leads():
            state, nbytes, length, origin = take_linked(ctx, handle, looks, leave)
        else:
            state, nbytes, length, origin = follow(ctx, handle)
        if state == TAKEN:
            return COMPLETED | nbytes, elements_of(length, nbytes), origin
        if state == _SPREAD:
            return COMPLETED | nbytes, length, origin
        return state, 0, NO_ORIGIN

    return SimpleNamespace(send=send, take=take)
