"""Faults between the proxy and MPI: compiled functions that stand in for MPI's.

The compiled engine calls MPI by addresses in its table of globals. A stand-in takes the place of
one, does its harm at the call that was asked for, and passes every other call on. It is compiled,
so it needs no GIL and costs the proxy nothing. The mpi4py engine gets a communicator whose methods
raise.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from mpi4py import MPI
from numba import cfunc, int32, int64, njit

import gmpi
from host_proxy.platform.duplicate import Duplicate
from host_proxy.platform.native import call, get, load_int, put, store_int
from host_proxy.platform.state import (
    C_HANDLE,
    F_IALLREDUCE,
    F_IBARRIER,
    F_IBCAST,
    F_IRECV,
    F_ISEND,
    F_NANOSLEEP,
    F_REQUEST_FREE,
    F_TEST,
    F_TESTSOME,
    G_STATUS_BYTES,
    G_STATUS_ERROR,
    G_STATUS_TAG,
)

_SEEN, _HARMED = range(2)
_NAMES = {
    F_ISEND: "Isend", F_IRECV: "Irecv", F_IALLREDUCE: "Iallreduce", F_IBCAST: "Ibcast",
    F_IBARRIER: "Ibarrier",
}  # fmt: skip


class StandIn:
    """One function of the table, replaced until ``restore``."""

    def __init__(self, g: gmpi.Context, which: int) -> None:
        self.globals = g._state.globals
        self.keep = g._state.keep
        self.which = which
        self.original = int(self.globals[which])
        self.counts = np.zeros(2, np.int64)
        self.function: Any = None

    def install(self, function: Any) -> StandIn:
        self.function = function
        # The proxy executes the one and counts in the other.
        self.keep += [self.counts, function]
        self.globals[self.which] = function.address
        return self

    def restore(self) -> None:
        self.globals[self.which] = self.original

    @property
    def harmed(self) -> int:
        """How often it has done its harm."""
        return int(self.counts[_HARMED])


def fail_call(
    g: gmpi.Context, which: int, n: int, tag: int = -1, nbytes: int = -1, comm: int = 0
) -> StandIn:
    """The ``n``-th call (from 1) of MPI_Isend, MPI_Irecv or a collective returns MPI_ERR_OTHER.

    Args:
        tag, nbytes: messages with this tag, of this length only.
        comm: a collective's communicator.
    """
    if which in (F_IALLREDUCE, F_IBCAST, F_IBARRIER):
        return _fail_collective(g, which, n, comm)
    stand_in = StandIn(g, which)
    original, counts = stand_in.original, int(stand_in.counts.ctypes.data)
    code = int(MPI.ERR_OTHER)

    @cfunc(int32(*[int64] * 7))
    def seven(a, b, c, d, e, f, h):  # type: ignore[no-untyped-def]
        if (tag == -1 or e & 0xFFFFFFFF == tag) and (nbytes == -1 or b == nbytes):
            put(counts, _SEEN, get(counts, _SEEN) + 1)
            if get(counts, _SEEN) == n:
                put(counts, _HARMED, 1)
                return int32(code)
        return int32(call(original, (a, b, c, d, e, f, h)))

    return stand_in.install(seven)


def _fail_collective(g: gmpi.Context, which: int, n: int, comm: int) -> StandIn:
    stand_in = StandIn(g, which)
    original, counts = stand_in.original, int(stand_in.counts.ctypes.data)
    code, wanted = int(MPI.ERR_OTHER), int(g._state.communicator_table[comm, C_HANDLE])

    @njit
    def fails(handle):  # type: ignore[no-untyped-def]
        if handle == wanted:
            put(counts, _SEEN, get(counts, _SEEN) + 1)
            if get(counts, _SEEN) == n:
                put(counts, _HARMED, 1)
                return True
        return False

    # One of them: each takes seconds to compile.
    if which == F_IALLREDUCE:

        @cfunc(int32(*[int64] * 7))
        def function(a, b, c, d, e, comm, h):  # type: ignore[no-untyped-def]
            return int32(code if fails(comm) else call(original, (a, b, c, d, e, comm, h)))

    elif which == F_IBCAST:

        @cfunc(int32(*[int64] * 6))
        def function(a, b, c, d, comm, f):  # type: ignore[no-untyped-def]
            return int32(code if fails(comm) else call(original, (a, b, c, d, comm, f)))

    else:

        @cfunc(int32(*[int64] * 2))
        def function(comm, b):  # type: ignore[no-untyped-def]
            return int32(code if fails(comm) else call(original, (comm, b)))

    return stand_in.install(function)


def fail_completion(g: gmpi.Context, tag: int = -1) -> StandIn:
    """MPI_Testsome says that the receive that completes with this tag has failed; without a tag
    that the first request has that completes."""
    stand_in = StandIn(g, F_TESTSOME)
    table = stand_in.globals
    original, counts = stand_in.original, int(stand_in.counts.ctypes.data)
    size, error = int(table[G_STATUS_BYTES]), int(table[G_STATUS_ERROR])
    tag_at = int(table[G_STATUS_TAG])
    code, in_status = int(MPI.ERR_OTHER), int(MPI.ERR_IN_STATUS)

    @cfunc(int32(*[int64] * 5))
    def testsome(incount, requests, outcount, indices, statuses):  # type: ignore[no-untyped-def]
        result = call(original, (incount, requests, outcount, indices, statuses))
        if result != 0 or get(counts, _HARMED) != 0:
            return int32(result)
        found = -1
        for i in range(load_int(outcount)):
            if tag == -1 or load_int(statuses + i * size + tag_at) == tag:
                found = i
        if found < 0:
            return int32(0)
        put(counts, _HARMED, 1)
        for i in range(load_int(outcount)):
            store_int(statuses + i * size + error, code if i == found else 0)
        return int32(in_status)

    return stand_in.install(testsome)


def break_testsome(g: gmpi.Context) -> StandIn:
    """MPI_Testsome as a whole returns MPI_ERR_OTHER, always, and completes nothing."""
    stand_in = StandIn(g, F_TESTSOME)
    counts = int(stand_in.counts.ctypes.data)
    code = int(MPI.ERR_OTHER)

    @cfunc(int32(*[int64] * 5))
    def testsome(incount, requests, outcount, indices, statuses):  # type: ignore[no-untyped-def]
        put(counts, _HARMED, get(counts, _HARMED) + 1)
        return int32(code)

    return stand_in.install(testsome)


def stall(g: gmpi.Context, which: int, seconds: float, tag: int) -> StandIn:
    """The first call of MPI_Isend or MPI_Irecv with this tag returns that late: no record is
    taken meanwhile."""
    stand_in = StandIn(g, which)
    original, counts = stand_in.original, int(stand_in.counts.ctypes.data)
    nanosleep = int(stand_in.globals[F_NANOSLEEP])
    time = np.array([int(seconds), int(seconds % 1 * 1e9)], np.int64)
    g._state.keep.append(time)
    time_at = int(time.ctypes.data)

    @cfunc(int32(*[int64] * 7))
    def seven(a, b, c, d, e, f, h):  # type: ignore[no-untyped-def]
        if e & 0xFFFFFFFF == tag and get(counts, _HARMED) == 0:
            put(counts, _HARMED, 1)
            call(nanosleep, (time_at, 0))
        return int32(call(original, (a, b, c, d, e, f, h)))

    return stand_in.install(seven)


class _Failing(Duplicate):
    """A communicator of which one method raises at its n-th call."""

    def arm(self, method: str, n: int, tag: int, nbytes: int) -> _Failing:
        self.method, self.n, self.tag, self.nbytes = method, n, tag, nbytes
        self.seen = self.harmed = 0
        return self

    def _count(self, method: str, tag: int, nbytes: int) -> None:
        if method != self.method or self.tag not in (-1, tag) or self.nbytes not in (-1, nbytes):
            return
        self.seen += 1
        if self.seen == self.n:
            self.harmed = 1
            raise MPI.Exception(MPI.ERR_OTHER)

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> MPI.Request:
        self._count("Isend", tag, len(buf[0]))
        return super().Isend(buf, dest, tag)

    def Irecv(self, buf: Any, source: int = 0, tag: int = 0) -> MPI.Request:
        self._count("Irecv", tag, len(buf[0]))
        return super().Irecv(buf, source, tag)

    def Iallreduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> MPI.Request:
        self._count("Iallreduce", -1, -1)
        return super().Iallreduce(sendbuf, recvbuf, op)

    def Ibcast(self, buf: Any, root: int = 0) -> MPI.Request:
        self._count("Ibcast", -1, -1)
        return super().Ibcast(buf, root)

    def Ibarrier(self) -> MPI.Request:
        self._count("Ibarrier", -1, -1)
        return super().Ibarrier()


def fail_call_mpi4py(
    g: gmpi.Context, which: int, n: int, tag: int = -1, nbytes: int = -1, comm: int = 0
) -> _Failing:
    """``fail_call`` for the mpi4py engine. Lengths are those of chunks, tags of anything else."""
    communicator = g._state.communicators[comm]
    name = "messages" if nbytes == -1 else "chunks"
    failing = _Failing(getattr(communicator, name)).arm(_NAMES[which], n, tag, nbytes)
    setattr(communicator, name, failing)
    return failing


def kill_proxy(g: gmpi.Context) -> None:
    """An exception out of nowhere ends the proxy's thread, whatever it is doing."""
    from host_proxy.platform.state import G_PYTHON

    thread = g._proxy._thread.ident
    assert thread is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), ctypes.py_object(MemoryError)
    )
    # The compiled loop comes back to Python only when there is something to do there.
    g._state.globals[G_PYTHON] += 1


