"""The direct road's quick way: what a short message between two ready ends goes through.

Written for latency. Of what memory is asked, everything that can be is under way together, and no
fence is on the way: what is read was stored in one piece, or has been there since the channel was
opened. What is not as expected (no channel yet, no credit, a long message, a derived datatype,
nobody there for a while) is left to ``requests``.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import cells, packets, rows, table
from device_lib.platform.context import row_address
from device_lib.platform.divide import divide_wide
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import (
    SIMULATOR,
    ballot,
    device,
    first_bit,
    lane_id,
    load_8,
    load_gpu,
    opaque,
    read_packet,
    shuffle,
    spin,
    write_packet,
)
from device_lib.platform.scope import Scope, warp_lanes, warp_mask
from device_lib.proxied import slots
from device_lib.proxied.closing import COMPLETED, FAULT, NO_ORIGIN
from gmpi.contract.channels import (
    DEPTH,
    KEY_PEER_SHIFT,
    KEY_PEERS,
    KEY_RECEIVES_SHIFT,
    KEY_TAG_MASK,
    LONG,
    NUMBERS,
    ROOM,
    ROW_KEY,
    ROW_LOCAL,
    ROW_REMOTE,
)
from gmpi.contract.constants import ERR_REQUEST, SUCCESS, UNDEFINED
from gmpi.contract.wire import (
    CALL_MASK,
    CALL_SHIFT,
    DATATYPE_SHIFT,
    ERROR_SHIFT,
    LOW_32,
    PACKET_BYTES,
    SCATTERED,
)

PROXIED_ROAD = 0  # in place of a handle: the call goes by the proxy

NOT_YET = 0  # in place of COMPLETED: nobody has the request
CLAIMED = 1  # the same: it is ours, and nothing has been done for it
RESUMED = 2  # the same: somebody has gone on with it

LOOKS = 2 if SIMULATOR else 64  # for a message, before others' requests are thought of


@device
def peer_tag_of(key):
    """Peer and tag of a channel, as ``origin`` has them."""
    return key >> KEY_PEER_SHIFT & (KEY_PEERS - 1) | (key & KEY_TAG_MASK) << 32


@device
def length_word(word0, length, type_row):
    """LENGTH of a request's row."""
    kind = word0 >> DATATYPE_SHIFT & 0xFFFF
    if type_row != 0:
        kind = 0  # the layout has it
    return length | kind << rows.LENGTH_BITS


@device
def in_elements(nbytes, itemsize):
    """How many elements so many bytes are (MPI_Get_count)."""
    if itemsize & itemsize - 1 == 0:  # nearly always; a division takes 0.1 us
        shift = first_bit(itemsize)
        count = nbytes >> shift
        rest = nbytes - (count << shift)
    else:
        count, rest = divide_wide(nbytes, itemsize)
    return UNDEFINED if rest != 0 or count > 0x7FFFFFFF else count


@device
def elements_of(length, nbytes):
    """The same by LENGTH of a request's row, of a basic datatype."""
    if nbytes == 0:
        return 0
    return in_elements(nbytes, length >> rows.LENGTH_BITS + 8 & 0xFF)


@device
def call_of(word0):
    return word0 >> CALL_SHIFT & CALL_MASK


