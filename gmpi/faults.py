"""What went wrong, in words: what happened, the value, what is allowed, what to do.

A call that fails leaves a row in the proxy's error log; ``describe`` words it. Calls of the host
use the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mpi4py import MPI

from gmpi import fault_words, window_words
from gmpi.contract.constants import (
    ANY_SOURCE,
    ANY_TAG,
    DATATYPE_NAMES,
    OPERATIONS_REDUCE,
)
from gmpi.contract.layouts import DERIVED_MARK, DERIVED_MASK
from gmpi.contract.wire import FLAG_SHORT_BUFFER, NO_COMMUNICATOR, OP_WINDOW
from gmpi.errors import (
    ArgumentError,
    CallError,
    DebugError,
    Fault,
    MPICallError,
    ResourceError,
    TruncationError,
)
from gmpi.fault_words import (
    REDUCTIONS,
    buffer_words,
    caller,
    differing_calls,
    outside_words,
    partition_words,
    request_words,
    unfit_reduction_of,
)
from gmpi.value_words import datatype_text, rank_text, tag_text, unfit, unfit_words
from host_proxy.compiled.headers import FLAWS
from host_proxy.platform import operations as ops
from host_proxy.platform import state as st
from host_proxy.platform.notes import Notes
from host_proxy.reference.counts import Wrong

if TYPE_CHECKING:
    from gmpi.datatypes.plans import Plan


def any_tag_of_host(operation: str, high: int, source: int, communicator: int) -> ArgumentError:
    """What a receive of the host with ANY_TAG raises where no receive may use it."""
    value, allowed, advice = _any_tag_words(high)
    text = (
        f"{operation} in host: tag is {value}, allowed is {allowed}; {advice} "
        f"[peer {rank_text(source)}, tag {value}, communicator {communicator}]"
    )
    return ArgumentError(
        Fault(text, operation, "tag", value, allowed, -1, int(MPI.ERR_TAG), ArgumentError)
    )


def _any_tag_words(high: int) -> tuple[str, str, str]:
    """(value, what is allowed, what to do) for a receive that must not use ANY_TAG."""
    return (
        tag_text(ANY_TAG),
        f"0..{high}",
        "the communicator was registered with no_any_tag or wildcards=False, or with "
        "mpi_assert_no_any_tag in its info: name the tag, or register it without",
    )


def _message_words(flaw: int) -> tuple[str, str, str]:
    """(what it is, what is allowed, why) for what has come and is no message of ours."""
    why = "something else sends on the context's communicator, or memory is corrupt"
    return FLAWS[flaw], "messages of GMPI only", why


def flawed_message(operation: str, flaw: int, source: int, tag: int) -> Fault:
    """What a receive of the host raises that has got no message of ours."""
    value, allowed, why = _message_words(flaw)
    text = (
        f"{operation} in host: message is {value}, allowed is {allowed}; {why} "
        f"[peer {rank_text(source)}, tag {tag_text(tag)}]"
    )
    return Fault(text, operation, "message", value, allowed, -1, int(MPI.ERR_INTERN), CallError)


def peer_words(rank: int) -> tuple[str, str]:
    """Allowed and advice where the other rank's part of a message has failed."""
    advice = f"the errors of rank {rank} say which of its calls has failed"
    return "a rank whose part of the message succeeds", advice


# --- the error log --------------------------------------------------------------------------------


class Entry(NamedTuple):
    """One row of the proxy's error log (``host_proxy/platform/state.py``, E_*)."""

    op: int
    call: int
    field: int
    value: int
    high: int
    low: int
    error_class: int
    code: int
    block: int
    communicator: int
    peer: int
    tag: int
    elements: int
    datatype: int

    @property
    def is_derived(self) -> bool:
        return self.datatype & ~DERIVED_MASK == DERIVED_MARK


_COLUMNS = (
    st.E_OP, st.E_CALL, st.E_FIELD, st.E_VALUE, st.E_HIGH, st.E_LOW, st.E_CLASS, st.E_CODE,
    st.E_BLOCK, st.E_COMM, st.E_PEER, st.E_TAG, st.E_ELEMENTS, st.E_DATATYPE,
)  # fmt: skip


class Known(NamedTuple):
    """What a context knows besides its error log.

    Attributes:
        communicators: how many are registered.
        plans: of the derived datatypes that are committed, by handle.
    """

    communicators: int
    plans: Mapping[int, Plan]


class Words(NamedTuple):
    """The parts of a sentence about a field."""

    value: Any
    allowed: str
    advice: str = ""
    kind: type[CallError] = ArgumentError


