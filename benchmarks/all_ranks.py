"""All ranks of a job: is any pair slower, and what do all carry at once.

    mpiexec -n 4 python benchmarks/all_ranks.py [--json FILE]

Each pair of ranks plays ping-pong while the others are silent, on the direct and on the proxied
road, in two turns: what is slow in both is the pair's own. Then all ranks send to their right and
receive from their left, with many warps. Times of pairs are by the GPU's clock, and every payload
is checked. Any number of ranks; one measures itself. Collectives: ``collectives.py``.
"""

from __future__ import annotations

import itertools
import sys
import time
from typing import Any

import numpy as np
from _bench import fail, parser, summary, where, write_json
from _floor import cycles_per_us
from mpi4py import MPI
from numba import cuda, int64

import gmpi
from gmpi import (
    GMPI_Irecv,
    GMPI_Irecv_warp,
    GMPI_Isend,
    GMPI_Isend_warp,
    GMPI_Wait,
    GMPI_Wait_warp,
)

SIZES = (8, 65536)
TURNS = 2
WARPS, WINDOW = 64, 4


# wide: a kernel
@cuda.jit
def pair(ctx, out, back, me, peer, rounds, skip, cycles, wrong, comm):
    """Every round has bytes of its own; the lower rank begins. One way is half of a round."""
    n = out.size
    for i in range(rounds):
        for k in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            out[k] = (k * 7 + i * 13 + me) & 0xFF
        cuda.syncthreads()
        begin = gmpi.clock()
        receive = GMPI_Irecv(ctx, back, n, gmpi.BYTE, peer, 1, comm)
        if me > peer:
            status = GMPI_Wait(ctx, receive)
        send = GMPI_Isend(ctx, out, n, gmpi.BYTE, peer, 1, comm)
        GMPI_Wait(ctx, send)
        if me <= peer:  # of one rank: itself
            status = GMPI_Wait(ctx, receive)
        if cuda.threadIdx.x == 0 and i >= skip:
            cycles[i - skip] = gmpi.clock() - begin
        if status.nbytes != n or status.error != gmpi.SUCCESS:
            cuda.atomic.add(wrong, 0, 1)
        for k in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            if back[k] != (k * 7 + i * 13 + peer) & 0xFF:
                cuda.atomic.add(wrong, 0, 1)
        cuda.syncthreads()


# wide: a kernel
@cuda.jit
def shift(ctx, left, right, data, window, rounds, wrong, me, comm):
    """Every warp sends ``window`` messages of 8 bytes to the right, and receives as many."""
    warp = (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) // 32
    lane = cuda.laneid
    out = data[warp, 0]
    back = data[warp, 1]
    receives = cuda.local.array(WINDOW, int64)
    sends = cuda.local.array(WINDOW, int64)
    for i in range(rounds):
        if lane < window:
            out[lane] = (warp * 100000 + i) * 1000 + lane * 100 + me
        cuda.syncwarp()
        for k in range(window):
            receives[k] = GMPI_Irecv_warp(ctx, back[k : k + 1], 1, gmpi.INT64_T, left, warp, comm)
        for k in range(window):
            sends[k] = GMPI_Isend_warp(ctx, out[k : k + 1], 1, gmpi.INT64_T, right, warp, comm)
        for k in range(window):
            GMPI_Wait_warp(ctx, receives[k])
        for k in range(window):
            GMPI_Wait_warp(ctx, sends[k])
        if lane < window and back[lane] != (warp * 100000 + i) * 1000 + lane * 100 + left:
            cuda.atomic.add(wrong, 0, 1)
        cuda.syncwarp()


