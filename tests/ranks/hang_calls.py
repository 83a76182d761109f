"""What ranks call in each kind of hang (``hangs.py``), among three of them."""

from __future__ import annotations

import sys

import numpy as np
from common import RANK, TIME_FACTOR, pattern
from script import Buffer, Script

import gmpi
from gmpi.contract.collectives import AMOUNT_BITS

WATCHDOG_S = 0.4 * TIME_FACTOR
CHUNK = 65536
DIRECT = "--direct" in sys.argv
LONG = 200_000 if DIRECT else 100_000  # bytes: the sender waits for the receiver
LONGEST = 6 * CHUNK  # more than fits into the chunk buffers of a request
MUCH = 70_000 + (1 << AMOUNT_BITS)  # bytes: a signature has 70000
NEXT, PREVIOUS = (RANK + 1) % 3, (RANK - 1) % 3

BYTES, WORLD_HANDLE = gmpi.BYTE, gmpi.COMM_WORLD


def data(s: Script, n: int = 8) -> Buffer:
    return s.data(pattern(n, 1))


def compute(s: Script) -> None:
    """Until this rank has been told, as the others are or will be: its request stays where it is.

    For a time it would be too short on a machine that is busy: then the message gets through, and
    nobody has waited.
    """
    s.pause(int(30e9 * TIME_FACTOR), until_released=True)


def wrong_tag(s: Script, other: int) -> None:
    if RANK == 0:
        s.send(data(s), 8, BYTES, 1, 8)
    else:
        s.recv(s.room(8), 8, BYTES, 0, 7)


def wrong_tag_of_a_long_message(s: Script, other: int) -> None:
    if RANK == 0:
        s.send(data(s, LONG), LONG, BYTES, 1, 8)
    else:
        s.recv(s.room(LONG), LONG, BYTES, 0, 7)


def wrong_source(s: Script, other: int) -> None:
    if RANK == 0:
        s.send(data(s), 8, BYTES, 1, 7)
    else:
        s.recv(s.room(8), 8, BYTES, 1, 7)


def wrong_destination(s: Script, other: int) -> None:
    if RANK == 0:
        s.send(data(s), 8, BYTES, 0, 7)
    else:
        s.recv(s.room(8), 8, BYTES, 0, 7)


def wrong_communicator(s: Script, other: int) -> None:
    if RANK == 0:
        s.send(data(s), 8, BYTES, 1, 7, other)
    else:
        s.recv(s.room(8), 8, BYTES, 0, 7)


def missing_send(s: Script, other: int) -> None:
    if RANK == 0:
        compute(s)
    else:
        s.recv(s.room(8), 8, BYTES, 0, 7)


def both_receive_first(s: Script, other: int) -> None:
    if RANK < 2:
        s.recv(s.room(8), 8, BYTES, 1 - RANK, 7)


def one_message_too_few(s: Script, other: int) -> None:
    if RANK == 0:
        for _ in range(2):
            s.send(data(s), 8, BYTES, 1, 7)
    else:
        for _ in range(3):
            s.recv(s.room(8), 8, BYTES, 0, 7)


def full_inbox(s: Script, other: int) -> None:
    """Of the direct road: a short send waits, too, where eight before it have not been received."""
    if RANK == 0:
        for _ in range(11):
            s.send(data(s), 8, BYTES, 1, 7)
    elif RANK == 1:
        for _ in range(2):
            s.recv(s.room(8), 8, BYTES, 0, 7)


def missing_receive(s: Script, other: int) -> None:
    if RANK == 0:
        s.send(data(s, LONG), LONG, BYTES, 1, 7)
    else:
        s.barrier(other)


def circle_of_two_sends(s: Script, other: int) -> None:
    if RANK < 2:
        s.send(data(s, LONG), LONG, BYTES, 1 - RANK, 7)


def circle_of_three_sends(s: Script, other: int) -> None:
    s.send(data(s, LONG), LONG, BYTES, NEXT, 7)


