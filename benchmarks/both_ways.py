"""A message each way between two ranks at once, as a halo exchange has it, by size.

    mpiexec -n 2 python benchmarks/both_ways.py [-m 8:2M] [--threads 256 1024] [--json FILE]

One block on each rank calls GMPI_Isend, GMPI_Irecv and then GMPI_Waitall (waitall), or GMPI_Wait of
the receive and of the send (waits); or GMPI_Irecv, GMPI_Isend, GMPI_Waitall (posted_first). Time of
a whole round by the GPU's clock, on the direct road, from and to registered arrays and others.
Every payload is checked, in rounds before the timed ones.
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
from gmpi import GMPI_Irecv, GMPI_Isend, GMPI_Wait, GMPI_Waitall

SIZES = (8, 1024, 4096, 32768, 65536, 131072, 524288, 2 << 20)
SMALL_SIZES = (8, 5000, 200000)
WAYS = "waitall", "waits", "posted_first"
WAITS, POSTED_FIRST = 1, 2


# wide: a kernel
@cuda.jit
def measure(ctx, out, back, peer, rounds, skip, way, checked, cycles, wrong):
    for i in range(rounds):
        if checked:
            for k in range(cuda.threadIdx.x, out.size, cuda.blockDim.x):
                out[k] = (k * 7 + i * 13 + 1 - peer) & 0xFF
            cuda.syncthreads()
        begin = gmpi.clock()
        if way == POSTED_FIRST:
            receive = GMPI_Irecv(ctx, back, back.size, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
            send = GMPI_Isend(ctx, out, out.size, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
        else:
            send = GMPI_Isend(ctx, out, out.size, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
            receive = GMPI_Irecv(ctx, back, back.size, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
        if way != WAITS:
            GMPI_Waitall(ctx, 2, (send, receive))
        else:
            GMPI_Wait(ctx, receive)
            GMPI_Wait(ctx, send)
        if cuda.threadIdx.x == 0 and i >= skip:
            cycles[i - skip] = gmpi.clock() - begin
        if checked:
            for k in range(cuda.threadIdx.x, back.size, cuda.blockDim.x):
                if back[k] != (k * 7 + i * 13 + peer) & 0xFF:
                    cuda.atomic.add(wrong, 0, 1)
            cuda.syncthreads()


def one(g: gmpi.Context, comm: MPI.Comm, case: tuple[int, int, bool, int]) -> dict[str, float]:
    """Times of a round in us.

    Args:
        case: bytes, threads, whether the arrays are registered, which of WAYS.
    """
    size, threads, registered, way = case
    rounds = 4 if gmpi.SIMULATOR else 1000
    skip = max(1, rounds // 10)
    cycles = cuda.to_device(np.zeros(rounds, np.int64))
    wrong = cuda.to_device(np.zeros(1, np.int32))
    arrays = [g.zeros(size, np.uint8) if registered else None for _ in range(2)]
    out, back = (cuda.to_device(np.zeros(size, np.uint8)) if a is None else a for a in arrays)
    for checked, some in ((1, 3 if gmpi.SIMULATOR else 30), (0, rounds)):
        first = 0 if checked else skip
        comm.Barrier()
        measure[1, threads](
            g.device, out, back, 1 - comm.rank, some + first, first, way, checked, cycles,
            wrong,
        )  # fmt: skip
        g.synchronize()
    bad = comm.allreduce(int(wrong.copy_to_host()[0]))
    if bad:
        fail(f"{size} bytes, {threads} threads: {bad} wrong bytes")
    if registered:
        g.unregister(out)
        g.unregister(back)
    return summary(cycles.copy_to_host() / cycles_per_us())


def main() -> int:
    args_parser = parser(__doc__ or "")
    args_parser.add_argument("-m", dest="sizes", type=size_range, metavar="MIN:MAX")
    threads = [8] if gmpi.SIMULATOR else [256, 1024]
    args_parser.add_argument("--threads", type=int, nargs="+", default=threads)
    args = args_parser.parse_args()
    low, high = args.sizes or (0, 1 << 30)
    comm, place, settings = two_ranks(args.engine)
    rows: list[dict[str, Any]] = []
    with gmpi.Context(comm, wildcards=False, **settings) as g:
        if comm.rank == 0:
            print(f"# us on {place}: bytes, threads, arrays, p50 and p99 of {', '.join(WAYS)}")
        for n in args.threads:
            for size in SMALL_SIZES if gmpi.SIMULATOR else SIZES:
                for registered in (False, True) if low <= size <= high else ():
                    found = [one(g, comm, (size, n, registered, way)) for way in range(len(WAYS))]
                    row = {"size": size, "threads": n, "registered": registered}
                    rows.append({**row, **dict(zip(WAYS, found, strict=True))})
                    if comm.rank == 0:
                        times = "".join(f"{f['p50']:>10.2f}{f['p99']:>10.2f}" for f in found)
                        kind = "registered" if registered else "any"
                        print(f"{size:<10}{n:>6}  {kind:<11}{times}", flush=True)
    return conclude(comm, args.json, "both_ways", place, rows)


if __name__ == "__main__":
    sys.exit(main())
