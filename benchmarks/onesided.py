"""One-sided calls between two ranks: Put and flush, Fetch_and_op, and long Puts and Gets.

    mpiexec -n 2 python benchmarks/onesided.py [--json FILE]

Rank 0 calls, rank 1 only has its memory. In rows of ``put+flush`` a block, or a warp, stores and
flushes again and again; of ``fetch``, it fetches and adds. The time is that of one such step, by
the GPU's clock. In rows of ``put`` and ``get`` all blocks of a grid each move their part, and the
time is that of the slowest block, its flush included. Every payload is checked.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from _bench import conclude, fail, parser, summary, two_ranks
from _floor import cycles_per_us
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import (
    GMPI_Fetch_and_op,
    GMPI_Fetch_and_op_warp,
    GMPI_Get,
    GMPI_Put,
    GMPI_Put_warp,
    GMPI_Win_flush,
    GMPI_Win_flush_warp,
    GMPI_Win_lock_all,
    GMPI_Win_unlock_all,
)

#: bytes, threads of a block
STEPS = ((8, 32), (8, 256), (1024, 256), (65536, 1024))
SMALL_STEPS = ((8, 32), (96, 48))
#: bytes in all, blocks, threads of each
LONG = ((1 << 20, 32, 512), (16 << 20, 64, 512), (64 << 20, 132, 512), (64 << 20, 132, 1024))
SMALL_LONG = ((768, 2, 32),)


@cuda.jit
def put_and_flush(ctx, win, data, n, rounds, cycles):
    GMPI_Win_lock_all(ctx, 0, win)
    for i in range(rounds):
        begin = gmpi.clock()
        GMPI_Put(ctx, data, n, gmpi.BYTE, 1, 0, n, gmpi.BYTE, win)
        GMPI_Win_flush(ctx, 1, win)
        if cuda.threadIdx.x == 0:
            cycles[0, i] = gmpi.clock() - begin
    GMPI_Win_unlock_all(ctx, win)


@cuda.jit
def put_and_flush_warp(ctx, win, data, n, rounds, cycles):
    GMPI_Win_lock_all(ctx, 0, win)
    for i in range(rounds):
        begin = gmpi.clock()
        GMPI_Put_warp(ctx, data, n, gmpi.BYTE, 1, 0, n, gmpi.BYTE, win)
        GMPI_Win_flush_warp(ctx, 1, win)
        if cuda.threadIdx.x == 0:
            cycles[0, i] = gmpi.clock() - begin
    GMPI_Win_unlock_all(ctx, win)


@cuda.jit
def fetch_and_add(ctx, win, words, rounds, cycles, wrong):
    GMPI_Win_lock_all(ctx, 0, win)
    for i in range(rounds):
        begin = gmpi.clock()
        GMPI_Fetch_and_op(ctx, words, words[1:], gmpi.INT64_T, 1, 0, gmpi.SUM, win)
        if cuda.threadIdx.x == 0:
            cycles[0, i] = gmpi.clock() - begin
            if words[1] != i:
                wrong[0] += 1
    GMPI_Win_unlock_all(ctx, win)


@cuda.jit
def fetch_and_add_warp(ctx, win, words, rounds, cycles, wrong):
    GMPI_Win_lock_all(ctx, 0, win)
    for i in range(rounds):
        begin = gmpi.clock()
        GMPI_Fetch_and_op_warp(ctx, words, words[1:], gmpi.INT64_T, 1, 0, gmpi.SUM, win)
        if cuda.threadIdx.x == 0:
            cycles[0, i] = gmpi.clock() - begin
            if words[1] != i:
                wrong[0] += 1
    GMPI_Win_unlock_all(ctx, win)


@cuda.jit
def long_moves(ctx, win, data, gets, rounds, cycles):
    grid = cuda.cg.this_grid()
    block = cuda.blockIdx.x
    n = data.size // cuda.gridDim.x
    GMPI_Win_lock_all(ctx, 0, win)
    for i in range(rounds):
        grid.sync()
        begin = gmpi.clock()
        if gets:
            GMPI_Get(ctx, data[block * n :], n, gmpi.BYTE, 1, block * n, n, gmpi.BYTE, win)
        else:
            GMPI_Put(ctx, data[block * n :], n, gmpi.BYTE, 1, block * n, n, gmpi.BYTE, win)
            GMPI_Win_flush(ctx, 1, win)
        if cuda.threadIdx.x == 0:
            cycles[block, i] = gmpi.clock() - begin
    GMPI_Win_unlock_all(ctx, win)


def pattern(n: int, seed: int) -> np.ndarray:
    return ((np.arange(n) * 7 + seed * 13) % 251).astype(np.uint8)


class Bench:
    """Two ranks, of which the first calls."""

    def __init__(self, g: gmpi.Context, comm: MPI.Comm) -> None:
        self.g, self.comm, self.active = g, comm, comm.rank == 0

    def step(self, name: str, n: int, threads: int, warp: bool) -> dict[str, float]:
        rounds = 10 if gmpi.SIMULATOR else 2000
        skip = max(2, rounds // 10)
        memory = self.g.zeros(max(n, 8), np.uint8)
        win = self.g.win(memory)
        cycles = cuda.to_device(np.zeros((1, rounds), np.int64))
        wrong = cuda.to_device(np.zeros(1, np.int64))
        if self.active:
            if name == "fetch":
                words = cuda.to_device(np.array([1, 0]))
                kernel = fetch_and_add_warp if warp else fetch_and_add
                kernel[1, threads](self.g.device, win, words, rounds, cycles, wrong)
            else:
                data = cuda.to_device(pattern(n, 3))
                kernel = put_and_flush_warp if warp else put_and_flush
                kernel[1, threads](self.g.device, win, data, n, rounds, cycles)
            self.g.synchronize()
        self.comm.Barrier()
        found = memory.copy_to_host()
        right = found.view(np.int64)[0] == rounds if name == "fetch" else None
        self.check(name, n, right if name == "fetch" else (found[:n] == pattern(n, 3)).all())
        if int(wrong.copy_to_host()[0]):
            fail(f"{name}: wrong numbers have been fetched")
        self.g.win_free(win)
        return summary(cycles.copy_to_host()[0, skip:] / cycles_per_us())

    def long(self, name: str, n: int, blocks: int, threads: int) -> dict[str, float]:
        rounds = 5 if gmpi.SIMULATOR else 60
        skip = max(1, rounds // 10)
        n -= n % (blocks * 16)
        memory = self.g.zeros(n, np.uint8)
        memory.copy_to_device(pattern(n, self.comm.rank))
        win = self.g.win(memory)
        self.comm.Barrier()
        data = cuda.to_device(pattern(n, 5))
        cycles = cuda.to_device(np.zeros((blocks, rounds), np.int64))
        if self.active:
            kernel = long_moves
            kernel[blocks, threads](self.g.device, win, data, name == "get", rounds, cycles)
            self.g.synchronize()
        self.comm.Barrier()
        if name == "get" and self.active:
            self.check(name, n, (data.copy_to_host() == pattern(n, 1)).all())
        elif name == "put" and not self.active:
            self.check(name, n, (memory.copy_to_host() == pattern(n, 5)).all())
        self.g.win_free(win)
        return summary(cycles.copy_to_host().max(0)[skip:] / cycles_per_us())

    def check(self, name: str, n: int, right: Any) -> None:
        """Of the rank that knows."""
        passive = name in ("put+flush", "fetch")
        if (not passive or not self.active) and not right:
            fail(f"{name}: {n} bytes are wrong")


def main() -> int:
    args = parser(__doc__ or "").parse_args()
    comm, place, settings = two_ranks(args.engine)
    rows: list[dict[str, Any]] = []

    def show(row: dict[str, Any]) -> None:
        rows.append(row)
        if comm.rank == 0:
            rate = row["size"] / row["p50"] / 1e3 if row["p50"] else 0.0
            print(
                f"{row['call']:<10}{row['size']:<10}{row['blocks']:>5}{row['threads']:>6}  "
                f"{row['scope']:<6}{row['p50']:>9.2f}{row['p99']:>9.2f}{rate:>9.1f}",
                flush=True,
            )

    with gmpi.Context(comm, **settings) as g:
        bench = Bench(g, comm)
        if comm.rank == 0:
            print(f"# us on {place}: call, bytes, blocks, threads, scope, p50, p99, GB/s")
        for n, threads in SMALL_STEPS if gmpi.SIMULATOR else STEPS:
            for name in ("put+flush", "fetch") if n == 8 else ("put+flush",):
                for scope in ("warp", "block") if threads == 32 else ("block",):
                    found = bench.step(name, n, threads, scope == "warp")
                    row = {"call": name, "size": n, "blocks": 1, "threads": threads}
                    show({**row, "scope": scope, **found})
        for n, blocks, threads in SMALL_LONG if gmpi.SIMULATOR else LONG:
            for name in ("put", "get"):
                found = bench.long(name, n, blocks, threads)
                row = {"call": name, "size": n, "blocks": blocks, "threads": threads}
                show({**row, "scope": "block", **found})
    return conclude(comm, args.json, "onesided", place, rows)


if __name__ == "__main__":
    sys.exit(main())
