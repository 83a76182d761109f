"""What each rank of ``tests/between_nodes.py`` does: between_nodes.py CORES,CORES,...

Rank 0 prints a JSON object: microseconds of each operation, the median of several batches.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from proxy_producer import has_come, make_handle, publish, record_address, seq_of, word0

import gmpi
from gmpi.contract.wire import (
    FLAG_BACK,
    FLAG_INLINE,
    FLAG_OUT,
    HEADER_PACKETS,
    OP_IRECV,
    OP_ISEND,
    OP_PING,
    PACKET_BYTES,
    STATUS_PACKETS,
)
from host_proxy.platform.native import call, entry, get, jit
from host_proxy.platform.state import F_YIELD
from host_proxy.records.completion import write_packet

BATCHES = 7
SIZES = (8, 8192, 65536)
WINDOWS = (1, 4, 16, 64)
TAG = 5
_RECV_PACKETS = STATUS_PACKETS + 1  # with 8 bytes


def wait(requests: list[MPI.Request]) -> None:
    """Gives the core to the next rank on it after each look."""
    while not MPI.Request.Testall(requests):
        os.sched_yield()


def batches(comm: MPI.Comm, calls: int, one: Callable[[], object]) -> float:
    """Microseconds of a call, where all ranks make so many one after the other."""
    found = []
    for _ in range(BATCHES):
        wait([comm.Ibarrier()])
        begin = time.perf_counter()
        for _ in range(calls):
            one()
        found.append((time.perf_counter() - begin) / calls * 1e6)
    return statistics.median(found)


def of_mpi(comm: MPI.Comm) -> dict[str, float]:
    """Calls of the host, by mpi4py."""
    me, ranks = comm.rank, comm.size
    left, right = (me - 1) % ranks, (me + 1) % ranks
    found = {}
    for n in SIZES:
        out, back = np.zeros(n, np.uint8), np.zeros(n, np.uint8)

        def pingpong(out=out, back=back) -> None:
            if me == 0:
                wait([comm.Isend(out, 1, TAG)])
                wait([comm.Irecv(back, 1, TAG)])
            else:
                wait([comm.Irecv(back, 0, TAG)])
                wait([comm.Isend(out, 0, TAG)])

        def shift(out=out, back=back) -> None:
            wait([comm.Irecv(back, left, TAG), comm.Isend(out, right, TAG)])

        if ranks == 2:
            found[f"one way {n}"] = batches(comm, 200, pingpong) / 2
        found[f"shift {n}"] = batches(comm, 200, shift)
        blocks, others = np.zeros(n * ranks, np.uint8), np.zeros(n * ranks, np.uint8)
        found[f"Alltoall {n}"] = batches(
            comm, 100, lambda a=blocks, b=others: wait([comm.Ialltoall(a, b)])
        )
    one, total = np.zeros(1), np.zeros(1)
    found["Barrier"] = batches(comm, 200, lambda: wait([comm.Ibarrier()]))
    found["Allreduce 8"] = batches(comm, 200, lambda: wait([comm.Iallreduce(one, total)]))
    return found


@jit
def await_packet(g, ticket, slot, packet):
    while not has_come(g, seq_of(ticket), slot, packet):
        call(get(g, F_YIELD), (0,))


@entry
def pings(g, ticket, n, window):
    """Requests without MPI, so many under way at once, as a kernel would make them."""
    for i in range(n + window):
        if i >= window:
            await_packet(g, ticket + i - window, i % window, 0)
        if i < n:
            handle = make_handle(g, ticket + i, i % window, 1)
            publish(g, ticket + i, word0(OP_PING, 0, 0), 0, 0, 0, handle, 0)


@entry
def shifts(g, ticket, n, datatype, left, right):
    """Receives of 8 bytes from the left and sends to the right, as a kernel would make them."""
    for i in range(n):
        at = ticket + 2 * i
        receive = word0(OP_IRECV, FLAG_BACK, datatype)
        publish(g, at, receive, left, 8, TAG, make_handle(g, at, 0, _RECV_PACKETS), 0)
        payload = record_address(g, at + 1) + HEADER_PACKETS * PACKET_BYTES
        write_packet(payload, i, 0, seq_of(at + 1))
        send = word0(OP_ISEND, FLAG_OUT | FLAG_INLINE, datatype)
        publish(g, at + 1, send, right, 8, TAG, make_handle(g, at + 1, 1, 1), 0)
        await_packet(g, at, 0, 0)
        await_packet(g, at + 1, 1, 0)


def of_proxies(comm: MPI.Comm) -> dict[str, float]:
    """Requests through a ring, a proxy and MPI, from compiled code in place of a kernel."""
    left, right = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    with gmpi.Context(comm, gpu=False, cores="any") as g:
        state, ticket = g._state.address, 0

        n = 200
        cases: dict[str, tuple[Callable[..., object], int, tuple[int, ...]]] = {
            **{f"requests, {w} at once": (pings, n, (n, w)) for w in WINDOWS},
            "shift by proxies 8": (shifts, 2 * n, (n, gmpi.BYTE, left, right)),
        }
        times: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(BATCHES):
            for name, (compiled, records, arguments) in cases.items():
                comm.Barrier()
                thread = threading.Thread(target=compiled, args=(state, ticket, *arguments))
                begin = time.perf_counter()
                thread.start()
                thread.join()
                times[name].append((time.perf_counter() - begin) / n * 1e6)
                ticket += records
        assert not g.errors, g.errors
    return {name: statistics.median(each) for name, each in times.items()}


def main(cores: list[set[int]]) -> None:
    comm = MPI.COMM_WORLD
    os.sched_setaffinity(0, cores[comm.rank])
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))  # threads that it starts have it too
    found = of_mpi(comm) if comm.size > 1 else {}
    found |= of_proxies(comm)
    if comm.rank == 0:
        print(json.dumps({name: round(us, 3) for name, us in found.items()}), flush=True)


if __name__ == "__main__":
    main([set(map(int, each.split("+"))) for each in sys.argv[1].split(",")])
