"""Short collectives that move blocks (``gmpi/contract/moves.py``, ROWS), by the leading warp alone.

The same rounds as in ``block_collectives``, which the others of a communicator may be in: only who
moves what differs. One lane stores a packet to one rank, and waits for one of one rank: as many
lanes as there are ranks stand side by side. So no lane waits for memory more often than a block has
packets for it, however many ranks there are. A reduction brings the packets of a number together by
shuffles, in the order of ranks.

All threads of the scope come to two barriers, and the others do nothing else. Whatever is not plain
and short is left to ``block_collectives``, and so is what is wrong, which it refuses.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import rounds
from device_lib.direct.block_collectives import word_of
from device_lib.direct.block_rounds import stride_back, stride_out
from device_lib.direct.collective_waits import AFTER_STORES, NOTHING_DONE
from device_lib.direct.round_waits import LOOKS
from device_lib.direct.rounds import first_word, is_reducing, later_word, packets_of, signature_of
from device_lib.direct.short_reduce import MOST, reduce_alone
from device_lib.direct.telling import make_telling
from device_lib.move.copy import store_payload
from device_lib.move.message import room_in_shared
from device_lib.move.reduce import combine
from device_lib.platform import primitives as gpu
from device_lib.platform.context import DeviceContext, collects_direct, has_direct, sign32
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import device, uint32
from device_lib.platform.scope import ALL_LANES, FULL_WARP, Scope
from gmpi.contract import collectives, moves
from gmpi.contract.constants import DATATYPE_MARK, FIRST_WITH_GAPS, IN_PLACE, SUCCESS
from gmpi.contract.wire import FIRST_MOVING, LOW_32, OP_REDUCE, PACKET_BYTES

_is_shifted = device(moves.is_shifted)
_out_offset = device(moves.out_offset)

SHORT = 512  # bytes of a block
_EACH = 4  # packets of a lane
_NONE = -1


@device
def short_bytes(count, datatype):
    """Bytes of a block; negative: it is none of a short call, or of no plain datatype."""
    plain = (datatype & ~0xFFFF == DATATYPE_MARK) & (datatype & 0xFF < FIRST_WITH_GAPS)
    nbytes = count * (datatype >> 8 & 0xFF)
    return nbytes if plain & (count >= 0) & (count <= SHORT) & (nbytes <= SHORT) else _NONE


@device
def _partners(kind, root, me, ranks):
    """What ``gives_to`` and ``takes_from`` return. Here and below without branches: each takes a
    warp some 30 cycles."""
    everybody = (1 << ranks) - 1
    before = (1 << me) - 1
    at_root = everybody if me == root else 0
    gathers = kind <= collectives.GATHER  # or REDUCE
    scatters = kind == collectives.SCATTER
    scans = (kind == collectives.SCAN) | (kind == collectives.EXSCAN)
    with_us = 1 << me if kind == collectives.SCAN else 0
    gives = everybody & ~before & (with_us | ~(1 << me)) if scans else everybody
    of_root = 1 << (root & FULL_WARP - 1)
    gives = of_root if gathers else gives
    gives = at_root if scatters else gives
    takes = before | with_us if scans else everybody
    takes = at_root if gathers else takes
    takes = of_root if scatters else takes
    return uint32(gives), uint32(takes)


@device
def _sides(kind, root, me, takes, sizes, send, recv):
    """(bytes of a block, negative where the call is not sound; the buffer of the first block that
    goes out, which may be ``recv``, and bytes before it; ranks that bytes are waited for).

    Args:
        takes: ranks that bytes come from.
        sizes: bytes of a block that goes out | bytes of one that comes back << 32.
    """
    sent = sign32(sizes)
    received = sizes >> 32
    scatters = kind == collectives.SCATTER
    silent = scatters & (me != root)  # nothing goes out
    in_place = (send == IN_PLACE) & (not silent)
    both = (not silent) & (not in_place)
    kept = both & scatters & (recv == IN_PLACE)  # the root's own block stays where it is
    wrong = in_place & (scatters | ((kind < collectives.SCATTER) & (me != root)))
    wrong |= both & (not kept) & (takes != 0) & (received != sent)
    nbytes = sent if both else received
    nbytes = _NONE if wrong else nbytes
    shifted = in_place & _is_shifted(kind - collectives.REDUCE + FIRST_MOVING)
    shift = me * nbytes if shifted else 0
    send = recv if in_place else send
    takes = uint32(0) if kept | (nbytes == 0) else takes
    return nbytes, send, shift, takes


@device
def _is_sound(ctx, out, shift, back, send, recv, send_room, recv_room):
    """Whether bytes may be moved from and to buffers; those that none are moved from or to may be
    anything."""
    sound = (out == 0) | ((send != 0) & (send != IN_PLACE) & (send_room >= shift + out))
    sound &= (back == 0) | ((recv != 0) & (recv != IN_PLACE) & (recv_room >= back))
    space = gpu.memory_space(send) if out > 0 else 0
    space |= gpu.memory_space(recv) if back > 0 else 0
    if space != 0:
        sound &= (space == 1) & (_out_offset(back) + out + shift <= room_in_shared(ctx))
    return sound


@device
def _put(box, number, what, source, nbytes, low, packet, step):
    """Stores what one rank gets.

    Args:
        box: our inbox there; 0: there is no such rank.
        low: payload of ``packet``, the caller's first one.
    """
    count = packets_of(nbytes) if box != 0 else 0
    word = first_word(number, signature_of(what)) if packet == 0 else later_word(number)
    gpu.write_packet_if(box + packet * PACKET_BYTES, low, word, packet < count)
    packet += step
    while packet < count:
        low = rounds.load_packet(source, nbytes, packet)
        gpu.write_packet(box + packet * PACKET_BYTES, low, later_word(number))
        packet += gpu.opaque(step)


@device
def _await(at, word):
    """(1 where a packet is missing else 0, its payload)."""
    tried = LOOKS
    low, found = gpu.read_packet(at)
    while found != word:
        tried -= gpu.opaque(1)
        if tried <= 0:
            return 1, low
        gpu.spin()
        low, found = gpu.read_packet(at)
    return 0, low


@device
def _reduced(what, takes, low, first):
    """The reduction of what lanes ``first`` and after it have of the ranks 0 and after it."""
    result = gpu.shuffle(ALL_LANES, low, first)
    source = 1
    while takes >> source & 1 != 0:
        result = combine(what, result, gpu.shuffle(ALL_LANES, low, first + source))
        source += gpu.opaque(1)
    return result


@device
def _take(inbox, number, what, takes, target, nbytes, log):
    """Moves what has come to ``target``, or reduces it: whether any of it is missing.

    Args:
        inbox: of rank 0 in this round.
    """
    lane = gpu.lane_id()
    peer = lane & (1 << log) - 1
    count = packets_of(nbytes)
    wanted = takes >> peer & 1 != 0
    reduces = is_reducing(what)
    keeps = peer == 0 if reduces else wanted
    inbox += peer * collectives.INBOX_BYTES
    target += peer * stride_back(what, nbytes)
    packet = lane >> log
    word = later_word(number)
    if packet == 0:
        word = first_word(number, signature_of(what))
    begin = 0
    while begin < count:
        missing = 0
        low = 0
        if wanted and packet < count:
            missing, low = _await(inbox + packet * PACKET_BYTES, word)
        if gpu.ballot(ALL_LANES, missing != 0) != 0:
            return True
        if reduces:
            low = _reduced(what, takes, low, lane - peer)
        at = packet * collectives.PAYLOAD
        if keeps and at < nbytes:
            store_payload(target + at, low, 0, min(nbytes - at, collectives.PAYLOAD))
        begin += gpu.opaque(FULL_WARP >> log)
        packet += FULL_WARP >> log
        word = later_word(number)
    return False


@device
def _carry_out(ctx, word0, root_op, sizes, send, recv, send_room, recv_room):
    """A call, by a full warp: SUCCESS, NOTHING_DONE or AFTER_STORES."""
    row = rounds.row_of(ctx, word0)
    number, entered = gpu.load_pair_gpu(row + collectives.NUMBER)
    area, where = gpu.load_16(row + collectives.AREA)
    lane = gpu.lane_id()
    box = gpu.load_8(row + collectives.PEERS + lane * 8)
    ranks = where >> collectives.RANKS_SHIFT
    me = where & LOW_32
    if not collects_direct(ctx, word0):
        return NOTHING_DONE
    kind = (word0 & 0xFF) - FIRST_MOVING + collectives.REDUCE
    root = sign32(root_op)
    if kind <= collectives.SCATTER and (root < 0 or root >= ranks):
        return NOTHING_DONE
    gives, takes = _partners(kind, root, me, ranks)
    nbytes, send, shift, takes = _sides(kind, root, me, takes, sizes, send, recv)
    # Lanes side by side, a power of two: their numbers are these bits of a lane's.
    side = gpu.ballot(ALL_LANES, 1 << lane < ranks)
    log = gpu.first_bit(side + 1)
    if nbytes < 0 or packets_of(nbytes) << log > _EACH * FULL_WARP:
        return NOTHING_DONE
    what = word_of(word0, root_op, nbytes)
    if what == collectives.NOT_OURS:
        return NOTHING_DONE
    nbytes = uint32(nbytes)
    stride = uint32(stride_out(what, nbytes))
    everything = uint32(nbytes * uint32(ranks))
    out = nbytes if stride == 0 else everything
    out = uint32(0) if (kind == collectives.SCATTER) & (me != root) else out
    back = nbytes if stride_back(what, nbytes) == 0 else everything
    back = back if takes != 0 else uint32(0)
    if not _is_sound(ctx, out, shift, back, send, recv, send_room, recv_room):
        return NOTHING_DONE
    peer = uint32(lane & side)
    packet = uint32(lane >> log)
    some = nbytes if gives >> peer & 1 != 0 else uint32(0)
    source = send + shift + peer * stride
    low = rounds.load_packet(source, some, packet)
    turn = rounds.turn_of(number, ranks)
    box = gpu.shuffle(ALL_LANES, box, peer)
    if entered != number:
        missing = rounds.missing_of_last(row, area, ranks, number, entered, lane, FULL_WARP, LOOKS)
        if gpu.ballot(ALL_LANES, missing != 0) != 0:
            return NOTHING_DONE
    box = box + turn if peer < ranks else 0
    _put(box, number, what, source, some, low, packet, FULL_WARP >> log)
    gpu.sync_warp(ALL_LANES)  # a result may fall on what other lanes have just read
    if takes != 0 and _take(area + turn, number, what, takes, recv, nbytes, log):
        return AFTER_STORES
    gpu.store_gpu_if(row + collectives.SIGNATURE, signature_of(what), lane == 0)
    known = number + 1
    if takes != uint32((1 << ranks) - 1):
        late = rounds.missing_soon(area, ranks, number, what, lane, FULL_WARP)
        known = number if gpu.ballot(ALL_LANES, late != 0) != 0 else known
    gpu.store_pair_gpu_if(row + collectives.NUMBER, number + 1, known, lane == 0)
    return SUCCESS


def make_short_blocks(scope: Scope) -> SimpleNamespace:
    """For one scope, all of whose threads call it.

    ``may_be``: (ctx, bytes of a block that goes out, of one that comes back, as ``short_bytes`` has
    them) -> whether a call is for ``carry_out``: (ctx, word0 as ``open_blocks`` has it with the
    datatype of what goes out, root and reduction, both sizes, addresses and bytes of both buffers)
    -> SUCCESS; NOTHING_DONE or AFTER_STORES: the rest is for ``block_collectives``.
    """
    leads = scope.leads
    leading_lanes = scope.leading_lanes
    sync_full = scope.sync_full
    told, follow = make_telling(scope)
    part = parts_of(scope.name, "gmpi_direct")

    def by_warp(body: Callable) -> Callable:
        """
        Args:
            body: ``_carry_out``, or ``reduce_alone``, for which a size is that of the vector.
        """

        # wide: what a call says
        @device
        def call(memory, shape, word0, root_op, sizes, send, recv, send_room, recv_room):
            ctx = DeviceContext(0, memory, shape, 0)
            sync_full()
            return told(body(ctx, word0, root_op, sizes, send, recv, send_room, recv_room))

        return call

    linked = part("blocks_alone", 9, 1, by_warp(_carry_out))
    reduce_linked = part("reduce_alone", 9, 1, by_warp(reduce_alone))

    @device
    def may_be(ctx, sent, received):
        full = leading_lanes() >= FULL_WARP
        return (has_direct(ctx) != 0) & full & ((sent >= 0) | (received >= 0))

    # wide: what a call says
    @device
    def carry_out(ctx, word0, root_op, sent, received, send, recv, send_room, recv_room):
        if leads():
            if word0 & 0xFF == OP_REDUCE and sent > 0 and sent <= MOST:
                return reduce_linked(
                    ctx.device, ctx.shape, word0, root_op, sent, send, recv, send_room, recv_room
                )
            sizes = sent & LOW_32 | received << 32
            return linked(
                ctx.device, ctx.shape, word0, root_op, sizes, send, recv, send_room, recv_room
            )
        return follow()

    return SimpleNamespace(may_be=may_be, carry_out=carry_out)
