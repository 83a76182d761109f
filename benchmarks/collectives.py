"""Collectives of kernels on both roads in one run, by size: Barrier, Allreduce, Bcast, and, by one
block, Reduce, Allgather, Alltoall, Scan and Exscan, whose size is that of a block, and Iallreduce
and Ibarrier with their waits.

    mpiexec -n 2 python benchmarks/collectives.py [--threads 256 1024] [--calls NAME ...]
    mpiexec -n 2 python benchmarks/collectives.py --long [-m BYTES ...] [--json FILE]
    mpiexec -n 2 python benchmarks/collectives.py --counts [-m BYTES ...] [--json FILE]

With ``--long``: Allreduce, Allgather and Alltoall of 1 to 256 MiB by all blocks of a grid, on the
direct road, of registered arrays and of others; GB/s as well. With ``--counts``: Alltoallv, also
with IN_PLACE, Neighbor_alltoallv, Neighbor_alltoallw of 26 blocks, and Reduce_scatter, by one block
of threads, of registered arrays and of others.
The direct road is that of a communicator without wildcards, the proxied one that of any other. Each
rank times every call by its GPU's clock, and the slowest rank counts. Bcasts go round: the root of
the next one is the last one's neighbour, so that nobody runs ahead. Every result is checked.
"""

from __future__ import annotations

import sys
from typing import Any

import _block_kernels
import _counted
import _grid_kernels
import _long_collectives
import _nonblocking_kernels
import numpy as np
from _bench import fail, parser, summary, where, write_json
from _floor import cycles_per_us
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import GMPI_Allreduce, GMPI_Barrier, GMPI_Bcast

BARRIER, ALLREDUCE, BCAST = range(3)
NAMES = {
    BARRIER: "Barrier", ALLREDUCE: "Allreduce", BCAST: "Bcast", **_block_kernels.NAMES,
    **_nonblocking_kernels.NAMES,
}  # fmt: skip
#: By a block only: what has calls of grid scope has them in ``--long``.
BY_A_BLOCK = {**_block_kernels.NAMES, **_nonblocking_kernels.NAMES}
SIZES = (8, 1024, 65536, 1 << 20)
LONGEST = 64 << 20


# wide: a kernel
@cuda.jit
def measure(ctx, which, data, out, rounds, skip, cycles, size, comm):
    for i in range(rounds):
        root = i % size
        begin = gmpi.clock()
        if which == BARRIER:
            GMPI_Barrier(ctx, comm)
        elif which == ALLREDUCE:
            GMPI_Allreduce(ctx, data, out, data.size, gmpi.DOUBLE, gmpi.SUM, comm)
        else:
            GMPI_Bcast(ctx, data, data.size, gmpi.DOUBLE, root, comm)
        if cuda.threadIdx.x == 0 and i >= skip:
            cycles[i - skip] = gmpi.clock() - begin


# wide: a kernel
@cuda.jit
def check(ctx, which, data, out, rounds, wrong, rank, size, comm):
    """The same calls; every round has values of its own."""
    first, step = cuda.threadIdx.x, cuda.blockDim.x
    for i in range(rounds):
        error = gmpi.SUCCESS
        if which == BARRIER:
            error = GMPI_Barrier(ctx, comm)
        elif which == ALLREDUCE:
            for k in range(first, data.size, step):
                data[k] = i + k + rank
            error = GMPI_Allreduce(ctx, data, out, data.size, gmpi.DOUBLE, gmpi.SUM, comm)
            for k in range(first, data.size, step):
                if out[k] != size * (i + k) + size * (size - 1) // 2:
                    cuda.atomic.add(wrong, 0, 1)
        else:
            for k in range(first, data.size, step):
                data[k] = 3 * i + k if rank == i % size else -1
            error = GMPI_Bcast(ctx, data, data.size, gmpi.DOUBLE, i % size, comm)
            for k in range(first, data.size, step):
                if data[k] != 3 * i + k:
                    cuda.atomic.add(wrong, 0, 1)
        if error != gmpi.SUCCESS:
            cuda.atomic.add(wrong, 0, 1)
        cuda.syncthreads()


