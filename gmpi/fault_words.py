"""What is allowed in place of a buffer, a request, a partition or a collective that was refused,
and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gmpi.contract import collectives as c
from gmpi.contract import constants, wire
from gmpi.contract.moves import BY_OP

if TYPE_CHECKING:
    from gmpi.datatypes.plans import Plan
    from host_proxy.reference.counts import Wrong

_PARTITIONED = {
    wire.OP_START: "a persistent or partitioned request of this context that is not active",
    wire.OP_PREADY: "a partitioned send of this context that has been started",
    wire.OP_PARRIVED: "a partitioned receive of this context",
}


#: The same where a receive does not take a message.
MESSAGE = (
    "a message of GMPI_Mprobe or GMPI_Improbe of this context that has not been received",
    "each is received once",
)


def caller(block: int) -> str:
    """Who has made a call, by the number of its block; -1: the host."""
    return f"block {block}" if block >= 0 else "host"


def view_words(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> str:
    """A view whose elements do not lie in one piece.

    Args:
        strides: in bytes.
    """
    return (
        f"a strided view: shape {tuple(shape)}, strides {tuple(strides)} bytes, elements of "
        f"{itemsize} bytes"
    )


def buffer_words(flaws: int, nbytes: int, derived: bool) -> tuple[str, str]:
    """(what is wrong, what to do) for a buffer with these flags."""
    if flaws & wire.FLAG_OVERLAP:
        return (
            "written more than once by this datatype, count or view",
            "datatypes and views of which no two elements overlap",
        )
    if flaws & wire.FLAG_NULL_BUFFER:
        if derived:
            return "null", "an array, or gmpi.BOTTOM with a datatype of absolute addresses"
        return "null", f"a buffer of at least {nbytes} bytes, or count 0"
    if flaws & wire.FLAG_SHORT_BUFFER:
        return "smaller than the message", f"an array of at least {nbytes} bytes, or a lower count"
    if flaws & wire.FLAG_STRIDED_BUFFER:
        return (
            "a strided view and the datatype is derived",
            "a strided view with a predefined datatype, or the whole array with a derived one",
        )
    assert flaws & wire.FLAG_PRIVATE_BUFFER
    return (
        "private to a thread, or to a block and too large for that",
        "device memory, or shared memory of at most eager_bytes",
    )


def outside_words(plan: Plan, count: int, room: int) -> tuple[str, str]:
    """The same where elements of a datatype leave an array of ``room`` bytes."""
    where = plan.first_outside(count, 0, room)
    return (
        f"left by {where}, of the datatype; it has bytes 0..{room}",
        "a larger array, a lower count or a smaller datatype",
    )


def request_words(op: int) -> tuple[str, str]:
    """(what is allowed, what to do) where a call does not take a request."""
    if op in _PARTITIONED:
        return _PARTITIONED[op], "start it before it is used, wait for it before the next start"
    if op == wire.OP_REQUEST_FREE:
        return (
            "an open send or receive of this context, or a persistent or partitioned request of it "
            "that is not active",
            "nonblocking collectives cannot be freed, wait for them; or it was completed or freed "
            "before",
        )
    if op == wire.OP_CANCEL:
        return (
            "a receive that is open in this context",
            "sends, collectives and partitioned requests cannot be cancelled, nor receives on a "
            "communicator with wildcards=False, which have their place among messages: wait for it",
        )
    return (
        "a request that is open in this context",
        "it was completed before, belongs to another context, or is no request",
    )


def partition_words(partitions: int) -> tuple[str, str]:
    """The same of a partition, where the request has so many."""
    return (
        f"0..{partitions - 1}, each once a round",
        "it is none of the request's partitions, or was ready before in this round",
    )


def room_words(most: int) -> tuple[str, str]:
    """The same where arrays have room for so many requests only."""
    return (
        f"0..{most}",
        "its arrays, of requests, statuses, indices or partitions, have room for no more",
    )


REDUCTIONS = (
    "one of " + ", ".join(f"gmpi.{name}" for name, _ in constants.OPERATIONS_REDUCE)
    + ", or a number of Context.op()"
)  # fmt: skip


def unfit_reduction_words(op: int, datatype: str, defined: Sequence[int]) -> tuple[str, str]:
    """(value, what is allowed) for a predefined operation that MPI does not define for a
    datatype, and which it does."""
    value = f"gmpi.{constants.operation_name(op)} for {datatype}"
    if op in (constants.MINLOC, constants.MAXLOC):
        pairs = (f"gmpi.{name}" for name, _, _ in constants.DATATYPES[constants.FIRST_PAIR :])
        return value, f"a datatype of pairs: {', '.join(pairs)}"
    if not defined:
        return value, "a number of Context.op()"
    *first, last = (constants.operation_name(number) for number in defined)
    whose = "pairs" if constants.MINLOC in defined else "it"
    return value, f"gmpi.{', '.join(first)} or {last} for {whose}, or a number of Context.op()"


def unfit_reduction_of(op: int, datatype: int) -> tuple[str, str]:
    """The same for the handle of a predefined datatype."""
    name, _, dtype = constants.DATATYPES[datatype & 0xFF]
    return unfit_reduction_words(op, name, constants.defined_for(dtype, name))


def proxied_words(op: int, call: int) -> tuple[str, str]:
    """(what is allowed, what to do) for a call that there is on the proxied road only."""
    what = "buffered sends" if op == wire.OP_BSEND else "synchronous sends"
    why = f"the direct road has no {what}"
    if op == wire.OP_PROBE:
        why = "on the direct road nobody looks at messages before they are received"
        return _OTHER_ROAD, f"{why}; register another communicator for them (Context.comm)"
    if op == wire.OP_ISEND and call << wire.CALL_SHIFT == wire.REPLACE:
        why = (
            "on the direct road at most eager_bytes, which lie in one piece, are out of the buffer "
            "before it is received into: pass another buffer to GMPI_Sendrecv, or"
        )
        return _OTHER_ROAD, f"{why} register another communicator (Context.comm)"
    return _OTHER_ROAD, f"{why}; register another communicator for them (Context.comm)"


_OTHER_ROAD = "one that was registered without wildcards=False"


def call_text(signature: int, blocks: bool = True) -> str:
    """A collective, by what its packets say of it (``gmpi/contract/collectives.py``).

    Args:
        signature: the upper half has the bits of the amount for which a signature has no room.
        blocks: not: it is an Iallreduce, an Ireduce and so on.
    """

    def named(name: str) -> str:
        return f"GMPI_{name if blocks else 'I' + name.lower()}"

    amount, kind = c.amount_of(signature), c.kind_of(signature)
    amount += signature >> c.SIGNATURE_SHIFT << c.AMOUNT_BITS
    if kind == c.BARRIER:
        return named("Barrier")
    root = f" root {c.root_of(signature)}"
    if kind == c.BCAST:
        return f"{named('Bcast')} of {amount} bytes from{root}"
    row = BY_OP.get(c.op_of(kind))
    name = named("Allreduce" if row is None else row.name)
    ends = f" with{root}" if row is not None and row.rooted else ""
    if c.REDUCING >> kind & 1 == 0:
        return f"{name} of {amount} bytes a block{ends}"
    element = constants.DATATYPE_NAMES[c.datatype_of(signature)]
    return f"{name} {constants.operation_name(signature & c.OP_MASK)} of {amount} {element}{ends}"


def differing_calls(theirs: int, rank: int, ours: int, blocks: bool) -> tuple[str, str, str]:
    """(value, what is allowed, what to do) where ranks call collectives that do not fit."""
    return (
        f"{call_text(ours, blocks)} here and {call_text(theirs, blocks)} on rank {rank}",
        "the same on all ranks of the communicator",
        "ranks must call collectives in the same order, with equal counts, datatypes, roots and "
        "operations; register another communicator (Context.comm) to go on",
    )


def unequal_blocks(sent: int, received: int) -> tuple[str, str, str]:
    """The same where a rank gives blocks of another length than it takes."""
    return (
        f"{sent} bytes",
        f"{received} bytes, as of a block of recvbuf",
        "sendcount elements of sendtype must have as many bytes as recvcount of recvtype",
    )


def too_many_blocks(blocks: int, most: int) -> tuple[str, str, str]:
    """The same where what a collective says of its blocks does not fit staging."""
    return (
        f"{blocks}, out and back",
        f"at most {most}",
        "open the context with a larger eager_bytes: 24 bytes for each block, and 32",
    )


def blocks_words(wrong: Wrong) -> tuple[str, str, str]:
    """(value, what is allowed, what to do) for blocks of a collective with counts."""
    if wrong.flags:
        return *buffer_words(wrong.flags, wrong.nbytes, False), ""
    return str(wrong.value), wrong.allowed, wrong.advice
