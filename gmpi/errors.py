"""Exceptions of the host side, and the words in them.

GMPIError
├── ConfigError            a setting is wrong
├── ContextError           a context cannot be opened or used
├── DatatypeError          a datatype cannot be used, or does not fit its buffer
├── GridError              the grid of a kernel cannot be resident as a whole
├── UsageError             a call is written in a way that cannot be compiled or run
├── CallError              a GMPI call of a kernel failed
│   ├── ArgumentError      GMPI refused it: the arguments are wrong
│   │   └── ArgumentTypeError    (of the host) one is nothing of the kind
│   ├── TruncationError    the message was longer than the receive
│   ├── ResourceError      no request slot came free
│   ├── DebugError         a check of debug mode failed
│   └── MPICallError       MPI refused it, here or on the other rank of the message
├── PendingError           requests that nobody completed
├── PeerError              what a kernel waits for cannot come: the other rank has gone
├── RequestTimeoutError    nothing moved for timeout_s while kernels waited
├── AbortedError           a context was aborted while kernels waited
├── KernelError            a kernel died, and the CUDA context with it
└── ProxyError             the proxy thread died
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mpi4py import MPI

from gmpi.constants import (
    ANY_SOURCE,
    ANY_TAG,
    DATATYPE_MARK,
    DATATYPE_NAMES,
    DATATYPES,
    GMPI_ERR_ABORTED,
    GMPI_ERR_NO_RESOURCE,
    GMPI_ERR_PROXY,
    GMPI_ERR_TIMEOUT,
    OPERATIONS_REDUCE,
    PROC_NULL,
)
from gmpi.wire import (
    DATATYPE_UNFIT,
    DERIVED_MARK,
    DERIVED_MASK,
    FLAG_NULL_BUFFER,
    FLAG_OVERLAP,
    FLAG_PRIVATE_BUFFER,
    FLAG_SHORT_BUFFER,
    FLAG_STRIDED_BUFFER,
    NO_COMMUNICATOR,
    OP_ISEND,
)

if TYPE_CHECKING:
    from gmpi.datatypes.plans import Plan


class LeakWarning(UserWarning):
    """What was left behind when a context was closed."""


class GMPIError(RuntimeError):
    """Base of everything GMPI raises."""


class ConfigError(GMPIError, ValueError):
    """A setting has a value that is not allowed."""


class ContextError(GMPIError):
    """A context cannot be opened, or is used in a state in which it cannot be."""


class DatatypeError(GMPIError, ValueError):
    """A datatype is not supported, is not committed, or reaches outside its buffer."""


class GridError(GMPIError):
    """More blocks than can be resident at once, so that some would never run."""


class UsageError(GMPIError, TypeError):
    """A call of a kernel is given what it cannot take; nothing was launched, or it has ended."""


class PendingError(GMPIError):
    """Requests were left open."""


class AbortedError(GMPIError):
    """Kernels were released because the context was aborted."""


class RequestTimeoutError(GMPIError, TimeoutError):
    """Nothing moved for ``timeout_s`` while kernels waited; they were released.

    Attributes:
        report: what was pending, and the likely cause (``Context.report``).
    """

    def __init__(self, report: Any) -> None:
        super().__init__(f"calls of kernels have returned GMPI_ERR_TIMEOUT\n{report.text}")
        self.report = report


class PeerError(GMPIError):
    """What a call waits for cannot come, because another rank has gone; waits were released.

    Attributes:
        report: what was pending (``Context.report``).
    """

    def __init__(self, why: str, report: Any) -> None:
        super().__init__(f"{why}; calls of kernels have returned GMPI_ERR_ABORTED\n{report.text}")
        self.report = report


class KernelError(GMPIError):
    """A kernel died, for example of an illegal address (the cause of this one)."""


class ProxyError(GMPIError):
    """The proxy thread ended with an exception (the cause of this one)."""


class CallError(GMPIError):
    """A GMPI call of a kernel failed.

    Attributes:
        operation: the call, for example ``"GMPI_Isend"``.
        field: which argument, for example ``"dest"``.
        value: its value.
        allowed: what is allowed, in words.
        block: linear number of the calling block, -1 for a call of the host.
        error_class: what the kernel got in ``status.error``.
        more: how many further errors there are.
    """

    def __init__(self, fault: Fault, more: int = 0) -> None:
        super().__init__(fault.text + (f" (and {more} more: see Context.errors)" if more else ""))
        self.operation = fault.operation
        self.field = fault.field
        self.value = fault.value
        self.allowed = fault.allowed
        self.block = fault.block
        self.error_class = fault.error_class
        self.more = more


class ArgumentError(CallError, ValueError):
    """An argument is wrong; nothing was passed to MPI."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument of a call of the host is nothing of the kind that is wanted."""


class TruncationError(CallError):
    """The message is longer than the receive; the bytes that fit were delivered."""


class ResourceError(CallError):
    """All request slots of the context stayed in use."""


class MPICallError(CallError):
    """MPI returned an error for the call, or on the other rank for its part of the message."""


