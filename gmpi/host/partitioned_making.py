"""Partitioned requests that kernels make and free: GMPI_Psend_init, Precv_init and Request_free.

The proxy's thread asks for them, while the kernel that waits for the answer runs. So nothing here
waits for a kernel: device memory is not allocated, only taken from what there is.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, NamedTuple

from gmpi.contract.constants import ERR_BUFFER, ERR_REQUEST, GMPI_ERR_NO_RESOURCE
from gmpi.contract.partitions import MOST_DIMENSIONS, Wanted
from gmpi.contract.wire import FLAG_NULL_BUFFER, FLAG_PRIVATE_BUFFER, FLAG_STRIDED_BUFFER, LOW_32
from gmpi.errors import ArgumentError, CallError, ContextError, Fault, ResourceError
from gmpi.fault_words import buffer_words, caller, view_words
from gmpi.host.partitioned_arguments import (
    IN_ONE_PIECE,
    WHOLE_ARRAY,
    Arguments,
    Buffer,
    Call,
)

if TYPE_CHECKING:
    from gmpi.context import Context
    from gmpi.host.partitioned import Partitioned


class Answer(NamedTuple):
    """What a kernel is told.

    Attributes:
        value: what its own context's bits make a handle of.
        fault: what was wrong.
    """

    value: int = 0
    fault: Fault | None = None


class Making:
    """Of one context; used by the proxy's thread."""

    def __init__(self, context: Context, partitioned: Partitioned) -> None:
        self._context: Context = weakref.proxy(context)
        self._partitioned: Partitioned = weakref.proxy(partitioned)

    def make(self, sends: bool, wanted: Wanted, block: int) -> Answer | None:
        """Makes an end; None: ask again, another thread is at it."""
        call = Call("GMPI_Psend_init" if sends else "GMPI_Precv_init", sends, block)
        return self._partitioned.unless_busy(lambda: self._made(call, wanted))

    def free(self, handle: int, block: int) -> Answer | None:
        """Frees one, likewise."""
        return self._partitioned.unless_busy(lambda: self._freed(handle, block))

    def _made(self, call: Call, wanted: Wanted) -> Answer:
        context = self._context
        try:
            shape = Arguments(context._state, context._datatypes).shape(
                call,
                (wanted.partitions, wanted.count, wanted.datatype),
                (wanted.peer, wanted.tag, wanted.comm),
                lambda elements: _buffer(call, wanted, elements),
            )
            handle = self._partitioned.make(shape)
        except CallError as exc:
            return Answer(fault=exc.fault)
        except ContextError as exc:
            text = f"{call.name} in {caller(call.block)}: {exc}"
            return Answer(fault=Fault(text, call.name, "memory", "all in use", "what is there",
                                      call.block, GMPI_ERR_NO_RESOURCE, ResourceError))  # fmt: skip
        context._has_partitioned()
        return Answer(handle & LOW_32)

    def _freed(self, handle: int, block: int) -> Answer:
        try:
            self._partitioned.free(handle)
        except ContextError as exc:
            name, allowed = "GMPI_Request_free", "an inactive partitioned request of this context"
            text = f"{name} in {caller(block)}: {exc}"
            return Answer(fault=Fault(text, name, "request", f"{handle:#x}", allowed, block,
                                      int(ERR_REQUEST), ArgumentError))  # fmt: skip
        return Answer()


def _buffer(call: Call, wanted: Wanted, elements: int) -> Buffer:
    """The kernel's buffer.

    Raises:
        ArgumentError: not all threads of the GPU can reach its bytes, or they are not in one piece.
    """
    flaws = wanted.flaws
    argument = call.argument("array")
    if elements and flaws & FLAG_STRIDED_BUFFER:
        value, allowed = _view_words(wanted), IN_ONE_PIECE
        cure = f"; {WHOLE_ARRAY}"
    elif elements and flaws & FLAG_PRIVATE_BUFFER:
        value, allowed = "memory of one thread, or of one block", "device memory"
        cure = "; any block may make a partition ready"
    elif elements and wanted.address == 0:
        value, allowed = buffer_words(FLAG_NULL_BUFFER, elements, False)
        cure = ""
    else:
        return Buffer(wanted.address, wanted.room, wanted.itemsize)
    text = f"{argument} is {value}, allowed is {allowed}{cure}"
    raise argument.refused(text, value, allowed, ERR_BUFFER)


def _view_words(wanted: Wanted) -> str:
    if wanted.dimensions > MOST_DIMENSIONS:
        return f"a strided view of {wanted.dimensions} dimensions"
    pairs = wanted.view[: 2 * wanted.dimensions]
    return view_words(pairs[::2], pairs[1::2], wanted.itemsize)
