"""The kernel behind ``script.py``: it reads its calls from an array."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from numba import cuda

import gmpi
from device_lib.api.binding import block_calls, warp_calls
from device_lib.api.exports_grid import grid_calls
from device_lib.platform.primitives import load_sys
from gmpi import Status
from gmpi.contract.wire import CONTROL_ABORT

COLUMNS = 14
(
    OP, HANDLE, AT, ROOM, COUNT, TYPE, PEER, TAG, COMM, AT2, ROOM2, COUNT2, PEER2, TAG2,
) = range(COLUMNS)  # fmt: skip
(
    ISEND, IRECV, SEND, RECV, SENDRECV, WAIT, WAITALL, WAITANY, TEST, TEST_UNTIL, IALLREDUCE,
    ALLREDUCE, BCAST, BARRIER, SYNCHRONIZE, COMM_RANK, ISEND_AT, IRECV_AT, ISEND_STRIDED,
    IRECV_STRIDED, IN_PLACE, PAUSE, REPLACE, ISENDRECV, PROBE, CANCEL,
) = range(1, 27)  # fmt: skip

# How a message is sent: COUNT2 of ISEND and SEND.
STANDARD, BUFFERED, READY, SYNCHRONOUS = range(4)

FIELDS = len(Status._fields)
RESULT = FIELDS + 1  # a status, and a flag or an index


def _make_kernel(calls: SimpleNamespace, scope: str) -> Any:
    isend, irecv, send, recv = calls.isend, calls.irecv, calls.send, calls.recv
    sendrecv, wait, waitall, waitany = calls.sendrecv, calls.wait, calls.waitall, calls.waitany
    test, iallreduce, allreduce = calls.test, calls.iallreduce, calls.allreduce
    bcast, barrier, synchronize = calls.bcast, calls.barrier, calls.synchronize
    some = calls if hasattr(calls, "bsend") else block_calls  # grid scope has none of these
    ibsend, irsend, issend = some.ibsend, some.irsend, some.issend
    bsend, rsend, ssend = some.bsend, some.rsend, some.ssend
    sendrecv_replace, isendrecv_replace = some.sendrecv_replace, some.isendrecv_replace
    isendrecv, probe, cancel = some.isendrecv, some.probe, some.cancel
    warp, grid = scope == "warp", scope == "grid"
    comm_rank, comm_size = gmpi.GMPI_Comm_rank, gmpi.GMPI_Comm_size

    @cuda.jit
    def execute(ctx, program, heap, handles, statuses, results):
        caller = cuda.blockIdx.x
        thread = cuda.threadIdx.x
        if warp:
            caller = thread // 32
            thread = thread % 32
        if grid:
            caller = 0
            thread = cuda.grid(1)
        status = wait(ctx, gmpi.REQUEST_NULL)
        for i in range(program.shape[1]):
            row = program[caller, i]
            op = row[OP]
            h = row[HANDLE]
            at = row[AT]
            end = at + row[ROOM]
            n = row[COUNT]
            datatype = row[TYPE]
            peer = row[PEER]
            tag = row[TAG]
            comm = row[COMM]
            flag = 0
            error = 0
            only_error = False
            mode = row[COUNT2]
            if op == ISEND and mode == STANDARD:
                handles[caller, h] = isend(ctx, heap[at:end], n, datatype, peer, tag, comm)
            elif op == ISEND and mode == BUFFERED:
                handles[caller, h] = ibsend(ctx, heap[at:end], n, datatype, peer, tag, comm)
            elif op == ISEND and mode == READY:
                handles[caller, h] = irsend(ctx, heap[at:end], n, datatype, peer, tag, comm)
            elif op == ISEND:
                handles[caller, h] = issend(ctx, heap[at:end], n, datatype, peer, tag, comm)
            elif op == IRECV:
                handles[caller, h] = irecv(ctx, heap[at:end], n, datatype, peer, tag, comm)
            elif op == ISEND_AT:
                handles[caller, h] = isend(ctx, at, n, datatype, peer, tag, comm)
            elif op == IRECV_AT:
                handles[caller, h] = irecv(ctx, at, n, datatype, peer, tag, comm)
            elif op == ISEND_STRIDED:
                handles[caller, h] = isend(ctx, heap[at:end:2], n, datatype, peer, tag, comm)
            elif op == IRECV_STRIDED:
                handles[caller, h] = irecv(ctx, heap[at:end:2], n, datatype, peer, tag, comm)
            elif op == SEND and mode == BUFFERED:
                status = bsend(ctx, heap[at:end], n, datatype, peer, tag, comm)
            elif op == SEND and mode == READY:
                status = rsend(ctx, heap[at:end], n, datatype, peer, tag, comm)
            elif op == SEND and mode == SYNCHRONOUS:
                status = ssend(ctx, heap[at:end], n, datatype, peer, tag, comm)
            elif op == REPLACE and mode == 0:
                status = sendrecv_replace(
                    ctx, heap[at:end], n, datatype, peer, tag, row[PEER2], row[TAG2], comm
                )
            elif op == REPLACE:
                status = wait(ctx, isendrecv_replace(
                    ctx, heap[at:end], n, datatype, peer, tag, row[PEER2], row[TAG2], comm
                ))  # fmt: skip
            elif op == PROBE:
                status = probe(ctx, peer, tag, comm)
            elif op == CANCEL:
                error = cancel(ctx, handles[caller, h])
                only_error = True
            elif op == ISENDRECV:
                at2 = row[AT2]
                handles[caller, h] = isendrecv(
                    ctx, heap[at:end], n, datatype, peer, tag,
                    heap[at2 : at2 + row[ROOM2]], n, datatype, row[PEER2], row[TAG2], comm,
                )  # fmt: skip
            elif op == SEND:
                status = send(ctx, heap[at:end], n, datatype, peer, tag, comm)
            elif op == RECV:
                status = recv(ctx, heap[at:end], n, datatype, peer, tag, comm)
            elif op == SENDRECV:
                at2 = row[AT2]
                status = sendrecv(
                    ctx, heap[at:end], n, datatype, peer, tag,
                    heap[at2 : at2 + row[ROOM2]], row[COUNT2], datatype, row[PEER2], row[TAG2],
                    comm,
                )  # fmt: skip
            elif op == WAIT:
                status = wait(ctx, handles[caller, h])
            elif op == WAITALL:
                error = waitall(ctx, n, handles[caller, h : h + n], statuses[caller, h : h + n])
                only_error = True
            elif op == WAITANY:
                flag, status = waitany(ctx, n, handles[caller, h : h + n])
            elif op == TEST:
                done, status = test(ctx, handles[caller, h])
                flag = 1 if done else 0
            elif op == TEST_UNTIL:
                done = False
                while not done:
                    done, status = test(ctx, handles[caller, h])
                    flag += 1
            elif op == IALLREDUCE:
                at2 = row[AT2]
                room = heap[at2 : at2 + row[ROOM2]]
                handles[caller, h] = iallreduce(ctx, heap[at:end], room, n, datatype, tag, comm)
            elif op == ALLREDUCE:
                at2 = row[AT2]
                room = heap[at2 : at2 + row[ROOM2]]
                error = allreduce(ctx, heap[at:end], room, n, datatype, tag, comm)
                only_error = True
            elif op == IN_PLACE:
                error = allreduce(ctx, gmpi.IN_PLACE, heap[at:end], n, datatype, tag, comm)
                only_error = True
            elif op == BCAST:
                error = bcast(ctx, heap[at:end], n, datatype, peer, comm)
                only_error = True
            elif op == BARRIER:
                error = barrier(ctx, comm)
                only_error = True
            elif op == SYNCHRONIZE:
                error = synchronize(ctx)
                only_error = True
            elif op == COMM_RANK:
                error = comm_rank(ctx, comm)
                flag = comm_size(ctx, comm)
                only_error = True
            elif op == PAUSE:
                begin = gmpi.timer_ns()
                while gmpi.timer_ns() - begin < n:
                    cuda.nanosleep(1000)
                    if h != 0 and load_sys(ctx.mapped + CONTROL_ABORT) != 0:
                        break
            if only_error:
                results[caller, i, thread, 0] = error
            else:
                results[caller, i, thread, 0] = status.error
                results[caller, i, thread, 1] = status.source
                results[caller, i, thread, 2] = status.tag
                results[caller, i, thread, 3] = status.count
                results[caller, i, thread, 4] = status.nbytes
            results[caller, i, thread, FIELDS] = flag

    return execute


KERNELS = {
    "block": _make_kernel(block_calls, "block"),
    "grid": _make_kernel(grid_calls, "grid"),
    "warp": _make_kernel(warp_calls, "warp"),
}
