"""What both Himeno programs share: the command line, the official procedure, verification."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from _himeno_fields import Fields, check_memory
from _himeno_grid import (
    FLOPS_PER_POINT,
    GridError,
    Part,
    Triple,
    check,
    choose,
    decompositions,
    inner_points,
    parse_size,
    parse_triple,
    part_of,
)
from _himeno_serial import reference
from mpi4py import MPI
from numba import cuda

import gmpi

sys.path.append(str(Path(__file__).resolve().parents[1]))  # what all benchmarks share

from _bench import where, write_json

PENTIUM_III_MFLOPS = 82.84  # a score of 1, as the benchmark defines it
_MINUTE_S = 60.0
_REHEARSAL = 3
_CHECKED = 5  # odd: the newest pressure is in the other array at the end
#: Of the sum of squared residuals: four float32 squares are added before they become float64.
TOLERANCE = 1e-6


#: What the command line can set of a plan.
CHOICES = {
    "communicating": "multiprocessors whose blocks communicate",
    "messages": "messages that a face is cut into",
    "together": "iterations that are swept together, 1 or 2",
}


class Solver:
    """One rank of a program: its part of the grid and the way to iterate on it.

    Attributes:
        together: iterations that it sweeps together.
        choices: what the command line can set of its plan; ``chosen`` is what it has.
        direct_points: parts with fewer points take the direct road, where nobody chooses; 0: it has
            no roads to choose from.
        seconds: time of the last ``run`` on this rank.
        sharers: ranks that use this rank's GPU.
    """

    name = "?"
    together = 1  # iterations in one pass over memory
    choices: tuple[str, ...] = ()
    direct_points = 0

    def __init__(
        self,
        comm: MPI.Comm,
        part: Part,
        breakdown: bool,
        chosen: dict[str, int],
        **settings: Any,
    ) -> None:
        self.comm = comm
        self.part = part
        self.breakdown = breakdown
        self.chosen = chosen
        self.settings = settings
        self.seconds = 0.0
        self.sharers = sharers_of_gpu(comm)
        together(comm, lambda: check_memory(part, self.sharers))
        self.stream: Any = 0 if gmpi.SIMULATOR else cuda.stream()
        self.fields = Fields(part)
        self.prepare()

    def prepare(self) -> None:
        """Compiles, allocates, connects; collective."""
        raise NotImplementedError

    def run(self, iterations: int) -> np.ndarray:
        """Iterates; the residual of each iteration, float64[iterations], the same on all ranks."""
        raise NotImplementedError

    def parts(self) -> dict[str, Any]:
        """With ``breakdown``: where the time of the last ``run`` went, in us an iteration."""
        raise NotImplementedError

    def close(self) -> None:
        """The end; collective."""

    @classmethod
    def fitting(cls, comm: MPI.Comm, part: Part, chosen: dict[str, int]) -> type[Solver]:
        """The kind of solver for a part; takes out of ``chosen`` what is for this alone."""
        return cls

    @contextmanager
    def timed(self) -> Iterator[None]:
        self.comm.Barrier()
        began = time.perf_counter()
        yield
        self.seconds = time.perf_counter() - began

    def finish(self) -> None:
        """Waits for the stream; Ctrl-C arrives meanwhile."""
        if not gmpi.SIMULATOR:
            event = cuda.event(timing=False)
            event.record(self.stream)
            while not event.query():
                time.sleep(10e-6)


def sharers_of_gpu(comm: MPI.Comm) -> int:
    if gmpi.SIMULATOR:
        return 1
    mine = (MPI.Get_processor_name(), cuda.get_current_device().id)
    return comm.allgather(mine).count(mine)


def together(comm: MPI.Comm, step: Callable[[], Any]) -> Any:
    """What a step returns; raises GridError on all ranks when it does on one."""
    problem = found = None
    try:
        found = step()
    except GridError as exc:
        problem = str(exc)
    problems = [p for p in comm.allgather(problem) if p]
    if problems:
        raise GridError(problems[0])
    return found


def verify(solver: Solver) -> str:
    """Compares ``_CHECKED`` iterations with the serial program; on rank 0, "" when all is right."""
    part, comm = solver.part, solver.comm
    solver.fields.fill(varied=True)
    gosa = solver.run(_CHECKED)
    parts = comm.gather((part.first, solver.fields.own(solver.fields.p)))
    if comm.rank != 0:
        return ""
    found = np.empty(part.size, np.float32)
    for (i, j, k), own in parts or []:
        found[i : i + own.shape[0], j : j + own.shape[1], k : k + own.shape[2]] = own
    expected, residuals = reference(part.size, _CHECKED, True)
    wrong = int((found.view(np.int32) != expected.view(np.int32)).sum())
    if wrong:
        at = np.argwhere(found != expected)[0]
        return f"{wrong} pressures differ from the serial program, first at {at.tolist()}"
    if not np.allclose(gosa, residuals, rtol=TOLERANCE, atol=0):
        return f"gosa is {gosa}, the serial program has {residuals}"
    return ""


def measure(solver: Solver, args: argparse.Namespace, say: Any) -> dict[str, Any]:
    """The official procedure: a rehearsal, then the measurement."""
    comm, part = solver.comm, solver.part
    flops = FLOPS_PER_POINT * inner_points(part.size)

    def run(iterations: int) -> tuple[float, float]:
        gosa = solver.run(iterations)
        seconds = comm.allreduce(solver.seconds, MPI.MAX)
        return float(gosa[-1]), seconds

    solver.fields.fill()
    run(_REHEARSAL)  # the first launch of a kernel loads it
    solver.fields.fill()
    say(f"mimax = {part.size[0]} mjmax = {part.size[1]} mkmax = {part.size[2]}")
    say(" Start rehearsal measurement process.")
    say(f" Measure the performance in {_REHEARSAL} times.\n")
    gosa, seconds = run(_REHEARSAL)
    mflops = flops * _REHEARSAL / seconds * 1e-6
    say(f" MFLOPS: {mflops:f} time(s): {seconds:f} {gosa:e}\n")
    count = args.iterations or max(1, int(_MINUTE_S / (seconds / _REHEARSAL)))
    say(" Now, start the actual measurement process.")
    say(f" The loop will be excuted in {count} times")
    say("" if args.iterations else " This will take about one minute.")
    say(" Wait for a while\n")
    gosa, best = run(count)
    for _ in range(1, args.repeat):  # these go on from there: gosa is of the first
        best = min(best, run(count)[1])
    mflops = flops * count / best * 1e-6
    say(f"cpu : {best:f} sec.")
    say(f"Loop executed for {count} times")
    say(f"Gosa : {gosa:e}")
    say(f"MFLOPS measured : {mflops:f}")
    say(f"Score based on Pentium III 600MHz : {mflops / PENTIUM_III_MFLOPS:f}")
    return {
        "iterations": count,
        "seconds": best,
        "us": best / count * 1e6,
        "mflops": mflops,
        "gosa": gosa,
        **({"breakdown": solver.parts()} if solver.breakdown else {}),
    }


def arguments(kind: type[Solver], description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument(
        "--size", nargs="+", default=["S"], help="XS, S, M, L, XL or I,J,K; several run in turn"
    )
    parser.add_argument("--decompose", default="", help="ranks in each direction, I,J,K; or all")
    parser.add_argument("--iterations", type=int, help="instead of about one minute")
    parser.add_argument("--repeat", type=int, default=1, help="measure so often; the best counts")
    parser.add_argument(
        "--verify", action="store_true", help="compare with the serial program, do not measure"
    )
    for name in kind.choices:
        text = f"{CHOICES[name]}; several run in turn (default: by size)"
        parser.add_argument(f"--{name}", nargs="+", type=int, default=[], metavar="N", help=text)
    parser.add_argument("--breakdown", action="store_true", help="where the time goes")
    parser.add_argument("--json", metavar="FILE", help="write all figures, machine and versions")
    parser.add_argument("--engine", help="compiled or mpi4py (default: compiled)")
    parser.add_argument(
        "--road", choices=("proxied", "direct"), help="that messages take (default: by size)"
    )
    args = parser.parse_args()
    if args.iterations is not None and args.iterations < 1:
        raise GridError(f"--iterations must be at least 1, got {args.iterations}")
    if any(value > 2 for value in getattr(args, "together", [])):
        raise GridError(f"--together must be 1 or 2, got {max(args.together)}")
    for name in kind.choices:
        for value in getattr(args, name):
            if value < 1:
                raise GridError(f"--{name} must be at least 1, got {value}")
    if args.repeat < 1:
        raise GridError(f"--repeat must be at least 1, got {args.repeat}")
    return args


def cuts(size: Triple, text: str, processes: int) -> list[Triple]:
    """The decompositions that the command line asks for."""
    if text == "all":
        return decompositions(size, processes)
    if text:
        ranks = parse_triple(text, "decomposition")
        check(size, ranks, processes)
        return [ranks]
    return [choose(size, processes)]


def choices(kind: type[Solver], args: argparse.Namespace) -> list[dict[str, int]]:
    """Every combination of what the command line sets of a plan."""
    given = {name: getattr(args, name) for name in kind.choices if getattr(args, name)}
    return [dict(zip(given, values)) for values in product(*given.values())]


def takes_direct_road(comm: MPI.Comm, kind: type[Solver], part: Part) -> bool:
    """Whether it does where nobody chooses; collective."""
    return bool(comm.allreduce(int(np.prod(part.shape)), MPI.MAX) < kind.direct_points)


def one(
    kind: type[Solver],
    comm: MPI.Comm,
    size: Triple,
    ranks: Triple,
    chosen: dict[str, int],
    args: Any,
    place: str,
) -> dict[str, Any]:
    """One size in one decomposition; what was measured or verified."""

    def say(text: str) -> None:
        if comm.rank == 0:
            print(text, flush=True)

    settings: dict[str, Any] = {"engine": args.engine} if args.engine else {}
    part, options = part_of(comm.rank, size, ranks), dict(chosen)
    cut = "x".join(map(str, ranks))
    grid = "x".join(map(str, size))
    began = time.perf_counter()
    kind = kind.fitting(comm, part, options)
    road = args.road or ("direct" if takes_direct_road(comm, kind, part) else "proxied")
    if road == "direct":
        settings["wildcards"] = False
    solver = kind(comm, part, args.breakdown, options, **settings)
    prepared = time.perf_counter() - began
    row: dict[str, Any] = {"size": grid, "decomposition": cut, "ranks": comm.size, **chosen}
    row["together"] = solver.together
    if kind.direct_points:
        row["road"] = road
    if args.verify:
        problem = comm.bcast(verify(solver))
        say(f"{kind.name} {grid} on {cut} ranks, {_CHECKED} iterations: {problem or 'right'}")
        row["verified"] = not problem
    else:
        words = [f"{name} {value}" for name, value in chosen.items() if name != "together"]
        words += ["two iterations together"] * (solver.together == 2)
        say(", ".join([f"# {kind.name} on {place}, {grid} points on {cut} ranks", *words]))
        say(f"# ready to run after {prepared:.1f} s")
        row.update(measure(solver, args, say), prepared_s=prepared)
    solver.close()
    return row


def main(kind: type[Solver], description: str) -> int:
    """The program; its exit status."""
    comm = MPI.COMM_WORLD
    try:
        args = arguments(kind, description)
        work = []
        for text in args.size:
            size = parse_size(text)
            ways = cuts(size, args.decompose, comm.size)
            work += [(text, size, *each) for each in product(ways, choices(kind, args))]
        gmpi.select_gpu(comm)
        place = where(comm)
        rows = []
        for text, size, ranks, chosen in work:
            rows.append({"name": text, **one(kind, comm, size, ranks, chosen, args, place)})
            gc.collect()  # now: memory that is freed while the next kernel runs waits for its end
            if comm.rank == 0:
                results = {"benchmark": "himeno", "program": kind.name, "where": place}
                write_json(args.json, {**results, "rows": rows})
        return 0 if all(row.get("verified", True) for row in rows) else 1
    except GridError as exc:  # the same on all ranks
        if comm.rank == 0:
            print(f"error: {exc}", file=sys.stderr, flush=True)
        comm.Barrier()
        return 2
    except Exception as exc:
        print(f"rank {comm.rank}: {type(exc).__name__}: {exc}", file=sys.stderr, flush=True)
        time.sleep(0.5)  # MPI ends all at once, its launcher with what it has not passed on
        comm.Abort(1)
        raise
