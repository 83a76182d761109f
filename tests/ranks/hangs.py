"""Programs that never end by themselves: the watchdog must say why, and end them.

Each scenario is a deadlock of three ranks, with the kind of cause that must come first in the
report of every rank that waits, and words that must be in it. A rank without calls has a kernel
that ends at once, or none where it is in ``unlaunched``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from common import RANK, TIME_FACTOR, WORLD, barrier, end, pattern, run
from script import Buffer, Script

import gmpi
from gmpi import watchdog
from gmpi.report import Report

WATCHDOG_S = 0.4 * TIME_FACTOR
watchdog.POLL_S = 0.05
watchdog.ANSWER_S = 3.0 * TIME_FACTOR  # all ranks live: whoever is late has no core
CHUNK = 65536
LONG = 100_000  # bytes: above eager_bytes
LONGEST = 6 * CHUNK  # more than fits into the chunk buffers of a request
NEXT, PREVIOUS = (RANK + 1) % 3, (RANK - 1) % 3

BYTES, WORLD_HANDLE = gmpi.BYTE, gmpi.COMM_WORLD


class Hang(NamedTuple):
    """What a rank's kernel calls, what the report must say, and which ranks launch no kernel."""

    calls: Callable[[Script, int], None]
    kind: str
    words: str
    unlaunched: tuple[int, ...] = (2,)


def data(s: Script, n: int = 8) -> Buffer:
    return s.data(pattern(n, 1))


def compute(s: Script) -> None:
    """Until the others have been told."""
    s.pause(int(1e9 * (1.5 * WATCHDOG_S + 1.5)))


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
        s.send(data(s, LONG), LONG, BYTES, 0, 7)
    else:
        s.barrier()


def refused_send(s: Script, other: int) -> None:
    if RANK == 0:
        s.send(data(s), 8, BYTES, 3, 7)
    elif RANK == 1:
        s.recv(s.room(8), 8, BYTES, 0, 7)


def refused_collective(s: Script, other: int) -> None:
    reduce(s, 10, gmpi.DOUBLE, 99 if RANK == 0 else gmpi.SUM)


