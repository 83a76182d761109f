"""What a column costs that a running kernel sends: against as many contiguous bytes.

One block of a kernel that stays resident sends to its own rank, and receives, again and again. The
three ways differ in what is sent only: an array, a column of a matrix, the same as a datatype.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi

ROWS = 512
COLUMNS = 64
THREADS = 256


@cuda.jit(device=True)
def _contiguous(matrix, array, datatype):
    return array, array.size, gmpi.DOUBLE


@cuda.jit(device=True)
def _view(matrix, array, datatype):
    return matrix[:, 1], array.size, gmpi.DOUBLE


@cuda.jit(device=True)
def _derived(matrix, array, datatype):
    return matrix, 1, datatype


def _kernel(message: Any) -> Any:
    """Sends and receives again and again what ``message`` says: (buffer, count, datatype)."""

    @cuda.jit
    def exchange(ctx, matrix, array, datatype, room, cycles, ns):
        ns[0] = gmpi.timer_ns()
        for lap in range(cycles.size):
            cuda.syncthreads()
            begin = gmpi.clock()
            buffer, count, kind = message(matrix, array, datatype)
            r = gmpi.GMPI_Irecv(ctx, room, room.size, gmpi.DOUBLE, 0, 1, gmpi.COMM_WORLD)
            s = gmpi.GMPI_Isend(ctx, buffer, count, kind, 0, 1, gmpi.COMM_WORLD)
            gmpi.GMPI_Waitall(ctx, 2, (r, s))
            cycles[lap] = gmpi.clock() - begin
        ns[1] = gmpi.timer_ns()

    return exchange


def columns(laps: int = 2000) -> list[dict[str, Any]]:
    """us of a message of 512 doubles, the median of ``laps`` inside one launch for each way."""
    rows: list[dict[str, Any]] = []
    with gmpi.Context(MPI.COMM_SELF) as g:
        one = MPI.DOUBLE.Create_subarray((ROWS, COLUMNS), (ROWS, 1), (0, 1))
        datatype = g.commit(one)
        content = np.random.default_rng(1).random((ROWS, COLUMNS))
        matrix = cuda.to_device(content)
        array = cuda.to_device(content[:, 1].copy())
        for name, message in (("array", _contiguous), ("view", _view), ("datatype", _derived)):
            kernel = _kernel(message)
            room = cuda.to_device(np.zeros(ROWS))
            cycles = cuda.to_device(np.zeros(laps, np.int64))
            ns = cuda.to_device(np.zeros(2, np.int64))
            kernel[1, THREADS](g.device, matrix, array, datatype, room, cycles, ns)
            g.synchronize()
            each, (begin, end) = cycles.copy_to_host(), ns.copy_to_host()
            us_per_cycle = (end - begin) / 1e3 / each.sum()
            correct = np.array_equal(room.copy_to_host(), content[:, 1])
            us = float(np.median(each) * us_per_cycle)
            rows.append({"sent": name, "us": us, "correct": bool(correct)})
        for row in rows:
            row["over_array_us"] = row["us"] - rows[0]["us"]
        g.free(datatype)
    return rows
