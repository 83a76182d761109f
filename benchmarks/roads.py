"""Both roads between two GPUs of a node in one run: latency and rate, by size and threads.

    mpiexec -n 2 python benchmarks/roads.py [-m 8:1M] [--threads 256 1024] [--json FILE]

The direct road is that of a communicator without wildcards; the proxied one that of any other. The
receive is posted, then sent and waited for: one way is half a round trip, by the GPU's clock. On
the direct road also in the other order, sent first, then received, and by GMPI_Send and GMPI_Recv,
into registered memory where that differs. Every payload is checked.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import _grid_kernels
import _grid_types
import numpy as np
from _bench import fail, parser, size_range, sizes_between, summary, two_ranks, write_json
from _floor import cycles_per_us
from mpi4py import MPI
from numba import cuda, int64

import gmpi
from gmpi import (
    GMPI_Irecv,
    GMPI_Irecv_warp,
    GMPI_Isend,
    GMPI_Isend_warp,
    GMPI_Recv,
    GMPI_Send,
    GMPI_Wait,
    GMPI_Wait_warp,
)

SIZES = (8, 128, 1024, 4096, 65536, 1 << 20)
LONG = 65536  # bytes: whether the receiver's buffer is registered makes a difference
MOST_WINDOW = 4
RUNS = 7  # of rates


# wide: a kernel
@cuda.jit
def exchange(ctx, out, back, n, me, rounds, skip, cycles, comm):
    peer = 1 - me
    for i in range(rounds):
        begin = gmpi.clock()
        receive = GMPI_Irecv(ctx, back, n, gmpi.BYTE, peer, 1, comm)
        if me == 1:
            GMPI_Wait(ctx, receive)
        send = GMPI_Isend(ctx, out, n, gmpi.BYTE, peer, 1, comm)
        GMPI_Wait(ctx, send)
        if me == 0:
            GMPI_Wait(ctx, receive)
        if cuda.threadIdx.x == 0 and i >= skip:
            cycles[i - skip] = gmpi.clock() - begin


# wide: the same
@cuda.jit
def exchange_sent_first(ctx, out, back, n, me, rounds, skip, cycles, comm):
    """The same calls, in the order of MPI's usual ping-pongs: Send, then Recv."""
    peer = 1 - me
    for i in range(rounds):
        begin = gmpi.clock()
        if me == 0:
            send = GMPI_Isend(ctx, out, n, gmpi.BYTE, peer, 1, comm)
        receive = GMPI_Irecv(ctx, back, n, gmpi.BYTE, peer, 1, comm)
        GMPI_Wait(ctx, receive)
        if me == 1:
            send = GMPI_Isend(ctx, out, n, gmpi.BYTE, peer, 1, comm)
        GMPI_Wait(ctx, send)
        if cuda.threadIdx.x == 0 and i >= skip:
            cycles[i - skip] = gmpi.clock() - begin


exchange_blocking = _grid_kernels.make_blocking(GMPI_Send, GMPI_Recv)


@cuda.jit
def exchange_checked(ctx, out, back, n, me, rounds, wrong, comm):
    """The same calls; every round has bytes of its own."""
    peer = 1 - me
    for i in range(rounds):
        for k in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            out[k] = (k * 7 + i * 13 + me) & 0xFF
        receive = GMPI_Irecv(ctx, back, n, gmpi.BYTE, peer, 1, comm)
        if me == 1:
            status = GMPI_Wait(ctx, receive)
        send = GMPI_Isend(ctx, out, n, gmpi.BYTE, peer, 1, comm)
        GMPI_Wait(ctx, send)
        if me == 0:
            status = GMPI_Wait(ctx, receive)
        if status.nbytes != n or status.error != gmpi.SUCCESS:
            cuda.atomic.add(wrong, 0, 1)
        for k in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            if back[k] != (k * 7 + i * 13 + peer) & 0xFF:
                cuda.atomic.add(wrong, 0, 1)
        cuda.syncthreads()


@cuda.jit
def stream(ctx, me, data, window, rounds, wrong, comm):
    """Both ranks: every warp sends ``window`` messages of 8 bytes to its twin and receives as
    many, each with a value of its own."""
    warp = (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) // 32
    lane = cuda.laneid
    out = data[warp, 0]
    back = data[warp, 1]
    receives = cuda.local.array(MOST_WINDOW, int64)
    sends = cuda.local.array(MOST_WINDOW, int64)
    peer = 1 - me
    for i in range(rounds):
        if lane < window:
            out[lane] = (warp * 100000 + i) * 8 + lane + me
        cuda.syncwarp()
        for k in range(window):
            receives[k] = GMPI_Irecv_warp(ctx, back[k : k + 1], 1, gmpi.INT64_T, peer, warp, comm)
        for k in range(window):
            sends[k] = GMPI_Isend_warp(ctx, out[k : k + 1], 1, gmpi.INT64_T, peer, warp, comm)
        for k in range(window):
            GMPI_Wait_warp(ctx, receives[k])
        for k in range(window):
            GMPI_Wait_warp(ctx, sends[k])
        if lane < window and back[lane] != (warp * 100000 + i) * 8 + lane + peer:
            cuda.atomic.add(wrong, 0, 1)
        cuda.syncwarp()


