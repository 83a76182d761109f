"""``Context``: partitioned requests, and GPU memory that peers can write to."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from device_lib.platform.context import AnyContext
from gmpi.contract.constants import COMM_WORLD
from gmpi.contract.sizes import SHAPE_DIRECT_SHIFT
from gmpi.errors import ContextError
from gmpi.host.arguments import Argument, checked_communicator
from gmpi.host.partitioned import Partitioned
from gmpi.host.partitioned_arguments import (
    IN_ONE_PIECE,
    WHOLE_ARRAY,
    Arguments,
    Buffer,
    Call,
)
from gmpi.memory.exported import place_of
from host_proxy.platform.state import State

if TYPE_CHECKING:
    from gmpi.committed import Datatypes
    from gmpi.host.windows import Windows
    from gmpi.memory.regions import Memory


class PartitionedCalls:
    """A part of ``Context``, which see."""

    _device: AnyContext
    _datatypes: Datatypes
    _memory: Memory
    _partitioned: Partitioned
    _windows: Windows
    _state: State
    _has_kernels: bool

    def _require_open(self) -> None:
        raise NotImplementedError

    # --- memory -----------------------------------------------------------------------------------

    def empty(
        self,
        shape: int | tuple[int, ...],
        dtype: Any = np.float64,
        *,
        comm: int | None = None,
    ) -> Any:
        """An array in GPU memory that the other ranks of the node can write to.

        As ``cuda.device_array``. Partitioned receives, long messages and long collectives of the
        direct road are stored to it by the sender, without a second copy.

        Args:
            comm: a communicator handle: only its ranks map the array for messages and
                collectives. None: all ranks that may write to it.

        Raises:
            ContextError: this rank has no kernels.
            ArgumentError: ``comm`` is no communicator handle.
        """
        peers = self._peers_of("empty", comm)
        return self._partitioned.exported.allocate(shape, dtype, False, peers)

    def zeros(
        self,
        shape: int | tuple[int, ...],
        dtype: Any = np.float64,
        *,
        comm: int | None = None,
    ) -> Any:
        """``empty``, filled with zeros."""
        peers = self._peers_of("zeros", comm)
        return self._partitioned.exported.allocate(shape, dtype, True, peers)

    def register(self, array: Any, *, comm: int | None = None) -> None:
        """Lets the other ranks of the node write to an array; local.

        Any contiguous array in GPU memory: Numba's, or one with ``__cuda_array_interface__``, also
        from a pool. The context keeps it; once a peer has mapped it, until the context closes.

        Args:
            comm: as for ``empty``.

        Raises:
            ContextError: it is no such array, its memory cannot be exported, or it is registered.
            ArgumentError: ``comm`` is no communicator handle.
        """
        peers = self._peers_of("register", comm)
        self._partitioned.exported.register(array, peers)

    def _peers_of(self, call: str, comm: int | None) -> frozenset[int] | None:
        """The ranks of a communicator that are on this node; None: of any."""
        self._require_kernels()
        if comm is None:
            return None
        known = self._state.communicators
        index = checked_communicator(Argument(call, "comm"), comm, known)
        return frozenset(int(peer) for peer in known[index].peers if peer >= 0)

    def unregister(self, array: Any) -> None:
        """Ends what ``register``, ``empty`` or ``zeros`` has begun: for new requests it is memory
        like any other.

        Raises:
            ContextError: it is not registered, or a partitioned request or a window uses it.
        """
        self._require_kernels()
        users = windows = 0
        with suppress(TypeError, ValueError):
            users = self._partitioned.users_of(*place_of(array))
            windows = self._windows.users_of(*place_of(array))
        in_use = f"{users} partitioned requests use it" if users else ""
        in_use = f"{windows} windows lie in it" if windows else in_use
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

        As ``Psend_init``. Both must have the same bytes in all; otherwise calls of kernels return
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
        caller = Call(call, sends)
        arguments = Arguments(self._state, self._datatypes)
        shape = arguments.shape(caller, amount, where, lambda elements: _place(caller, array))
        handle = self._partitioned.make(shape)
        self._has_partitioned()
        return handle

    def _has_partitioned(self) -> None:
        """Kernels that are launched from now on look for partitioned requests; any thread."""
        self._device = self._device._replace(shape=self._device.shape | 1 << SHAPE_DIRECT_SHIFT)


def _place(call: Call, array: Any) -> Buffer:
    argument = call.argument("array")
    try:
        address, nbytes = place_of(array)
    except TypeError:
        allowed = "an array in GPU memory, such as of Context.empty or Numba"
        raise argument.has_wrong_type(
            f"array is a {type(array).__name__}, allowed is {allowed}", array, allowed
        ) from None
    except ValueError as exc:
        raise argument.refused(
            f"array is {exc}, allowed is {IN_ONE_PIECE}; {WHOLE_ARRAY}", array, IN_ONE_PIECE
        ) from None
    return Buffer(address, nbytes, np.dtype(array.dtype).itemsize, array)