ALL: tuple[int, ...] = ()
HANGS = [
    # No rank goes on, once released, with what another one waits for: that one may ask later.
    Hang(wrong_tag, "tag", "rank 0 has sent to 1 tag 8"),
    Hang(wrong_tag_of_a_long_message, "tag", "GMPI_Irecv from 0 tag 7"),
    Hang(wrong_tag_after_traffic, "tag", "rank 0 has sent to 1 tag 8"),
    Hang(wrong_tag_from_anywhere, "tag", "GMPI_Irecv from ANY_SOURCE tag 7"),
    Hang(sendrecv_with_another_tag, "tag", "the tags differ"),
    Hang(one_of_two_is_not_sent, "tag", "rank 2 has sent to 0 tag 9", ALL),
    Hang(wrong_source, "peer", "the source differs"),
    Hang(any_tag_of_another_source, "peer", "the source differs"),
    Hang(wrong_destination, "peer", "the destination differs"),
    Hang(wrong_communicator, "communicator", "the communicators differ"),
    Hang(missing_send, "missing send", "rank 0 has not sent it"),
    Hang(receive_from_oneself, "missing send", "waits for itself to send"),
    Hang(one_message_too_few, "left", "rank 0 has left its kernels"),
    Hang(wildcard_takes_it, "left", "rank 0 has left its kernels"),
    Hang(all_left, "left", "all other ranks have left their kernels", ALL),
    Hang(chain, "left", "GMPI_Irecv from 0 tag 7, 8 BYTE on COMM_WORLD, but rank 0 has left", ALL),
    Hang(missing_receive, "missing receive", "has not posted a receive for it", ALL),
    Hang(long_send_to_oneself, "missing receive", "for what it sends itself"),
    Hang(both_receive_first, "cycle", "0 -> 1 -> 0: each waits for the other to send"),
    Hang(circle_of_three_receives, "cycle", "0 -> 2 -> 1 -> 0: each waits for the next", ALL),
    Hang(circle_of_two_sends, "cycle", "0 -> 1 -> 0, and none has posted its receive"),
    Hang(circle_of_three_sends, "cycle", "0 -> 1 -> 2 -> 0", ALL),
    Hang(circle_of_a_send_and_receives, "cycle", "0 -> 1 -> 2 -> 0", ALL),
    Hang(receiver_left, "left", "rank 1 has left its kernels and has not received it"),
    Hang(receiver_not_launched, "not launched", "rank 2 has not launched a kernel yet"),
    Hang(sender_not_launched, "not launched", "but rank 2 has not launched a kernel yet"),
    Hang(nobody_launched, "not launched", "rank 2 has not launched a kernel yet", (1, 2)),
    Hang(receiver_computes, "missing wait", "rank 1 does not wait for its GMPI_Irecv from 0"),
    Hang(sender_computes, "missing wait", "rank 0 does not wait for its GMPI_Isend to 1"),
    Hang(sender_never_waits, "missing wait", "its kernels have ended"),
    Hang(left_a_collective, "left", "rank 1 has left its kernels"),
    Hang(not_launched_in_a_collective, "not launched", "ranks 0, 1 wait in GMPI_Barrier"),
    Hang(different_collectives, "order", "the order of collectives differs"),
    Hang(order_of_collectives, "communicator", "the communicators differ"),
    Hang(different_roots, "collective", "root is 1 on rank 0 and 0 on rank 1"),
    Hang(different_counts, "collective", "count is 10 on rank 0 and 11 on rank 1"),
    Hang(different_operations, "collective", "op is SUM on rank 0 and MAX on rank 1"),
    Hang(different_datatypes, "collective", "datatype is DOUBLE on rank 0 and INT64_T on rank 1"),
    Hang(different_lengths, "collective", "length in bytes is 10 on rank 0 and 11 on rank 1"),
    Hang(collective_and_receive, "order", "rank 1 is in GMPI_Irecv from 0 tag 7"),
    Hang(collective_and_send, "missing receive", "rank 0 is in GMPI_Barrier", ALL),
    Hang(refused_send, "error", "GMPI_Isend in block 0: dest is"),
    Hang(refused_collective, "error", "op is 99", ALL),
]


def scenario(hang: Hang) -> Callable[[], None]:
    def play() -> None:
        barrier()
        began = time.monotonic()
        report: Report | None = None
        g = gmpi.Context(
            WORLD, watchdog_s=WATCHDOG_S, timeout_s=WATCHDOG_S, on_error="return",
            request_slots=32, large_slots=4, chunk_bytes=CHUNK, sync_timeout_s=2 * WATCHDOG_S,
        )  # fmt: skip
        duplicate = WORLD.Dup()
        other = g.comm(duplicate)
        s = Script()
        try:
            hang.calls(s, other)
            opened = time.monotonic()
            barrier()
            if RANK not in hang.unlaunched:
                s.run(g)
        except gmpi.PendingError:
            assert hang.calls is sender_never_waits
        except gmpi.RequestTimeoutError as exc:
            report = exc.report
            took = time.monotonic() - opened
            print(f"rank {RANK} {hang.calls.__name__}: {took:.1f} s", flush=True)
        # Nobody's watchdog may go before all have asked.
        barrier()
        waited = WORLD.allgather(report is not None)
        assert any(waited), "nobody waited"
        if report is not None:
            check(hang, report)
        try:
            g.close()
        except gmpi.GMPIError:
            assert g._waits.aborted or report is None
        duplicate.Free()
        assert time.monotonic() - began < 60 * TIME_FACTOR

    play.__name__ = hang.calls.__name__
    return play


def check(hang: Hang, report: Report) -> None:
    assert report.causes, report.text
    first = report.causes[0]
    assert first.kind == hang.kind and hang.words in first.text, report.text
    assert f"likely cause ({hang.kind})" in report.text
    assert '"causes"' in report.json()


if __name__ == "__main__":
    run([scenario(hang) for hang in HANGS])
    end()
