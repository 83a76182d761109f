"""What ``collectives.py --counts`` measures: Alltoallv, also with IN_PLACE, Neighbor_alltoallv with
all others, Neighbor_alltoallw along 26 edges to the next rank, and Reduce_scatter, of registered
arrays and of any, on both roads."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from _bench import fail, summary, write_json
from _floor import cycles_per_us
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import (
    GMPI_Alltoallv,
    GMPI_Neighbor_alltoallv,
    GMPI_Neighbor_alltoallw,
    GMPI_Reduce_scatter,
)

ALLTOALLV, NEIGHBOR_ALLTOALLV, NEIGHBOR_ALLTOALLW, IN_PLACE, REDUCE_SCATTER = range(5)
NAMES = {
    ALLTOALLV: "Alltoallv", NEIGHBOR_ALLTOALLV: "Neighbor_alltoallv",
    NEIGHBOR_ALLTOALLW: "Neighbor_alltoallw", IN_PLACE: "Alltoallv IN_PLACE",
    REDUCE_SCATTER: "Reduce_scatter",
}  # fmt: skip
EDGES = 26  # of Neighbor_alltoallw, as of a box in three dimensions
SIZES = (8, 1024, 65536, 1 << 20)
MAPPING_S = 1.0  # for all ranks to map registered arrays


@cuda.jit(device=True)
def _call(ctx, which, data, out, counts, displs, types, comm):
    error = gmpi.SUCCESS
    if which == ALLTOALLV:
        error = GMPI_Alltoallv(
            ctx, data, counts, displs, gmpi.DOUBLE, out, counts, displs, gmpi.DOUBLE, comm
        )
    elif which == NEIGHBOR_ALLTOALLV:
        error = GMPI_Neighbor_alltoallv(
            ctx, data, counts, displs, gmpi.DOUBLE, out, counts, displs, gmpi.DOUBLE, comm
        )
    elif which == NEIGHBOR_ALLTOALLW:
        error = GMPI_Neighbor_alltoallw(
            ctx, data, counts, displs, types, out, counts, displs, types, comm
        )
    elif which == IN_PLACE:
        error = GMPI_Alltoallv(
            ctx, gmpi.IN_PLACE, counts, displs, gmpi.DOUBLE, out, counts, displs, gmpi.DOUBLE, comm
        )
    else:
        error = GMPI_Reduce_scatter(ctx, data, out, counts, gmpi.DOUBLE, gmpi.SUM, comm)
    return error


@cuda.jit(device=True)
def _wanted(which, i, k, n, ranks, rank, previous):
    """Element ``k`` of what has come in round ``i``.

    Args:
        ranks: only of Reduce_scatter.
    """
    if which == REDUCE_SCATTER:
        return ranks * (i + rank * n + k) + 500 * ranks * (ranks - 1) if k < n else -1
    source = k // n
    which_block = rank  # of the source's
    if which == NEIGHBOR_ALLTOALLV:
        source += 1 if source >= rank else 0
        which_block -= 1 if rank > source else 0
    elif which == NEIGHBOR_ALLTOALLW:
        which_block = source
        source = previous
    return i + which_block * n + k % n + 1000 * source


# wide: a kernel
@cuda.jit
def timed(ctx, which, data, out, counts, displs, types, comm, rounds, skip, cycles):
    for i in range(rounds):
        begin = gmpi.clock()
        _call(ctx, which, data, out, counts, displs, types, comm)
        if cuda.threadIdx.x == 0 and i >= skip:
            cycles[i - skip] = gmpi.clock() - begin


# wide: a kernel
@cuda.jit
def checked(ctx, which, data, out, counts, displs, types, comm, rounds, rank, previous, wrong):
    """The same calls; every round has values of its own."""
    first, step, n = cuda.threadIdx.x, cuda.blockDim.x, counts[0]
    for i in range(rounds):
        for k in range(first, data.size, step):
            data[k] = i + k + 1000 * rank
            out[k] = data[k] if which == IN_PLACE else -1
        if _call(ctx, which, data, out, counts, displs, types, comm) != gmpi.SUCCESS:
            cuda.atomic.add(wrong, 0, 1)
        for k in range(first, out.size, step):
            if out[k] != _wanted(which, i, k, n, counts.size, rank, previous):
                cuda.atomic.add(wrong, 0, 1)
        cuda.syncthreads()


def case(
    g: gmpi.Context, comm: MPI.Comm, which: int, nbytes: int, threads: int, registered: bool,
    roads: dict[str, int],
) -> dict[str, Any]:  # fmt: skip
    """A row: microseconds of the slowest rank, by road."""
    blocks = {NEIGHBOR_ALLTOALLV: comm.size - 1, NEIGHBOR_ALLTOALLW: EDGES}.get(which, comm.size)
    n = max(1, nbytes // 8)
    make = g.empty if registered else cuda.device_array
    data, out = (make(n * blocks, np.float64) for _ in range(2))
    if registered:
        time.sleep(MAPPING_S)
    displs = n * np.arange(blocks) * (8 if which == NEIGHBOR_ALLTOALLW else 1)  # bytes, or elements
    arrays = [np.full(blocks, n), displs, np.full(blocks, gmpi.DOUBLE)]
    arrays = [cuda.to_device(array) for array in arrays]
    previous = (comm.rank - 1) % comm.size
    rounds = 4 if gmpi.SIMULATOR else 3000 if nbytes <= 65536 else 200
    skip = max(2, rounds // 10)
    row: dict[str, Any] = {"call": NAMES[which], "size": nbytes, "threads": threads}
    row["registered"] = registered
    for name, handle in roads.items():
        wrong = cuda.to_device(np.zeros(1, np.int32))
        cycles = cuda.to_device(np.zeros(rounds, np.int64))
        comm.Barrier()
        checks = 3 if gmpi.SIMULATOR else 50
        checked[1, threads](
            g.device, which, data, out, *arrays, handle, checks, comm.rank, previous, wrong
        )
        g.synchronize()
        bad = comm.allreduce(int(wrong.copy_to_host()[0]))
        if bad:
            fail(f"{NAMES[which]} of {nbytes} bytes: {bad} wrong elements or errors")
        comm.Barrier()
        timed[1, threads](g.device, which, data, out, *arrays, handle, rounds + skip, skip, cycles)
        g.synchronize()
        slowest = np.empty(rounds)
        comm.Allreduce(cycles.copy_to_host() / cycles_per_us(), slowest, MPI.MAX)
        row[name] = summary(slowest)
    if registered:
        comm.Barrier()
        for array in (data, out):
            g.unregister(array)
    return row


def measure(
    g: gmpi.Context, comm: MPI.Comm, sizes: list[int] | None, threads: list[int],
    roads: list[str], results: dict[str, Any], file: str | None,
) -> list[dict[str, Any]]:  # fmt: skip
    rows = []
    others = [rank for rank in range(comm.size) if rank != comm.rank]
    to, back = [(comm.rank + 1) % comm.size], [(comm.rank - 1) % comm.size]
    kinds = {
        ALLTOALLV: comm.Dup(),
        NEIGHBOR_ALLTOALLV: comm.Create_dist_graph_adjacent(others, others),
        NEIGHBOR_ALLTOALLW: comm.Create_dist_graph_adjacent(back * EDGES, to * EDGES),
        IN_PLACE: comm.Dup(),
        REDUCE_SCATTER: comm.Dup(),
    }
    if comm.rank == 0:
        print(f"# us (p50, p99), bytes of a block, {comm.size} ranks: {', '.join(roads)}")
    for which, kind in kinds.items():
        handles = {name: g.comm(kind, wildcards=name != "direct") for name in roads}
        for nbytes in sizes or SIZES:
            for some in threads:
                for registered in (True, False):
                    row = case(g, comm, which, nbytes, some, registered, handles)
                    rows.append(row)
                    if comm.rank == 0:
                        write_json(file, {**results, "rows": rows})
                        found = "".join(
                            f"{row[r]['p50']:>10.2f}{row[r]['p99']:>10.2f}" for r in roads
                        )
                        memory = "registered" if registered else "any"
                        print(
                            f"{NAMES[which]:<19}{nbytes:<9}{some:<6}{memory:<11}{found}", flush=True
                        )
    for kind in kinds.values():
        kind.Free()
    return rows
