"""The same as ``test_diagnosis`` of partitioned requests, and of calls of grid scope."""

from __future__ import annotations

import dataclasses

import pytest
from pending_tables import A, first, make, recv, send, tables

from gmpi.diagnose.diagnosis import diagnose
from gmpi.diagnose.tables import Ended

pytestmark = pytest.mark.quick


def two_ends(theirs: Ended | None, mine: Ended, **more: object) -> dict:
    """Rank 1 waits for an end; rank 0 has the other one, and is in its kernel."""
    kind = "send" if mine.sends else "receive"
    waits = make("GMPI_Wait", kind, 0, 7, A, end=mine.number, lacks="partition 1 is not there")
    found = tables([], [waits])
    found[0] = dataclasses.replace(found[0], ends=[theirs] if theirs else [], **more)
    found[1] = dataclasses.replace(found[1], ends=[mine])
    return found


def end_of(sends: bool, rounds: int, left: int = 0, tag: int = 7, other: int = 5) -> Ended:
    peer = 1 if other == 5 else 0  # rank 0's end says so of rank 1's, which is number 5
    number = 3 if other == 5 else 5
    return Ended(number, other, sends, peer, tag, A, 8, rounds, left, "3-7" if left else "")


@pytest.mark.parametrize(
    ("theirs", "mine", "kind", "words"),
    [
        (end_of(True, 2, 5), (False, 2, 8), "partitions", "3 of 8 partitions ready; missing: 3-7"),
        (end_of(True, 1), (False, 2, 8), "missing send", "started its send 1 times, rank 1 waits"),
        (end_of(True, 2), (False, 2, 1), "follows", "has done its part of round 2"),
        (end_of(True, 2, 0, 8, -1), (False, 1, 8), "tag", "with tag 8: the tags differ"),
        (None, (False, 1, 8), "missing send", "no partitioned send for it (Context.Psend_init)"),
        (None, (True, 1, 0), "missing receive", "(Context.Precv_init)"),
        (end_of(False, 0), (True, 1, 0), "missing receive", "started its receive 0 times"),
        (end_of(False, 1, 8), (True, 1, 5), "partitions", "rank 1 has made 3 of 8 partitions"),
    ],
)
def test_why_a_partitioned_request_is_not_complete(
    theirs: Ended | None, mine: tuple[bool, int, int], kind: str, words: str
) -> None:
    if theirs is not None and theirs.other < 0:
        theirs = dataclasses.replace(theirs, peer=1)
    cause = first(two_ends(theirs, end_of(*mine, other=3)))
    assert cause.kind == kind and words in cause.text, cause


def test_blocks_that_have_not_come() -> None:
    waits = make("call of grid scope", "other", None, None, "", lacks="2 of the grid's 3 blocks")
    cause = first(tables([waits], [recv(0)]))
    assert cause.kind == "grid" and cause.ranks == (0,), cause
    assert "rank 0 waits in a call of grid scope" in cause.text
    assert "2 of the grid's 3 blocks" in cause.text


def test_a_sender_of_partitions_that_has_left() -> None:
    found = two_ends(end_of(True, 2, 5), end_of(False, 2, 8, other=3), kernels="none running")
    cause = first(found)
    assert cause.kind == "left", cause
    assert "has left its kernels; rank 0 has made 3 of 8 partitions ready" in cause.text, cause


def test_partitioned_requests_match_no_message() -> None:
    found = two_ends(end_of(True, 1, 5), end_of(False, 1, 8, other=3))
    found[0].pending.append(send(1))
    texts = [cause.text for cause in diagnose(found) if cause.kind == "missing receive"]
    assert len(texts) == 1 and "rank 0 waits in GMPI_Isend" in texts[0], texts
