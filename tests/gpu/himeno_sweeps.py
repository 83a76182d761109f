"""The Himeno sweep, launched and persistent, in all its plans: time, bandwidth, registers.

    python tests/gpu/himeno_sweeps.py [--sizes S,M,L,XL] [--waves] [--budget SECONDS] [--json FILE]
    python tests/gpu/himeno_sweeps.py --once ITERATIONS [--sizes S,M,L,XL] [--json FILE]

One GPU, no messages. Every plan must give the same bits as the reference: on S a serial CPU
program, on larger grids the first launched kernel. Launched kernels are timed inside a CUDA graph,
so that no launch overhead of Python counts against them. With ``--once`` nothing is timed or
compared: a profiler does that (``himeno_ncu.sh``).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cupy
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "himeno"))

from _bench import machine
from _himeno_fields import Fields
from _himeno_grid import BYTES_PER_POINT, GridError, Part, parse_size, parse_triple, part_of
from _himeno_kernels import (
    ACCUMULATORS,
    grid_blocks,
    launched_plan,
    make_launched,
    make_persistent,
    persistent_plan,
)
from _himeno_serial import reference
from _himeno_signals import STALLED
from _himeno_strips import wave_pays, wave_plan
from _himeno_sweep import Plan
from _himeno_wave import make_persistent_wave
from device_memory import copy_bandwidth, memory_latency_ns
from numba import cuda

CHECKED = 4  # iterations
MOST = 1 << 15  # iterations of a persistent kernel
LAUNCHED = [Plan(), Plan(registers=80), Plan(registers=64), Plan(once=False), Plan(threads=128)]
_HELD = Plan(registers=128, held=2, dynamic=True)
PERSISTENT = [
    _HELD,
    _HELD._replace(held=0),
    _HELD._replace(held=1),
    _HELD._replace(dynamic=False),
    _HELD._replace(once=False),
    _HELD._replace(threads=512, blocks=1),
    _HELD._replace(blocks=1, held=4, registers=200),
    _HELD._replace(threads=128, blocks=4),
]
# Two iterations at a time: (planes in shared memory, multiprocessors that do not sweep).
WAVES = [(4, 5), (3, 5)]


def about(plan: Plan, kernel: Any) -> dict[str, Any]:
    """What a row says of a compiled kernel."""
    (compiled,) = kernel.overloads.values()
    return {
        "plan": describe(plan),
        "registers": compiled.regs_per_thread,
        "local": compiled.local_mem_per_thread,
    }


def describe(plan: Plan) -> str:
    words = [f"{plan.blocks}x{plan.threads}", f"held={plan.held}"]
    words += ["dynamic"] * plan.dynamic + ["once"] * plan.once
    words += [f"slots={plan.slots} strips without {plan.communicating}"] * bool(plan.slots)
    return " ".join(words + [f"registers<={plan.registers}"] * bool(plan.registers))


class Bench:
    """One part of a grid and its arrays."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.fields = Fields(part)
        self.use_new_stream()
        self.gosa = cuda.to_device(np.zeros(ACCUMULATORS))
        self.sums = cuda.to_device(np.zeros((1, MOST)))
        self.timed = 0  # iterations of the last run that was timed
        self.expected: Any = None

    def use_new_stream(self) -> None:
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.numba_stream = cuda.external_stream(self.stream.ptr)

    def right(self, pressure: Any) -> bool:
        """Whether these are the expected bits; the first answer is the expectation."""
        found = cupy.asarray(pressure).view(cupy.int32)
        if self.expected is None:
            self.expected = found.copy()
        return bool((found == self.expected).all())

    def expect_serial(self) -> None:
        """The expectation comes from the CPU."""
        pressure, _ = reference(self.part.size, CHECKED, True)
        whole = np.zeros((self.part.planes, self.part.rows, self.part.pitch), np.float32)
        whole[self.part.own] = pressure
        self.expected = cupy.asarray(whole.reshape(-1)).view(cupy.int32)

    def zero(self) -> None:
        address = self.sums.__cuda_array_interface__["data"][0]
        cupy.cuda.runtime.memsetAsync(address, 0, self.sums.nbytes, self.stream.ptr)

    def copy(self, to: Any, source: Any) -> None:
        both = [array.__cuda_array_interface__["data"][0] for array in (to, source)]
        cupy.cuda.runtime.memcpyAsync(*both, to.nbytes, 3, self.stream.ptr)

    # --- launched --------------------------------------------------------------------------------

    def launched(self, plan: Plan) -> dict[str, Any]:
        fields = self.fields
        made = make_launched(self.part, plan, [*self.part.outer, self.part.inner])
        kernel = made.kernel[made.tiles, plan.threads, self.numba_stream]

        def sweeps(count: int) -> None:
            p, q = fields.p, fields.q
            for _ in range(count):
                kernel(p, q, fields.coef, self.gosa)
                p, q = q, p

        fields.fill(varied=True)
        sweeps(CHECKED)
        self.stream.synchronize()
        right = self.right(fields.p)
        fields.fill()
        note = "graph"
        try:
            self.stream.begin_capture()
            sweeps(20)
            graph = self.stream.end_capture()
            graph.launch(self.stream)
            self.stream.synchronize()
        except Exception as exc:
            note = f"no graph: {exc!r}"[:200]
            print(f"# {note}; launches by Numba are timed instead", flush=True)
            self.use_new_stream()
            kernel = made.kernel[made.tiles, plan.threads, self.numba_stream]

        def run(count: int) -> int:
            for _ in range(count):
                if note == "graph":
                    graph.launch(self.stream)
                else:
                    sweeps(20)
            return 20 * count

        row = {**about(plan, made.kernel), "kind": "launched", "right": right}
        return {**row, "us": self.time(run), "launches": note}

    # --- persistent ------------------------------------------------------------------------------

    def staying(self, plan: Plan, most: int) -> SimpleNamespace:
        """The kernel of a plan, in order or with slots two iterations together: ``run(iterations)``
        starts it for up to so many, on ``board``; ``row`` says what it is."""
        fields = self.fields
        make = make_persistent_wave if plan.slots else make_persistent
        made = make(self.part, plan._replace(messages=0))  # no halo comes here
        fresh = cuda.to_device(made.fresh(most))
        board = cuda.device_array_like(fresh)
        args = (fields.p, fields.q, fields.coef, self.sums, board)
        blocks = grid_blocks(made.kernel, (*args, 1), plan)
        kernel = made.kernel[blocks, plan.threads, self.numba_stream, plan.shared_bytes]

        def run(iterations: int) -> int:
            self.zero()
            self.copy(board, fresh)
            kernel(*args, iterations)
            return iterations

        kind = "wave" if plan.slots else "persistent"
        row = {"kind": kind, **about(plan, made.kernel), "blocks": blocks}
        return SimpleNamespace(run=run, row=row, made=made, board=board)

    def persistent(self, plan: Plan) -> dict[str, Any]:
        stays = self.staying(plan, MOST)
        run = stays.run
        row: dict[str, Any] = stays.row
        self.fields.fill(varied=True)
        run(CHECKED)
        self.stream.synchronize()
        row["right"] = self.right(self.fields.p)
        self.fields.fill()
        row["us"] = self.time(lambda count: run(min(MOST, 20 * count)))
        if plan.slots:  # what the halves of a block waited for others, of an iteration
            stalled = stays.board.copy_to_host()[STALLED : STALLED + 2]
            row["stalled_us"] = (stalled / 1e3 / stays.made.warps / self.timed).tolist()
        return row

    # --- for a profiler ---------------------------------------------------------------------------

    def once(self, iterations: int) -> list[dict[str, Any]]:
        """Two launches, and persistent kernels of so many iterations, with the plans that the
        programs choose: what has run, in this order."""
        fields = self.fields
        fields.fill()
        plan = launched_plan(self.part)
        made = make_launched(self.part, plan, [*self.part.outer, self.part.inner])
        launch = made.kernel[made.tiles, plan.threads, self.numba_stream]
        for _ in range(2):
            launch(fields.p, fields.q, fields.coef, self.gosa)
        rows = 2 * [{"kind": "launched", "plan": describe(plan), "iterations": 1}]
        plans = [persistent_plan(self.part)]
        if wave_pays(self.part):
            plans.append(wave_plan(self.part))
        for plan in plans:
            stays = self.staying(plan, iterations)
            stays.run(iterations)
            self.stream.synchronize()
            row = {"kind": stays.row["kind"], "plan": describe(plan), "iterations": iterations}
            rows.append(row)
        return rows

    def time(self, run: Any) -> float:
        """Shortest time of an iteration in us, over three repeats of about 60 ms."""
        best = 1e9
        count = 1
        for _ in range(4):
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record(self.stream)
            self.timed = iterations = run(count)
            end.record(self.stream)
            end.synchronize()
            each = cupy.cuda.get_elapsed_time(begin, end) * 1e3 / iterations
            if count > 1 or each * iterations > 30e3:
                best = min(best, each)
            count = max(2, min(2000, int(60e3 / each / 20)))
        return best