def _rank(entry: Entry, known: Known) -> Words:
    if entry.field == ops.SOURCE and entry.value == ANY_SOURCE:
        return Words(
            "ANY_SOURCE",
            f"0..{entry.high}, or PROC_NULL",
            "the communicator was registered with wildcards=False: name the source, or register "
            "it without",
        )
    special = {ops.DEST: ", or PROC_NULL", ops.SOURCE: ", ANY_SOURCE or PROC_NULL"}
    allowed = f"0..{entry.high}" + special.get(entry.field, "")
    return Words(
        entry.value, allowed, f"communicator {entry.communicator} has {entry.high + 1} ranks"
    )


def _tag(entry: Entry, known: Known) -> Words:
    if ops.OPERATIONS[entry.op].fields & ops.DEST:
        allowed = f"0..{entry.high}"
    elif entry.value == ANY_TAG:
        return Words(*_any_tag_words(entry.high))
    else:
        allowed = f"0..{entry.high}, or ANY_TAG"
    return Words(entry.value, allowed, f"MPI_TAG_UB of this library is {entry.high}")


def _count(entry: Entry, known: Known) -> Words:
    return Words(entry.value, f"0..{entry.high}", "split the message")


def _datatype(entry: Entry, known: Known) -> Words:
    if (found := unfit(entry.value)) is not None:
        return Words(*unfit_words(*found))
    allowed = "a predefined datatype such as gmpi.FLOAT"
    other = ", or a handle of Context.commit()"
    value = datatype_text(entry.value)
    if entry.value in DATATYPE_NAMES:
        allowed = "a datatype without gaps between its elements"
        return Words(value, allowed, f"pass the handle of Context.commit(MPI.{value})")
    if entry.value & ~DERIVED_MASK != DERIVED_MARK:
        advice = "pass the constant of the gmpi module, not mpi4py's object or a size"
        return Words(value, allowed + other, advice)
    if entry.value in known.plans:
        return Words(value, allowed, "MPI defines reductions for predefined datatypes only")
    advice = "this one was freed, or never committed in this context"
    return Words(value, allowed + other, advice)


def _communicator(entry: Entry, known: Known) -> Words:
    value = "negative or above 255" if entry.value == NO_COMMUNICATOR else entry.value
    allowed = f"0..{known.communicators - 1}"
    return Words(value, allowed, "register it with Context.comm() first")


def _reduction(entry: Entry, known: Known) -> Words:
    if not 0 <= entry.value < len(OPERATIONS_REDUCE):
        return Words(entry.value, REDUCTIONS)
    return Words(*unfit_reduction_of(entry.value, entry.datatype))


def _buffer(entry: Entry, known: Known) -> Words:
    plan = known.plans.get(entry.datatype)
    if entry.value & FLAG_SHORT_BUFFER and plan is not None:
        return Words(*outside_words(plan, entry.elements, entry.low))
    return Words(*buffer_words(entry.value, entry.high, entry.is_derived))


def _request(entry: Entry, known: Known) -> Words:
    return Words(f"{entry.value:#x}", *request_words(entry.op))


def _partition(entry: Entry, known: Known) -> Words:
    return Words(entry.value, *partition_words(entry.high))


def _length(entry: Entry, known: Known) -> Words:
    if ops.OPERATIONS[entry.op].collective:
        allowed = f"{entry.high} bytes, as the counts of this rank say"
        advice = "ranks have called it with different counts or datatypes"
        return Words(entry.value, allowed, advice, TruncationError)
    advice = "receive with a larger count"
    return Words(entry.value, f"at most {entry.high} bytes", advice, TruncationError)


def _resource(entry: Entry, known: Known) -> Words:
    return Words(
        "all in use",
        f"{entry.value} requests of this size outstanding at once",
        "wait for requests earlier, or open the context with more request_slots (and large_slots "
        "for messages above eager_bytes)",
        ResourceError,
    )


def _operation(entry: Entry, known: Known) -> Words:
    return Words(entry.value, f"1..{entry.high}", "the record is corrupt")


def _message(entry: Entry, known: Known) -> Words:
    return Words(*_message_words(entry.value), CallError)


def _peer(entry: Entry, known: Known) -> Words:
    return Words(entry.value, *peer_words(entry.value), MPICallError)


def broken_words() -> tuple[str, str]:
    """Allowed and advice for a collective behind one that has failed."""
    return (
        "a communicator on which no collective has failed",
        "an earlier one has failed, and the other ranks may still be in it; register "
        "another communicator (Context.comm) to go on",
    )


