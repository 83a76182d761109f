"""Faults while kernels wait on the direct road, on two ranks.

    mpiexec -n 2 python3 tests/ranks/direct_faults.py [FAULT | WAIT | FAULT.WAIT | SCENARIO ...]

Rank 0 waits for rank 1, which has a fault: of a short message, of the receiver of a long one, of
the rest of a long one, of a partition, in a collective. ``peer_killed`` ends rank 1, and runs only
when it is named.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from common import (
    RANK,
    TIME_FACTOR,
    WORLD,
    barrier,
    end,
    pattern,
    raises,
    run_faults,
    same,
    with_fault,
)
from mpi4py import MPI
from numba import cuda
from script import Script

import gmpi
from gmpi import (
    GMPI_Allreduce,
    GMPI_Irecv,
    GMPI_Parrived,
    GMPI_Recv,
    GMPI_Send,
    GMPI_Start,
    GMPI_Synchronize,
    GMPI_Wait,
)
from gmpi.contract.channels import WIDE_ROOM
from gmpi.lifetime import watchdog

PEER = 1 - RANK
TAG, NEVER = 7, 8
LONG = 4 * WIDE_ROOM  # bytes: in rounds, through staging
TIMEOUT_S = 1.0 * TIME_FACTOR
watchdog.ANSWER_S = 3.0 * TIME_FACTOR  # who is late has no core
SOON_S = 20.0 * TIME_FACTOR  # within which everything ends
BYTE = gmpi.BYTE
WAITS = ["short", "long_send", "long_receive", "partition", "collective", "long_collective"]
SHORT, LONG_SEND, LONG_RECEIVE, PARTITION, COLLECTIVE, LONG_COLLECTIVE = range(len(WAITS))


@cuda.jit
def waits(ctx, what, buf, result, request, errors):
    """What rank 0 waits for, and a call afterwards."""
    error = 0
    if what == LONG_SEND:
        error = GMPI_Send(ctx, buf, LONG, BYTE, 1, TAG, gmpi.COMM_WORLD).error
    elif what == PARTITION:
        GMPI_Start(ctx, request)
        while not GMPI_Parrived(ctx, request, 0):
            pass
        error = GMPI_Wait(ctx, request).error
    elif what >= COLLECTIVE:
        n = 1 if what == COLLECTIVE else LONG // 8
        error = GMPI_Allreduce(ctx, buf, result, n, gmpi.INT64_T, gmpi.SUM, gmpi.COMM_WORLD)
    else:
        n = 8 if what == SHORT else LONG
        error = GMPI_Recv(ctx, buf, n, BYTE, 1, TAG, gmpi.COMM_WORLD).error
    errors[0] = error
    errors[1] = GMPI_Recv(ctx, buf, 8, BYTE, 1, TAG, gmpi.COMM_WORLD).error


def stays_away(g: gmpi.Context, what: int) -> None:
    """Rank 1: says that it sends a long message, at most, and is busy until it is aborted."""
    s = Script()
    if what == LONG_RECEIVE:
        s.isend(s.data(pattern(LONG, 1)), LONG, BYTE, 0, TAG)
    s.pause(int(1e9 * SOON_S), until_released=True)
    s.launch(g)


def buffers() -> tuple[Any, Any]:
    return cuda.to_device(pattern(LONG, RANK)), cuda.to_device(np.zeros(LONG, np.uint8))


def partition_of(g: gmpi.Context, buf: Any) -> int:
    """A partitioned request whose other end is known, but never started."""
    make = g.Precv_init if RANK == 0 else g.Psend_init
    return make(buf, 1, LONG, BYTE, PEER, TAG)


def works_alone() -> None:
    """A context of this rank only, on the direct road."""
    with gmpi.Context(MPI.COMM_SELF, wildcards=False, watchdog_s=0, timeout_s=10) as g:
        s = Script()
        room = s.room(LONG)
        request = s.irecv(room, LONG, BYTE, 0, 3)
        s.wait(s.isend(s.data(pattern(LONG, 1)), LONG, BYTE, 0, 3))
        s.wait(request)
        s.run(g)
        s.expect(room, pattern(LONG, 1))


# --- the faults -----------------------------------------------------------------------------------


def peer_killed(what: int) -> None:
    """Most launchers kill rank 0, too; where not, its kernel ends with an error."""
    limit = TIMEOUT_S if RANK == 0 else 0  # it is no time-out that ends rank 1
    g = gmpi.Context(WORLD, wildcards=False, watchdog_s=60, timeout_s=limit)
    buf, result = buffers()
    errors = cuda.to_device(np.full(2, -1))
    request = partition_of(g, buf) if what == PARTITION else 0
    barrier()
    if RANK == 1:

        def strike() -> None:
            WORLD.recv(source=0)
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=strike, daemon=True).start()
        stays_away(g, what)
        g.synchronize()
        raise AssertionError("rank 1 lives")

    def tell() -> None:
        deadline = time.monotonic() + 0.5 * TIMEOUT_S  # a partition is not pending at the proxy
        while not g.pending and time.monotonic() < deadline:
            time.sleep(0.01)
        WORLD.send(0, 1)

    threading.Thread(target=tell, daemon=True).start()
    began = time.monotonic()
    waits[1, 32](g.device, what, buf, result, request, errors)
    try:
        g.synchronize()
        raise AssertionError("nothing was raised")
    except (gmpi.RequestTimeoutError, gmpi.MPICallError) as exc:
        said = exc
    assert time.monotonic() - began < SOON_S, "the kernel was released late"
    assert errors.copy_to_host().tolist() == 2 * [gmpi.GMPI_ERR_TIMEOUT], errors.copy_to_host()
    began = time.monotonic()
    with contextlib.suppress(gmpi.GMPIError):
        g.close()
    assert time.monotonic() - began < SOON_S, "closed late"
    works_alone()
    name = f"peer_killed.{WAITS[what]}"
    print(f"ok {name}: survived with {type(said).__name__}", flush=True)
    os._exit(0)  # MPI_Finalize would wait for the dead


def peer_leaves(what: int) -> None:
    """Rank 1 ends its ``with`` block by an exception, as rank 0 waits."""
    buf, result = buffers()
    errors = cuda.to_device(np.full(2, -1))
    began = time.monotonic()
    try:
        with gmpi.Context(WORLD, wildcards=False, watchdog_s=60) as g:
            request = partition_of(g, buf) if what == PARTITION else 0
            if RANK == 1:
                if what == LONG_RECEIVE:
                    threading.Timer(0.5, g.abort).start()  # in the middle of the message
                    stays_away(g, what)
                raise ValueError("no such file")
            waits[1, 32](g.device, what, buf, result, request, errors)
            g.synchronize()
        raise AssertionError("nothing was raised")
    except gmpi.PeerError as exc:
        assert RANK == 0 and "but rank 1 has ended with ValueError: no such file" in str(exc), exc
        assert errors.copy_to_host().tolist() == 2 * [gmpi.GMPI_ERR_ABORTED], errors.copy_to_host()
    except ValueError:
        assert RANK == 1
    assert time.monotonic() - began < SOON_S, "told late"
    barrier()
    exchange()


def exchange() -> None:
    """A new context works."""
    with gmpi.Context(WORLD, wildcards=False, watchdog_s=0, timeout_s=10) as g:
        s = Script()
        rooms = [s.room(n) for n in (8, LONG)]
        requests = [s.irecv(room, room.nbytes, BYTE, PEER, TAG) for room in rooms]
        requests += [
            s.isend(s.data(pattern(room.nbytes, RANK)), room.nbytes, BYTE, PEER, TAG)
            for room in rooms
        ]
        s.waitall(requests)
        s.run(g)
        for room in rooms:
            s.expect(room, pattern(room.nbytes, PEER))


# --- what a call or a kernel leaves behind --------------------------------------------------------


def no_slot_for_a_channel() -> None:
    """A call that cannot ask for its channel is refused, and not made by the proxy after all: the
    other rank may know by then that the channel goes by the direct road."""
    slots = 32
    settings = {"request_slots": slots, "resource_timeout_s": 0.4, "timeout_s": 10}
    with gmpi.Context(WORLD, wildcards=False, on_error="return", **settings) as g:
        s = Script()
        room = s.room(8)
        if RANK == 0:
            held = [s.irecv(s.room(8), 8, BYTE, 1, NEVER) for _ in range(slots)]
            refused = s.wait(s.irecv(room, 8, BYTE, 1, TAG))
            done = [s.wait(request) for request in held]
            done.append(s.recv(room, 8, BYTE, 1, TAG))
        else:
            data = s.data(pattern(8, 1))
            s.wait(s.isend(data, 8, BYTE, 0, TAG))  # opens the channel, and need not be received
            s.pause(1_000_000_000)
            done = [s.send(data, 8, BYTE, 0, NEVER) for _ in range(slots)]
        barrier()
        s.run(g)
        assert {call.error for call in done} == {gmpi.SUCCESS}, [call.error for call in done]
        if RANK == 0:
            assert refused.error == gmpi.GMPI_ERR_NO_RESOURCE, refused.error
            assert len(g.errors) == 1, g.errors  # it was tried once
            s.expect(room, pattern(8, 1))


@cuda.jit
def leaves_open(ctx, rooms, buf):
    """Starts receives, and ends with the error of another call."""
    for room in range(rooms.shape[0]):
        GMPI_Irecv(ctx, rooms[room], 8, BYTE, 1, TAG, gmpi.COMM_WORLD)
    GMPI_Recv(ctx, buf, 8, BYTE, 1, NEVER, gmpi.COMM_WORLD)


@cuda.jit
def comes_later(ctx, buf, request, other, errors):
    """Each of these would go on with what is open."""
    for i in range(0, errors.size, 3):
        errors[i] = GMPI_Synchronize(ctx)
        errors[i + 1] = GMPI_Recv(ctx, buf, 8, BYTE, 1, NEVER, other).error
        GMPI_Start(ctx, request)
        errors[i + 2] = GMPI_Wait(ctx, request).error


def left_open_by_an_aborted_kernel() -> None:
    """Its buffers may have been freed: no later kernel stores to them."""
    messages = 8
    with contextlib.suppress(gmpi.AbortedError), gmpi.Context(WORLD, wildcards=False) as g:
        other = g.comm(WORLD.Dup())  # by the proxies
        buf, _ = buffers()
        request = partition_of(g, buf)
        if RANK == 0:
            untouched = np.full((messages, 8), 7, np.uint8)
            rooms = cuda.to_device(untouched)
            threading.Timer(0.3, g.abort).start()
            leaves_open[1, 32](g.device, rooms, buf)
            raises(gmpi.AbortedError, "aborted", g.synchronize)
            barrier()
            barrier()
            errors = cuda.to_device(np.full(12, -1))
            comes_later[1, 32](g.device, buf, request, other, errors)
            raises(gmpi.AbortedError, "aborted", g.synchronize)
            same(errors, np.full(12, gmpi.GMPI_ERR_ABORTED), "error classes")
            same(rooms, untouched, "buffers")
        else:
            barrier()
            s = Script()
            for _ in range(messages):
                s.send(s.data(pattern(8, 1)), 8, BYTE, 0, TAG)
            s.run(g)  # they are in the slots
            barrier()
            g.abort()
        barrier()
    exchange()


SCENARIOS: list[Callable[[], None]] = [no_slot_for_a_channel, left_open_by_an_aborted_kernel]
FAULTS: list[Callable[[int], None]] = [peer_killed, peer_leaves]


def main() -> None:
    wanted = sys.argv[1:]
    del sys.argv[1:]
    kills = any(word.startswith(peer_killed.__name__) for word in wanted)
    faults = [fault for fault in FAULTS if kills or fault is not peer_killed]
    assert WORLD.size == 2, "two ranks"
    plays = [with_fault(f, what, name) for f in faults for what, name in enumerate(WAITS)]
    run_faults(SCENARIOS + plays, wanted)
    end()


if __name__ == "__main__":
    main()
