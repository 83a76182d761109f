"""What reports say of messages of the direct road, whose numbers both ends know: no MPI."""

from __future__ import annotations

import pytest
from pending_tables import came, first, recv, send, tables

from gmpi.contract.channels import DEPTH, HALF_TURN, NUMBERS, number_mark
from gmpi.diagnose.tables import Unexpected
from gmpi.observe.messages import _first_missing, distance

pytestmark = pytest.mark.quick

CASES = {
    "one message too few": (
        tables(None, [recv(0, number=4, done=3)]), "left",
        "but rank 0 has left its kernels; rank 0 has sent 3 messages with tag 7, rank 1 waits for "
        "message 4",
    ),
    "another tag, after one of this": (
        tables([], [recv(0, number=2, done=1)], r1=came(0, 8)), "tag",
        "the tags differ; rank 0 has sent 1 message with tag 7, rank 1 waits for message 2",
    ),
    "a full inbox": (
        tables([send(1, number=11, done=2)], []), "missing receive",
        "rank 1 has received 2 messages with tag 7, rank 0 sends message 11",
    ),
    "nobody waits for a receive": (
        tables([send(1, number=3, done=2)], [recv(0, number=3, done=3, matched=True, waits=False)]),
        "missing wait", "rank 1 does not wait for its GMPI_Irecv from 0 tag 7, 8 BYTE on "
        "COMM_WORLD: it goes on only while threads of rank 1 wait",
    ),
    "nobody waits for a send": (
        tables([send(1, number=9, done=8, waits=False)], [recv(0, number=9, done=8)]),
        "missing wait", "rank 0 does not wait for its GMPI_Isend to 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_causes_say_how_many_messages_there_were(case: str) -> None:
    found, kind, words = CASES[case]
    cause = first(found)
    assert cause.kind == kind and words in cause.text, cause


def test_a_first_message_is_not_counted() -> None:
    assert "waits for message" not in first(tables(None, [recv(0, number=1, done=0)])).text


def test_a_rank_that_waits_goes_on_with_its_other_requests() -> None:
    """Then it is not for lack of a wait that the other one waits."""
    found = tables(
        [send(1, number=9, done=8, waits=False), recv(1, 5, number=1)], [recv(0, number=9, done=8)]
    )
    assert first(found).kind != "missing wait"


def test_what_has_come_is_counted() -> None:
    assert (
        str(Unexpected(0, 7, "COMM_WORLD", 8, 2))
        == "8 bytes from 0 tag 7 on COMM_WORLD, and 2 more"
    )
    assert str(Unexpected(0, 7, "COMM_WORLD", 8)) == "8 bytes from 0 tag 7 on COMM_WORLD"


@pytest.mark.parametrize("sent", [0, 1, DEPTH - 1, DEPTH, DEPTH + 3, HALF_TURN - 2, NUMBERS - 1])
def test_how_many_have_come_is_seen_in_the_slots(sent: int) -> None:
    marks = [0] * DEPTH
    for number in range(max(0, sent - DEPTH), sent):
        marks[number % DEPTH] = number_mark(number)
    for behind in (-2, 0, 5):
        assert _first_missing(marks, (sent + behind) & NUMBERS) == sent


def test_numbers_wrap() -> None:
    assert distance(NUMBERS, 2) == 3 and distance(2, NUMBERS) == -3
    assert distance(5, 5) == 0
