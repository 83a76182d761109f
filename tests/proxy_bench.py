"""What the compiled engine can take, without a GPU: a compiled producer on the other core.

    python tests/proxy_bench.py
    mpiexec -n 2 python tests/proxy_bench.py      # messages only, from rank to rank

Not a test: what to look at before changing the proxy's loop. The last lines are what a kernel of 64
warps does that has 16 messages of 8 bytes under way in each, with a tag for each warp; once as it
is, once with ``no_any_tag``. With two ranks there are more threads than two cores take: the
producer naps while it waits, so that the proxies have them.
"""

import statistics
import threading
import time

import numpy as np
from mpi4py import MPI
from proxy_producer import has_come, make_handle, publish, record_address, seq_of, word0

import gmpi
from gmpi.contract.wire import (
    CONTROL_CONSUMED,
    FLAG_BACK,
    FLAG_INLINE,
    FLAG_OUT,
    HEADER_PACKETS,
    OP_IRECV,
    OP_ISEND,
    OP_NULL,
    OP_PING,
    PACKET_BYTES,
)
from host_proxy.platform.native import call, entry, get, jit, load, load_acquire, pause
from host_proxy.platform.state import F_NANOSLEEP, G_CONTROL, G_RING_SLOTS
from host_proxy.records.completion import write_packet

WARPS, WINDOW = 64, 16
REPEATS = 7


@jit
def relax(g, nap):
    """One idle turn; ``nap`` is the address of a timespec, 0: spin."""
    if nap:
        call(get(g, F_NANOSLEEP), (nap, 0))
    else:
        pause()


@entry
def produce(g, op, datatype, first, n, slots, table, nap):
    """Publishes n records as a kernel would, each with slot ``i % slots``, and waits for them.

    Messages of 8 bytes are as ``table`` says: int64[slots], from low to high 1 for a send, then
    the peer from bit 1, then the tag from bit 32.
    """
    ring_slots = get(g, G_RING_SLOTS)
    for i in range(n + slots):
        if i >= slots and op != OP_NULL:
            j = i - slots
            while not has_come(g, seq_of(first + j), j % slots, 0):
                relax(g, nap)
        if i >= n:
            continue
        ticket = first + i
        while ticket - load_acquire(get(g, G_CONTROL) + CONTROL_CONSUMED) >= ring_slots:
            relax(g, nap)
        slot = i % slots
        this = op
        flags = 0
        packets = 1
        count = 0
        peer = 0
        tag = 0
        if op == OP_ISEND:
            count = 8
            message = load(table + slot * 8)
            peer = message >> 1 & 0x7FFFFFFF
            tag = message >> 32
            if message & 1:
                flags = FLAG_OUT | FLAG_INLINE
            else:
                this = OP_IRECV
                flags = FLAG_BACK
                packets = 3
        if flags & FLAG_INLINE:
            payload = record_address(g, ticket) + HEADER_PACKETS * PACKET_BYTES
            write_packet(payload, i, 0, seq_of(ticket))
        handle = make_handle(g, ticket, slot, packets)
        publish(g, ticket, word0(this, flags, datatype), peer, count, tag, handle, 0)


def message(send: bool, peer: int, tag: int) -> int:
    return send | peer << 1 | tag << 32


def one_by_one(comm: MPI.Comm, slots: int) -> np.ndarray:
    """Receives and sends in turn, all with one tag."""
    source, dest = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    rows = [message(i % 2 == 1, dest if i % 2 else source, 5) for i in range(slots)]
    return np.array(rows, np.int64)


def warps(comm: MPI.Comm) -> np.ndarray:
    """The receives of all warps, then their sends; warps come in another order on each side."""
    source, dest = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    rng = np.random.default_rng(comm.rank)
    receives = [message(False, source, warp) for warp in rng.permutation(WARPS).tolist()]
    sends = [message(True, dest, warp) for warp in rng.permutation(WARPS).tolist()]
    return np.repeat(np.array(receives + sends, np.int64), WINDOW)


class Bench:
    """One context, and the tickets that it has given."""

    def __init__(self, g: gmpi.Context, comm: MPI.Comm) -> None:
        self.g = g
        self.comm = comm
        self.first = g._state.first
        self.timespec = np.array([0, 20_000], np.int64)

    def rate(self, op: int, n: int, slots: int, table: np.ndarray) -> float:
        """Records per second."""
        nap = int(self.timespec.ctypes.data) if self.comm.size > 1 else 0
        for count in (slots, n // slots * slots):
            arguments = (
                self.g._state.address, op, gmpi.BYTE, self.first, count, slots,
                int(table.ctypes.data), nap,
            )  # fmt: skip
            self.comm.Barrier()
            thread = threading.Thread(target=produce, args=arguments)
            begin = time.perf_counter()
            thread.start()
            thread.join()
            seconds = self.comm.allreduce(time.perf_counter() - begin, op=MPI.MAX)
            self.first += count
        return count / seconds

    def show(self, name: str, op: int, n: int, slots: int, table: np.ndarray) -> None:
        rates = [self.rate(op, n, slots, table) for _ in range(REPEATS)]
        middle = statistics.median(rates)
        if self.comm.rank == 0:
            spread = f"{min(rates) / 1e6:.2f}..{max(rates) / 1e6:.2f}"
            print(f"{name:<44}{middle / 1e6:8.2f} M/s{1e9 / middle:8.0f} ns   {spread}", flush=True)


def main() -> None:
    comm = MPI.COMM_WORLD
    nothing = np.zeros(1, np.int64)
    for no_any_tag in (False, True):
        with gmpi.Context(comm, gpu=False, no_any_tag=no_any_tag) as g:
            bench = Bench(g, comm)
            if not no_any_tag and comm.size == 1:
                bench.show("null records", OP_NULL, 2_000_000, 1, nothing)
                bench.show("pings", OP_PING, 500_000, 64, nothing)
                bench.show("pings, 1 at a time", OP_PING, 100_000, 1, nothing)
            what = ", no_any_tag" if no_any_tag else ""
            for slots in (64, 2048):
                name = f"messages x 2, {slots} slots{what}"
                bench.show(name, OP_ISEND, 200_000, slots, one_by_one(comm, slots))
            table = warps(comm)
            name = f"messages x 2, {WARPS} warps x {WINDOW}{what}"
            bench.show(name, OP_ISEND, 200_000, len(table), table)
            if g.errors:
                print("errors", g.errors[:2])


main()
