"""One round of a direct collective that moves blocks: as ``rounds``, with bytes for each rank.

What reduces has all packets of a number in one thread, as in ``rounds``: with IN_PLACE, a result
lies where bytes for others did. What does not has as many threads side by side as there are ranks:
there, what comes from a rank lies where what went to it did. So each byte that a round stores to
the user's buffer is stored by the thread that has read it before.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct import rounds
from device_lib.direct.rounds import first_word, is_reducing, kind_of, later_word, packets_of
from device_lib.platform.primitives import device, load_8, opaque, write_packet
from gmpi.contract import collectives
from gmpi.contract.wire import PACKET_BYTES

_gives_to = device(collectives.gives_to)
_root_of = device(collectives.root_of)
_takes_from = device(collectives.takes_from)


@device
def gives_to(what, me, ranks):
    """A bit for each rank that bytes of ours go to."""
    return _gives_to(kind_of(what), _root_of(what >> collectives.SIGNATURE_SHIFT), me, ranks)


@device
def takes_from(what, me, ranks):
    """A bit for each rank that bytes come from."""
    return _takes_from(kind_of(what), _root_of(what >> collectives.SIGNATURE_SHIFT), me, ranks)


@device
def stride_out(what, nbytes):
    """From the block for one rank to that for the next; 0: it is the same block."""
    return nbytes if collectives.GIVES_BLOCKS >> kind_of(what) & 1 != 0 else 0


@device
def stride_back(what, nbytes):
    return nbytes if collectives.GETS_BLOCKS >> kind_of(what) & 1 != 0 else 0


@device
def side_by_side(what, ranks, size):
    """log2 of how many threads have a packet of that number, each of other ranks."""
    log = 0
    if not is_reducing(what):
        while 1 << log < ranks and 2 << log <= size:
            log += opaque(1)
    return log


@device
def first_packet(rank, size, log):
    """The calling thread's first one; beyond all, where the threads do not come out even."""
    packet = rank >> log
    return packet if packet < size >> log else collectives.PACKETS


@device
def _put_fours(box, number, what, source, nbytes, packet, step):
    """Stores packets that are full, four of a thread at once; returns its next one."""
    later = later_word(number)
    word = first_word(number, rounds.signature_of(what)) if packet == 0 else later
    apart = step * PACKET_BYTES
    end = (nbytes >> 3) - 3 * step if source & 7 == 0 else 0
    while packet < end:
        begin = source + packet * collectives.PAYLOAD
        a = load_8(begin)
        b = load_8(begin + step * collectives.PAYLOAD)
        c = load_8(begin + 2 * step * collectives.PAYLOAD)
        d = load_8(begin + 3 * step * collectives.PAYLOAD)
        at = box + packet * PACKET_BYTES
        write_packet(at, a, word)
        write_packet(at + apart, b, later)
        write_packet(at + 2 * apart, c, later)
        write_packet(at + 3 * apart, d, later)
        packet += opaque(4 * step)
        word = later
    return packet


# wide: what all threads have read already
@device
def put(row, ranks, number, what, to, wants, source, stride, nbytes, rank, size, fours, inside=0):
    """Stores a round's packets to the inboxes of ranks.

    Args:
        inside: where they are in an inbox.
        to: a bit for each rank to which anything is stored.
        wants: a bit for each that bytes go to; packet 0 goes to all of ``to``.
        source: of the bytes for rank 0; ``stride`` further for each rank.
        fours: whether there may be more than two packets of a thread.
    """
    log = side_by_side(what, ranks, size)
    turn = rounds.turn_of(number, ranks) + inside
    begin = first_packet(rank, size, log)
    step = size >> log
    later = later_word(number)
    peer = rank & (1 << log) - 1
    while peer < ranks:
        if to >> peer & 1 != 0:
            box = load_8(row + collectives.PEERS + peer * 8) + turn
            some = nbytes if wants >> peer & 1 != 0 else 0
            at = source + peer * stride
            packet = begin
            if fours:
                packet = _put_fours(box, number, what, at, some, packet, step)
            count = packets_of(some)
            while packet < count:
                word = later
                if packet == 0:
                    word = first_word(number, rounds.signature_of(what))
                low = rounds.load_packet(at, some, packet)
                write_packet(box + packet * PACKET_BYTES, low, word)
                packet += opaque(step)
        peer += opaque(1 << log)


# wide: what all threads have read already
@device
def take(area, ranks, number, what, takes, target, stride, nbytes, rank, size, looks, fours):
    """Moves what ranks have stored to ``target``, or reduces it, as far as it has come: 1 where a
    packet that the caller has looked for is missing, else 0.

    Args:
        takes: a bit for each rank that bytes come from.
        target: for the bytes of rank 0; ``stride`` further for each rank.
    """
    if is_reducing(what):
        sources = 0
        while takes >> sources & 1 != 0:
            sources += opaque(1)
        if sources == 0:
            return 0
        packet = rank
        if fours:
            missing, packet = rounds.take_four(
                0, sources - 1, area, ranks, number, what, target, nbytes, rank, size, looks
            )
            if missing != 0:
                return 1
        return rounds.take_reduced(
            area, ranks, sources, number, what, target, nbytes, packet, size, looks
        )
    log = side_by_side(what, ranks, size)
    begin = first_packet(rank, size, log)
    step = size >> log
    source = rank & (1 << log) - 1
    missing = 0
    while source < ranks:
        if takes >> source & 1 != 0 and begin < collectives.PACKETS:
            at = target + source * stride
            packet = begin
            if fours:
                missing, packet = rounds.take_four(
                    source, source, area, ranks, number, what, at, nbytes, begin, step, looks
                )
            if missing == 0:
                missing = rounds.take_from(
                    source, area, ranks, number, what, at, nbytes, packet, step, looks
                )
            if missing != 0:
                return 1
        source += opaque(1 << log)
    return 0
