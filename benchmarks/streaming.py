"""What a kernel pays that links GMPI and hardly calls it: a stream with and without.

    mpiexec -n 2 python benchmarks/streaming.py [--threads 256 1024] [--json FILE]

A kernel that stays computes ``c = a + s * b`` again and again, by as many blocks as are resident at
once. ``alone`` links nothing of GMPI; in ``linked`` block 0 exchanges 8 bytes and makes an
Allreduce every CALLS rounds, and nobody waits for it before the end. Times are those of the whole
kernel, in turns. Every element is checked, and so are messages and sums.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from _bench import fail, parser, summary, two_ranks, write_json
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import GMPI_Allreduce, GMPI_Irecv, GMPI_Isend, GMPI_Waitall

ELEMENTS = 1 << 10 if gmpi.SIMULATOR else 1 << 25  # 256 MiB of doubles
ROUNDS = 4 if gmpi.SIMULATOR else 64
CALLS = 2 if gmpi.SIMULATOR else 16
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


def resources(kernel: Any, g: gmpi.Context, threads: int, arguments: tuple[Any, ...]) -> Any:
    """Registers and bytes of stack of a thread, and blocks that are resident on the GPU."""
    most = g.max_blocks(kernel, threads, args=arguments)
    if gmpi.SIMULATOR:
        return {"registers": 0, "stack": 0, "blocks": most}
    (registers,) = kernel.get_regs_per_thread().values()
    (stack,) = kernel.get_local_mem_per_thread().values()
    return {"registers": registers, "stack": stack, "blocks": most}


def one(g: gmpi.Context, comm: MPI.Comm, threads: int) -> dict[str, Any]:
    """Both kernels in turns: their resources, ms of each, and how much longer the linked one
    takes."""
    given = [np.random.default_rng(seed).integers(0, 99, ELEMENTS) * 1.0 for seed in range(2)]
    a, b = map(cuda.to_device, given)
    c = cuda.device_array(ELEMENTS)
    mine, theirs, total = (cuda.to_device(np.array([float(comm.rank + n)])) for n in (1, 0, 0))
    both = {
        "alone": (alone, (a, b, c, ROUNDS, CALLS)),
        "linked": (
            linked,
            (g.device, a, b, c, ROUNDS, CALLS, 1 - comm.rank, mine, theirs, total),
        ),
    }
    row: dict[str, Any] = {"threads": threads, "elements": ELEMENTS, "rounds": ROUNDS}
    for name, (kernel, arguments) in both.items():
        row[name] = resources(kernel, g, threads, arguments)
    times: dict[str, list[float]] = {name: [] for name in both}
    for turn in range(TURNS + 1):
        for name, (kernel, arguments) in both.items():
            comm.Barrier()
            began = time.perf_counter()
            kernel[row[name]["blocks"], threads](*arguments)
            g.synchronize() if name == "linked" else cuda.synchronize()
            times[name].append((time.perf_counter() - began) * 1e3)
            bad = int((c.copy_to_host() != given[0] + ROUNDS * given[1]).sum()) if turn == 0 else 0
            if comm.allreduce(bad):
                fail(f"{name}, {threads} threads: {bad} wrong elements")
    if theirs.copy_to_host()[0] != 2 - comm.rank or total.copy_to_host()[0] != 3:
        fail(f"{threads} threads: wrong message or sum")
    for name in both:
        row[name] |= {"ms": summary(np.array(times[name][1:]))}
    row["ratio"] = row["linked"]["ms"]["p50"] / row["alone"]["ms"]["p50"]
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
            for name in ("alone", "linked") if comm.rank == 0 else ():
                r = row[name]
                print(
                    f"{n:<6}{name:<8}{r['registers']:>5}{r['stack']:>7}{r['blocks']:>6}"
                    f"{r['ms']['p50']:>10.3f}",
                    flush=True,
                )
            if comm.rank == 0:
                print(f"{n:<6}ratio {row['ratio']:.3f}", flush=True)
    if comm.rank == 0:
        print("# elements, messages and sums checked: all right")
        write_json(args.json, {"benchmark": "streaming", "where": place, "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