# --- every call in turn ---------------------------------------------------------------------------

_STEPS = np.zeros(2, np.int64)  # steps so far; the one that fails, 0: none
_STEPS_AT = int(_STEPS.ctypes.data)


@njit
def _fails() -> bool:
    put(_STEPS_AT, 0, get(_STEPS_AT, 0) + 1)
    return get(_STEPS_AT, 0) == get(_STEPS_AT, 1)


class EveryCall:
    """Counts the calls of MPI for messages, and what they complete; any one of these fails.

    In both engines, and for the host. A call that fails sends and receives nothing; what fails
    while it completes has been sent, or received, all the same.
    """

    def __init__(self, g: gmpi.Context) -> None:
        self._compiled(g)
        communicator = g._state.communicators[0]
        communicator.messages = _Counting(communicator.messages)
        communicator.chunks = _Counting(communicator.chunks)

    def arm(self, step: int) -> None:
        _STEPS[:] = 0, step

    @property
    def steps(self) -> int:
        return int(_STEPS[0])

    def _compiled(self, g: gmpi.Context) -> None:
        """Stand-ins for the compiled engine, made once."""
        table = g._state.globals
        places = F_ISEND, F_IRECV, F_TEST, F_TESTSOME, F_REQUEST_FREE
        if not _EVERY:
            originals = [int(table[place]) for place in places]
            layout = [int(table[i]) for i in (G_STATUS_BYTES, G_STATUS_ERROR)]
            _EVERY.extend(_every_call(*originals, *layout))
        for place, function in zip(places, _EVERY):
            table[place] = function.address


