"""Partitioned requests between two ranks: one way from GMPI_Pready to GMPI_Parrived, by size.

    mpiexec -n 2 python benchmarks/partitioned.py [-m 8:1M] [--json FILE]

Ping-pong, half a round trip by the GPU's clock: p50 and p99 are those of the slowest block of each
round, ``middle`` is the median of the block in the middle. In rows of ``own``
each block has a pair of requests of one partition each, and the time is that of a whole round:
GMPI_Start, Pready, Parrived and Wait of both. In rows of ``shared`` all blocks share one pair of
requests, with a partition for each; block 0 starts and waits for them between two barriers of the
grid, outside of the time. Every payload is checked, in rounds before the timed ones.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from _bench import conclude, fail, parser, size_range, summary, two_ranks
from _floor import cycles_per_us
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import GMPI_Parrived, GMPI_Pready, GMPI_Start, GMPI_Wait

#: bytes in all, partitions (one a block), threads of a block
CASES = (
    (8, 1, 32), (8, 1, 256), (1024, 1, 256), (4096, 1, 256), (32768, 1, 512), (65536, 8, 512),
    (65536, 32, 256), (262144, 32, 512), (1 << 20, 32, 512), (1 << 20, 64, 512),
    (16 << 20, 64, 512),
)  # fmt: skip
SMALL_CASES = ((8, 1, 32), (384, 2, 32))


@cuda.jit(device=True)
def fill(out, partition, n, value):
    for k in range(cuda.threadIdx.x, n, cuda.blockDim.x):
        out[partition * n + k] = (k * 7 + partition * 31 + value * 13) & 0xFF


@cuda.jit(device=True)
def check(back, partition, n, value, wrong):
    for k in range(cuda.threadIdx.x, n, cuda.blockDim.x):
        if back[partition * n + k] != (k * 7 + partition * 31 + value * 13) & 0xFF:
            cuda.atomic.add(wrong, 0, 1)


# wide: a kernel
@cuda.jit
def own(ctx, sends, receives, out, back, me, rounds, skip, checked, cycles, wrong):
    block = cuda.blockIdx.x
    n = out.size // cuda.gridDim.x
    send = sends[block]
    receive = receives[block]
    for i in range(rounds):
        if checked:
            fill(out, block, n, 2 * i + me)
        begin = gmpi.clock()
        GMPI_Start(ctx, receive)
        GMPI_Start(ctx, send)
        if me == 0:
            GMPI_Pready(ctx, 0, send)
        while not GMPI_Parrived(ctx, receive, 0):
            pass
        if me == 1:
            GMPI_Pready(ctx, 0, send)
        GMPI_Wait(ctx, receive)
        GMPI_Wait(ctx, send)
        if cuda.threadIdx.x == 0 and i >= skip:
            cycles[block, i - skip] = gmpi.clock() - begin
        if checked:
            check(back, block, n, 2 * i + 1 - me, wrong)
        cuda.syncthreads()


# wide: a kernel
@cuda.jit
def shared(ctx, sends, receives, out, back, me, rounds, skip, checked, cycles, wrong):
    grid = cuda.cg.this_grid()
    block = cuda.blockIdx.x
    n = out.size // cuda.gridDim.x
    send = sends[0]
    receive = receives[0]
    for i in range(rounds):
        if block == 0:
            GMPI_Start(ctx, receive)
            GMPI_Start(ctx, send)
        grid.sync()
        if checked:  # not before: the send of the round before may still read its part
            fill(out, block, n, 2 * i + me)
        begin = gmpi.clock()
        if me == 0:
            GMPI_Pready(ctx, block, send)
        while not GMPI_Parrived(ctx, receive, block):
            pass
        if me == 1:
            GMPI_Pready(ctx, block, send)
        if cuda.threadIdx.x == 0 and i >= skip:
            cycles[block, i - skip] = gmpi.clock() - begin
        if checked:
            check(back, block, n, 2 * i + 1 - me, wrong)
        grid.sync()
        if block == 0:
            GMPI_Wait(ctx, receive)
            GMPI_Wait(ctx, send)


KERNELS = {"own": own, "shared": shared}


def requests_of(
    g: gmpi.Context, kind: str, out: Any, back: Any, blocks: int, peer: int
) -> tuple[list[int], list[int]]:
    """(sends, receives), one pair for each block or one for all."""
    if kind == "shared":
        n = out.size // blocks
        return (
            [g.Psend_init(out, blocks, n, gmpi.BYTE, peer)],
            [g.Precv_init(back, blocks, n, gmpi.BYTE, peer)],
        )
    outs, backs = ([a[b * out.size // blocks :] for b in range(blocks)] for a in (out, back))
    n = out.size // blocks
    return (
        [g.Psend_init(a, 1, n, gmpi.BYTE, peer, b) for b, a in enumerate(outs)],
        [g.Precv_init(a, 1, n, gmpi.BYTE, peer, b) for b, a in enumerate(backs)],
    )


def one_way(
    g: gmpi.Context, comm: MPI.Comm, kind: str, case: tuple[int, int, int]
) -> dict[str, float]:
    n, blocks, threads = case
    rounds = 4 if gmpi.SIMULATOR else 2000 if n <= 1 << 20 else 100
    skip = max(2, rounds // 10)
    peer = 1 - comm.rank
    out, back = g.empty(n, np.uint8), g.empty(n, np.uint8)
    sends, receives = requests_of(g, kind, out, back, blocks, peer)
    words = [cuda.to_device(np.array(handles)) for handles in (sends, receives)]
    cycles = cuda.to_device(np.zeros((blocks, rounds), np.int64))
    wrong = cuda.to_device(np.zeros(1, np.int32))
    kernel = KERNELS[kind]
    for checked, some in ((1, 3 if gmpi.SIMULATOR else 50), (0, rounds)):
        first = 0 if checked else skip
        comm.Barrier()
        kernel[blocks, threads](
            g.device, *words, out, back, comm.rank, some + first, first, checked, cycles, wrong
        )
        g.synchronize()
    bad = comm.allreduce(int(wrong.copy_to_host()[0]))
    if bad:
        fail(f"{kind}: {n} bytes in {blocks} partitions: {bad} wrong bytes")
    for request in (*sends, *receives):
        g.Request_free(request)
    for array in (out, back):
        g.unregister(array)
    us = cycles.copy_to_host() / cycles_per_us() / 2
    return summary(us.max(0)) | {"middle": float(np.median(np.median(us, 0)))}


def main() -> int:
    args_parser = parser(__doc__ or "")
    args_parser.add_argument("-m", dest="sizes", type=size_range, metavar="MIN:MAX")
    args_parser.add_argument("--kinds", nargs="+", choices=KERNELS, default=list(KERNELS))
    args = args_parser.parse_args()
    low, high = args.sizes or (0, 1 << 30)
    comm, place, settings = two_ranks(args.engine)
    rows: list[dict[str, Any]] = []
    with gmpi.Context(comm, **settings) as g:
        if comm.rank == 0:
            what = "bytes, partitions, threads, kind, p50, p99, middle, GB/s"
            print(f"# one way in us on {place}: {what}")
        for case in SMALL_CASES if gmpi.SIMULATOR else CASES:
            n, blocks, threads = case
            for kind in args.kinds if low <= n <= high else ():
                found = one_way(g, comm, kind, case)
                rows.append(
                    {"size": n, "partitions": blocks, "threads": threads, "kind": kind, **found}
                )
                if comm.rank == 0:
                    rate = n / found["p50"] / 1e3
                    print(
                        f"{n:<10}{blocks:>5}{threads:>6}  {kind:<8}{found['p50']:>9.2f}"
                        f"{found['p99']:>9.2f}{found['middle']:>9.2f}{rate:>9.1f}",
                        flush=True,
                    )
    return conclude(comm, args.json, "partitioned", place, rows)


if __name__ == "__main__":
    sys.exit(main())
