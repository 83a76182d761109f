"""Programs that never end by themselves: the watchdog must say why, and end them.

Each scenario is a deadlock of three ranks, with the kind of cause that must come first in the
report of every rank that waits, and words that must be in it. A rank without calls has a kernel
that ends at once, or none where it is in ``unlaunched``.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import hang_calls as calls
from common import RANK, TIME_FACTOR, WORLD, barrier, end, run
from hang_calls import CHUNK, WATCHDOG_S
from mpi4py import MPI
from script import Script

import gmpi
from gmpi.lifetime import watchdog
from gmpi.observe.report import Report

watchdog.POLL_S = 0.05
watchdog.ANSWER_S = 3.0 * TIME_FACTOR  # all ranks live: whoever is late has no core


class Hang(NamedTuple):
    """What a rank's kernel calls, what the report must say, and which ranks launch no kernel."""

    calls: Callable[[Script, int], None]
    kind: str
    words: str
    unlaunched: tuple[int, ...] = (2,)


ALL: tuple[int, ...] = ()
DIFFERENT_COUNTS = Hang(
    calls.different_counts, "collective", "count is 10 on rank 0 and 11 on rank 1"
)
if MPI.get_vendor()[0] == "Open MPI":
    # It tells the rank that gets more than it has room for at once, and lets the other one wait;
    # MPICH tells nobody before all have come.
    DIFFERENT_COUNTS = DIFFERENT_COUNTS._replace(
        kind="error", words="ranks have called it with different counts or datatypes"
    )
HANGS = [
    # No rank goes on, once released, with what another one waits for: that one may ask later.
    Hang(calls.wrong_tag, "tag", "rank 0 has sent to 1 tag 8"),
    Hang(calls.wrong_tag_of_a_long_message, "tag", "GMPI_Recv from 0 tag 7"),
    Hang(calls.wrong_tag_after_traffic, "tag", "rank 0 has sent to 1 tag 8"),
    Hang(calls.wrong_tag_from_anywhere, "tag", "GMPI_Recv from ANY_SOURCE tag 7"),
    Hang(calls.sendrecv_with_another_tag, "tag", "the tags differ"),
    Hang(calls.one_of_two_is_not_sent, "tag", "rank 2 has sent to 0 tag 9", ALL),
    Hang(calls.wrong_source, "peer", "the source differs"),
    Hang(calls.any_tag_of_another_source, "peer", "the source differs"),
    Hang(calls.wrong_destination, "peer", "the destination differs"),
    Hang(calls.wrong_communicator, "communicator", "the communicators differ"),
    Hang(calls.missing_send, "missing send", "rank 0 has not sent it"),
    Hang(calls.receive_from_oneself, "missing send", "waits for itself to send"),
    Hang(calls.one_message_too_few, "left", "rank 0 has left its kernels"),
    Hang(calls.wildcard_takes_it, "left", "rank 0 has left its kernels"),
    Hang(calls.all_left, "left", "all other ranks have left their kernels", ALL),
    Hang(
        calls.chain,
        "left",
        "GMPI_Recv from 0 tag 7, 8 BYTE on COMM_WORLD, but rank 0 has left",
        ALL,
    ),
    Hang(calls.missing_receive, "missing receive", "has not posted a receive for it", ALL),
    Hang(calls.long_send_to_oneself, "missing receive", "for what it sends itself"),
    Hang(calls.both_receive_first, "cycle", "0 -> 1 -> 0: each waits for the other to send"),
    Hang(calls.circle_of_three_receives, "cycle", "0 -> 2 -> 1 -> 0: each waits for the next", ALL),
    Hang(calls.circle_of_two_sends, "cycle", "0 -> 1 -> 0, and none has posted its receive"),
    Hang(calls.circle_of_three_sends, "cycle", "0 -> 1 -> 2 -> 0", ALL),
    Hang(calls.circle_of_a_send_and_receives, "cycle", "0 -> 1 -> 2 -> 0", ALL),
    Hang(calls.receiver_left, "left", "rank 1 has left its kernels and has not received it"),
    Hang(calls.receiver_not_launched, "not launched", "rank 2 has not launched a kernel yet"),
    Hang(calls.sender_not_launched, "not launched", "but rank 2 has not launched a kernel yet"),
    Hang(calls.nobody_launched, "not launched", "rank 2 has not launched a kernel yet", (1, 2)),
    Hang(calls.receiver_computes, "missing wait", "rank 1 does not wait for its GMPI_Irecv from 0"),
    Hang(calls.sender_computes, "missing wait", "rank 0 does not wait for its GMPI_Isend to 1"),
    Hang(calls.sender_never_waits, "missing wait", "its kernels have ended"),
    Hang(calls.left_a_collective, "left", "rank 1 has left its kernels"),
    Hang(calls.left_a_long_collective, "left", "rank 1 has left its kernels"),
    Hang(
        calls.left_a_bcast_of_many_bytes,
        "left",
        f"GMPI_Bcast root 1, {calls.MUCH} BYTE",
    ),
    Hang(calls.not_launched_in_a_collective, "not launched", "ranks 0, 1 wait in GMPI_Barrier"),
    Hang(calls.different_collectives, "order", "the order of collectives differs"),
    Hang(calls.order_of_collectives, "communicator", "the communicators differ"),
    Hang(calls.different_roots, "collective", "root is 1 on rank 0 and 0 on rank 1"),
    DIFFERENT_COUNTS,
    Hang(calls.different_operations, "collective", "op is SUM on rank 0 and MAX on rank 1"),
    Hang(
        calls.different_datatypes,
        "collective",
        "datatype is DOUBLE on rank 0 and INT64_T on rank 1",
    ),
    Hang(calls.different_lengths, "collective", "length in bytes is 10 on rank 0 and 11 on rank 1"),
    Hang(calls.collective_and_receive, "order", "rank 1 is in GMPI_Recv from 0 tag 7"),
    Hang(calls.collective_and_send, "missing receive", "rank 0 is in GMPI_Barrier", ALL),
    Hang(calls.refused_send, "error", "GMPI_Send in block 0: dest is"),
    Hang(calls.refused_collective, "error", "op is 99", ALL),
]

