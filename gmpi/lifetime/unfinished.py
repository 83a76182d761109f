"""What MPI still has when a context ends, and the memory that it may still use.

After an abort, a time limit or Ctrl-C MPI holds requests of the context. Receives can be cancelled,
unless their message is on its way. Sends and collectives cannot: they end when the other ranks do
their part, perhaps in an MPI call that the program makes long after. Until then MPI reads and
writes the staging that they were started from. So that memory is kept, in this process, until MPI
is done with it, which is asked whenever a context opens or closes. What MPI never finishes is kept
for good.
"""

from __future__ import annotations

import atexit
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from mpi4py import MPI

from gmpi.contract.wire import OP_BARRIER
from gmpi.lifetime import process
from host_proxy.platform import mpi_library
from host_proxy.platform import state as st

if TYPE_CHECKING:
    from gmpi.context import Context


class Unfinished(NamedTuple):
    """An MPI request that nobody has seen complete.

    Attributes:
        kind: ``receive``, ``send`` or ``collective``.
    """

    request: MPI.Request
    kind: str

    @property
    def is_open(self) -> bool:
        """Whether MPI may still use its memory."""
        try:
            return bool(self.request) and not self.request.Test()
        except MPI.Exception:  # it has failed: MPI is done with it
            return False


class _Kept(NamedTuple):
    """What one context has left behind."""

    requests: list[Unfinished]
    memory: tuple[Any, ...]
    nbytes: int


_kept: list[_Kept] = []
_forever: list[tuple[Any, ...]] = []  # MPI has been finalised meanwhile, or is about to be


def kept() -> tuple[int, int]:
    """(requests that MPI has not finished, bytes of memory kept for them) of closed contexts."""
    return sum(len(k.requests) for k in _kept), sum(k.nbytes for k in _kept)


def compiled_requests(state: st.State) -> list[Unfinished]:
    """What the compiled engine has left behind, taken out of its table. After its thread's end."""
    found = []
    kept, window, end = (int(state.globals[i]) for i in (st.G_KEPT, st.G_WINDOW, st.G_END))
    for number in [*range(kept), *range(window, end)]:
        slot, kind = (int(v) for v in state.pending[number, [st.A_SLOT, st.A_KIND]])
        if slot == st.GONE or int(state.slots[slot, st.S_OP]) == OP_BARRIER:  # which has no memory
            continue
        at = int(state.globals[st.G_HANDLES]) + number * mpi_library.HANDLE_BYTES
        receives = kind in (st.RECEIVE, st.RECEIVE_CHUNK, st.CREDIT)
        name = "receive" if receives else "collective" if kind == st.COLLECTIVE else "send"
        found.append(Unfinished(mpi_library.request_at(at), name))
    state.globals[[st.G_ACTIVE, st.G_END, st.G_KEPT, st.G_WINDOW]] = 0
    return found


def requests_of(context: Context) -> list[Unfinished]:
    """All that MPI still has of a context whose threads have ended; receives are cancelled."""
    with context._host_progress.lock:  # a thread of the host may be at it
        return _requests_of(context)


def _requests_of(context: Context) -> list[Unfinished]:
    found = compiled_requests(context._state)
    for communicator in context._state.communicators:
        for duplicate in communicator.duplicates:
            found += [Unfinished(*entry) for entry in duplicate.unfinished()]
    found += [Unfinished(*entry) for entry in context._partitioned.unfinished()]
    found += [Unfinished(request, "send") for request in context._watchdog.sends]
    for request, kind in found:
        if request and kind == "receive":  # of a send: MPICH 5 crashes
            request.Cancel()
    return [entry for entry in found if entry.is_open]


def keep(requests: list[Unfinished], memory: tuple[Any, ...], nbytes: int) -> None:
    """Keeps memory, which nobody else refers to, until MPI is done with the requests."""
    _kept.append(_Kept(requests, memory, nbytes))
    counts = Counter(entry.kind for entry in requests)
    names = ", ".join(f"{n} {kind}{'s' if n > 1 else ''}" for kind, n in sorted(counts.items()))
    number, total = kept()
    warnings.warn(
        f"MPI has not finished {names} of the closed context, which cannot be cancelled: "
        f"{_mib(nbytes)} of memory that MPI may still use are kept until it has, "
        f"{_mib(total)} for {number} requests in all; they end when the other ranks do their part",
        RuntimeWarning,
        stacklevel=7,
    )


def _mib(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):.1f} MiB"


def settle() -> None:
    """Gives back what MPI has finished with since."""
    if process.forked or MPI.Is_finalized():
        return
    before, _kept[:] = list(_kept), []
    for requests, memory, nbytes in before:
        still = [entry for entry in requests if entry.is_open]
        if still:
            _kept.append(_Kept(still, memory, nbytes))


def let_go() -> None:
    """MPI is about to be finalised, or the process to end: requests that may be freed are.

    Their memory stays: MPI may use it until it is finalised.
    """
    if process.forked or MPI.Is_finalized():
        return
    settle()
    for requests, memory, _ in _kept:
        _forever.append(memory)
        for request, kind in requests:
            if kind != "collective":  # which may not be freed before it is complete
                request.Free()
    _kept.clear()


atexit.register(let_go)
