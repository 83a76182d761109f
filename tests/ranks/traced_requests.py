"""Traces of sends that the proxy keeps, of calls that send and receive, of requests that are
started often, and of one-sided calls: each message has its arrow.

mpiexec -n 2 python tests/ranks/traced_requests.py [SCENARIO ...]
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import sys
import types
from collections import Counter

import numpy as np
from common import RANK, WORLD, barrier, end, run
from numba import cuda
from traced_programs import joined, traced

import gmpi
from gmpi import (
    GMPI_Bsend,
    GMPI_Compare_and_swap,
    GMPI_Get,
    GMPI_Ibsend,
    GMPI_Isendrecv,
    GMPI_Isendrecv_replace,
    GMPI_Parrived,
    GMPI_Pready,
    GMPI_Put,
    GMPI_Recv,
    GMPI_Recv_init,
    GMPI_Request_free,
    GMPI_Rput,
    GMPI_Send_init,
    GMPI_Sendrecv_replace,
    GMPI_Start,
    GMPI_Startall,
    GMPI_Wait,
    GMPI_Waitall,
    GMPI_Win_fence,
    GMPI_Win_flush,
    GMPI_Win_lock_all,
    GMPI_Win_unlock_all,
)
from gmpi.trace.operation import Operation
from gmpi.trace.summary import summarize

PEER = 1 - RANK
INT = gmpi.INT32_T


@cuda.jit
def kept(ctx, a, b, peer):
    """Seven messages each way, of two elements."""
    GMPI_Bsend(ctx, a, 2, INT, peer, 1, 0)
    GMPI_Recv(ctx, b, 2, INT, peer, 1, 0)
    r = GMPI_Ibsend(ctx, a, 2, INT, peer, 1, 0)
    GMPI_Recv(ctx, b, 2, INT, gmpi.ANY_SOURCE, 1, 0)
    GMPI_Wait(ctx, r)
    r = GMPI_Isendrecv(ctx, a, 2, INT, peer, 2, b, 2, INT, peer, 2, 0)
    GMPI_Wait(ctx, r)
    for tag in range(3, 5):
        r = GMPI_Isendrecv_replace(ctx, b, 2, INT, peer, tag, gmpi.ANY_SOURCE, tag, 0)
        GMPI_Waitall(ctx, 1, (r,))
        GMPI_Sendrecv_replace(ctx, b, 2, INT, peer, tag, peer, tag, 0)


def buffered_sends_and_calls_of_both() -> None:
    """A message of a kernel or of the host is one send, whoever keeps its bytes."""

    def program(g: gmpi.Context) -> None:
        a, b = cuda.to_device(np.arange(2, dtype=np.int32)), cuda.to_device(np.zeros(2, np.int32))
        kept[1, 32](g.device, a, b, PEER)
        g.synchronize()
        mine, other = np.full(1, RANK), np.zeros(1, int)
        g.host.Bsend(mine, PEER, 11)
        g.host.Ibsend(mine, PEER, 11).Wait()
        for _ in range(2):
            g.host.Recv(other, PEER, 11)
        assert other[0] == PEER
        g.host.Sendrecv_replace(mine, PEER, 12, PEER, 12)
        barrier()

    pairs = joined(*traced(program), 20)
    names = Counter(pair.send.name for pair in pairs if pair.sender == 0)
    assert names == {
        "GMPI_Bsend": 1, "GMPI_Ibsend": 1, "GMPI_Isendrecv": 1, "GMPI_Isendrecv_replace": 2,
        "GMPI_Sendrecv_replace": 2, "host.Bsend": 1, "host.Ibsend": 1,
        "host.Sendrecv_replace": 1,
    }, names  # fmt: skip
    assert all(p.receive.nbytes == 8 for p in pairs)


@cuda.jit
def rounds(ctx, a, b, peer):
    """Three rounds of two persistent sends and receives of the same tag."""
    s0 = GMPI_Send_init(ctx, a, 2, INT, peer, 7, 0)
    s1 = GMPI_Send_init(ctx, a, 1, INT, peer, 7, 0)
    r0 = GMPI_Recv_init(ctx, b[0], 2, INT, peer, gmpi.ANY_TAG, 0)
    r1 = GMPI_Recv_init(ctx, b[1], 2, INT, peer, gmpi.ANY_TAG, 0)
    for _ in range(2):
        GMPI_Start(ctx, r0)
        GMPI_Start(ctx, s0)
        GMPI_Startall(ctx, 2, (r1, s1))
        GMPI_Wait(ctx, s1)
        GMPI_Wait(ctx, s0)
        GMPI_Wait(ctx, r0)
        GMPI_Wait(ctx, r1)
    GMPI_Start(ctx, r0)
    GMPI_Startall(ctx, 1, (s0,))
    GMPI_Waitall(ctx, 2, (s0, r0))
    for request in (s0, s1, r0, r1):
        GMPI_Request_free(ctx, request)


def persistent_requests() -> None:
    def program(g: gmpi.Context) -> None:
        a = cuda.to_device(np.arange(2, dtype=np.int32))
        b = cuda.to_device(np.zeros((2, 2), np.int32))
        rounds[1, 32](g.device, a, b, PEER)
        g.synchronize()

    ranks, merged = traced(program)
    pairs = joined(ranks, merged, 10)
    assert {pair.send.road for pair in pairs} == {"proxied"}
    sizes = [pair.send.nbytes for pair in pairs if pair.sender == 0]
    assert sizes == [8, 4, 8, 4, 8], sizes
    calls = Counter(call["name"] for call in ranks[0]["calls"])
    assert calls["GMPI_Start"] == 5 and calls["GMPI_Startall"] == 3, calls


@cuda.jit
def directly(ctx, a, b, peer):
    GMPI_Sendrecv_replace(ctx, a, 2, INT, peer, 4, peer, 4, 0)
    s = GMPI_Send_init(ctx, a, 2, INT, peer, 7, 0)
    r = GMPI_Recv_init(ctx, b, 2, INT, peer, 7, 0)
    for _ in range(2):
        GMPI_Startall(ctx, 2, (r, s))
        GMPI_Wait(ctx, s)
        GMPI_Wait(ctx, r)
    GMPI_Startall(ctx, 2, (r, s))
    GMPI_Waitall(ctx, 2, (s, r))
    GMPI_Request_free(ctx, s)
    GMPI_Request_free(ctx, r)


def on_the_direct_road() -> None:
    def program(g: gmpi.Context) -> None:
        a, b = cuda.to_device(np.arange(2, dtype=np.int32)), cuda.to_device(np.zeros(2, np.int32))
        directly[1, 32](g.device, a, b, PEER)

    pairs = joined(*traced(program, wild=False), 8)
    assert {pair.send.road for pair in pairs} == {"direct"}


@cuda.jit
def by_partitions(ctx, sends, recvs):
    """Two partitioned requests of one tag, two rounds: the last partition is made ready by block 1,
    when block 0 waits already."""
    block = cuda.blockIdx.x
    grid = cuda.cg.this_grid()
    for _ in range(2):
        if block == 0:
            GMPI_Startall(ctx, 2, recvs)
            GMPI_Start(ctx, sends[0])
            GMPI_Start(ctx, sends[1])
        grid.sync()
        for i in range(2):
            if block == 0:
                GMPI_Pready(ctx, 0, sends[i])
            else:
                while not GMPI_Parrived(ctx, recvs[i], 0):
                    pass
                GMPI_Pready(ctx, 1, sends[i])
        if block == 0:
            for i in range(2):
                GMPI_Wait(ctx, recvs[i])
                GMPI_Wait(ctx, sends[i])
        grid.sync()


def partitioned_requests() -> None:
    """The arrow leaves where the last partition was made ready. Two requests of a tag are matched
    in the order in which they were made, which their lengths show."""

    def program(g: gmpi.Context) -> None:
        out, back = g.zeros((2, 8), np.int32), g.zeros((2, 8), np.int32)
        short, long = 2, 4
        sends = [g.Psend_init(out[i], 2, n, INT, PEER, 9) for i, n in enumerate((short, long))]
        recvs = [g.Precv_init(back[i], 2, n, INT, PEER, 9) for i, n in enumerate((short, long))]
        by_partitions[2, 32](g.device, cuda.to_device(sends), cuda.to_device(recvs))
        g.synchronize()
        for request in (*sends, *recvs):
            g.Request_free(request)

    for wild in (True, False):
        ranks, merged = traced(program, wild)
        pairs = joined(ranks, merged, 8)
        assert sorted(p.send.nbytes for p in pairs if p.sender == 0) == [16, 16, 32, 32]
        for facts in ranks:
            tracks = {int(number): name for number, name in facts["tracks"].items()}
            for pair in (p for p in pairs if p.sender == facts["rank"]):
                moment, track = pair.send.left
                assert tracks[track] == "block 1", tracks[track]
                assert pair.send.begin < moment <= pair.receive.end, pair


@cuda.jit
def windows(ctx, win, a, b, peer, me):
    GMPI_Win_fence(ctx, 0, win)
    GMPI_Put(ctx, a, 2, gmpi.INT64_T, peer, 0, 2, gmpi.INT64_T, win)
    GMPI_Win_fence(ctx, gmpi.MODE_NOSUCCEED, win)
    GMPI_Win_lock_all(ctx, 0, win)
    GMPI_Get(ctx, b, 1, gmpi.INT64_T, peer, 0, 1, gmpi.INT64_T, win)
    r = GMPI_Rput(ctx, a, 1, gmpi.INT64_T, peer, 2, 1, gmpi.INT64_T, win)
    GMPI_Wait(ctx, r)
    GMPI_Win_flush(ctx, me, win)  # of another target
    GMPI_Win_flush(ctx, peer, win)
    GMPI_Compare_and_swap(ctx, a, a, b, gmpi.INT64_T, peer, 3, win)
    GMPI_Put(ctx, a, 1, gmpi.INT64_T, me, 0, 1, gmpi.INT64_T, win)
    GMPI_Win_unlock_all(ctx, win)


def one_sided_calls() -> None:
    def program(g: gmpi.Context) -> None:
        memory = g.zeros(4, np.int64)
        win = g.win(memory)
        a, b = cuda.to_device(np.arange(2)), cuda.to_device(np.zeros(2, np.int64))
        windows[1, 32](g.device, win, a, b, PEER, RANK)
        g.synchronize()
        g.win_free(win)

    ranks, merged = traced(program, wild=False)
    for facts in ranks:
        own = [Operation(**op) for op in facts["operations"] if op["kind"] == "access"]
        assert [(op.name, op.peer, op.nbytes) for op in own] == [
            ("GMPI_Put", 1 - facts["rank"], 16), ("GMPI_Get", 1 - facts["rank"], 8),
            ("GMPI_Rput", 1 - facts["rank"], 8),
            ("GMPI_Compare_and_swap", 1 - facts["rank"], 8), ("GMPI_Put", facts["rank"], 8),
        ]  # fmt: skip
        spans = {call["begin"]: call["name"] for call in facts["calls"]}
        closed = [spans[op.waited] for op in own]
        assert closed == [
            "GMPI_Win_fence", "GMPI_Get", "GMPI_Win_flush", "GMPI_Compare_and_swap",
            "GMPI_Win_unlock_all",
        ], closed  # fmt: skip
        flushes = [call for call in facts["calls"] if call["name"] == "GMPI_Win_flush"]
        assert own[2].waited == max(flush["begin"] for flush in flushes)
    arrows = Counter((e["ph"], e["pid"]) for e in merged if e["ph"] in "sf")
    # Put, Rput and Compare_and_swap leave from their rank, and what Get loads from the target.
    assert arrows == {(kind, rank): 4 for kind in "sf" for rank in (0, 1)}, arrows
    found = summarize(ranks)
    rows = {(r["from"], r["to"], r["operation"]): r for r in found["by_access"]}
    assert rows[0, 1, "GMPI_Put"]["bytes"] == 16 and rows[0, 0, "GMPI_Put"]["calls"] == 1
    assert not any(row["not_completed"] for row in rows.values())
    fences = [row for row in found["collectives"] if row["operation"] == "GMPI_Win_fence"]
    assert [row["calls"] for row in fences] == [2], found["collectives"]


class Domain:
    """As the package nvtx has them."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.open: dict[int, str] = {}

    def get_event_attributes(self, message: str) -> str:
        return message

    def start_range(self, attributes: str) -> int:
        self.begun.append(attributes)
        self.open[len(self.begun)] = attributes
        return len(self.begun)

    def end_range(self, number: int) -> None:
        del self.open[number]


