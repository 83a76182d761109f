"""Traces of known programs: every send has its receive, spans nest, times follow each other.

mpiexec -n 2 python tests/ranks/traced.py [--some] [SCENARIO ...]
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from common import RANK, WORLD, barrier, end, run
from numba import cuda
from traced_programs import joined, traced

import gmpi
from device_lib.platform import primitives
from gmpi import (
    GMPI_Allreduce,
    GMPI_Barrier,
    GMPI_Iallreduce,
    GMPI_Irecv,
    GMPI_Irecv_warp,
    GMPI_Isend,
    GMPI_Isend_warp,
    GMPI_Recv,
    GMPI_Send,
    GMPI_Sendrecv,
    GMPI_Test,
    GMPI_Wait,
    GMPI_Wait_warp,
    GMPI_Waitall,
)
from gmpi.trace import merge
from gmpi.trace.summary import summarize

PEER = 1 - RANK
LONG = 5000  # int32: above eager_bytes


@cuda.jit
def messages(ctx, send, recv, n, peer, me):
    """Five messages each way, of n elements: all ways to complete one, but for tests."""
    block = cuda.blockIdx.x
    r = GMPI_Irecv(ctx, recv[block], n, gmpi.INT32_T, peer, block, 0)
    s = GMPI_Isend(ctx, send[block], n, gmpi.INT32_T, peer, block, 0)
    GMPI_Wait(ctx, s)
    GMPI_Wait(ctx, r)
    if me == 0:
        GMPI_Send(ctx, send[block], n, gmpi.INT32_T, peer, block, 0)
        GMPI_Recv(ctx, recv[block], n, gmpi.INT32_T, peer, block, 0)
    else:
        GMPI_Recv(ctx, recv[block], n, gmpi.INT32_T, peer, block, 0)
        GMPI_Send(ctx, send[block], n, gmpi.INT32_T, peer, block, 0)
    GMPI_Sendrecv(
        ctx, send[block], n, gmpi.INT32_T, peer, 10 + block,
        recv[block], n, gmpi.INT32_T, peer, 10 + block, 0,
    )  # fmt: skip
    r = GMPI_Irecv(ctx, recv[block], n, gmpi.INT32_T, peer, 20 + block, 0)
    s = GMPI_Isend(ctx, send[block], n, gmpi.INT32_T, peer, 20 + block, 0)
    GMPI_Waitall(ctx, 2, (r, s))
    r = GMPI_Irecv_warp(ctx, recv[block], n, gmpi.INT32_T, peer, 30 + block, 0)
    s = GMPI_Isend_warp(ctx, send[block], n, gmpi.INT32_T, peer, 30 + block, 0)
    GMPI_Wait_warp(ctx, s)
    GMPI_Wait_warp(ctx, r)


@cuda.jit
def wildcards(ctx, buf, peer):
    """Two receives of anything, posted before the sends; tested for, and waited for in turn."""
    a = GMPI_Irecv(ctx, buf[0:1], 1, gmpi.INT32_T, gmpi.ANY_SOURCE, gmpi.ANY_TAG, 0)
    b = GMPI_Irecv(ctx, buf[1:2], 1, gmpi.INT32_T, gmpi.ANY_SOURCE, gmpi.ANY_TAG, 0)
    GMPI_Send(ctx, buf[2:3], 1, gmpi.INT32_T, peer, 40, 0)
    GMPI_Send(ctx, buf[2:3], 1, gmpi.INT32_T, peer, 41, 0)
    GMPI_Wait(ctx, b)
    done, _ = GMPI_Test(ctx, a)
    while not done:
        done, _ = GMPI_Test(ctx, a)


@cuda.jit
def collectives(ctx, numbers):
    GMPI_Barrier(ctx, 0)
    GMPI_Allreduce(ctx, gmpi.IN_PLACE, numbers, 1, gmpi.INT64_T, gmpi.SUM, 0)
    request = GMPI_Iallreduce(ctx, gmpi.IN_PLACE, numbers, 1, gmpi.INT64_T, gmpi.SUM, 0)
    GMPI_Wait(ctx, request)


@cuda.jit
def barriers(ctx, n):
    for _ in range(n):
        GMPI_Barrier(ctx, 0)


@cuda.jit
def timed(ctx, numbers, peer, me, stamps, pause):
    """Messages to and fro, between them pauses of a hundred lengths, with the GPU's timer before
    and after each call."""
    for i in range(stamps.shape[0]):
        begin = gmpi.clock()
        while gmpi.clock() - begin < (i % 100) * pause:
            pass
        before = gmpi.timer_ns()
        if (i + me) % 2 == 0:
            GMPI_Send(ctx, numbers, 1, gmpi.INT32_T, peer, 1, 0)
        else:
            GMPI_Recv(ctx, numbers, 1, gmpi.INT32_T, peer, 1, 0)
        after = gmpi.timer_ns()
        if cuda.threadIdx.x == 0:
            stamps[i, 0] = before
            stamps[i, 1] = after


def exchange(blocks: int, n: int) -> Callable[[gmpi.Context], None]:
    def program(g: gmpi.Context) -> None:
        send = cuda.to_device(np.arange(blocks * n, dtype=np.int32).reshape(blocks, n))
        recv = cuda.to_device(np.zeros((blocks, n), np.int32))
        messages[blocks, 32](g.device, send, recv, n, PEER, RANK)
        g.synchronize()
        assert np.array_equal(recv.copy_to_host(), send.copy_to_host())

    return program


def every_send_has_its_receive() -> None:
    near = "proxied" if os.environ.get("GMPI_TEST_NODES") else "direct"
    for wild, road in ((True, "proxied"), (False, near)):
        ranks, merged = traced(exchange(2, 3), wild)
        pairs = joined(ranks, merged, 20)
        assert {pair.send.road for pair in pairs} == {pair.receive.road for pair in pairs} == {road}
        assert {pair.send.nbytes for pair in pairs} == {12}
        tracks = {name for facts in ranks for name in facts["tracks"].values()}
        assert {"host", "proxy", "block 0", "block 1", "block 1 warp 0"} <= tracks, tracks
        calls = Counter(call["name"] for call in ranks[0]["calls"])
        assert calls["GMPI_Isend"] == calls["GMPI_Wait"] == 4 and calls["GMPI_Isend_warp"] == 2
        assert all(op["end"] for facts in ranks for op in facts["operations"])


def long_messages() -> None:
    for wild in (True, False):
        pairs = joined(*traced(exchange(1, LONG), wild), 10)
        assert {pair.receive.nbytes for pair in pairs} == {4 * LONG}


def any_source() -> None:
    """What a wildcard has got is known from the status: tags 40 and 41, in this order."""

    def program(g: gmpi.Context) -> None:
        wildcards[1, 32](g.device, cuda.to_device(np.zeros(3, np.int32)), PEER)

    pairs = joined(*traced(program), 4)
    assert sorted((p.sender, p.receiver, p.send.tag) for p in pairs) == [
        (0, 1, 40), (0, 1, 41), (1, 0, 40), (1, 0, 41),
    ]  # fmt: skip


def host_calls() -> None:
    """Messages between hosts, and a rank's own communicator with other numbers of ranks."""

    def program(g: gmpi.Context) -> None:
        turned = WORLD.Split(0, -RANK)
        comm = g.comm(turned)
        mine, other = np.full(4, RANK), np.zeros(4, int)
        request = g.host.Irecv(other, PEER, 50)
        g.host.Send(mine, PEER, 50)
        request.Wait()
        g.host.Sendrecv(mine, RANK, 51, other, RANK, 51, comm=comm)  # rank numbers are turned
        turned.Free()

    ranks, merged = traced(program)
    pairs = joined(ranks, merged, 4)
    assert {pair.send.road for pair in pairs} == {"host"}
    assert {pair.sender for pair in pairs if pair.send.tag == 51} == {0, 1}


