"""Buffered and ready sends, and calls that send and receive, in kernels and on the host.

mpiexec -n 2 python3 tests/ranks/combined.py [--direct] [SCENARIO ...]
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
from common import RANK, SIZE, WORLD, end, pattern, raises, run, same
from mpi4py import MPI
from numba import cuda

import gmpi
from device_lib.api.binding import block_calls, warp_calls

EAGER, CHUNK = 256, 1024
SIZES = [0, 8, 200, EAGER, EAGER + 1, 3001]  # inline, staged, in one and in many pieces
NEXT, LAST = (RANK + 1) % SIZE, (RANK - 1) % SIZE
GO = 99


def _kernel(c: SimpleNamespace) -> Any:
    bsend, ibsend, rsend, irsend = c.bsend, c.ibsend, c.rsend, c.irsend
    isendrecv, isendrecv_replace = c.isendrecv, c.isendrecv_replace
    sendrecv_replace, recv, wait = c.sendrecv_replace, c.recv, c.wait
    send, irecv = c.send, c.irecv

    @cuda.jit
    def buffered(ctx, data, room, sizes, log):
        """All ranks send before any of them receives, and write to what they have sent from."""
        for i in range(sizes.shape[0]):
            n = sizes[i]
            log[i] = bsend(ctx, data[0], n, gmpi.BYTE, NEXT, i, 0).error
            request = ibsend(ctx, data[1], n, gmpi.BYTE, NEXT, i, 0)
            log[i] += wait(ctx, request).error
            cuda.syncthreads()
            for k in range(cuda.threadIdx.x, n, cuda.blockDim.x):
                data[0, k] ^= 1
                data[1, k] ^= 1
            cuda.syncthreads()
        for i in range(sizes.shape[0]):
            for k in range(2):
                log[i] += recv(ctx, room[i, k], sizes[i], gmpi.BYTE, LAST, i, 0).error

    @cuda.jit
    def ready(ctx, data, room, n, log):
        first = irecv(ctx, room[0], n, gmpi.BYTE, LAST, 1, 0)
        second = irecv(ctx, room[1], n, gmpi.BYTE, LAST, 2, 0)
        send(ctx, data[0], 0, gmpi.BYTE, NEXT, GO, 0)
        recv(ctx, room[0], 0, gmpi.BYTE, LAST, GO, 0)
        log[0] = rsend(ctx, data[0], n, gmpi.BYTE, NEXT, 1, 0).error
        log[0] += wait(ctx, irsend(ctx, data[1], n, gmpi.BYTE, NEXT, 2, 0)).error
        log[0] += wait(ctx, first).error + wait(ctx, second).error

    @cuda.jit
    def shift(ctx, how, data, room, count, datatype, log):
        """Around the ring, by the call of a number."""
        if how == 0:
            status = sendrecv_replace(ctx, data, count, datatype, NEXT, 5, LAST, 5, 0)
        elif how == 1:
            request = isendrecv_replace(ctx, data, count, datatype, NEXT, 5, LAST, 5, 0)
            status = wait(ctx, request)
        else:
            status = wait(ctx, isendrecv(
                ctx, data, count, datatype, NEXT, 5, room, count, datatype, LAST, 5, 0
            ))  # fmt: skip
        log[0] = status.error
        log[1] = status.source
        log[2] = status.tag
        log[3] = status.nbytes
        log[4] = gmpi.GMPI_Get_elements(ctx, status, datatype)

    return SimpleNamespace(buffered=buffered, ready=ready, shift=shift)


KERNELS = {"block": _kernel(block_calls), "warp": _kernel(warp_calls)}
SCOPES = [("block", 32), ("warp", 32), ("block", 40)]


def buffered_sends(g: gmpi.Context) -> None:
    """They end before anybody receives, and what is written after them does not matter."""
    scope, threads = SCOPES[RANK % 2]
    most = max(SIZES)
    rows = np.stack([pattern(most, RANK), pattern(most, RANK + 50)])
    data, sizes = cuda.to_device(rows), cuda.to_device(np.array(SIZES))
    room = cuda.to_device(np.zeros((len(SIZES), 2, most), np.uint8))
    log = cuda.to_device(np.full(len(SIZES), -1))
    KERNELS[scope].buffered[1, threads](g.device, data, room, sizes, log)
    g.synchronize()
    assert not log.copy_to_host().any(), log.copy_to_host()
    rows = np.stack([pattern(most, LAST), pattern(most, LAST + 50)])
    for i, n in enumerate(SIZES):
        same(room.copy_to_host()[i, :, :n], rows[:, :n], f"{n} bytes")
        rows[:, :n] ^= 1


def ready_sends(g: gmpi.Context) -> None:
    for n in (8, 3000):
        data = cuda.to_device(np.stack([pattern(n, RANK), pattern(n, RANK + 9)]))
        room, log = cuda.to_device(np.zeros((2, n), np.uint8)), cuda.to_device(np.full(1, -1))
        KERNELS["block"].ready[1, 32](g.device, data, room, n, log)
        g.synchronize()
        assert log.copy_to_host()[0] == 0
        same(room, np.stack([pattern(n, LAST), pattern(n, LAST + 9)]), f"{n} bytes")


def shifted(g: gmpi.Context, how: int, n: int, scope: tuple[str, int]) -> None:
    data, room = cuda.to_device(pattern(n, RANK)), cuda.to_device(np.zeros(n, np.uint8))
    log = cuda.to_device(np.full(5, -1))
    KERNELS[scope[0]].shift[1, scope[1]](g.device, how, data, room, n, gmpi.BYTE, log)
    g.synchronize()
    assert list(log.copy_to_host()) == [0, LAST, 5, n, n], (how, n, log.copy_to_host())
    same(data if how < 2 else room, pattern(n, LAST), f"{n} bytes")
    same(data, pattern(n, LAST if how < 2 else RANK), "what was sent from")


def shifts(g: gmpi.Context) -> None:
    for how in range(3):
        for i, n in enumerate(SIZES):
            shifted(g, how, n, SCOPES[i % 3])


def shifts_of_datatypes(g: gmpi.Context) -> None:
    """A column, and of a struct no elements."""
    column = MPI.DOUBLE.Create_vector(100, 1, 3)
    mixed = MPI.Datatype.Create_struct([1, 1], [0, 8], [MPI.DOUBLE, MPI.INT])
    for datatype, elements in ((column, 100), (mixed, gmpi.UNDEFINED)):
        handle = g.commit(datatype)
        for how in range(2):
            values = np.arange(300.0) + 1000 * RANK
            data, log = cuda.to_device(values), cuda.to_device(np.full(5, -1))
            KERNELS["block"].shift[1, 32](g.device, how, data, data, 1, handle, log)
            g.synchronize()
            nbytes = datatype.Get_size()
            assert list(log.copy_to_host()) == [0, LAST, 5, nbytes, elements], log.copy_to_host()
            values[:1] += 1000 * (LAST - RANK)
            if datatype == column:
                values[3::3] += 1000 * (LAST - RANK)
                same(data, values, f"columns, {how}")
        g.free(handle)
        datatype.Free()


@cuda.jit
def wrong(ctx, buf, log):
    for k in range(2):
        dest = SIZE + 7 if k == 0 else NEXT
        tag = -3 if k == 1 else 5
        log[4 * k] = gmpi.GMPI_Bsend(ctx, buf, 3000, gmpi.BYTE, dest, tag, 0).error
        log[4 * k + 1] = gmpi.GMPI_Sendrecv_replace(
            ctx, buf, 3000, gmpi.BYTE, dest, tag, LAST, 5, 0
        ).error
        request = gmpi.GMPI_Isendrecv_replace(ctx, buf, 8, gmpi.BYTE, dest, tag, LAST, 5, 0)
        log[4 * k + 2] = gmpi.GMPI_Wait(ctx, request).error
        log[4 * k + 3] = gmpi.GMPI_Rsend(ctx, buf, 8, gmpi.BYTE, dest, tag, 0).error
    log[8] = gmpi.GMPI_Bsend(ctx, buf, 3001, gmpi.BYTE, NEXT, 5, 0).error
    log[9] = gmpi.GMPI_Bsend(ctx, buf, 8, gmpi.BYTE, NEXT, 5, 77).error
    log[10] = gmpi.GMPI_Abort(ctx, 77, 3)


def wrong_arguments(g: gmpi.Context) -> None:
    """A class and a text each; nothing is sent, and nothing waits."""
    log = cuda.to_device(np.full(11, -1))
    wrong[1, 32](g.device, cuda.to_device(np.zeros(3000, np.uint8)), log)
    raises(gmpi.ArgumentError, f"GMPI_Bsend in block 0: dest is {SIZE + 7}", g.synchronize)
    ranks, tags = [gmpi.ERR_RANK] * 4, [gmpi.ERR_TAG] * 4
    others = [gmpi.ERR_BUFFER, gmpi.ERR_COMM, gmpi.ERR_COMM]
    assert list(log.copy_to_host()) == ranks + tags + others, log.copy_to_host()
    names = [e.operation for e in g.errors[-11:]]
    four = ["GMPI_Bsend", "GMPI_Sendrecv_replace", "GMPI_Isendrecv_replace", "GMPI_Rsend"]
    assert names == [*four, *four, "GMPI_Bsend", "GMPI_Bsend", "GMPI_Abort"], names
    assert "allowed is 0..2147483647; MPI_TAG_UB" in g.errors[-6].text or MPI.COMM_WORLD.Get_attr(
        MPI.TAG_UB) != 2**31 - 1, g.errors[-6]  # fmt: skip


def on_hosts(g: gmpi.Context) -> None:
    h = g.host
    for n in SIZES:
        data = pattern(n, RANK)
        h.Bsend(data, NEXT, 1)
        request = h.Ibsend(data, NEXT, 2)
        assert request.Test()
        data[:] = 7
        for tag in (1, 2):
            room = np.zeros(n, np.uint8)
            h.Recv(room, LAST, tag)
            same(room, pattern(n, LAST), f"{n} bytes with tag {tag}")
        data = pattern(n, RANK)
        status = MPI.Status()
        h.Sendrecv_replace(data, NEXT, 3, LAST, 3, status=status)
        assert (status.Get_source(), status.Get_count()) == (LAST, n)
        h.Isendrecv_replace(data, NEXT, 4, LAST, 4).Wait()
        same(data, pattern(n, (RANK - 2) % SIZE), f"{n} bytes, twice")
        found = h.Isendrecv(data, NEXT, 5, room, LAST, 5).Wait()
        assert found.Get_elements(MPI.BYTE) == n
        same(room, pattern(n, (RANK - 3) % SIZE), f"{n} bytes, three times")
        requests = [h.Irecv(room, LAST, 6), h.Irsend(data, NEXT, 6)]
        h.Waitall(requests)
        request = h.Irecv(room, LAST, 6)
        h.Rsend(data, NEXT, 6)
        request.Wait()
    words = f"Ibsend in host: dest is {SIZE}, allowed is 0..{SIZE - 1} or PROC_NULL"
    raises(gmpi.ArgumentError, words, lambda: h.Ibsend(data, SIZE))
    words = "Isendrecv in host: recvbuf is NoneType"
    raises(gmpi.ArgumentTypeError, words, lambda: h.Isendrecv(data, NEXT))
    raises(gmpi.ArgumentTypeError, "Abort in host: errorcode is 'x'", lambda: h.Abort("x"))


def from_a_kernel_that_has_ended(g: gmpi.Context) -> None:
    """A long message goes on its way when nobody waits for anything, and closing waits for it."""
    n = 9001
    log = cuda.to_device(np.full(1, -1))
    if RANK == 0:
        only_buffered[1, 32](g.device, cuda.to_device(pattern(n, 3)), n, log)
        g.synchronize()
        assert log.copy_to_host()[0] == 0
        WORLD.Barrier()
    elif RANK == 1:
        WORLD.Barrier()
        room = np.zeros(n, np.uint8)
        g.host.Recv(room, 0, 8)
        same(room, pattern(n, 3), "what a kernel has left")
    else:
        WORLD.Barrier()


@cuda.jit
def only_buffered(ctx, data, n, log):
    log[0] = gmpi.GMPI_Bsend(ctx, data, n, gmpi.BYTE, 1, 8, gmpi.COMM_WORLD).error


def direct_shifts(g: gmpi.Context) -> None:
    """On the direct road, what is out of the buffer at once; the rest is refused with a text."""
    for i, n in enumerate([0, 8, 3000, g.layout.eager_bytes]):
        shifted(g, 0, n, SCOPES[i % 3])
    log = cuda.to_device(np.full(5, -1))
    data = cuda.to_device(np.zeros(g.layout.eager_bytes + 1, np.uint8))
    for how, call in ((0, "GMPI_Sendrecv_replace"), (1, "GMPI_Isendrecv_replace")):
        KERNELS["block"].shift[1, 32](g.device, how, data, data, data.size, gmpi.BYTE, log)
        words = f"{call} in block 0: communicator is 0, allowed is one that was registered without "
        raises(gmpi.ArgumentError, words, g.synchronize)
        assert log.copy_to_host()[0] == gmpi.ERR_COMM


def main() -> None:
    assert SIZE >= 2
    direct = "--direct" in sys.argv
    settings = {"wildcards": False} if direct else {}
    both = [direct_shifts] if direct else [
        buffered_sends, ready_sends, shifts, shifts_of_datatypes, wrong_arguments, on_hosts,
        from_a_kernel_that_has_ended,
    ]  # fmt: skip
    sizes = {} if direct else {"eager_bytes": EAGER, "chunk_bytes": CHUNK}
    with gmpi.Context(WORLD, timeout_s=30, **sizes, **settings) as g:
        run(both, g)
    end()


main()
