"""Programs that never end by themselves: the watchdog must say why, and end them.

Each scenario is a deadlock between ranks 0 and 1 (others, if any, have no kernel), with the kind of
cause that must come first in the report of every rank that waits, and words that must be in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from common import RANK, SIZE, TIME_FACTOR, WORLD, barrier, end, pattern, run
from script import Script

import gmpi
from gmpi import watchdog
from gmpi.report import Report

WATCHDOG_S = 1.0 * TIME_FACTOR
watchdog.ANSWER_S = 3.0 * TIME_FACTOR  # all ranks live: whoever is late has no core
LONG = 100_000  # bytes: above eager_bytes

BYTES, WORLD_HANDLE = gmpi.BYTE, gmpi.COMM_WORLD


class Hang(NamedTuple):
    """What a rank's kernel calls (None: it has none), and what the report must say."""

    calls: Callable[[Script, int], None]
    kind: str
    words: str


def wrong_tag(s: Script, other: int) -> None:
    if RANK == 0:
        s.send(s.data(pattern(8, 1)), 8, BYTES, 1, 8)
    else:
        s.recv(s.room(8), 8, BYTES, 0, 7)


def wrong_tag_of_a_long_message(s: Script, other: int) -> None:
    if RANK == 0:
        s.send(s.data(pattern(LONG, 1)), LONG, BYTES, 1, 8)
    else:
        s.recv(s.room(LONG), LONG, BYTES, 0, 7)


def wrong_source(s: Script, other: int) -> None:
    if RANK == 0:
        s.send(s.data(pattern(8, 1)), 8, BYTES, 1, 7)
    else:
        s.recv(s.room(8), 8, BYTES, 1, 7)


def wrong_destination(s: Script, other: int) -> None:
    if RANK == 0:
        s.send(s.data(pattern(8, 1)), 8, BYTES, 0, 7)
    else:
        s.recv(s.room(8), 8, BYTES, 0, 7)


def wrong_communicator(s: Script, other: int) -> None:
    if RANK == 0:
        s.send(s.data(pattern(8, 1)), 8, BYTES, 1, 7, other)
    else:
        s.recv(s.room(8), 8, BYTES, 0, 7)


def missing_send(s: Script, other: int) -> None:
    if RANK == 0:
        s.pause(int(3.5e9 * WATCHDOG_S))  # until the others have been told
    else:
        s.recv(s.room(8), 8, BYTES, 0, 7)


def both_receive_first(s: Script, other: int) -> None:
    s.recv(s.room(8), 8, BYTES, 1 - RANK, 7)
    s.send(s.data(pattern(8, 1)), 8, BYTES, 1 - RANK, 7)


def one_message_too_few(s: Script, other: int) -> None:
    if RANK == 0:
        for _ in range(2):
            s.send(s.data(pattern(8, 1)), 8, BYTES, 1, 7)
    else:
        for _ in range(3):
            s.recv(s.room(8), 8, BYTES, 0, 7)


def missing_receive(s: Script, other: int) -> None:
    if RANK == 0:
        s.send(s.data(pattern(LONG, 1)), LONG, BYTES, 1, 7)
    else:
        s.barrier(other)


def cycle_of_sends(s: Script, other: int) -> None:
    s.send(s.data(pattern(LONG, 1)), LONG, BYTES, 1 - RANK, 7)
    s.recv(s.room(LONG), LONG, BYTES, 1 - RANK, 7)


def receiver_left(s: Script, other: int) -> None:
    if RANK == 0:
        s.send(s.data(pattern(LONG, 1)), LONG, BYTES, 1, 7)


def left_a_collective(s: Script, other: int) -> None:
    if RANK == 0:
        s.barrier()


def different_collectives(s: Script, other: int) -> None:
    if RANK == 0:
        s.allreduce(s.data(np.arange(2.0)), s.room(16), 2, gmpi.DOUBLE, gmpi.SUM, other)
    else:
        s.bcast(s.room(8), 8, BYTES, 0, WORLD_HANDLE)


def order_of_collectives(s: Script, other: int) -> None:
    first, second = (WORLD_HANDLE, other) if RANK == 0 else (other, WORLD_HANDLE)
    s.barrier(first)
    s.barrier(second)


def different_roots(s: Script, other: int) -> None:
    s.bcast(s.room(8), 8, BYTES, 1 - RANK)


def collective_and_receive(s: Script, other: int) -> None:
    if RANK == 0:
        s.barrier()
        s.send(s.data(pattern(8, 1)), 8, BYTES, 1, 7)
    else:
        s.recv(s.room(8), 8, BYTES, 0, 7)
        s.barrier()


def refused_send(s: Script, other: int) -> None:
    if RANK == 0:
        s.send(s.data(pattern(8, 1)), 8, BYTES, SIZE, 7)
    else:
        s.recv(s.room(8), 8, BYTES, 0, 7)


HANGS = [
    Hang(wrong_tag, "tag", "rank 0 has sent to 1 tag 8"),
    Hang(wrong_tag_of_a_long_message, "tag", "GMPI_Irecv from 0 tag 7"),
    Hang(wrong_source, "peer", "the source differs"),
    Hang(wrong_destination, "peer", "the destination differs"),
    Hang(wrong_communicator, "communicator", "the communicators differ"),
    Hang(missing_send, "missing send", "rank 0 has not sent it"),
    Hang(both_receive_first, "missing send", "each waits for the other to send"),
    Hang(one_message_too_few, "left", "rank 0 has left its kernels"),
    Hang(missing_receive, "missing receive", "has not posted a receive for it"),
    Hang(cycle_of_sends, "cycle", "0 -> 1 -> 0"),
    Hang(receiver_left, "left", "rank 1 has left its kernels without receiving it"),
    Hang(left_a_collective, "left", "rank 1 has left its kernels"),
    Hang(different_collectives, "order", "the order of collectives differs"),
    Hang(order_of_collectives, "communicator", "the communicators differ"),
    Hang(different_roots, "collective", "root 0"),
    Hang(collective_and_receive, "order", "rank 1 is in GMPI_Irecv from 0 tag 7"),
    Hang(refused_send, "error", "GMPI_Isend in block 0: dest is"),
]


def scenario(hang: Hang) -> Callable[[], None]:
    def play() -> None:
        barrier()
        began = time.monotonic()
        report: Report | None = None
        g = gmpi.Context(WORLD, watchdog_s=WATCHDOG_S, timeout_s=WATCHDOG_S, on_error="return")
        duplicate = WORLD.Dup()
        other = g.comm(duplicate)
        s = Script()
        try:
            if RANK < 2:
                hang.calls(s, other)
                opened = time.monotonic()
                s.run(g)
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
