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

from device_lib.move.copy import FEW_THREADS, load_payload, store_payload
from device_lib.platform import primitives as gpu
from device_lib.platform.library import linked
from device_lib.platform.primitives import device, int64, uint32
from gmpi.contract import wire
from gmpi.contract.rules import mailbox_groups

# Three words of 16 bytes fill the packets of a group: whole words in, whole packets out, and a
# thread needs nobody else. Groups lie in blocks of 32, first packets first, so that neighbouring
# threads' packets are neighbours. A thread has two or three groups under way: loads that are on
# their way together cost one latency, and code that runs once a message is paid for by its length.
# Of many threads each has one: there are enough loads, and not the registers for more. That is a
# function of its own, so that no warp saves registers for the other.
_GROUP_BYTES = wire.MAILBOX_PACKETS * wire.PACKET_PAYLOAD
_NEXT_PACKET = wire.MAILBOX_GROUPS * wire.PACKET_BYTES  # from one packet of a group to the next
_BLOCK_BYTES = wire.MAILBOX_PACKETS * _NEXT_PACKET
groups_of = device(mailbox_groups)

_PATIENCE = 256  # looks at packets between two at the abort word


@device
def _group_address(place, group):
    """Where the first packet of a group is."""
    block = group // wire.MAILBOX_GROUPS
    return place + block * _BLOCK_BYTES + (group & (wire.MAILBOX_GROUPS - 1)) * wire.PACKET_BYTES


@device
def _packet_address(place, packet):
    group = packet // wire.MAILBOX_PACKETS
    return _group_address(place, group) + (packet & (wire.MAILBOX_PACKETS - 1)) * _NEXT_PACKET


@device
def _in_words(address, nbytes):
    """Whether a buffer consists of words of 16 bytes."""
    return (address | nbytes) & 15 == 0


if gpu.SIMULATOR:

    def _put_words(place, source, nbytes, groups, seq, rank, size):
        _put_packets(place, source, nbytes, groups, seq, rank, size)

    def _take_words(control, place, target, nbytes, groups, seq, rank, size):
        return _take_packets(control, place, target, nbytes, groups, seq, rank, size)

    _put_words_lean = _put_words
    _take_words_lean = _take_words

else:
    from device_lib.platform.primitives_cuda import load_16_if, store_16_if

    @device
    def _load_group(source, group, nbytes):
        """Three words, of which the last group has as many as there are."""
        begin = group * _GROUP_BYTES
        a0, b0 = load_16_if(source + begin, begin < nbytes)
        a1, b1 = load_16_if(source + begin + 16, begin + 16 < nbytes)
        a2, b2 = load_16_if(source + begin + 32, begin + 32 < nbytes)
        return a0, b0, a1, b1, a2, b2

    @device
    def _put_group(place, group, groups, words, seq_bits):
        a0, b0, a1, b1, a2, b2 = words
        if group < groups:
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
            first = _load_group(source, group, nbytes)
            second = _load_group(source, group + size, nbytes)
            third = _load_group(source, group + 2 * size, nbytes)
            _put_group(place, group, groups, first, seq_bits)
            _put_group(place, group + size, groups, second, seq_bits)
            _put_group(place, group + 2 * size, groups, third, seq_bits)
            group += 3 * size

    @device
    def _put_words_lean(place, source, nbytes, groups, seq, rank, size):
        group = rank
        while group < groups:
            _put_group(place, group, groups, _load_group(source, group, nbytes), seq << 32)
            group += gpu.opaque(size)

    @device
    def _look_at_group(place, group, groups):
        """The packets of a group, or of the last one."""
        at = _group_address(place, min(group, groups - 1))
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
    def _store_group(target, group, nbytes, packets):
        a, p, b, q, c, r, d, s = packets
        begin = group * _GROUP_BYTES
        store_16_if(target + begin, a, p & wire.LOW_32 | b << 32, begin < nbytes)
        high = c
        low = b >> 32 & wire.LOW_32 | q << 32
        store_16_if(target + begin + 16, low, high, begin + 16 < nbytes)
        low = r & wire.LOW_32 | d << 32
        high = d >> 32 & wire.LOW_32 | s << 32
        store_16_if(target + begin + 32, low, high, begin + 32 < nbytes)

    @device
    def _take_words(control, place, target, nbytes, groups, seq, rank, size):
        group = rank
        looks = 0
        while group < groups:
            first = _look_at_group(place, group, groups)
            second = _look_at_group(place, group + size, groups)
            if _have_come(first, seq) and _have_come(second, seq):
                _store_group(target, group, nbytes, first)
                _store_group(target, group + size, nbytes, second)
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
            only = _look_at_group(place, group, uint32(groups))
            if _have_come(only, seq):
                _store_group(target, int64(group), nbytes, only)
                group = uint32(group + size)
            else:
                looks = uint32(looks + 1)
                if looks & (_PATIENCE - 1) == 0 and gpu.load_sys(control + wire.CONTROL_ABORT) != 0:
                    return 1
        return 0


