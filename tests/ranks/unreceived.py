"""Messages of the direct road that nobody receives: what a context says of them when it closes, and
that it says nothing where all have been received."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable

import numpy as np
from channel_numbers import move_on
from common import RANK, SIZE, WORLD, barrier, end, pattern, run
from script import Script

import gmpi
from gmpi.contract.channels import DEPTH, HALF_TURN, KEY_TAG_MASK, ROOM, WIDE_ROOM
from gmpi.lifetime import unreceived

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE
NEVER = "of the direct road were never received: "


def told(g: gmpi.Context) -> str:
    """What closing it warns of, without the rank; empty: nothing."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        g.close()
    texts = [str(w.message) for w in caught if w.category is gmpi.LeakWarning]
    assert len(texts) < 2, texts
    return texts[0].removeprefix(f"rank {RANK}: ") if texts else ""


def exchange(g: gmpi.Context, sends: int, receives: int, tag: int, n: int = 8) -> None:
    """Rank 1 sends to 0, which receives."""
    s = Script()
    for _ in range(sends if RANK == 1 else 0):
        s.send(s.data(pattern(n, 1)), n, gmpi.BYTE, 0, tag)
    for _ in range(receives if RANK == 0 else 0):
        s.recv(s.room(n), n, gmpi.BYTE, 1, tag)
    s.run(g)


def one_too_many() -> None:
    """Its receiver says so, and nobody else."""
    g = gmpi.Context(WORLD, wildcards=False)
    exchange(g, 3, 2, 7)
    barrier()
    said = (
        "rank 1 has sent 3 messages to rank 0 with tag 7 on COMM_WORLD, 2 were received (8 bytes)"
    )
    text = told(g)
    assert text == (f"1 messages {NEVER}{said}" if RANK == 0 else ""), text


def sizes_of_all_ways() -> None:
    """Nobody has asked for the channel here; by a slot, by the wide slot, and in rounds, whose
    sender does not wait either."""
    sizes = [0, 8, ROOM, ROOM + 1, WIDE_ROOM, WIDE_ROOM + 1]
    g = gmpi.Context(WORLD, wildcards=False)
    s = Script()
    for i, n in enumerate(sizes if RANK == 1 else []):
        call = s.send if n <= WIDE_ROOM else s.isend
        call(s.data(pattern(n, 1)), n, gmpi.BYTE, 0, i)
    s.run(g)
    barrier()
    text = told(g)
    if RANK == 0:
        found = re.findall(r"with tag (\d+) on COMM_WORLD, 0 were received \((\d+) bytes\)", text)
        assert text.startswith(f"6 messages {NEVER}rank 1 has sent 1 message to rank 0"), text
        assert [(int(tag), int(n)) for tag, n in found] == list(enumerate(sizes))[:5], text
        assert text.endswith("; ..."), text
    elif RANK == 1:
        wanted = f"GMPI_Isend peer 0 tag 5 on communicator 0, {WIDE_ROOM + 1} bytes"
        assert text == f"1 requests of the direct road were never waited for: {wanted}", text
    else:
        assert text == "", text


def of_a_full_inbox() -> None:
    """More than it holds: the rest waits in requests of the sender."""
    g = gmpi.Context(WORLD, wildcards=False)
    s = Script()
    for k in range(DEPTH + 2 if RANK == 1 else 0):
        call = s.send if k < DEPTH else s.isend
        call(s.data(pattern(8, 1)), 8, gmpi.BYTE, 0, 3)
    s.run(g)
    barrier()
    text = told(g)
    if RANK == 0:
        said = "rank 1 has sent 8 messages to rank 0 with tag 3 on COMM_WORLD, 0 were received"
        assert text == f"8 messages {NEVER}{said} (the next: 8 bytes)", text
    elif RANK == 1:
        assert text.startswith("2 requests of the direct road were never waited for: "), text
        assert NEVER not in text, text


def to_oneself() -> None:
    g = gmpi.Context(WORLD, wildcards=False)
    s = Script()
    s.send(s.data(pattern(5, 1)), 5, gmpi.BYTE, RANK, 4)
    s.run(g)
    text = told(g)
    said = (
        f"rank {RANK} has sent 1 message to rank {RANK} with tag 4 on COMM_WORLD, 0 were received"
    )
    assert text == f"1 messages {NEVER}{said} (5 bytes)", text


