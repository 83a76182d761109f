"""From tables of pending requests to causes: no MPI, no context."""

from __future__ import annotations

import dataclasses
import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pending_tables import (
    KINDS,
    PREPARING,
    UNLAUNCHED,
    A,
    B,
    came,
    collective,
    first,
    make,
    recv,
    reduction,
    send,
    tables,
)

from gmpi.diagnose.diagnosis import diagnose
from gmpi.diagnose.stacks import host_line, stacks
from gmpi.diagnose.tables import Pending, Table, Unexpected, loses_any_source, ranks_text
from gmpi.lifetime.farewell import hopeless
from gmpi.observe.report import RankReport, Report

pytestmark = pytest.mark.quick

MPICH = "MPICH Version: 5.0.2\nMPICH Device: ch4:ucx ofi\n"


def test_what_mpich_loses_is_said_of_receives_from_any_source_only() -> None:
    def text(found: dict) -> str:
        table = dataclasses.replace(found[1], loses_any_source=True)
        return first({**found, 1: table}).text

    assert "MPIR_CVAR_CH4_NETMOD=ofi" in text(tables([], [recv(None)]))
    assert "MPIR_CVAR_CH4_NETMOD=ofi" in text(tables([send(1, **LONG)], [recv(None, **LONG)]))
    assert "MPIR_CVAR" not in text(tables([], [recv(0)]))
    assert "MPIR_CVAR" not in first(tables([], [recv(None)])).text


@pytest.mark.parametrize(
    ("library", "netmod", "far", "loses"),
    [
        (MPICH, None, True, True),
        (MPICH, None, False, False),
        (MPICH, "ofi", True, False),
        (MPICH.replace("ucx ofi", "ofi"), None, True, False),
        ("Open MPI v5.0.8, package: ...", None, True, False),
    ],
)
def test_which_mpi_loses_receives_from_any_source(
    library: str, netmod: str | None, far: bool, loses: bool
) -> None:
    assert loses_any_source(library, netmod, far) is loses


LONG = {"nbytes": 100_000, "count": 100_000}

