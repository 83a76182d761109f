"""Exceptions of the host side. What is in them is worded by ``faults.py``.

GMPIError
├── ConfigError            a setting is wrong
├── ContextError           a context cannot be opened or used
├── DatatypeError          a datatype cannot be used, or does not fit its buffer
├── GridError              the grid of a kernel cannot be resident as a whole
├── UsageError             a call is written in a way that cannot be compiled or run
├── StrictError            strict mode found mistakes in a kernel
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

from typing import Any, NamedTuple

from gmpi.contract.constants import (
    GMPI_ERR_ABORTED,
    GMPI_ERR_NO_RESOURCE,
    GMPI_ERR_PROXY,
    GMPI_ERR_TIMEOUT,
)


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


class StrictError(GMPIError):
    """Strict mode has found mistakes in a kernel, which has run to its end (docs/strict.md).

    Attributes:
        findings: of each mistake its ``kind`` and its ``text``.
    """

    def __init__(self, text: str, findings: tuple[Any, ...] = ()) -> None:
        super().__init__(text)
        self.findings = findings


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
    """What a call waits for cannot come: another rank has gone, or has failed in the collective.

    Waits were released.

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
        fault: all of it, as in ``Context.errors``.
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
        self.fault = fault


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
    if error_class in own:
        return own[error_class]
    from mpi4py import MPI

    return MPI.Get_error_string(error_class)
