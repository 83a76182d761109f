"""LogGP's parameters of the network between two ranks: loggp.py CORE,CORE [--quick]

As Netgauge does it (Hoefler et al., *Low-Overhead LogGP Parameter Assessment for Modern
Interconnection Networks*, IPDPS 2007): rank 0 sends n messages of s bytes, d microseconds apart,
and rank 1 answers the last one by as many bytes. PRTT(n, d, s) is the time until the answer. Then

    the sender's overhead  o = (PRTT(n, d, s) - PRTT(1, 0, s)) / (n - 1) - d, d longer than the gap
    the receiver's         o' = the time of a receive of what has come already
    the gap                g + sG = (PRTT(n, 0, s) - PRTT(1, 0, s)) / (n - 1)
    the latency            L = PRTT(1, 0, s) / 2 - o - o'

Rank 0 prints a JSON object of microseconds: each of these times, and what other patterns take.
``benchmarks/_scaling_loggp.py`` computes the parameters.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import json
import os
import statistics
import sys
import time

import between_nodes
import numpy as np
from mpi4py import MPI

SIZES = (8, 256, 1024, 2048, 4096, 8192, 16384)
N = 16  # messages in a row
ROUNDS = 200
TAG, ANSWER = 6, 7


def pause(us: float) -> None:
    until = time.perf_counter() + us * 1e-6
    while time.perf_counter() < until:
        pass


def prtt(comm: MPI.Comm, n: int, us: float, size: int, rounds: int) -> float:
    """The median of so many; on rank 1 of no use."""
    out, back = np.zeros(size, np.uint8), np.zeros((n, size), np.uint8)
    found = []
    for _ in range(rounds):
        if comm.rank == 1:
            for k in range(n):
                comm.Recv(back[k], 0, TAG)
            comm.Send(out, 0, ANSWER)
            continue
        begin = time.perf_counter()
        for k in range(n):
            comm.Send(out, 1, TAG)
            if us and k < n - 1:
                pause(us)
        comm.Recv(back[0], 1, ANSWER)
        found.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(found) if found else 0.0


def timed(one, rounds: int) -> float:
    """The median of so many calls."""
    found = []
    for _ in range(rounds):
        begin = time.perf_counter()
        one()
        found.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(found)


def receive(comm: MPI.Comm, us: float, size: int, rounds: int) -> float:
    """Of what has come already, on rank 1; known to both."""
    data, found = np.zeros(size, np.uint8), []
    for _ in range(rounds):
        if comm.rank == 0:
            comm.Send(data, 1, TAG)
            comm.Recv(data[:1], 1, ANSWER)
            continue
        pause(us)
        found.append(timed(lambda: comm.Recv(data, 0, TAG), 1))
        comm.Send(data[:1], 0, ANSWER)
    return comm.bcast(statistics.median(found) if found else 0.0, root=1)


def main(cores: list[int], rounds: int) -> None:
    comm = MPI.COMM_WORLD
    os.sched_setaffinity(0, {cores[comm.rank]})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    found = {}
    for size in SIZES:
        prtt(comm, 1, 0, size, 20)  # opens what there is to open
        alone = prtt(comm, 1, 0, size, rounds)
        apart = comm.bcast(2 * alone)
        found[f"alone {size}"] = alone
        found[f"in a row {size}"] = prtt(comm, N, 0, size, rounds)
        found[f"apart {size}"] = prtt(comm, N, apart, size, rounds)
        found[f"pause {size}"] = timed(lambda us=apart: pause(us), rounds)
        found[f"receive {size}"] = receive(comm, apart, size, rounds)
    found |= {name: us for name, us in between_nodes.of_mpi(comm).items() if "65536" not in name}
    found |= between_nodes.of_proxies(comm)
    if comm.rank == 0:
        print(json.dumps({name: round(us, 3) for name, us in found.items()}), flush=True)


if __name__ == "__main__":
    main([int(core) for core in sys.argv[1].split(",")], 20 if "--quick" in sys.argv else ROUNDS)