def latency(
    g: gmpi.Context, comm: MPI.Comm, road: int, which: int, nbytes: int, threads: int, blocks: int
) -> dict[str, float]:
    """Microseconds a call takes, by one block, or by all ``blocks`` of a grid."""
    run, verify = (measure, check) if blocks == 1 else (_grid_kernels.measure, _grid_kernels.check)
    length = max(1, nbytes // 8)
    if which in _block_kernels.NAMES:
        run, verify = _block_kernels.measure, _block_kernels.check
        length *= comm.size
    elif which in _nonblocking_kernels.NAMES:
        run, verify = _nonblocking_kernels.measure, _nonblocking_kernels.check
    rounds = 4 if gmpi.SIMULATOR else 3000 if nbytes <= 65536 else 200 if nbytes <= 1 << 20 else 20
    skip = max(2, rounds // 10)
    data, out = (cuda.to_device(np.zeros(length)) for _ in range(2))
    wrong = cuda.to_device(np.zeros(1, np.int32))
    cycles = cuda.to_device(np.zeros(rounds, np.int64))
    comm.Barrier()
    checks = 50 if rounds >= 200 else 3
    verify[blocks, threads](g.device, which, data, out, checks, wrong, comm.rank, comm.size, road)
    g.synchronize()
    bad = comm.allreduce(int(wrong.copy_to_host()[0]))
    if bad:
        fail(f"{NAMES[which]} of {nbytes} bytes: {bad} wrong elements or errors")
    comm.Barrier()
    run[blocks, threads](g.device, which, data, out, rounds + skip, skip, cycles, comm.size, road)
    g.synchronize()
    slowest = np.empty(rounds)
    comm.Allreduce(cycles.copy_to_host() / cycles_per_us(), slowest, MPI.MAX)
    return summary(slowest)


def shapes(g: gmpi.Context, comm: MPI.Comm, threads: list[int]) -> list[tuple[int, int]]:
    """(threads, blocks): a block of each, and, by grid scope, as many of the largest as fit."""
    data = cuda.to_device(np.zeros(1))
    wrong = cuda.to_device(np.zeros(1, np.int32))
    largest = max(threads)
    most = 2
    if not gmpi.SIMULATOR:
        arguments = (g.device, BARRIER, data, data, 1, wrong, 0, 1, 0)
        most = comm.allreduce(g.max_blocks(_grid_kernels.check, largest, args=arguments), MPI.MIN)
    return [*((n, 1) for n in threads), (largest, most)]


def main() -> int:
    args_parser = parser(__doc__ or "")
    args_parser.add_argument("-m", dest="sizes", type=int, nargs="+", metavar="BYTES")
    args_parser.add_argument(
        "--threads", type=int, nargs="+", default=[32] if gmpi.SIMULATOR else [256, 1024]
    )
    args_parser.add_argument("--calls", nargs="+", choices=sorted(NAMES.values()), metavar="CALL")
    args_parser.add_argument("--long", action="store_true", help="long ones of grid scope only")
    args_parser.add_argument("--counts", action="store_true", help="those with counts only")
    args_parser.add_argument("--roads", nargs="+", default=["direct", "proxied"])
    args = args_parser.parse_args()
    comm = MPI.COMM_WORLD
    gmpi.select_gpu(comm)
    place = where(comm)
    settings = {"engine": args.engine} if args.engine else {}
    results = {"benchmark": "collectives", "where": place, "ranks": comm.size}
    rows: list[dict[str, Any]] = []
    cases = [(BARRIER, 0)]
    cases += [(ALLREDUCE, n) for n in args.sizes or (*SIZES, LONGEST)]
    cases += [(BCAST, n) for n in args.sizes or SIZES]
    cases += [(which, n) for which in _block_kernels.NAMES for n in args.sizes or SIZES]
    sizes = args.sizes or _nonblocking_kernels.SIZES
    cases += [(which, n) for which in _nonblocking_kernels.NAMES for n in sizes]
    cases = [case for case in cases if NAMES[case[0]] in (args.calls or NAMES.values())]
    if args.long or args.counts:
        cases = []
    with gmpi.Context(comm, wildcards=False, **settings) as g:
        if args.long:
            rows = _long_collectives.measure(g, comm, args.sizes, args.threads)
        if args.counts:
            rows = _counted.measure(
                g, comm, args.sizes, args.threads, args.roads, results, args.json
            )
        other = comm.Dup()
        roads = {"direct": gmpi.COMM_WORLD, "proxied": g.comm(other)}
        if comm.rank == 0 and cases:
            print(f"# us (p50, p99), {comm.size} ranks on {place}: {', '.join(args.roads)}")
        for which, n in cases:
            for threads, blocks in shapes(g, comm, args.threads):
                if blocks > 1 and which in BY_A_BLOCK:
                    continue
                row: dict[str, Any] = {"call": NAMES[which], "size": n, "threads": threads}
                row["blocks"] = blocks
                for name in args.roads:
                    row[name] = latency(g, comm, roads[name], which, n, threads, blocks)
                rows.append(row)
                if comm.rank == 0:
                    write_json(args.json, {**results, "rows": rows})  # what there is so far
                    found = "".join(
                        f"{row[r]['p50']:>10.2f}{row[r]['p99']:>10.2f}" for r in args.roads
                    )
                    print(f"{NAMES[which]:<11}{n:<9}{blocks:>4} x {threads:<5}{found}", flush=True)
        other.Free()
    if comm.rank == 0:
        print("# results checked: all right")
        write_json(args.json, {**results, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
