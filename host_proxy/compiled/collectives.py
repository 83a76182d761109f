"""Collectives of the compiled engine: those whose data fit the slot's staging.

Larger ones are the mpi4py engine's. Collectives on one communicator must reach MPI in the same
order on every rank, so while that engine has one in hand, all later ones on the communicator
follow it there (``C_COLLECTIVES``).
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.contract import wire
from gmpi.contract.constants import ANY_SOURCE, ANY_TAG, ERR_INTERN, SUCCESS
from gmpi.contract.moves import BACK, moves_blocks, out_offset, reduces
from host_proxy.compiled import pending, streams
from host_proxy.platform import flight
from host_proxy.platform import state as st
from host_proxy.platform.native import call, get, jit, put
from host_proxy.records.checks import bytes_moved
from host_proxy.records.completion import complete, staging
from host_proxy.records.fault_log import no_payload
from host_proxy.records.ring import payload_to
from host_proxy.records.tables import communicator

_moves_blocks = jit(moves_blocks)
_out_offset = jit(out_offset)
_reduces = jit(reduces)


@jit
def _bytes_of(g, row, way):
    comm, root, tag = get(row, st.S_COMM), get(row, st.S_PEER), get(row, st.S_TAG)
    return bytes_moved(g, get(row, st.S_OP), comm, root, tag, get(row, st.S_BYTES), way)


@jit
def _move_blocks(g, row, data, comm, request):
    """Starts a collective that moves blocks, on staging at ``data``; MPI's error code."""
    op = get(row, st.S_OP)
    root = get(row, st.S_PEER)
    back = _bytes_of(g, row, BACK)
    result = data
    send = data + _out_offset(back)
    count = get(row, st.S_BYTES)
    datatype = get(g, st.G_BYTE)
    reduction = 0
    reduced = _reduces(op)
    if reduced:
        count = get(row, st.S_ELEMENTS)
        datatype = get(
            get(g, st.G_DATATYPES), (get(row, st.S_DATATYPE) & 0xFF) * st.D_COUNT + st.D_HANDLE
        )
        reduction = get(get(g, st.G_REDUCTIONS), get(row, st.S_TAG))
    rank = get(communicator(g, get(row, st.S_COMM)), st.C_RANK)
    if op == wire.OP_SCATTER and rank == root and back == 0:
        result = get(g, st.G_IN_PLACE)
    elif op == wire.OP_EXSCAN and rank == 0:
        # Nothing comes back; but libraries use the room.
        result = send
        send = get(g, st.G_IN_PLACE)
    which = st.F_MOVING + op - wire.FIRST_MOVING
    function = get(g, which)
    flight.called(g, row, which, root, 0, get(row, st.S_BYTES))
    if reduced and op <= wire.LAST_ROOTED:
        return call(function, (send, result, count, datatype, reduction, root, comm, request))
    if reduced:
        return call(function, (send, result, count, datatype, reduction, comm, request))
    if op <= wire.LAST_ROOTED:
        return call(function, (send, count, datatype, result, count, datatype, root, comm, request))
    return call(function, (send, count, datatype, result, count, datatype, comm, request))


@jit
def start_collective(g, r, row):
    """MPI's call that does not block, on the slot's staging (MPI 4.1 section 6.12)."""
    data = staging(g, get(row, st.S_SLOT))
    nbytes = get(row, st.S_BYTES)
    if get(r, st.R_FLAGS) & wire.FLAG_INLINE and not payload_to(g, r, data, nbytes):
        complete(g, row, 0, no_payload(g, r, row), ANY_SOURCE, ANY_TAG)
        return
    comm = get(communicator(g, get(row, st.S_COMM)), st.C_HANDLE)
    op = get(row, st.S_OP)
    request = pending.next_handle(g)
    if pending.is_full(g):
        streams.fail(g, row, ERR_INTERN)
        return
    if _moves_blocks(op):
        code = _move_blocks(g, row, data, comm, request)
    elif op == wire.OP_ALLREDUCE:
        flight.called(g, row, st.F_IALLREDUCE, 0, 0, nbytes)
        number = get(row, st.S_DATATYPE) & 0xFF
        datatype = get(get(g, st.G_DATATYPES), number * st.D_COUNT + st.D_HANDLE)
        reduction = get(get(g, st.G_REDUCTIONS), get(row, st.S_TAG))
        count = get(row, st.S_ELEMENTS)
        in_place = get(g, st.G_IN_PLACE)
        code = call(
            get(g, st.F_IALLREDUCE), (in_place, data, count, datatype, reduction, comm, request)
        )
    elif op == wire.OP_BCAST:
        root = get(row, st.S_PEER)
        flight.called(g, row, st.F_IBCAST, root, 0, nbytes)
        code = call(get(g, st.F_IBCAST), (data, nbytes, get(g, st.G_BYTE), root, comm, request))
    else:
        flight.called(g, row, st.F_IBARRIER, 0, 0, 0)
        code = call(get(g, st.F_IBARRIER), (comm, request))
    flight.returned(g, code)
    if code == 0:
        pending.add(g, row, st.COLLECTIVE, 0)
    else:
        collective_failed(g, row, code)


@jit
def collective_failed(g, row, code):
    """MPI has not begun it, or has completed it with an error: the last one on its communicator.

    What this rank began next would meet the call that the others are still in, and give them a
    wrong result. The watchdog tells them.
    """
    put(communicator(g, get(row, st.S_COMM)), st.C_BROKEN, 1)
    streams.fail(g, row, code)


@jit
def collective_done(g, row):
    nbytes = get(row, st.S_BYTES)
    if _moves_blocks(get(row, st.S_OP)):
        nbytes = _bytes_of(g, row, BACK)
    complete(g, row, nbytes, SUCCESS, ANY_SOURCE, ANY_TAG)
