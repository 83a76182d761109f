"""One round of a direct collective: what is stored to the other ranks, and what is read of theirs.

All threads of a scope call these, each for the packets that are its own. Nothing needs a fence: a
packet says itself that it has come. What is read is stored by the thread that reads it, so it may
be read again: a wait that takes long begins anew.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.move.copy import load_payload, store_payload
from device_lib.move.reduce import combine
from device_lib.platform import primitives as gpu
from device_lib.platform.primitives import device
from gmpi.contract import collectives
from gmpi.contract.wire import (
    COLLECTIVE_ROW_BYTES,
    COMMUNICATORS,
    DEVICE_COLLECTIVES,
    PACKET_BYTES,
)

kind_of = device(collectives.kind_of)
packets_of = device(collectives.packets_of_round)
first_word = device(collectives.first_word)
later_word = device(collectives.later_word)
NOBODY = -1
# Looks for the packets of a round that a call does not need. Mostly they come within a microsecond,
# since all ranks call at the same time; then the next call need not look for them first.
_A_MOMENT = 1 if gpu.SIMULATOR else 4


@device
def row_of(ctx, what):
    """The row of a call's communicator."""
    comm = what >> collectives.COMM_SHIFT & (COMMUNICATORS - 1)
    return ctx.device + DEVICE_COLLECTIVES + comm * COLLECTIVE_ROW_BYTES


@device
def signature_of(what):
    return what >> collectives.SIGNATURE_SHIFT


@device
def is_reducing(what):
    return collectives.REDUCING >> kind_of(what) & 1 != 0


@device
def turn_of(number, ranks):
    """Where the inboxes of a round begin, relative to those of even rounds."""
    return (number & 1) * ranks * collectives.INBOX_BYTES


@device
def load_packet(source, nbytes, packet):
    """The payload of a packet of a round of ``nbytes``."""
    begin = packet * collectives.PAYLOAD
    low = 0
    if begin < nbytes:
        low, high = load_payload(source + begin, min(nbytes - begin, collectives.PAYLOAD))
    return low


# wide: what all threads have read already
@device
def put(row, ranks, number, what, source, nbytes, alone, rank, size, low, peers, inside=0):
    """Stores a round's packets to the inboxes of all ranks.

    Args:
        inside: where they are in an inbox.
        alone: a rank to which only packet 0 is stored; NOBODY: there is none.
        low: payload of packet ``rank``.
        peers: where our inboxes are on ranks 0 and 1.
    """
    turn = turn_of(number, ranks) + inside
    count = packets_of(nbytes)
    packet = rank
    word = later_word(number)
    if packet == 0:
        word = first_word(number, signature_of(what))
    while packet < count:
        at = turn + packet * PACKET_BYTES
        if alone != 0 or packet == 0:
            gpu.write_packet(peers[0] + at, low, word)
        if ranks > 1 and (alone != 1 or packet == 0):
            gpu.write_packet(peers[1] + at, low, word)
        peer = 2
        while peer < ranks:
            if alone != peer or packet == 0:
                gpu.write_packet(gpu.load_8(row + collectives.PEERS + peer * 8) + at, low, word)
            peer += gpu.opaque(1)
        packet += gpu.opaque(size)
        word = later_word(number)
        low = load_packet(source, nbytes, packet)


# wide: what all threads have read already
@device
def put_four(row, ranks, number, what, source, nbytes, alone, rank, size):
    """The same of packets that are full, four of a thread at once; returns its next one."""
    turn = turn_of(number, ranks)
    later = later_word(number)
    word = first_word(number, signature_of(what)) if rank == 0 else later
    packet = rank
    step = size * PACKET_BYTES
    end = (nbytes >> 3) - 3 * size if source & 7 == 0 else 0
    while packet < end:
        begin = source + packet * collectives.PAYLOAD
        a = gpu.load_8(begin)
        b = gpu.load_8(begin + size * collectives.PAYLOAD)
        c = gpu.load_8(begin + 2 * size * collectives.PAYLOAD)
        d = gpu.load_8(begin + 3 * size * collectives.PAYLOAD)
        peer = 0
        while peer < ranks:
            at = gpu.load_8(row + collectives.PEERS + peer * 8) + turn + packet * PACKET_BYTES
            if alone != peer or packet == 0:
                gpu.write_packet(at, a, word)
            if alone != peer:
                gpu.write_packet(at + step, b, later)
                gpu.write_packet(at + 2 * step, c, later)
                gpu.write_packet(at + 3 * step, d, later)
            peer += gpu.opaque(1)
        packet += gpu.opaque(4 * size)
        word = later
    return packet


