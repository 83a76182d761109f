"""Testany, Testall, Testsome and Waitsome, in kernels and on the host.

    mpiexec -n 2 python3 tests/ranks/several.py [--direct] [SCENARIO ...]

Rank 1 sends when it is told to, so that rank 0 knows what may be complete.
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

N = 5  # requests; the last one is null
GO = 99
TAGS = 3, 1, 4, 2  # tuples: kernels for a GPU read no lists
#: In the order of requests: short, in staging, and long.
SIZES = 24, 200, 3000, 0


def _kernel(c: SimpleNamespace) -> Any:
    irecv, send, recv = c.irecv, c.send, c.recv
    testany, testall, testsome, waitsome = c.testany, c.testall, c.testsome, c.waitsome

    @cuda.jit
    def receive(ctx, how, room, requests, indices, statuses, log):
        for i in range(4):
            requests[i] = irecv(ctx, room[i], SIZES[i] + 8, gmpi.BYTE, 1, TAGS[i], gmpi.COMM_WORLD)
        requests[4] = gmpi.REQUEST_NULL
        done = 0
        # Nothing can be complete yet.
        if how == 0:
            flag, error = testall(ctx, N, requests, statuses)
            log[10] = error + (1 if flag else 0)
        elif how == 1:
            index, flag, status = testany(ctx, N, requests)
            log[10] = (1 if flag else 0) + index + 1
        else:
            found, error = testsome(ctx, N, requests, indices, statuses)
            log[10] = found + error
        send(ctx, room[4], 1, gmpi.BYTE, 1, GO, gmpi.COMM_WORLD)
        if how == 0:
            flag = False
            while not flag:
                flag, error = testall(ctx, N, requests, statuses)
            log[11] = error
        elif how == 1:
            while done < 4:
                index, flag, status = testany(ctx, N, requests)
                if flag:
                    log[index] = status.tag * 10000 + status.nbytes
                    done += 1
            index, flag, status = testany(ctx, N, requests)
            log[11] = (0 if flag else 100) + index + 1
        else:
            while done < 4:
                if how == 2:
                    found, error = testsome(ctx, N, requests, indices, statuses)
                else:
                    found, error = waitsome(ctx, N, requests, indices, statuses)
                    if found == 0:
                        log[12] = 1
                for k in range(found):
                    log[indices[k]] = statuses[k, 2] * 10000 + statuses[k, 4]
                done += found
            found, error = testsome(ctx, N, requests, indices)
            log[11] = found - gmpi.UNDEFINED + error

    @cuda.jit
    def answer(ctx, data, room):
        recv(ctx, room, 1, gmpi.BYTE, 0, GO, gmpi.COMM_WORLD)
        for i in range(4):
            send(ctx, data[i], SIZES[i], gmpi.BYTE, 0, TAGS[i], gmpi.COMM_WORLD)

    return receive, answer


KERNELS = {"block": _kernel(block_calls), "warp": _kernel(warp_calls)}


def contents() -> np.ndarray:
    found = np.zeros((5, 3008), np.uint8)
    for i, n in enumerate(SIZES):
        found[i, :n] = pattern(n, i)
    return found


def in_kernels(g: gmpi.Context) -> None:
    for how in range(4):
        scope, threads = [("block", 32), ("warp", 32), ("block", 40), ("block", 32)][how]
        receive, answer = KERNELS[scope]
        if RANK == 0:
            room = cuda.to_device(np.zeros((5, 3008), np.uint8))
            requests = cuda.to_device(np.zeros(N, np.int64))
            indices, log = cuda.to_device(np.zeros(N, int)), cuda.to_device(np.full(16, -1))
            statuses = cuda.to_device(np.full((N, 5), -1, np.int64))
            receive[1, threads](g.device, how, room, requests, indices, statuses, log)
            g.synchronize()
            found = log.copy_to_host()
            assert (found[10], found[11], found[12]) == (0, 0, -1), (how, found)
            rows = [TAGS[i] * 10000 + SIZES[i] for i in range(4)]
            if how == 0:
                table = statuses.copy_to_host()
                assert list(table[:4, 2] * 10000 + table[:4, 4]) == rows, table
                assert list(table[:, 0]) == [0] * N and table[4, 4] == 0, table
            else:
                assert list(found[:4]) == rows, (how, found)
            same(room, contents(), f"what came, {how}")
            assert not requests.copy_to_host().any()
        elif RANK == 1:
            data = cuda.to_device(contents())
            answer[1, threads](g.device, data, cuda.to_device(np.zeros(1, np.uint8)))
            g.synchronize()


def _synchronous(c: SimpleNamespace) -> Any:
    issend, ssend, send, recv, test, wait = c.issend, c.ssend, c.send, c.recv, c.test, c.wait

    @cuda.jit
    def first(ctx, data, n, log):
        request = issend(ctx, data, n, gmpi.BYTE, 1, 50, gmpi.COMM_WORLD)
        early = 0
        for _ in range(30):
            done, _ = test(ctx, request)
            early += 1 if done else 0
        send(ctx, data, 1, gmpi.BYTE, 1, GO, gmpi.COMM_WORLD)
        log[0] = early
        log[1] = wait(ctx, request).error
        log[2] = ssend(ctx, data, n, gmpi.BYTE, 1, 51, gmpi.COMM_WORLD).error

    @cuda.jit
    def second(ctx, room, n, log):
        recv(ctx, room[:1], 1, gmpi.BYTE, 0, GO, gmpi.COMM_WORLD)
        log[0] = recv(ctx, room, n, gmpi.BYTE, 0, 50, gmpi.COMM_WORLD).error
        log[1] = recv(ctx, room, n, gmpi.BYTE, 0, 51, gmpi.COMM_WORLD).error
        log[2] = 0

    return first, second


SYNCHRONOUS = {"block": _synchronous(block_calls), "warp": _synchronous(warp_calls)}


def synchronous_sends(g: gmpi.Context) -> None:
    """Not complete before the receive, however short."""
    for scope, n in (("block", 8), ("warp", 200), ("block", 3000)):
        log = cuda.to_device(np.full(3, -1))
        data = cuda.to_device(pattern(n, 1) if RANK == 0 else np.zeros(n, np.uint8))
        if RANK < 2:
            SYNCHRONOUS[scope][RANK][1, 32](g.device, data, n, log)
            g.synchronize()
            assert list(log.copy_to_host()) == [0, 0, 0], (RANK, scope, log.copy_to_host())
            same(data, pattern(n, 1), f"{n} bytes")
    data = np.arange(100, dtype=np.uint8)
    if RANK == 0:
        request = g.host.Issend(data, 1, 7)
        assert not any(request.Test() for _ in range(200))
        g.host.Send(data[:1], 1, GO)
        request.Wait()
        g.host.Ssend(data, 1, 8)
    elif RANK == 1:
        room = np.zeros(100, np.uint8)
        g.host.Recv(room[:1], 0, GO)
        for tag in (7, 8):
            g.host.Recv(room, 0, tag)
        same(room, data, "of the host")


@cuda.jit
def refused(ctx, data, log):
    log[0] = gmpi.GMPI_Ssend(ctx, data, 1, gmpi.BYTE, 0, 7, gmpi.COMM_WORLD).error


def no_synchronous_sends(g: gmpi.Context) -> None:
    """On the direct road nobody would know; a class and a text."""
    log = cuda.to_device(np.zeros(1, int))
    refused[1, 32](g.device, cuda.to_device(np.zeros(1, np.uint8)), log)
    words = "GMPI_Ssend in block 0: communicator is 0, allowed is one that was registered without "
    raises(gmpi.ArgumentError, words, g.synchronize)
    assert log.copy_to_host()[0] == gmpi.ERR_COMM


def on_hosts(g: gmpi.Context) -> None:
    """The host's, with mpi4py's results."""
    h = g.host
    if RANK == 0:
        rooms = [np.zeros(n + 8, np.uint8) for n in SIZES]
        requests = [h.Irecv(r, 1, t) for r, t in zip(rooms, TAGS)]
        assert h.Testsome(requests) == []
        h.Send(np.zeros(1, np.uint8), 1, GO)
        found: list[int] = []
        while len(found) < 4:
            statuses: list[MPI.Status] = []
            some = h.Waitsome(requests, statuses)
            assert some, some
            assert [s.Get_tag() for s in statuses] == [TAGS[i] for i in some]
            assert [s.Get_count() for s in statuses] == [SIZES[i] for i in some]
            found += some
        assert sorted(found) == [0, 1, 2, 3]
        assert h.Waitsome(requests) is None and h.Testsome(requests) is None
    elif RANK == 1:
        h.Recv(np.zeros(1, np.uint8), 0, GO)
        for i, n in enumerate(SIZES):
            h.Send(pattern(n, i), 0, TAGS[i])


def main() -> None:
    assert SIZE >= 2
    direct = "--direct" in sys.argv
    settings = {"wildcards": False} if direct else {}
    with gmpi.Context(WORLD, eager_bytes=256, chunk_bytes=1024, timeout_s=30, **settings) as g:
        both = [in_kernels, no_synchronous_sends]
        run(both if direct else [in_kernels, on_hosts, synchronous_sends], g)
    end()


main()
