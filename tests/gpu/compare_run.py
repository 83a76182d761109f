"""Measures one tree of the project once, for ``compare.sh``: 2 ranks.

    mpirun -n 2 python3 tests/gpu/compare_run.py TREE --json FILE
    mpirun -n 2 python3 tests/gpu/compare_run.py TREE --check

The library and the programs that measure it are those of TREE; only what is asked of them is said
here, so that two trees are asked the same. Payloads, counts and sums are checked by the programs.
``--check``: messages of each size and Himeno XS against the serial program, nothing measured.
"""

from __future__ import annotations

import argparse
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np

ARGUMENTS = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
ARGUMENTS.add_argument("tree", type=Path)
ARGUMENTS.add_argument("--json", metavar="FILE")
ARGUMENTS.add_argument("--check", action="store_true")
ARGUMENTS.add_argument("--sizes", nargs="*", type=int, default=[8, 1 << 10, 1 << 16, 1 << 20])
ARGUMENTS.add_argument("--himeno", nargs="*", default=["S", "M", "L", "XL"], metavar="SIZE")
ARGUMENTS.add_argument("--repeat", type=int, default=3, help="rates and Himeno, in this process")
ARGS = ARGUMENTS.parse_args()
TREE = ARGS.tree.resolve()
# A tree from before there were benchmarks has these programs among its examples.
PLACES = (TREE, TREE / "benchmarks" / "himeno", TREE / "benchmarks", TREE / "examples")
sys.path[:1] = [str(place) for place in PLACES]

import _bench  # noqa: E402
import _himeno_app  # noqa: E402
import pingpong  # noqa: E402
import rates  # noqa: E402
from _floor import cycles_per_us  # noqa: E402
from _himeno_grid import parse_size  # noqa: E402
from mpi4py import MPI  # noqa: E402

import gmpi  # noqa: E402

if (TREE / "benchmarks").is_dir():
    import himeno_tuned as himeno
else:
    import himeno

#: Iterations of Himeno by size: some tenths of a second.
ITERATIONS = {"S": 2000, "M": 2000, "L": 1000, "XL": 200}
ROUNDS = Namespace(iterations=None, skip=None, threads=256)


def messages(g: gmpi.Context, comm: MPI.Comm) -> dict[str, Any]:
    """One-way times in us; the median of each size."""
    rate = cycles_per_us()
    return {str(n): pingpong.measure(g, comm, n, ROUNDS, rate)["p50"] for n in ARGS.sizes}


def all_rates(g: gmpi.Context, comm: MPI.Comm) -> dict[str, list[float]]:
    """Records, requests and messages a second, each several times."""
    small = gmpi.SIMULATOR
    found: dict[str, list[float]] = {name: [] for name in ("records", "requests", "messages")}
    found["messages_no_any_tag"] = []
    spread = g.comm(comm, no_any_tag=True)
    blocks, rounds = (1, 2) if small else (16, 1000)
    for _ in range(ARGS.repeat):
        if comm.rank == 0:
            records = rates.record_rate(g, *((1, 10) if small else (16, 100000)))
            requests = rates.request_rate(g, *((1, 3) if small else (16, 20000)))
            found["records"].append(records["per_s"])
            found["requests"].append(requests["per_s"])
        comm.Barrier()
        for name, handle in (("messages", gmpi.COMM_WORLD), ("messages_no_any_tag", spread)):
            row = rates.message_rate(g, comm, handle, blocks, rounds)
            found[name].append(row["per_s"])
    return found


def sweeps(comm: MPI.Comm, place: str, sizes: list[str], verify: bool) -> dict[str, Any]:
    """Himeno, cut in two along i."""
    found = {}
    for size in sizes:
        iterations = 2 if gmpi.SIMULATOR else ITERATIONS.get(size, 1000)
        args = Namespace(
            iterations=iterations, repeat=ARGS.repeat, breakdown=False, verify=verify, engine=None
        )
        row = _himeno_app.one(
            himeno.Himeno, comm, parse_size(size), (comm.size, 1, 1), {}, args, place
        )
        if not row.get("verified", True):
            _bench.fail(f"Himeno {size}: not what the serial program gives")
        if not verify:
            found[size] = {"us": row["us"], "gosa": row["gosa"]}
    return found


def check_messages(g: gmpi.Context, comm: MPI.Comm) -> None:
    rounds = Namespace(iterations=2, skip=1, threads=256 if not gmpi.SIMULATOR else 32)
    for n in ARGS.sizes:
        pingpong.measure(g, comm, n, rounds, 1.0)


def main() -> int:
    if TREE not in Path(gmpi.__file__).resolve().parents:
        _bench.fail(f"gmpi is {gmpi.__file__}, not of {TREE}")
    began = time.perf_counter()
    comm = MPI.COMM_WORLD
    if comm.size != 2:
        _bench.fail(f"compare_run needs 2 ranks, got {comm.size}")
    if gmpi.SIMULATOR:
        ROUNDS.threads = 32
    gmpi.select_gpu(comm)
    place = _bench.where(comm)
    results: dict[str, Any] = {"where": place, "tree": str(ARGS.tree)}
    with gmpi.Context(comm) as g:
        if ARGS.check:
            check_messages(g, comm)
        else:
            results["one_way_us"] = messages(g, comm)
            rate = cycles_per_us()
            rounds = 10 if gmpi.SIMULATOR else 5000
            reduced = rates.allreduce_times(g, comm, rate, rounds)
            results["allreduce_us"] = reduced["gmpi"]["p50"]
            results["rates"] = all_rates(g, comm)
    if ARGS.check:
        sweeps(comm, place, ["XS"] if ARGS.himeno else [], True)
    else:
        results["himeno"] = sweeps(comm, place, ARGS.himeno, False)
    if comm.rank == 0:
        results["seconds"] = time.perf_counter() - began
        if ARGS.json:
            _bench.write_json(ARGS.json, results)
        if ARGS.check:
            print(f"{ARGS.tree}: payloads and Himeno XS right", flush=True)
        else:
            shown = " ".join(f"{n} B {us:.2f}" for n, us in results["one_way_us"].items())
            rate = np.median(results["rates"]["messages"]) / 1e6
            sweep = " ".join(f"{n} {row['us']:.1f}" for n, row in results["himeno"].items())
            print(f"{ARGS.tree}: one way {shown}; {rate:.2f} M messages/s; Himeno {sweep} us")
            print(f"  {results['seconds']:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
