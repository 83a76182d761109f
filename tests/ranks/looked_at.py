"""GMPI_Request_get_status of requests of all kinds: what it says, and that they stay open.

mpiexec -n 2 python3 tests/ranks/looked_at.py [--direct] [SCENARIO ...]
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
from device_lib.platform import primitives
from device_lib.proxied import pacing
from gmpi.contract import wire

GO = 99
#: Inline, in staging, long, nothing, and every second byte of a short and of a long buffer.
SIZES = 24, 200, 3000, 0, 100, 1500
ROOM = 3008
SCOPES = [("block", 32), ("warp", 32), ("block", 40), ("block", 7), ("block", 1)]


def _kernel(c: SimpleNamespace) -> Any:
    irecv, isend, send, recv, wait = c.irecv, c.isend, c.send, c.recv, c.wait
    look, test, iallreduce = c.request_get_status, c.test, c.iallreduce

    @cuda.jit
    def receive(ctx, room, more, log):
        requests = cuda.local.array(6, np.int64)
        for i in range(6):
            if i < 4:
                requests[i] = irecv(ctx, room[i], ROOM, gmpi.BYTE, 1, i, 0)
            else:
                requests[i] = irecv(ctx, room[i, ::2], ROOM // 2, gmpi.BYTE, 1, i, 0)
            flag, status = look(ctx, requests[i])  # nothing can have come
            log[i, 0] = 1 if flag else 0
        send(ctx, more, 1, gmpi.BYTE, 1, GO, 0)
        for i in range(6):
            flag = False
            while not flag:
                flag, status = look(ctx, requests[i])
            log[i, 1] = status.tag * 10000 + status.nbytes
            # The buffer is the user's: what is written there stays.
            cuda.syncthreads()
            for k in range(cuda.threadIdx.x, ROOM, cuda.blockDim.x):
                room[i, k] ^= 255
            cuda.syncthreads()
            flag, again = look(ctx, requests[i])
            log[i, 2] = again.tag * 10000 + again.nbytes if flag else -1
            log[i, 3] = again.source + again.error + again.count - again.nbytes
            flag, last = test(ctx, requests[i])
            if not flag:
                last = wait(ctx, requests[i])
            log[i, 4] = last.tag * 10000 + last.nbytes
        flag, status = look(ctx, gmpi.REQUEST_NULL)
        log[6, 0] = status.error + status.count - status.source if flag else -99
        own = iallreduce(ctx, more[1:9], more[9:17], 1, gmpi.INT64_T, gmpi.SUM, 0)
        flag = False
        while not flag:
            flag, status = look(ctx, own)
        log[6, 1] = more[9] + wait(ctx, own).error

    @cuda.jit
    def answer(ctx, data, more, log):
        recv(ctx, more, 1, gmpi.BYTE, 0, GO, 0)
        for i in range(6):
            request = isend(ctx, data[i], SIZES[i], gmpi.BYTE, 0, i, 0)
            flag = False
            while not flag:
                flag, status = look(ctx, request)
            flag, again = look(ctx, request)
            log[i, 0] = status.error + again.error + (0 if flag else 1)
            flag = False
            while not flag:
                flag, status = test(ctx, request)
            log[i, 0] += status.error
        own = iallreduce(ctx, more[1:9], more[9:17], 1, gmpi.INT64_T, gmpi.SUM, 0)
        log[6, 1] = wait(ctx, own).error

    return receive, answer


KERNELS = {"block": _kernel(block_calls), "warp": _kernel(warp_calls)}


def in_kernels(g: gmpi.Context) -> None:
    for scope, threads in SCOPES:
        receive, answer = KERNELS[scope]
        log = cuda.to_device(np.full((7, 5), -1))
        more = np.zeros(17, np.uint8)
        more[1] = 3
        if RANK == 0:
            room = cuda.to_device(np.zeros((6, ROOM), np.uint8))
            receive[1, threads](g.device, room, cuda.to_device(more), log)
            g.synchronize()
            where = f"{scope} of {threads}"
            for i, n in enumerate(SIZES):
                said = i * 10000 + n
                assert list(log.copy_to_host()[i]) == [0, said, said, 1, said], (where, i, log)
                wanted = np.zeros(ROOM, np.uint8)
                wanted[: n * (1 + i // 4) : 1 + i // 4] = pattern(n, i)
                same(room.copy_to_host()[i], wanted ^ 255, f"{where}, request {i}")
            assert list(log.copy_to_host()[6, :2]) == [-gmpi.ANY_SOURCE, 6], log.copy_to_host()
        else:
            data = np.zeros((6, ROOM), np.uint8)
            for i, n in enumerate(SIZES):
                data[i, :n] = pattern(n, i)
            answer[1, threads](g.device, cuda.to_device(data), cuda.to_device(more), log)
            g.synchronize()
            assert not log.copy_to_host()[:6, 0].any(), log.copy_to_host()


@cuda.jit
def of_those_that_stay(ctx, data, n, parts, log):
    """Persistent and partitioned requests: inactive, under way, complete, and waited for."""
    peer = 1 - RANK
    requests = cuda.local.array(2, np.int64)
    if RANK == 0:
        requests[0] = gmpi.GMPI_Send_init(ctx, data, n, gmpi.BYTE, peer, 1, 0)
        requests[1] = gmpi.GMPI_Psend_init(ctx, data, parts, n // parts, gmpi.BYTE, peer, 2, 0)
    else:
        requests[0] = gmpi.GMPI_Recv_init(ctx, data, n, gmpi.BYTE, peer, 1, 0)
        requests[1] = gmpi.GMPI_Precv_init(ctx, data, parts, n // parts, gmpi.BYTE, peer, 2, 0)
    for k in range(2):
        for _number in range(3):
            flag, status = gmpi.GMPI_Request_get_status(ctx, requests[k])
            if not flag or status.nbytes != 0:
                log[k] += 1
            log[k] += gmpi.GMPI_Start(ctx, requests[k])
            if k == 1 and RANK == 0:
                flag, status = gmpi.GMPI_Request_get_status(ctx, requests[k])
                if flag:  # no partition is ready
                    log[k] += 10
                log[k] += gmpi.GMPI_Pready_range(ctx, 0, parts - 1, requests[k])
            for _twice in range(2):
                flag = False
                while not flag:
                    flag, status = gmpi.GMPI_Request_get_status(ctx, requests[k])
                if status.error != 0 or (RANK == 1 and status.nbytes != n):
                    log[k] += 100
            # It is active still: a start would be refused.
            status = gmpi.GMPI_Wait(ctx, requests[k])
            if status.error != 0 or (RANK == 1 and (status.nbytes != n or status.tag != k + 1)):
                log[k] += 1000
        log[2] += gmpi.GMPI_Request_free(ctx, requests[k])


def requests_that_stay(g: gmpi.Context) -> None:
    for n in (24, 3000):
        data = cuda.to_device(pattern(n, 5) if RANK == 0 else np.zeros(n, np.uint8))
        log = cuda.to_device(np.zeros(3))
        of_those_that_stay[1, 32](g.device, data, n, 4, log)
        g.synchronize()
        assert not log.copy_to_host().any(), (n, log.copy_to_host())
        same(data, pattern(n, 5), f"{n} bytes")


@cuda.jit
def of_none(ctx, data, log):
    request = gmpi.GMPI_Irecv(ctx, data, 8, gmpi.BYTE, gmpi.PROC_NULL, 1, 0)
    log[0] = gmpi.GMPI_Wait(ctx, request).error
    flag, status = gmpi.GMPI_Request_get_status(ctx, request)
    log[1] = status.error if flag else -1
    flag, status = gmpi.GMPI_Request_get_status(ctx, 12345)
    log[2] = status.error if flag else -1


def refused(g: gmpi.Context) -> None:
    log = cuda.to_device(np.zeros(3, int))
    of_none[1, 32](g.device, cuda.to_device(np.zeros(8, np.uint8)), log)
    raises(gmpi.ArgumentError, "request is 0x", g.synchronize)
    # On the direct road such a request never was open, and there is nothing to tell.
    again = gmpi.SUCCESS if "--direct" in sys.argv else gmpi.ERR_REQUEST
    assert list(log.copy_to_host()) == [0, again, gmpi.ERR_REQUEST]


def on_hosts(g: gmpi.Context) -> None:
    h, status = g.host, MPI.Status()
    room = np.zeros(3000, np.uint8)
    if RANK == 0:
        request = h.Irecv(room, 1, 3)
        assert not request.Get_status(status)
        h.Send(np.zeros(1, np.uint8), 1, GO)
        while not request.Get_status(status):
            pass
        assert (status.Get_source(), status.Get_tag(), status.Get_count()) == (1, 3, 2000)
        same(room[:2000], pattern(2000, 3), "what has come")
        assert request.is_active and request.Get_status() and request.Wait().nbytes == 2000
        request = h.Irecv(room[:10], 1, 4)
        while not request.Get_status(status):
            pass
        assert status.Get_error() == gmpi.ERR_TRUNCATE
        raises(gmpi.TruncationError, "at most 10 bytes", request.Wait)
        stays = h.Recv_init(room, 1, 5)
        assert stays.Get_status(status) and status.Get_source() == MPI.ANY_SOURCE
        stays.Start()
        while not stays.Get_status(status):
            pass
        assert status.Get_count() == 30 and stays.is_active
        stays.Wait()
        assert not stays.is_active and stays.Get_status(status) and status.Get_count() == 0
        stays.Free()
    else:
        h.Recv(np.zeros(1, np.uint8), 0, GO)
        for tag, n in ((3, 2000), (4, 20), (5, 30)):
            h.Send(pattern(n, tag), 0, tag)


@cuda.jit
def test_often(ctx, room, times, part):
    """Of all blocks, requests for which nothing has come."""
    request = gmpi.GMPI_Irecv(ctx, room, 8, gmpi.BYTE, 1, cuda.blockIdx.x, 0)
    gmpi.GMPI_Start(ctx, part)
    for _ in range(times):
        gmpi.GMPI_Test(ctx, request)
        gmpi.GMPI_Request_get_status(ctx, request)
        gmpi.GMPI_Test(ctx, part)
    gmpi.GMPI_Send(ctx, room[8:], 0, gmpi.BYTE, 1, GO, 0)
    gmpi.GMPI_Wait(ctx, request)
    gmpi.GMPI_Wait(ctx, part)


@cuda.jit
def answer_one(ctx, room, part):
    gmpi.GMPI_Recv(ctx, room[8:], 0, gmpi.BYTE, 0, GO, 0)
    gmpi.GMPI_Send(ctx, room, 8, gmpi.BYTE, 0, 0, 0)
    gmpi.GMPI_Start(ctx, part)
    gmpi.GMPI_Pready(ctx, 0, part)
    gmpi.GMPI_Wait(ctx, part)


def tests_share_looks(g: gmpi.Context) -> None:
    """However often kernels test, one look at host memory in a while is for all of them."""
    array = g.zeros(64, np.uint8)
    room = cuda.to_device(np.zeros(16, np.uint8))
    make = g.Precv_init if RANK == 0 else g.Psend_init
    part = make(array, 1, 64, gmpi.BYTE, 1 - RANK, 7)
    looked: list[int] = []
    original, between = primitives.load_sys, pacing._BETWEEN_NS

    def load_sys(address: int) -> int:
        looked.append(address)
        return original(address)  # type: ignore[no-any-return]

    users: list[Any] = [
        module
        for name, module in sys.modules.items()
        if name.startswith("device_lib.direct.") or module in (pacing, primitives)
        if getattr(module, "load_sys", None) is original
    ]
    if RANK == 0:
        pacing._BETWEEN_NS = 10**15
        for module in users:
            module.load_sys = load_sys
    try:
        if RANK == 0:
            test_often[1, 32](g.device, room, 20, part)
        else:
            answer_one[1, 32](g.device, room, part)
        g.synchronize()
    finally:
        pacing._BETWEEN_NS = between
        for module in users:
            module.load_sys = original
    looked = [address for address in looked if address == g.device.mapped + wire.CONTROL_ABORT]
    assert len(looked) <= 1, len(looked)
    g.Request_free(part)


def main() -> None:
    assert SIZE == 2
    direct = "--direct" in sys.argv
    settings = {"wildcards": False} if direct else {}
    with gmpi.Context(WORLD, eager_bytes=256, chunk_bytes=1024, timeout_s=30, **settings) as g:
        both = [in_kernels, requests_that_stay, refused]
        if not direct:
            both.append(on_hosts)
        elif gmpi.SIMULATOR:  # there the library can be watched
            both.append(tests_share_looks)
        run(both, g)
    end()


main()
