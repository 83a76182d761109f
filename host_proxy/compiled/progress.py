"""What MPI has finished: one Testsome a turn over a window of the pending requests."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.contract.constants import ANY_SOURCE, ANY_TAG, SUCCESS
from gmpi.contract.wire import OP_SYNCHRONIZE
from host_proxy.compiled import pending, streams
from host_proxy.compiled.collectives import collective_done, collective_failed
from host_proxy.compiled.receiving import receive_failed, received, received_chunk
from host_proxy.compiled.sending import credited, sent, sent_chunk
from host_proxy.platform import flight, trace
from host_proxy.platform import state as st
from host_proxy.platform.native import (
    apart,
    bump,
    call,
    entry,
    get,
    inlined,
    load_int,
    put,
    store_int,
)
from host_proxy.records.completion import complete
from host_proxy.records.tables import row_of

_WIDTH = 16  # requests to test for each that completes
_MEMORY = 8  # calls of MPI_Testsome over which that is averaged


@inlined
def finished(g, row, kind, index, code, status):
    """One MPI request of an open request has completed, with MPI's error code."""
    bump(row, st.S_PENDING, -1)
    trace.arrived(g, row)
    flight.finished(g, row, code)
    source = load_int(status + get(g, st.G_STATUS_SOURCE))
    tag = load_int(status + get(g, st.G_STATUS_TAG))
    nbytes = load_int(status + get(g, st.G_STATUS_COUNT))
    well = code == 0 and get(row, st.S_FAILED) == 0
    if well and kind == st.RECEIVE:
        received(g, row, source, tag, nbytes)
    elif well and kind == st.SEND:
        sent(g, row)
    elif kind == st.RECEIVE and code != 0:
        receive_failed(g, row, source, tag, nbytes, code)
    else:
        _finished_part(g, row, kind, index, code, nbytes)


@apart
def _finished_part(g, row, kind, index, code, nbytes):
    """The same of a part of a long message, of a collective, or of a request that fails."""
    if kind == st.RECEIVE_CHUNK or kind == st.CREDIT:
        bump(row, st.S_ARRIVED, 1)
        if code == 0 and not streams.hear(g, row, index, nbytes):
            return
    if code != 0:
        if kind == st.COLLECTIVE:
            collective_failed(g, row, code)
        else:
            streams.fail(g, row, code)
    elif get(row, st.S_FAILED) != 0:
        streams.settle(g, row)
    elif kind == st.SEND_CHUNK:
        sent_chunk(g, row, index)
    elif kind == st.RECEIVE_CHUNK:
        received_chunk(g, row, index)
    elif kind == st.CREDIT:
        credited(g, row, index)
    else:
        collective_done(g, row)


@inlined
def take_out(g, at, status, error):
    """Passes on what MPI has completed, and marks its row for ``keep``."""
    row = row_of(g, get(at, st.A_SLOT))
    put(at, st.A_SLOT, st.GONE)
    bump(g, st.G_ACTIVE, -1)
    finished(g, row, get(at, st.A_KIND), get(at, st.A_INDEX), error, status)
    trace.carried_on(g)


@apart
def test_each(g, begin, size):
    """Asks for each request of a window by itself, because MPI_Testsome has failed as a whole.

    Only so is it known whose fault it was; the others go on.
    """
    done = 0
    flag = get(g, st.G_OUTCOUNT)
    status = get(g, st.G_STATUS)
    for number in range(begin, begin + size):
        at = pending.entry_at(g, number)
        handle = get(g, st.G_HANDLES) + number * get(g, st.G_HANDLE_BYTES)
        store_int(flag, 0)
        code = call(get(g, st.F_TEST), (handle, flag, status))
        if code == 0 and load_int(flag) == 0:
            continue
        done += 1
        take_out(g, at, status, code)
    return done


@inlined
def test_some(g, begin, size):
    """Passes on what has completed of a window: how many."""
    outcount = get(g, st.G_OUTCOUNT)
    statuses = get(g, st.G_STATUSES)
    indices = get(g, st.G_INDICES)
    store_int(outcount, 0)
    handles = get(g, st.G_HANDLES) + begin * get(g, st.G_HANDLE_BYTES)
    put(g, st.G_INSIDE, st.F_TESTSOME)
    code = call(get(g, st.F_TESTSOME), (size, handles, outcount, indices, statuses))
    done = load_int(outcount)
    in_status = False
    if code != 0:
        in_status = pending.error_class(g, code) == get(g, st.G_ERR_IN_STATUS)
        if not in_status:
            return test_each(g, begin, size)
    if done <= 0:  # nothing, or MPI_UNDEFINED
        return 0
    # Handling one may add requests at the end and use G_OUTCOUNT, never the window itself.
    for i in range(done):
        at = pending.entry_at(g, begin + load_int(indices + 4 * i))
        status = statuses + i * get(g, st.G_STATUS_BYTES)
        error = 0
        if in_status:
            error = load_int(status + get(g, st.G_STATUS_ERROR))
        take_out(g, at, status, error)
    return done


@inlined
def window(g):
    """How many requests the next MPI_Testsome gets: some times what such calls complete.

    A call takes messages in before it looks at the requests: MPICH one, Open MPI dozens. With more
    requests than that is worth, it is the looking that costs; with fewer, answers are found late
    and in less order.
    """
    return max(st.WINDOW_LEAST, min(get(g, st.G_FOUND) * _WIDTH // st.FOUND_ONE, st.WINDOW))


@apart
def progress(g):
    """Tests a window of the pending requests, of which there are some: how many have completed."""
    begin = get(g, st.G_WINDOW)
    if begin == 0:
        put(g, st.G_SWEEP, get(g, st.G_END))
    end = min(begin + window(g), get(g, st.G_SWEEP))
    done = test_some(g, begin, end - begin)
    bump(g, st.G_FOUND, (done * st.FOUND_ONE - get(g, st.G_FOUND)) // _MEMORY)
    if done == 0 and get(g, st.G_KEPT) == begin:
        put(g, st.G_KEPT, end)  # nothing has moved so far
    else:
        pending.keep(g, begin, end)
    put(g, st.G_WINDOW, end)
    if end == get(g, st.G_SWEEP):
        pending.keep(g, end, get(g, st.G_END))
        put(g, st.G_END, get(g, st.G_KEPT))
        put(g, st.G_KEPT, 0)
        put(g, st.G_WINDOW, 0)
    return done


@entry
def release_synchronizes(g):
    """Completes SYNCHRONIZE requests before which nothing is open any more."""
    if get(g, st.G_SYNCS) == 0 or get(g, st.G_SYNC_SEEN) == get(g, st.G_CLOSED):
        return
    put(g, st.G_SYNC_SEEN, get(g, st.G_CLOSED))
    oldest = 1 << 62
    for slot in range(get(g, st.G_SLOTS)):
        row = row_of(g, slot)
        if get(row, st.S_STATE) == st.OPEN and get(row, st.S_OP) != OP_SYNCHRONIZE:
            oldest = min(oldest, get(row, st.S_SERIAL))
    for slot in range(get(g, st.G_SLOTS)):
        row = row_of(g, slot)
        if get(row, st.S_STATE) == st.OPEN and get(row, st.S_OP) == OP_SYNCHRONIZE:
            if get(row, st.S_SERIAL) < oldest:
                bump(g, st.G_SYNCS, -1)
                complete(g, row, 0, SUCCESS, ANY_SOURCE, ANY_TAG)
