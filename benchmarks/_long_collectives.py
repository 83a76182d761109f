"""Long collectives of grid scope, which ``collectives.py --long`` measures, with and without
registered arrays."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from _bench import fail, summary
from _floor import cycles_per_us
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import GMPI_Allgather_grid, GMPI_Allreduce_grid, GMPI_Alltoall_grid
from gmpi.contract.collectives import AREA, area_bytes
from gmpi.contract.pipelines import flags_bytes
from gmpi.contract.wire import DEVICE_COLLECTIVES

ALLREDUCE, ALLGATHER, ALLTOALL = range(3)
NAMES = {ALLREDUCE: "Allreduce", ALLGATHER: "Allgather", ALLTOALL: "Alltoall"}
SIZES = (81920,) if gmpi.SIMULATOR else (1 << 20, 16 << 20, 64 << 20, 256 << 20)
CHECKED = 3  # rounds, at the beginning; and the last one
PATIENCE_S = 20  # for all ranks to map registered arrays


# wide: a kernel
@cuda.jit
def run(ctx, which, data, out, n, rounds, skip, cycles, wrong, me, size):
    """Calls of ``n`` doubles, or ``n`` a block. Checked ones have values of their own."""
    grid = cuda.cg.this_grid()
    first, step = cuda.grid(1), cuda.gridsize(1)
    given = n * size if which == ALLTOALL else n
    got = n if which == ALLREDUCE else n * size
    for i in range(rounds):
        fresh = i < CHECKED or i == rounds - 1
        if fresh:
            for k in range(first, given, step):
                data[k] = i + k + 1000 * me
            for k in range(first, got, step):
                out[k] = -1
            grid.sync()
        begin = gmpi.clock()
        if which == ALLREDUCE:
            error = GMPI_Allreduce_grid(ctx, data, out, n, gmpi.DOUBLE, gmpi.SUM, 0)
        elif which == ALLGATHER:
            error = GMPI_Allgather_grid(ctx, data, n, gmpi.DOUBLE, out, n, gmpi.DOUBLE, 0)
        else:
            error = GMPI_Alltoall_grid(ctx, data, n, gmpi.DOUBLE, out, n, gmpi.DOUBLE, 0)
        if first == 0 and i >= skip and not fresh:
            cycles[i - skip] = gmpi.clock() - begin
        if error != gmpi.SUCCESS:
            cuda.atomic.add(wrong, 0, 1)
        if fresh:
            for k in range(first, got, step):
                if which == ALLREDUCE:
                    wanted = size * (i + k) + 500 * size * (size - 1)
                elif which == ALLGATHER:
                    wanted = i + k % n + 1000 * (k // n)
                else:
                    wanted = i + me * n + k % n + 1000 * (k // n)
                if out[k] != wanted:
                    cuda.atomic.add(wrong, 0, 1)
            grid.sync()


def _flags(g: gmpi.Context, ranks: int) -> np.ndarray:
    """What blocks of other ranks have told ours: nothing, where no byte goes through staging."""
    area = int(g._memory.read_device(DEVICE_COLLECTIVES + AREA, 8).view(np.int64)[0])
    return g._memory.fetch(area + area_bytes(ranks), flags_bytes(ranks))


def case(
    g: gmpi.Context, comm: MPI.Comm, which: int, nbytes: int, registered: bool,
    shape: tuple[int, int],
) -> dict[str, Any]:  # fmt: skip
    """A row: microseconds of the slowest rank, and GB/s: bytes of the vector, or of a block."""
    threads, blocks = shape
    n = nbytes // 8
    lengths = [n * (comm.size if which == ALLTOALL else 1)]
    lengths.append(n * (1 if which == ALLREDUCE else comm.size))
    make = g.empty if registered else cuda.device_array
    data, out = (make(length, np.float64) for length in lengths)
    skip = CHECKED + 3
    rounds = skip + 1 + (3 if gmpi.SIMULATOR else 30)
    cycles = cuda.to_device(np.zeros(rounds - 1 - skip, np.int64))
    wrong = cuda.to_device(np.zeros(1, np.int32))
    until = time.monotonic() + PATIENCE_S
    while True:
        before = _flags(g, comm.size)
        comm.Barrier()
        run[blocks, threads](
            g.device, which, data, out, n, rounds, skip, cycles, wrong, comm.rank, comm.size
        )
        g.synchronize()
        straight = bool(np.array_equal(before, _flags(g, comm.size)))
        bad = comm.allreduce(int(wrong.copy_to_host()[0]))
        if bad:
            fail(f"{NAMES[which]} of {nbytes} bytes: {bad} wrong elements or errors")
        late = comm.bcast(time.monotonic() > until)
        if late or not registered or comm.allreduce(straight, MPI.LAND):
            break
        time.sleep(0.1)
    slowest = np.empty(len(cycles))
    comm.Allreduce(cycles.copy_to_host() / cycles_per_us(), slowest, MPI.MAX)
    row: dict[str, Any] = {"call": NAMES[which], "size": nbytes, "threads": threads}
    row |= {"blocks": blocks, "registered": registered, "straight": straight}
    row["direct"] = summary(slowest)
    row["gbps"] = nbytes / row["direct"]["p50"] / 1e3
    if registered:
        for array in (data, out):
            g.unregister(array)
    return row


def measure(
    g: gmpi.Context, comm: MPI.Comm, sizes: list[int] | None, threads: list[int]
) -> list[dict[str, Any]]:
    rows = []
    if comm.rank == 0:
        print("# GB/s of the vector or a block, us (p50, p99), of the direct road")
    data = cuda.to_device(np.zeros(1))
    wrong = cuda.to_device(np.zeros(1, np.int32))
    cycles = cuda.to_device(np.zeros(1, np.int64))
    for some in threads:
        most = 2
        if not gmpi.SIMULATOR:
            arguments = (g.device, ALLREDUCE, data, data, 1, 1, 0, cycles, wrong, 0, 1)
            most = comm.allreduce(g.max_blocks(run, some, args=arguments), MPI.MIN)
        for which in NAMES:
            for nbytes in sizes or SIZES:
                for registered in (True, False):
                    row = case(g, comm, which, nbytes, registered, (some, most))
                    rows.append(row)
                    if comm.rank == 0:
                        memory = "registered" if registered else "any"
                        way = "straight" if row["straight"] else "pipelines"
                        print(
                            f"{row['call']:<11}{nbytes:<11}{most:>4} x {some:<5}{memory:<11}"
                            f"{way:<10}{row['gbps']:>8.1f}{row['direct']['p50']:>10.1f}"
                            f"{row['direct']['p99']:>10.1f}",
                            flush=True,
                        )
    return rows
