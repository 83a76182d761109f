"""The exchange at the end of ``gmpi doctor``: a program of two ranks, which prints JSON.

    mpiexec -n 2 python -m gmpi.commands.two_ranks

Each rank's kernel sends numbers to the other's, short and long ones, on the proxied road and, where
there is one, on the direct road, and looks at every number that comes.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import GMPI_Allreduce, GMPI_Irecv, GMPI_Isend, GMPI_Wait

LENGTHS = (2, 40_000)  # float64: inline in a record, and in chunks


@cuda.jit
def exchange(ctx, send, recv, total, peer, found):
    r = GMPI_Irecv(ctx, recv, recv.size, gmpi.DOUBLE, peer, 7, gmpi.COMM_WORLD)
    s = GMPI_Isend(ctx, send, send.size, gmpi.DOUBLE, peer, 7, gmpi.COMM_WORLD)
    sent = GMPI_Wait(ctx, s)
    status = GMPI_Wait(ctx, r)
    error = GMPI_Allreduce(ctx, gmpi.IN_PLACE, total, 1, gmpi.INT64_T, gmpi.SUM, gmpi.COMM_WORLD)
    if cuda.threadIdx.x == 0:
        found[0] = sent.error
        found[1] = status.error
        found[2] = status.count
        found[3] = error


def on_a_road(comm: MPI.Comm, wildcards: bool) -> dict[str, Any]:
    """Exchanges on one road: which it was, and what was wrong."""
    peer = 1 - comm.rank
    with gmpi.Context(comm, wildcards=wildcards, timeout_s=20) as g:
        problems = []
        for n in LENGTHS:
            mine = np.arange(n) + 1000.0 * comm.rank
            send, recv = cuda.to_device(mine), cuda.to_device(np.zeros(n))
            total = cuda.to_device(np.array([comm.rank + 1]))
            found = cuda.to_device(np.zeros(4, np.int64))
            exchange[1, 32](g.device, send, recv, total, peer, found)
            g.synchronize()
            if found.copy_to_host().tolist() != [0, 0, n, 0]:
                problems.append(f"{8 * n} bytes: {found.copy_to_host().tolist()}")
            elif not np.array_equal(recv.copy_to_host(), np.arange(n) + 1000.0 * peer):
                problems.append(f"{8 * n} bytes: wrong numbers have come")
            elif int(total.copy_to_host()[0]) != 3:
                problems.append(f"Allreduce gave {total.copy_to_host()[0]}, and not 3")
        road = next(path for path, ranks in g.paths.items() if peer in ranks)
    return {"road": road, "problems": problems}


def main() -> int:
    comm = MPI.COMM_WORLD
    if comm.size != 2:
        print(f"the exchange needs 2 ranks, got {comm.size}", file=sys.stderr)
        return 1
    gmpi.select_gpu(comm)
    mine = [on_a_road(comm, wildcards) for wildcards in (True, False)]
    ranks = comm.gather(mine)
    if ranks is not None:
        print(json.dumps(ranks), flush=True)
    wrong = comm.allreduce(sum(len(road["problems"]) for road in mine))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
