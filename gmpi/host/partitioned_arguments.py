"""What is wrong with the arguments that a partitioned request is made with, by host or kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from mpi4py import MPI

from gmpi.contract.constants import (
    ANY_SOURCE,
    AUTO,
    DATATYPE_MARK,
    DATATYPE_NAMES,
    datatype_of,
    number_of,
)
from gmpi.datatypes.overlap import distinct_elements
from gmpi.datatypes.plans import Plan
from gmpi.errors import DatatypeError
from gmpi.host.arguments import Argument, checked_communicator, checked_rank, checked_tag
from gmpi.host.partitioned_rows import Shape
from host_proxy.platform.state import G_TAG_UB, State

if TYPE_CHECKING:
    from gmpi.committed import Datatypes

MOST_PARTITIONS = 1 << 16
IN_ONE_PIECE = "an array in one piece"
WHOLE_ARRAY = (
    "pass the whole array and a derived datatype of the view (MPI's Create_vector or "
    "Create_subarray, then Context.commit), or copy the view to an array of its own"
)


class Call(NamedTuple):
    """Who makes an end.

    Attributes:
        name: of the call.
        block: of a kernel; -1: the host.
    """

    name: str
    sends: bool
    block: int = -1

    def argument(self, name: str) -> Argument:
        """``array``: by the name that it has in the call."""
        if name == "array" and self.block >= 0:
            name = "buf"
        return Argument(self.name, name, self.block)

    def refused_datatype(
        self, name: str, text: str, value: Any, allowed: str, error: int
    ) -> Exception:
        """What is raised for a datatype that cannot be used."""
        if self.block >= 0:
            return self.argument(name).refused(text, value, allowed, error)
        return DatatypeError(f"{self.name} in host: {text}")


class Buffer(NamedTuple):
    """Where the bytes are; itemsize 0: elements of any size."""

    address: int
    nbytes: int
    itemsize: int
    array: Any = None


class Arguments:
    """Of the requests of one context."""

    def __init__(self, state: State, datatypes: Datatypes) -> None:
        self._state = state
        self._datatypes = datatypes

    def shape(
        self,
        call: Call,
        amount: tuple[Any, Any, Any],
        where: tuple[Any, Any, Any],
        buffer_of: Callable[[int], Buffer],
    ) -> Shape:
        """What the end is to be.

        Args:
            amount: partitions, count, datatype.
            where: peer, tag, communicator.
            buffer_of: the buffer, of so many elements.

        Raises:
            ArgumentError: an argument is wrong.
            DatatypeError: the datatype is, or leaves the array, of a call of the host.
        """
        comm = checked_communicator(call.argument("comm"), where[2], self._state.communicators)
        peer = self._checked_peer(call, where[0], comm)
        high = int(self._state.globals[G_TAG_UB])
        tag = checked_tag(call.argument("tag"), where[1], high, False)
        partitions = _whole(call, "partitions", amount[0], 1, MOST_PARTITIONS)
        count = _whole(call, "count", amount[1], 0, 1 << 31)
        elements = partitions * count
        buffer = buffer_of(elements)
        address = buffer.address
        datatype, plan = self._checked_datatype(call, amount[2], buffer.array)
        size, row, extent = datatype >> 8 & 0xFF, 0, 0
        if plan is not None:
            address, row = self._typed(call, plan, datatype, elements, buffer)
            size, datatype = plan.size, datatype if row else 0
            extent = plan.extent
        else:
            _require_fit(call, datatype, buffer.itemsize)
            _require_room(call, elements * size, buffer.nbytes)
            datatype = 0
        return Shape(
            call.sends, comm, peer, tag, partitions, elements, count * size, address, datatype, row,
            extent, buffer.array, call.block,
        )  # fmt: skip

    def _checked_peer(self, call: Call, rank: Any, comm: int) -> int:
        communicator = self._state.communicators[comm]
        argument = call.argument("dest" if call.sends else "source")
        peer = checked_rank(argument, rank, communicator)
        if peer == ANY_SOURCE:
            allowed = f"0..{communicator.size - 1}, or PROC_NULL"
            raise argument.refused(
                f"source is ANY_SOURCE, allowed is {allowed}; partitioned receives have no "
                "wildcards",
                peer,
                allowed,
            )
        return peer

    def _checked_datatype(self, call: Call, datatype: Any, array: Any) -> tuple[int, Plan | None]:
        """(handle, plan of a derived one)."""
        allowed = "a constant such as gmpi.FLOAT, or a handle of Context.commit()"
        if datatype is AUTO and hasattr(array, "dtype"):
            try:
                datatype = datatype_of(array.dtype)
            except TypeError as exc:
                text = f"datatype is gmpi.AUTO, and {exc}"
                raise call.refused_datatype("datatype", text, 0, allowed, MPI.ERR_TYPE) from None
        elif isinstance(datatype, MPI.Datatype):
            number = number_of(datatype)
            datatype = datatype if number is None else number
        handle = call.argument("datatype").whole(datatype, allowed)
        if handle & ~0xFFFF == DATATYPE_MARK and handle in DATATYPE_NAMES:
            return handle, None
        plans = self._datatypes.plans
        if handle not in plans:
            text = (
                f"datatype is {handle:#x}, allowed is {allowed}; this one was freed, or never "
                "committed in this context"
            )
            raise call.refused_datatype("datatype", text, handle, allowed, MPI.ERR_TYPE)
        return handle, plans[handle]

    def _typed(
        self, call: Call, plan: Plan, datatype: int, elements: int, buffer: Buffer
    ) -> tuple[int, int]:
        """(address, row of the datatype; 0: the bytes lie in one piece from there on)."""
        low, high = plan.reach(elements)
        if low < 0 or high > buffer.nbytes:
            allowed = "a larger array, fewer or smaller partitions"
            text = (
                f"{elements} elements of the datatype leave the array: "
                f"{plan.first_outside(elements, 0, buffer.nbytes)}; pass {allowed}"
            )
            raise call.refused_datatype("array", text, elements, allowed, MPI.ERR_BUFFER)
        if plan.is_contiguous:
            return buffer.address + low, 0
        if not call.sends and elements > distinct_elements(plan):
            text = (
                f"{elements} elements of the datatype overlap, and MPI forbids to receive into "
                "overlapping elements"
            )
            allowed = "elements that do not overlap"
            raise call.refused_datatype("array", text, elements, allowed, MPI.ERR_BUFFER)
        return buffer.address, self._datatypes.row_address(datatype)


def _whole(call: Call, name: str, value: Any, low: int, high: int) -> int:
    allowed = f"{low}..{high}"
    argument = call.argument(name)
    number = argument.whole(value, allowed)
    if not low <= number <= high:
        error = MPI.ERR_COUNT if name == "count" else MPI.ERR_ARG
        raise argument.refused(f"{name} is {number}, allowed is {allowed}", number, allowed, error)
    return number


def _require_fit(call: Call, datatype: int, itemsize: int) -> None:
    """Elements of the array and of a predefined datatype have one size, or one of them is bytes."""
    size = datatype >> 8 & 0xFF
    if itemsize > 1 and size not in (1, itemsize):
        name = DATATYPE_NAMES[datatype]
        allowed = f"one of {itemsize} bytes, as the elements of the array"
        raise call.argument("datatype").refused(
            f"datatype is {name}, of {size} bytes, allowed is {allowed}",
            datatype,
            allowed,
            MPI.ERR_TYPE,
        )


def _require_room(call: Call, wanted: int, nbytes: int) -> None:
    if wanted > nbytes:
        allowed = f"an array of at least {wanted} bytes"
        argument = call.argument("array")
        raise argument.refused(
            f"{argument} is one of {nbytes} bytes, allowed is {allowed}; or fewer or smaller "
            "partitions",
            nbytes,
            allowed,
        )
