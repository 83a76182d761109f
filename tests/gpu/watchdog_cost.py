"""What watchdog and flight recorder cost: the 8-byte ping-pong with and without them, in turn.

    mpiexec -n 2 python tests/gpu/watchdog_cost.py [--turns 6] [--json FILE]

A latency depends on how polls and answers happen to meet, which changes from context to context by
more than the cost; so contexts with and without alternate in one run, and what counts is the
difference of the medians over all turns.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import _bench
import pingpong
from _floor import cycles_per_us

import gmpi

WITH = {"watchdog_s": 30.0, "flight_events": 256}
WITHOUT = {"watchdog_s": 0.0, "flight_events": 0}
ROUNDS = 50 if gmpi.SIMULATOR else 50_000  # on a GPU several looks of the watchdog long


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    gmpi.select_gpu(comm)
    args = SimpleNamespace(iterations=ROUNDS, skip=ROUNDS // 10, threads=32)
    rate = cycles_per_us()
    found: dict[str, list[float]] = {"with": [], "without": []}
    for turn in range(options.turns):
        both: list[tuple[str, dict[str, Any]]] = [("with", WITH), ("without", WITHOUT)]
        for name, settings in both if turn % 2 == 0 else both[::-1]:
            with gmpi.Context(comm, **settings) as g:
                found[name].append(pingpong.measure(g, comm, 8, args, rate)["p50"])
    medians = {name: float(np.median(values)) for name, values in found.items()}
    cost = medians["with"] / medians["without"] - 1
    where = _bench.where(comm)  # collective
    if comm.rank == 0:
        for name, values in found.items():
            print(f"{name:8} p50 {medians[name]:.3f} us of", *(f"{v:.2f}" for v in values))
        print(f"cost {100 * cost:+.1f} % (allowed: 2 %)")
        _bench.write_json(
            options.json,
            {
                "benchmark": "watchdog_cost",
                "where": where,
                "p50_us": found,
                "cost": cost,
            },
        )


main()
