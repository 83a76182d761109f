"""How many, how fast, how cheap: rates and costs of the path from kernel to MPI.

    mpiexec -n 2 python benchmarks/rates.py [--only PART...] [--json FILE]

Records and requests per second through one ring, 8-byte messages per second between two ranks (also
where no receive uses ANY_TAG, and GMPI has been told so), Allreduce of one double beside the host's
own, the price of a busy interpreter, what an idle proxy costs, and what a record costs by its
number of arguments beside launching a kernel. Everything that is counted or carried is checked.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _bench import fail, parser, summary, where, write_json
from _floor import cycles_per_us, echo_cycles
from _record_cost import launch_costs, record_costs
from mpi4py import MPI
from numba import cuda, int64

import gmpi
from device_lib.api.binding import warp_calls
from gmpi import (
    GMPI_Allreduce,
    GMPI_Comm_rank,
    GMPI_Irecv_warp,
    GMPI_Isend_warp,
    GMPI_Waitall_warp,
)
from gmpi.bench.latency import pingpong
from host_proxy.platform.state import G_HEAD, G_NULL_SUM, G_NULLS

_post_null = warp_calls.post_null
_ping = warp_calls.ping
WINDOW = 16


@cuda.jit
def nulls(ctx, each):
    """Every warp posts ``each`` records, all with different values."""
    warp = (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) // 32
    for i in range(each):
        _post_null(ctx, warp * each + i + 1)


@cuda.jit
def requests(ctx, each, errors):
    for _ in range(each):
        status = _ping(ctx)
        if status.error != gmpi.SUCCESS:
            cuda.atomic.add(errors, 0, 1)


@cuda.jit
def stream(ctx, me, data, rounds, wrong, comm):
    """Every warp sends WINDOW 8-byte messages a round to its twin on the other rank."""
    warp = (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) // 32
    lane = cuda.laneid
    mine = data[warp]
    open_requests = cuda.local.array(WINDOW, int64)
    for i in range(rounds):
        if me == 0:
            if lane < WINDOW:
                mine[lane] = warp * 1000000 + i * WINDOW + lane
            cuda.syncwarp()
            for k in range(WINDOW):
                open_requests[k] = GMPI_Isend_warp(
                    ctx, mine[k : k + 1], 1, gmpi.INT64_T, 1, warp, comm
                )
        else:
            for k in range(WINDOW):
                open_requests[k] = GMPI_Irecv_warp(
                    ctx, mine[k : k + 1], 1, gmpi.INT64_T, 0, warp, comm
                )
        error = GMPI_Waitall_warp(ctx, WINDOW, open_requests)
        if error != gmpi.SUCCESS and lane == 0:
            cuda.atomic.add(wrong, 0, 1)
        if me == 1 and lane < WINDOW and mine[lane] != warp * 1000000 + i * WINDOW + lane:
            cuda.atomic.add(wrong, 0, 1)
        cuda.syncwarp()


@cuda.jit
def reductions(ctx, value, total, rounds, skip, cycles, wrong):
    for i in range(rounds):
        if cuda.threadIdx.x == 0:
            value[0] = i + GMPI_Comm_rank(ctx, gmpi.COMM_WORLD)
        cuda.syncthreads()
        begin = gmpi.clock()
        GMPI_Allreduce(ctx, value, total, 1, gmpi.DOUBLE, gmpi.SUM, gmpi.COMM_WORLD)
        if cuda.threadIdx.x == 0:
            if i >= skip:
                cycles[i - skip] = gmpi.clock() - begin
            if total[0] != 2 * i + 1:
                cuda.atomic.add(wrong, 0, 1)


@cuda.jit
def one_ping(ctx, cycles, at):
    begin = gmpi.clock()
    _ping(ctx)
    if cuda.threadIdx.x == 0:
        cycles[at] = gmpi.clock() - begin


def timed(launch: Callable[[int], None], g: gmpi.Context, few: int, many: int) -> float:
    """Seconds for ``launch(many)`` to have run and all its records to have been taken."""
    for count in (few, many):
        g.synchronize()
        begin = time.perf_counter()
        launch(count)
        g.synchronize()
        seconds = time.perf_counter() - begin
    return seconds


def record_rate(g: gmpi.Context, blocks: int, each: int) -> dict[str, Any]:
    counters = g._state.globals
    before = counters[[G_HEAD, G_NULLS, G_NULL_SUM]].copy()
    warps = blocks * 4
    few = max(1, each // 10)
    seconds = timed(lambda n: nulls[blocks, 128](g.device, n), g, few, each)
    taken, seen, total = (counters[[G_HEAD, G_NULLS, G_NULL_SUM]] - before).tolist()
    expected = sum(warps * n * (warps * n + 1) // 2 for n in (few, each))
    if (taken, seen, total) != (warps * (few + each), warps * (few + each), expected):
        fail(f"{blocks} blocks: {taken} records taken, {seen} null, sum {total} not {expected}")
    return {
        "blocks": blocks,
        "warps": warps,
        "records": warps * each,
        "per_s": warps * each / seconds,
    }


def request_rate(g: gmpi.Context, blocks: int, each: int) -> dict[str, Any]:
    errors = cuda.to_device(np.zeros(1, np.int32))
    seconds = timed(
        lambda n: requests[blocks, 128](g.device, n, errors), g, max(1, each // 10), each
    )
    if errors.copy_to_host()[0]:
        fail("null requests ended with errors")
    return {"blocks": blocks, "warps": blocks * 4, "per_s": blocks * 4 * each / seconds}


def message_rate(
    g: gmpi.Context, comm: MPI.Comm, handle: int, blocks: int, rounds: int
) -> dict[str, Any]:
    """``handle`` is that of the communicator on which the messages travel."""
    warps = blocks * 4
    data = cuda.to_device(np.zeros((warps, WINDOW), np.int64))
    wrong = cuda.to_device(np.zeros(1, np.int32))

    def launch(count: int) -> None:
        comm.Barrier()
        stream[blocks, 128](g.device, comm.rank, data, count, wrong, handle)

    seconds = timed(launch, g, max(1, rounds // 10), rounds)
    bad = comm.allreduce(int(wrong.copy_to_host()[0]))
    if bad:
        fail(f"message rate: {bad} wrong messages")
    seconds = comm.allreduce(seconds, op=MPI.MAX)
    return {"warps": warps, "window": WINDOW, "per_s": warps * WINDOW * rounds / seconds}


def allreduce_times(
    g: gmpi.Context, comm: MPI.Comm, rate: float, rounds: int
) -> dict[str, dict[str, float]]:
    value, total = (cuda.to_device(np.zeros(1)) for _ in range(2))
    wrong = cuda.to_device(np.zeros(1, np.int32))
    cycles = cuda.to_device(np.zeros(rounds, np.int64))
    skip = rounds // 10
    comm.Barrier()
    reductions[1, 32](g.device, value, total, rounds + skip, skip, cycles, wrong)
    g.synchronize()
    if wrong.copy_to_host()[0]:
        fail("Allreduce gave wrong sums")
    mine, theirs = np.zeros(1), np.zeros(1)
    host = np.zeros(rounds)
    comm.Barrier()
    for i in range(rounds):
        begin = time.perf_counter()
        comm.Allreduce(mine, theirs)
        host[i] = time.perf_counter() - begin
    return {"gmpi": summary(cycles.copy_to_host() / rate), "host": summary(host * 1e6)}


def one_way(
    g: gmpi.Context, comm: MPI.Comm, rate: float, rounds: int, busy: bool
) -> dict[str, float]:
    """8-byte one-way times, with the main thread waiting quietly or running Python."""
    buf = cuda.to_device(np.zeros(8, np.uint8))
    cycles = cuda.to_device(np.zeros(rounds, np.int64))
    skip = rounds // 10
    comm.Barrier()
    pingpong[1, 32](g.device, buf, 8, comm.rank, rounds + skip, skip, cycles)
    if busy and not gmpi.SIMULATOR:
        x = 0
        while g.kernels_running:
            for i in range(10000):
                x = (x * 3 + i) & 0xFFFF
    g.synchronize()
    return summary(cycles.copy_to_host() / rate / 2)


def idle_cost(g: gmpi.Context, rate: float) -> dict[str, Any]:
    """Share of a core after a second of silence, and the first request after it, several times."""
    times = 2 if gmpi.SIMULATOR else 5
    cycles = cuda.to_device(np.zeros(times, np.int64))
    one_ping[1, 32](g.device, cycles, 0)
    g.synchronize()
    shares = []
    for i in range(times):
        time.sleep(1.0)
        before, begin = g.proxy_cpu_seconds, time.perf_counter()
        time.sleep(0.5)
        shares.append((g.proxy_cpu_seconds - before) / (time.perf_counter() - begin))
        one_ping[1, 32](g.device, cycles, i)
        g.synchronize()
    return {
        "core_share": summary(np.array(shares)),
        "first_request_us": summary(cycles.copy_to_host() / rate),
    }


PARTS = ("records", "requests", "messages", "allreduce", "one_way", "idle", "cost")


def main() -> int:
    options = parser(__doc__ or "")
    options.add_argument("--only", choices=PARTS, nargs="+", help="measure these parts alone")
    args = options.parse_args()
    parts = set(args.only or PARTS)
    comm = MPI.COMM_WORLD
    if comm.size != 2:
        fail(f"rates needs 2 ranks, got {comm.size}: mpiexec -n 2 python {sys.argv[0]}")
    gmpi.select_gpu(comm)
    place = where(comm)
    rate = cycles_per_us()
    scale = 1 if not gmpi.SIMULATOR else 0
    results: dict[str, Any] = {"benchmark": "rates", "where": place}
    short = 5000 if scale else 10
    echo = summary(echo_cycles(short) / rate)
    grids = [(16, 100000), (132, 12000)] if scale else [(1, 20), (2, 10)]
    if "cost" in parts:  # without a context: nothing else runs
        results["record_cost"] = record_costs(rate, short)
        results["launch_cost"] = launch_costs(1000 if scale else 10)
    settings = {"engine": args.engine} if args.engine else {}
    with gmpi.Context(comm, **settings) as g:
        results["engine"] = g.config.engine
        results["echo"] = echo
        if comm.rank == 0:
            if "records" in parts:
                results["records"] = [record_rate(g, blocks, each) for blocks, each in grids]
            if "requests" in parts:
                blocks, each = (16, 20000) if scale else (1, 5)
                results["requests"] = request_rate(g, blocks, each)
        comm.Barrier()
        if "messages" in parts:
            blocks, rounds = (16, 1000) if scale else (1, 3)
            results["messages"] = message_rate(g, comm, gmpi.COMM_WORLD, blocks, rounds)
            handle = g.comm(comm, no_any_tag=True)
            results["messages_no_any_tag"] = message_rate(g, comm, handle, blocks, rounds)
        rounds = 5000 if scale else 10
        if "allreduce" in parts:
            results["allreduce"] = allreduce_times(g, comm, rate, rounds)
        if "one_way" in parts:
            results["one_way_quiet"] = one_way(g, comm, rate, 5 * rounds, busy=False)
            results["one_way_busy"] = one_way(g, comm, rate, 5 * rounds, busy=True)
        if "idle" in parts:
            results["idle"] = idle_cost(g, rate)
    if comm.rank == 0:
        show(results)
        write_json(args.json, results)
    return 0


def show(results: dict[str, Any]) -> None:
    from tabulate import tabulate

    echo = results["echo"]["p50"]
    rows = [["8-byte echo", f"{echo:.2f} us", ""]]
    for r in results.get("records", []):
        rows.append([f"null records, {r['warps']} warps", f"{r['per_s'] / 1e6:.1f} M/s", ""])
    if r := results.get("requests"):
        rows.append([f"null requests, {r['warps']} warps", f"{r['per_s'] / 1e6:.2f} M/s", ""])
    for name, beside in (("messages", ""), ("messages_no_any_tag", "no_any_tag")):
        if r := results.get(name):
            rate = f"{r['per_s'] / 1e6:.2f} M/s"
            rows.append([f"8-byte messages, {r['warps']} warps", rate, beside])
    if r := results.get("allreduce"):
        reduce_, host = r["gmpi"]["p50"], r["host"]["p50"]
        beside = f"host {host:.2f}; 2 x host + echo {2 * host + echo:.2f}"
        rows.append(["Allreduce, one double", f"{reduce_:.2f} us", beside])
    if r := results.get("one_way_quiet"):
        quiet, busy = r["p50"], results["one_way_busy"]["p50"]
        rows.append(["8 bytes one way, quiet", f"{quiet:.2f} us", ""])
        beside = f"{busy / quiet:.2f} x quiet"
        rows.append(["8 bytes one way, Python busy", f"{busy:.2f} us", beside])
    if r := results.get("idle"):
        share, first = r["core_share"]["p50"], r["first_request_us"]
        rows.append(["idle proxy", f"{share * 100:.1f} % of a core", ""])
        rows.append(["first request after", f"{first['p50']:.1f} us", f"worst {first['max']:.1f}"])
    for r in results.get("record_cost", []):
        name = f"record of {r['arguments']} arguments"
        rows.append([name, f"{r['p50']:.2f} us", f"{r['units']} units"])
    for name, times in results.get("launch_cost", {}).items():
        rows.append([name.replace("_", ": "), f"{times['p50']:.2f} us", ""])
    print(f"# GMPI rates on {results['where']}, engine {results['engine']}")
    print(tabulate(rows, headers=["what", "measured", "beside"]))
    print("# counts, sums and payloads checked: all right", flush=True)


if __name__ == "__main__":
    sys.exit(main())
