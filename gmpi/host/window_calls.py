"""``Context``: windows of one-sided communication."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from gmpi.contract.constants import COMM_WORLD
from gmpi.host.arguments import Argument, checked_communicator
from gmpi.host.partitioned_calls import PartitionedCalls


class WindowCalls(PartitionedCalls):
    """A part of ``Context``, which see."""

    def _register(self, comm: MPI.Comm, no_any_tag: bool, direct: bool, long: bool = True) -> int:
        raise NotImplementedError

    def win(
        self,
        array: Any,
        comm: int = COMM_WORLD,
        *,
        disp_unit: int | None = None,
        num_notify: int = 0,
    ) -> int:
        """Makes a window for one-sided calls of kernels (MPI 4.1 section 12.2.1): its handle.

        Collective over ``comm``, and no kernel of the context may be running. All kernels must
        reach the memory of all ranks: GPUs of one node that map each other's memory.

        Args:
            array: this rank's memory: an array in GPU memory in one piece, of ``empty`` or
                ``zeros``, or one that is registered or can be. It stays until the context closes,
                because peers have mapped it. None: this rank has none, and may have no kernels.
            comm: a communicator handle.
            disp_unit: bytes by which kernels of all ranks count displacements in this rank's
                memory. None: an element of the array.
            num_notify: how many counters GMPI_Put_notify of all ranks has in this rank, up to 64,
                all 0 at first.

        Raises:
            ArgumentError: ``comm`` is no communicator handle.
            ContextError: on all ranks, where one has no such array, cannot reach the memory of
                another, or has 64 windows.
        """
        self._require_open()
        known = self._state.communicators
        index = checked_communicator(Argument("win", "comm"), comm, known)
        if disp_unit is None:
            disp_unit = int(getattr(getattr(array, "dtype", None), "itemsize", 1))
        return self._windows.make(array, index, disp_unit, num_notify)

    def win_free(self, win: int) -> None:
        """Forgets a window (MPI 4.1 section 12.2.5); collective over its communicator.

        Waits for all its ranks. No kernel of the context may be running.

        Raises:
            ContextError: it was freed before, is no window, or a kernel is running on a rank.
        """
        self._require_open()
        self._windows.free(win)

    def _register_window(self, comm: MPI.Comm) -> int:
        """A window's own communicator, by a duplicate of its ranks' one; collective."""
        named = comm.Dup(MPI.INFO_NULL)
        named.Set_name("window")
        try:
            return self._register(named, False, True, False)
        finally:
            named.Free()