_EVERY: list[Any] = []


def _every_call(
    isend_at: int,
    irecv_at: int,
    test_at: int,
    testsome_at: int,
    free_at: int,
    size: int,
    error: int,
) -> list[Any]:  # fmt: skip
    code, in_status = int(MPI.ERR_OTHER), int(MPI.ERR_IN_STATUS)

    @cfunc(int32(*[int64] * 7))
    def isend(a, b, c, d, e, f, h):  # type: ignore[no-untyped-def]
        return int32(code if _fails() else call(isend_at, (a, b, c, d, e, f, h)))

    @cfunc(int32(*[int64] * 7))
    def irecv(a, b, c, d, e, f, h):  # type: ignore[no-untyped-def]
        return int32(code if _fails() else call(irecv_at, (a, b, c, d, e, f, h)))

    @cfunc(int32(*[int64] * 3))
    def test(request, flag, status):  # type: ignore[no-untyped-def]
        result = call(test_at, (request, flag, status))
        if load_int(flag) != 0 and _fails():
            result = code
        return int32(result)

    @cfunc(int32(*[int64] * 5))
    def testsome(incount, requests, outcount, indices, statuses):  # type: ignore[no-untyped-def]
        result = call(testsome_at, (incount, requests, outcount, indices, statuses))
        failed = -1
        for i in range(load_int(outcount)):
            if _fails():
                failed = i
        if failed < 0:
            return int32(result)
        for i in range(load_int(outcount)):
            store_int(statuses + i * size + error, code if i == failed else 0)
        return int32(in_status)

    @cfunc(int32(int64))
    def free(request):  # type: ignore[no-untyped-def]
        result = call(free_at, (request,))
        return int32(code if _fails() else result)

    return [isend, irecv, test, testsome, free]


def _step() -> None:
    _STEPS[0] += 1
    if _STEPS[0] == _STEPS[1]:
        raise MPI.Exception(MPI.ERR_OTHER)


class FirstTest:
    """``fail_completion`` without a tag, for the mpi4py engine."""

    def __init__(self, g: gmpi.Context) -> None:
        communicator = g._state.communicators[0]
        communicator.messages = _Counting(communicator.messages)
        _STEPS[:] = 0, 1

    @property
    def harmed(self) -> bool:
        return bool(_STEPS[0])


class _CountingRequest(MPI.Request):
    def Test(self, status: MPI.Status | None = None) -> bool:
        done = super().Test(status)
        if done:
            _step()
        return done

    def Free(self) -> None:
        super().Free()
        _step()


class _Counting(Duplicate):
    def started(self, request: MPI.Request, kind: str) -> MPI.Request:
        return super().started(_CountingRequest(request), kind)

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> MPI.Request:
        _step()
        return super().Isend(buf, dest, tag)

    def Irecv(self, buf: Any, source: int = 0, tag: int = 0) -> MPI.Request:
        _step()
        return super().Irecv(buf, source, tag)
