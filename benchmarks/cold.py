"""What the first messages of a kernel take, whose code and data no cache holds, beside later ones.

    mpiexec -n 2 python benchmarks/cold.py [-m 8:1M] [--threads 256 1024] [--json FILE]

One block on each rank, on the direct and on the proxied road. Before each launch another kernel
sweeps through more memory than caches hold. Then the ranks meet in a Barrier, and exchange a few
messages: Irecv, Isend and two waits, of which one way is half the time, by the GPU's clock. The
channels have been opened by launches before. Every payload is checked.
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
from gmpi import GMPI_Barrier, GMPI_Irecv, GMPI_Isend, GMPI_Wait

SIZES = (8, 1024, 65536, 1 << 20)
ROUNDS = 3 if gmpi.SIMULATOR else 12  # of a launch
SHOWN = 3  # rounds that have a column of their own; the others share one
LAUNCHES = 2 if gmpi.SIMULATOR else 60
SKIPPED = 1 if gmpi.SIMULATOR else 10  # of these: launches that open channels and compile
SWEPT = 1 << 10 if gmpi.SIMULATOR else 1 << 28  # bytes


@cuda.jit
def sweep(data):
    for k in range(cuda.grid(1), data.size, cuda.gridsize(1)):
        data[k] += 1


@cuda.jit
def some_rounds(ctx, out, back, me, launch, cycles, wrong, comm):
    """Every round has bytes of its own."""
    peer = 1 - me
    n = out.size
    for i in range(cycles.size):
        for k in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            out[k] = (k * 7 + (launch + i) * 13 + me) & 0xFF
        GMPI_Barrier(ctx, comm)
        begin = gmpi.clock()
        receive = GMPI_Irecv(ctx, back, n, gmpi.BYTE, peer, 1, comm)
        if me == 1:
            status = GMPI_Wait(ctx, receive)
        send = GMPI_Isend(ctx, out, n, gmpi.BYTE, peer, 1, comm)
        GMPI_Wait(ctx, send)
        if me == 0:
            status = GMPI_Wait(ctx, receive)
        if cuda.threadIdx.x == 0:
            cycles[i] = gmpi.clock() - begin
        if status.nbytes != n or status.error != gmpi.SUCCESS:
            cuda.atomic.add(wrong, 0, 1)
        for k in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            if back[k] != (k * 7 + (launch + i) * 13 + peer) & 0xFF:
                cuda.atomic.add(wrong, 0, 1)
        cuda.syncthreads()


def times(g: gmpi.Context, comm: MPI.Comm, road: int, n: int, threads: int) -> np.ndarray:
    """One way in us, of shape (launches, rounds)."""
    out, back = (cuda.to_device(np.zeros(n, np.uint8)) for _ in range(2))
    swept = cuda.to_device(np.zeros(SWEPT, np.uint8))
    wrong = cuda.to_device(np.zeros(1, np.int32))
    found = []
    for launch in range(SKIPPED + LAUNCHES):
        cycles = cuda.to_device(np.zeros(ROUNDS, np.int64))
        sweep[1 if gmpi.SIMULATOR else 512, 32 if gmpi.SIMULATOR else 256](swept)
        cuda.synchronize()
        comm.Barrier()
        some_rounds[1, threads](g.device, out, back, comm.rank, launch, cycles, wrong, road)
        g.synchronize()
        found.append(cycles.copy_to_host() / cycles_per_us() / 2)
    bad = comm.allreduce(int(wrong.copy_to_host()[0]))
    if bad:
        fail(f"{n} bytes, {threads} threads: {bad} wrong bytes or statuses")
    return np.array(found[SKIPPED:])


def row(
    g: gmpi.Context, comm: MPI.Comm, name: str, road: int, n: int, threads: int
) -> dict[str, Any]:
    """Percentiles of the first rounds, and of all later ones."""
    found = times(g, comm, road, n, threads)
    first = [summary(found[:, i]) for i in range(SHOWN)]
    later = summary(found[:, min(SHOWN, ROUNDS - 1) :].reshape(-1))
    if comm.rank == 0:
        shown = "".join(f"{one['p50']:>10.2f}{one['p99']:>10.2f}" for one in (*first, later))
        print(f"{name:<10}{n:<10}{threads:>6}{shown}", flush=True)
    return {"road": name, "size": n, "threads": threads, "first": first, "later": later}


def main() -> int:
    args_parser = parser(__doc__ or "")
    args_parser.add_argument("-m", dest="sizes", type=size_range, metavar="MIN:MAX")
    threads = [32] if gmpi.SIMULATOR else [256, 1024]
    args_parser.add_argument("--threads", type=int, nargs="+", default=threads)
    args = args_parser.parse_args()
    low, high = args.sizes or (0, 65536 if gmpi.SIMULATOR else 1 << 30)
    comm, place, settings = two_ranks(args.engine)
    with gmpi.Context(comm, wildcards=False, **settings) as g:
        other = comm.Dup()
        roads = {"direct": gmpi.COMM_WORLD, "proxied": g.comm(other)}
        if comm.rank == 0:
            print(
                f"# one way in us (p50, p99) on {place}: road, bytes, threads; the first {SHOWN} "
                "messages of a launch, and later ones"
            )
        rows = [
            row(g, comm, name, road, n, count)
            for name, road in roads.items()
            for n in SIZES
            if low <= n <= high
            for count in args.threads
        ]
        other.Free()
    return conclude(comm, args.json, "cold", place, rows)


if __name__ == "__main__":
    sys.exit(main())