def collective_calls() -> None:
    def program(g: gmpi.Context) -> None:
        collectives[1, 32](g.device, cuda.to_device(np.ones(1, np.int64)))

    for wild in (True, False):
        ranks, _ = traced(program, wild)
        found = summarize(ranks)
        names = {row["operation"]: row["calls"] for row in found["collectives"]}
        assert names == {"GMPI_Barrier": 1, "GMPI_Allreduce": 1, "GMPI_Iallreduce": 1}, names
        assert found["simulator"] == gmpi.SIMULATOR and not any(found["lost"].values())


def what_has_no_room() -> None:
    """The last events are kept, and how many are lost is said. A launch takes the room
    of those before that have ended."""
    ranks, _ = traced(lambda g: barriers[1, 32](g.device, 50), wild=False, trace=16)
    for facts in ranks:
        assert len(facts["calls"]) == 4 and facts["lost"]["events"] == 46, facts["lost"]

    def many(g: gmpi.Context) -> None:
        for _ in range(20):
            barriers[1, 32](g.device, 1)
            g.synchronize()  # else its events could not be taken before the next launch

    ranks, _ = traced(many, wild=False, trace=16)
    for facts in ranks:
        assert len(facts["calls"]) == 20 == len(facts["launches"])
        assert facts["lost"]["events"] == facts["lost"]["launches"] == 0, facts["lost"]


