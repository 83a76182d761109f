"""What the compiled engine can take, without a GPU: a compiled producer on the other core.

    python tests/proxy_bench.py

Not a test: what to look at before changing the proxy's loop. Messages go to the process itself.
"""

import threading
import time

from mpi4py import MPI

import gmpi
from gmpi.wire import (
    FLAG_BACK,
    FLAG_INLINE,
    FLAG_OUT,
    HANDLE_CONTEXT_SHIFT,
    HANDLE_SLOT_SHIFT,
    HANDLE_UNITS_SHIFT,
    OP_IRECV,
    OP_ISEND,
    OP_NULL,
    OP_PING,
    SLOT_BYTES,
    TAG_MASK,
)
from host_proxy import state as gmpi_state
from host_proxy.native import entry, load_acquire, pause, store, store_release


@entry
def produce(mapped, ring, ring_slots, completions, context, op, datatype, first, n, slots):
    """Publishes n records as a kernel would, each with slot ``i % slots``, and waits for them."""
    window = slots
    for i in range(n + window):
        if i >= window and op != OP_NULL:
            j = i - window
            mark = ((first + j) << 1 | 1) & TAG_MASK
            address = completions + (j % slots) * SLOT_BYTES
            while (load_acquire(address + 8) >> 32) & TAG_MASK != mark:
                pause()
        if i >= n:
            continue
        ticket = first + i
        while ticket - load_acquire(mapped + 64) >= ring_slots:
            pause()
        mark = (ticket << 1 | 1) & TAG_MASK
        slot = i % slots
        this = op
        flags = 0
        units = 1
        count = 0
        if op == OP_ISEND:  # alternately a receive and a send, 8 bytes, to ourselves
            count = 8
            if i % 2 == 0:
                this = OP_IRECV
                flags = FLAG_BACK
                units = 3
            else:
                flags = FLAG_OUT | FLAG_INLINE
        handle = (
            mark | slot << HANDLE_SLOT_SHIFT | units << HANDLE_UNITS_SHIFT
            | context << HANDLE_CONTEXT_SHIFT
        )  # fmt: skip
        address = ring + (ticket & (ring_slots - 1)) * SLOT_BYTES
        if flags & FLAG_INLINE:
            store(address + 64, i)
            store_release(address + 72, mark << 32)
        store(address, this | flags << 8 | datatype << 32)
        store_release(address + 8, mark << 32)
        store(address + 16, count)
        store_release(address + 24, 5 | mark << 32)
        store(address + 32, handle)
        store_release(address + 40, mark << 32)
        store(address + 48, 0)
        store_release(address + 56, mark << 32)


def main():
    with gmpi.Context(MPI.COMM_SELF, gpu=False) as g:
        state = g._state
        layout = g.layout
        host = g._memory.host
        first = 0
        for name, op, n, slots in (
            ("null records", OP_NULL, 2_000_000, 1),
            ("pings", OP_PING, 1_000_000, 64),
            ("pings, 1 at a time", OP_PING, 300_000, 1),
            ("self messages x 2", OP_ISEND, 600_000, 64),
            ("self messages x 2, many slots", OP_ISEND, 600_000, 2048),
        ):
            for count in (1000, n):
                arguments = (
                    host, host + layout.ring, layout.ring_slots, host + layout.completions,
                    int(state.globals[gmpi_state.G_CONTEXT]), op, gmpi.BYTE, first, count, slots,
                )  # fmt: skip
                thread = threading.Thread(target=produce, args=arguments)
                begin = time.perf_counter()
                thread.start()
                thread.join()
                seconds = time.perf_counter() - begin
                first += count
            print(f"{name:<32}{n / seconds / 1e6:8.2f} M/s{seconds / n * 1e9:8.0f} ns", flush=True)
        print("errors", g.errors[:2])


main()