class DebugError(CallError):
    """A check of debug mode (``GMPI_DEBUG=1``) failed."""


class Fault(NamedTuple):
    """One entry of the error log in words (``Context.errors``)."""

    text: str
    operation: str
    field: str
    value: Any
    allowed: str
    block: int
    error_class: int
    kind: type[CallError]

    def __str__(self) -> str:
        return self.text


def error_string(error_class: int) -> str:
    """The meaning of ``status.error``, for MPI's classes and GMPI's own (host only)."""
    own = {
        GMPI_ERR_ABORTED: "GMPI_ERR_ABORTED: the context was aborted while the kernel waited",
        GMPI_ERR_NO_RESOURCE: "GMPI_ERR_NO_RESOURCE: no request slot came free",
        GMPI_ERR_PROXY: "GMPI_ERR_PROXY: the proxy thread died",
        GMPI_ERR_TIMEOUT: "GMPI_ERR_TIMEOUT: nothing moved for timeout_s",
    }
    return own.get(error_class) or MPI.Get_error_string(error_class)


def rank_text(rank: int) -> str:
    names = {PROC_NULL: "PROC_NULL", ANY_SOURCE: "ANY_SOURCE"}
    return names.get(rank, str(rank))


def tag_text(tag: int) -> str:
    return "ANY_TAG" if tag == ANY_TAG else str(tag)


def datatype_text(handle: int) -> str:
    """The name of a datatype handle."""
    if handle & ~DERIVED_MASK == DERIVED_MARK:
        return f"derived datatype {handle:#x}"
    if (unfit := _unfit(handle)) is not None:
        handle = unfit[0]
    return DATATYPE_NAMES.get(handle, hex(handle))


def _unfit(handle: int) -> tuple[int, int] | None:
    """(datatype, bytes of an element of the array) of what a record says where they differ."""
    number = handle & 0xFF & ~DATATYPE_UNFIT
    if handle & ~0xFFFF != DATATYPE_MARK or not handle & DATATYPE_UNFIT or number >= len(DATATYPES):
        return None
    size = DATATYPES[number][2].itemsize
    return DATATYPE_MARK | size << 8 | number, handle >> 8 & 0xFF


def _unfit_words(datatype: int, itemsize: int) -> tuple[str, str, str]:
    """(value, what is allowed, what to do) for a datatype of another size than the elements."""
    fits = [f"gmpi.{n}" for n in ("FLOAT", "DOUBLE", "INT16_T") if _size_of(n) == itemsize]
    return (
        f"{DATATYPE_NAMES[datatype]}, of {datatype >> 8 & 0xFF} bytes, for an array whose elements "
        f"have {itemsize}",
        f"a datatype of {itemsize} bytes{f' such as {fits[0]}' if fits else ''}",
        "gmpi.datatype_of(array.dtype) says which on the host; to move bytes whatever they are, "
        "pass gmpi.BYTE and their number, or a view of bytes",
    )


def _size_of(name: str) -> int:
    return next(dtype.itemsize for known, _, dtype in DATATYPES if known == name)


def _buffer_words(flaws: int, nbytes: int, derived: bool) -> tuple[str, str]:
    """(what is wrong, what to do) for a buffer with these flags."""
    if flaws & FLAG_OVERLAP:
        return (
            "written more than once by this datatype, count or view",
            "datatypes and views of which no two elements overlap",
        )
    if flaws & FLAG_NULL_BUFFER:
        if derived:
            return "null", "an array, or gmpi.BOTTOM with a datatype of absolute addresses"
        return "null", f"a buffer of at least {nbytes} bytes, or count 0"
    if flaws & FLAG_SHORT_BUFFER:
        return "smaller than the message", f"an array of at least {nbytes} bytes, or a lower count"
    if flaws & FLAG_STRIDED_BUFFER:
        return (
            "a strided view and the datatype is derived",
            "a strided view with a predefined datatype, or the whole array with a derived one",
        )
    assert flaws & FLAG_PRIVATE_BUFFER
    return (
        "private to a thread, or to a block and too large for that",
        "device memory, or shared memory of at most eager_bytes",
    )


def _outside_words(plan: Plan, count: int, room: int) -> tuple[str, str]:
    """The same where elements of a datatype leave an array of ``room`` bytes."""
    where = plan.first_outside(count, 0, room)
    return (
        f"left by {where}, of the datatype; it has bytes 0..{room}",
        "a larger array, a lower count or a smaller datatype",
    )


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
        "the communicator was registered with no_any_tag, or with mpi_assert_no_any_tag in its "
        "info: name the tag, or register it without",
    )


def _message_words(flaw: int) -> tuple[str, str, str]:
    """(what it is, what is allowed, why) for what has come and is no message of ours."""
    from host_proxy.headers import FLAWS

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


