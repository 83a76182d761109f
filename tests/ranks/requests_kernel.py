"""A kernel that carries out calls of requests of all kinds, and one-sided ones, as rows say."""

from __future__ import annotations

from typing import Any

from numba import cuda

import gmpi

OPERATIONS = (
    "ISEND", "ISSEND", "IRECV", "MPROBE", "IMPROBE", "MRECV", "IMRECV", "FREE", "SEND_INIT",
    "SSEND_INIT", "BSEND_INIT", "RSEND_INIT", "RECV_INIT", "ALLREDUCE_INIT", "BCAST_INIT",
    "BARRIER_INIT", "START", "STARTALL", "PSEND_INIT", "PRECV_INIT",
    "PREADY", "PREADY_RANGE", "PREADY_LIST", "PARRIVED",
    "COPY", "WAIT", "WAITALL", "WAITANY", "TESTALL", "WAITSOME", "BARRIER", "SYNCHRONIZE",
    "PUT", "GET", "RPUT", "RGET", "ACCUMULATE", "GET_ACCUMULATE", "FETCH_AND_OP",
    "COMPARE_AND_SWAP", "FENCE",
)  # fmt: skip
NUMBER = {name: k for k, name in enumerate(OPERATIONS)}
#: Of a row: what, request, offset and bytes of a buffer, and so on; ``more`` is what else there is.
COLUMNS = ("op", "request", "at", "nbytes", "count", "datatype", "peer", "tag", "comm", "more")
RESULT = 6  # error class, source, tag, count, bytes, index

(
    ISEND, ISSEND, IRECV, MPROBE, IMPROBE, MRECV, IMRECV, FREE, SEND_INIT, SSEND_INIT, BSEND_INIT,
    RSEND_INIT, RECV_INIT, ALLREDUCE_INIT, BCAST_INIT, BARRIER_INIT, START, STARTALL, PSEND_INIT,
    PRECV_INIT, PREADY, PREADY_RANGE, PREADY_LIST, PARRIVED, COPY, WAIT, WAITALL, WAITANY, TESTALL,
    WAITSOME, BARRIER, SYNCHRONIZE,
    PUT, GET, RPUT, RGET, ACCUMULATE, GET_ACCUMULATE, FETCH_AND_OP, COMPARE_AND_SWAP, FENCE,
) = range(len(OPERATIONS))  # fmt: skip


