"""Requests of sends and receives that are freed while they are open (MPI 4.1 section 3.7.3).

mpiexec -n 2 python3 tests/ranks/freed.py [--direct] [SCENARIO ...]
"""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
from common import RANK, SIZE, WORLD, barrier, end, pattern, raises, run, same
from mpi4py import MPI
from numba import cuda

import gmpi
from device_lib.api.binding import block_calls, warp_calls
from gmpi.contract.wire import BUSY_BITS, BUSY_STRIDE, DEVICE_BUSY, DEVICE_FREED

NEXT, LAST = (RANK + 1) % SIZE, (RANK - 1) % SIZE
EAGER, CHUNK = 256, 1024
DIRECT = "--direct" in sys.argv
#: Empty, inline, in staging, and in chunks.
SIZES = [0, 8, 200, EAGER + 1, 9000]


def _kernels(c: SimpleNamespace) -> SimpleNamespace:
    isend, irecv, request_free, synchronize = c.isend, c.irecv, c.request_free, c.synchronize
    send, recv, wait = c.send, c.recv, c.wait

    @cuda.jit
    def exchange(ctx, out, room, sizes, reverse, log):
        """All of them at once, receives before their sends or behind; ready after Synchronize."""
        for turn in range(2):
            for i in range(sizes.shape[0]):
                if (turn == 0) == reverse:
                    r = irecv(ctx, room[i], sizes[i], gmpi.BYTE, LAST, i, 0)
                else:
                    r = isend(ctx, out[i], sizes[i], gmpi.BYTE, NEXT, i, 0)
                log[0] += request_free(ctx, r)
        log[1] = synchronize(ctx)

    @cuda.jit
    def burst(ctx, out, n, times, room, log):
        """More sends than there are slots; the other rank receives later, one by one."""
        cuda.syncthreads()
        if RANK % 2 == 0:
            for i in range(times):
                r = isend(ctx, out[i], n, gmpi.BYTE, NEXT, i % 3, 0)
                log[0] += request_free(ctx, r)
            log[1] = recv(ctx, room[0], 0, gmpi.BYTE, NEXT, 77, 0).error
        else:
            for i in range(times):
                log[0] += recv(ctx, room[i], n, gmpi.BYTE, LAST, i % 3, 0).error
            log[1] = send(ctx, room[0], 0, gmpi.BYTE, LAST, 77, 0).error

    @cuda.jit
    def leave(ctx, room, n, log):
        """The kernel ends, and nothing has come yet."""
        for i in range(room.shape[0]):
            log[0] += request_free(ctx, irecv(ctx, room[i], n, gmpi.BYTE, LAST, 40 + i, 0))

    @cuda.jit
    def come(ctx, out, n, log):
        for i in range(out.shape[0]):
            log[1] += wait(ctx, isend(ctx, out[i], n, gmpi.BYTE, NEXT, 40 + i, 0)).error

    return SimpleNamespace(exchange=exchange, burst=burst, leave=leave, come=come)


KERNELS = {"block": _kernels(block_calls), "warp": _kernels(warp_calls)}
WAYS = [("block", 32), ("block", 40), ("block", 20), ("warp", 32)]