class Run:
    """The ranks, and what they need in each measurement."""

    def __init__(self, g: gmpi.Context, comm: MPI.Comm) -> None:
        self.g, self.comm = g, comm
        self.wrong = cuda.to_device(np.zeros(1, np.int32))

    def _right(self, what: str) -> None:
        bad = self.comm.allreduce(int(self.wrong.copy_to_host()[0]))
        if bad:
            fail(f"{what}: {bad} wrong values or errors")

    def pair(self, low: int, high: int, n: int, threads: int, road: int) -> dict[str, float] | None:
        """One way between two ranks; for one rank, from itself to itself; known to rank 0."""
        rounds = 4 if gmpi.SIMULATOR else 1000
        skip = rounds // 10 + 1
        found = None
        self.comm.Barrier()
        if self.comm.rank in (low, high):
            peer = high if self.comm.rank == low else low
            out, back = (cuda.to_device(np.zeros(n, np.uint8)) for _ in range(2))
            cycles = cuda.to_device(np.zeros(rounds, np.int64))
            arguments = (self.comm.rank, peer, rounds + skip, skip, cycles, self.wrong, road)
            pair[1, threads](self.g.device, out, back, *arguments)
            self.g.synchronize()
            found = summary(cycles.copy_to_host() / cycles_per_us() / 2)
        self._right(f"{n} bytes between ranks {low} and {high}")
        return self.comm.bcast(found, root=low)  # type: ignore[no-any-return]

    def rate(self, road: int) -> float:
        """Messages a second of each rank, all at once."""
        rounds = 3 if gmpi.SIMULATOR else 2000
        warps = 2 if gmpi.SIMULATOR else WARPS
        data = cuda.to_device(np.zeros((warps, 2, WINDOW), np.int64))
        me, size = self.comm.rank, self.comm.size
        left, right = (me - 1) % size, (me + 1) % size
        seconds = 0.0
        for some in (2, rounds):
            self.comm.Barrier()
            begin = time.perf_counter()
            shift[warps // 2, 64](
                self.g.device, left, right, data, WINDOW, some, self.wrong, me, road
            )
            self.g.synchronize()
            seconds = time.perf_counter() - begin
        self._right("messages of all ranks at once")
        return warps * WINDOW * rounds / self.comm.allreduce(seconds, MPI.MAX)


def measured(run: Run, roads: dict[str, int], threads: int) -> dict[str, Any]:
    """All measurements; the same on all ranks."""
    size, show = run.comm.size, run.comm.rank == 0
    rows: dict[str, Any] = {"pairs": [], "rates": []}
    pairs = list(itertools.combinations(range(size), 2)) if size > 1 else [(0, 0)]
    for turn, (low, high) in itertools.product(range(TURNS), pairs):
        for (name, road), n in itertools.product(roads.items(), SIZES):
            if low == high and name == "direct":
                continue  # a rank does not write into its own inbox from another GPU
            found = run.pair(low, high, n, threads, road) or {}
            row = {"ranks": [low, high], "turn": turn, "road": name, "size": n}
            rows["pairs"].append({**row, **found})
            if show:
                words = f"{low} - {high}  {name:<8}{n:>8} B"
                print(f"{words}{found['p50']:>10.2f} us", flush=True)
    for name, road in roads.items():
        rows["rates"].append({"road": name, "per_second": run.rate(road)})
        if show:
            print(f"all ranks, {name}: {rows['rates'][-1]['per_second']:.0f} messages/s each")
    return rows


def main() -> int:
    args_parser = parser(__doc__ or "")
    args_parser.add_argument("--threads", type=int, default=32 if gmpi.SIMULATOR else 256)
    args = args_parser.parse_args()
    comm = MPI.COMM_WORLD
    gmpi.select_gpu(comm)
    place = where(comm)
    settings = {"engine": args.engine} if args.engine else {}
    with gmpi.Context(comm, wildcards=False, **settings) as g:
        other = comm.Dup()
        roads = {"direct": gmpi.COMM_WORLD, "proxied": g.comm(other)}
        rows = measured(Run(g, comm), roads, args.threads)
        other.Free()
    if comm.rank == 0:
        print("# payloads checked: all right")
        data = {"benchmark": "all_ranks", "where": place, "ranks": comm.size}
        write_json(args.json, {**data, **rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
