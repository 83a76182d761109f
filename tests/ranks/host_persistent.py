"""Persistent requests of the host, against those of kernels and of plain mpi4py; Get_address.

mpiexec -n 2 python3 tests/ranks/host_persistent.py
"""

from __future__ import annotations

import numpy as np
from common import RANK, SIZE, WORLD, end, in_thread, pattern, raises, run, same
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import GMPI_Recv, GMPI_Send

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE


def messages(g: gmpi.Context) -> None:
    """Started again and again, each time with what is in the buffer then."""
    h = g.host
    for n in (0, 7, 4 * g.layout.chunk_bytes):
        out, room = np.zeros(n, np.uint8), np.zeros((4, n), np.uint8)
        requests = [
            h.Send_init(out, NEXT, 4), h.Recv_init(room[0], PREVIOUS, 4),
            h.Ssend_init(out, NEXT, 5), h.Recv_init(room[1], gmpi.ANY_SOURCE, 5),
            h.Bsend_init(out, NEXT, 6), h.Recv_init(room[2], PREVIOUS, 6),
            h.Rsend_init(out, NEXT, 7), h.Recv_init(room[3], PREVIOUS),
        ]  # fmt: skip
        assert not any(request.is_active for request in requests)
        for number in range(3):
            out[:] = pattern(n, 10 * number + RANK)
            room[:] = 0
            h.Startall(requests)
            statuses: list[MPI.Status] = []
            if number == 0:
                found = h.Waitall(requests, statuses)
                assert [found[k].source for k in (1, 3, 5, 7)] == [PREVIOUS] * 4
                assert [statuses[k].Get_tag() for k in (1, 3, 5, 7)] == [4, 5, 6, 7]
            elif number == 1:
                assert sorted(h.Waitany(requests) for _ in requests) == list(range(8))
                assert h.Waitany(requests) == gmpi.UNDEFINED
            else:
                while not h.Testall(requests):
                    pass
                assert all(request.Test() for request in requests)
            for row in room:
                same(row, pattern(n, 10 * number + PREVIOUS), f"{n} bytes, start {number}")
            status = requests[1].Wait()
            assert (status.source, status.tag, status.nbytes) == (
                gmpi.ANY_SOURCE, gmpi.ANY_TAG, 0,
            )  # fmt: skip
        for request in requests:
            request.Free()


@cuda.jit
def echo(ctx, room, n, times, peer):
    for _ in range(times):
        GMPI_Recv(ctx, room, n, gmpi.INT32_T, peer, 8, gmpi.COMM_WORLD)
        GMPI_Send(ctx, room, n, gmpi.INT32_T, peer, 9, gmpi.COMM_WORLD)


def with_kernels(g: gmpi.Context) -> None:
    column = np.arange(30, dtype=np.int32).reshape(10, 3)
    datatype = MPI.INT32_T.Create_vector(10, 1, 3).Commit()
    back = np.zeros(10, np.int32)
    send = g.host.Send_init([column, 1, datatype], PREVIOUS, 8)
    receive = g.host.Recv_init(back, PREVIOUS, 9)

    def work() -> None:
        for _ in range(3):
            column[:] += 1
            g.host.Startall([receive, send])
            g.host.Waitall([receive, send])
            same(back, column[:, 0], "a column, there and back")

    room = cuda.to_device(np.zeros(10, np.int32))
    in_thread(work, lambda: echo[1, 32](g.device, room, 10, 3, NEXT))
    g.synchronize()
    datatype.Free()


def collectives(g: gmpi.Context) -> None:
    h, out, total, whole = g.host, np.zeros(5), np.zeros(5), np.zeros(3, np.int32)
    requests = [
        h.Allreduce_init(out, total), h.Barrier_init(), h.Bcast_init(whole, SIZE - 1),
    ]  # fmt: skip
    for number in range(3):
        out[:] = RANK + number
        whole[:] = number if RANK == SIZE - 1 else -1
        h.Startall(requests)
        h.Waitall(requests[::-1])
        same(total, np.full(5, sum(range(SIZE)) + SIZE * number), "the sum")
        same(whole, np.full(3, number), "the broadcast")
    again = h.Allreduce_init(gmpi.IN_PLACE, total, gmpi.MAX)
    again.Start()
    again.Wait()
    same(total, np.full(5, sum(range(SIZE)) + SIZE * 2), "the maximum")


def wrong_use(g: gmpi.Context) -> None:
    """Said when a request is made; what is started all the same ends as it must."""
    h, a = g.host, np.zeros(3)
    raises(gmpi.ArgumentError, f"dest is {SIZE}, allowed is", lambda: h.Send_init(a, SIZE))
    raises(gmpi.ArgumentError, "tag is -7, allowed is", lambda: h.Recv_init(a, 0, -7))
    raises(gmpi.ArgumentError, "root is 99", lambda: h.Bcast_init(a, 99))
    raises(gmpi.ArgumentError, "sendbuf has", lambda: h.Allreduce_init(a, np.zeros(4)))
    raises(gmpi.ContextError, "communicator handle is 77", lambda: h.Barrier_init(77))
    receive = h.Recv_init(a, RANK, 3)
    receive.Start()
    text = "the persistent request is active, allowed is an inactive one"
    assert raises(gmpi.ArgumentError, text, receive.Start).error_class == gmpi.ERR_REQUEST
    receive.Cancel()
    assert receive.Wait().Is_cancelled() and receive.Test()
    receive.Start()
    receive.Free()  # what is under way goes on
    h.Send(np.arange(3.0), RANK, 3)
    receive.Wait()
    same(a, np.arange(3.0), "what was under way when the request was freed")
    text = "the persistent request is freed, allowed is one that has not been freed"
    raises(gmpi.ArgumentError, text, receive.Start)
    raises(gmpi.ArgumentError, text, receive.Free)


def addresses(g: gmpi.Context) -> None:
    host = np.arange(6, dtype=np.int32)
    assert gmpi.Get_address(host[2:]) == host.ctypes.data + 8 == MPI.Get_address(host[2:])
    device = cuda.to_device(host)
    assert gmpi.Get_address(device[2:]) == gmpi.Get_address(device) + 8
    raises(TypeError, "location is", lambda: gmpi.Get_address(7))


def main() -> None:
    with gmpi.Context(WORLD, eager_bytes=256, chunk_bytes=512) as g:
        run([messages, with_kernels, collectives, wrong_use, addresses], g)
    end()


main()