def measure(
    name: str, ranks: Any, budget: float, copy: float, only_waves: bool
) -> list[dict[str, Any]]:
    size = parse_size(name)
    part = part_of(0, size, ranks)
    bench = Bench(part)
    whole = ranks == (1, 1, 1)
    if whole and max(size) <= 128:
        bench.expect_serial()
    points = np.prod(part.shape)
    ideal = float(points) * BYTES_PER_POINT / copy * 1e6
    rows: list[dict[str, Any]] = []
    started = time.monotonic()
    print(f"\n# {name}, {points} points, ideal {ideal:.1f} us", flush=True)
    print(f"{'kind':<11}{'plan':<44}{'regs':>5}{'spill':>6}{'blocks':>7}{'us':>10}"
          f"{'/ideal':>8}{'/launched':>10}{'TB/s':>7}  bits", flush=True)  # fmt: skip
    waves = []
    for slots, communicating in WAVES:
        try:
            waves.append(wave_plan(part, slots=slots, communicating=communicating))
        except GridError as exc:
            print(f"# no wave: {exc}")
    few = 2 if only_waves else None
    for kind, plans in (("launched", LAUNCHED[:few]), ("persistent", [*waves, *PERSISTENT[:few]])):
        for plan in plans:
            if time.monotonic() - started > budget:
                print(f"# {name}: time is up", flush=True)
                return rows
            try:
                row = getattr(bench, kind)(plan)
            except Exception as exc:
                row = {"plan": describe(plan), "kind": kind, "failed": repr(exc)[:300]}
            row.update(size=name, ranks=list(ranks), ideal_us=ideal)
            rows.append(row)
            if "failed" in row:
                print(f"{kind:<11}{row['plan']:<44}failed: {row['failed']}", flush=True)
                continue
            best = min((r["us"] for r in rows if r["kind"] == "launched" and "us" in r), default=0)
            print(
                f"{kind:<11}{row['plan']:<44}{row['registers']:>5}{row['local']:>6}"
                f"{row.get('blocks', 0):>7}{row['us']:>10.2f}{row['us'] / ideal:>8.3f}"
                f"{row['us'] / best if best else 0:>10.3f}"
                f"{points * BYTES_PER_POINT / row['us'] * 1e-6:>7.2f}"
                f"  {'right' if row['right'] else 'WRONG'}",
                flush=True,
            )
    return rows