@device
def draw(ctx, key, wanted):
    """(row of the channel, where the other end is, number of the message, whether its slot is
    free); all lanes of a warp, the values in lane 0.

    The number is drawn only on the direct road.

    Args:
        wanted: whether to ask for a free slot.
    """
    row = table.NOBODY
    remote = 0
    local = 0
    number = 0
    free = 0
    if lane_id() == 0:
        row, remote, local = table.look_up(ctx, key)
        if table.is_direct(remote):
            number = table.next_number(ctx, row)
            free = table.known_free(ctx, row)
    if wanted == 0:
        return row, remote, number, 0
    mask = warp_mask()
    known = 1
    if lane_id() == 0 and table.is_direct(remote):
        ahead = (free - number) & NUMBERS
        known = 1 if ahead > 0 and ahead <= DEPTH else 0
    known = shuffle(mask, known, 0)
    if known != 0:
        return row, remote, number, 1
    # All credits at once, each by a lane: the next messages need not ask.
    local = shuffle(mask, local, 0)
    number = shuffle(mask, number, 0)
    lane = lane_id()
    credit = False
    if lane < DEPTH:
        credit = cells.has_credit(local, (number + lane) & NUMBERS)
    ahead = first_bit(~ballot(mask, credit) & LOW_32 | 1 << min(DEPTH, warp_lanes()))
    if lane == 0 and ahead > 0:
        table.set_known_free(ctx, row, (number + ahead) & NUMBERS)
    return row, remote, number, 1 if ahead > 0 else 0