def on_another_communicator() -> None:
    """Whose ranks are not those of the context; the report has those of the context."""
    turned = WORLD.Split(0, -RANK)
    g = gmpi.Context(WORLD)
    handle = g.comm(turned, wildcards=False)
    s = Script()
    if RANK == 1:
        s.send(s.data(pattern(8, 1)), 8, gmpi.BYTE, SIZE - 1, 7, handle)
    s.run(g)
    barrier()
    text = told(g)
    if RANK == 0:
        said = (
            r"rank 1 has sent 1 message to rank 0 with tag 7 on communicator #\S+, 0 were received"
        )
        assert re.fullmatch(rf"1 messages {NEVER}{said} \(8 bytes\)", text), text
    else:
        assert text == "", text
    turned.Free()


def to_a_rank_that_has_closed() -> None:
    """Its receiver cannot know: the sender says so."""
    g = gmpi.Context(WORLD, wildcards=False)
    exchange(g, 2, 2, 7)
    barrier()
    if RANK == 0:
        assert told(g) == ""
    barrier()
    if RANK == 1:
        exchange(g, 2, 0, 7)
    text = told(g) if RANK > 0 else ""
    said = "rank 1 has sent 4 messages to rank 0 with tag 7 on COMM_WORLD, 2 were received"
    assert text == (f"2 messages {NEVER}{said}" if RANK == 1 else ""), text


def while_its_receiver_closes() -> None:
    """It listens for the receiver of a message of its own, for longer than the sender listens."""
    g = gmpi.Context(WORLD, wildcards=False)
    s = Script()
    if RANK == 0:
        s.send(s.data(pattern(8, 0)), 8, gmpi.BYTE, 1, 9)
    s.run(g)
    exchange(g, 1, 1, 7)
    barrier()
    if RANK == 1:
        time.sleep(0.3)  # it listens by now
        exchange(g, 1, 0, 7)
    usual = unreceived._LISTEN_S
    if RANK == 0:
        unreceived._LISTEN_S = 10.0
    text = told(g)
    unreceived._LISTEN_S = usual
    said = {
        0: "rank 1 has sent 2 messages to rank 0 with tag 7 on COMM_WORLD, 1 was received",
        1: "rank 0 has sent 1 message to rank 1 with tag 9 on COMM_WORLD, 0 were received",
    }
    assert text == (f"1 messages {NEVER}{said[RANK]} (8 bytes)" if RANK < 2 else ""), text


def a_receive_too_many() -> None:
    """Whose message has not come, and one whose message has; its sender does not say so, too."""
    g = gmpi.Context(WORLD, wildcards=False)
    s = Script()
    if RANK == 1:
        s.send(s.data(pattern(8, 1)), 8, gmpi.BYTE, 0, 6)
    elif RANK == 0:
        for _ in range(2):
            s.irecv(s.room(8), 8, gmpi.BYTE, 1, 6)
    s.run(g)
    barrier()
    text = told(g)
    one = "GMPI_Irecv peer 1 tag 6 on communicator 0, 8 bytes"
    said = f"2 requests of the direct road were never waited for: {one}; {one}, whose message has "
    assert text == (f"{said}not come" if RANK == 0 else ""), text


def all_received() -> None:
    """Many messages with many tags, also beyond the end of the numbers, and calls that have
    messages of their own: nothing is said."""
    g = gmpi.Context(WORLD, wildcards=False)
    for turn in range(2):
        s = Script("warp", 32)
        for tag in range(22, 52):
            for k in range(1 + tag % 11):
                n = (8, 300, ROOM + 1)[k % 3]
                r = s.irecv(s.room(n), n, gmpi.BYTE, PREVIOUS, tag)
                q = s.isend(s.data(pattern(n, RANK)), n, gmpi.BYTE, NEXT, tag)
                s.waitall([r, q])
        s.barrier()
        s.allreduce(s.data(np.arange(2.0)), s.room(16), 2, gmpi.DOUBLE, gmpi.SUM)
        s.run(g)
        barrier()
        if turn == 0:
            for last, number in enumerate((2 * HALF_TURN - DEPTH, HALF_TURN - DEPTH)):
                move_on(g, lambda keys, last=last: keys & KEY_TAG_MASK == 31 + last, number)
        barrier()
    assert told(g) == ""


def the_receiver_closes_later() -> None:
    """Who has sent does not wait for it, nor say anything of what has not been received so far."""
    g = gmpi.Context(WORLD, wildcards=False)
    exchange(g, 1, 1, 2)
    if RANK == 1:
        exchange(g, 3, 0, 2)
        assert told(g) == ""
    barrier()
    if RANK == 0:
        exchange(g, 0, 3, 2)
    if RANK != 1:
        assert told(g) == ""


SCENARIOS: list[Callable[[], None]] = [
    one_too_many, sizes_of_all_ways, of_a_full_inbox, to_oneself, on_another_communicator,
    to_a_rank_that_has_closed, while_its_receiver_closes, a_receive_too_many, all_received,
    the_receiver_closes_later,
]  # fmt: skip

run(SCENARIOS)
end()
