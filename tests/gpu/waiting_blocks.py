"""The user's own copies and launches beside blocks that wait in GMPI_Recv: one GPU, one rank.

    python3 tests/gpu/waiting_blocks.py [--blocks 0 16 64 128] [--json FILE]

Blocks wait for messages that the host sends later. Meanwhile 8 bytes to the GPU, 8 bytes to the
host and a tiny kernel are timed, each from the call to the end of the stream, which waits for no
other one. Rounds change from number to number of blocks, so that all of them see the same machine.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from mpi4py import MPI
from numba import cuda

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
import _bench
from tabulate import tabulate

import gmpi
from gmpi import GMPI_Recv

THREADS = 64
REPEAT = 200
ROUNDS = 3
SETTLE_S = 0.2  # until all blocks wait, and have waited for long
BAR = 2.0


@cuda.jit
def wait(ctx, to):  # type: ignore[no-untyped-def]
    block = cuda.blockIdx.x
    GMPI_Recv(ctx, to[block:], 1, gmpi.DOUBLE, 0, block, gmpi.COMM_WORLD)


class Work:
    """What a user's program does beside."""

    def __init__(self) -> None:
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.memory = cupy.zeros(64, cupy.uint8)
        self.pinned = cupy.cuda.alloc_pinned_memory(64)
        source = 'extern "C" __global__ void tiny(char* p) { p[0] += 1; }'
        self.tiny = cupy.RawKernel(source, "tiny")

    def to_gpu(self) -> None:
        self.copy(self.memory.data.ptr, self.pinned.ptr, 1)

    def to_host(self) -> None:
        self.copy(self.pinned.ptr, self.memory.data.ptr, 2)

    def copy(self, to: int, source: int, kind: int) -> None:
        cupy.cuda.runtime.memcpyAsync(to, source, 8, kind, self.stream.ptr)

    def launch(self) -> None:
        self.tiny((1,), (32,), (self.memory,), stream=self.stream)

    def times(self) -> dict[str, list[float]]:
        calls = {"to_gpu": self.to_gpu, "to_host": self.to_host, "launch": self.launch}
        return {name: [self.once(call) for _ in range(REPEAT)] for name, call in calls.items()}

    def once(self, call: Callable[[], None]) -> float:
        """us"""
        began = time.perf_counter()
        call()
        self.stream.synchronize()
        return (time.perf_counter() - began) * 1e6


def beside(g: gmpi.Context, work: Work, blocks: int) -> dict[str, list[float]]:
    """Times beside so many blocks that wait."""
    if blocks == 0:
        return work.times()
    received = cuda.to_device(np.zeros(blocks))
    wait[blocks, THREADS](g.device, received)
    time.sleep(SETTLE_S)
    found = work.times()
    sent = np.arange(1.0, blocks + 1)
    g.host.Waitall([g.host.Isend(sent[b : b + 1], 0, b) for b in range(blocks)])
    g.synchronize()
    if not np.array_equal(received.copy_to_host(), sent):
        sys.exit(f"{blocks} blocks: wrong messages")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--blocks", nargs="*", type=int, default=[0, 1, 4, 16, 32, 64, 128])
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    numbers = sorted({0, *args.blocks})
    gmpi.select_gpu(MPI.COMM_WORLD)
    work = Work()
    work.times()
    found: dict[int, dict[str, list[float]]] = {blocks: {} for blocks in numbers}
    with gmpi.Context(MPI.COMM_WORLD, watchdog_s=0) as g:
        beside(g, work, max(numbers))
        for _ in range(ROUNDS):
            for blocks in numbers:
                for name, us in beside(g, work, blocks).items():
                    found[blocks].setdefault(name, []).extend(us)
    rows: list[dict[str, Any]] = []
    for blocks, times in found.items():
        row: dict[str, Any] = {"blocks": blocks}
        for name, us in times.items():
            row[name] = _bench.summary(np.array(us))
            row[name]["ratio"] = row[name]["p50"] / float(np.median(found[0][name]))
        rows.append(row)
    worst = max(row[name]["ratio"] for row in rows for name in found[0])
    _bench.write_json(
        args.json,
        {
            "benchmark": "waiting_blocks",
            "threads": THREADS,
            "bar": BAR,
            "worst": worst,
            "rows": rows,
        },
    )
    lines = [
        [row["blocks"], *(f"{row[n]['p50']:.1f} ({row[n]['ratio']:.2f})" for n in found[0])]
        for row in rows
    ]
    headers = ["blocks that wait", "8 B to the GPU", "8 B to the host", "launch"]
    print(tabulate(lines, headers, disable_numparse=True))
    print(f"# p50 in us (ratio to none); worst ratio {worst:.2f}, allowed {BAR}", flush=True)
    return 1 if worst > BAR else 0


if __name__ == "__main__":
    sys.exit(main())