def describe(
    entry: np.ndarray,
    communicators: int,
    plans: Mapping[int, Plan] | None = None,
    findings: Sequence[str] = (),
) -> Fault:
    """Words one row of the proxy's error log (``host_proxy/state.py``, E_*).

    Args:
        communicators: how many are registered.
        plans: of the derived datatypes that are committed, by handle.
        findings: what debug mode has found, in words.
    """
    from host_proxy import operations as ops
    from host_proxy import state as st

    value: Any = int(entry[st.E_VALUE])
    high = int(entry[st.E_HIGH])
    number = int(entry[st.E_FIELD])
    op = int(entry[st.E_OP])
    operation = ops.name_of(op, int(entry[st.E_CALL]))
    field = ops.FIELD_NAMES[number]
    error_class = int(entry[st.E_CLASS])
    block = int(entry[st.E_BLOCK])
    where = f"block {block}" if block >= 0 else "host"
    kind: type[CallError] = ArgumentError
    advice = ""

    if number == ops.DEBUG:
        text = f"debug mode: {findings[value]}"
        return Fault(text, operation, field, value, "", block, error_class, DebugError)
    if number in (ops.DEST, ops.SOURCE, ops.ROOT):
        special = {ops.DEST: ", or PROC_NULL", ops.SOURCE: ", ANY_SOURCE or PROC_NULL"}
        allowed = f"0..{high}" + special.get(number, "")
        advice = f"communicator {int(entry[st.E_COMM])} has {high + 1} ranks"
    elif number == ops.TAG:
        allowed = f"0..{high}" + ("" if op == OP_ISEND else ", or ANY_TAG")
        advice = f"MPI_TAG_UB of this library is {high}"
        if value == ANY_TAG and op != OP_ISEND:
            value, allowed, advice = _any_tag_words(high)
    elif number == ops.COUNT:
        allowed = f"0..{high}"
        advice = "split the message"
    elif number == ops.DATATYPE:
        allowed = "a predefined datatype such as gmpi.FLOAT"
        unfit = _unfit(value)
        if value & ~DERIVED_MASK != DERIVED_MARK:
            allowed += ", or a handle of Context.commit()"
            advice = "pass the constant of the gmpi module, not mpi4py's object or a size"
        elif plans and value in plans:
            advice = "MPI defines reductions for predefined datatypes only"
        else:
            allowed += ", or a handle of Context.commit()"
            advice = "this one was freed, or never committed in this context"
        value = datatype_text(value)
        if unfit is not None:
            value, allowed, advice = _unfit_words(*unfit)
    elif number == ops.COMMUNICATOR:
        if value == NO_COMMUNICATOR:
            value = "negative or above 255"
        allowed = f"0..{communicators - 1}"
        advice = "register it with Context.comm() first"
    elif number == ops.REDUCTION:
        allowed = "one of " + ", ".join("gmpi." + name for name, _ in OPERATIONS_REDUCE)
    elif number == ops.BUFFER:
        handle, count = int(entry[st.E_DATATYPE]), int(entry[st.E_ELEMENTS])
        plan = plans.get(handle) if plans else None
        if value & FLAG_SHORT_BUFFER and plan is not None:
            value, allowed = _outside_words(plan, count, int(entry[st.E_LOW]))
        else:
            value, allowed = _buffer_words(value, high, handle & ~DERIVED_MASK == DERIVED_MARK)
    elif number == ops.REQUEST:
        value = f"{value:#x}"
        allowed = "a request that is open in this context"
        advice = "it was completed before, belongs to another context, or is no request"
    elif number == ops.LENGTH:
        kind = TruncationError
        allowed = f"at most {high} bytes"
        advice = "receive with a larger count"
    elif number == ops.RESOURCE:
        kind = ResourceError
        allowed = f"{value} requests of this size outstanding at once"
        advice = (
            "wait for requests earlier, or open the context with more request_slots (and "
            "large_slots for messages above eager_bytes)"
        )
        value = "all in use"
    elif number == ops.OPERATION:
        allowed = f"1..{high}"
        advice = "the record is corrupt"
    elif number == ops.MESSAGE:
        kind = CallError
        value, allowed, advice = _message_words(value)
    elif number == ops.PEER:
        kind = MPICallError
        allowed, advice = peer_words(value)
    else:
        kind = MPICallError
        allowed = "MPI_SUCCESS"
        advice = MPI.Get_error_string(int(entry[st.E_CODE]))
        known = ops.OPERATIONS.get(op)
        if error_class == MPI.ERR_TRUNCATE and known is not None and known.collective:
            advice += "; ranks have called it with different counts or datatypes"

    text = f"{operation} in {where}: {field} is {value}, allowed is {allowed}"
    if advice:
        text += f"; {advice}"
    if number not in (ops.REQUEST, ops.RESOURCE, ops.OPERATION):
        datatype, comm = int(entry[st.E_DATATYPE]), int(entry[st.E_COMM])
        text += (
            f" [peer {rank_text(int(entry[st.E_PEER]))}, tag {tag_text(int(entry[st.E_TAG]))}, "
            f"communicator {'?' if comm == NO_COMMUNICATOR else comm}, "
            f"count {int(entry[st.E_ELEMENTS])} of "
            f"{datatype_text(datatype)}]"
        )
    return Fault(text, operation, field, value, allowed, block, error_class, kind)
