"""What MPI has finished: one Testsome a turn over a window of the pending requests."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.constants import ANY_SOURCE, ANY_TAG, SUCCESS
from gmpi.wire import OP_SYNCHRONIZE
from host_proxy import pending
from host_proxy.collectives import collective_done
from host_proxy.completion import complete
from host_proxy.native import call, entry, jit, load_int, store_int
from host_proxy.point_to_point import drain, received, received_chunk, sent, sent_chunk
from host_proxy.state import (
    A_INDEX,
    A_KIND,
    A_SLOT,
    DRAIN,
    F_TESTSOME,
    G_ACTIVE,
    G_CLOSED,
    G_ERR_IN_STATUS,
    G_HANDLE_BYTES,
    G_HANDLES,
    G_INDICES,
    G_OUTCOUNT,
    G_STATUS_BYTES,
    G_STATUS_ERROR,
    G_STATUS_SOURCE,
    G_STATUS_TAG,
    G_STATUSES,
    G_SYNC_SEEN,
    G_SYNCS,
    G_WINDOW,
    OPEN,
    RECEIVE,
    RECEIVE_CHUNK,
    S_FAILED,
    S_OP,
    S_PENDING,
    S_SERIAL,
    S_STATE,
    SEND,
    SEND_CHUNK,
    TR_ARRIVED,
    WINDOW,
)
from host_proxy.trace import stamp

_GONE = -1  # A_SLOT of a row whose request has completed, until it is removed


@jit
def finished(g, s, a, t, e, slot, kind, index, code, source, tag):
    """One MPI request of an open request has completed, with MPI's error code."""
    s[slot, S_PENDING] -= 1
    stamp(g, s, slot, TR_ARRIVED)
    if code != 0:
        pending.fail(g, s, t, e, slot, code)
    elif s[slot, S_FAILED] != 0:
        pending.settle(g, s, t, slot)
    elif kind == SEND:
        sent(g, s, t, slot)
    elif kind == RECEIVE:
        received(g, s, a, t, e, slot, source, tag)
    elif kind == SEND_CHUNK:
        sent_chunk(g, s, t, slot, index)
    elif kind == RECEIVE_CHUNK:
        received_chunk(g, s, a, t, e, slot, index)
    elif kind == DRAIN:
        drain(g, s, a, t, e, slot, index + 1)
    else:
        collective_done(g, s, t, slot)


@jit
def progress(g, s, a, t, e):
    """Tests a window of pending requests; the number that completed."""
    active = g[G_ACTIVE]
    if active == 0:
        return 0
    begin = g[G_WINDOW]
    if begin >= active:
        begin = 0
    size = min(WINDOW, active - begin)
    g[G_WINDOW] = begin + size
    store_int(g[G_OUTCOUNT], 0)
    code = call(
        g[F_TESTSOME],
        (
            size,
            g[G_HANDLES] + begin * g[G_HANDLE_BYTES],
            g[G_OUTCOUNT],
            g[G_INDICES],
            g[G_STATUSES],
        ),
    )
    done = load_int(g[G_OUTCOUNT])
    if done <= 0:  # nothing, or MPI_UNDEFINED
        return 0
    # Handling one may add requests behind the window and overwrite G_OUTCOUNT, never the window.
    for i in range(done):
        row = begin + load_int(g[G_INDICES] + 4 * i)
        status = g[G_STATUSES] + i * g[G_STATUS_BYTES]
        error = 0
        if code == g[G_ERR_IN_STATUS] or pending.error_class(g, code) == g[G_ERR_IN_STATUS]:
            error = load_int(status + g[G_STATUS_ERROR])
        slot = a[row, A_SLOT]
        a[row, A_SLOT] = _GONE
        finished(
            g, s, a, t, e, slot, a[row, A_KIND], a[row, A_INDEX], error,
            load_int(status + g[G_STATUS_SOURCE]), load_int(status + g[G_STATUS_TAG]),
        )  # fmt: skip
    row = begin
    while row < begin + size and row < g[G_ACTIVE]:
        if a[row, A_SLOT] == _GONE:
            pending.remove(g, a, row)
        else:
            row += 1
    return done


@entry
def release_synchronizes(g, s, t):
    """Completes SYNCHRONIZE requests before which nothing is open any more."""
    if g[G_SYNCS] == 0 or g[G_SYNC_SEEN] == g[G_CLOSED]:
        return
    g[G_SYNC_SEEN] = g[G_CLOSED]
    oldest = 1 << 62
    for slot in range(s.shape[0]):
        if s[slot, S_STATE] == OPEN and s[slot, S_OP] != OP_SYNCHRONIZE:
            oldest = min(oldest, s[slot, S_SERIAL])
    for slot in range(s.shape[0]):
        if s[slot, S_STATE] == OPEN and s[slot, S_OP] == OP_SYNCHRONIZE:
            if s[slot, S_SERIAL] < oldest:
                g[G_SYNCS] -= 1
                complete(g, s, t, slot, 0, SUCCESS, ANY_SOURCE, ANY_TAG)
