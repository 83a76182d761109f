"""``Context``: partitioned requests, and GPU memory that peers can write to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from device_lib.platform.context import DeviceContext
from gmpi.contract.constants import (
    ANY_SOURCE,
    COMM_WORLD,
    DATATYPE_MARK,
    DATATYPE_NAMES,
)
from gmpi.contract.sizes import SHAPE_DIRECT_SHIFT
from gmpi.datatypes.overlap import distinct_elements
from gmpi.datatypes.plans import Plan
from gmpi.errors import ContextError, DatatypeError
from gmpi.host.arguments import Argument, checked_rank, checked_tag
from gmpi.host.partitioned import Partitioned
from gmpi.host.partitioned_rows import Shape
from gmpi.memory.exported import place_of
from host_proxy.platform.state import G_TAG_UB, State

if TYPE_CHECKING:
    from gmpi.committed import Datatypes
    from gmpi.memory.regions import Memory

MOST_PARTITIONS = 1 << 16


class PartitionedCalls:
    """A part of ``Context``, which see."""

    _device: DeviceContext
    _datatypes: Datatypes
    _memory: Memory
    _partitioned: Partitioned
    _state: State
    _has_kernels: bool

    def _require_open(self) -> None:
        raise NotImplementedError

    # --- memory -----------------------------------------------------------------------------------

    def empty(self, shape: int | tuple[int, ...], dtype: Any = np.float64) -> Any:
        """An array in GPU memory that the other ranks of the node can write to.

        As ``cuda.device_array``. Partitioned receives into it need no copy.

        Raises:
            ContextError: this rank has no kernels.
        """
        self._require_kernels()
        return self._partitioned.exported.allocate(shape, dtype, False)

    def zeros(self, shape: int | tuple[int, ...], dtype: Any = np.float64) -> Any:
        """``empty``, filled with zeros."""
        self._require_kernels()
        return self._partitioned.exported.allocate(shape, dtype, True)

    def register(self, array: Any) -> None:
        """Lets the other ranks of the node write to an array; local.

        Any contiguous array in GPU memory: Numba's, or one with ``__cuda_array_interface__``, also
        from a pool. The context keeps it; once a request has used it, until the context closes.

        Raises:
            ContextError: it is no such array, its memory cannot be exported, or it is registered.
        """
        self._require_kernels()
        self._partitioned.exported.register(array)

    def unregister(self, array: Any) -> None:
        """Ends what ``register``, ``empty`` or ``zeros`` has begun: for new requests it is memory
        like any other.

        Raises:
            ContextError: it is not registered, or a partitioned request uses it.
        """
        self._require_kernels()
        try:
            users = self._partitioned.users_of(*place_of(array))
        except (TypeError, ValueError):
            users = 0
        in_use = f"{users} partitioned requests use it" if users else ""
        self._partitioned.exported.unregister(array, in_use)

    # --- requests ---------------------------------------------------------------------------------

    def Psend_init(
        self,
        array: Any,
        partitions: int,
        count: int,
        datatype: int,
        dest: int,
        tag: int = 0,
        comm: int = COMM_WORLD,
    ) -> int:
        """Makes a partitioned send, for kernels (MPI 4.1 section 4.2.1): its handle.

        Local, and does not wait for the receiver. Sends and receives are matched in the order of
        these calls, by communicator, ranks and tag; they never match other messages.

        Args:
            array: a contiguous array in GPU memory; kept until the request is freed.
            partitions: 1 or more; the receiver may have another number of them.
            count: elements of ``datatype`` in one partition.
            datatype: a constant such as ``gmpi.FLOAT``, or a handle of ``commit``.
            dest: rank in ``comm``, or PROC_NULL.
            tag: 0 .. MPI_TAG_UB.
            comm: a communicator handle.

        Raises:
            ArgumentError: an argument is wrong.
            DatatypeError: elements leave the array.
            ContextError: there is no more room.
        """
        call = "Psend_init"
        return self._make(call, True, array, (partitions, count, datatype), (dest, tag, comm))

    def Precv_init(
        self,
        array: Any,
        partitions: int,
        count: int,
        datatype: int,
        source: int,
        tag: int = 0,
        comm: int = COMM_WORLD,
    ) -> int:
        """Makes a partitioned receive, for kernels (MPI 4.1 section 4.2.1): its handle.

        As ``Psend_init``. Both must have equally many bytes in all, else calls of kernels return
        ``ERR_COUNT`` and ``synchronize`` raises. There are no wildcards. Long partitions go
        straight into an array of ``empty``, or a registered one; into others by way of staging.
        """
        call = "Precv_init"
        return self._make(call, False, array, (partitions, count, datatype), (source, tag, comm))

    def Request_free(self, request: int) -> None:
        """Forgets a partitioned request, which is not active (MPI 4.1 section 3.7.3); local.

        Raises:
            ContextError: it is active, was freed before, or is no such request.
        """
        self._require_kernels()
        self._partitioned.free(Argument("Request_free", "request").whole(request, "a request"))

    # --- arguments --------------------------------------------------------------------------------

    def _require_kernels(self) -> None:
        self._require_open()
        if not self._has_kernels:
            raise ContextError("this context was opened with gpu=False: it has no kernels")

    def _make(
        self,
        call: str,
        sends: bool,
        array: Any,
        amount: tuple[int, int, int],
        where: tuple[int, int, int],
    ) -> int:
        self._require_kernels()
        comm = self._checked_communicator(call, where[2])
        peer = self._checked_peer(call, sends, where[0], comm)
        high = int(self._state.globals[G_TAG_UB])
        tag = checked_tag(Argument(call, "tag"), where[1], high, False)
        partitions = _whole(call, "partitions", amount[0], 1, MOST_PARTITIONS)
        count = _whole(call, "count", amount[1], 0, 1 << 31)
        address, nbytes, itemsize = _place(call, array)
        datatype, plan = self._checked_datatype(call, amount[2])
        size, row, extent = datatype >> 8 & 0xFF, 0, 0
        elements = partitions * count
        if plan is not None:
            address, row = self._typed(plan, datatype, elements, (address, nbytes, sends))
            size, datatype = plan.size, datatype if row else 0
            extent = plan.extent
        else:
            _require_fit(call, datatype, itemsize)
            _require_room(call, elements * size, nbytes)
            datatype = 0
        shape = Shape(
            sends,
            comm,
            peer,
            tag,
            partitions,
            elements,
            count * size,
            address,
            datatype,
            row,
            extent,
            array,
        )
        handle = self._partitioned.make(shape)
        self._device = self._device._replace(shape=self._device.shape | 1 << SHAPE_DIRECT_SHIFT)
        return handle

    def _checked_communicator(self, call: str, comm: int) -> int:
        known = self._state.communicators
        allowed = f"0..{len(known) - 1}"
        index = Argument(call, "comm").whole(comm, allowed)
        if not 0 <= index < len(known) or known[index].is_free:
            raise Argument(call, "comm").refused(
                f"comm is {index}, allowed is {allowed}; register it with Context.comm() first",
                index,
                allowed,
                MPI.ERR_COMM,
            )
        return index

    def _checked_peer(self, call: str, sends: bool, rank: int, comm: int) -> int:
        communicator = self._state.communicators[comm]
        argument = Argument(call, "dest" if sends else "source")
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

    def _checked_datatype(self, call: str, datatype: Any) -> tuple[int, Plan | None]:
        """(handle, plan of a derived one)."""
        allowed = "a constant such as gmpi.FLOAT, or a handle of Context.commit()"
        handle = Argument(call, "datatype").whole(datatype, allowed)
        if handle & ~0xFFFF == DATATYPE_MARK and handle in DATATYPE_NAMES:
            return handle, None
        plans = self._datatypes.plans
        if handle not in plans:
            raise DatatypeError(
                f"{call} in host: datatype is {handle:#x}, allowed is {allowed}; this one was "
                "freed, or never committed in this context"
            )
        return handle, plans[handle]

    def _typed(
        self, plan: Plan, datatype: int, elements: int, buffer: tuple[int, int, bool]
    ) -> tuple[int, int]:
        """(address, row of the datatype; 0: the bytes lie in one piece from there on)."""
        address, nbytes, sends = buffer
        low, high = plan.reach(elements)
        if low < 0 or high > nbytes:
            raise DatatypeError(
                f"{elements} elements of the datatype leave the array: "
                f"{plan.first_outside(elements, 0, nbytes)}; pass a larger array, fewer or smaller "
                "partitions"
            )
        if plan.is_contiguous:
            return address + low, 0
        if not sends and elements > distinct_elements(plan):
            raise DatatypeError(
                f"{elements} elements of the datatype overlap, and MPI forbids to receive into "
                "overlapping elements"
            )
        return address, self._datatypes.row_address(datatype)


def _whole(call: str, name: str, value: Any, low: int, high: int) -> int:
    allowed = f"{low}..{high}"
    number = Argument(call, name).whole(value, allowed)
    if not low <= number <= high:
        error = MPI.ERR_COUNT if name == "count" else MPI.ERR_ARG
        raise Argument(call, name).refused(
            f"{name} is {number}, allowed is {allowed}", number, allowed, error
        )
    return number


def _place(call: str, array: Any) -> tuple[int, int, int]:
    """(address, bytes, bytes of an element) of a buffer."""
    argument = Argument(call, "array")
    try:
        address, nbytes = place_of(array)
    except TypeError:
        allowed = "an array in GPU memory, such as of Context.empty or Numba"
        raise argument.has_wrong_type(
            f"array is a {type(array).__name__}, allowed is {allowed}", array, allowed
        ) from None
    except ValueError:
        allowed = "an array in one piece"
        raise argument.refused(
            f"array is a strided view, allowed is {allowed}; pass the whole array and a derived "
            "datatype",
            array,
            allowed,
        ) from None
    return address, nbytes, np.dtype(array.dtype).itemsize


def _require_fit(call: str, datatype: int, itemsize: int) -> None:
    """Elements of the array and of a predefined datatype have one size, or one of them is bytes."""
    size = datatype >> 8 & 0xFF
    if size != itemsize and 1 not in (size, itemsize):
        name = DATATYPE_NAMES[datatype]
        allowed = f"one of {itemsize} bytes, as the elements of the array"
        raise Argument(call, "datatype").refused(
            f"datatype is {name}, of {size} bytes, allowed is {allowed}",
            datatype,
            allowed,
            MPI.ERR_TYPE,
        )


def _require_room(call: str, wanted: int, nbytes: int) -> None:
    if wanted > nbytes:
        allowed = f"an array of at least {wanted} bytes"
        raise Argument(call, "array").refused(
            f"array is one of {nbytes} bytes, allowed is {allowed}; or fewer or smaller partitions",
            nbytes,
            allowed,
        )
