"""Stubs in place of MPI's functions, for the fuzzer of records (``record_fuzz.py``).

They note each call whose arguments could do harm, and let everything complete at the next progress.
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI
from numba import cfunc, njit, types

from gmpi.contract import moves, wire
from gmpi.contract.constants import DATATYPES, OPERATIONS_REDUCE
from host_proxy.compiled.transfer import length_of
from host_proxy.platform import state as st
from host_proxy.platform.native import bump, get, load, put, store, store_int
from host_proxy.records.completion import staging

SIZE = 3
MESSAGES, CHUNKS = 0x4400_0011, 0x4400_0022  # handles of the communicators

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


def install(g: np.ndarray) -> None:
    """The compiled engine calls them, and nothing else of MPI."""
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