# long: a branch for each call
def _kernel(scope: str) -> Any:
    # By the names that users write: by these the simulator sees that a kernel makes requests.
    (
        isend, issend, irecv, request_free, mprobe, improbe, mrecv, imrecv, send_init, ssend_init,
        bsend_init, rsend_init, recv_init, allreduce_init, bcast_init, barrier_init, start,
        startall, pready, pready_range, pready_list, psend_init, precv_init, parrived,
        wait, waitall, waitany, testall, waitsome,
        barrier, synchronize, put, get, rput, rget, accumulate, get_accumulate, fetch_and_op,
        compare_and_swap, fence,
    ) = (
        getattr(gmpi, f"GMPI_{name}{scope}")
        for name in (
            "Isend", "Issend", "Irecv", "Request_free", "Mprobe", "Improbe", "Mrecv", "Imrecv",
            "Send_init", "Ssend_init", "Bsend_init", "Rsend_init", "Recv_init",
            "Allreduce_init", "Bcast_init", "Barrier_init", "Start",
            "Startall", "Pready", "Pready_range", "Pready_list", "Psend_init",
            "Precv_init", "Parrived", "Wait", "Waitall", "Waitany", "Testall", "Waitsome",
            "Barrier", "Synchronize", "Put", "Get", "Rput", "Rget", "Accumulate", "Get_accumulate",
            "Fetch_and_op", "Compare_and_swap", "Win_fence",
        )
    )  # fmt: skip
    warp = scope == "_warp"

    # Calls by what they return, so that no function is too long for the compiler to like.

    @cuda.jit(device=True)
    def opened(ctx, r, heap):
        """The request, or message, of a row that opens one."""
        op, n, kind, peer, tag, comm = r[0], r[4], r[5], r[6], r[7], r[8]
        buf = heap[r[2] : r[2] + r[3]]
        if op == ISEND:
            return isend(ctx, buf, n, kind, peer, tag, comm)
        if op == ISSEND:
            return issend(ctx, buf, n, kind, peer, tag, comm)
        if op == IRECV:
            return irecv(ctx, buf, n, kind, peer, tag, comm)
        if op == SEND_INIT:
            return send_init(ctx, buf, n, kind, peer, tag, comm)
        if op == SSEND_INIT:
            return ssend_init(ctx, buf, n, kind, peer, tag, comm)
        if op == BSEND_INIT:
            return bsend_init(ctx, buf, n, kind, peer, tag, comm)
        if op == RSEND_INIT:
            return rsend_init(ctx, buf, n, kind, peer, tag, comm)
        if op == RECV_INIT:
            return recv_init(ctx, buf, n, kind, peer, tag, comm)
        if op == ALLREDUCE_INIT:
            return allreduce_init(ctx, buf, heap[r[9] : r[9] + r[3]], n, kind, tag, comm)
        if op == BCAST_INIT:
            return bcast_init(ctx, buf, n, kind, peer, comm)
        if op == BARRIER_INIT:
            return barrier_init(ctx, comm)
        if op == PSEND_INIT:
            return psend_init(ctx, buf, r[9], n, kind, peer, tag, comm)
        if op == PRECV_INIT:
            return precv_init(ctx, buf, r[9], n, kind, peer, tag, comm)
        if op == RPUT:
            return rput(ctx, buf, n, kind, peer, tag, n, kind, comm)
        return rget(ctx, buf, n, kind, peer, tag, n, kind, comm)

    @cuda.jit(device=True)
    def updated(ctx, r, heap):
        """The error class of a one-sided call; its other buffers lie behind the first."""
        op, n, kind, peer, disp, win = r[0], r[4], r[5], r[6], r[7], r[8]
        buf, result = heap[r[2] : r[2] + r[3]], heap[r[2] + r[3] : r[2] + 2 * r[3]]
        if op == PUT:
            return put(ctx, buf, n, kind, peer, disp, n, kind, win)
        if op == GET:
            return get(ctx, buf, n, kind, peer, disp, n, kind, win)
        if op == ACCUMULATE:
            return accumulate(ctx, buf, n, kind, peer, disp, n, kind, r[9], win)
        if op == GET_ACCUMULATE:
            return get_accumulate(
                ctx, buf, n, kind, result, n, kind, peer, disp, n, kind, r[9], win
            )
        if op == FETCH_AND_OP:
            return fetch_and_op(ctx, buf, result, kind, peer, disp, r[9], win)
        third = heap[r[2] + 2 * r[3] : r[2] + 3 * r[3]]
        return compare_and_swap(ctx, buf, third, result, kind, peer, disp, win)

    @cuda.jit(device=True)
    def copied(r, words):
        """Words from one place of the heap to another."""
        if warp:
            cuda.syncwarp()
        else:
            cuda.syncthreads()
        for k in range(cuda.threadIdx.x, (r[3] + 7) // 8, cuda.blockDim.x):
            words[r[9] // 8 + k] = words[r[2] // 8 + k]
        if warp:
            cuda.syncwarp()
        else:
            cuda.syncthreads()

    @cuda.jit
    def execute(ctx, program, words, heap, requests, statuses, indices, results):
        for i in range(program.shape[0]):
            r = program[i]
            op, h, n = r[0], r[1], r[4]
            error, index = 0, -1
            status = wait(ctx, gmpi.REQUEST_NULL)
            if op == MPROBE:
                requests[h], status = mprobe(ctx, r[6], r[7], r[8])
            elif op == IMPROBE:
                flag = False
                while not flag:
                    flag, message, status = improbe(ctx, r[6], r[7], r[8])
                requests[h] = message
            elif op == MRECV:
                status = mrecv(ctx, heap[r[2] : r[2] + r[3]], n, r[5], requests[r[9]])
            elif op == IMRECV:
                requests[h] = imrecv(ctx, heap[r[2] : r[2] + r[3]], n, r[5], requests[r[9]])
            elif op == FREE:
                error = request_free(ctx, requests[h])
            elif op == START:
                error = start(ctx, requests[h])
            elif op == STARTALL:
                error = startall(ctx, n, requests[h : h + n])
            elif op == PREADY:
                error = pready(ctx, n, requests[h])
            elif op == PREADY_RANGE:
                error = pready_range(ctx, n, r[9], requests[h])
            elif op == PREADY_LIST:
                first = (r[2] + 7) // 8
                error = pready_list(ctx, n, words[first : first + n], requests[h])
            elif op == PARRIVED:
                while not parrived(ctx, requests[h], n):
                    index += 1
                index = -1
            elif op == COPY:
                copied(r, words)
            elif op == WAIT:
                status = wait(ctx, requests[h])
            elif op == WAITALL:
                error = waitall(ctx, n, requests[h : h + n], statuses[h : h + n])
            elif op == WAITANY:
                index, status = waitany(ctx, n, requests[h : h + n])
            elif op == TESTALL:
                flag = False
                while not flag and error == 0:
                    flag, error = testall(ctx, n, requests[h : h + n])
            elif op == WAITSOME:
                found = 0
                while found != gmpi.UNDEFINED and error == 0:
                    found, some = waitsome(ctx, n, requests[h : h + n], indices)
                    error = max(error, some)
            elif op == BARRIER:
                error = barrier(ctx, r[8])
            elif op == SYNCHRONIZE:
                error = synchronize(ctx)
            elif op == FENCE:
                error = fence(ctx, 0, r[8])
            elif op >= PUT and op != RPUT and op != RGET:
                error = updated(ctx, r, heap)
            else:
                requests[h] = opened(ctx, r, heap)
            if cuda.threadIdx.x == 0:
                results[i, 0] = max(error, status.error)
                results[i, 1] = status.source
                results[i, 2] = status.tag
                results[i, 3] = status.count
                results[i, 4] = status.nbytes
                results[i, 5] = index

    return execute


KERNELS = {"block": _kernel(""), "warp": _kernel("_warp")}
