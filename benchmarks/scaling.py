"""A model of what messages cost, checked against what was measured, and what it says of many GPUs.

    python benchmarks/scaling.py            # prints the tables of docs/scaling.md
    python benchmarks/scaling.py --docs     # writes them there
    python benchmarks/scaling.py --check    # fails where they, or a prediction, are wrong

Plain arithmetic, from the JSON files in docs/measurements. Times in microseconds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import _scaling_loggp as loggp
import _scaling_measured as four
import _scaling_nodes as two_nodes
import click
import numpy as np
from _scaling_checks import (
    HELD,
    KIB,
    MIB,
    Check,
    PingPong,
    Proxied,
    checks,
    direct_us,
    load,
    rounds,
    words,
)
from tabulate import tabulate

from docs.pages import fill
from gmpi.contract.channels import Places
from gmpi.contract.collectives import RANKS
from gmpi.contract.sizes import Layout
from gmpi.contract.wire import MAILBOX_RANKS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "scaling.md"
PROGRAM = "benchmarks/scaling.py"
GPUS = (10, 100, 1000, 10_000, 100_000)
NODE = 8  # GPUs
PROCESSORS = 132  # multiprocessors of an H200
LAYOUT = Layout(4096, 4096, 32, 8192, 524288)  # the default settings
STEPS = 8  # of an opening, after each of which all ranks agree
AGREEMENTS = STEPS + 2  # and on tags and wildcards
SAID = 147  # bytes of what a rank had to say after a step, pickled, before there was a digest
LISTED = 52  # bytes that a rank keeps of each rank of a communicator: two int64, and a Python list
COUNTED = 8  # and, once, of each rank: messages of partitioned requests


class Network(NamedTuple):
    """Between nodes: what MPI programs of hosts were published to see."""

    name: str
    latency: float  # us, one way of 8 bytes
    per_us: float  # bytes in a us


#: Sources: docs/scaling.md.
NETWORKS = (Network("InfiniBand, 100 Gb/s", 0.90, 11_600), Network("Slingshot-11", 1.6, 25_000))


class Proxy(NamedTuple):
    """What a message of 8 bytes costs the proxies of its two ends: us of each.

    Attributes:
        message: a send and a receive, all in all; ``own`` of it is not MPI.
        hinted: the same with ``no_any_tag``.
    """

    message: float
    hinted: float
    own: float

    @classmethod
    def measured(cls) -> Proxy:
        rates = load("rates-2gpu")
        own = 2e6 / rates["requests"]["per_s"]
        return cls(
            1e6 / rates["messages"]["per_s"], 1e6 / rates["messages_no_any_tag"]["per_s"], own
        )

    def per_us(self, rings: int, locked: bool) -> float:
        """Messages in a us that so many rings with a proxy each carry.

        Args:
            locked: whether one lock admits one thread to the MPI library.
        """
        most = rings / self.message
        return min(most, 1 / (self.message - self.own)) if locked else most


def all_checks() -> list[Check]:
    return checks() + two_nodes.checks() + loggp.checks()


def predictions() -> str:
    rows = []
    for each in all_checks():
        numbers = f"{each.predicted:.2f}", f"{each.measured:.2f}", f"{each.error:+.0%}"
        rows.append([each.where, each.what, *numbers, each.missed])
    return table(rows, "where", "what", "predicted", "measured", "off by", "not held: why")


def table(rows: list[list[object]], *head: str) -> str:
    return tabulate(rows, list(head), tablefmt="github", disable_numparse=True)


def rings() -> str:
    """What one proxy carries, and several."""
    proxy = Proxy.measured()
    rows: list[list[object]] = []
    for count in (1, 2, 4):
        one_lock, locks = (proxy.per_us(count, locked) for locked in (True, False))
        step = PROCESSORS / one_lock
        rows.append(
            [count, f"{one_lock:.2f}", f"{locks:.2f}", f"{26 / one_lock:.1f}", f"{step:.0f}"]
        )
    return table(
        rows,
        "rings, with a proxy each",
        "million messages/s, MPI with one lock",
        "MPI with a lock a ring",
        "26 neighbours, us at least",
        "a message of each of 132 blocks, us at least",
    )


def opening() -> str:
    """What grows with the number of ranks."""
    rows: list[list[object]] = []
    for gpus in GPUS:
        nodes = -(-gpus // NODE)
        steps = rounds(min(gpus, NODE)) + rounds(nodes)
        agreed = [f"{AGREEMENTS * steps * network.latency:.0f}" for network in NETWORKS]
        rows.append(
            [
                f"{gpus:,}",
                mib(gpus * SAID * STEPS),
                *agreed,
                mib(LISTED * gpus),
                mib(COUNTED * gpus),
            ]
        )
    return table(
        rows,
        "GPUs",
        "agreeing before: MiB to each rank",
        *(f"now: us, {network.name}" for network in NETWORKS),
        "MiB a communicator",
        "MiB besides, once",
    )


def mib(nbytes: float) -> str:
    return f"{nbytes / MIB:.2f}" if nbytes < 10 * MIB else f"{nbytes / MIB:.0f}"


def memory() -> str:
    """What a rank has by the ranks of its node; default settings."""
    rows: list[list[object]] = []
    for ranks in (1, 2, 4, 8, 16, 32, 72):
        places = Places(ranks)
        mailboxes = LAYOUT.mailbox(ranks) - LAYOUT.large_bytes if ranks <= MAILBOX_RANKS else 0
        each = places.channels // ranks
        collective = "direct" if ranks <= RANKS else "proxied"
        sizes = LAYOUT.mapped_bytes, LAYOUT.large_bytes + mailboxes, places.nbytes
        rows.append([ranks, *map(mib, sizes), mib(places.table_bytes), each, collective])
    return table(
        rows,
        "ranks of the node",
        "pinned, MiB",
        "GPU staging, MiB",
        "direct memory, MiB",
        "table of channels, MiB",
        "channels a peer",
        "collectives",
    )


class Collective:
    """An Allreduce of 8 bytes: by one call of MPI, and in three steps."""

    def __init__(self) -> None:
        two = PingPong("2gpu")
        rows = load("collectives-2gpu")["rows"]
        self._direct = {
            row["call"]: row["direct"]["p50"]
            for row in rows
            if row["size"] == 8 and row["threads"] == 256
        }
        self._request, self._near = two.request, two.host[8]
        self._extra = Proxied.fitted().collective

    def flat(self, gpus: int, network: Network) -> float:
        """MPI's own hierarchy: rounds within a node, and rounds between nodes."""
        within, nodes = min(gpus, NODE), -(-gpus // NODE)
        times = rounds(within) * self._near + rounds(nodes) * network.latency
        return self._request + times + self._extra

    def stepped(self, gpus: int, network: Network) -> float:
        """GPUs of a node reduce on the direct road, one of them calls MPI, and tells the others."""
        nodes = -(-gpus // NODE)
        between = self._request + rounds(nodes) * network.latency + self._extra
        return self._direct["Allreduce"] + between + self._direct["Bcast"]

    def single(self) -> float:
        return float(self._direct["Allreduce"])


def long_collectives() -> str:
    """Allreduce by length: one call by the proxies, or each GPU of a node its share of it.

    Both from two ranks of one node: what is measured.
    """
    found = [
        (row["size"], row["proxied"]["p50"], row["direct"]["p50"])
        for row in load("collectives-2gpu")["rows"]
        if row["call"] == "Allreduce" and row["threads"] == 256
    ]
    sizes, proxied = [row[0] for row in found], [row[1] for row in found]
    rows: list[list[object]] = []
    for n, call, direct in found:
        if n < KIB:
            continue
        share = float(np.interp(n / NODE, sizes, proxied))
        rows.append(
            [words(n), f"{call:.0f}", f"{direct + share:.0f}", f"{call / (direct + share):.1f}"]
        )
    return table(rows, "bytes", "one call, us", "in steps, us", "times as fast")


def collectives() -> str:
    model = Collective()
    rows: list[list[object]] = []
    for gpus in (NODE, *GPUS):
        row: list[object] = [f"{gpus:,}"]
        for network in NETWORKS:
            stepped = model.single() if gpus <= NODE else model.stepped(gpus, network)
            row += [f"{model.flat(gpus, network):.1f}", f"{stepped:.1f}"]
        rows.append(row)
    heads = [f"{network.name}, {way}" for network in NETWORKS for way in ("one call", "in steps")]
    return table(rows, "GPUs", *heads)


def one_way() -> str:
    """Between nodes, by size: the proxied road with a network's MPI in place of the node's."""
    proxied, request = Proxied.fitted(), PingPong("2gpu").request
    rows: list[list[object]] = []
    for n in (8, KIB, 8 * KIB):
        row: list[object] = [words(n)]
        for network in NETWORKS:
            mpi = network.latency + n / network.per_us
            row += [f"{mpi:.2f}", f"{proxied.short(n, request, mpi):.2f}"]
        rows.append(row)
    heads = [f"{network.name}, {what}" for network in NETWORKS for what in ("MPI", "GMPI")]
    return table(rows, "bytes", *heads)


def networks() -> str:
    """LogGP's parameters, and what the proxied road makes of them."""
    found = loggp.rows(Proxy.measured().own, PingPong("2gpu").request)
    heads = ["", "L, us", "o, us", "o', us", "g, us", "G, ns", "O, ns"]
    heads += ["8 B, us: MPI", "GMPI", "million/s: MPI", "a proxy"]
    return table(found, *heads)


def answers() -> str:
    """The first question of who chooses: two GPUs, which were measured, eight, a thousand nodes."""
    two, model, many = PingPong("2gpu"), Collective(), 1000 * NODE
    steps = rounds(NODE) + rounds(many // NODE)
    proxied, reduced = Proxied.fitted(), load("rates-2gpu")["allreduce"]["gmpi"]["p50"]
    direct, rate = direct_us("2gpu")[8], Proxy.measured().per_us(1, True)
    memory = {
        ranks: mib(LAYOUT.mailbox(ranks) + Places(ranks).nbytes + Places(ranks).table_bytes)
        for ranks in (2, NODE)
    }
    between = [
        [
            f"{proxied.short(8, two.request, network.latency):.1f}",
            f"{model.flat(many, network):.0f}",
            f"{AGREEMENTS * steps * network.latency:.0f}",
        ]
        for network in NETWORKS
    ]
    agreed = ["", f"{AGREEMENTS * rounds(NODE) * two.host[8]:.0f}"]
    same = f"{two.us[8]:.1f}"
    rows: list[list[object]] = [
        ["8 B in a node, direct road, us", f"{direct:.1f}", *[f"{direct:.1f}"] * 3],
        ["8 B in a node, by proxies, us", same, *[same] * 3],
        ["8 B between nodes, us", "", "", *(column[0] for column in between)],
        [
            "Allreduce of a double, us",
            f"{reduced:.1f} by proxies",
            f"{model.single():.1f} direct",
            *(column[1] for column in between),
        ],
        ["million messages/s, one proxy", f"{rate:.1f}", *[f"{rate:.1f}"] * 3],
        ["MiB of GPU memory a rank", memory[2], *[memory[NODE]] * 3],
        ["MiB of the host for a communicator", "0.00", "0.00", *[mib(LISTED * many)] * 2],
        ["agreeing when a context opens, us", *agreed, *(column[2] for column in between)],
    ]
    heads = [f"1000 nodes of 8: {network.name}" for network in NETWORKS]
    return table(rows, "", "2 GPUs, measured", "8 GPUs of a node", *heads)


TABLES: dict[str, Callable[[], str]] = {
    "answers": answers,
    **{f"four_{name}": lambda make=make: make(four.load()) for name, make in four.TABLES.items()},
    "predictions": predictions,
    "rings": rings,
    "networks": networks,
    "one_way": one_way,
    "collectives": collectives,
    "long": long_collectives,
    "opening": opening,
    "memory": memory,
}


def filled(text: str) -> str:
    """The page with all tables as they are now."""
    for name, make in TABLES.items():
        text = fill(text, PROGRAM, name, make())
    return text


def off() -> list[str]:
    """The predictions that are held to HELD and are not within it."""
    return [
        f"{each.where}: {each.what}: {each.predicted:.2f} predicted, {each.measured:.2f} measured"
        for each in all_checks()
        if abs(each.error) > HELD and not each.missed
    ]


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--docs", is_flag=True, help="Write the tables into docs/scaling.md.")
@click.option("--check", is_flag=True, help="Fail where the page or a prediction is wrong.")
def main(docs: bool, check: bool) -> None:
    if docs:
        PAGE.write_text(filled(PAGE.read_text()))
    elif check:
        problems = off()
        if filled(PAGE.read_text()) != PAGE.read_text():
            problems.append(f"{PAGE} is out of date: run python benchmarks/scaling.py --docs")
        if problems:
            sys.exit("\n".join(problems))
    else:
        print("\n\n".join(f"{name}\n{make()}" for name, make in TABLES.items()))


if __name__ == "__main__":
    main()
