"""What a receive costs whose message comes late: the round trip of a message whose receiver waits
some microseconds before it answers, less that time.

    mpiexec -n 2 python benchmarks/late.py [-m 8:64K] [--threads 256 1024] [--json FILE]

One block on each rank, on the direct road. If it costs nothing to wait, all columns of a row are
the same. Every payload is checked, in rounds before the timed ones.
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
from gmpi import GMPI_Irecv, GMPI_Isend, GMPI_Wait

SIZES = (8, 1024, 65536)
DELAYS_US = (0, 5, 10, 20, 40, 80)


# wide: a kernel
@cuda.jit
def round_trips(ctx, out, back, me, rounds, skip, delay, checked, cycles, wrong):
    peer = 1 - me
    for i in range(rounds):
        if checked:
            for k in range(cuda.threadIdx.x, out.size, cuda.blockDim.x):
                out[k] = (k * 7 + i * 13 + me) & 0xFF
        begin = gmpi.clock()
        receive = GMPI_Irecv(ctx, back, back.size, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
        if me == 1:
            GMPI_Wait(ctx, receive)
            came = gmpi.clock()
            while gmpi.clock() - came < delay:
                pass
            cuda.syncthreads()
        send = GMPI_Isend(ctx, out, out.size, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
        GMPI_Wait(ctx, send)
        if me == 0:
            GMPI_Wait(ctx, receive)
        if cuda.threadIdx.x == 0 and i >= skip:
            cycles[i - skip] = gmpi.clock() - begin - delay
        if checked:
            for k in range(cuda.threadIdx.x, back.size, cuda.blockDim.x):
                if back[k] != (k * 7 + i * 13 + peer) & 0xFF:
                    cuda.atomic.add(wrong, 0, 1)
            cuda.syncthreads()


def one(g: gmpi.Context, comm: MPI.Comm, size: int, threads: int, us: int) -> dict[str, float]:
    """Times of a round trip in us, less the delay of ``us``."""
    rounds = 3 if gmpi.SIMULATOR else 1000
    skip = max(1, rounds // 10)
    out, back = (cuda.to_device(np.zeros(size, np.uint8)) for _ in range(2))
    cycles = cuda.to_device(np.zeros(rounds, np.int64))
    wrong = cuda.to_device(np.zeros(1, np.int32))
    delay = int(us * cycles_per_us())
    for checked, some in ((1, 2 if gmpi.SIMULATOR else 30), (0, rounds)):
        first = 0 if checked else skip
        comm.Barrier()
        round_trips[1, threads](
            g.device, out, back, comm.rank, some + first, first, delay, checked, cycles, wrong
        )
        g.synchronize()
    bad = comm.allreduce(int(wrong.copy_to_host()[0]))
    if bad:
        fail(f"{size} bytes, {threads} threads, {us} us: {bad} wrong bytes")
    return summary(cycles.copy_to_host() / cycles_per_us())


def main() -> int:
    args_parser = parser(__doc__ or "")
    args_parser.add_argument("-m", dest="sizes", type=size_range, metavar="MIN:MAX")
    threads = [32] if gmpi.SIMULATOR else [256, 1024]
    args_parser.add_argument("--threads", type=int, nargs="+", default=threads)
    args = args_parser.parse_args()
    low, high = args.sizes or (0, 1 << 30)
    delays = DELAYS_US[:2] if gmpi.SIMULATOR else DELAYS_US
    comm, place, settings = two_ranks(args.engine)
    rows: list[dict[str, Any]] = []
    with gmpi.Context(comm, wildcards=False, **settings) as g:
        if comm.rank == 0:
            late = ", ".join(str(us) for us in delays)
            print(f"# p50 of a round trip in us on {place}: bytes, threads, late by {late} us")
        for n in args.threads:
            for size in (size for size in SIZES if low <= size <= high):
                found = {us: one(g, comm, size, n, us) for us in delays}
                rows.append({"size": size, "threads": n, "late_us": found})
                if comm.rank == 0:
                    times = "".join(f"{f['p50']:>10.2f}" for f in found.values())
                    print(f"{size:<10}{n:>6}{times}", flush=True)
    return conclude(comm, args.json, "late", place, rows)


if __name__ == "__main__":
    sys.exit(main())
