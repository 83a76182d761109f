"""Random and mutated records through the compiled decoder and dispatcher, with MPI stubbed.

    python3 tests/record_fuzz.py [records [seed]]

No MPI function is called: stubs (``stubbed_mpi.py``) take their place, note each call whose
arguments could do harm, and let everything complete at the next progress. What could do harm:
memory outside the context's staging, a rank, tag, communicator, datatype or reduction that is not
allowed, more pending requests than there is room for. Around the memory lie canaries.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from numba import njit
from stubbed_mpi import (
    CHUNKS,
    G_ADDRESS,
    HANDLES_HIGH,
    HANDLES_LOW,
    HIGH,
    LARGE_HIGH,
    LARGE_LOW,
    LOW,
    MESSAGES,
    N_BAD,
    N_COLLECTIVE,
    N_FIRST,
    N_IRECV,
    N_ISEND,
    NOTES_HIGH,
    NOTES_LOW,
    SHARED,
    SIZE,
    TAG_UB,
    WRONG,
    bad,
    install,
)

from gmpi.contract import moves, sizes, wire
from gmpi.contract.constants import DATATYPE_MARK, DATATYPES
from host_proxy.compiled.dispatch import count_null, dispatch, wants_python
from host_proxy.compiled.progress import progress, release_synchronizes
from host_proxy.platform import state as st
from host_proxy.platform.make_state import Habits, make_state
from host_proxy.platform.native import get, load, put, store, store_int
from host_proxy.records.ring import decode, return_slots, take

LAYOUT = sizes.Layout(64, 32, 2, 512, 1024)
SLOTS, REQUEST_SLOTS = LAYOUT.slots, LAYOUT.request_slots
LARGE_END, FIRST_NARROW = REQUEST_SLOTS + LAYOUT.large_slots, LAYOUT.first_narrow
CONTEXT = 5
PER_CONTEXT = 256  # records after which all slots are free again
CANARY = 0x5A
GUARD = 1 << 16
BATCH = 100_000  # records between two looks at the canaries

_MOVES = len(moves.ROWS)
_DATATYPES = len(DATATYPES)
_SIZES = np.array([dtype.itemsize for _, _, dtype in DATATYPES], np.int64)
NASTY = np.array(
    [0, 1, -1, -2, 2, 3, 31, 32, 33, 34, 127, 128, 144, 145, 255, 256, 512, 513, 1024, 4096, 5000,
     65535, 1 << 24, 1 << 31, (1 << 31) - 1, -(1 << 31), 1 << 32, 1 << 38, (1 << 63) - 1,
     -(1 << 63), TAG_UB, TAG_UB + 1],
    np.int64,
)  # fmt: skip


@njit
def next_number(seed):
    seed ^= seed << 13
    seed ^= (seed >> 7) & 0x1FFFFFFFFFFFFFF
    seed ^= seed << 17
    return seed


@njit
def _write(g, seed):
    """One record at the head of the ring: random, or a good one in which something is wrong."""
    head = get(g, st.G_HEAD)
    record = get(g, st.G_RING) + (head & (get(g, st.G_RING_SLOTS) - 1)) * wire.SLOT_BYTES
    seq = ((head << 1) | 1) & wire.LOW_32
    for word in range(wire.SLOT_BYTES // 8):
        seed = next_number(seed)
        store(record + word * 8, seed)
    seed = next_number(seed)
    kind = seed & 7
    if kind > 1:  # a good record
        seed = next_number(seed)
        op = (seed >> 3 & 15) % 11
        if seed >> 56 & 7 == 0:
            op = wire.FIRST_MOVING + (seed >> 3 & 63) % _MOVES
        slot = (seed >> 8 & 63) % (LARGE_END + 2)
        if slot >= LARGE_END:
            slot += FIRST_NARROW - LARGE_END
        number = (seed >> 16 & 63) % _DATATYPES
        size = _SIZES[number]
        count = seed >> 24 & 31
        large = slot >= REQUEST_SLOTS
        if large:
            count = 600 + (seed >> 24 & 8191)
        flags = wire.FLAG_OUT
        if op >= wire.FIRST_MOVING:
            flags |= wire.FLAG_BACK
        elif count * size <= wire.INLINE_BYTES:
            flags |= wire.FLAG_INLINE
        datatype = DATATYPE_MARK | size << 8 | number
        handle = seq | slot << wire.HANDLE_SLOT_SHIFT | CONTEXT << wire.HANDLE_CONTEXT_SHIFT
        handle |= (1 + (seed >> 40 & 7)) << wire.HANDLE_PACKETS_SHIFT
        handle |= large << wire.HANDLE_LARGE_SHIFT
        row = get(g, st.G_SLOT_TABLE) + slot * st.S_ROW_BYTES
        done = seed >> 45 & 7
        if op == wire.OP_CHUNK:  # of a request that may be open, and a command that may be
            handle = get(row, st.S_HANDLE)
            chunk = seed >> 45 & 31
            position = chunk * get(row, st.S_CHUNK)
            done = position << wire.CHUNK_POSITION_SHIFT | (seed >> 52 & 1) << 7 | chunk % 4
        store(record, op | flags << 8 | datatype << 32)
        store_int(record + 8, seed >> 48 & 3)
        store(record + 16, count)
        store_int(record + 24, seed >> 50 & 7)
        store(record + 32, handle)
        store(record + 48, done)
        seed = next_number(seed)
        for _ in range(kind - 3):  # up to four words of it are nasty, or a bit is another
            at = record + (seed >> 4 & 7) * 8
            if seed & 8:
                store(at, NASTY[(seed >> 8 & 63) % len(NASTY)])
            elif seed & 4:
                store_int(at + 4 * (seed >> 3 & 1), NASTY[(seed >> 8 & 63) % len(NASTY)])
            else:
                store(at, load(at) ^ 1 << (seed >> 8 & 63))
            seed = next_number(seed)
    packets = wire.SLOT_PACKETS
    if seed & 0xF00 == 0:
        packets = wire.HEADER_PACKETS + (seed & 7)  # payload that is announced and never comes
    for packet in range(packets):
        store_int(record + packet * wire.PACKET_BYTES + 12, seq)
    return seed


@njit
def forget(g):
    """As in a new context: else requests whose commands nobody executes hold all the slots."""
    put(g, st.G_ACTIVE, 0)
    put(g, st.G_END, 0)
    put(g, st.G_KEPT, 0)
    put(g, st.G_WINDOW, 0)
    put(g, st.G_SYNCS, 0)
    for bits in (st.G_DOORBELL, st.G_COMMANDED, st.G_QUIET, st.G_HELPED):
        put(g, bits, 0)
    put(g, st.G_NARROW_BLOCKS, 0)
    for word in range(st.NARROW_BYTES // 8):
        put(get(g, st.G_NARROW), word, 0)
    for word in range(wire.NARROW_WORDS):
        store(get(g, st.G_CONTROL) + wire.CONTROL_NARROW + word * 8, 0)
    for slot in range(SLOTS):
        row = get(g, st.G_SLOT_TABLE) + slot * st.S_ROW_BYTES
        if get(row, st.S_SLOT) != slot or get(row, st.S_COMMANDS) < 0 or get(row, st.S_PENDING) < 0:
            bad(11)
        put(row, st.S_STATE, st.FREE)
        put(row, st.S_COMMANDS, 0)
        put(row, st.S_PENDING, 0)


@njit
def _run(g, seed, records):
    """Writes and serves records; how many were for the mpi4py engine, which is not there."""
    r = get(g, st.G_RECORD)
    skipped = 0
    for i in range(records):
        if i % PER_CONTEXT == 0:
            forget(g)
        seed = _write(g, seed)
        put(g, st.G_LATE_SINCE, 1)  # long ago: nobody waits for a payload that does not come
        if not decode(g):
            bad(10)
        if get(r, st.R_OP) == wire.OP_NULL:
            count_null(g, get(r, st.R_ELEMENTS))
        elif wants_python(g, r):
            skipped += 1
        else:
            dispatch(g, r)
        take(g)
        if i & 7 == 0:
            return_slots(g)
            progress(g)
            release_synchronizes(g)
    return seed, skipped


class Harness:
    """A proxy's state without a proxy, and memory with canaries around it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed * 2 + 1
        self.blocks: list[tuple[np.ndarray, int, int]] = []
        mapped = self.memory(LAYOUT.mapped_bytes)
        peers = np.zeros((3, st.P_COUNT), np.int64)
        habits = Habits(flight=64, crowded=True)
        self.state = make_state(LAYOUT, mapped, (mapped, 0, 0), peers, CONTEXT, habits, st.no_gpu)
        self.ranks = np.array([-1, -1, -1], np.int64)  # all elsewhere
        row = self.state.communicator_table[0]
        row[st.C_HANDLE], row[st.C_CHUNKS] = MESSAGES, CHUNKS
        row[st.C_RANK], row[st.C_SIZE] = 0, SIZE
        row[st.C_PEERS] = self.ranks.ctypes.data
        self.p2p = np.zeros(3, np.int64)
        row[st.C_P2P] = self.p2p.ctypes.data
        g = self.state.globals
        install(g)
        SHARED[:] = 0
        SHARED[WRONG] = 1 << 62
        SHARED[G_ADDRESS] = self.state.address
        SHARED[LOW], SHARED[HIGH] = mapped + LAYOUT.small, mapped + LAYOUT.large
        SHARED[LARGE_LOW], SHARED[LARGE_HIGH] = SHARED[HIGH], mapped + LAYOUT.mapped_bytes
        SHARED[NOTES_LOW] = g[st.G_NOTES]
        SHARED[NOTES_HIGH] = g[st.G_NOTES] + SLOTS * st.NOTE_BYTES
        SHARED[HANDLES_LOW] = g[st.G_HANDLES]
        room = len(self.state.pending) * g[st.G_HANDLE_BYTES]
        SHARED[HANDLES_HIGH] = g[st.G_HANDLES] + room

    def memory(self, nbytes: int) -> int:
        block = np.full(nbytes + 2 * GUARD + 4096, CANARY, np.uint8)
        at = (-(int(block.ctypes.data) + GUARD) % 4096) + GUARD
        block[at : at + nbytes] = 0
        self.blocks.append((block, at, nbytes))
        return int(block.ctypes.data) + at

    def run(self, records: int) -> int:
        """Serves records; how many of them were left to the mpi4py engine."""
        self.seed, skipped = _run(self.state.address, self.seed, records)
        return int(skipped)

    def verify(self) -> None:
        """No harmful call, nothing written outside."""
        first = int(SHARED[N_FIRST])
        assert SHARED[N_BAD] == 0, f"{SHARED[N_BAD]} harmful calls, the first of kind {first}"
        for block, at, nbytes in self.blocks:
            assert (block[:at] == CANARY).all(), "written before the memory"
            assert (block[at + nbytes :] == CANARY).all(), "written behind the memory"
        slots = self.state.slots
        assert (slots[:, st.S_SLOT] == np.arange(len(slots))).all(), "a row was overwritten"


def fuzz_records(records: int, seed: int) -> str:
    """Serves so many, or a few more; what became of them."""
    harness = Harness(seed)
    done = skipped = 0
    while done < records:
        skipped += harness.run(BATCH)
        done += BATCH
        harness.verify()
    names = {N_ISEND: "sends", N_IRECV: "receives", N_COLLECTIVE: "collectives"}
    counts = ", ".join(f"{SHARED[i]} {name}" for i, name in names.items())
    refused = int(harness.state.globals[st.G_FAULTS])
    return f"seed {seed}: {done} records, {refused} faults, {counts}, {skipped} skipped; 0 harmful"


def main() -> int:
    records = int(float(sys.argv[1])) if len(sys.argv) > 1 else 10_000_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns() & 0xFFFFFF
    print(fuzz_records(records, seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
