"""What can go wrong while kernels communicate: each fault during each operation, on two ranks.

    mpiexec -n 2 python3 tests/ranks/faults.py [FAULT | OPERATION | FAULT.OPERATION ...]

Rank 0 has the fault, rank 1 is its peer. The first block makes the call that the fault hits; the
second one exchanges messages beside it, and all of these must arrive. A fault ends within its
bound with the error that docs/troubleshooting.md names, on both ranks, and a context that is opened
afterwards works. ``peer_killed`` and ``kernel_faults`` end the job or the use of the GPU, and run
only when they are named.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import inject
import numpy as np
from common import RANK, TIME_FACTOR, WORLD, barrier, end, pattern, run_faults, with_fault
from mpi4py import MPI
from numba import cuda
from play import (
    BYTE,
    CHUNK,
    DOUBLE,
    LONG,
    OPERATIONS,
    PEER,
    RELEASE_S,
    STALL_S,
    TAG,
    TIMEOUT_S,
    Play,
    after,
    compile_kernels,
    exchange,
    timed_out,
)  # fmt: skip
from script import Script

import gmpi
from host_proxy.platform.state import F_IALLREDUCE, F_IRECV, F_ISEND

# --- the faults -----------------------------------------------------------------------------------


def proxy_killed(op: str) -> None:
    play = Play(op, timeout_s=0 if RANK == 0 else TIMEOUT_S)
    play.beside()
    if RANK == 0:
        called, _ = play.call()
        play.when_stuck(lambda: inject.kill_proxy(play.g))
        play.run()
        assert time.monotonic() - play.struck < (RELEASE_S + 1.0) * TIME_FACTOR, (
            "the kernel was released late"
        )
        assert called.error == gmpi.GMPI_ERR_PROXY, called.error
        assert isinstance(play.error, gmpi.ProxyError) and "MemoryError" in str(play.error)
        play.check_beside()
        barrier()
        with contextlib.suppress(gmpi.ProxyError):
            play.g.close()
        barrier()
        after()
    else:
        called = play.waits_in_vain()
        play.run()
        assert called.error == gmpi.GMPI_ERR_TIMEOUT
        timed_out(play, "likely cause (proxy): the proxy thread of rank 0 has ended with Memory")
        play.end(20, gmpi.RequestTimeoutError)


def mpi_error(op: str) -> None:
    """The first MPI call of the operation fails, or what it started."""
    _mpi_error(op, 1, LONG if op == "send" else 8)


def mpi_error_later(op: str) -> None:
    """An MPI call in the middle of the operation fails: of a chunk, or of the second reduction."""
    _mpi_error(op, 2, 8 if op == "allreduce" else LONG)


def _mpi_error(op: str, n: int, nbytes: int) -> None:
    names = {"send": "GMPI_Send", "recv": "GMPI_Recv", "allreduce": "GMPI_Allreduce"}
    # Chunks of their own, by MPI, so that there is something to fail.
    play = Play(op, gpu_staging=False, timeout_s=20.0 * TIME_FACTOR)
    compiled = play.g.config.engine == "compiled"
    fail = inject.fail_call if compiled else inject.fail_call_mpi4py
    fault: Any = None
    if RANK == 0:
        which = {"send": F_ISEND, "allreduce": F_IALLREDUCE}.get(op, F_IRECV)
        if op == "wait" and n == 1 and compiled:
            fault = inject.fail_completion(play.g, TAG)
        elif op == "allreduce":
            fault = fail(play.g, which, n)
        elif n == 1:
            fault = fail(play.g, which, n, tag=TAG)
        else:
            fault = fail(play.g, which, n, nbytes=CHUNK)
    play.s.callers[1].pause(200_000_000)  # after the fault
    play.beside((8, 3000))
    if n > 1 and op == "allreduce":
        play.call(8)
    called, check = play.call(nbytes)
    play.run()
    if RANK == 0:
        assert fault.harmed, "the fault was not injected"
        assert called.error == gmpi.ERR_OTHER, called.error
        assert isinstance(play.error, gmpi.MPICallError), repr(play.error)
        assert play.error.operation == names.get(op, "GMPI_Irecv"), play.error
        assert f"tag {TAG}, communicator 0" in str(play.error) or op == "allreduce"
        play.end(20, gmpi.MPICallError)
    elif n == 1 and op in ("recv", "wait"):  # a short message: it was sent all the same
        assert called.error == gmpi.SUCCESS
        check()
        play.end(20)
    elif op == "allreduce":
        assert called.error == gmpi.GMPI_ERR_ABORTED, called.error
        assert isinstance(play.error, gmpi.PeerError), repr(play.error)
        assert "but rank 0 has failed in a collective on COMM_WORLD" in str(play.error)
        assert play.took < (0.2 + 1.5) * TIME_FACTOR, f"told after {play.took:.1f} s"
        play.end(20, gmpi.PeerError)
    else:
        # Told by rank 0: of its receive in "wait", which is rank 1's other request.
        assert called.error == (gmpi.SUCCESS if op == "wait" else gmpi.ERR_OTHER), called.error
        assert isinstance(play.error, gmpi.MPICallError), repr(play.error)
        assert "other rank is 0" in str(play.error), str(play.error)
        assert play.took < (0.2 + 1.0) * TIME_FACTOR, f"told after {play.took:.1f} s"
        play.end(20, gmpi.MPICallError)


def testsome_fails(op: str) -> None:
    """MPI cannot say what has completed: the proxy finds out by asking for each one."""
    play = Play(op)
    fault = inject.break_testsome(play.g) if RANK == 0 else None
    play.beside()
    called, check = play.call()
    play.run()
    assert called.error == gmpi.SUCCESS, called.error
    check()
    assert fault is None or fault.harmed or play.g.config.engine == "mpi4py"
    play.end(20)


def kernel_exits_early(op: str) -> None:
    """A kernel returns without waiting for what it has started."""
    play = Play(op, timeout_s=0 if RANK == 0 else TIMEOUT_S)
    play.beside()
    if RANK == 0:
        s = play.s
        if op in ("send", "wait"):
            s.isend(s.data(pattern(LONG, 1)), LONG, BYTE, PEER, TAG)
        if op in ("recv", "wait"):
            s.irecv(s.room(8), 8, BYTE, PEER, TAG)
        if op == "allreduce":
            s.iallreduce(s.data(np.arange(2.0)), s.room(16), 2, DOUBLE, gmpi.SUM)
        play.run()
        assert "requests are still open: GMPI_I" in str(play.error)
        play.end(20, gmpi.PendingError)
    else:
        play.waits_in_vain()
        play.run()
        timed_out(play, "likely cause")
        timed_out(play, "rank 0: 2 pending" if op == "wait" else "rank 0: 1 pending")
        play.end(20, gmpi.RequestTimeoutError)


def interrupted(op: str) -> None:
    """SIGINT, as Ctrl-C sends it, while a kernel waits."""
    play = Play(op, timeout_s=0)
    play.beside()
    if RANK == 1:
        play.waits_in_vain()
        play.run()
        assert "but rank 0 has ended with KeyboardInterrupt; " in str(play.error), play.error
        play.end(20, gmpi.PeerError)
        return
    play.call()
    play.when_stuck(lambda: os.kill(os.getpid(), signal.SIGINT))
    raised = False
    barrier()
    try:
        with play.g:
            play.s.launch(play.g)
            play.g.synchronize()
    except KeyboardInterrupt:
        raised = True
    assert raised, "SIGINT did not arrive"
    assert time.monotonic() - play.struck < 10 * TIME_FACTOR, "the kernel was released late"
    play.s.read_heap()
    barrier()
    barrier()
    after()


def slots_exhausted(op: str) -> None:
    """All request slots are in use: an error after ``resource_timeout_s``, and then it works."""
    _exhausted(op, 8, 32, request_slots=32)


def staging_exhausted(op: str) -> None:
    """The same with those of long messages: large ones and as many narrow ones as small ones."""
    _exhausted(op, LONG, 2 + 32, large_slots=2, request_slots=32)


def _exhausted(op: str, nbytes: int, slots: int, **settings: Any) -> None:
    play = Play(op, resource_timeout_s=0.4, timeout_s=10, **settings)
    s = play.s
    beside = exchange(s, s, (8, 3000), 50)  # before: it takes slots, too
    if RANK == 1:
        for i in range(slots):
            s.send(s.data(pattern(nbytes, i)), nbytes, BYTE, PEER, 100 + i)
        called, check = play.call(nbytes)
        play.run()
        assert called.error == gmpi.SUCCESS
    else:
        rooms = [s.room(nbytes) for _ in range(slots)]
        held = [s.irecv(room, nbytes, BYTE, PEER, 100 + i) for i, room in enumerate(rooms)]
        refused, _ = play.call(nbytes)
        waits = [s.wait(request) for request in held]
        called, check = play.call(nbytes)
        play.run()
        assert refused.error == gmpi.GMPI_ERR_NO_RESOURCE, refused.error
        assert {w.error for w in waits} == {gmpi.SUCCESS} and called.error == gmpi.SUCCESS
        for i, room in enumerate(rooms):
            s.expect(room, pattern(nbytes, i), "held before")
        assert f"{slots} requests of this size outstanding at once" in str(play.error)
    check()
    beside()
    play.end(20, gmpi.ResourceError if RANK == 0 else None)


def ring_full(op: str) -> None:
    """The proxy takes no record for a while: kernels are held up, and nothing is lost."""
    play = Play(op, ring_slots=64, timeout_s=STALL_S + 10)
    play.s = s = Script(callers=4)
    which = F_IRECV if play.g.config.engine == "compiled" else None
    if RANK == 0 and which is not None:
        inject.stall(play.g, which, STALL_S, 50)
    checks = []
    for number, caller in enumerate(s.callers[1:]):  # 3 x 40 records before the first wait
        rooms = [s.room(8) for _ in range(20)]
        requests = [caller.irecv(room, 8, BYTE, PEER, 50 + number) for room in rooms]
        for i in range(20):
            requests.append(caller.isend(s.data(pattern(8, i)), 8, BYTE, PEER, 50 + number))
        caller.waitall(requests)
        checks += [(room, i) for i, room in enumerate(rooms)]
    s.pause(100_000_000)  # until the ring is full
    called, check = play.call()
    play.run()
    assert called.error == gmpi.SUCCESS, (called.error, play.error)
    for room, i in checks:
        s.expect(room, pattern(8, i), "through a full ring")
    check()
    if which is not None:
        assert play.took > STALL_S or RANK == 1
    play.end(STALL_S + 20)


def slow_peer(op: str) -> None:
    """The other rank comes late."""
    play = Play(op, timeout_s=STALL_S + 10)
    play.beside()
    if RANK == 1:
        play.s.pause(int(STALL_S * 1e9))
    called, check = play.call()
    play.run()
    assert called.error == gmpi.SUCCESS
    check()
    assert play.took > STALL_S
    play.end(STALL_S + 20)


# --- faults that end the job, or the use of the GPU -----------------------------------------------


def peer_killed(op: str) -> None:
    """Rank 1 is killed. Most launchers kill the others, too; where not, rank 0 gets an error."""
    play = Play(op)
    play.beside()
    if RANK == 1:
        play.waits_in_vain()
        play.when_stuck(lambda: os.kill(os.getpid(), signal.SIGKILL))
    else:
        play.call()
    play.run()
    assert RANK == 0, "rank 1 lives"
    assert isinstance(play.error, (gmpi.RequestTimeoutError, gmpi.MPICallError)), play.error
    play.check_beside()
    assert play.took < 20
    print(f"ok peer_killed.{op}: survived with {type(play.error).__name__}", flush=True)
    os._exit(0)  # MPI_Finalize would wait for the dead


@cuda.jit
def _dies(ctx, out, data):  # type: ignore[no-untyped-def]
    gmpi.GMPI_Send(ctx, data, 8, BYTE, 1, 50, gmpi.COMM_WORLD)
    if cuda.threadIdx.x == 0:
        out[1 << 40] = 1  # an illegal address


def kernel_faults(op: str) -> None:
    """A kernel dies on rank 0. Under MPS this takes the kernels of all of the GPU's clients."""
    assert not gmpi.SIMULATOR, "needs a GPU"
    play = Play(op)
    if RANK == 0:
        out = cuda.to_device(np.zeros(8, np.int64))
        data = cuda.to_device(pattern(8, 3))
        arguments = (play.g.device, out, data)
        _dies.compile(tuple(_dies.typeof_pyval(a) for a in arguments))
        barrier()
        barrier()  # rank 1's kernel runs
        _dies[1, 32](*arguments)
        try:
            play.g.synchronize()
        except gmpi.KernelError as exc:
            play.error = exc
    else:
        room = play.s.room(8)
        first = play.s.recv(room, 8, BYTE, PEER, 50)
        # Long where rank 1 sends: MPI takes a short message without its receiver.
        called, _ = play.call(LONG if op in ("send", "recv") else 8)
        barrier()  # rank 0 has compiled, which may take longer than the time limit
        play.s.launch(play.g)
        barrier()
        try:
            play.g.synchronize()
        except gmpi.GMPIError as exc:  # under MPS our own CUDA context is lost as well
            play.error = exc
        if isinstance(play.error, gmpi.RequestTimeoutError):
            play.s.read_back()
            assert first.error == gmpi.SUCCESS and called.error == gmpi.GMPI_ERR_TIMEOUT
            play.s.expect(room, pattern(8, 3))
    told = WORLD.allgather(f"{type(play.error).__name__}: {str(play.error).splitlines()[0][:90]}")
    assert isinstance(play.error, (gmpi.KernelError, gmpi.RequestTimeoutError)), told
    assert RANK == 1 or isinstance(play.error, gmpi.KernelError), told
    with contextlib.suppress(gmpi.GMPIError):
        play.g.close()
    try:
        gmpi.Context(WORLD).close()
        again = "a new context works"
    except gmpi.GMPIError as exc:
        again = str(exc)
    # Where it cannot, it says so on every rank; without a GPU it goes on.
    with gmpi.Context(WORLD, gpu=False) as g:
        g.host.Barrier()
    if RANK == 0:
        print(f"ok kernel_faults.{op}: {told}; {again}", flush=True)
    barrier()
    MPI.Finalize()
    os._exit(0)  # what belongs to a lost CUDA context cannot be freed


FAULTS: list[Callable[[str], None]] = [
    proxy_killed, mpi_error, mpi_error_later, testsome_fails, kernel_exits_early, interrupted,
    slots_exhausted, staging_exhausted, ring_full, slow_peer,
]  # fmt: skip
ENDING: list[Callable[[str], None]] = [peer_killed, kernel_faults]


def main() -> None:
    wanted = sys.argv[1:]
    del sys.argv[1:]
    faults = FAULTS + [f for f in ENDING if any(w.split(".")[0] == f.__name__ for w in wanted)]
    assert WORLD.size == 2, "two ranks"
    compile_kernels()
    run_faults([with_fault(fault, op, op) for fault in faults for op in OPERATIONS], wanted)
    end()


if __name__ == "__main__":
    main()
