"""Pending MPI requests of the compiled engine: an array of MPI handles, our rows beside it.

An array, because MPI_Testsome takes one; ours beside it, because the answer is an index. It is
swept window by window, and what is still pending moves together on the way:

    0 ......... G_KEPT ......... G_WINDOW ......... G_SWEEP ......... G_END
      tested and       nothing            not yet           added since
      pending                             tested            the sweep began

So requests stay in the order in which they were posted, and are answered in that order as far as
MPI completes them in it. A kernel that gets its answers in order makes its next calls in order;
where both ranks do so, MPI finds the receive for a message near the head of its list, which it
searches from there. (Answers in any order: 1024 receives, Open MPI, half the rate.)
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.contract.constants import ERR_INTERN
from host_proxy.platform import flight
from host_proxy.platform import state as st
from host_proxy.platform.native import (
    apart,
    bump,
    call,
    get,
    inlined,
    jit,
    load,
    load_int,
    put,
    store,
    store_int,
)


@apart
def error_class(g, code):
    """MPI_Error_class."""
    if code == 0:
        return 0
    call(get(g, st.F_ERROR_CLASS), (code, get(g, st.G_OUTCOUNT)))
    return load_int(get(g, st.G_OUTCOUNT))


@inlined
def entry_at(g, number):
    """Address of our row beside the MPI handle ``number``."""
    return get(g, st.G_PENDING_TABLE) + number * st.A_ROW_BYTES


@inlined
def next_handle(g):
    """Address of the MPI handle of the next request to be added."""
    return get(g, st.G_HANDLES) + get(g, st.G_END) * get(g, st.G_HANDLE_BYTES)


@inlined
def add(g, row, kind, index):
    """Keeps the MPI request that has just been written at ``next_handle``."""
    at = entry_at(g, get(g, st.G_END))
    put(at, st.A_SLOT, get(row, st.S_SLOT))
    put(at, st.A_KIND, kind)
    put(at, st.A_INDEX, index)
    bump(row, st.S_PENDING, 1)
    bump(g, st.G_END, 1)
    bump(g, st.G_ACTIVE, 1)


@jit
def keep(g, begin, end):
    """Moves what is still pending of a range behind what the sweep has kept before."""
    kept = get(g, st.G_KEPT)
    handles = get(g, st.G_HANDLES)
    for number in range(begin, end):
        at = entry_at(g, number)
        if get(at, st.A_SLOT) == st.GONE:
            continue
        if kept != number:
            for column in range(st.A_COUNT):
                put(entry_at(g, kept), column, get(at, column))
            if get(g, st.G_HANDLE_BYTES) == 8:
                store(handles + kept * 8, load(handles + number * 8))
            else:
                store_int(handles + kept * 4, load_int(handles + number * 4))
        kept += 1
    put(g, st.G_KEPT, kept)


@inlined
def is_full(g):
    """Whether one more request would not fit. It never is: a count that is wrong must not write
    past the handles, but end the request that it is about."""
    return get(g, st.G_END) >= get(g, st.G_CAPACITY)


# wide: as MPI's, and what it is kept for
@jit
def send(g, row, address, nbytes, dest, tag, comm, kind, index):
    """MPI_Isend of bytes for an open request, kept; MPI's error code. ``comm`` is an MPI handle."""
    if is_full(g):
        return ERR_INTERN
    byte = get(g, st.G_BYTE)
    flight.called(g, row, st.F_ISEND, dest, tag, nbytes)
    code = call(get(g, st.F_ISEND), (address, nbytes, byte, dest, tag, comm, next_handle(g)))
    flight.returned(g, code)
    if code == 0:
        add(g, row, kind, index)
    return code


# wide: as ``send``
@inlined
def receive(g, row, address, nbytes, source, tag, comm, kind, index):
    """``send`` for MPI_Irecv."""
    if is_full(g):
        return ERR_INTERN
    byte = get(g, st.G_BYTE)
    flight.called(g, row, st.F_IRECV, source, tag, nbytes)
    code = call(get(g, st.F_IRECV), (address, nbytes, byte, source, tag, comm, next_handle(g)))
    flight.returned(g, code)
    if code == 0:
        add(g, row, kind, index)
    return code


@inlined
def test(g):
    """MPI_Test of a request that has just been made and is not kept yet: (whether it is over,
    MPI's error code)."""
    flag = get(g, st.G_OUTCOUNT)
    store_int(flag, 0)
    code = call(get(g, st.F_TEST), (next_handle(g), flag, get(g, st.G_STATUS)))
    return load_int(flag) != 0, code


@jit
def forget(g):
    """MPI_Request_free of a request that has just been made: nobody waits for it. MPI's error
    code."""
    return call(get(g, st.F_REQUEST_FREE), (next_handle(g),))
