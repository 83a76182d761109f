"""What ``gmpi tune`` measures of ``gmpi.pack``: each layout of a grid, by kernel and by copy."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

SIZES = tuple(1 << k for k in range(10, 27, 2))  # bytes: 1 KiB to 64 MiB
ROWS = tuple(1 << k for k in range(0, 19, 2))
LEAST_ROW = 8  # bytes
CALLS, BATCHES = 20, 5


def cases() -> list[tuple[int, int]]:
    """(bytes, rows) of each layout: rows at twice their length."""
    return [(n, rows) for n in SIZES for rows in ROWS if n // rows >= LEAST_ROW]


def timings() -> Iterator[tuple[tuple[int, int], tuple[float, float]]]:
    """Each case, with us a call by a kernel and by a copy; needs a GPU."""
    import numpy as np
    from mpi4py import MPI
    from numba import cuda

    import gmpi

    user = cuda.to_device(np.zeros(2 * SIZES[-1], np.uint8))
    packed = cuda.to_device(np.zeros(SIZES[-1], np.uint8))

    def us(datatype: Any, engine: str) -> float:
        found = []
        for batch in range(BATCHES + 1):
            begin = time.perf_counter()
            for _ in range(CALLS):
                gmpi.pack(user, datatype, 1, packed, None, engine)
            cuda.synchronize()
            if batch:  # the first one compiles, and prepares
                found.append((time.perf_counter() - begin) / CALLS * 1e6)
        return min(found)

    for nbytes, rows in cases():
        width = nbytes // rows
        datatype = MPI.BYTE.Create_vector(rows, width, 2 * width)
        yield (nbytes, rows), (us(datatype, "kernel"), us(datatype, "copy"))
        datatype.Free()