def nothing_is_held(g: gmpi.Context) -> None:
    """No slot is taken, and nothing is left to be closed."""
    raw = g._memory.read_device(DEVICE_BUSY, g.layout.slots // BUSY_BITS * BUSY_STRIDE)
    words = raw.view(np.int64).reshape(-1, BUSY_STRIDE // 8)
    assert not words[:, [0, 1, 3]].any(), words[:, [0, 1, 3]]
    assert not g._memory.read_device(DEVICE_FREED, 8).any()


def exchanged(g: gmpi.Context) -> None:
    for k, (scope, threads) in enumerate(WAYS):
        out = np.stack([pattern(max(SIZES), 10 * RANK + i) for i in range(len(SIZES))])
        room, log = cuda.to_device(np.zeros_like(out)), cuda.to_device(np.zeros(2, int))
        sizes = cuda.to_device(np.array(SIZES))
        reverse = (k + RANK) % 2 == 0
        KERNELS[scope].exchange[1, threads](
            g.device, cuda.to_device(out), room, sizes, reverse, log
        )
        g._waits.wait_for_kernels(None)
        assert not log.copy_to_host().any(), log.copy_to_host()
        found = room.copy_to_host()  # after GMPI_Synchronize, whatever the host does
        for i, n in enumerate(SIZES):
            same(found[i, :n], pattern(n, 10 * LAST + i), f"{scope} {threads}: {n} bytes")
            assert not found[i, n:].any()
        nothing_is_held(g)
        g.synchronize()


def bursts(g: gmpi.Context) -> None:
    times = g.layout.request_slots + 10
    for k, n in enumerate((0, 8, 200, 3000)):
        scope, threads = WAYS[k]
        out = np.stack([pattern(n, i) for i in range(times)])
        room, log = cuda.to_device(np.zeros((times, n), np.uint8)), cuda.to_device(np.zeros(2, int))
        KERNELS[scope].burst[1, threads](g.device, cuda.to_device(out), n, times, room, log)
        g.synchronize()
        assert not log.copy_to_host().any(), (n, log.copy_to_host())
        if RANK % 2:
            same(room.copy_to_host(), out, f"{times} times {n} bytes")
        nothing_is_held(g)


def left_open(g: gmpi.Context) -> None:
    """What kernels have left is closed by ``synchronize``, which waits for what comes."""
    number = 5
    for scope, n in (("block", 8), ("warp", 3000)):
        room = cuda.to_device(np.zeros((number, n), np.uint8))
        out = np.stack([pattern(n, 10 * RANK + i) for i in range(number)])
        log, sent = cuda.to_device(np.zeros(2, int)), cuda.to_device(out)
        KERNELS[scope].leave[1, 32](g.device, room, n, log)
        g._waits.wait_for_kernels(None)
        barrier()
        if not DIRECT:
            raises(gmpi.PendingError, "requests are still open", lambda: g.synchronize(0.05))
        barrier()
        KERNELS[scope].come[1, 32](g.device, sent, n, log)
        g.synchronize()
        assert not log.copy_to_host().any(), (n, log.copy_to_host())
        found = room.copy_to_host()
        for i in range(number):
            same(found[i], pattern(n, 10 * LAST + i), f"{n} bytes, left open")
        nothing_is_held(g)


@cuda.jit
def scatter_columns(ctx, matrix, whole, kind, log):
    """A strided view of one side, a derived datatype of the other."""
    rows = matrix.shape[0]
    r = gmpi.GMPI_Irecv(ctx, matrix[:, 1], rows, gmpi.DOUBLE, LAST, 5, 0)
    s = gmpi.GMPI_Isend(ctx, whole, 1, kind, NEXT, 5, 0)
    log[0] = gmpi.GMPI_Request_free(ctx, r) + gmpi.GMPI_Request_free(ctx, s)
    log[1] = gmpi.GMPI_Synchronize(ctx)


def scattered(g: gmpi.Context) -> None:
    for rows in (9, 200):
        column = MPI.DOUBLE.Create_vector(rows, 1, 5)
        kind = g.commit(column)
        whole = np.arange(5.0 * rows) + 1000 * RANK
        matrix, log = cuda.to_device(np.zeros((rows, 5))), cuda.to_device(np.zeros(2))
        scatter_columns[1, 32](g.device, matrix, cuda.to_device(whole), kind, log)
        g.synchronize()
        assert not log.copy_to_host().any(), log.copy_to_host()
        wanted = np.zeros((rows, 5))
        wanted[:, 1] = np.arange(0.0, 5 * rows, 5) + 1000 * LAST
        same(matrix.copy_to_host(), wanted, f"{rows} rows")
        g.free(kind)


@cuda.jit
def misuse(ctx, room, values, log):
    r = gmpi.GMPI_Irecv(ctx, room, 8, gmpi.BYTE, LAST, 9, 0)
    log[0] = gmpi.GMPI_Request_free(ctx, r)
    log[1] = gmpi.GMPI_Wait(ctx, r).error  # it was freed
    log[2] = gmpi.GMPI_Request_free(ctx, r)
    s = gmpi.GMPI_Isend(ctx, room[8:], 8, gmpi.BYTE, NEXT, 9, 0)
    log[3] = gmpi.GMPI_Wait(ctx, s).error
    log[4] = gmpi.GMPI_Request_free(ctx, s)  # it was complete before
    log[5] = gmpi.GMPI_Synchronize(ctx)
    log[6] = room[0]
    log[7] = gmpi.GMPI_Request_free(ctx, gmpi.REQUEST_NULL)
    log[8] = gmpi.GMPI_Request_free(ctx, 12345)
    refused = gmpi.GMPI_Isend(ctx, room, 8, gmpi.BYTE, SIZE, 9, 0)
    log[9] = gmpi.GMPI_Wait(ctx, refused).error
    c = gmpi.GMPI_Iallreduce(ctx, values, values[1:], 1, gmpi.DOUBLE, gmpi.SUM, 0)
    log[10] = gmpi.GMPI_Request_free(ctx, c)
    log[11] = gmpi.GMPI_Wait(ctx, c).error
    log[12] = values[1]


def wrong_use(g: gmpi.Context) -> None:
    """Each is told, and no other request is harmed."""
    room = np.zeros(16, np.uint8)
    room[8:] = 50 + RANK
    values, log = np.array([1.0 + RANK, 0]), cuda.to_device(np.zeros(13, int))
    misuse[1, 32](g.device, cuda.to_device(room), cuda.to_device(values), log)
    words = "GMPI_Wait in block 0: request is 0x"
    raises(gmpi.ArgumentError, words, g.synchronize)
    r = gmpi.ERR_REQUEST
    found = list(log.copy_to_host())
    if found[3] == 0 and DIRECT and found[4] == 0:
        found[4] = r  # a send that is complete at once has no request
    total = SIZE * (SIZE + 1) // 2
    expected = [0, r, r, 0, r, 0, 50 + LAST, r, r, gmpi.ERR_RANK, r, 0, total]
    assert found == expected, found
    text = g.errors[-1].text
    assert text.startswith("GMPI_Request_free in block 0: request is 0x"), text
    assert "allowed is an open send or receive of this context" in text, text
    assert "nonblocking collectives cannot be freed" in text, text
    nothing_is_held(g)


@cuda.jit
def free_one(ctx, room):
    gmpi.GMPI_Request_free(ctx, gmpi.GMPI_Irecv(ctx, room, 8, gmpi.BYTE, LAST, 3, 0))
    gmpi.GMPI_Request_free(ctx, gmpi.GMPI_Isend(ctx, room[8:], 8, gmpi.BYTE, NEXT, 3, 0))


def main() -> None:
    assert SIZE % 2 == 0
    settings: dict[str, Any] = {"request_slots": 64, "eager_bytes": EAGER, "chunk_bytes": CHUNK}
    if DIRECT:
        settings["wildcards"] = False
    room = np.zeros(16, np.uint8)
    room[8:] = 7 + RANK
    buf = cuda.to_device(room)
    with warnings.catch_warnings():
        warnings.simplefilter("error", gmpi.LeakWarning)
        with gmpi.Context(WORLD, timeout_s=30, **settings) as g:
            run([exchanged, bursts, left_open, scattered, wrong_use], g)
            free_one[1, 32](g.device, buf)  # what is open when the context closes
    assert (buf.copy_to_host()[:8] == 7 + LAST).all()
    end()


main()
