"""Measures one tree of the project, in turns with another, for ``compare.sh``: 2 ranks.

    mpirun -n 2 python3 tests/gpu/compare_run.py TREE DIRECTORY --name new --names former new

The library and the programs that measure it are those of TREE; only what is asked of them is said
here, so that two trees are asked the same. Payloads, counts and sums are checked by the programs.

One process for all runs: kernels are compiled once. Messages of each size and Himeno XS against the
serial program come first, then every kernel runs once, then ``DIRECTORY/NAME-RUN.json`` is written
after each run. A process has one context at a time, without settings, so that messages go by the
proxies; Himeno of the sizes that take the direct road by themselves has another one then. Between
its turns a job runs no kernel, and its proxy naps for 10 ms at a time.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from compare_turns import Over, Turns, write

ARGUMENTS = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
ARGUMENTS.add_argument("tree", type=Path)
ARGUMENTS.add_argument("directory", type=Path, help="runs and turns")
ARGUMENTS.add_argument("--name", default="new")
ARGUMENTS.add_argument("--names", nargs="+", default=["new"], help="of all jobs that take turns")
ARGUMENTS.add_argument("--runs", type=int, default=5)
ARGUMENTS.add_argument("--until", type=float, help="when no turn begins any more, in s since 1970")
ARGUMENTS.add_argument("--sizes", nargs="*", type=int, default=[8, 1 << 10, 1 << 16, 1 << 20])
ARGUMENTS.add_argument("--himeno", nargs="*", default=["S", "M", "L", "XL"], metavar="SIZE")
ARGUMENTS.add_argument("--check", default="XS", metavar="SIZE", help="of Himeno, all points")
ARGUMENTS.add_argument("--repeat", type=int, default=3, help="rates and Himeno, in a run")
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
from _himeno_grid import parse_size, part_of  # noqa: E402
from mpi4py import MPI  # noqa: E402

import gmpi  # noqa: E402

if (TREE / "benchmarks").is_dir():
    import himeno_tuned as himeno

    from host_proxy.platform.state import G_SLEEP_NS
else:
    import himeno
    from host_proxy.state import G_SLEEP_NS

#: Iterations of Himeno by size: 0.13 to 0.18 s on two H100.
ITERATIONS = {"S": 8000, "M": 4000, "L": 600, "XL": 80}
THREADS = 32 if gmpi.SIMULATOR else 256
_NAP_NS = 10_000_000
_LARGE_SLOTS = 64  # as many as any size of Himeno asks for
_DIRECT = {"wildcards": False}
_SETTLE_S = 0.15  # a proxy naps after 0.1 s without work


def _say(text: str) -> None:
    if MPI.COMM_WORLD.rank == 0:
        print(text, flush=True)


@contextmanager
def awake(context: gmpi.Context) -> Iterator[gmpi.Context]:
    """Its proxy has its own habits meanwhile; else it sleeps for as long as it may."""
    found = context._state.globals
    found[G_SLEEP_NS] = int(context.config.sleep_us * 1e3)
    try:
        yield context
    finally:
        found[G_SLEEP_NS] = _NAP_NS


def messages(g: gmpi.Context, comm: MPI.Comm, rate: float, rounds: int | None) -> dict[str, Any]:
    """One-way times in us; the median of each size."""
    asked = Namespace(iterations=rounds, skip=rounds and 1, threads=THREADS)
    return {str(n): pingpong.measure(g, comm, n, asked, rate)["p50"] for n in ARGS.sizes}


class Rates:
    """Records, requests and messages a second, each several times."""

    def __init__(self, g: gmpi.Context, comm: MPI.Comm) -> None:
        self.g, self.comm = g, comm
        self.spread = g.comm(comm, no_any_tag=True)

    def measure(self, repeat: int, small: bool) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {name: [] for name in ("records", "requests", "messages")}
        found["messages_no_any_tag"] = []
        blocks = 1 if gmpi.SIMULATOR else 16
        records, requests, rounds = (10, 3, 2) if small else (100000, 10000, 500)
        for _ in range(repeat):
            if self.comm.rank == 0:
                found["records"].append(rates.record_rate(self.g, blocks, records)["per_s"])
                found["requests"].append(rates.request_rate(self.g, blocks, requests)["per_s"])
            self.comm.Barrier()
            for name, handle in (
                ("messages", gmpi.COMM_WORLD), ("messages_no_any_tag", self.spread)
            ):  # fmt: skip
                row = rates.message_rate(self.g, self.comm, handle, blocks, rounds)
                found[name].append(row["per_s"])
        return found


def opened(comm: MPI.Comm, **settings: Any) -> gmpi.Context:
    """A context whose proxy naps."""
    g = gmpi.Context(comm, large_slots=_LARGE_SLOTS, **settings)
    g._state.globals[G_SLEEP_NS] = _NAP_NS
    return g


def solver_of(g: gmpi.Context, comm: MPI.Comm, size: str, **settings: Any) -> Any:
    """Himeno, cut in two along i: fields and a compiled kernel; nothing runs yet."""
    part, chosen = part_of(comm.rank, parse_size(size), (comm.size, 1, 1)), {}
    kind = himeno.Himeno.fitting(comm, part, chosen)
    with patch.object(gmpi, "Context", lambda comm, **rest: g):
        return kind(comm, part, False, chosen, **settings)


def takes_direct_road(comm: MPI.Comm, size: str) -> bool:
    """Whether the program takes it where nobody chooses; not in a tree that has no such choice."""
    part = part_of(comm.rank, parse_size(size), (comm.size, 1, 1))
    chooses = getattr(_himeno_app, "takes_direct_road", lambda *_: False)
    return bool(chooses(comm, himeno.Himeno.fitting(comm, part, {}), part))


class Measured:
    """What is compiled once and measured in each run; all calls are collective."""

    def __init__(self, comm: MPI.Comm) -> None:
        self.comm = comm
        self.about: dict[str, Any] = {"where": _bench.where(comm), "tree": str(ARGS.tree)}
        if comm.rank == 0:
            self.about = {"machine": _bench.machine(), **self.about}
        direct = [size for size in ARGS.himeno if takes_direct_road(comm, size)]
        self.direct = {}
        if direct:
            with opened(comm, **_DIRECT) as g:
                self.direct = {size: solver_of(g, comm, size, **_DIRECT) for size in direct}
        self.g = opened(comm)
        self.rates = Rates(self.g, comm)
        with awake(self.g):
            messages(self.g, comm, 1.0, 2)  # checks payloads
            self.rates.measure(1, True)
            rates.allreduce_times(self.g, comm, 1.0, 10)
        self.solvers = {size: solver_of(self.g, comm, size) for size in ARGS.himeno}
        self.checked = solver_of(self.g, comm, ARGS.check) if ARGS.himeno else None

    def warm(self) -> None:
        """Kernels that take the whole GPU: not while another job runs such ones."""
        if self.checked:
            with awake(self.g):
                problem = self.comm.bcast(_himeno_app.verify(self.checked))
            if problem:
                _bench.fail(f"Himeno {ARGS.check}: {problem}")
            self.checked = None
        for solver in self.solvers.values():
            self.sweeps(solver, 2, 1)
        with self.on_the_direct_road():
            for solver in self.direct.values():
                self.sweeps(solver, 2, 1)

    @contextmanager
    def on_the_direct_road(self) -> Iterator[None]:
        """The solvers that take it have a context meanwhile, and nobody else has."""
        if not self.direct:
            yield
            return
        self.g.close()
        with opened(self.comm, **_DIRECT) as g:
            for solver in self.direct.values():
                solver.attach(g)
            yield
        self.g = opened(self.comm)
        self.rates = Rates(self.g, self.comm)
        for solver in self.solvers.values():
            solver.attach(self.g)

    def sweeps(self, solver: Any, iterations: int, repeat: int) -> dict[str, float]:
        args = Namespace(iterations=iterations, repeat=repeat)
        with awake(solver.context):
            row = _himeno_app.measure(solver, args, lambda text: None)
        gc.collect()  # now: memory that is freed while the next kernel runs waits for its end
        return {"us": row["us"], "gosa": row["gosa"]}

    def himeno(self, solvers: dict[str, Any]) -> dict[str, dict[str, float]]:
        return {
            size: self.sweeps(
                solver, 2 if gmpi.SIMULATOR else ITERATIONS.get(size, 1000), ARGS.repeat
            )
            for size, solver in solvers.items()
        }

    def run(self) -> dict[str, Any]:
        began = time.perf_counter()
        results = dict(self.about)
        small = gmpi.SIMULATOR
        with awake(self.g):
            rate = cycles_per_us()
            results["one_way_us"] = messages(self.g, self.comm, rate, None)
            rounds = 10 if small else 5000
            reduced = rates.allreduce_times(self.g, self.comm, rate, rounds)
            results["allreduce_us"] = reduced["gmpi"]["p50"]
            results["rates"] = self.rates.measure(ARGS.repeat, small)
        messages_s = time.perf_counter() - began
        results["himeno"] = self.himeno(self.solvers)
        with self.on_the_direct_road():
            results["himeno_direct"] = self.himeno(self.direct)
        seconds = time.perf_counter() - began
        results["seconds"] = {"messages": messages_s, "himeno": seconds - messages_s}
        return results


@contextmanager
def turn(comm: MPI.Comm, turns: Turns, round_: int) -> Iterator[None]:
    """Rank 0 watches the file; nobody spins meanwhile. Raises Over on all ranks."""
    over = None
    if comm.rank == 0:
        try:
            turns.wait(round_)
        except Over as exc:
            over = exc
    go = np.array([0 if over is None else 1 + over.failed])
    told = comm.Ibcast(go)
    while not told.Test():
        time.sleep(0.01)
    if go[0]:
        raise over or Over("as rank 0 says", go[0] == 2)
    yield
    time.sleep(_SETTLE_S)
    comm.Barrier()
    if comm.rank == 0:
        turns.done()


def shown(results: dict[str, Any]) -> str:
    one_way = " ".join(f"{n} B {us:.2f}" for n, us in results["one_way_us"].items())
    rate = np.median(results["rates"]["messages"]) / 1e6
    rows = [*results["himeno"].items(), *results["himeno_direct"].items()]
    sweep = " ".join(f"{size} {row['us']:.1f}" for size, row in rows)
    took = " and ".join(f"{seconds:.1f}" for seconds in results["seconds"].values())
    return f"one way {one_way}; {rate:.2f} M messages/s; Himeno {sweep} us; {took} s"


def in_turns(comm: MPI.Comm, turns: Turns) -> None:
    began = time.perf_counter()
    measured = Measured(comm)
    compiled_s = time.perf_counter() - began
    with turn(comm, turns, 0):
        measured.warm()
    ready_s = time.perf_counter() - began
    right = f"payloads and Himeno {ARGS.check} right" if ARGS.himeno else "payloads right"
    _say(f"{right}; compiled after {compiled_s:.1f} s, ready after {ready_s:.1f} s")
    for run in range(1, ARGS.runs + 1):
        with turn(comm, turns, run):
            results = measured.run()
            if comm.rank == 0:
                text = json.dumps(results, indent=1) + "\n"
                write(ARGS.directory / f"{ARGS.name}-{run - 1}.json", text)
                print(f"run {run} of {ARGS.name}: {shown(results)}", flush=True)
    measured.g.close()


def main() -> int:
    if TREE not in Path(gmpi.__file__).resolve().parents:
        _bench.fail(f"gmpi is {gmpi.__file__}, not of {TREE}")
    comm = MPI.COMM_WORLD
    if comm.size != 2:
        _bench.fail(f"compare_run needs 2 ranks, got {comm.size}")
    gmpi.select_gpu(comm)
    until = ARGS.until or float("inf")
    try:
        in_turns(comm, Turns(ARGS.directory, ARGS.name, ARGS.names, until))
    except Over as exc:
        _say(f"{ARGS.name}: {exc}")
        return int(exc.failed)
    except Exception as exc:
        print(f"{ARGS.name}, rank {comm.rank}: {type(exc).__name__}: {exc}", file=sys.stderr)
        sys.stderr.flush()
        time.sleep(0.5)  # MPI ends all at once, its launcher with what it has not passed on
        comm.Abort(1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