def profiled(names: list[str], ranks: Any, iterations: int, path: str | None) -> int:
    """``--once``: runs the kernels; says which, and what the profiler cannot know."""
    results = {
        "machine": machine(),
        "copy_bytes_per_s": copy_bandwidth(),
        "latency_ns": memory_latency_ns(),
        "multiprocessors": cuda.get_current_device().MULTIPROCESSOR_COUNT,
        "ranks": list(ranks),
    }
    rows: list[dict[str, Any]] = []
    for name in names:
        part = part_of(0, parse_size(name), ranks)
        points = int(np.prod(part.shape))
        rows += [{"size": name, "points": points, **row} for row in Bench(part).once(iterations)]
        print(f"# {name}: done", flush=True)
    if path:
        Path(path).write_text(json.dumps({**results, "rows": rows}, indent=1) + "\n")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sizes", default="S,M,L,XL")
    parser.add_argument("--ranks", default="1,1,1", help="measure the first part of this cut")
    parser.add_argument("--budget", type=float, default=55.0, help="seconds for each size")
    parser.add_argument("--waves", action="store_true", help="and two plans each of the others")
    parser.add_argument(
        "--once", type=int, metavar="ITERATIONS", help="run the programs' plans for a profiler"
    )
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    ranks = parse_triple(args.ranks, "ranks")
    if args.once:
        return profiled(args.sizes.split(","), ranks, args.once, args.json)
    copy = copy_bandwidth()
    print(f"# device copy {copy * 1e-12:.3f} TB/s")
    rows: list[dict[str, Any]] = []
    for name in args.sizes.split(","):
        rows += measure(name, ranks, args.budget, copy, args.waves)
        cuda.synchronize()
        if args.json:  # after every size: a time limit loses little
            results = {"machine": machine(), "copy_bytes_per_s": copy, "rows": rows}
            Path(args.json).write_text(json.dumps(results, indent=1) + "\n")
    print("\n# best of each size")
    for name in args.sizes.split(","):
        done = [r for r in rows if r["size"] == name and "us" in r]
        if not done:
            continue
        fast = {
            kind: min((r for r in done if r["kind"] == kind), key=lambda r: r["us"], default=None)
            for kind in ("launched", "persistent", "wave")
        }
        a = fast.pop("launched")
        for kind, b in fast.items():
            if a and b:
                print(
                    f"{name:<3} launched {a['us']:.2f} ({a['plan']}); {kind} {b['us']:.2f} "
                    f"({b['plan']}): {b['us'] / a['us']:.3f} x, "
                    f"{b['ideal_us'] / b['us']:.1%} of copy"
                )
    return 0 if all(r.get("right", True) for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
