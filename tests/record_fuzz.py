"""Random and mutated records through the compiled decoder and dispatcher, with MPI stubbed.

    python3 tests/record_fuzz.py [records [seed]]

No MPI function is called: stubs take their place, note each call whose arguments could do harm, and
let everything complete at the next progress. What could do harm: memory outside the context's
staging, a rank, tag, communicator, datatype or reduction that is not allowed, more pending requests
than there is room for. Around the memory lie canaries.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from mpi4py import MPI
from numba import cfunc, njit, types

from gmpi.contract import moves, sizes, wire
from gmpi.contract.constants import DATATYPE_MARK, DATATYPES, OPERATIONS_REDUCE
from host_proxy.compiled.dispatch import count_null, dispatch, wants_python
from host_proxy.compiled.progress import progress, release_synchronizes
from host_proxy.compiled.transfer import length_of
from host_proxy.platform import state as st
from host_proxy.platform.make_state import Habits, make_state
from host_proxy.platform.native import bump, get, load, put, store, store_int
from host_proxy.records.completion import staging
from host_proxy.records.ring import decode, return_slots, take

LAYOUT = sizes.Layout(64, 32, 2, 512, 1024)
SLOTS, REQUEST_SLOTS = LAYOUT.slots, LAYOUT.request_slots
LARGE_END, FIRST_NARROW = REQUEST_SLOTS + LAYOUT.large_slots, LAYOUT.first_narrow
CONTEXT = 5
PER_CONTEXT = 256  # records after which all slots are free again
SIZE = 3
MESSAGES, CHUNKS = 0x4400_0011, 0x4400_0022  # handles of the communicators
CANARY = 0x5A
GUARD = 1 << 16
BATCH = 100_000  # records between two looks at the canaries

# What the stubs share with the harness.
(N_CALLS, N_BAD, N_ISEND, N_IRECV, N_COLLECTIVE, N_FIRST, G_ADDRESS, LOW, HIGH, LARGE_LOW,
 LARGE_HIGH, NOTES_LOW, NOTES_HIGH, HANDLES_LOW, HANDLES_HIGH, WRONG) = range(16)  # fmt: skip
SHARED = np.zeros(16, np.int64)
AT = int(SHARED.ctypes.data)

TAG_UB = int(MPI.COMM_WORLD.Get_attr(MPI.TAG_UB))
_ANY_SOURCE, _ANY_TAG = int(MPI.ANY_SOURCE), int(MPI.ANY_TAG)
_MOVES = len(moves.ROWS)
_DATATYPES, _REDUCTIONS = len(DATATYPES), len(OPERATIONS_REDUCE)
_SIZES = np.array([dtype.itemsize for _, _, dtype in DATATYPES], np.int64)
NASTY = np.array(
    [0, 1, -1, -2, 2, 3, 31, 32, 33, 34, 127, 128, 144, 145, 255, 256, 512, 513, 1024, 4096, 5000,
     65535, 1 << 24, 1 << 31, (1 << 31) - 1, -(1 << 31), 1 << 32, 1 << 38, (1 << 63) - 1,
     -(1 << 63), TAG_UB, TAG_UB + 1],
    np.int64,
)  # fmt: skip


@njit
def bad(number):
    if get(AT, N_BAD) == 0:
        put(AT, N_FIRST, number)
    bump(AT, N_BAD, 1)


@njit
def _check_memory(address, nbytes, request):
    inside = nbytes >= 0 and (
        (address >= get(AT, LOW) and address + nbytes <= get(AT, HIGH))
        or (address >= get(AT, LARGE_LOW) and address + nbytes <= get(AT, LARGE_HIGH))
        or (address >= get(AT, NOTES_LOW) and address + nbytes <= get(AT, NOTES_HIGH))
    )
    if not inside:
        bad(1)
    if request < get(AT, HANDLES_LOW) or request >= get(AT, HANDLES_HIGH):
        bad(2)


@njit
def _check_message(peer, tag, comm, wildcards):
    if (peer < 0 or peer >= SIZE) and not (wildcards and peer == _ANY_SOURCE):
        bad(3)
    if (tag < 0 or tag > TAG_UB) and not (wildcards and tag == _ANY_TAG):
        bad(4)
    if comm not in (MESSAGES, CHUNKS):
        bad(5)


_I = types.int64


@cfunc(types.int32(_I, _I, _I, _I, _I, _I, _I))
def _isend(address, nbytes, datatype, dest, tag, comm, request):
    bump(AT, N_CALLS, 1)
    bump(AT, N_ISEND, 1)
    _check_memory(address, nbytes, request)
    _check_message(dest, tag, comm, False)
    return 0


@cfunc(types.int32(_I, _I, _I, _I, _I, _I, _I))
def _irecv(address, nbytes, datatype, source, tag, comm, request):
    bump(AT, N_CALLS, 1)
    bump(AT, N_IRECV, 1)
    _check_memory(address, nbytes, request)
    _check_message(source, tag, comm, True)
    if comm == MESSAGES:  # a header as another proxy writes it: short, or of a long message
        if get(AT, N_IRECV) & 1:
            store(address, 8)
            store(address + 8, 0)
        else:
            store(address, 7000)
            store(address + 8, 1024 | 3 << 32)
        store(address + 16, wire.NOT_SHARED)
        store(address + 24, 0)
    return 0


@njit
def _collective(data, nbytes, comm, request):
    bump(AT, N_CALLS, 1)
    bump(AT, N_COLLECTIVE, 1)
    _check_memory(data, nbytes, request)
    if comm != MESSAGES:
        bad(6)


@cfunc(types.int32(_I, _I, _I, _I, _I, _I, _I))
def _iallreduce(in_place, data, count, datatype, reduction, comm, request):
    g = get(AT, G_ADDRESS)
    size = 0
    for i in range(_DATATYPES):
        if get(get(g, st.G_DATATYPES), i * st.D_COUNT + st.D_HANDLE) == datatype:
            size = max(size, _SIZES[i])
    known = False
    for i in range(_REDUCTIONS):
        known |= get(get(g, st.G_REDUCTIONS), i) == reduction
    if size == 0 or not known or count < 0:
        bad(7)
    _collective(data, count * size, comm, request)
    return 0


@cfunc(types.int32(_I, _I, _I, _I, _I, _I))
def _ibcast(data, nbytes, datatype, root, comm, request):
    if root < 0 or root >= SIZE:
        bad(8)
    _collective(data, nbytes, comm, request)
    return 0


@cfunc(types.int32(_I, _I))
def _ibarrier(comm, request):
    _collective(get(AT, LOW), 0, comm, request)
    return 0


@njit
def _size_of(datatype):
    g = get(AT, G_ADDRESS)
    size = 0
    for i in range(_DATATYPES):
        if get(get(g, st.G_DATATYPES), i * st.D_COUNT + st.D_HANDLE) == datatype:
            size = max(size, _SIZES[i])
    if size == 0:
        bad(12)
    return size


@njit
def _moved(send, result, count, datatype, comm, request):
    """At least one block each way, but where it is IN_PLACE."""
    in_place = get(get(AT, G_ADDRESS), st.G_IN_PLACE)
    nbytes = count * _size_of(datatype)
    if count < 0:
        bad(12)
    for at in (send, result):
        if at != in_place:
            _collective(at, nbytes if at == send else 0, comm, request)


@cfunc(types.int32(_I, _I, _I, _I, _I, _I, _I, _I))
def _rooted_reduction(send, result, count, datatype, reduction, root, comm, request):
    if root < 0 or root >= SIZE:
        bad(8)
    _moved(send, result, count, datatype, comm, request)
    return 0


@cfunc(types.int32(_I, _I, _I, _I, _I, _I, _I))
def _reduction(send, result, count, datatype, reduction, comm, request):
    _moved(send, result, count, datatype, comm, request)
    return 0


@cfunc(types.int32(_I, _I, _I, _I, _I, _I, _I, _I, _I))
def _rooted(send, count, datatype, result, got, of, root, comm, request):
    if root < 0 or root >= SIZE or got != count or of != datatype:
        bad(8)
    _moved(send, result, 0 if root != 0 else count, datatype, comm, request)
    return 0


@cfunc(types.int32(_I, _I, _I, _I, _I, _I, _I, _I))
def _unrooted(send, count, datatype, result, got, of, comm, request):
    if got != count or of != datatype:
        bad(8)
    _moved(send, result, count, datatype, comm, request)
    return 0


@cfunc(types.int32(_I, _I, _I))
def _test(request, flag, status):
    store_int(flag, get(AT, N_CALLS) & 1)
    return 0


@njit
def _came(g, number):
    """Bytes that the pending request ``number`` has got."""
    at = get(g, st.G_PENDING_TABLE) + number * st.A_ROW_BYTES
    slot = get(at, st.A_SLOT)
    row = get(g, st.G_SLOT_TABLE) + slot * st.S_ROW_BYTES
    if get(at, st.A_KIND) == st.RECEIVE_CHUNK:
        nbytes = length_of(row, get(at, st.A_INDEX))
        if get(row, st.S_SHARED) != wire.NOT_SHARED:
            nbytes = 0
        bump(AT, WRONG, -1)  # the one with which it gets negative is not as long as it should be
        return nbytes + 1 if get(AT, WRONG) == -1 else nbytes
    if get(at, st.A_KIND) != st.RECEIVE:
        return 0
    header = staging(g, slot) - wire.MESSAGE_HEADER
    return wire.MESSAGE_HEADER + (0 if load(header + 8) else load(header))


@cfunc(types.int32(_I, _I, _I, _I, _I))
def _testsome(count, requests, outcount, indices, statuses):
    g = get(AT, G_ADDRESS)
    if count < 0 or count > st.WINDOW:
        bad(9)
    first = (requests - get(g, st.G_HANDLES)) // get(g, st.G_HANDLE_BYTES)
    for i in range(count):
        store_int(indices + 4 * i, i)
        status = statuses + i * get(g, st.G_STATUS_BYTES)
        store_int(status + get(g, st.G_STATUS_SOURCE), i % SIZE)
        store_int(status + get(g, st.G_STATUS_TAG), i)
        store_int(status + get(g, st.G_STATUS_ERROR), 0)
        store_int(status + get(g, st.G_STATUS_COUNT), _came(g, first + i))
    store_int(outcount, count)
    return 0


@cfunc(types.int32(_I))
def _free(request):
    return 0


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
        for field, stub in (
            (st.F_ISEND, _isend), (st.F_ISSEND, _isend), (st.F_IRECV, _irecv), (st.F_TEST, _test),
            (st.F_TESTSOME, _testsome), (st.F_IALLREDUCE, _iallreduce), (st.F_IBCAST, _ibcast),
            (st.F_IBARRIER, _ibarrier), (st.F_REQUEST_FREE, _free),
        ):  # fmt: skip
            g[field] = stub.address
        for i, move in enumerate(moves.ROWS):
            reducing = _rooted_reduction if move.rooted else _reduction
            moving = _rooted if move.rooted else _unrooted
            g[st.F_MOVING + i] = (reducing if move.reduces else moving).address
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