def make_short(scope: Scope, open_rest: Callable) -> SimpleNamespace:
    """The quick way for one scope, all of whose threads call it together.

    Args:
        open_rest: (ctx, word0, peer_tag, length, address, row, remote, number) -> handle: goes on
            with what ``draw`` has returned.
    """
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    sync = scope.sync
    sync_or = scope.sync_or
    broadcast_5 = scope.broadcast_5

    @device
    def send(ctx, word0, peer_tag, nbytes, address):
        """The handle of a send in one piece; PROXIED_ROAD: its channel is none of ours."""
        key = table.key_of(word0, peer_tag)
        if key == table.NO_KEY:
            return PROXIED_ROAD
        sync()  # what other threads wrote to the buffer
        low = 0
        high = 0
        count = packets.count(nbytes) if nbytes <= ROOM else 0
        if rank() < count:
            low, high = packets.load_packet(address, nbytes, rank())
        row = table.NOBODY
        remote = 0
        number = 0
        ready = 0
        if leads():
            row, remote, number, ready = draw(ctx, key, count)
        row, remote, number, ready, unused = broadcast_5(row, remote, number, ready, 0)
        if ready == 0 or not table.is_direct(remote):
            sync()
            return open_rest(ctx, word0, peer_tag, nbytes, address, row, remote, number)
        at = packets.inbox_slot(remote, number)
        if packets.refreshed(number):
            packets.put_packets(at, address, nbytes, number, rank(), size())
        else:
            mark = packets.mark_of(number) << 32
            packet = rank()
            while packet < count:
                write_packet(at + packet * PACKET_BYTES, low, high | mark)
                packet += opaque(size())
                if packet < count:
                    low, high = packets.load_packet(address, nbytes, packet)
        sync()  # the buffer is the caller's again
        return slots.error_handle(SUCCESS)

    @device
    def post(ctx, word0, peer_tag, room, address):
        """The handle of a receive in one piece; PROXIED_ROAD as ``send``."""
        key = table.key_of(word0, peer_tag)
        if key == table.NO_KEY:
            return PROXIED_ROAD
        sync()  # what other threads still read from the buffer
        handle = 0
        row = table.NOBODY
        remote = 0
        number = 0
        if leads() and lane_id() == 0:
            row, remote, local = table.look_up(ctx, key)
            if table.is_direct(remote):
                slot = slots.guess(ctx)
                number = table.next_number(ctx, row)
                before = slots.take_bit(ctx, slot)
                if slots.was_free(slot, before):
                    handle = rows.direct_handle(ctx, slot, number)
                    length = length_word(word0, room, 0)
                    rows.open_row(ctx, slot, handle, address, row, call_of(word0), length)
        handle, row, remote, number, unused = broadcast_5(handle, row, remote, number, 0)
        sync()
        if handle != 0:
            return handle
        return open_rest(ctx, word0, peer_tag, room, address, row, remote, number)

    # long: what is read once stays in registers to the end
    @device
    def take(ctx, handle, looks, leave):
        """Waits a little for a short message in one piece: (outcome, count, origin).

        Args:
            looks: how often to look.
            leave: whether to give the claim back where it has not come.

        Returns:
            outcome COMPLETED; NOT_YET: it has been left; CLAIMED or RESUMED: the rest is for the
            slow way.
        """
        sync()
        slot = slots.slot_of(handle)
        at = 0
        target = SCATTERED
        length = 0
        origin = NO_ORIGIN
        state = 0
        remote = 0
        if leads() and lane_id() == 0:
            claimed = rows.claim(ctx, handle, slots.CLAIMED)
            while claimed == rows.BUSY:
                spin()
                claimed = rows.claim(ctx, handle, slots.CLAIMED)
            if claimed == rows.MINE:
                row = row_address(ctx, slot)
                length = load_gpu(row + rows.LENGTH)
                target, stamp = read_packet(row + rows.ADDRESS)
                channel = table.row_of(ctx, stamp >> 32 & rows.INDEX_MASK)
                key = load_8(channel + ROW_KEY)
                remote = load_8(channel + ROW_REMOTE)
                origin = peer_tag_of(key)
                number = stamp >> 1 & NUMBERS
                inbox = load_8(channel + ROW_LOCAL)
                at = packets.inbox_slot(inbox, number)
                state = packets.mark_of(number) << 8 | rows.MINE
                receives = key >> KEY_RECEIVES_SHIFT & 1
                if receives == 0 or length >> rows.LENGTH_BITS + 8 & 0xFF == 0:
                    target = SCATTERED
            else:
                state = claimed
        at, target, length, origin, state = broadcast_5(at, target, length, origin, state)
        if state & 0xFF == rows.FOREIGN:
            sync()
            return COMPLETED | FAULT | ERR_REQUEST << ERROR_SHIFT, 0, NO_ORIGIN
        if state & 0xFF == rows.RESUMED:
            sync()
            return RESUMED, 0, NO_ORIGIN
        if target == SCATTERED:
            sync()
            return CLAIMED, 0, NO_ORIGIN
        mark = state >> 8
        room = length & rows.LENGTH_MASK
        packet = rank()
        mine = packet > 0 and packet < packets.count(min(room, ROOM))
        low, word = read_packet(at)
        own_low = 0
        own_word = 0
        if mine:
            own_low, own_word = read_packet(at + packet * PACKET_BYTES)
        tried = 1
        while word >> 32 & LOW_32 != mark and tried < looks:
            spin()
            low, word = read_packet(at)
            if mine:
                own_low, own_word = read_packet(at + packet * PACKET_BYTES)
            tried += opaque(1)
        if not sync_or(1 if word >> 32 & LOW_32 == mark else 0):
            if leave != 0 and leads() and lane_id() == 0:
                rows.leave(ctx, handle)
            return NOT_YET if leave != 0 else CLAIMED, 0, NO_ORIGIN
        while word >> 32 & LOW_32 != mark:  # others have seen it
            spin()
            low, word = read_packet(at)
        nbytes = word & LOW_32
        if nbytes > room or nbytes == LONG:
            sync()
            return CLAIMED, 0, NO_ORIGIN
        number = mark >> 1
        if packet == 0:
            own_low = low
            own_word = word
        aborted = 0
        count = packets.packets_to_take(number, nbytes)
        while packet < count and aborted == 0:
            if own_word >> 32 & LOW_32 != mark:
                place = at + packet * PACKET_BYTES
                own_low, own_word, aborted = packets.await_packet(ctx.mapped, place, mark)
            packets.store_packet(target, nbytes, packet, own_low, own_word)
            own_word = 0
            packet += opaque(size())
        if sync_or(aborted):
            return CLAIMED, 0, NO_ORIGIN
        if leads() and lane_id() == 0:
            cells.give_back(remote, number, False)
            rows.close_row(ctx, handle)
        return COMPLETED | nbytes, elements_of(length, nbytes), origin

    part = parts_of(scope.name, "gmpi_direct")

    return SimpleNamespace(
        send=part("send", 7, 1, send),
        post=part("post", 7, 1, post),
        take=part("take", 6, 3, take),
    )