def circle_of_three_receives(s: Script, other: int) -> None:
    s.recv(s.room(8), 8, BYTES, PREVIOUS, 7)


def circle_of_a_send_and_receives(s: Script, other: int) -> None:
    if RANK == 0:
        s.send(data(s, LONG), LONG, BYTES, 1, 7)
    elif RANK == 1:
        s.recv(s.room(8), 8, BYTES, 2, 5)
    else:
        s.recv(s.room(8), 8, BYTES, 0, 5)


def receive_from_oneself(s: Script, other: int) -> None:
    if RANK == 0:
        s.recv(s.room(8), 8, BYTES, 0, 7)


def long_send_to_oneself(s: Script, other: int) -> None:
    if RANK == 0:
        s.send(data(s, LONG), LONG, BYTES, 0, 7)


def receiver_left(s: Script, other: int) -> None:
    if RANK == 0:
        s.send(data(s, LONG), LONG, BYTES, 1, 7)


def receiver_not_launched(s: Script, other: int) -> None:
    if RANK == 0:
        s.send(data(s, LONG), LONG, BYTES, 2, 7)


def sender_not_launched(s: Script, other: int) -> None:
    if RANK == 0:
        s.recv(s.room(8), 8, BYTES, 2, 7)


def nobody_launched(s: Script, other: int) -> None:
    s.recv(s.room(8), 8, BYTES, gmpi.ANY_SOURCE, 7)


def all_left(s: Script, other: int) -> None:
    if RANK == 0:
        s.recv(s.room(8), 8, BYTES, gmpi.ANY_SOURCE, 7)


def receiver_computes(s: Script, other: int) -> None:
    """It has posted the receive, and looks at it much later."""
    if RANK == 0:
        s.send(data(s, LONG), LONG, BYTES, 1, 7)
    elif RANK == 1:
        request = s.irecv(s.room(LONG), LONG, BYTES, 0, 7)
        compute(s)
        s.wait(request)


def sender_computes(s: Script, other: int) -> None:
    if RANK == 0:
        request = s.isend(data(s, LONGEST), LONGEST, BYTES, 1, 7)
        compute(s)
        s.wait(request)
    elif RANK == 1:
        s.recv(s.room(LONGEST), LONGEST, BYTES, 0, 7)


def sender_never_waits(s: Script, other: int) -> None:
    if RANK == 0:
        s.isend(data(s, LONGEST), LONGEST, BYTES, 1, 7)
    elif RANK == 1:
        s.recv(s.room(LONGEST), LONGEST, BYTES, 0, 7)


def wrong_tag_after_traffic(s: Script, other: int) -> None:
    """All slots have been used before: nothing of their last requests may be taken for news."""
    if RANK == 0:
        for _ in range(64):
            s.send(data(s), 8, BYTES, 1, 7)
        s.send(data(s), 8, BYTES, 1, 8)
    elif RANK == 1:
        room = s.room(8)
        for _ in range(65):
            s.recv(room, 8, BYTES, 0, 7)


def wrong_tag_from_anywhere(s: Script, other: int) -> None:
    if RANK == 0:
        s.send(data(s), 8, BYTES, 1, 8)
    elif RANK == 1:
        s.recv(s.room(8), 8, BYTES, gmpi.ANY_SOURCE, 7)


def any_tag_of_another_source(s: Script, other: int) -> None:
    if RANK == 0:
        s.send(data(s), 8, BYTES, 1, 3)
    elif RANK == 1:
        s.recv(s.room(8), 8, BYTES, 2, gmpi.ANY_TAG)


def sendrecv_with_another_tag(s: Script, other: int) -> None:
    if RANK < 2:
        s.sendrecv(data(s), 8, BYTES, 1 - RANK, RANK, s.room(8), 8, 1 - RANK, RANK)


