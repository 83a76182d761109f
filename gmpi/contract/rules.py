"""What two sides decide alike, each by itself: compiled for kernels, for proxies, or both.

They see the same record, header or tag, and must come to the same answer.
"""

from __future__ import annotations

from gmpi.contract import wire


def chunk_bytes_of(nbytes: int, chunk_bytes: int) -> int:
    """Chunk size for a message of ``nbytes`` above ``eager_bytes``.

    Compiled for the device and for the proxy, which must agree. A message is cut into at least
    ``LARGE_BUFFERS`` chunks where that leaves chunks of 64 KiB or more: enough to overlap packing
    with MPI, few enough that the cost per chunk, some 5 us, does not show.
    """
    wanted = (nbytes + wire.LARGE_BUFFERS - 1) // wire.LARGE_BUFFERS
    wanted = (wanted + 127) // 128 * 128
    return min(chunk_bytes, max(wanted, 65536))


def fits_mailbox(nbytes: int, address: int, chunk_bytes: int) -> bool:
    """Whether a send above ``eager_bytes`` goes to a mailbox, if the receiver has one.

    Compiled for the device and for the proxy, which must agree. ``address`` is what the record says
    of the buffer.
    """
    return (
        nbytes <= wire.MAILBOX_BYTES
        and nbytes <= chunk_bytes
        and address & (wire.SCATTERED | 3) == 0
    )


def is_readable(shared: int, way: int, address: int) -> bool:
    """Whether a receiver's threads can take a long message from where its header says that it is,
    without a buffer of their own.

    Compiled for the proxy and called from Python. ``address`` is what the record says of the
    receiver's buffer: what is in a mailbox goes to one piece only.
    """
    return shared != wire.NOT_SHARED and (way & wire.MAILED == 0 or address & wire.SCATTERED == 0)


def is_commanded(done: int, chunk_bytes: int) -> bool:
    """Whether a CHUNK record answers a command: the first chunks of a send are packed by the call
    itself, where it has buffers.

    Compiled for the proxy and called from Python.
    """
    position = (done >> wire.CHUNK_POSITION_SHIFT) & wire.POSITION_MASK
    unpacked = (done >> wire.CHUNK_DIRECTION_SHIFT) & 1 == wire.UNPACK
    return unpacked or position >= wire.LARGE_BUFFERS * chunk_bytes


def mailbox_groups(nbytes: int) -> int:
    """Groups of packets that a message takes; compiled for the device and for the proxy."""
    return (nbytes + wire.MAILBOX_PACKETS * wire.PACKET_PAYLOAD - 1) // (
        wire.MAILBOX_PACKETS * wire.PACKET_PAYLOAD
    )


def mailed(place: int, groups: int, seq: int) -> int:
    """What packet 6 says of a message of so many groups in a mailbox of ours."""
    ticket = (seq & wire.LOW_32) >> 1
    return (
        wire.MAILED_MARK
        | ticket << wire.MAILED_TICKET_SHIFT
        | groups << wire.MAILED_GROUPS_SHIFT
        | place
    )


def transfer_number(count: int, place: int, places: int, tag_ub: int) -> int:
    """Number of a kernel's chunked message, of which two that are under way have different ones.

    Compiled for the proxy and called from Python. Its tags, 2n and 2n + 1, are in the lower half of
    those within MPI_TAG_UB; the host has the upper half.

    Args:
        count: of the messages so far: with it, a number comes again as late as it can.
        place: which of the ``places`` slots of the large class sends it: one message at a time.
    """
    return count % ((tag_ub >> 2) // places) * places + place


TAG_DUPLICATES = 8  # of a communicator on which no receive uses ANY_TAG; a power of two


def duplicate_of(tag: int, last: int) -> int:
    """Which duplicate of a communicator carries first messages with this tag, 0 to ``last``.

    Compiled for the proxy and called from Python: sender and receiver must choose alike. ``last``
    is a power of two, at most ``TAG_DUPLICATES``, less 1; with 0, where there is one duplicate for
    all tags, ``tag`` may be ANY_TAG. Three bits from the top of a product with 2**32 divided by the
    golden ratio: tags that follow one another are spread, and those a power of two apart as well.
    """
    return (tag * 0x9E3779B1 >> 29) & last


# A message that a matched probe has taken: number | communicator << | 1 << MESSAGE_SHIFT. The
# number is of the tag of the probe's own request.
MESSAGE_NUMBERS = (1 << 31) - 1
MESSAGE_COMM_SHIFT = 32
MESSAGE_SHIFT = 48