@device
def _put_packets(place, source, nbytes, groups, seq, rank, size):
    """For buffers anywhere, and messages of any length."""
    packet = rank
    packets = wire.MAILBOX_PACKETS * groups
    while packet < packets:
        begin = packet * wire.PACKET_PAYLOAD
        low, high = load_payload(source + begin, max(nbytes - begin, 0))
        gpu.write_packet(_packet_address(place, packet), low, (high & wire.LOW_32) | seq << 32)
        packet += gpu.opaque(size)


@device
def _take_packets(control, place, target, nbytes, groups, seq, rank, size):
    packet = rank
    looks = 0
    while packet < wire.MAILBOX_PACKETS * groups:
        low, word = gpu.read_packet(_packet_address(place, packet))
        if word >> 32 & wire.LOW_32 == seq:
            begin = packet * wire.PACKET_PAYLOAD
            if begin < nbytes:
                store_payload(target + begin, low, word & wire.LOW_32, nbytes - begin)
            packet += gpu.opaque(size)
        else:
            looks += 1
            if looks & (_PATIENCE - 1) == 0 and gpu.load_sys(control + wire.CONTROL_ABORT) != 0:
                return 1
            gpu.pause(20)
    return 0


def _make_put(put_words):
    @device
    def put(place, source, nbytes, what, rank, size):
        seq = what & wire.LOW_32
        groups = what >> 32
        if groups == 0:
            groups = groups_of(nbytes)
        if _in_words(source, nbytes):
            put_words(place, source, nbytes, groups, seq, rank, size)
        else:
            _put_packets(place, source, nbytes, groups, seq, rank, size)
        return 0

    return put


def _make_take(take_words):
    @device
    def take(control, place, target, nbytes, what, rank, size):
        seq = what & wire.LOW_32
        groups = what >> 32
        if _in_words(target, nbytes):
            return take_words(control, place, target, nbytes, groups, seq, rank, size)
        return _take_packets(control, place, target, nbytes, groups, seq, rank, size)

    return take


_put_linked = linked("gmpi_put_mail", 6, 1, _make_put(_put_words))
_put_lean_linked = linked("gmpi_put_mail_lean", 6, 1, _make_put(_put_words_lean))
_take_linked = linked("gmpi_take_mail", 7, 1, _make_take(_take_words))
_take_lean_linked = linked("gmpi_take_mail_lean", 7, 1, _make_take(_take_words_lean))


@device
def mail_word(groups, seq):
    """What both ends know of a message.

    Args:
        groups: of packets to store, those behind its bytes empty; 0: as many as it takes, where it
            is stored.
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
    if size > FEW_THREADS:
        _put_lean_linked(place, source, nbytes, word, rank, size)
    else:
        _put_linked(place, source, nbytes, word, rank, size)


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
    if size > FEW_THREADS:
        return _take_lean_linked(ctx.mapped, place, target, nbytes, word, rank, size)
    return _take_linked(ctx.mapped, place, target, nbytes, word, rank, size)


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