def times_of_calls() -> None:
    """A call's times are those of the GPU's timer, as that goes by the host's clock, for as long as
    the kernel runs. What the proxy has done lies within (``check_times``). In the simulator, whose
    clocks are one, the multiprocessors' is made another one for the direct road."""
    rounds = 20 if gmpi.SIMULATOR else 3000
    for wild in (True, False):
        stamps = cuda.to_device(np.zeros((rounds, 2), np.int64))

        def program(g: gmpi.Context, stamps: Any = stamps) -> None:
            numbers = cuda.to_device(np.zeros(1, np.int32))
            timed[1, 32](g.device, numbers, PEER, RANK, stamps, 10_000)  # 5 us, up to 500

        plain = primitives.clock
        if gmpi.SIMULATOR and not wild:
            primitives.clock = lambda: 10**15 + time.perf_counter_ns() * 17 // 10
        try:
            ranks, _ = traced(program, wild, trace=1 << 15)
        finally:
            primitives.clock = plain
        facts = ranks[RANK]
        calls = np.array([(call["begin"], call["end"]) for call in facts["calls"]])
        before, after = stamps.copy_to_host().T
        assert len(calls) == rounds and facts["lost"]["events"] == 0
        assert (calls[:, 0] <= calls[:, 1]).all() and (calls[:-1, 1] <= calls[1:, 0]).all()
        late, soon = calls[:, 0] - before, calls[:, 1] - after
        if gmpi.SIMULATOR:  # whose lanes may stop for a while between two lines
            assert np.median(np.abs((late, soon))) < 1e6, (late, soon)
            continue
        late, soon = late - late[0], soon - late[0]  # by clocks of other origins: too large a float
        drift, offset = np.polyfit(before - before[0], late, 1)
        late = late - drift * (before - before[0]) - offset
        soon = soon - drift * (after - before[0]) - offset
        # Between a look at the timer and its call a warp may be held up, so that has no bound.
        outside = max(-late.min(), soon.max())
        usual = np.percentile(np.abs((late, soon)), 98)
        said = f"{outside:.0f} ns outside of its call at most, 98 % within {usual:.0f} ns of its"
        said += f" ends, drift {1e9 * drift:.0f} ns/s; held up {late.max():.0f} ns at most"
        print(f"# calls by the timer: {said}; error as stated {facts['clock_error_ns']} ns")
        assert outside < 500 and usual < 1000 and abs(drift) < 1e-4, said


def what_is_refused() -> None:
    """On all ranks: a folder that one of them lacks; traces of some ranks only."""
    for settings in ({"trace_file": "/nowhere/at/all"}, {"trace_file": "x" if RANK else ""}):
        try:
            gmpi.Context(WORLD, **settings)
        except gmpi.GMPIError as exc:
            wanted = "cannot be written" if "nowhere" in str(settings) else "trace_file"
            assert wanted in str(exc), exc
        else:
            raise AssertionError("it was opened")
    barrier()


def a_failed_program_leaves_a_trace() -> None:
    folder = WORLD.bcast(tempfile.mkdtemp() if RANK == 0 else None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with gmpi.Context(WORLD, trace_file=f"{folder}/run") as g:
                exchange(1, 3)(g)
                barrier()
                raise KeyError("the program fails")
        except KeyError:
            pass
    facts = merge.read([Path(f"{folder}/run.{RANK}.json")])[0]
    assert len(facts["operations"]) == 10


SCENARIOS = [every_send_has_its_receive, any_source, host_calls, what_has_no_room]
if "--some" not in sys.argv:
    SCENARIOS += [
        long_messages, collective_calls, times_of_calls, what_is_refused,
        a_failed_program_leaves_a_trace,
    ]  # fmt: skip

run(SCENARIOS)
end()