CASES = {
    "another tag has come": (tables([], [recv(0)], r1=came(0, 8)), "tag", "0 has sent to 1 tag 8"),
    "another tag is being sent": (tables([send(1, 8)], [recv(0)]), "tag", "is sending to 1 tag 8"),
    "another source": (tables([], [], [recv(1)], r2=came(0)), "peer", "the source differs"),
    "ANY_TAG, another source": (
        tables([], [], [recv(1, None)], r2=came(0, 3)), "peer", "the source differs",
    ),
    "another communicator": (
        tables([], [recv(0)], r1=came(0, 7, B)), "communicator", "the communicators differ",
    ),
    "sent to a third rank": (
        tables([], [recv(0)], [], r2=came(0)), "peer", "rank 0 has sent tag 7 to 2",
    ),
    "wildcards, and nobody sends": (
        tables([], [recv(None, None)]), "missing send", "no rank has sent it anything",
    ),
    "wildcards, and all have left": (
        tables(None, [recv(None, None)], None), "left", "all other ranks have left",
    ),
    "the source has left": (tables(None, [recv(0)]), "left", "rank 0 has left its kernels"),
    "the source computes": (tables([], [recv(0)]), "missing send", "rank 0 has not sent it"),
    "two receives": (
        tables([recv(1)], [recv(0)]), "cycle", "0 -> 1 -> 0: each waits for the other to send",
    ),
    "three receives": (
        tables([recv(1)], [recv(2)], [recv(0)]), "cycle", "each waits for the next to send",
    ),
    "receives and a long send": (
        tables([recv(1)], [send(2, 5, **LONG)], [recv(0)]),
        "cycle", "circle, 0 -> 1 -> 2 -> 0 (rank 0 in GMPI_Irecv from 1",
    ),
    "a circle of which one receive has another tag": (
        tables([recv(1)], [recv(0)], r1=came(0, 8)), "tag", "rank 0 has sent to 1 tag 8",
    ),
    "a receive from oneself": (tables([recv(0)]), "missing send", "waits for itself to send"),
    "a long send to oneself": (
        tables([send(0, **LONG)]), "missing receive", "for what it sends itself",
    ),
    "the source has launched nothing": (
        tables(UNLAUNCHED, [recv(0)]), "not launched", "rank 0 has not launched a kernel yet",
    ),
    "the receiver has launched nothing": (
        tables([send(1, **LONG)], UNLAUNCHED), "not launched", "1 has not launched a kernel yet",
    ),
    "the source compiles its kernel": (
        tables(PREPARING, [recv(0)]), "not launched", "is compiling, linking or launching a kernel",
    ),
    "wildcards, one has left and one has launched nothing": (
        tables(None, [recv(None, None)], UNLAUNCHED),
        "not launched", "rank 0 has left its kernels; rank 2 has not launched a kernel yet",
    ),
    "a rank of a collective has launched nothing": (
        tables([collective()], UNLAUNCHED), "not launched", "waits in GMPI_Barrier",
    ),
    "the receiver posted a receive and computes": (
        tables([send(1, **LONG)], [recv(0, matched=True, commands=1, **LONG)]),
        "missing wait", "rank 1 does not wait for its GMPI_Irecv from 0",
    ),
    "the sender computes": (
        tables([send(1, commands=2, **LONG)], [recv(0, matched=True, **LONG)]),
        "missing wait", "rank 0 does not wait for its GMPI_Isend to 1",
    ),
    "a piece of a long collective": (
        tables([collective(lacks="piece 2 of 3 has not come from rank 1")], [collective()]),
        "follows", "piece 2 of 3 has not come from rank 1; all ranks are in this call",
    ),
    "a rank has left in the middle of one": (
        tables([collective(lacks="piece 2 of 3 has not come from rank 1")], None),
        "left", "but rank 1 has left its kernels",
    ),
    "collective against receive": (
        tables([collective()], [recv(0)]), "order", "the order of calls differs",
    ),
    "two long sends": (tables([send(1, **LONG)], [send(0, **LONG)]), "cycle", "0 -> 1 -> 0"),
    "three long sends": (
        tables([send(1, **LONG)], [send(2, **LONG)], [send(0, **LONG)]),
        "cycle", "0 -> 1 -> 2 -> 0",
    ),
    "a circle that rank 0 only leads to": (
        tables([send(1, **LONG)], [send(2, **LONG)], [send(1, **LONG)]), "cycle", "1 -> 2 -> 1",
    ),
    "the receiver has left": (
        tables([send(1, **LONG)], None), "left", "has left its kernels and has not received it",
    ),
    "the receiver is in a collective of its own": (
        tables([send(1, **LONG)], [collective(comm=B)]),
        "missing receive", "rank 1 is in GMPI_Barrier",
    ),
    "the receiver computes": (
        tables([send(1, **LONG)], []), "missing receive", "has not posted a receive for it",
    ),
    "one collective, two operations": (
        tables([collective("GMPI_Bcast", root=0)], [collective()]), "collective", "calls differ",
    ),
    "one broadcast, two roots": (
        tables([collective("GMPI_Bcast", root=0)], [collective("GMPI_Bcast", root=1)]),
        "collective", "root is 0 on rank 0 and 1 on rank 1",
    ),
    "one reduction, two lengths": (
        tables([reduction()], [reduction(count=16)], [reduction()]),
        "collective", "count is 8 on ranks 0, 2 and 16 on rank 1",
    ),
    "one reduction, two operations": (
        tables([reduction()], [reduction(reduction="MAX")]),
        "collective", "op is SUM on rank 0 and MAX on rank 1",
    ),
    "one reduction, two datatypes": (
        tables([reduction()], [reduction(datatype="CHAR")]),
        "collective", "datatype is BYTE on rank 0 and CHAR on rank 1",
    ),
    "one broadcast, two lengths": (
        tables([collective("GMPI_Bcast", root=0)], [collective("GMPI_Bcast", root=0, nbytes=9)]),
        "collective", "length in bytes is 8 on rank 0 and 9 on rank 1",
    ),
    "one rank of three in another collective": (
        tables([collective()], [collective()], [collective("GMPI_Bcast")]),
        "collective", "ranks 0, 1 in GMPI_Barrier",
    ),
    "a rank left a collective": (
        tables([collective()], None, [collective()]), "left", "ranks 0, 2 wait in GMPI_Barrier",
    ),
    "barriers on two communicators": (
        tables([collective(comm=A)], [collective(comm=B)]),
        "communicator", "the communicators differ",
    ),
    "other collectives on two communicators": (
        tables([collective(comm=A)], [collective("GMPI_Bcast", comm=B)]),
        "order", "the order of collectives differs",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_case(case: str) -> None:
    found, kind, words = CASES[case]
    cause = first(found)
    assert (cause.kind, words in cause.text) == (kind, True), cause


def test_a_call_that_failed_comes_first() -> None:
    found = tables([], [recv(0)])
    found[0] = Table(0, "none running", errors=["GMPI_Isend in block 0: dest is 5"])
    assert first(found).kind == "error" and "dest is 5" in first(found).text


def test_silence() -> None:
    for request in (recv(0), send(0, **LONG), collective()):
        found = tables([], [request])
        found[0] = None
        assert first(found).kind == "silent" and "rank 0 does not answer" in first(found).text


def test_what_follows_from_another_hang_comes_last() -> None:
    # 2 waits for 1, which waits for 0, which has left.
    causes = diagnose(tables(None, [recv(0)], [recv(1)]))
    assert [cause.kind for cause in causes] == ["left", "follows"]


def test_a_message_that_fits_is_no_cause() -> None:
    assert {c.kind for c in diagnose(tables([send(1)], [recv(0)]))} == {"follows"}
    assert {c.kind for c in diagnose(tables([], [recv(None, None)], r1=came(0)))} == {"follows"}
    assert diagnose(tables([], [recv(0, matched=True)])) == []


def test_a_host_without_kernels_has_not_left_them() -> None:
    found = tables([], [recv(0)])
    found[0] = Table(0, "host only")
    assert first(found).kind == "missing send"


def test_a_host_that_receives_by_mpi4py() -> None:
    for line, kind in (
        ("comm.Recv(buf, 0) (run.py:9)", "mpi4py"),
        ("data = world.recv(source=0) (run.py:9)", "mpi4py"),
        ("g.host.Recv(buf, 0) (run.py:9)", "not launched"),
        ("time.sleep(9) (run.py:9)", "not launched"),
    ):
        found = tables([send(1, **LONG)], UNLAUNCHED)
        found[1] = dataclasses.replace(found[1], host=line)
        cause = first(found)
        assert cause.kind == kind, cause
        assert kind != "mpi4py" or f"rank 1 is at {line}: what kernels send" in cause.text


def test_only_the_lines_of_the_user_are_shown() -> None:
    came, go = threading.Event(), threading.Event()

    def wait_here() -> None:
        came.set()
        go.wait()

    threads = [threading.Thread(target=wait_here, name=name) for name in ("mine", "gmpi-own")]
    for thread in threads:
        thread.start()
    came.wait()
    text = stacks()
    go.set()
    for thread in threads:
        thread.join()
    assert "thread mine:" in text and "go.wait()" in text and "gmpi-own" not in text, text
    assert "threading.py" not in text and "site-packages" not in text, text
    assert host_line().startswith("assert host_line()") and "test_diagnosis.py:" in host_line()


def test_nothing_pending() -> None:
    assert diagnose(tables([], None, [])) == []
    assert diagnose({}) == []


def test_ranks_in_words() -> None:
    assert ranks_text([3]) == "rank 3"
    assert ranks_text([2, 0]) == "ranks 0, 2"
    assert ranks_text(list(range(7))) == "ranks 0-6"
    assert ranks_text(list(range(0, 40, 2))) == "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 12 more"


def test_a_report_in_text_and_json() -> None:
    found = tables([], [recv(0)], r1=came(0, 8))
    counters = dict.fromkeys(("taken", "waiting", "opened", "completed", "open", "slots"), 1)
    ranks = {rank: RankReport(table, counters, "looks for work") for rank, table in found.items()}
    report = Report(1, "no progress", {**ranks, 2: None}, diagnose(found))
    assert "likely cause (tag): rank 1 waits in GMPI_Irecv from 0 tag 7, 8 BYTE" in report.text
    assert "rank 2: no answer" in report.text
    content = json.loads(report.json())
    assert content["causes"][0]["kind"] == "tag" and content["ranks"]["2"] is None
    assert content["ranks"]["1"]["table"]["pending"][0]["operation"] == "GMPI_Irecv"


ranks = st.integers(0, 3)
tags = st.integers(0, 2)
comms = st.sampled_from([A, B])
requests = st.one_of(
    st.builds(recv, st.none() | ranks, st.none() | tags, comms),
    st.builds(send, ranks, tags, comms),
    st.builds(collective, st.sampled_from(["GMPI_Barrier", "GMPI_Bcast"]), comms),
)
messages = st.builds(Unexpected, ranks, tags, comms, st.none() | st.integers(0, 100))
ANY = st.tuples(st.none() | st.lists(requests, max_size=3), st.lists(messages, max_size=2))


@given(st.lists(ANY, max_size=4), st.sets(ranks))
def test_any_tables(given: list, silent: set[int]) -> None:
    came = {f"r{rank}": messages for rank, (_, messages) in enumerate(given)}
    found = tables(*(pending for pending, _ in given), **came)
    found.update({rank: None for rank in silent if rank in found})
    causes = diagnose(found)
    for cause in causes:
        assert cause.kind in KINDS and cause.text and set(cause.ranks) <= set(range(4))
    waiting = [t for t in found.values() if t is not None and t.pending]
    unmatched = [r for t in waiting for r in t.pending if r.kind == "receive"]
    assert causes or not unmatched, "a receive waits, and nothing is said"


def test_what_cannot_complete_because_ranks_have_gone() -> None:
    """A broadcast may be late; nothing else is, once who must have a part in it has gone."""

    def told(gone: set[int], *pending: list[Pending]) -> str:
        found = tables(*pending)
        for rank in gone:
            found[rank] = Table(rank, "none running", gone="has closed its context")
        cause = hopeless(found, 0, gone, {})
        return "" if cause is None else cause.text

    bcast = [collective("GMPI_Bcast", root=1)]
    assert told({1}, [recv(1)], []).endswith("but rank 1 has closed its context")
    assert told({1}, [recv(2)], [], []) == ""
    assert told({1}, [recv(None)], [], []) == ""
    assert "; rank 2 has" in told({1, 2}, [recv(None)], [], [])
    assert told({1}, [send(1, **LONG)], []) and told({2}, [send(1, **LONG)], [], []) == ""
    assert told({2}, [collective()], [collective()], [])
    assert told({1}, bcast, [], []) == "" and told({1}, bcast, [], bcast)
    assert told({1}, bcast, [])
    assert told({1}, []) == ""


def test_a_rank_that_has_gone_is_named_where_nothing_that_is_pending_says_why() -> None:
    closed = Table(1, "none running", gone="has closed its context")
    at = dataclasses.replace(tables([])[0], host="solve.py:12, in main")
    (cause,) = diagnose({0: at, 1: closed})
    assert cause.kind == "left" and cause.ranks == (1,)
    assert cause.text == (
        "rank 1 has closed its context; nothing is pending on rank 0; "
        "the host of rank 0 is at solve.py:12, in main"
    )
    (cause,) = diagnose({0: at, 1: None})
    assert cause.kind == "silent" and cause.text.startswith("rank 1 does not answer: its context")
    assert diagnose({0: at, 1: tables([], [])[1]}) == []
    # Who waits for it says more, and what is pending elsewhere as well.
    assert [c.text for c in diagnose({**tables([recv(1)]), 1: closed})] == [
        f"rank 0 waits in {recv(1)}, but rank 1 has closed its context"
    ]
    found = {**tables([recv(2)], [], []), 1: closed}
    assert [c.kind for c in diagnose(found)] == ["missing send"]
    # All have gone: nobody waits.
    assert diagnose({0: dataclasses.replace(closed, rank=0), 1: closed}) == []


def test_host_and_kernels_meet_in_one_collective() -> None:
    """A reduction that a kernel, and the host of another rank, wait in is not two calls."""
    ours = reduction(nbytes=16, datatype="INT64_T", count=2)
    host = make(
        "Context.host.Allreduce", "collective", None, None, A,
        nbytes=16, datatype="LONG", count=2, block=-1, reduction="SUM",
    )  # fmt: skip
    causes = diagnose(tables([ours], [host], [recv(0)]))
    assert "collective" not in {cause.kind for cause in causes}, causes
    longer = make(
        "Context.host.Allreduce", "collective", None, None, A,
        nbytes=24, datatype="LONG", count=3, block=-1, reduction="SUM",
    )  # fmt: skip
    assert first(tables([ours], [longer])).kind == "collective"