def _broken(entry: Entry, known: Known) -> Words:
    return Words(entry.value, *broken_words(), MPICallError)


def _window(entry: Entry, known: Known) -> Words:
    if (found := unfit(entry.datatype)) is not None:
        return Words(*unfit_words(*found))
    return Words(*window_words.words_of(entry, datatype_text(entry.datatype)))


def _mpi(entry: Entry, known: Known) -> Words:
    """MPI itself has refused it."""
    advice = MPI.Get_error_string(entry.code)
    operation = ops.OPERATIONS.get(entry.op)
    if entry.error_class == MPI.ERR_TRUNCATE and operation is not None and operation.collective:
        advice += "; ranks have called it with different counts or datatypes"
    return Words(entry.value, "MPI_SUCCESS", advice, MPICallError)


def _blocks(entry: Entry) -> bool:
    """Whether a direct collective is one that blocks: those that do not are compared apart."""
    return not ops.name_of(entry.op, entry.call).startswith("GMPI_I")


_WORDS: dict[int, Callable[[Entry, Known], Words]] = {
    **dict.fromkeys((ops.DEST, ops.SOURCE, ops.ROOT), _rank),
    ops.TAG: _tag,
    ops.COUNT: _count,
    ops.DATATYPE: _datatype,
    ops.COMMUNICATOR: _communicator,
    ops.REDUCTION: _reduction,
    ops.BUFFER: _buffer,
    ops.REQUEST: _request,
    ops.PARTITION: _partition,
    ops.TAKEN: lambda entry, known: Words(hex(entry.value), *fault_words.MESSAGE),
    ops.ROOM: lambda entry, known: Words(entry.value, *fault_words.room_words(entry.high)),
    ops.LENGTH: _length,
    ops.RESOURCE: _resource,
    ops.OPERATION: _operation,
    ops.MESSAGE: _message,
    ops.PEER: _peer,
    ops.BROKEN: _broken,
    ops.LENGTHS: lambda entry, known: Words(*fault_words.unequal_blocks(entry.value, entry.high)),
    ops.ROAD: lambda entry, known: Words(
        entry.value, *fault_words.proxied_words(entry.op, entry.call)
    ),
    ops.BLOCKS: lambda entry, known: Words(*fault_words.too_many_blocks(entry.value, entry.high)),
    ops.CALL: lambda entry, known: Words(
        *differing_calls(entry.value, entry.peer, entry.low, _blocks(entry))
    ),
    **dict.fromkeys(range(ops.WINDOW, ops.WINDOW + ops.WINDOW_FIELDS + 1), _window),
}


def describe(
    row: np.ndarray,
    communicators: int,
    plans: Mapping[int, Plan] | None = None,
    notes: Notes | Sequence[str] = (),
) -> Fault:
    """Words one row of the error log.

    Args:
        communicators, plans: what ``Known`` has.
        notes: what there is in words.
    """
    entry = Entry(*(int(row[column]) for column in _COLUMNS))
    operation, field = ops.name_of(entry.op, entry.call), ops.FIELD_NAMES[entry.field]
    if entry.field == ops.WORDED:
        worded: Fault = notes[entry.value]  # type: ignore[assignment]
        return worded
    if entry.field == ops.DEBUG:
        text = f"debug mode: {notes[entry.value]}"
        return Fault(
            text, operation, field, entry.value, "", entry.block, entry.error_class, DebugError
        )
    if entry.field == ops.COUNTS:
        wrong: Wrong = notes[entry.value]  # type: ignore[assignment]
        field, words = wrong.field, Words(*fault_words.blocks_words(wrong))
    else:
        words = _WORDS.get(entry.field, _mpi)(entry, Known(communicators, plans or {}))
    where = f"{operation} in {caller(entry.block)}"
    text = f"{where}: {field} is {words.value}, allowed is {words.allowed}"
    if words.advice:
        text += f"; {words.advice}"
    if entry.op == OP_WINDOW:
        text += window_words.where(entry, rank_text(entry.peer))
    elif entry.field not in ops.WITHOUT_PEER:
        comm = "?" if entry.communicator == NO_COMMUNICATOR else entry.communicator
        text += (
            f" [peer {rank_text(entry.peer)}, tag {tag_text(entry.tag)}, communicator {comm}, "
            f"count {entry.elements} of {datatype_text(entry.datatype)}]"
        )
    return Fault(
        text, operation, field, words.value, words.allowed, entry.block, entry.error_class,
        words.kind,
    )  # fmt: skip
