"""Mailboxes: messages of some kilobytes that the sender's threads store into the receiver's memory.

The bytes travel as packets, 12 bytes and a sequence number, so nobody has to say that they are
there: the sender needs no fence and no flag behind them, and the receiver waits in its own memory
for each packet that is still on its way. Stores to a peer do not make a warp wait, reads from it
take more than 1 us.

On the proxied road, for up to 64 KiB, a mailbox belongs to one large slot of one sender, and the
command to take the message comes through two proxies and MPI. On the direct road, for up to
192 KiB, it is the wide slot of an inbox. Either is written again when its receiver has seen every
packet: also of those bytes that it has no room for.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.move.copy import load_payload, store_payload
from device_lib.platform import primitives as gpu
from device_lib.platform.library import linked
from device_lib.platform.primitives import device, uint32
from gmpi.contract import wire
from gmpi.contract.rules import mailbox_groups

# Three words of 16 bytes fill the packets of a group: whole words in, whole packets out, and a
# thread needs nobody else. Groups lie in blocks of 32, first packets first, so that neighbouring
# threads' packets are neighbours; so are the words that they load and store: first words first.
# A few threads have three groups under way each: loads that are on their way together cost one
# latency. More have two, as far as there are so many: a load behind stores to a peer waits until
# these have gone. Of many each has one: what two take of registers costs more.
_WORD = 16
_GROUP_BYTES = wire.MAILBOX_PACKETS * wire.PACKET_PAYLOAD
_NEXT_PACKET = wire.MAILBOX_GROUPS * wire.PACKET_BYTES  # from one packet of a group to the next
_BLOCK_BYTES = wire.MAILBOX_PACKETS * _NEXT_PACKET
groups_of = device(mailbox_groups)

_FEW_THREADS = 128
_MORE_THREADS = 512
_PATIENCE = 256  # looks at packets between two at the abort word


@device
def _group_address(place, group):
    """Where the first packet of a group is."""
    among = uint32(group) & uint32(wire.MAILBOX_GROUPS - 1)
    before = uint32(uint32(group) - among) * uint32(_BLOCK_BYTES // wire.MAILBOX_GROUPS)
    return place + uint32(before + among * uint32(wire.PACKET_BYTES))


@device
def _words_of(group, groups):
    """(Where the first word of a group is in the message, bytes from there to its next one)."""
    among = uint32(group) & uint32(wire.MAILBOX_GROUPS - 1)
    first = uint32(uint32(group) - among)
    width = min(uint32(wire.MAILBOX_GROUPS), uint32(uint32(groups) - first))
    return (
        uint32(first * uint32(_GROUP_BYTES) + among * uint32(_WORD)),
        uint32(width * uint32(_WORD)),
    )


if gpu.SIMULATOR:

    def _in_words(address, nbytes):
        """Nothing is moved by words here: a lane takes time for each access, however wide."""
        return False

    _put_words = _put_words_twice = _put_words_lean = _take_words = _take_words_lean = None

else:
    from device_lib.platform.primitives_cuda import load_16_if, store_16_if

    @device
    def _in_words(address, nbytes):
        """Whether a buffer consists of words of 16 bytes."""
        return (address | nbytes) & (_WORD - 1) == 0

    @device
    def _left(begin, nbytes):
        """Bytes of a message from one on."""
        return uint32(uint32(nbytes) - begin) if begin < uint32(nbytes) else uint32(0)

    @device
    def _load_group(source, group, groups, nbytes):
        """Three words, as far as the message has them."""
        begin, step = _words_of(group, groups)
        left = _left(begin, nbytes)
        at = source + begin
        a0, b0 = load_16_if(at, left > 0)
        a1, b1 = load_16_if(at + step, left > step)
        a2, b2 = load_16_if(at + step + step, left > uint32(step + step))
        return a0, b0, a1, b1, a2, b2

    @device
    def _put_group(place, group, groups, words, seq_bits):
        a0, b0, a1, b1, a2, b2 = words
        if uint32(group) < uint32(groups):
            at = _group_address(place, group)
            gpu.write_packet(at, a0, b0 & wire.LOW_32 | seq_bits)
            gpu.write_packet(
                at + _NEXT_PACKET,
                b0 >> 32 & wire.LOW_32 | a1 << 32,
                a1 >> 32 & wire.LOW_32 | seq_bits,
            )
            gpu.write_packet(at + 2 * _NEXT_PACKET, b1, a2 & wire.LOW_32 | seq_bits)
            low = a2 >> 32 & wire.LOW_32 | b2 << 32
            gpu.write_packet(at + 3 * _NEXT_PACKET, low, b2 >> 32 & wire.LOW_32 | seq_bits)

    @device
    def _put_words(place, source, nbytes, groups, seq, rank, size):
        seq_bits = seq << 32
        group = rank
        while group < groups:
            first = _load_group(source, group, groups, nbytes)
            second = _load_group(source, group + size, groups, nbytes)
            third = _load_group(source, group + 2 * size, groups, nbytes)
            _put_group(place, group, groups, first, seq_bits)
            _put_group(place, group + size, groups, second, seq_bits)
            _put_group(place, group + 2 * size, groups, third, seq_bits)
            group += 3 * size

    @device
    def _put_words_twice(place, source, nbytes, groups, seq, rank, size):
        group = uint32(rank)
        while group < uint32(groups):
            second = uint32(group + uint32(gpu.opaque(size)))
            words = _load_group(source, group, groups, nbytes)
            more = _load_group(source, second, groups, nbytes)
            _put_group(place, group, groups, words, seq << 32)
            _put_group(place, second, groups, more, seq << 32)
            group = uint32(second + uint32(size))

    @device
    def _put_words_lean(place, source, nbytes, groups, seq, rank, size):
        group = uint32(rank)
        while group < uint32(groups):
            words = _load_group(source, group, groups, nbytes)
            _put_group(place, group, groups, words, seq << 32)
            group = uint32(group + uint32(gpu.opaque(size)))

    @device
    def _look_at_group(place, group, groups):
        """The packets of a group, or of the last one."""
        at = _group_address(place, min(uint32(group), uint32(groups - 1)))
        a, p = gpu.read_packet(at)
        b, q = gpu.read_packet(at + _NEXT_PACKET)
        c, r = gpu.read_packet(at + 2 * _NEXT_PACKET)
        d, s = gpu.read_packet(at + 3 * _NEXT_PACKET)
        return a, p, b, q, c, r, d, s

    @device
    def _have_come(packets, seq):
        a, p, b, q, c, r, d, s = packets
        wrong = (p >> 32 ^ seq) | (q >> 32 ^ seq) | (r >> 32 ^ seq) | (s >> 32 ^ seq)
        return wrong & wire.LOW_32 == 0

    @device
    def _store_group(target, group, groups, nbytes, packets):
        a, p, b, q, c, r, d, s = packets
        begin, step = _words_of(group, groups)
        left = _left(begin, nbytes)
        at = target + begin
        store_16_if(at, a, p & wire.LOW_32 | b << 32, left > 0)
        low = b >> 32 & wire.LOW_32 | q << 32
        store_16_if(at + step, low, c, left > step)
        low = r & wire.LOW_32 | d << 32
        high = d >> 32 & wire.LOW_32 | s << 32
        store_16_if(at + step + step, low, high, left > uint32(step + step))

    @device
    def _take_words(control, place, target, nbytes, groups, seq, rank, size):
        group = rank
        looks = 0
        while group < groups:
            first = _look_at_group(place, group, groups)
            second = _look_at_group(place, group + size, groups)
            if _have_come(first, seq) and _have_come(second, seq):
                _store_group(target, group, groups, nbytes, first)
                left = nbytes if group + size < groups else 0
                _store_group(target, group + size, groups, left, second)
                group += 2 * size
            else:
                looks += 1
                if looks & (_PATIENCE - 1) == 0 and gpu.load_sys(control + wire.CONTROL_ABORT) != 0:
                    return 1
        return 0

    @device
    def _take_words_lean(control, place, target, nbytes, groups, seq, rank, size):
        group = uint32(rank)
        looks = uint32(0)
        while group < uint32(groups):
            only = _look_at_group(place, group, groups)
            if _have_come(only, seq):
                _store_group(target, group, groups, nbytes, only)
                group = uint32(group + uint32(size))
            else:
                looks = uint32(looks + 1)
                if looks & (_PATIENCE - 1) == 0 and gpu.load_sys(control + wire.CONTROL_ABORT) != 0:
                    return 1
        return 0


@device
def _parts_of(packet, groups):
    """(The packet's group, where the first bytes of its payload are in the message, how many these
    are, where the others are): the end of a word, and the beginning of its group's next one.

    Args:
        packet: the how many-th in memory.
    """
    k = packet // wire.MAILBOX_GROUPS & (wire.MAILBOX_PACKETS - 1)
    block = packet // (wire.MAILBOX_GROUPS * wire.MAILBOX_PACKETS)
    group = block * wire.MAILBOX_GROUPS + (packet & (wire.MAILBOX_GROUPS - 1))
    begin, step = _words_of(group, groups)
    before = k * wire.PACKET_PAYLOAD
    word = begin + before // _WORD * step
    before &= _WORD - 1
    return group, word + before, min(_WORD - before, wire.PACKET_PAYLOAD), word + step


@device
def _packets_of(groups):
    """How many lie in memory: all of the last block, whether the message has them or not."""
    blocks = (groups + wire.MAILBOX_GROUPS - 1) // wire.MAILBOX_GROUPS
    return blocks * (wire.MAILBOX_GROUPS * wire.MAILBOX_PACKETS)


@device
def _within(at, count, nbytes):
    """How many of ``count`` bytes from ``at`` on a message of ``nbytes`` has."""
    return max(min(nbytes - at, count), 0)


@device
def _put_packets(place, source, nbytes, groups, seq, rank, size):
    """For buffers anywhere, and messages of any length."""
    packet = rank
    packets = _packets_of(groups)
    while packet < packets:
        group, at, count, then = _parts_of(packet, groups)
        if group < groups:
            low, high = load_payload(source + at, _within(at, count, nbytes))
            if count < wire.PACKET_PAYLOAD:
                left = _within(then, wire.PACKET_PAYLOAD - count, nbytes)
                more, top = load_payload(source + then, left)
                high = more if count == 8 else more >> 32
                low |= (more & wire.LOW_32) << 32 if count == 4 else 0
            at = place + packet * wire.PACKET_BYTES
            gpu.write_packet(at, low, (high & wire.LOW_32) | seq << 32)
        packet += gpu.opaque(size)


@device
def _take_packets(control, place, target, nbytes, groups, seq, rank, size):
    packet = rank
    packets = _packets_of(groups)
    looks = 0
    while packet < packets:
        group, at, count, then = _parts_of(packet, groups)
        low = 0
        word = seq << 32
        wanted = 0
        if group < groups:
            low, word = gpu.read_packet(place + packet * wire.PACKET_BYTES)
            wanted = nbytes
        if word >> 32 & wire.LOW_32 == seq:
            high = word & wire.LOW_32
            store_payload(target + at, low, high, _within(at, count, wanted))
            if count < wire.PACKET_PAYLOAD:
                rest = high if count == 8 else low >> 32 & wire.LOW_32 | high << 32
                left = _within(then, wire.PACKET_PAYLOAD - count, wanted)
                store_payload(target + then, rest, 0, left)
            packet += gpu.opaque(size)
        else:
            looks += 1
            if looks & (_PATIENCE - 1) == 0 and gpu.load_sys(control + wire.CONTROL_ABORT) != 0:
                return 1
            gpu.pause(20)
    return 0


def _put_function(name: str, put: Callable):
    """A function of the library: ``put``, with ``mail_word`` in place of groups and number."""

    @device
    def body(place, source, nbytes, word, rank, size):
        put(place, source, nbytes, word >> 32, word & wire.LOW_32, rank, size)
        return 0

    return linked(name, 6, 1, body)


def _take_function(name: str, take: Callable):
    """The same of ``take``."""

    @device
    def body(control, place, target, nbytes, word, rank, size):
        return take(control, place, target, nbytes, word >> 32, word & wire.LOW_32, rank, size)

    return linked(name, 7, 1, body)


# Each on its own, so that no warp saves registers for another.
_put_words_of_few = _put_function("gmpi_put_mail", _put_words)
_put_words_of_more = _put_function("gmpi_put_mail_twice", _put_words_twice)
_put_words_of_many = _put_function("gmpi_put_mail_lean", _put_words_lean)
_put_bytes = _put_function("gmpi_put_mail_bytes", _put_packets)
_take_words_of_few = _take_function("gmpi_take_mail", _take_words)
_take_words_of_many = _take_function("gmpi_take_mail_lean", _take_words_lean)
_take_bytes = _take_function("gmpi_take_mail_bytes", _take_packets)


@device
def mail_word(groups, seq):
    """What both ends know of a message.

    Args:
        groups: of packets to store, those behind its bytes empty.
        seq: the sequence number of the packets, 32 bits.
    """
    return groups << 32 | seq


@device
def put_mail(place, source, nbytes, word, rank, size):
    """Stores a message as packets at ``place``, by all ``size`` threads of a scope.

    Args:
        place: of the receiver, mapped here.
        word: what ``mail_word`` returned.
    """
    if not _in_words(source, nbytes):
        _put_bytes(place, source, nbytes, word, rank, size)
    elif size <= _FEW_THREADS:
        _put_words_of_few(place, source, nbytes, word, rank, size)
    elif size <= _MORE_THREADS and rank + size < word >> 32:
        _put_words_of_more(place, source, nbytes, word, rank, size)
    elif rank < word >> 32:
        _put_words_of_many(place, source, nbytes, word, rank, size)


@device
def take_mail(ctx, place, target, nbytes, word, rank, size):
    """Moves the first ``nbytes`` of a message to ``target`` when they have come, and waits for the
    others; by all threads of a scope.

    Args:
        place: in our own memory.
        word: as of ``put_mail``, with the groups that were stored.

    Returns:
        1 where waits were aborted before all of the thread's packets were there, else 0.
    """
    aborted = 0
    if not _in_words(target, nbytes):
        aborted = _take_bytes(ctx.mapped, place, target, nbytes, word, rank, size)
    elif size <= _FEW_THREADS:
        aborted = _take_words_of_few(ctx.mapped, place, target, nbytes, word, rank, size)
    elif rank < word >> 32:
        aborted = _take_words_of_many(ctx.mapped, place, target, nbytes, word, rank, size)
    return aborted


@device
def take_commanded(ctx, places, mailed, target, nbytes, rank, size):
    """``take_mail`` of the message that a copy command is about.

    Args:
        places: what ``our_mailboxes`` returned.
        mailed: packet 6 of the completion of the receive.
    """
    index = mailed & (1 << wire.MAILED_GROUPS_SHIFT) - 1
    place = places + index * wire.MAILBOX_STRIDE
    groups = (
        mailed >> wire.MAILED_GROUPS_SHIFT
        & (1 << wire.MAILED_TICKET_SHIFT - wire.MAILED_GROUPS_SHIFT) - 1
    )
    seq = (mailed >> wire.MAILED_TICKET_SHIFT << 1 | 1) & wire.LOW_32
    return take_mail(ctx, place, target, nbytes, mail_word(groups, seq), rank, size)