@device
def put_entered(row, ranks, number, what, rank, size, low=0):
    """Stores packet 0 of a round, without payload but for ``low``, to all ranks."""
    word = first_word(number, signature_of(what))
    turn = turn_of(number, ranks)
    peer = rank
    while peer < ranks:
        gpu.write_packet(gpu.load_8(row + collectives.PEERS + peer * 8) + turn, low, word)
        peer += gpu.opaque(size)


@device
def missing_of_entered(area, ranks, number, signature, rank, size, looks):
    """1 where packet 0 of a round has not come from a rank that the caller has looked for, else
    0."""
    word = first_word(number, signature)
    at = area + turn_of(number, ranks)
    peer = rank
    while peer < ranks:
        tried = looks
        low, found = gpu.read_packet(at + peer * collectives.INBOX_BYTES)
        while found != word:
            tried -= gpu.opaque(1)
            if tried <= 0:
                return 1
            gpu.spin()
            low, found = gpu.read_packet(at + peer * collectives.INBOX_BYTES)
        peer += gpu.opaque(size)
    return 0


@device
def missing_of_last(row, area, ranks, number, entered, rank, size, looks):
    """The same of the round before, where nobody knows so far whether all have entered it
    (``entered`` is not ``number``)."""
    if entered < 0:
        return 1
    signature = gpu.load_gpu(row + collectives.SIGNATURE)
    return missing_of_entered(area, ranks, number - 1, signature, rank, size, looks)


@device
def missing_soon(area, ranks, number, what, rank, size):
    """The same of a round whose packets the call has stored, for a moment only."""
    return missing_of_entered(area, ranks, number, signature_of(what), rank, size, _A_MOMENT)


@device
def _await_four(at, word, source, ranks, looks):
    """(1 where one is missing else 0, low words) of a packet from four ranks, as far as they are;
    all under way together."""
    c1 = source + 1 < ranks
    c2 = source + 2 < ranks
    c3 = source + 3 < ranks
    missing = 1
    low_0 = low_1 = low_2 = low_3 = 0
    while missing != 0 and looks > 0:
        low_0, word_0 = gpu.read_packet(at)
        low_1, word_1 = gpu.read_packet_if(at + collectives.INBOX_BYTES, word, c1)
        low_2, word_2 = gpu.read_packet_if(at + 2 * collectives.INBOX_BYTES, word, c2)
        low_3, word_3 = gpu.read_packet_if(at + 3 * collectives.INBOX_BYTES, word, c3)
        differ = (word_0 ^ word) | (word_1 ^ word) | (word_2 ^ word) | (word_3 ^ word)
        if differ == 0:
            missing = 0
        else:
            gpu.spin()
        looks -= gpu.opaque(1)
    return missing, low_0, low_1, low_2, low_3


@device
def _await_four_of_one(at, step, word, later, looks):
    """The same of four packets of one rank, ``step`` apart."""
    missing = 1
    low_0 = low_1 = low_2 = low_3 = 0
    while missing != 0 and looks > 0:
        low_0, word_0 = gpu.read_packet(at)
        low_1, word_1 = gpu.read_packet(at + step)
        low_2, word_2 = gpu.read_packet(at + 2 * step)
        low_3, word_3 = gpu.read_packet(at + 3 * step)
        differ = (word_0 ^ word) | (word_1 ^ later) | (word_2 ^ later) | (word_3 ^ later)
        if differ == 0:
            missing = 0
        else:
            gpu.spin()
        looks -= gpu.opaque(1)
    return missing, low_0, low_1, low_2, low_3