if calls.DIRECT:
    words = "rank 1 has received 2 messages with tag 7, rank 0 sends message 11"
    HANGS.append(Hang(calls.full_inbox, "left", words))

WILDCARDS = False if calls.DIRECT else None
#: Not with --direct: there are no wildcards, and the GPUs themselves see where calls differ, so
#: that nobody waits (direct_collectives).
NOT_DIRECT = (
    calls.wrong_tag_from_anywhere, calls.any_tag_of_another_source, calls.wildcard_takes_it,
    calls.all_left, calls.nobody_launched,
    calls.different_roots, calls.different_counts, calls.different_operations,
    calls.different_datatypes, calls.different_lengths,
)  # fmt: skip
#: Ranks whose kernels have no waits that time out: without an abort they would compute for a
#: minute. On the direct road a request that no thread waits for does not time out either.
COMPUTES = {calls.missing_send: 0}
if calls.DIRECT:
    COMPUTES |= {calls.receiver_computes: 1, calls.sender_computes: 0}
#: With --direct: what the report says of how many there were.
COUNTED = {
    calls.one_message_too_few: "rank 0 has sent 2 messages with tag 7, rank 1 waits for message 3",
    calls.wrong_tag_after_traffic: "rank 0 has sent 64 messages with tag 7, rank 1 waits for "
    "message 65",
}
#: Some MPI libraries may see these themselves, if the ranks come together in time.
NOTICED_BY_MPI = (calls.different_counts, calls.different_lengths)


def scenario(hang: Hang) -> Callable[[], None]:
    def play() -> None:
        barrier()
        began = time.monotonic()
        report: Report | None = None
        told = False  # by a rank in which MPI has noticed
        g = gmpi.Context(
            WORLD, watchdog_s=WATCHDOG_S, timeout_s=WATCHDOG_S, on_error="return",
            request_slots=32, large_slots=4, chunk_bytes=CHUNK, sync_timeout_s=2 * WATCHDOG_S,
            wildcards=WILDCARDS,
        )  # fmt: skip
        duplicate = WORLD.Dup()
        other = g.comm(duplicate, wildcards=WILDCARDS)
        s = Script()
        only_computes = COMPUTES.get(hang.calls) == RANK
        beside = threading.Thread(target=abort_behind_all, args=(g,))
        try:
            hang.calls(s, other)
            opened = time.monotonic()
            barrier()
            if only_computes:
                beside.start()
            if RANK not in hang.unlaunched:
                s.run(g)
        except gmpi.PendingError:
            assert hang.calls is calls.sender_never_waits and not calls.DIRECT
        except gmpi.AbortedError:
            assert only_computes
        except gmpi.PeerError as exc:
            told = "has failed in a collective" in str(exc)
            assert told and hang.calls in NOTICED_BY_MPI, exc
        except gmpi.RequestTimeoutError as exc:
            report = exc.report
            took = time.monotonic() - opened
            print(f"rank {RANK} {hang.calls.__name__}: {took:.1f} s", flush=True)
        # Nobody's watchdog may go before all have asked.
        beside.join() if only_computes else barrier()
        waited = WORLD.allgather(told or report is not None)
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


def kernels_are_compiled() -> None:
    """Before any scenario: a rank that compiles is another cause."""
    with gmpi.Context(WORLD, wildcards=WILDCARDS) as g:
        s = Script()
        s.comm_rank()
        s.run(g)
    barrier()


def abort_behind_all(g: gmpi.Context) -> None:
    """When the other ranks have been told, in a thread of its own."""
    barrier()
    g.abort()


def check(hang: Hang, report: Report) -> None:
    assert report.causes, report.text
    first = report.causes[0]
    assert first.kind == hang.kind and hang.words in first.text, report.text
    if calls.DIRECT and hang.calls in COUNTED:
        assert COUNTED[hang.calls] in first.text, report.text
    assert f"likely cause ({hang.kind})" in report.text
    assert '"causes"' in report.json()


if __name__ == "__main__":
    known = [hang for hang in HANGS if not calls.DIRECT or hang.calls not in NOT_DIRECT]
    halves = {"--half=0": known[::2], "--half=1": known[1::2]}
    chosen = next((halves[word] for word in sys.argv if word in halves), known)
    if not gmpi.SIMULATOR:
        kernels_are_compiled()
    run([scenario(hang) for hang in chosen])
    end()
