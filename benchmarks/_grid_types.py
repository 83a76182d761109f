"""Messages of derived datatypes by grid scope, for ``roads.py``: parts of a matrix of doubles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import _grid_kernels
import numpy as np
from _bench import fail, summary
from _floor import cycles_per_us
from mpi4py import MPI
from numba import cuda

import gmpi

N = 48 if gmpi.SIMULATOR else 4096


def cases(n: int = N) -> dict[str, tuple[Any, int, Any, int, Any]]:
    """By name: datatype and count of the send, of the receive, and which elements of a matrix of
    n x n doubles come where: (what is sent) -> (what is received into zeros)."""
    columns = MPI.DOUBLE.Create_vector(n, n // 2, n)
    rows = np.arange(n, dtype=np.int32)
    triangle = MPI.DOUBLE.Create_indexed(rows + 1, rows * n)
    step = max(1, n // 64)  # of a stair: as many rows have the same length
    widths = (rows // step + 1) * step
    stair = MPI.DOUBLE.Create_indexed(np.minimum(widths, n).astype(np.int32), rows * n)
    column = MPI.DOUBLE.Create_vector(n, 1, n).Create_resized(0, 8)

    def half(a: np.ndarray) -> np.ndarray:
        return np.where(np.arange(n) < n // 2, a, 0)

    def steps(a: np.ndarray) -> np.ndarray:
        return np.where(np.arange(n) < widths[:, None], a, 0)

    return {
        "contiguous": (MPI.DOUBLE, n * n // 2, MPI.DOUBLE, n * n // 2, None),
        "sub-matrix": (columns, 1, columns, 1, half),
        "triangle": (triangle, 1, triangle, 1, np.tril),
        "stair": (stair, 1, stair, 1, steps),
        "transpose": (MPI.DOUBLE, n * n, column, n, np.transpose),
    }


def row(
    g: gmpi.Context,
    comm: MPI.Comm,
    name: str,
    threads: int,
    blocks: int,
    n: int = N,
    road: int = gmpi.COMM_WORLD,
    memories: Sequence[str] = ("direct",),
) -> dict[str, Any]:
    """One way, half a round trip, in microseconds and GB/s; those of ``direct`` are of any memory,
    whatever the road, those of ``registered`` of registered arrays."""
    sendtype, sent, recvtype, received, expected = cases(n)[name]
    types = [gmpi.DOUBLE if t is MPI.DOUBLE else g.commit(t) for t in (sendtype, recvtype)]
    nbytes = sendtype.Get_size() * sent
    matrix = np.arange(n * n, dtype=np.float64).reshape(n, n) + 1
    whole = matrix + 1 - comm.rank
    first = whole.reshape(-1)[: n * n // 2]
    wanted = np.pad(first, (0, n * n - first.size)).reshape(n, n)
    if expected is not None:
        wanted = expected(whole)
    row: dict[str, Any] = {"name": name, "size": nbytes, "blocks": blocks}
    for memory in memories:
        arrays = [
            (g.empty if memory == "registered" else cuda.device_array)((n, n), np.float64)
            for _ in range(2)
        ]
        for array, content in zip(arrays, (matrix + comm.rank, np.zeros((n, n)))):
            array.copy_to_device(content)
        call = *arrays, sent, types[0], received, types[1]
        found = _time(g, comm, call, (blocks, threads), road)
        if comm.allreduce(int((arrays[1].copy_to_host() != wanted).sum())):
            fail(f"{name}, {memory}: wrong elements")
        if memory == "registered":
            for array in arrays:
                g.unregister(array)
        rate = nbytes / found["p50"] / 1e3
        row[memory] = found
        row["gb_per_s" if memory == "direct" else f"{memory}_gb_per_s"] = rate
        if comm.rank == 0:
            print(
                f"# grid, {name} of {n} x {n} doubles, {memory}: {found['p50']:.1f} us, "
                f"{rate:.1f} GB/s",
                flush=True,
            )
    for handle in {*types} - {gmpi.DOUBLE}:
        g.free(handle)
    return row


def _time(
    g: gmpi.Context, comm: MPI.Comm, call: tuple[Any, ...], shape: tuple[int, int], road: int
) -> dict[str, float]:
    """Of ``exchange_typed``, once the other rank has had time to map the arrays."""
    rounds, skip = (3, 1) if gmpi.SIMULATOR else (30, 3)
    cycles = cuda.to_device(np.zeros(rounds, np.int64))
    for some, leave in ((2, 1), (rounds + skip, skip)):
        comm.Barrier()
        arguments = comm.rank, some, leave, cycles, road
        _grid_kernels.exchange_typed[shape](g.device, *call, *arguments)
        g.synchronize()
    return summary(cycles.copy_to_host() / cycles_per_us() / 2)
