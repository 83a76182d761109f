"""Collectives of the compiled engine: those whose data fit the slot's staging.

Larger ones are the mpi4py engine's. Collectives on one communicator must reach MPI in the same
order on every rank, so while that engine has one in hand, all later ones on the communicator
follow it there (``T_COLLECTIVES``).
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.constants import ANY_SOURCE, ANY_TAG, SUCCESS
from gmpi.wire import OP_ALLREDUCE, OP_BARRIER, OP_BCAST
from host_proxy import pending
from host_proxy.completion import complete, staging
from host_proxy.native import call, jit
from host_proxy.ring import has_payload, payload_to
from host_proxy.state import (
    COLLECTIVE,
    F_IALLREDUCE,
    F_IBARRIER,
    F_IBCAST,
    G_BYTE,
    G_IN_PLACE,
    S_BYTES,
    S_COMM,
    S_DATATYPE,
    S_ELEMENTS,
    S_OP,
    S_PEER,
    S_REDUCTION,
    T_COMMUNICATORS,
    T_DATATYPES,
    T_HANDLE,
    T_REDUCTIONS,
)


@jit
def start_collective(g, s, a, t, r, e, slot):
    """MPI_Iallreduce, MPI_Ibcast or MPI_Ibarrier on the slot's staging (MPI 4.1 section 6.12)."""
    payload = staging(g, slot)
    if has_payload(r):
        payload_to(r, payload, s[slot, S_BYTES])
    comm = t[T_COMMUNICATORS + s[slot, S_COMM], T_HANDLE]
    op = s[slot, S_OP]
    request = pending.next_handle(g)
    code = 0
    if op == OP_ALLREDUCE:
        datatype = t[T_DATATYPES + (s[slot, S_DATATYPE] & 0xFF), T_HANDLE]
        reduction = t[T_REDUCTIONS + s[slot, S_REDUCTION], T_HANDLE]
        count = s[slot, S_ELEMENTS]
        code = call(
            g[F_IALLREDUCE], (g[G_IN_PLACE], payload, count, datatype, reduction, comm, request)
        )
    elif op == OP_BCAST:
        code = call(
            g[F_IBCAST], (payload, s[slot, S_BYTES], g[G_BYTE], s[slot, S_PEER], comm, request)
        )
    elif op == OP_BARRIER:
        code = call(g[F_IBARRIER], (comm, request))
    if code == 0:
        pending.add(g, s, a, slot, COLLECTIVE, 0)
    else:
        pending.fail(g, s, t, e, slot, code)


@jit
def collective_done(g, s, t, slot):
    complete(g, s, t, slot, s[slot, S_BYTES], SUCCESS, ANY_SOURCE, ANY_TAG)