def wildcard_takes_it(s: Script, other: int) -> None:
    """A receive from anywhere takes what the next one waits for."""
    if RANK == 0:
        s.send(data(s), 8, BYTES, 1, 7)
    elif RANK == 1:
        s.recv(s.room(8), 8, BYTES, gmpi.ANY_SOURCE, gmpi.ANY_TAG)
        s.recv(s.room(8), 8, BYTES, 0, 7)


def one_of_two_is_not_sent(s: Script, other: int) -> None:
    if RANK == 0:
        s.waitall([s.irecv(s.room(8), 8, BYTES, 1, 7), s.irecv(s.room(8), 8, BYTES, 2, 7)])
    elif RANK == 1:
        s.send(data(s), 8, BYTES, 0, 7)
    else:
        s.send(data(s), 8, BYTES, 0, 9)


def chain(s: Script, other: int) -> None:
    if RANK > 0:
        s.recv(s.room(8), 8, BYTES, RANK - 1, 7)


def left_a_collective(s: Script, other: int) -> None:
    if RANK == 0:
        s.barrier()


def left_a_long_collective(s: Script, other: int) -> None:
    if RANK == 0:
        reduce(s, LONG // 8, gmpi.DOUBLE, gmpi.SUM)


def left_a_bcast_of_many_bytes(s: Script, other: int) -> None:
    if RANK == 0:
        s.bcast(s.room(MUCH), MUCH, BYTES, 1, WORLD_HANDLE)


def not_launched_in_a_collective(s: Script, other: int) -> None:
    s.barrier()


def different_collectives(s: Script, other: int) -> None:
    if RANK == 0:
        s.allreduce(s.data(np.arange(2.0)), s.room(16), 2, gmpi.DOUBLE, gmpi.SUM, other)
    elif RANK == 1:
        s.bcast(s.room(8), 8, BYTES, 0, WORLD_HANDLE)


def order_of_collectives(s: Script, other: int) -> None:
    first, second = (WORLD_HANDLE, other) if RANK == 0 else (other, WORLD_HANDLE)
    s.barrier(first)
    s.barrier(second)


def different_roots(s: Script, other: int) -> None:
    if RANK < 2:
        s.bcast(s.room(8), 8, BYTES, 1 - RANK)


def reduce(s: Script, count: int, datatype: int, op: int) -> None:
    s.allreduce(s.data(np.zeros(count)), s.room(8 * count), count, datatype, op)


def different_counts(s: Script, other: int) -> None:
    if RANK < 2:
        reduce(s, 10 + RANK, gmpi.DOUBLE, gmpi.SUM)


def different_operations(s: Script, other: int) -> None:
    if RANK < 2:
        reduce(s, 10, gmpi.DOUBLE, (gmpi.SUM, gmpi.MAX)[RANK])


def different_datatypes(s: Script, other: int) -> None:
    if RANK < 2:
        reduce(s, 10, (gmpi.DOUBLE, gmpi.INT64_T)[RANK], gmpi.SUM)


def different_lengths(s: Script, other: int) -> None:
    if RANK < 2:
        s.bcast(s.room(80), 10 + RANK, BYTES, 2)


def collective_and_receive(s: Script, other: int) -> None:
    if RANK == 0:
        s.barrier()
    elif RANK == 1:
        s.recv(s.room(8), 8, BYTES, 0, 7)
        s.barrier()


def collective_and_send(s: Script, other: int) -> None:
    if RANK == 1:
        s.send(data(s, LONGEST), LONGEST, BYTES, 0, 7)  # not by a slot of the direct road either
    else:
        s.barrier()


def refused_send(s: Script, other: int) -> None:
    if RANK == 0:
        s.send(data(s), 8, BYTES, 3, 7)
    elif RANK == 1:
        s.recv(s.room(8), 8, BYTES, 0, 7)


def refused_collective(s: Script, other: int) -> None:
    reduce(s, 10, gmpi.DOUBLE, 99 if RANK == 0 else gmpi.SUM)