# wide: what all threads have read already
@device
def take_four(first, last, area, ranks, number, what, target, nbytes, rank, size, looks):
    """Reduces what ranks ``first`` to ``last`` have stored, or moves what one has, of packets that
    are full, four of a thread at once: (1 where one is missing else 0, the caller's next one)."""
    at = area + turn_of(number, ranks)
    later = later_word(number)
    word = first_word(number, signature_of(what)) if rank == 0 else later
    packet = rank
    end = (nbytes >> 3) - 3 * size if target & 7 == 0 else 0
    while packet < end:
        r0 = r1 = r2 = r3 = 0
        source = first
        while source <= last:
            place = at + source * collectives.INBOX_BYTES + packet * PACKET_BYTES
            missing, a, b, c, d = _await_four_of_one(place, size * PACKET_BYTES, word, later, looks)
            if missing != 0:
                return 1, packet
            if source == first:
                r0, r1, r2, r3 = a, b, c, d
            else:
                turns = 4
                while turns > 0:  # one copy of the code for all of them
                    result = combine(what, r0, a)
                    r0, r1, r2, r3 = r1, r2, r3, result
                    a, b, c = b, c, d
                    turns -= gpu.opaque(1)
            source += gpu.opaque(1)
        begin = target + packet * collectives.PAYLOAD
        gpu.store_8(begin, r0)
        gpu.store_8(begin + size * collectives.PAYLOAD, r1)
        gpu.store_8(begin + 2 * size * collectives.PAYLOAD, r2)
        gpu.store_8(begin + 3 * size * collectives.PAYLOAD, r3)
        packet += gpu.opaque(4 * size)
        word = later
    return 0, packet


# wide: what all threads have read already
@device
def take_reduced(area, ranks, sources, number, what, target, nbytes, rank, size, looks):
    """Reduces what the first ``sources`` ranks have stored, in the order of ranks, as far as it has
    come: 1 where a packet that the caller has looked for is missing."""
    at = area + turn_of(number, ranks)
    count = packets_of(nbytes)
    packet = rank
    while packet < count:
        word = later_word(number)
        if packet == 0:
            word = first_word(number, signature_of(what))
        result = 0
        source = 0
        while source < sources:
            place = at + source * collectives.INBOX_BYTES + packet * PACKET_BYTES
            missing, a, b, c, d = _await_four(place, word, source, sources, looks)
            if missing != 0:
                return 1
            after = min(source + 4, sources)
            while source < after:  # one copy of the code for all of them
                if source == 0:
                    result = a
                else:
                    result = combine(what, result, a)
                a = b
                b = c
                c = d
                source += gpu.opaque(1)
        begin = packet * collectives.PAYLOAD
        if begin < nbytes:
            store_payload(target + begin, result, 0, min(nbytes - begin, collectives.PAYLOAD))
        packet += gpu.opaque(size)
    return 0


# wide: what all threads have read already
@device
def take_from(root, area, ranks, number, what, target, nbytes, rank, size, looks):
    """Moves what one rank has stored to ``target``, likewise."""
    at = area + turn_of(number, ranks) + root * collectives.INBOX_BYTES
    count = packets_of(nbytes)
    packet = rank
    while packet < count:
        word = later_word(number)
        if packet == 0:
            word = first_word(number, signature_of(what))
        tried = looks
        low, found = gpu.read_packet(at + packet * PACKET_BYTES)
        while found != word:
            tried -= gpu.opaque(1)
            if tried <= 0:
                return 1
            gpu.spin()
            low, found = gpu.read_packet(at + packet * PACKET_BYTES)
        begin = packet * collectives.PAYLOAD
        if begin < nbytes:
            store_payload(target + begin, low, 0, min(nbytes - begin, collectives.PAYLOAD))
        packet += gpu.opaque(size)
    return 0


@device
def who_differs(area, ranks, number, signature):
    """(rank, signature) of one that has called something else in a round; (NOBODY, 0): none has, so
    far. One thread."""
    word = first_word(number, signature)
    at = area + turn_of(number, ranks)
    source = 0
    while source < ranks:
        low, found = gpu.read_packet(at + source * collectives.INBOX_BYTES)
        if (
            found >> collectives.SIGNATURE_SHIFT == word >> collectives.SIGNATURE_SHIFT
            and found != word
        ):
            return source, found & ((1 << collectives.SIGNATURE_SHIFT) - 1)
        source += gpu.opaque(1)
    return NOBODY, 0
