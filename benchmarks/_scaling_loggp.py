"""Of ``scaling.py``: LogGP's parameters of networks, measured between two nodes and published ones.

A message of s bytes arrives L + o + o' + s (G + O) after its sender began; the next one may begin
g + s G after it (Alexandrov et al., *LogGP*, SPAA 1995; overheads o of the sender and o' of the
receiver, and O of each byte, as in LogGOPS: Hoefler et al., *LogGOPSim*, HPDC 2010).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from _scaling_checks import KIB, Check, load, words

N = 16  # messages in a row: of tests/ranks/loggp.py
FITTED = (KIB, 16 * KIB)  # all sizes between them are predicted
NS = 1e-3  # us


class LogGP(NamedTuple):
    """Times in us; of a byte, in us a byte."""

    latency: float  # L
    send: float  # o
    receive: float  # o'
    gap: float  # g
    gap_byte: float  # G
    byte: float  # O

    def one_way(self, n: int) -> float:
        return self.latency + self.send + self.receive + n * (self.gap_byte + self.byte)

    def next(self, n: int) -> float:
        """From one message to the next of the same sender."""
        return self.gap + n * self.gap_byte

    def rate(self, own: float = 0.0) -> float:
        """Messages of 8 bytes a us, where the sender needs ``own`` us besides for each."""
        return 1 / (max(self.next(8), self.send) + own)


class Measured:
    """What ``tests/ranks/loggp.py`` found with one MPI library."""

    def __init__(self, family: str) -> None:
        self.name = {"mpich": "MPICH", "openmpi": "Open MPI"}[family]
        self.us: dict[str, float] = load(f"loggp-{family}")["rows"][0]["us"]

    def one_way(self, n: int) -> float:
        return self.us[f"alone {n}"] / 2

    def next(self, n: int) -> float:
        return (self.us[f"in a row {n}"] - self.us[f"alone {n}"]) / (N - 1)

    def overheads(self, n: int) -> tuple[float, float]:
        """The sender's, from messages that are further apart than any gap, and the receiver's."""
        apart = (self.us[f"apart {n}"] - self.us[f"alone {n}"]) / (N - 1)
        return apart - self.us[f"pause {n}"], self.us[f"receive {n}"]

    def short(self) -> LogGP:
        """Of 8 bytes, which MPICH sends in a way of their own."""
        send, receive = self.overheads(8)
        return LogGP(self.one_way(8) - send - receive, send, receive, self.next(8), 0.0, 0.0)

    def long(self) -> LogGP:
        """Fitted to the smallest and the largest of FITTED."""
        low, high = FITTED
        gap_byte = (self.next(high) - self.next(low)) / (high - low)
        slope = (self.one_way(high) - self.one_way(low)) / (high - low)
        send, receive = self.overheads(low)
        latency = self.one_way(low) - low * slope - send - receive
        gap = self.next(low) - low * gap_byte
        return LogGP(latency, send, receive, gap, gap_byte, slope - gap_byte)


def measured() -> list[Measured]:
    return [Measured("mpich"), Measured("openmpi")]


def checks() -> list[Check]:
    """What the parameters, and the proxied road over them, say of what they were not fitted to."""
    found = []
    for run in measured():
        where, fit = f"1 + 1 ranks, {run.name}", run.long()
        for n in (256, 2 * KIB, 4 * KIB, 8 * KIB):
            short = n == 256 and run.name == "MPICH"
            missed = "slower than 1 KiB, why is not known" if short else ""
            what = f"one way of {words(n)}", f"gap after {words(n)}"
            found.append(Check(where, what[0], fit.one_way(n), run.one_way(n), missed))
            found.append(Check(where, what[1], fit.next(n), run.next(n)))
        shift, request = run.us["shift 8"], run.us["requests, 1 at once"]
        by_proxies = run.us["shift by proxies 8"]
        found.append(Check(where, "proxied, shift of 8 B", shift + request, by_proxies))
        found.append(Check(where, "MPI, Barrier", shift, run.us["Barrier"]))
    return found


#: Others have measured these. Sources: docs/scaling.md.
PUBLISHED = (
    # Of 8 bytes; the file's L is half of a round trip, from which its overheads go off here.
    ("InfiniBand, Tukey", LogGP(5.69 - 1.05 - 1.08, 1.05, 1.08, 0.94, 0.497 * NS, 0.0)),
    ("Slingshot-11, Alps", LogGP(3.7, 0.2, 0.2, 0.005, 0.04 * NS, 0.0)),
)


def rows(own: float, request: float) -> list[list[Any]]:
    """Of the table: a network, its parameters in us and ns, and what follows from them.

    Args:
        own: us of a proxy for a message besides MPI.
        request: us of a request without MPI, there and back.
    """
    sets = []
    for run in measured():
        sets += [(f"TCP, {run.name}, 8 B", run.short()), (f"TCP, {run.name}, 1 KiB on", run.long())]
    found = []
    for name, p in (*sets, *PUBLISHED):
        times = (p.latency, p.send, p.receive, p.gap)
        each = (p.gap_byte / NS, p.byte / NS)
        ways = (p.one_way(8), p.one_way(8) + request) if "1 KiB" not in name else ("", "")
        rates = (p.rate(), p.rate(own)) if ways[0] else ("", "")
        numbers = (*times, *each, *ways, *rates)
        found.append([name, *(n if n == "" else f"{n:.2f}" for n in numbers)])
    return found
