"""Ping-pong between two kernels that never exit, beside the conventional way of doing it.

    mpiexec -n 2 python benchmarks/pingpong.py [-m 0:64M] [-i N] [-x N] [--json FILE] [--plot FILE]

Rank 0's kernel sends to rank 1's and waits for the answer; times are taken inside the kernel with
the GPU's clock. In the same run: the conventional CUDA+MPI path, plain mpi4py between host buffers,
the 8-byte echo between GPU and CPU (the floor of any proxied call), the null request (the whole
path but MPI), and where the time of an 8-byte message goes. One-way times, medians first.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from _bench import (
    fail,
    p50,
    parser,
    size_range,
    sizes_between,
    summary,
    where,
    write_json,
)
from _floor import cycles_per_us, echo_cycles
from mpi4py import MPI
from numba import cuda

import gmpi
from device_lib.api.binding import warp_calls
from gmpi import GMPI_Recv
from gmpi.bench.latency import pingpong, pingpong_checked

_ping = warp_calls.ping


@cuda.jit
def pings(ctx, rounds, skip, cycles):
    for i in range(rounds):
        begin = gmpi.clock()
        _ping(ctx)
        if cuda.threadIdx.x == 0 and i >= skip:
            cycles[i - skip] = gmpi.clock() - begin


@cuda.jit
def stamped(ctx, buf, n, me, rounds, stamps, clocks):
    """Ping-pong with time stamps, then pings that tie the GPU's timer to the host's."""
    peer = 1 - me
    for i in range(rounds):
        if me == 1:
            GMPI_Recv(ctx, buf, n, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
        called = gmpi.timer_ns()
        request = gmpi.GMPI_Isend(ctx, buf, n, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
        published = gmpi.timer_ns()
        gmpi.GMPI_Wait(ctx, request)
        if me == 0:
            GMPI_Recv(ctx, buf, n, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
        if cuda.threadIdx.x == 0:
            stamps[i, 0] = called
            stamps[i, 1] = published
            stamps[i, 2] = gmpi.timer_ns()
    for i in range(clocks.shape[0]):
        before = gmpi.timer_ns()
        status = gmpi.GMPI_Wait(ctx, gmpi.REQUEST_NULL)
        status = _ping(ctx)
        after = gmpi.timer_ns()
        if cuda.threadIdx.x == 0:
            clocks[i, 0] = before
            clocks[i, 1] = status.nbytes
            clocks[i, 2] = after


def rounds_for(n: int, wanted: int | None) -> int:
    if wanted:
        return wanted
    if gmpi.SIMULATOR:
        return 20 if n <= 65536 else 3
    return 5000 if n <= 8192 else 500 if n <= 1 << 20 else 30


def measure(g: gmpi.Context, comm: MPI.Comm, n: int, args: Any, rate: float) -> dict[str, Any]:
    """GMPI's one-way times for one size; the payloads of the checked twin must be right."""
    rounds = rounds_for(n, args.iterations)
    skip = args.skip if args.skip is not None else max(2, rounds // 10)
    buf = cuda.to_device(np.zeros(max(1, n), np.uint8))
    wrong = cuda.to_device(np.zeros(1, np.int32))
    cycles = cuda.to_device(np.zeros(rounds, np.int64))
    comm.Barrier()
    pingpong_checked[1, args.threads](g.device, buf, n, comm.rank, 3, wrong)
    g.synchronize()
    bad = comm.allreduce(int(wrong.copy_to_host()[0]))
    if bad:
        fail(f"{n} bytes: {bad} wrong bytes or statuses")
    comm.Barrier()
    pingpong[1, args.threads](g.device, buf, n, comm.rank, rounds + skip, skip, cycles)
    g.synchronize()
    return summary(cycles.copy_to_host() / rate / 2)


def null_request(g: gmpi.Context, rate: float, rounds: int) -> dict[str, float]:
    cycles = cuda.to_device(np.zeros(rounds, np.int64))
    pings[1, 32](g.device, rounds + 50, 50, cycles)
    g.synchronize()
    return summary(cycles.copy_to_host() / rate)


def breakdown(comm: MPI.Comm, args: Any, n: int) -> dict[str, float]:
    """Median microseconds of each leg of a message of ``n`` bytes from rank 0 to rank 1."""
    me = comm.rank
    rounds = 20 if gmpi.SIMULATOR else 2000 if n <= 8192 else 300
    with gmpi.Context(comm, engine=args.engine or "compiled", trace=4 * rounds + 200) as g:
        buf = cuda.to_device(np.zeros(max(1, n), np.uint8))
        stamps = cuda.to_device(np.zeros((rounds, 3), np.int64))
        clocks = cuda.to_device(np.zeros((100, 3), np.int64))
        threads = 32 if n <= 8 else args.threads
        stamped[1, threads](g.device, buf, n, me, rounds, stamps, clocks)
        g.synchronize()
        trace = g.trace
    # GPU timer to host clock: the ping with the shortest round trip, its middle.
    pairs = clocks.copy_to_host()
    best = pairs[np.argmin(pairs[:, 2] - pairs[:, 0])]
    offset = int(best[1]) - int(best[0] + best[2]) // 2
    isends = trace[trace["op"] == 3]
    irecvs = trace[trace["op"] == 4]
    mine = {
        "stamps": stamps.copy_to_host() + offset,
        "sent": isends["picked_up"],
        "called": isends["called"],
        "arrived": irecvs["arrived"],
        "completed": irecvs["completed"],
    }
    ranks = comm.gather(mine)
    if me != 0:
        return {}
    sender, receiver = ranks
    # Rank 1's k-th receive returns when it calls its k-th send.
    moments = [
        sender["stamps"][:, 0],
        sender["stamps"][:, 1],
        sender["sent"],
        sender["called"],
        receiver["arrived"],
        receiver["completed"],
        receiver["stamps"][:, 0],
    ]
    return legs_between(moments, rounds // 10)


#: What lies between the moments of a message, one after the other.
LEGS = ("publish", "pickup", "MPI_Isend", "MPI", "complete", "visible")


def legs_between(moments: list[np.ndarray], skip: int) -> dict[str, float]:
    """Median microseconds of each leg, and of all together.

    Each side stamps what it has done after it, and the other one may be faster than that: a message
    can arrive before MPI_Isend has returned. Such a leg ends where the next one does, and no leg is
    negative.
    """
    times = np.stack([each[skip:] for each in moments])
    times = np.maximum(np.minimum.accumulate(times[::-1])[::-1], times[0])
    found = {name: p50(leg) / 1000 for name, leg in zip(LEGS, np.diff(times, axis=0))}
    return {**found, "total": p50(times[-1] - times[0]) / 1000}


def main() -> int:
    args_parser = parser(__doc__ or "")
    default = "0:64K" if gmpi.SIMULATOR else "0:64M"
    args_parser.add_argument(
        "-m", dest="sizes", type=size_range, default=default, metavar="MIN:MAX"
    )
    args_parser.add_argument("-i", dest="iterations", type=int, help="round trips a size")
    args_parser.add_argument("-x", dest="skip", type=int, help="round trips before timing")
    args_parser.add_argument("--threads", type=int, default=32 if gmpi.SIMULATOR else 256)
    args_parser.add_argument("--plot", metavar="FILE", help="write a PNG")
    args_parser.add_argument(
        "--legs", type=int, nargs="+", default=[8], metavar="BYTES", help="sizes to take apart"
    )
    args_parser.add_argument("--no-conventional", action="store_true", help="GMPI only")
    args = args_parser.parse_args()
    if isinstance(args.sizes, str):
        args.sizes = size_range(args.sizes)
    comm = MPI.COMM_WORLD
    if comm.size != 2:
        fail(f"ping-pong needs 2 ranks, got {comm.size}: mpiexec -n 2 python {sys.argv[0]}")
    gmpi.select_gpu(comm)
    place = where(comm)
    rate = cycles_per_us()
    results: dict[str, Any] = {"benchmark": "pingpong", "where": place, "threads": args.threads}
    short = 20 if gmpi.SIMULATOR else 5000
    echo = summary(echo_cycles(short) / rate)
    conventional = not args.no_conventional and not gmpi.SIMULATOR
    rows = []
    settings = {"engine": args.engine} if args.engine else {}
    with gmpi.Context(comm, **settings) as g:
        results["engine"] = g.config.engine
        null = null_request(g, rate, short)
        if comm.rank == 0:
            print(f"# GMPI ping-pong between 2 kernels on {place}, engine {g.config.engine}")
            print(f"# one-way latency in us, p50; block of {args.threads} threads")
            print(f"# 8-byte echo GPU-CPU-GPU {echo['p50']:.2f}, p99 {echo['p99']:.2f}")
            print(
                f"# null request {null['p50']:.2f}, p99 {null['p99']:.2f}: "
                f"{null['p50'] / echo['p50']:.2f} x echo"
            )
            columns = ["Latency (us)", "p99", *["conventional"] * conventional, "host mpi4py"]
            print(f"{'# Size':<10}" + "".join(f"{c:>20}" for c in columns), flush=True)
        for n in sizes_between(*args.sizes):
            row: dict[str, Any] = {"size": n, "gmpi": measure(g, comm, n, args, rate)}
            rounds = min(1000, rounds_for(n, args.iterations))
            row.update(compare(comm, n, rounds, conventional))
            rows.append(row)
            if comm.rank == 0:
                print(table_row(row), flush=True)
    legs = {n: breakdown(comm, args, n) for n in args.legs}
    results.update(echo=echo, null_request=null, rows=rows, breakdown=legs[args.legs[0]], legs=legs)
    if comm.rank == 0:
        for n, parts in legs.items():
            text = ", ".join(f"{name} {us:.2f}" for name, us in parts.items())
            print(f"# {n} bytes, where the time goes (with tracing on): {text}")
        print("# payloads checked: all right")
        write_json(args.json, results)
        if args.plot:
            plot(rows, place, args.plot)
    return 0


def compare(comm: MPI.Comm, n: int, rounds: int, conventional: bool) -> dict[str, Any]:
    """The other ways to move n bytes, in this run."""
    from _conventional import host_one_way_us, one_way_us

    skip = max(2, rounds // 10)
    found: dict[str, Any] = {"host": summary(host_one_way_us(comm, n, skip, rounds))}
    if conventional:
        variants = one_way_us(comm, n, skip, rounds)
        found["conventional"] = {name: summary(times) for name, times in variants.items()}
    return found


def best_conventional(row: dict[str, Any]) -> float:
    return min(v["p50"] for v in row["conventional"].values())


def table_row(row: dict[str, Any]) -> str:
    values = [f"{row['gmpi']['p50']:.2f}", f"{row['gmpi']['p99']:.2f}"]
    if "conventional" in row:
        values.append(f"{best_conventional(row):.2f}")
    values.append(f"{row['host']['p50']:.2f}")
    return f"{row['size']:<10}" + "".join(f"{v:>20}" for v in values)


def plot(rows: list[dict[str, Any]], place: str, path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5))
    sizes = [max(1, row["size"]) for row in rows]
    axes.loglog(sizes, [row["gmpi"]["p50"] for row in rows], "o-", label="GMPI (kernel to kernel)")
    if "conventional" in rows[0]:
        axes.loglog(sizes, [best_conventional(r) for r in rows], "s-", label="CUDA + MPI")
    axes.loglog(sizes, [row["host"]["p50"] for row in rows], "^--", label="mpi4py, host buffers")
    axes.set(xlabel="message size (bytes)", ylabel="one-way latency (us), median", title=place)
    axes.grid(True, which="both", alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    sys.exit(main())
