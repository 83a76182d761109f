"""From what ranks have timed to rows, tables, and a comparison with former ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi.errors import GMPIError

LOOKS_WRONG = "gmpi bench {}: {} bytes: a payload is wrong on {} ranks"


class Bench(NamedTuple):
    """What one measurement needs.

    Attributes:
        rounds, skip: how many are timed, after how many that are not.
        threads: of a block.
    """

    g: gmpi.Context
    world: MPI.Comm
    rounds: int
    skip: int
    threads: int


class BenchError(GMPIError):
    """A measurement is not one: a payload was wrong, or the number of ranks does not fit."""


def device_zeros(count: int, dtype: Any) -> Any:
    """An array in GPU memory that other GPUs can map."""
    array = cuda.to_device(np.zeros(max(1, count), dtype))
    return array


def require_right(bench: Bench, subject: str, nbytes: int, right: bool) -> None:
    """Raises BenchError, on all ranks, if a payload is wrong on one."""
    wrong = bench.world.allreduce(int(not right))
    if wrong:
        raise BenchError(LOOKS_WRONG.format(subject, nbytes, wrong))


def of_all_ranks(bench: Bench, mine: float) -> dict[str, float]:
    """Of one figure a rank: the slowest rank's, the mean, the skew (largest less smallest)."""
    every = bench.world.allgather(float(mine))
    return {
        "slowest": max(every),
        "mean": sum(every) / len(every),
        "skew": max(every) - min(every),
        "slowest_rank": every.index(max(every)),
    }


def nanoseconds_a_round(bench: Bench, timed: Any) -> float:
    """What a kernel has stored in ``timed``, for one round."""
    return float(timed.copy_to_host()[0]) / bench.rounds


def compared(rows: list[dict[str, Any]], former: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with the former value, and how many times it the new one is."""
    known = {row["size"]: row["value"] for row in former}
    for row in rows:
        if known.get(row["size"]):
            row["former"] = known[row["size"]]
            row["ratio"] = row["value"] / known[row["size"]]
    return rows