def nvtx_ranges() -> None:
    """Of host calls, launches, opening and closing; each is ended once."""
    domain = Domain()
    package = types.ModuleType("nvtx")
    package.get_domain = {"gmpi": domain}.get  # type: ignore[attr-defined]
    before = sys.modules.get("nvtx")
    sys.modules["nvtx"] = package
    try:
        mine, other = np.full(1, RANK), np.zeros(1, int)
        with gmpi.Context(WORLD, nvtx="on") as g:
            assert domain.begun == ["open context"] and not domain.open
            request = g.host.Irecv(other, PEER, 60)
            g.host.Send(mine, PEER, 60)
            request.Wait()
            barriers[1, 32](g.device)
            g.synchronize()
            late = g.host.Irecv(other, PEER, 61)
            assert list(domain.open.values()) == ["Irecv"], domain.open
            g.host.Ssend(mine, PEER, 61)
            late.Wait()
        assert domain.begun[1:] == [
            "Irecv", "Send", "launch barriers", "synchronize", "Irecv", "Ssend", "close context",
        ], domain.begun  # fmt: skip
        assert not domain.open, domain.open
        domain.begun.clear()
        with gmpi.Context(WORLD) as g:
            g.host.Barrier()
        assert domain.begun == []
    finally:
        sys.modules["nvtx"] = before  # type: ignore[assignment]  # None: it cannot be imported


@cuda.jit
def barriers(ctx):
    gmpi.GMPI_Barrier(ctx, 0)


run(
    [
        buffered_sends_and_calls_of_both, persistent_requests, on_the_direct_road,
        partitioned_requests, one_sided_calls, nvtx_ranges,
    ]
)  # fmt: skip
end()
