"""What a context makes usable in kernels: communicators, datatypes and operations, by integers."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from device_lib.platform.context import AnyContext
from gmpi.committed import Datatypes
from gmpi.communicators import Communicators
from gmpi.contract.constants import COMM_WORLD
from gmpi.contract.sizes import SHAPE_DIRECT_SHIFT
from gmpi.contract.wire import COMMUNICATORS
from gmpi.errors import ContextError
from gmpi.host.requests import Progress
from gmpi.lifetime.opening import agree_on_tags, agree_on_wildcards, require_intracomm
from gmpi.lifetime.watchdog import Watchdog
from gmpi.memory.regions import Memory
from host_proxy.platform.state import G_CHANNELS, OPEN, S_COMM, S_STATE, State
from host_proxy.proxy import Proxy


class Handles:
    """These methods of ``gmpi.Context``."""

    _device: AnyContext
    _memory: Memory
    _state: State
    _datatypes: Datatypes
    _communicators: Communicators
    _host_progress: Progress
    _proxy: Proxy
    _watchdog: Watchdog

    def _require_open(self) -> None:
        raise NotImplementedError

    @property
    def kernels_running(self) -> bool:
        raise NotImplementedError

    def comm(
        self, comm: MPI.Comm, *, no_any_tag: bool | None = None, wildcards: bool | None = None
    ) -> int:
        """Registers a communicator: its integer handle for kernels and for ``host``.

        Collective over ``comm``, which is duplicated. Handles are not the same number on every
        rank unless all ranks register the same communicators in the same order. ``no_any_tag`` and
        ``wildcards`` are as for ``Context``.

        Raises:
            ContextError: ``comm`` is no intracommunicator, the context is closed, it has as many
                communicators as it can have (256), or ranks differ in ``no_any_tag`` or
                ``wildcards``.
        """
        self._require_open()
        require_intracomm(comm)
        direct = not agree_on_wildcards(comm, wildcards)
        no_any_tag = agree_on_tags(comm, no_any_tag) or direct
        return self._register(comm, no_any_tag, direct)

    def _register(self, comm: MPI.Comm, no_any_tag: bool, direct: bool, long: bool = True) -> int:
        index = self._communicators.register(comm, no_any_tag, direct, long)
        if direct and self._memory.direct:  # kernels need not ask before
            shape = self._device.shape | 1 << SHAPE_DIRECT_SHIFT
            self._device = self._device._replace(shape=shape)
            self._state.globals[G_CHANNELS] = 1
        return index

    def commit(self, datatype: MPI.Datatype) -> int:
        """Makes an MPI datatype usable in kernels: its integer handle (MPI 4.1 section 5.1.9).

        Local. Any constructor of MPI in any nesting over C types; it need not be committed with
        MPI, and may be freed there afterwards. Strided datatypes take no device memory and may be
        committed at any time; those with tables, while no kernel of this context runs.

        Raises:
            DatatypeError: it is DATATYPE_NULL, is made of Fortran types, or has tables while a
                kernel runs.
            ContextError: there are 1024 already.
        """
        self._require_open()
        return self._datatypes.commit(datatype, self.kernels_running)

    def free(self, handle: int) -> None:
        """Gives back a handle: one of ``commit`` (MPI 4.1 section 5.1.9), which is local, or one
        of ``comm`` (section 7.4.3), which is collective over that communicator.

        Raises:
            DatatypeError: it is no such handle, or a kernel or an open request may use the
                datatype.
            ContextError: the communicator is the context's own, was freed before, or requests are
                open on it, on whichever of its ranks.
        """
        self._require_open()
        if isinstance(handle, (int, np.integer)) and 0 <= handle < COMMUNICATORS:
            self._free_communicator(int(handle))
        else:
            self._datatypes.free(handle, self.kernels_running)

    def _free_communicator(self, index: int) -> None:
        """``free`` for a handle of ``comm``."""
        known = self._state.communicators
        if index == COMM_WORLD:
            raise ContextError(
                "communicator 0 is the context's own: it goes when the context closes"
            )
        if index >= len(known) or known[index].is_free:
            raise ContextError(
                f"communicator handle is {index}, which was freed before, or did not come from "
                "Context.comm() of this context"
            )
        self._give_back(index)

    def _give_back(self, index: int) -> None:
        """Frees a communicator that there is; collective over it.

        Raises:
            ContextError: requests are open on it, on whichever rank.
        """
        self._communicators.refuse(index)
        self._proxy.wait_for_turn()
        slots = self._state.slots
        requests = int(((slots[:, S_STATE] == OPEN) & (slots[:, S_COMM] == index)).sum())
        requests += self._host_progress.open_on(index)
        in_use = f"{requests} requests are open on it (see Context.pending)" if requests else ""
        settle = self._proxy.wait_for_turn
        self._communicators.free(index, in_use, self._watchdog, settle)

    def op(self, op: MPI.Op) -> int:
        """Makes a reduction's operation usable in kernels: its number, for ``op`` arguments (MPI
        4.1 section 6.9.5).

        Local; numbers are the same on all ranks if all register the same operations in the same
        order. The operation must live as long as the context. One of ``MPI.Op.Create`` is called
        with host memory, by the thread of the proxy, which waits for Python's lock.

        Raises:
            ContextError: ``op`` is none, or there are 52 already.
        """
        self._require_open()
        if not isinstance(op, MPI.Op) or op == MPI.OP_NULL:
            raise ContextError(
                f"op is {op!r}, allowed is an operation of mpi4py, such as MPI.Op.Create makes"
            )
        return self._state.reductions.add(op)
