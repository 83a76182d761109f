"""Random and mutated message headers through the receiving side of both engines and of the host.

    python3 tests/header_fuzz.py [headers [seed [records]]]

With ``records``, as many records first (``record_fuzz.py``): what both call is compiled once, and
with the engine, which is kept for the next process.
For the compiled engine as many as are asked for, for the protocol in Python one in a hundred
(``header_fuzz_python.py``). MPI is replaced by the stubs of ``stubbed_mpi.py``. A header must be
refused, or everything that is done because of it must be allowed: memory, ranks, tags, commands to
threads of the kernel. A receive may end with success, or as truncated, only where the message
really came: what is accepted is written down here once more, from ``gmpi/contract/wire.py`` and not
from the code under test.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from numba import njit
from record_fuzz import CONTEXT, LAYOUT, NASTY, Harness, forget, fuzz_records, next_number
from stubbed_mpi import AT, N_BAD, N_FIRST, SHARED, TAG_UB, WRONG, bad

import gmpi
import gmpi.context  # imports the whole engine
from gmpi.contract import wire
from gmpi.contract.constants import ERR_TRUNCATE
from host_proxy.compiled.dispatch import dispatch_chunk
from host_proxy.compiled.progress import progress
from host_proxy.compiled.receiving import received
from host_proxy.platform import state as st
from host_proxy.platform.native import compile_entries, get, load, load_int, put, store, store_int
from host_proxy.records.completion import staging

EAGER, CHUNK, LARGE = LAYOUT.eager_bytes, LAYOUT.chunk_bytes, wire.LARGE_BUFFERS
FIRST, SLOTS = LAYOUT.request_slots, LAYOUT.request_slots + LAYOUT.large_slots
PEERS = (-1, 0, 1)  # of each rank: elsewhere; its memory is mapped; it is not
STEPS = 40  # of a message, at most: some have 2**28 chunks
REGION = LAYOUT.large_bytes
MAILBOX = 2 * (SLOTS - FIRST) * wire.MAILBOX_STRIDE
(REFUSED, TAKEN, TRUNCATED, LONG) = range(4)  # counts
COUNTS = np.zeros(4, np.int64)


@njit
def _pick(seed, most):
    """(next seed, a number below ``most``)"""
    seed = next_number(seed)
    return seed, (seed >> 8 & 0x7FFFFFFF) % most


@njit
def write(at, seed):
    """A header, good or not: the next seed, and how many bytes have come."""
    seed, kind = _pick(seed, 8)
    if kind < 2:
        for word in range(4):
            seed = next_number(seed)
            store(at + 8 * word, seed)
        seed, nbytes = _pick(seed, wire.MESSAGE_HEADER + EAGER + 1)
        return seed, nbytes
    seed, long = _pick(seed, 3)
    if long == 0:
        seed, total = _pick(seed, EAGER + 1)
        store(at, total)
        store(at + 8, 0)
        store(at + 16, wire.NOT_SHARED)
        nbytes = wire.MESSAGE_HEADER + total
    else:
        seed, total = _pick(seed, 9000)
        seed, number = _pick(seed, 5000)
        seed, shared = _pick(seed, 3)
        seed, fits_mailbox = _pick(seed, 2)
        seed = next_number(seed)
        way = wire.P2P
        if fits_mailbox:
            way, total = wire.P2P | wire.MAILED, total % (CHUNK - EAGER)
        store(at, EAGER + 1 + total)
        store(at + 8, CHUNK | number << 32)
        store(at + 16, wire.NOT_SHARED if shared == 2 else FIRST + shared)
        store(at + 24, 0 if shared == 2 else way | (seed & 0xFFFFFFFF | 1) << 32)
        nbytes = wire.MESSAGE_HEADER
    for _ in range(kind - 4):  # up to three words are nasty, or a bit is another
        seed, how = _pick(seed, 8)
        seed, word = _pick(seed, 4)
        seed, which = _pick(seed, 64)
        if how < 2:
            store(at + 8 * word, NASTY[which % len(NASTY)])
        elif how < 5:
            store_int(at + 8 * word + 4 * (how & 1), NASTY[which % len(NASTY)])
        elif how < 7:
            store(at + 8 * word, load(at + 8 * word) ^ 1 << which)
        else:
            nbytes = max(0, min(nbytes + which - 32, wire.MESSAGE_HEADER + EAGER))
    return seed, nbytes


@njit
def may_come(at, nbytes, source):
    """Whether a message with this header may be taken: 1 a short one, 2 a long one."""
    total, word, shared, where = load(at), load(at + 8), load(at + 16), load(at + 24)
    if word == 0:
        fine = 0 <= total <= EAGER and nbytes == 32 + total and shared == wire.NOT_SHARED
        return 1 if fine else 0
    if nbytes != 32 or total <= EAGER or total >= 1 << 38:
        return 0
    if word & 0xFFFFFFFF != CHUNK or 2 * (word >> 32 & 0xFFFFFFFF) + 1 > TAG_UB:
        return 0
    if shared == wire.NOT_SHARED:
        return 2 if where == 0 else 0
    if source == 0 or shared < FIRST or shared >= SLOTS:
        return 0
    way, seq = where & 0xFFFFFFFF, where >> 32
    if source != 1 or seq & 1 == 0:
        return 0
    return 2 if way == 1 or (way == 3 and total <= CHUNK) else 0


@njit
def _open(g, slot, handle, room):
    """A receive for ``room`` bytes is open in the slot."""
    row = get(g, st.G_SLOT_TABLE) + slot * st.S_ROW_BYTES
    for field in range(st.S_COUNT):
        if field != st.S_SLOT:
            put(row, field, 0)
    put(row, st.S_STATE, st.OPEN)
    put(row, st.S_HANDLE, handle)
    put(row, st.S_OP, wire.OP_IRECV)
    put(row, st.S_PEER, 0)
    put(row, st.S_DATATYPE, gmpi.BYTE)
    put(row, st.S_BYTES, room)
    for packet in range(wire.SLOT_PACKETS):
        store(get(g, st.G_COMPLETIONS) + slot * wire.SLOT_BYTES + packet * 16 + 8, 0)
    return row


@njit
def _check_base(g, row, at, source):
    """The memory that threads of the kernel are sent to."""
    completion = get(g, st.G_COMPLETIONS) + get(row, st.S_SLOT) * wire.SLOT_BYTES
    base = load(completion + wire.BASE_PACKET * wire.PACKET_BYTES)
    shared, where = load(at + 16), load(at + 24)
    stride = LARGE * CHUNK + wire.READY_BYTES
    if where & wire.MAILED:
        groups = base >> wire.MAILED_GROUPS_SHIFT & 0x1FFF
        if base & 0xFFFF != PEERS[source] * (SLOTS - FIRST) + shared - FIRST:
            bad(20)
        if groups * 48 < load(at) or groups * 64 > wire.MAILBOX_STRIDE:
            bad(21)
        return
    slot, region = shared, get(g, st.G_LARGE_DEVICE)
    if shared == wire.NOT_SHARED:
        slot = get(row, st.S_SLOT)
    else:
        region = get(get(g, st.G_PEERS), PEERS[source] * st.P_COUNT + st.P_STAGING)
    if base != region + (slot - FIRST) * stride:
        bad(22)


@njit
def _execute(g, row, done):
    """Executes the commands that are there, and checks them: the chunks that are done, as bits."""
    completion = get(g, st.G_COMPLETIONS) + get(row, st.S_SLOT) * wire.SLOT_BYTES
    room, total = get(row, st.S_BYTES), get(row, st.S_TOTAL)
    for index in range(LARGE):
        at = completion + (wire.STATUS_PACKETS + index) * wire.PACKET_BYTES
        if load_int(at + 12) & wire.LOW_32 != get(row, st.S_HANDLE) & wire.LOW_32:
            continue
        position, length = load(at), load_int(at + 8)
        chunk = position // CHUNK
        if position >> wire.DIRECTION_SHIFT & 1 == 0:
            bad(23)
        position &= wire.POSITION_MASK
        chunk = position // CHUNK
        if chunk < 63 and done >> chunk & 1:
            continue
        if position % CHUNK or chunk % LARGE != index or length <= 0 or length > CHUNK:
            bad(24)
        if position + length > min(room, total):
            bad(25)
        done |= 1 << min(chunk, 63)
        r = get(g, st.G_RECORD)
        put(r, st.R_OP, wire.OP_CHUNK)
        put(r, st.R_HANDLE, get(row, st.S_HANDLE))
        where = position << wire.CHUNK_POSITION_SHIFT | index
        put(r, st.R_DONE, where | wire.UNPACK << wire.CHUNK_DIRECTION_SHIFT)
        dispatch_chunk(g, r)
    return done


@njit
def _follow(g, row, at, source, wrong):
    """What comes behind the header of a long message, one of it not as long as it should be."""
    _check_base(g, row, at, source)
    put(AT, WRONG, wrong)
    done = 0
    for _ in range(STEPS):
        if get(row, st.S_STATE) != st.OPEN:
            break
        if get(row, st.S_COMMANDS) > 0:
            done = _execute(g, row, done)
        elif get(g, st.G_ACTIVE) > 0:
            progress(g)
        else:
            bad(26)  # nothing can happen any more
            break
    return done


@njit
def _one(g, seed, counts):
    """One receive and what comes for it: the next seed."""
    seed, slot = _pick(seed, SLOTS)
    seed, source = _pick(seed, 3)
    seed, large = _pick(seed, 2)
    seed, room = _pick(seed, EAGER + 1)
    if large:
        slot = FIRST + slot % (SLOTS - FIRST)
        room += EAGER + 1 + room * 16
    else:
        slot %= FIRST
    seed = next_number(seed)
    handle = (seed & 0xFFFFFFFF | 1) | slot << wire.HANDLE_SLOT_SHIFT
    handle |= 2 << wire.HANDLE_PACKETS_SHIFT | large << wire.HANDLE_LARGE_SHIFT
    row = _open(g, slot, handle | CONTEXT << wire.HANDLE_CONTEXT_SHIFT, room)
    at = staging(g, slot) - wire.MESSAGE_HEADER
    seed, nbytes = write(at, seed)
    may, total = may_come(at, nbytes, source), load(at)
    seed, wrong = _pick(seed, 24)
    received(g, row, source, 7, nbytes)
    done = 0
    taken = get(row, st.S_PYTHON) == st.HANDED
    if taken:
        if may != 2 or large:
            bad(27)
        put(g, st.G_PYTHON, 0)
        put(g, st.G_HANDED, 0)
    elif may == 2 and get(row, st.S_FAILED) == 0:
        counts[LONG] += 1
        done = _follow(g, row, at, source, wrong)
    if may == 2 and not taken and not large:
        bad(28)
    if get(row, st.S_STATE) != st.OPEN:
        low = load(get(g, st.G_COMPLETIONS) + slot * wire.SLOT_BYTES)
        error, got = low >> wire.ERROR_SHIFT & 0xFF, low & wire.BYTES_MASK
        if error == 0 or (error == ERR_TRUNCATE and got > 0):
            counts[TRUNCATED if error else TAKEN] += 1
            if may == 0 or got != min(total, room) or (error != 0) != (total > room):
                bad(29)
            wanted = min(total, room)
            if (
                may == 2
                and done != (1 << (wanted + CHUNK - 1) // CHUNK) - 1
                and wanted < 62 * CHUNK
            ):
                bad(30)
            if may == 2 and get(AT, WRONG) < 0:
                bad(31)  # one of what followed was not as long as it should be
        else:
            counts[REFUSED] += 1
            if may == 1 and (room > 0 or error != ERR_TRUNCATE):
                bad(32)
    elif may != 2:
        bad(33)
    return seed


@njit
def _run(g, seed, headers, counts):
    for _ in range(headers):
        forget(g)
        seed = _one(g, seed, counts)
    return seed


def prepare(seed: int) -> Harness:
    """The state of a rank with three kinds of neighbours."""
    harness = Harness(seed)
    state = harness.state
    state.peers[0, st.P_STAGING] = harness.memory(REGION)
    state.globals[st.G_MAILBOXES] = harness.memory(MAILBOX)
    harness.ranks[:] = PEERS
    state.communicator_table[0][st.C_PEERS] = harness.ranks.ctypes.data
    return harness


def fuzz(headers: int, seed: int) -> str:
    harness = prepare(seed)
    g, number = harness.state.address, np.int64(seed * 2 + 1)
    done = 0
    while done < headers:
        number = np.int64(_run(g, number, min(1_000_000, headers - done), COUNTS))
        done += min(1_000_000, headers - done)
        first = int(SHARED[N_FIRST])
        assert SHARED[N_BAD] == 0, f"{SHARED[N_BAD]} wrong, the first of kind {first}; seed {seed}"
        harness.verify()
    from header_fuzz_python import World

    world = World(prepare(seed), seed)
    for _ in range(headers // 100):
        world.one()
    world.harness.verify()
    words = "refused", "received", "truncated", "long"
    texts = [", ".join(f"{n} {word}" for n, word in zip(c, words)) for c in (COUNTS, world.counts)]
    return f"seed {seed}: {headers} headers: {texts[0]}; in Python {texts[1]}; 0 wrong"


def main() -> int:
    headers = int(float(sys.argv[1])) if len(sys.argv) > 1 else 10_000_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns() & 0xFFFFFF
    if len(sys.argv) > 3:
        compile_entries()
        print(fuzz_records(int(float(sys.argv[3])), seed))
    print(fuzz(headers, seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
