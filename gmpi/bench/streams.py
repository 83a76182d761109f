"""Windows of messages between two kernels: osu_bw, osu_bibw, and osu_mbw_mr with a pair a warp."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, int64

import gmpi
from gmpi.bench import figures
from gmpi.bench.figures import Bench

RANKS = 2
WINDOW = 4 if gmpi.SIMULATOR else 64  # messages, as OSU's
_BOTH = 2 * WINDOW
_MOST = 256 << 20  # bytes of all buffers of a window
_DONE = 1 << 20  # tag of the answer that ends a round


# wide: a kernel
@cuda.jit
def window(ctx, out, into, n, messages, me, both, rounds, skip, timed):
    """A round: ``messages`` of ``n`` bytes to the other rank, or each way, then an answer."""
    peer = 1 - me
    opened = cuda.local.array(_BOTH, int64)
    word = into[messages * n : messages * n + 4]
    began = gmpi.timer_ns()
    for i in range(rounds + skip):
        if i == skip:
            began = gmpi.timer_ns()
        k = 0
        if me == 1 or both:
            for j in range(messages):
                part = into[j * n : (j + 1) * n]
                opened[k] = gmpi.GMPI_Irecv(ctx, part, n, gmpi.BYTE, peer, j, gmpi.COMM_WORLD)
                k += 1
        if me == 0 or both:
            for j in range(messages):
                part = out[j * n : (j + 1) * n]
                opened[k] = gmpi.GMPI_Isend(ctx, part, n, gmpi.BYTE, peer, j, gmpi.COMM_WORLD)
                k += 1
        gmpi.GMPI_Waitall(ctx, k, opened)
        if me == 0:
            gmpi.GMPI_Recv(ctx, word, 4, gmpi.BYTE, peer, _DONE, gmpi.COMM_WORLD)
        else:
            gmpi.GMPI_Send(ctx, word, 4, gmpi.BYTE, peer, _DONE, gmpi.COMM_WORLD)
    if cuda.threadIdx.x == 0:
        timed[0] = gmpi.timer_ns() - began


@cuda.jit
def pairs(ctx, out, into, n, me, rounds, skip, timed):
    """Every warp sends windows to its twin on the other rank, by a tag of its own."""
    peer = 1 - me
    warp = cuda.threadIdx.x // 32
    warps = (cuda.blockDim.x + 31) // 32
    opened = cuda.local.array(WINDOW, int64)
    first = warp * n
    word = into[warps * n + 4 * warp : warps * n + 4 * warp + 4]
    began = gmpi.timer_ns()
    for i in range(rounds + skip):
        if i == skip:
            cuda.syncthreads()
            began = gmpi.timer_ns()
        for j in range(WINDOW):
            if me == 0:
                opened[j] = gmpi.GMPI_Isend_warp(
                    ctx, out[first : first + n], n, gmpi.BYTE, peer, warp, gmpi.COMM_WORLD
                )
            else:
                part = into[first : first + n]
                opened[j] = gmpi.GMPI_Irecv_warp(
                    ctx, part, n, gmpi.BYTE, peer, warp, gmpi.COMM_WORLD
                )
                gmpi.GMPI_Wait_warp(ctx, opened[j])
        if me == 0:
            gmpi.GMPI_Waitall_warp(ctx, WINDOW, opened)
            gmpi.GMPI_Recv_warp(ctx, word, 4, gmpi.BYTE, peer, _DONE + warp, gmpi.COMM_WORLD)
        else:
            gmpi.GMPI_Send_warp(ctx, word, 4, gmpi.BYTE, peer, _DONE + warp, gmpi.COMM_WORLD)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        timed[0] = gmpi.timer_ns() - began


def _sent(nbytes: int, rank: int) -> Any:
    return ((np.arange(nbytes) * 11 + rank * 3) % 253).astype(np.uint8)


def _run(bench: Bench, subject: str, kernel: Any, nbytes: int, messages: int, both: bool) -> float:
    """Nanoseconds a round, after one that is checked."""
    me = bench.world.rank
    total = nbytes * messages
    sent = _sent(total, me)
    out = cuda.to_device(np.concatenate([sent, np.zeros(128, np.uint8)]))
    into = figures.device_zeros(total + 128, np.uint8)
    timed = figures.device_zeros(1, np.int64)
    more = () if kernel is pairs else (messages,)
    ways = () if kernel is pairs else (both,)
    for rounds, skip in ((1, 0), (bench.rounds, bench.skip)):
        bench.world.Barrier()
        arguments = (out, into, nbytes, *more, me, *ways, rounds, skip, timed)
        kernel[1, bench.threads](bench.g.device, *arguments)
        bench.g.synchronize()
        right = not (me == 1 or both)
        right = right or np.array_equal(into.copy_to_host()[:total], _sent(total, 1 - me))
        figures.require_right(bench, subject, nbytes, bool(right))
    return figures.nanoseconds_a_round(bench, timed)


def messages_of(nbytes: int) -> int:
    """Of a window: as OSU's, but no more than fit into memory."""
    return max(1, min(WINDOW, _MOST // max(1, nbytes)))


def _bandwidth(bench: Bench, subject: str, nbytes: int, both: bool) -> dict[str, float]:
    messages = messages_of(nbytes)
    ns = _run(bench, subject, window, nbytes, messages, both)
    found = figures.of_all_ranks(bench, ns / 1000)
    moved = nbytes * messages * (2 if both else 1)
    return {"value": moved / found["slowest"], **found}


def bandwidth(bench: Bench, nbytes: int) -> dict[str, float]:
    """MB/s from rank 0 to rank 1; the other figures are microseconds a window."""
    return _bandwidth(bench, "bandwidth", nbytes, False)


def bibw(bench: Bench, nbytes: int) -> dict[str, float]:
    """MB/s in both directions together."""
    return _bandwidth(bench, "bibw", nbytes, True)


def rate(bench: Bench, nbytes: int) -> dict[str, float]:
    """Messages a second from all warps of a block."""
    warps = -(-bench.threads // 32)
    ns = _run(bench, "rate", pairs, nbytes, warps, False)
    found = figures.of_all_ranks(bench, ns / 1000)
    return {"value": WINDOW * warps / found["slowest"] * 1e6, **found}