def buffers(g: gmpi.Context, n: int, registered: bool) -> list[Any]:
    """Two of ``n`` bytes, on the device; registered ones are written by the other GPU itself."""
    if registered:
        return [g.zeros(n, np.uint8) for _ in range(2)]
    return [cuda.to_device(np.zeros(max(1, n), np.uint8)) for _ in range(2)]


def latency(
    g: gmpi.Context,
    comm: MPI.Comm,
    road: int,
    n: int,
    threads: int,
    *,
    blocks: int = 1,
    registered: bool = False,
    kernel: Any = exchange,
) -> dict[str, float]:
    """One way by one block, or by all ``blocks`` of a grid, which run ``kernel``."""
    verify = exchange_checked if blocks == 1 else _grid_kernels.exchange_checked
    rounds = 3 if gmpi.SIMULATOR else 3000 if n <= 65536 else 300 if n <= 1 << 20 else 30
    skip = max(2, rounds // 10)
    out, back = buffers(g, n, registered)
    wrong = cuda.to_device(np.zeros(1, np.int32))
    cycles = cuda.to_device(np.zeros(rounds, np.int64))
    comm.Barrier()
    checks = 3 if gmpi.SIMULATOR or n > 1 << 20 else 50
    verify[blocks, threads](g.device, out, back, n, comm.rank, checks, wrong, road)
    g.synchronize()
    bad = comm.allreduce(int(wrong.copy_to_host()[0]))
    if bad:
        fail(f"{n} bytes: {bad} wrong bytes or statuses")
    comm.Barrier()
    kernel[blocks, threads](g.device, out, back, n, comm.rank, rounds + skip, skip, cycles, road)
    g.synchronize()
    return summary(cycles.copy_to_host() / cycles_per_us() / 2)


def rate(g: gmpi.Context, comm: MPI.Comm, road: int, warps: int, window: int) -> dict[str, Any]:
    """Messages per second, each way: the median of some runs, for a launch may come late."""
    rounds = 4 if gmpi.SIMULATOR else 2000
    block = min(warps, 4)
    data = cuda.to_device(np.zeros((warps, 2, 8), np.int64))
    wrong = cuda.to_device(np.zeros(1, np.int32))
    runs = []
    for some in (2, *[rounds] * (1 if gmpi.SIMULATOR else RUNS)):
        comm.Barrier()
        begin = time.perf_counter()
        stream[warps // block, block * 32](g.device, comm.rank, data, window, some, wrong, road)
        g.synchronize()
        runs.append(warps * window * some / max(comm.allgather(time.perf_counter() - begin)))
    bad = comm.allreduce(int(wrong.copy_to_host()[0]))
    if bad:
        fail(f"{warps} warps, window {window}: {bad} wrong payloads")
    found = {"per_second": float(np.median(runs[1:])), "least": min(runs[1:]), "most": max(runs)}
    return {"warps": warps, "window": window, **found}


def grid_sizes(given: list[int] | None) -> list[int]:
    """Bytes of messages of grid scope."""
    return given or ([8, 20000] if gmpi.SIMULATOR else [8, 65536, 1 << 20, 1 << 24, 1 << 28])


def most_blocks(g: gmpi.Context, comm: MPI.Comm, threads: int) -> int:
    """How many blocks of both kernels fit."""
    if gmpi.SIMULATOR:
        return 2
    data = cuda.to_device(np.zeros(1, np.uint8))
    wrong = cuda.to_device(np.zeros(1, np.int32))
    arguments = (g.device, data, data, 1, 0, 1, wrong, 0)
    most = g.max_blocks(_grid_kernels.exchange_checked, threads, args=arguments)
    return comm.allreduce(most, MPI.MIN)


def multiprocessors() -> int:
    return 2 if gmpi.SIMULATOR else cuda.get_current_device().MULTIPROCESSOR_COUNT


def grid_row(g: gmpi.Context, comm: MPI.Comm, n: int, threads: int) -> dict[str, Any]:
    """One way on the direct road by all blocks of the largest grid, one block a multiprocessor:
    between any memory, into registered memory, and there by Send and Recv."""
    blocks = min(most_blocks(g, comm, threads), multiprocessors())
    row: dict[str, Any] = {"size": n, "threads": threads, "blocks": blocks}
    posted, blocking = _grid_kernels.exchange, _grid_kernels.exchange_blocking
    kernels = {"direct": posted, "registered": posted, "blocking": blocking}
    for name, kernel in kernels.items():
        found = latency(
            g,
            comm,
            gmpi.COMM_WORLD,
            n,
            threads,
            blocks=blocks,
            registered=name != "direct",
            kernel=kernel,
        )
        row[name] = found
        gb_per_s = n / found["p50"] / 1e3
        if comm.rank == 0:
            print(
                f"# grid of {blocks} x {threads}, {name}: {n} bytes {found['p50']:.2f} us, p99 "
                f"{found['p99']:.2f}, {gb_per_s:.1f} GB/s",
                flush=True,
            )
    row["gb_per_s"] = n / row["registered"]["p50"] / 1e3
    return row


def block_row(
    g: gmpi.Context, comm: MPI.Comm, roads: dict[str, int], n: int, threads: int
) -> dict[str, Any]:
    """One way by one block on each road, and into registered memory where that differs."""
    row: dict[str, Any] = {"size": n, "threads": threads}
    for name, road in roads.items():
        row[name] = latency(g, comm, road, n, threads)
    if n >= LONG:
        row["registered"] = latency(g, comm, gmpi.COMM_WORLD, n, threads, registered=True)
    if "direct" in roads:
        row["sent_first"] = latency(
            g, comm, gmpi.COMM_WORLD, n, threads, kernel=exchange_sent_first
        )
        row["blocking"] = latency(
            g, comm, gmpi.COMM_WORLD, n, threads, registered=n >= LONG, kernel=exchange_blocking
        )
    if comm.rank == 0:
        found = "".join(f"{row[r]['p50']:>10.2f}{row[r]['p99']:>10.2f}" for r in list(row)[2:])
        print(f"{n:<10}{threads:>6}{found}", flush=True)
    return row


def main() -> int:
    args_parser = parser(__doc__ or "")
    args_parser.add_argument("-m", dest="sizes", type=size_range, metavar="MIN:MAX")
    args_parser.add_argument(
        "--threads", type=int, nargs="+", default=[32] if gmpi.SIMULATOR else [256, 1024]
    )
    args_parser.add_argument("--roads", nargs="+", default=["direct", "proxied"])
    args_parser.add_argument("--no-rates", action="store_true")
    args_parser.add_argument("--no-grid", action="store_true", help="without rows of grid scope")
    args = args_parser.parse_args()
    sizes = sizes_between(*args.sizes) if args.sizes else list(SIZES)
    comm, place, settings = two_ranks(args.engine)
    rates = []
    with gmpi.Context(comm, wildcards=False, **settings) as g:
        other = comm.Dup()
        roads = {"direct": gmpi.COMM_WORLD, "proxied": g.comm(other)}
        if comm.rank == 0:
            print(
                f"# one way in us (p50, p99) on {place}: {', '.join(args.roads)}; from {LONG} "
                "bytes on also direct with registered buffers; direct, and sent before received; "
                f"direct, by Send and Recv, with registered buffers from {LONG} bytes on"
            )
        rows = [
            block_row(g, comm, {name: roads[name] for name in args.roads}, n, threads)
            for n in sizes
            for threads in args.threads
        ]
        lengths = [] if args.no_grid else grid_sizes(args.sizes and sizes)
        grids = [grid_row(g, comm, n, t) for n in lengths for t in args.threads]
        if not args.no_grid:
            threads = max(args.threads)
            blocks = most_blocks(g, comm, threads)
            grids += [
                _grid_types.row(g, comm, name, threads, blocks, memories=("direct", "registered"))
                for name in _grid_types.cases()
            ]
        for warps, window in () if args.no_rates else ((1, 1), (64, 4), (256, 1), (256, 4)):
            for name in args.roads:
                one = {"road": name, **rate(g, comm, roads[name], warps, window)}
                rates.append(one)
                if comm.rank == 0:
                    print(
                        f"# {name}: {warps} warps, window {window}: "
                        f"{one['per_second'] / 1e6:.2f} M messages/s each way "
                        f"({one['least'] / 1e6:.2f} to {one['most'] / 1e6:.2f})",
                        flush=True,
                    )
        other.Free()
    if comm.rank == 0:
        print("# payloads checked: all right")
        found = {"where": place, "rows": rows, "rates": rates, "grid_rows": grids}
        write_json(args.json, {"benchmark": "roads", **found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
