"""What the calls themselves cost a kernel: Isend of a block whose message has a receiver."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np
from numba import cuda

import gmpi
from gmpi.bench import figures
from gmpi.bench.figures import Bench


@cuda.jit
def calls(ctx, out, into, n, me, rounds, skip, timed):
    """``timed``: nanoseconds in Isend alone, then in Isend, Irecv and their waits."""
    peer = 1 - me
    in_send = 0
    began = gmpi.timer_ns()
    for i in range(rounds + skip):
        if i == skip:
            began = gmpi.timer_ns()
            in_send = 0
        incoming = gmpi.GMPI_Irecv(ctx, into, n, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
        before = gmpi.timer_ns()
        outgoing = gmpi.GMPI_Isend(ctx, out, n, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
        in_send += gmpi.timer_ns() - before
        gmpi.GMPI_Wait(ctx, outgoing)
        gmpi.GMPI_Wait(ctx, incoming)
    if cuda.threadIdx.x == 0:
        timed[0] = in_send
        timed[1] = gmpi.timer_ns() - began


def overhead(bench: Bench, nbytes: int) -> dict[str, float]:
    """Microseconds in Isend; ``exchange``: in Irecv, Isend and their waits."""
    me = bench.world.rank
    sent = (np.arange(max(1, nbytes)) % 241 + me).astype(np.uint8)
    expected = (np.arange(max(1, nbytes)) % 241 + 1 - me).astype(np.uint8)
    out, into = cuda.to_device(sent), cuda.to_device(np.zeros_like(sent))
    timed = figures.device_zeros(2, np.int64)
    bench.world.Barrier()
    arguments = (out, into, nbytes, me, bench.rounds, bench.skip, timed)
    calls[1, bench.threads](bench.g.device, *arguments)
    bench.g.synchronize()
    right = np.array_equal(into.copy_to_host()[:nbytes], expected[:nbytes])
    figures.require_right(bench, "overhead", nbytes, right)
    in_send, in_all = (float(ns) / bench.rounds / 1000 for ns in timed.copy_to_host())
    found = figures.of_all_ranks(bench, in_send)
    return {"value": found["slowest"], **found, "exchange": bench.world.allreduce(in_all) / 2}
