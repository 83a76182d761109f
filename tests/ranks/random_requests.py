"""Random programs of requests of all kinds, of kernels and hosts, against plain mpi4py.

    mpiexec -n 3 python tests/ranks/random_requests.py --seeds=0:20

All ranks make a program from the same seed (``requests_plan.py``): messages that are probed and
received by Mrecv, sends and receives whose requests are freed at once, persistent requests of
messages and of collectives that are started again and again, partitioned ones whose two sides
differ, and epochs of one-sided calls. Each rank carries it out in a kernel, of either scope, or by
its host, posts in an order of its own and waits by a call of its own choice. Some communicators go
the direct road. What every rank gets, and every status, is what mpi4py gives.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import numpy as np
from common import RANK, SIZE, TIME_FACTOR, WORLD, barrier, end, same
from numba import cuda
from random_phases import Communicators
from requests_hosts import HostProgram
from requests_kernel import KERNELS, NUMBER, OPERATIONS, RESULT
from requests_plan import WINDOW, Plan, Result, expected, random_plan
from requests_rows import KernelProgram

import gmpi

ONE_NODE = len(set(os.environ.get("GMPI_TEST_NODES", "a"))) == 1
SCOPES = [("block", 32), ("warp", 32), ("block", 40), ("block", 20)]


def in_kernel(g: gmpi.Context, program: KernelProgram, seed: int) -> Result:
    scope, threads = SCOPES[(seed + RANK) % 4]
    r = program.r
    if program.win >= 0:
        r.rows.insert(0, [NUMBER["FENCE"], *[0] * 7, program.win, 0])
        r.statuses = {row + 1: names for row, names in r.statuses.items()}
    words = cuda.to_device(np.frombuffer(bytes(r.memory), np.int64).copy())
    heap = words.view(np.uint8)
    registered = bool(program.rng.random() < 0.4)
    if registered:
        g.register(heap)
    requests = np.zeros(r.requests, np.int64)
    for number, p in r.planted.items():
        out = program.again.get((p.number, "out"), (-1, 0))[0] == number
        at = program.again[p.number, "out" if out else "back"][1]
        make, parts, peer = (
            (g.Psend_init, p.out, p.dest) if out else (g.Precv_init, p.back, p.source)
        )
        requests[number] = make(
            heap[at : at + p.nbytes], parts, p.count // parts, p.kind, peer, p.tag,
            program.handles[p.comm],
        )  # fmt: skip
    open_ = cuda.to_device(requests)
    statuses = cuda.to_device(np.zeros(r.requests, gmpi.STATUS_DTYPE))
    results = cuda.to_device(np.full((len(r.rows), RESULT), -99, np.int64))
    indices = cuda.to_device(np.zeros(r.requests, np.int64))
    rows = cuda.to_device(np.array(r.rows, np.int64))
    KERNELS[scope][1, threads](g.device, rows, words, heap, open_, statuses, indices, results)
    g.synchronize()
    found: Result = {}
    after, got, several = heap.copy_to_host(), results.copy_to_host(), statuses.copy_to_host()
    for i, (row, result) in enumerate(zip(r.rows, got)):
        what = f"row {i}, {OPERATIONS[row[0]]} {row[1:]}"
        assert result[0] == 0, f"{what}: error class {result[0]}"
        names = r.statuses.get(i, [])
        if row[0] == NUMBER["WAITALL"]:
            for k, name in enumerate(names):
                found[name] = tuple(int(v) for v in several[row[1] + k])
        elif names:
            name = names[result[5]] if row[0] == NUMBER["WAITANY"] else names[0]
            assert name not in found or not name, f"{what}: {name} twice"
            found[name] = tuple(int(v) for v in result[:5])
    found.pop("", None)
    for name, (at, nbytes) in r.places.items():
        found[name] = after[at : at + nbytes]
        if name.startswith("back"):
            found[name] = found[name].view(np.int64)
    for low, high in r.outside:
        assert (after[low:high] == 0xA5).all(), f"memory from {low} to {high} was touched"
    if registered:
        g.unregister(heap)
    return found


def main() -> None:
    first, last = 0, 6
    for word in sys.argv[1:]:
        if word.startswith("--seeds="):
            first, last = map(int, word.removeprefix("--seeds=").split(":"))
    comms = Communicators()
    for seed in range(first, last):
        check(seed, comms)
        barrier()
        if RANK == 0:
            print(f"ok seed {seed}", flush=True)
    end()


def check(seed: int, comms: Communicators) -> None:
    draw = np.random.default_rng([seed, 7])
    small = bool(draw.random() < 0.6)
    settings: dict[str, Any] = {"watchdog_s": 4 * TIME_FACTOR, "timeout_s": 8 * TIME_FACTOR}
    if small:
        settings |= {"eager_bytes": 256, "chunk_bytes": 512}
    if draw.random() < 0.3:
        settings["gpu_staging"] = False  # then there are no windows
    eager = settings.get("eager_bytes", 8192)
    sizes = [0, 8, 24, 48, 144, 152, 240, eager, eager + 8, 5 * eager + 24 if small else 24000]
    hosts = [bool(v) for v in draw.random(SIZE) < (0.4 if draw.random() < 0.5 else 0)]
    direct = {comm for comm in range(3) if draw.random() < 0.4}
    windows = ONE_NODE and "gpu_staging" not in settings and bool(draw.random() < 0.8)
    plan = random_plan(np.random.default_rng(seed), comms, hosts, direct, sizes, windows)
    if not (windows and any(phase.updates for phase in plan.phases)):
        windows = False
        for phase in plan.phases:
            phase.updates = None
    if (windows or direct or draw.random() < 0.5) and hosts[RANK]:
        settings["gpu"] = False  # the host may make these calls where no kernel can
    wanted = expected(plan, comms)
    for engine in ("compiled", "mpi4py"):
        with warnings.catch_warnings():
            warnings.simplefilter("error", gmpi.LeakWarning)
            with gmpi.Context(WORLD, wildcards=0 not in direct, engine=engine, **settings) as g:
                handles = [
                    gmpi.COMM_WORLD,
                    *(g.comm(comms.mpi[i], wildcards=i not in direct) for i in (1, 2)),
                ]
                found = carry_out(g, plan, comms, handles, seed, windows)
        what = f"seed {seed}, {engine}"
        missing = {name for name in wanted.keys() - found.keys() if name.startswith("data")}
        assert not missing, f"{what}: {missing}"
        for name, value in found.items():
            if name.startswith("probe"):
                status = wanted[name.replace("probe", "status")]
                nbytes = status[4]
                assert value == (*status[:3], nbytes, nbytes), f"{what}, {name}: {value}, {status}"
            elif name.startswith("status"):
                assert value == wanted[name], f"{what}, {name}: {value}, expected {wanted[name]}"
            else:
                same(value, wanted[name], f"{what}, {name}")


def carry_out(
    g: gmpi.Context, plan: Plan, comms: Communicators, handles: list[int], seed: int, windows: bool
) -> Result:
    rng = np.random.default_rng([seed, RANK])
    memory, win = None, -1
    if windows:
        if not plan.hosts[RANK]:
            memory = g.zeros(WINDOW, np.int64)
        # The memory of a rank without kernels is nobody's: it has no window.
        win = g.win(memory, disp_unit=8)
    if plan.hosts[RANK]:
        found = HostProgram(g, plan, comms, handles, win, rng).run()
    else:
        program = KernelProgram(plan, comms, handles, win, rng)
        found = in_kernel(g, program, seed)
    if windows:
        barrier()  # whose host has no more to do does not ask for what others are still doing
        if memory is not None:
            found["window"] = memory.copy_to_host()
        g.win_free(win)
        if memory is not None:
            g.unregister(memory)
    return found


main()
