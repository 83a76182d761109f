"""``gmpi.pack`` of every other run of 64 bytes, beside a copy of as many bytes in one piece."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi.bench import figures
from gmpi.bench.figures import Bench

RUN = 64  # bytes


def _microseconds(bench: Bench, call: Callable[[], Any]) -> float:
    """Of one of so many calls that are made one after the other."""
    for _ in range(max(1, bench.skip)):
        call()
    cuda.synchronize()
    began = time.perf_counter()
    for _ in range(bench.rounds):
        call()
    cuda.synchronize()
    return (time.perf_counter() - began) * 1e6 / bench.rounds


def pack(bench: Bench, nbytes: int) -> dict[str, float]:
    """MB/s of packed bytes; ``copy``: of the copy."""
    runs = max(1, nbytes // RUN)
    datatype = MPI.BYTE.Create_vector(runs, RUN, 2 * RUN).Commit()
    source = (np.arange(2 * runs * RUN) % 249).astype(np.uint8)
    on_gpu = cuda.to_device(source)
    packed, whole = (figures.device_zeros(runs * RUN, np.uint8) for _ in range(2))

    def one() -> Any:
        return gmpi.pack(on_gpu, datatype, out=packed)

    def copy() -> Any:
        return whole.copy_to_device(on_gpu[: runs * RUN])

    one()
    cuda.synchronize()
    right = np.array_equal(packed.copy_to_host(), source.reshape(runs, 2, RUN)[:, 0].ravel())
    figures.require_right(bench, "pack", nbytes, right)
    found = figures.of_all_ranks(bench, _microseconds(bench, one))
    datatype.Free()
    moved = runs * RUN
    return {"value": moved / found["slowest"], **found, "copy": moved / _microseconds(bench, copy)}
