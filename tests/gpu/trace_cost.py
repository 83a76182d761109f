"""What traces cost: the 8-byte ping-pong with and without them, on both roads (trace_cost.sh).

    mpiexec -n 2 python tests/gpu/trace_cost.py [--turns 5] [--seconds 45] [--json FILE]

A latency changes from context to context by more than the cost, so contexts with and without a
trace file alternate, and what counts is the median of the ratios of neighbours. *Off* costs nothing
if it is the same code, and if it takes the same time before a process has traced anything and
after; ``noise`` is how far apart neighbours of the same kind are.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import _bench
import pingpong
from _floor import cycles_per_us

import gmpi

BAR_ON = 1.05
ROUNDS = 5 if gmpi.SIMULATOR else 20_000
ROADS = {"direct": False, "proxied": True}  # to the setting ``wildcards``
TIMER = "globaltimer"  # what the stamps of a traced call are read from


def once(comm: MPI.Comm, wildcards: bool, file: str | None, rate: float) -> float:
    """Median microseconds one way, in a context of its own."""
    args = SimpleNamespace(iterations=ROUNDS, skip=ROUNDS // 10, threads=32)
    settings: dict[str, Any] = {"wildcards": wildcards}
    if file:
        settings["trace_file"] = file
    with gmpi.Context(comm, **settings) as g:
        return float(pingpong.measure(g, comm, 8, args, rate)["p50"])


def ratios(values: list[float], others: list[float]) -> float:
    """Median of each one by its neighbour."""
    return median(a / b for a, b in zip(values, others))


def stamps_in_code() -> dict[str, bool] | None:
    """Whether the two builds of the kernel read the timer; None: the simulator compiles nothing."""
    if gmpi.SIMULATOR:
        return None
    found = {}
    for signature, text in pingpong.pingpong.inspect_asm().items():
        found["on" if "TracedContext" in str(signature) else "off"] = TIMER in text
    return found


def row_of(road: str, off: list[float], on: list[float]) -> dict[str, Any]:
    """``off`` has one more than ``on``: the first, before anything was traced."""
    return {
        "road": road,
        "off_us": off,
        "on_us": on,
        "off": median(off),
        "on": median(on),
        "ratio": ratios(on, off[1:]),
        "off_after_by_before": median(off[1:]) / off[0],
        "noise": median(max(pair) / min(pair) for pair in pairwise(off)),
    }


def measure(comm: MPI.Comm, turns: int, seconds: float, folder: str) -> list[dict[str, Any]]:
    """Both roads in each turn; ends early, on all ranks, when ``seconds`` after the first turn are
    over."""
    rate, until = cycles_per_us(), float("inf")
    # First of all, while nothing has been traced in this process.
    off = {road: [once(comm, wild, None, rate)] for road, wild in ROADS.items()}
    on: dict[str, list[float]] = {road: [] for road in ROADS}
    for turn in range(turns):
        if comm.allreduce(time.monotonic() > until, MPI.LOR):
            break
        for road, wild in ROADS.items():
            for file in (f"{folder}/run", None) if turn % 2 else (None, f"{folder}/run"):
                (on if file else off)[road].append(once(comm, wild, file, rate))
        until = min(until, time.monotonic() + seconds)  # since the first one all is compiled
    return [row_of(road, off[road], on[road]) for road in ROADS]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument(
        "--seconds", type=float, default=45, help="no new turn so long after the first one"
    )
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    comm = MPI.COMM_WORLD
    gmpi.select_gpu(comm)
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(comm, options.turns, options.seconds, comm.bcast(folder))
        comm.Barrier()  # before rank 0 deletes the folder that all have written to
    code, place = stamps_in_code(), _bench.where(comm)
    same = code is None or code == {"off": False, "on": True}
    good = comm.allreduce(same and all(row["ratio"] <= BAR_ON for row in rows), MPI.LAND)
    if comm.rank == 0:
        facts = {"benchmark": "trace_cost", "where": place, "bar_on": BAR_ON, "rows": rows,
                 "reads_the_timer": code, "threads": 32, "size": 8}  # fmt: skip
        _bench.write_json(options.json, facts)
        print(f"# 8 bytes one way on {place}, us, medians of {len(rows[0]['on_us'])} turns")
        print(f"# {'road':<9}{'off':>10}{'on':>10}{'on/off':>9}{'after/before':>14}{'noise':>9}")
        for row in rows:
            cells = (row[name] for name in ("off", "on", "ratio", "off_after_by_before", "noise"))
            form = zip(("10.3f", "10.3f", "9.3f", "14.3f", "9.3f"), cells)
            print(f"  {row['road']:<9}" + "".join(f"{value:{width}}" for width, value in form))
        print(f"# kernels that read the GPU's timer: {code if code else 'not known (simulator)'}")
        verdict = "not judged" if gmpi.SIMULATOR else "kept" if good else "NOT KEPT"
        print(f"# allowed: on/off {BAR_ON}; off reads no timer: {verdict}")
    return 0 if good or gmpi.SIMULATOR else 1


if __name__ == "__main__":
    sys.exit(main())
