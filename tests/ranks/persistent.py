"""Persistent requests in kernels, of messages of all lengths and of collectives.

mpiexec -n 2 python3 tests/ranks/persistent.py [--direct] [--some] [SCENARIO ...]
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
from common import RANK, SIZE, WORLD, end, every_shape, raises, run
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import (
    GMPI_Allreduce_init,
    GMPI_Barrier_init,
    GMPI_Bcast_init,
    GMPI_Bsend_init,
    GMPI_Bsend_init_warp,
    GMPI_Ibsend,
    GMPI_Recv,
    GMPI_Recv_init,
    GMPI_Recv_init_warp,
    GMPI_Request_free,
    GMPI_Request_free_warp,
    GMPI_Rsend_init,
    GMPI_Send_init,
    GMPI_Send_init_warp,
    GMPI_Ssend_init,
    GMPI_Start,
    GMPI_Start_warp,
    GMPI_Startall,
    GMPI_Test,
    GMPI_Testall,
    GMPI_Wait,
    GMPI_Wait_warp,
    GMPI_Waitall,
    GMPI_Waitany,
    GMPI_Waitsome,
)

NEXT, LAST = (RANK + 1) % SIZE, (RANK - 1) % SIZE
SIZES = [0, 1, 25, 32, 400, 900]  # float64: inline, in staging, and long
ROUNDS = 4
STANDARD, SYNCHRONOUS, BUFFERED, READY = range(4)  # modes of sends


@cuda.jit
def fill(values, n, number):
    cuda.syncthreads()
    for k in range(cuda.threadIdx.x, n, cuda.blockDim.x):
        values[k] = number * 1000 + RANK * 100000 + k
    cuda.syncthreads()


@cuda.jit
def check(values, n, number, log):
    cuda.syncthreads()
    for k in range(cuda.threadIdx.x, n, cuda.blockDim.x):
        if values[k] != number * 1000 + LAST * 100000 + k:
            log[0] += 1
    cuda.syncthreads()


def _body(function: Any) -> Any:
    return cuda.jit(device=True)(function.py_func)


fill, check = _body(fill), _body(check)


@cuda.jit
def rounds(ctx, out, room, n, mode, log):
    """Waits of all kinds, round by round; between them the requests are inactive."""
    requests = cuda.local.array(2, np.int64)
    indices = cuda.local.array(2, np.int64)
    if mode == SYNCHRONOUS:
        requests[0] = GMPI_Ssend_init(ctx, out, n, gmpi.DOUBLE, NEXT, 4, 0)
    elif mode == BUFFERED:
        requests[0] = GMPI_Bsend_init(ctx, out, n, gmpi.DOUBLE, NEXT, 4, 0)
    elif mode == READY:
        requests[0] = GMPI_Rsend_init(ctx, out, n, gmpi.DOUBLE, NEXT, 4, 0)
    else:
        requests[0] = GMPI_Send_init(ctx, out, n, gmpi.DOUBLE, NEXT, 4, 0)
    requests[1] = GMPI_Recv_init(ctx, room, n, gmpi.DOUBLE, LAST, 4, 0)
    send, recv = requests[0], requests[1]
    log[1] = GMPI_Wait(ctx, recv).error + GMPI_Waitall(ctx, 2, requests)
    index, status = GMPI_Waitany(ctx, 2, requests)
    log[2] = index
    for number in range(6):
        fill(out, n, number)
        if number % 2 == 0:
            log[3] += GMPI_Startall(ctx, 2, requests)
        else:
            log[3] += GMPI_Start(ctx, recv) + GMPI_Start(ctx, send)
        if number == 0:
            status = GMPI_Wait(ctx, recv)
            log[4] += status.error + status.source - LAST + status.count - n
            log[4] += GMPI_Wait(ctx, send).error
        elif number == 1:
            log[4] += GMPI_Waitall(ctx, 2, requests)
        elif number == 2:
            first, status = GMPI_Waitany(ctx, 2, requests)
            second, status = GMPI_Waitany(ctx, 2, requests)
            third, status = GMPI_Waitany(ctx, 2, requests)
            log[4] += first + second - 1 + third + 1
        elif number == 3:
            for request in (send, recv):
                flag = False
                while not flag:
                    flag, status = GMPI_Test(ctx, request)
        elif number == 4:
            flag = False
            while not flag:
                flag, error = GMPI_Testall(ctx, 2, requests)
            log[4] += error
        else:
            found, error = GMPI_Waitsome(ctx, 2, requests, indices)
            while found != gmpi.UNDEFINED:
                found, error = GMPI_Waitsome(ctx, 2, requests, indices)
        check(room, n, number, log)
        if requests[0] != send or requests[1] != recv:
            log[5] += 1
    log[6] = GMPI_Request_free(ctx, send) + GMPI_Request_free(ctx, recv)


@cuda.jit
def rounds_of_a_warp(ctx, out, room, n, buffered, log):
    if buffered:
        send = GMPI_Bsend_init_warp(ctx, out, n, gmpi.DOUBLE, NEXT, 4, 0)
    else:
        send = GMPI_Send_init_warp(ctx, out, n, gmpi.DOUBLE, NEXT, 4, 0)
    recv = GMPI_Recv_init_warp(ctx, room, n, gmpi.DOUBLE, LAST, 4, 0)
    for number in range(3):
        fill(out, n, number)
        log[3] += GMPI_Start_warp(ctx, recv) + GMPI_Start_warp(ctx, send)
        log[4] += GMPI_Wait_warp(ctx, send).error + GMPI_Wait_warp(ctx, recv).error
        check(room, n, number, log)
    log[6] = GMPI_Request_free_warp(ctx, send) + GMPI_Request_free_warp(ctx, recv)


def arrays(n: int) -> tuple[Any, Any, Any]:
    return tuple(cuda.to_device(np.zeros(k)) for k in (n, n, 8))


def messages(g: gmpi.Context) -> None:
    direct = "--direct" in sys.argv
    for i, n in enumerate(SIZES):
        for mode in (STANDARD, SYNCHRONOUS, BUFFERED, READY):
            out, room, log = arrays(n)
            if mode in (SYNCHRONOUS, BUFFERED) and direct:
                continue  # the direct road has none of these
            if not every_shape() and (i + mode) % 2:
                continue  # each length in two modes
            rounds[1, (32, 40)[i % 2]](g.device, out, room, n, mode, log)
            g.synchronize()
            expected = [0, 0, -1, 0, 0, 0, 0, 0]
            assert list(log.copy_to_host()) == expected, (n, mode, log.copy_to_host())
        for buffered in (False,) if direct else (False, True):
            out, room, log = arrays(n)
            rounds_of_a_warp[1, 32](g.device, out, room, n, buffered, log)
            g.synchronize()
            assert not log.copy_to_host().any(), (n, buffered, log.copy_to_host())


@cuda.jit
def start_only(ctx, out, n, kept, log):
    kept[0] = GMPI_Bsend_init(ctx, out, n, gmpi.DOUBLE, NEXT, 6, 0)
    log[0] = GMPI_Start(ctx, kept[0])
    kept[1] = GMPI_Ibsend(ctx, out[::2], n // 2, gmpi.DOUBLE, NEXT, 7, 0)


@cuda.jit
def receive_both(ctx, room, n, log):
    log[0] = GMPI_Recv(ctx, room, n, gmpi.DOUBLE, LAST, 6, 0).error
    log[1] = GMPI_Recv(ctx, room[n:], n // 2, gmpi.DOUBLE, LAST, 7, 0).error


@cuda.jit
def wait_for_both(ctx, kept, log):
    log[1] = GMPI_Wait(ctx, kept[0]).error + GMPI_Request_free(ctx, kept[0])
    log[2] = GMPI_Wait(ctx, kept[1]).error


def buffered_by_nobody(g: gmpi.Context) -> None:
    """Buffered sends arrive though their sender has ended, and waits for them only afterwards."""
    if "--direct" in sys.argv:
        return
    for n in SIZES:
        log, kept = cuda.to_device(np.zeros(3)), cuda.to_device(np.zeros(2, int))
        values = np.arange(n) + 100.0 * RANK
        if RANK % 2 == 0:
            start_only[1, 32](g.device, cuda.to_device(values), n, kept, log)
            g.synchronize()
            WORLD.Barrier()
            wait_for_both[1, 32](g.device, kept, log)
            g.synchronize()
        else:
            room = cuda.to_device(np.zeros(n + n // 2))
            receive_both[1, 32](g.device, room, n, log)
            g.synchronize()
            sent = np.arange(n) + 100.0 * LAST
            assert list(room.copy_to_host()) == [*sent, *sent[::2][: n // 2]], n
            WORLD.Barrier()
        assert not log.copy_to_host().any(), (n, log.copy_to_host())


@cuda.jit
def columns(ctx, matrix, whole, datatype, log):
    """A strided view, and a derived datatype on the other side."""
    if RANK % 2 == 0:
        request = GMPI_Send_init(ctx, matrix[1:, 2], matrix.shape[0] - 1, gmpi.DOUBLE, NEXT, 1, 0)
    else:
        request = GMPI_Recv_init(ctx, whole, 1, datatype, LAST, 1, 0)
    for number in range(ROUNDS):
        if RANK % 2 == 0:
            cuda.syncthreads()
            for k in range(cuda.threadIdx.x, matrix.shape[0], cuda.blockDim.x):
                matrix[k, 2] = 10 * number + k
            cuda.syncthreads()
        log[0] += GMPI_Start(ctx, request) + GMPI_Wait(ctx, request).error
        for k in range(1, matrix.shape[0]):
            if matrix[k, 2] != 10 * number + k:
                log[1] += 1
    log[2] = GMPI_Request_free(ctx, request)


def scattered(g: gmpi.Context) -> None:
    for rows in (9, 200):
        kind = MPI.DOUBLE.Create_vector(rows - 1, 1, 5)
        column = MPI.Datatype.Create_struct([1], [(5 + 2) * 8], [kind])
        handle = g.commit(column)
        matrix, log = cuda.to_device(np.zeros((rows, 5))), cuda.to_device(np.zeros(4))
        columns[1, 32](g.device, matrix, matrix.reshape(5 * rows), handle, log)
        g.synchronize()
        assert not log.copy_to_host().any(), log.copy_to_host()
        assert not matrix.copy_to_host()[:, [0, 1, 3, 4]].any()
        g.free(handle)


@cuda.jit
def collectives(ctx, out, room, shared, n, log):
    reduction = GMPI_Allreduce_init(ctx, out, room, n, gmpi.DOUBLE, gmpi.SUM, 0)
    broadcast = GMPI_Bcast_init(ctx, shared, n, gmpi.DOUBLE, SIZE - 1, 0)
    barrier = GMPI_Barrier_init(ctx, 0)
    requests = cuda.local.array(3, np.int64)
    requests[0] = reduction
    requests[1] = broadcast
    requests[2] = barrier
    for number in range(ROUNDS):
        cuda.syncthreads()
        for k in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            out[k] = number + RANK + k
            if RANK == SIZE - 1:
                shared[k] = 7 * number + k
        cuda.syncthreads()
        log[0] += GMPI_Startall(ctx, 3, requests)
        log[1] += GMPI_Waitall(ctx, 3, requests)
        cuda.syncthreads()
        for k in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            if room[k] != SIZE * (number + k) + SIZE * (SIZE - 1) / 2:
                log[2] += 1
            if shared[k] != 7 * number + k:
                log[3] += 1
        cuda.syncthreads()
    for i in range(3):
        log[4] += GMPI_Request_free(ctx, requests[i])


def of_collectives(g: gmpi.Context) -> None:
    for n in (1, 30, 700):
        out, room, log = arrays(n)
        collectives[1, 32](g.device, out, room, cuda.to_device(np.zeros(n)), n, log)
        g.synchronize()
        assert not log.copy_to_host().any(), (n, log.copy_to_host())


@cuda.jit
def misused(ctx, buf, log, kept):
    request = GMPI_Recv_init(ctx, buf, 8, gmpi.BYTE, gmpi.PROC_NULL, 1, 0)
    log[0] = GMPI_Start(ctx, request)
    log[1] = GMPI_Start(ctx, request)  # active
    log[2] = GMPI_Request_free(ctx, request)  # likewise
    log[3] = GMPI_Wait(ctx, request).error
    log[4] = GMPI_Request_free(ctx, request)
    log[5] = GMPI_Request_free(ctx, request)  # is none any more
    log[6] = GMPI_Start(ctx, request)
    log[7] = GMPI_Wait(ctx, request).error
    wrong = GMPI_Send_init(ctx, buf, 8, gmpi.BYTE, SIZE + 3, 1, 0)
    log[8] = GMPI_Start(ctx, wrong)
    log[9] = GMPI_Wait(ctx, wrong).error
    log[10] = GMPI_Start(ctx, wrong)
    log[11] = GMPI_Wait(ctx, wrong).error
    log[12] = gmpi.GMPI_Pready(ctx, 0, wrong)
    both = cuda.local.array(2, np.int64)
    both[0] = GMPI_Recv_init(ctx, buf, 8, gmpi.BYTE, gmpi.PROC_NULL, 1, 0)
    both[1] = wrong
    GMPI_Startall(ctx, 2, both)
    flag = False
    while not flag:
        flag, error = GMPI_Testall(ctx, 2, both)
        log[13] = max(log[13], error)
    GMPI_Request_free(ctx, both[0])
    kept[0] = wrong


@cuda.jit
def later(ctx, kept, log):
    log[0] = GMPI_Start(ctx, kept[0])
    log[1] = GMPI_Wait(ctx, kept[0]).error
    log[2] = GMPI_Request_free(ctx, kept[0])


@cuda.jit
def too_many(ctx, buf, made, log):
    for i in range(made.shape[0]):
        made[i] = GMPI_Send_init(ctx, buf, 8, gmpi.BYTE, gmpi.PROC_NULL, 1, 0)
    log[0] = GMPI_Wait(ctx, made[made.shape[0] - 1]).error
    for i in range(made.shape[0] - 1):
        log[1] += GMPI_Request_free(ctx, made[i])


def wrong_use(g: gmpi.Context) -> None:
    log, kept = cuda.to_device(np.zeros(16, int)), cuda.to_device(np.zeros(1, int))
    buf = cuda.to_device(np.zeros(8, np.uint8))
    misused[1, 32](g.device, buf, log, kept)
    raises(gmpi.ArgumentError, "GMPI_Start in block 0: request is 0x6", g.synchronize)
    r = gmpi.ERR_REQUEST
    expected = [0, r, r, 0, 0, r, r, r, 0, gmpi.ERR_RANK, 0, gmpi.ERR_RANK, r, gmpi.ERR_RANK]
    assert list(log.copy_to_host()[:14]) == expected, log.copy_to_host()
    texts = [fault.text for fault in g.errors[-9:-1]]
    words = "persistent or partitioned request of "
    assert all(words in texts[i] and "is not active" in texts[i] for i in (0, 1, 2, 3)), texts
    assert texts[1].startswith("GMPI_Request_free in block 0"), texts
    assert f"GMPI_Send_init in block 0: dest is {SIZE + 3}" in texts[5], texts
    later[1, 32](g.device, kept, log)
    raises(gmpi.ArgumentError, "GMPI_Send_init in block 0: dest is", g.synchronize)
    assert list(log.copy_to_host()[:3]) == [0, gmpi.ERR_RANK, 0], log.copy_to_host()
    made = cuda.to_device(np.zeros(513, int))
    log = cuda.to_device(np.zeros(2, int))
    too_many[1, 32](g.device, buf, made, log)
    raises(gmpi.ResourceError, "GMPI_Send_init in block 0: request slots is all", g.synchronize)
    assert list(log.copy_to_host()) == [gmpi.GMPI_ERR_NO_RESOURCE, 0], log.copy_to_host()


@cuda.jit
def leave_one(ctx, buf):
    GMPI_Send_init(ctx, buf, 8, gmpi.BYTE, gmpi.PROC_NULL, 1, 0)


def main() -> None:
    assert SIZE % 2 == 0
    direct = "--direct" in sys.argv
    settings: dict[str, Any] = {"wildcards": False} if direct else {}
    if not direct:
        settings |= {"eager_bytes": 256, "chunk_bytes": 1024}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with gmpi.Context(WORLD, timeout_s=30, **settings) as g:
            run([messages, buffered_by_nobody, scattered, of_collectives, wrong_use], g)
            leave_one[1, 32](g.device, cuda.to_device(np.zeros(8, np.uint8)))
    told = [str(w.message) for w in caught if w.category is gmpi.LeakWarning]
    if not any(word.isidentifier() for word in sys.argv[1:]):
        assert told == [f"rank {RANK}: 1 persistent requests were never freed (GMPI_Request_free)"]
    end()


main()
