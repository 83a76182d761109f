"""Where the time of an exchange on the direct road goes: each call by itself, two ranks.

    mpirun -n 2 python3 tests/gpu/direct_calls.py [--sizes 8 1024 65536] [--threads 32 256 1024]

Both ranks post a receive, send, wait for the send, let the message arrive, and wait for the
receive. Medians in ns, of what the leading thread needs for a call. The last column is a wait for
nothing.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI
from numba import cuda

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from _floor import cycles_per_us

import gmpi
from gmpi import GMPI_Irecv, GMPI_Isend, GMPI_Wait

CALLS = ("Irecv", "Isend", "Wait(send)", "Wait(receive)", "Wait(null)")
ROUNDS, SKIP = 400, 100


@cuda.jit
def exchange(ctx, out, back, n, peer, rounds, idle, cycles):
    for i in range(rounds):
        cuda.syncthreads()
        t0 = gmpi.clock()
        receive = GMPI_Irecv(ctx, back, n, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
        t1 = gmpi.clock()
        send = GMPI_Isend(ctx, out, n, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
        t2 = gmpi.clock()
        GMPI_Wait(ctx, send)
        t3 = gmpi.clock()
        while gmpi.clock() - t3 < idle:
            pass
        cuda.syncthreads()
        t4 = gmpi.clock()
        GMPI_Wait(ctx, receive)
        t5 = gmpi.clock()
        GMPI_Wait(ctx, gmpi.REQUEST_NULL)
        t6 = gmpi.clock()
        if cuda.threadIdx.x == 0:
            cycles[i, 0] = t1 - t0
            cycles[i, 1] = t2 - t1
            cycles[i, 2] = t3 - t2
            cycles[i, 3] = t5 - t4
            cycles[i, 4] = t6 - t5
        cuda.syncthreads()


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--sizes", type=int, nargs="+", default=[8, 1024, 4096, 65536])
    options.add_argument("--threads", type=int, nargs="+", default=[32, 256, 1024])
    args = options.parse_args()
    comm = MPI.COMM_WORLD
    gmpi.select_gpu(comm)
    rate = cycles_per_us()
    with gmpi.Context(comm, wildcards=False) as g:
        if comm.rank == 0:
            print(f"{'bytes':>8}{'threads':>8}" + "".join(f"{c:>15}" for c in CALLS))
        for n in args.sizes:
            for threads in args.threads:
                out, back = (cuda.to_device(np.ones(n, np.uint8)) for _ in range(2))
                cycles = cuda.to_device(np.zeros((ROUNDS, len(CALLS)), np.int64))
                comm.Barrier()
                idle = int(20 * rate)
                exchange[1, threads](g.device, out, back, n, 1 - comm.rank, ROUNDS, idle, cycles)
                g.synchronize()
                found = np.median(cycles.copy_to_host()[SKIP:], axis=0) / rate * 1000
                if comm.rank == 0:
                    print(f"{n:>8}{threads:>8}" + "".join(f"{f:>15.0f}" for f in found), flush=True)


main()
