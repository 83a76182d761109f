"""What the soak programs have in common: numbers to send, kernels of some seconds, one after the
other, what they have counted, and the report."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from _bench import write_json

WORLD = MPI.COMM_WORLD
RANK = WORLD.rank

# What kernels count first: wrong statuses, wrong bytes or numbers; operations, and messages that
# came; blocks that have ended.
WRONG_STATUS, WRONG_DATA, OPERATIONS, MESSAGES, ENDED = range(5)
GROWTH_MIB = 16


@cuda.jit(device=True)
def value(k, i, block, rank):  # type: ignore[no-untyped-def]
    return (rank + 1) * 1000003 + i * 1009 + block * 31 + k


@cuda.jit(device=True)
def sum_of(k, i, block, ranks):  # type: ignore[no-untyped-def]
    """Of the values of the first ``ranks`` ranks."""
    return ranks * value(k, i, block, 0) + 1000003 * (ranks * (ranks - 1) // 2)


@cuda.jit(device=True)
def flood(host, counts, until):  # type: ignore[no-untyped-def]
    """Stores to memory of the host until so many blocks have ended: what else this multiprocessor
    stores comes late, by microseconds."""
    row = cuda.blockIdx.x % host.shape[0]
    turn = 0
    while cuda.syncthreads_or(1 if cuda.atomic.add(counts, ENDED, 0) < until else 0):
        for k in range(cuda.threadIdx.x, host.shape[1], cuda.blockDim.x):
            host[row, k] = turn
        turn += 1


def options(seconds: float, blocks: int, threads: int) -> Callable[[Callable], Callable]:
    """The options that all soaks have, with these defaults; decorates ``main``."""
    those = [
        click.option("--seconds", default=seconds, show_default=True),
        click.option("--blocks", default=blocks, show_default=True),
        click.option("--threads", default=threads, show_default=True),
        click.option(
            "--slice", "slice_s", default=5.0, show_default=True, help="seconds of one kernel"
        ),
        click.option(
            "--json", "path", type=click.Path(), help="where rank 0 writes what it has counted"
        ),
    ]

    def decorate(main: Callable) -> Callable:
        for option in reversed(those):
            main = option(main)
        return main

    return decorate


class Limits(NamedTuple):
    """When a soak ends.

    Attributes:
        enough: messages, or operations, that have come; 0: time alone.
        slice_s: seconds of one kernel.
        keep_going: after something was wrong, too.
    """

    seconds: float
    enough: int = 0
    slice_s: float = 5.0
    keep_going: bool = False


class Counted(NamedTuple):
    """What has been counted: by this rank, and by all; ``Context.paths`` meanwhile."""

    found: np.ndarray
    total: np.ndarray
    log: list[dict[str, Any]]
    paths: dict[str, list[int]]

    @property
    def wrong(self) -> list[int]:
        return [int(n) for n in self.total[: WRONG_DATA + 1]]

    @property
    def growth_mib(self) -> float:
        """Of the process, once it has settled."""
        settled = self.log[len(self.log) // 4 :]
        return round(max(e["rss_mib"] for e in settled) - settled[0]["rss_mib"], 1)

    def are_right(self) -> bool:
        return not any(self.wrong) and self.growth_mib < GROWTH_MIB


def beside(blocks: int, flooded: bool) -> tuple[int, tuple[Any, int, int]]:
    """(blocks of the grid, what a kernel gets for ``flood``: memory of the host, how many of its
    blocks do its work, and how many are before these).

    Args:
        blocks: that do the work.
        flooded: whether as many again are for ``flood``.
    """
    # Ranks that share a GPU fill it in the same order.
    before = blocks if flooded and RANK % 2 else 0
    host = cuda.mapped_array((8, 4096), np.int64)
    return 2 * blocks if flooded else blocks, (host, blocks, before)


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def gpu_mib() -> float:
    if gmpi.SIMULATOR:
        return 0.0
    free, total = cuda.current_context().get_memory_info()
    return (total - free) / 2**20


def _entry(began: float, total: np.ndarray) -> dict[str, Any]:
    """A line of the log; printed, too."""
    entry = {
        "seconds": round(WORLD.bcast(time.monotonic() - began), 1),
        "operations": int(total[OPERATIONS]), "messages": int(total[MESSAGES]),
        "wrong": int(total[: WRONG_DATA + 1].sum()),
        "rss_mib": round(WORLD.allreduce(resident_mib(), MPI.MAX), 1),
        "gpu_mib": round(WORLD.allreduce(gpu_mib(), MPI.MAX), 1),
    }  # fmt: skip
    if RANK == 0:
        print(
            f"{entry['seconds']:8.1f} s {entry['operations'] / 1e6:9.3f} M operations, "
            f"{entry['messages'] / 1e6:9.3f} M messages, "
            f"{entry['wrong']} wrong, {entry['rss_mib']:.1f} MiB in the process, "
            f"{entry['gpu_mib']:.0f} MiB on the GPU",
            flush=True,
        )
    return entry


def run(
    g: gmpi.Context, launch: Callable[[int, int, int], None], counts: Any, step: int, limits: Limits
) -> Counted:
    """Launches kernels until a limit is reached.

    Args:
        launch: (first round, rounds, how many kernels before) starts one.
        counts: on the device; what it adds up in.
        step: rounds are a multiple of this.
    """
    began = time.monotonic()
    rounds, first = step, 0
    log: list[dict[str, Any]] = []
    while True:
        slice_began = time.monotonic()
        launch(first, rounds, len(log))
        g.synchronize()
        took = time.monotonic() - slice_began
        found = counts.copy_to_host()
        total = WORLD.allreduce(found)
        first += rounds
        log.append(_entry(began, total))
        come = total[MESSAGES] if total[MESSAGES] else total[OPERATIONS]
        over = log[-1]["seconds"] >= limits.seconds or 0 < limits.enough <= come
        if (log[-1]["wrong"] and not limits.keep_going) or (over and len(log) > 1):
            paths = {way: list(ranks) for way, ranks in g.paths.items()}
            return Counted(found, total, log, paths)
        # As many rounds as fit a slice; the first kernel is compiled, the second one tells.
        if len(log) > 1:
            rounds = int(rounds * min(8.0, max(0.25, limits.slice_s / max(took, 1e-3))))
            rounds = WORLD.bcast(max(step, rounds // step * step))


def report(
    program: str, counted: Counted, of_kind: int, g: gmpi.Context, path: str | None, **facts: Any
) -> bool:
    """Whether everything was right; rank 0 prints it, and writes what has been counted.

    Args:
        of_kind: where in the counts those of each kind begin.
        g: closed since.
        facts: about the program.
    """
    errors = [str(fault) for fault in g.errors[:3]]
    passed = counted.are_right() and not errors
    wrong_of_kind = [int(n) for n in counted.total[of_kind:]]
    if RANK != 0:
        return passed
    if any(counted.wrong) or errors:
        print(f"{counted.wrong[0]} wrong statuses, {counted.wrong[1]} wrong bytes or numbers")
        print(f"of each kind: {wrong_of_kind}; {errors}")
    if counted.growth_mib >= GROWTH_MIB:
        print(f"memory grew by {counted.growth_mib} MiB")
    last = counted.log[-1]
    found = {
        "program": program, "ranks": WORLD.size, "simulator": gmpi.SIMULATOR, **facts,
        "paths": counted.paths,
        "seconds": last["seconds"], "operations": last["operations"],
        "messages": last["messages"], "wrong": counted.wrong, "wrong_of_kind": wrong_of_kind,
        "growth_mib": counted.growth_mib, "passed": passed, "over_time": counted.log,
    }  # fmt: skip
    write_json(path, found)
    print("passed" if passed else "FAILED", flush=True)
    return passed
