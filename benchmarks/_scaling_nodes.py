"""Of ``scaling.py``: three and four ranks between two nodes, predicted from two ranks."""

from __future__ import annotations

import math

from _scaling_checks import KIB, Check, load, rounds, words
from _scaling_loggp import Measured

SIZES = (8, 8 * KIB, 64 * KIB)
Times = dict[str, float]  # us by operation


class Pair:
    """What two ranks take: what all predictions of one MPI library are made from."""

    def __init__(self, family: str) -> None:
        self.rows = load(f"between_nodes-{family}")["rows"]
        self.run = Measured(family)
        self.apart = self._of("0,1")
        self.together = self._of("0,0")
        self.request = self._of("0")["requests, 1 at once"]

    def _of(self, cores: str) -> Times:
        return next(row["us"] for row in self.rows if row["cores"] == cores)

    def allreduce(self, ranks: int) -> float:
        """Each core has two ranks at most, so a step takes what it takes of two ranks on one."""
        # Rank 0 leaves to rank 1, on the other core, what it has, and gets the result from there.
        folded = 2 * self.apart["one way 8"] if ranks & (ranks - 1) else 0.0
        schedule = self.together["Allreduce 8"] - self.together["shift 8"]
        return int(math.log2(ranks)) * self.together["shift 8"] + schedule + folded

    def alltoall(self, ranks: int, n: int) -> float:
        """MPICH takes a step for each other rank. Open MPI opens all messages at once: each
        further one costs the core what both of its ranks need to send and to receive, as long as
        TCP takes the messages as they come."""
        if self.run.name == "MPICH" or n > 8 * KIB:
            return (ranks - 1) * self.together[f"shift {n}"]
        return self.together[f"Alltoall {n}"] + (ranks - 2) * 2 * sum(self.run.overheads(n))

    def missed(self, n: int) -> str:
        return "flow control of TCP" if self.run.name == "MPICH" and n > 8 * KIB else ""


def of_many(pair: Pair, where: str, ranks: int, us: Times) -> list[Check]:
    barrier = rounds(ranks) * pair.together["Barrier"]
    checks = [
        Check(where, "MPI, Barrier", barrier, us["Barrier"]),
        Check(where, "MPI, Allreduce of 8 B", pair.allreduce(ranks), us["Allreduce 8"]),
    ]
    for n in SIZES:
        predicted = {"shift": pair.together[f"shift {n}"], "Alltoall": pair.alltoall(ranks, n)}
        for call, time in predicted.items():
            what = f"MPI, {call} of {words(n)}"
            checks.append(Check(where, what, time, us[f"{call} {n}"], pair.missed(n)))
    return checks


def checks() -> list[Check]:
    """Also the proxied road, from MPI's time and that of a request without MPI."""
    found = []
    for pair in (Pair("mpich"), Pair("openmpi")):
        for row in pair.rows:
            ranks, us = row["ranks"], row["us"]
            if ranks == 1:
                continue
            alone = row["cores"] == "0,1"  # each rank has a core
            cores = ", two cores" * alone + ", one core" * (row["cores"] == "0,0")
            where = f"{row['nodes'][0]} + {row['nodes'][1]} ranks{cores}, {pair.run.name}"
            shift = (pair.apart if alone else pair.together)["shift 8"]
            by_proxies = us["shift by proxies 8"]
            found.append(Check(where, "proxied, shift of 8 B", shift + pair.request, by_proxies))
            if ranks > 2:
                found += of_many(pair, where, ranks, us)
    return found
