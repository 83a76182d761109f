"""What a kernel pays that links GMPI and hardly calls it: a stream with and without.

    mpiexec -n 2 python benchmarks/streaming.py [--threads 256 1024] [--json FILE]

A kernel that stays computes ``c = a + s * b`` again and again, by as many blocks as are resident at
once. ``alone`` links nothing of GMPI. In ``linked`` block 0 exchanges 8 bytes and makes an
Allreduce every CALLS rounds, and nobody waits for it before the end; it may take the lean build of
the library, ``usual`` may not, and ``fewer`` is ``alone`` by as many blocks as ``usual``. Times are
those of the whole kernel on the GPU, in turns. Then what 8 bytes take one way with each build.
Every element is checked, and so are messages and sums.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import roads
from _bench import fail, parser, summary, two_ranks, write_json
from mpi4py import MPI
from numba import cuda

import gmpi
from device_lib.platform.assembler import LEAN, LIMITS
from device_lib.platform.fitting import REGISTERS
from gmpi import GMPI_Allreduce, GMPI_Irecv, GMPI_Isend, GMPI_Waitall
from gmpi.launch import builds
from gmpi.launch.launch import sharers

ELEMENTS = 1 << 10 if gmpi.SIMULATOR else 1 << 25  # 256 MiB of doubles
ROUNDS = 4 if gmpi.SIMULATOR else 256
CALLS = 2 if gmpi.SIMULATOR else 64
TURNS = 2 if gmpi.SIMULATOR else 10


@cuda.jit
def alone(a, b, c, rounds, calls):
    for i in range(rounds):
        for k in range(cuda.grid(1), c.size, cuda.gridsize(1)):
            c[k] = a[k] + (i + 1) * b[k]


# wide: a kernel
@cuda.jit
def linked(ctx, a, b, c, rounds, calls, peer, mine, theirs, total):
    for i in range(rounds):
        for k in range(cuda.grid(1), c.size, cuda.gridsize(1)):
            c[k] = a[k] + (i + 1) * b[k]
        if cuda.blockIdx.x == 0 and i % calls == calls - 1:
            receive = GMPI_Irecv(ctx, theirs, 1, gmpi.DOUBLE, peer, 1, gmpi.COMM_WORLD)
            send = GMPI_Isend(ctx, mine, 1, gmpi.DOUBLE, peer, 1, gmpi.COMM_WORLD)
            GMPI_Waitall(ctx, 2, (receive, send))
            GMPI_Allreduce(ctx, mine, total, 1, gmpi.DOUBLE, gmpi.SUM, gmpi.COMM_WORLD)


def one_way(g: gmpi.Context, comm: MPI.Comm, limit: int, threads: int) -> dict[str, float]:
    """Of 8 bytes in microseconds, received first, by a kernel with so many registers a thread."""
    kernel = roads.exchange
    if not gmpi.SIMULATOR:
        kernel = cuda.jit(max_registers=limit)(kernel.py_func)
    return roads.latency(g, comm, gmpi.COMM_WORLD, 8, threads, kernel=kernel)


def resources(
    kernel: Any, g: gmpi.Context, threads: int, arguments: tuple[Any, ...], lean: bool
) -> Any:
    """Blocks that are resident on the GPU; then registers and bytes of stack of a thread."""
    most = g.max_blocks(kernel, threads, args=arguments, lean=lean)
    if gmpi.SIMULATOR:
        return {"blocks": most, "registers": 0, "stack": 0}
    (compiled,) = kernel.overloads.values()
    choice = builds.choose(compiled, most * sharers(), threads, 0)
    stack = int(choice.kernel.local_mem_per_thread)
    return {"blocks": most, "registers": choice.registers, "stack": stack}


def timed(launch: Callable[[], None], g: gmpi.Context) -> float:
    """Milliseconds that a kernel takes on the GPU."""
    began, ended = cuda.event(), cuda.event()
    began.record()
    launch()
    ended.record()
    g.synchronize()
    ended.synchronize()
    return float(cuda.event_elapsed_time(began, ended))


def one(g: gmpi.Context, comm: MPI.Comm, threads: int) -> dict[str, Any]:
    """The kernels in turns: their resources, ms of each, and how much longer the linked one
    takes."""
    given = [np.random.default_rng(seed).integers(0, 99, ELEMENTS) * 1.0 for seed in range(2)]
    a, b = map(cuda.to_device, given)
    c = cuda.device_array(ELEMENTS)
    mine, theirs, total = (cuda.to_device(np.array([float(comm.rank + n)])) for n in (1, 0, 0))
    stream = a, b, c, ROUNDS, CALLS
    calling = (g.device, *stream, 1 - comm.rank, mine, theirs, total)
    each = {"alone": (alone, stream), "usual": (linked, calling), "linked": (linked, calling)}
    row: dict[str, Any] = {"threads": threads, "elements": ELEMENTS, "rounds": ROUNDS}
    for name, (kernel, arguments) in each.items():
        row[name] = resources(kernel, g, threads, arguments, lean=name == "linked")
    row["fewer"] = row["alone"] | {"blocks": row["usual"]["blocks"]}
    each["fewer"] = each["alone"]
    times: dict[str, list[float]] = {name: [] for name in each}
    for turn in range(TURNS + 1):
        for name, (kernel, arguments) in each.items():
            comm.Barrier()
            configured = kernel[row[name]["blocks"], threads]
            times[name].append(timed(partial(configured, *arguments), g))
            bad = int((c.copy_to_host() != given[0] + ROUNDS * given[1]).sum()) if turn == 0 else 0
            if comm.allreduce(bad):
                fail(f"{name}, {threads} threads: {bad} wrong elements")
    if theirs.copy_to_host()[0] != 2 - comm.rank or total.copy_to_host()[0] != 3:
        fail(f"{threads} threads: wrong message or sum")
    for name in each:
        row[name] |= {"ms": summary(np.array(times[name][1:]))}
    row["ratio"] = row["linked"]["ms"]["p50"] / row["alone"]["ms"]["p50"]
    row["ratio_usual"] = row["usual"]["ms"]["p50"] / row["fewer"]["ms"]["p50"]
    return row


def main() -> int:
    args_parser = parser(__doc__ or "")
    threads = [32] if gmpi.SIMULATOR else [256, 1024]
    args_parser.add_argument("--threads", type=int, nargs="+", default=threads)
    args = args_parser.parse_args()
    comm, place, settings = two_ranks(args.engine)
    rows = []
    with gmpi.Context(comm, wildcards=False, **settings) as g:
        if comm.rank == 0:
            print(f"# on {place}: threads, kernel, registers, stack, blocks, ms; ratio")
        for n in args.threads:
            row = one(g, comm, n)
            rows.append(row)
            for name in ("alone", "linked", "fewer", "usual") if comm.rank == 0 else ():
                r = row[name]
                print(
                    f"{n:<6}{name:<8}{r['registers']:>5}{r['stack']:>7}{r['blocks']:>6}"
                    f"{r['ms']['p50']:>10.3f}",
                    flush=True,
                )
            if comm.rank == 0:
                print(
                    f"{n:<6}ratio {row['ratio']:.3f}, usual to fewer {row['ratio_usual']:.3f}",
                    flush=True,
                )
        ways = [
            {"registers": limit, "threads": n, **one_way(g, comm, limit, n)}
            for limit in (*LIMITS, LEAN)
            for n in args.threads
            if limit * n <= REGISTERS
        ]
    if comm.rank == 0:
        for way in ways:
            print(f"{way['threads']:<6}{way['registers']:>4} registers: 8 B {way['p50']:.2f} us")
        print("# elements, messages and sums checked: all right")
        found = {"benchmark": "streaming", "where": place, "rows": rows, "one_way": ways}
        write_json(args.json, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
