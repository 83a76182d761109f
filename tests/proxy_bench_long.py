"""What the compiled engine takes for a long message, without a GPU.

    python tests/proxy_bench_long.py

Not a test. A compiled producer on the other core sends messages of 32 KiB to itself as a halo
exchange does: each message, and the receive of the next one, then the wait. No bytes are moved.
Times are of the proxy and MPI alone: from the call until the receiver may read the sender's
buffers (its order), and until both requests are complete.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import threading

import numpy as np
from mpi4py import MPI
from proxy_producer import has_come, make_handle, publish, word0

import gmpi
from gmpi.contract.wire import (
    CHUNK_DIRECTION_SHIFT,
    FLAG_BACK,
    FLAG_OUT,
    OP_CHUNK,
    OP_IRECV,
    OP_ISEND,
    STATUS_PACKETS,
    UNPACK,
)
from host_proxy.platform.idle import now_ns
from host_proxy.platform.native import entry, get, jit, pause, store
from host_proxy.platform.state import G_REQUEST_SLOTS

BYTES = 32768
ROUNDS = 20_000
REPEATS = 5
_ROW = 16  # bytes: two times of each round, ns
_SEND_PACKETS = 1  # of a completion that the producer waits for


@jit
def wait(g, handle, slot, packet):
    while not has_come(g, handle, slot, packet):
        pause()


@entry
def exchange(g, datatype, ticket, rounds, times):
    """Slots alternate between rounds. Returns the next ticket."""
    base = get(g, G_REQUEST_SLOTS)
    tag = 5
    send = word0(OP_ISEND, FLAG_OUT, datatype)
    receive = word0(OP_IRECV, FLAG_BACK, datatype)
    recv_slot = base
    recv = make_handle(g, ticket, recv_slot, STATUS_PACKETS)
    publish(g, ticket, receive, 0, BYTES, tag, recv, 0)
    ticket += 1
    for i in range(rounds):
        began = now_ns(g)
        send_slot = base + 2 + (i & 1)
        sent = make_handle(g, ticket, send_slot, _SEND_PACKETS)
        publish(g, ticket, send, 0, BYTES, tag, sent, 0)
        ticket += 1
        next_slot = base + ((i + 1) & 1)
        following = make_handle(g, ticket, next_slot, STATUS_PACKETS)
        if i + 1 < rounds:
            publish(g, ticket, receive, 0, BYTES, tag, following, 0)
            ticket += 1
        wait(g, recv, recv_slot, STATUS_PACKETS)  # the order for the first buffer
        commanded = now_ns(g)
        publish(g, ticket, OP_CHUNK, 0, 0, 0, recv, UNPACK << CHUNK_DIRECTION_SHIFT)
        ticket += 1
        wait(g, recv, recv_slot, 0)
        wait(g, sent, send_slot, 0)
        store(times + i * _ROW, commanded - began)
        store(times + i * _ROW + 8, now_ns(g) - began)
        recv = following
        recv_slot = next_slot
    return ticket


def main() -> None:
    comm = MPI.COMM_WORLD
    if comm.size != 1:
        raise SystemExit(f"1 rank, not {comm.size}: it sends to itself")
    times = np.zeros((ROUNDS, 2), np.int64)
    with gmpi.Context(comm) as g:
        tickets = [0]
        for _ in range(REPEATS):
            address = int(times.ctypes.data)

            def play(ticket: int = tickets[-1], address: int = address) -> None:
                tickets.append(exchange(g._state.address, int(gmpi.BYTE), ticket, ROUNDS, address))

            thread = threading.Thread(target=play)
            thread.start()
            thread.join()
            p5, p50, p90 = np.percentile(times, [5, 50, 90], axis=0) / 1000
            for name, column in (("order", 0), ("complete", 1)):
                print(
                    f"{name:<9} p5 {p5[column]:5.2f}  p50 {p50[column]:5.2f}  "
                    f"p90 {p90[column]:5.2f} us",
                    flush=True,
                )
        if g.errors:
            print("errors", g.errors[:2])


main()
