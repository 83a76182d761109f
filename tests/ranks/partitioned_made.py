"""Partitioned requests that kernels make and free, beside those of the host; what is refused."""

from __future__ import annotations

import threading
import warnings
from functools import partial

import numpy as np
from common import RANK, SIZE, WORLD, barrier, end, in_thread, raises, run
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import (
    GMPI_Irecv,
    GMPI_Isend,
    GMPI_Parrived,
    GMPI_Parrived_warp,
    GMPI_Pready,
    GMPI_Pready_range,
    GMPI_Pready_warp,
    GMPI_Precv_init,
    GMPI_Precv_init_warp,
    GMPI_Psend_init,
    GMPI_Psend_init_warp,
    GMPI_Request_free,
    GMPI_Request_free_warp,
    GMPI_Start,
    GMPI_Start_warp,
    GMPI_Wait,
    GMPI_Wait_warp,
    GMPI_Waitall,
    GMPI_Waitany,
)
from gmpi.contract.partitions import ARENA_BYTES
from gmpi.contract.wire import PARTITIONED_ROWS

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE
ROUNDS = 3


def zeros(n: int, dtype: type) -> object:
    return cuda.to_device(np.zeros(n, dtype))


# wide: a kernel
@cuda.jit
def by_two_blocks(ctx, out, back, found, to, source, tag, requests, wrong):
    """Block 0 makes and frees the requests, both use them."""
    grid = cuda.cg.this_grid()
    block, lane = cuda.blockIdx.x, cuda.threadIdx.x
    half = out.size // 2
    if block == 0:
        send = GMPI_Psend_init(ctx, out, 2, half, gmpi.INT, to, tag, gmpi.COMM_WORLD)
        recv = GMPI_Precv_init(ctx, back, 1, 2 * half, gmpi.INT, source, tag, gmpi.COMM_WORLD)
        if lane == 0:
            requests[0] = send
            requests[1] = recv
    grid.sync()
    send, recv = requests[0], requests[1]
    for i in range(ROUNDS):
        if block == 0:
            if GMPI_Start(ctx, recv) + GMPI_Start(ctx, send) != gmpi.SUCCESS and lane == 0:
                wrong[0] = 1
        grid.sync()
        for k in range(block * half + lane, (block + 1) * half, cuda.blockDim.x):
            out[k] += i + 1
        if GMPI_Pready(ctx, block, send) != gmpi.SUCCESS and lane == 0:
            wrong[0] = 2
        while not GMPI_Parrived(ctx, recv, 0):
            pass
        for k in range(block * half + lane, (block + 1) * half, cuda.blockDim.x):
            found[i, k] = back[k]
        grid.sync()
        if block == 0:
            status = GMPI_Wait(ctx, recv)
            if (status.nbytes != 8 * half or status.error != gmpi.SUCCESS) and lane == 0:
                wrong[0] = 3
            if GMPI_Wait(ctx, send).error != gmpi.SUCCESS and lane == 0:
                wrong[0] = 4
        grid.sync()
    if block == 1:
        if GMPI_Request_free(ctx, send) + GMPI_Request_free(ctx, recv) != gmpi.SUCCESS:
            wrong[0] = 5
        if GMPI_Request_free(ctx, send) != gmpi.ERR_REQUEST:
            wrong[0] = 6


def made_and_freed(g: gmpi.Context) -> None:
    """By every shape of a block; twice, since what is freed is given out again."""
    for n, threads, kind in ((64, 32, "plain"), (50, 70, "empty"), (30, 16, "registered")):
        out = cuda.to_device(np.full(n, 100 * RANK, np.int32))
        back = g.zeros(n, np.int32) if kind == "empty" else zeros(n, np.int32)
        if kind == "registered":
            g.register(back)
        found, requests, wrong = (
            cuda.to_device(np.zeros(shape, kind))
            for shape, kind in (((ROUNDS, n), np.int32), (2, np.int64), (1, np.int64))
        )
        by_two_blocks[2, threads](g.device, out, back, found, NEXT, PREVIOUS, 3, requests, wrong)
        error = raises(gmpi.ArgumentError, "GMPI_Request_free in block 1: request", g.synchronize)
        assert "freed before, or is no such request" in str(error), error
        assert error.error_class == gmpi.ERR_REQUEST
        assert wrong.copy_to_host()[0] == 0, (n, kind, wrong.copy_to_host())
        steps = np.cumsum(1 + np.arange(ROUNDS))[:, None]
        assert (found.copy_to_host() == 100 * PREVIOUS + steps).all(), (n, found.copy_to_host())
        if kind != "plain":
            g.unregister(back)


@cuda.jit
def by_warps(ctx, out, back, to, source, wrong):
    """Each warp has requests of its own, for whole matrices' columns or without a partner."""
    warp, lane = cuda.threadIdx.x // 32, cuda.laneid
    send = GMPI_Psend_init_warp(ctx, out[warp], 1, 8, gmpi.DOUBLE, to, 20 + warp, gmpi.COMM_WORLD)
    recv = GMPI_Precv_init_warp(
        ctx, back[warp], 2, 4, gmpi.DOUBLE, source, 20 + warp, gmpi.COMM_WORLD
    )
    none = GMPI_Psend_init_warp(
        ctx, out[warp], 1, 8, gmpi.DOUBLE, gmpi.PROC_NULL, 0, gmpi.COMM_WORLD
    )
    GMPI_Start_warp(ctx, none)
    GMPI_Start_warp(ctx, send)
    GMPI_Start_warp(ctx, recv)
    GMPI_Pready_warp(ctx, 0, none)
    GMPI_Pready_warp(ctx, 0, send)
    while not GMPI_Parrived_warp(ctx, recv, 1):
        pass
    error = GMPI_Wait_warp(ctx, recv).error + GMPI_Wait_warp(ctx, send).error
    error += GMPI_Wait_warp(ctx, none).error
    for request in (send, recv, none):
        error += GMPI_Request_free_warp(ctx, request)
    if error != gmpi.SUCCESS and lane == 0:
        wrong[warp] = error


def warps_of_a_block(g: gmpi.Context) -> None:
    out = cuda.to_device(np.arange(24.0).reshape(3, 8) + 100 * RANK)
    back, wrong = cuda.to_device(np.zeros((3, 8))), zeros(3, np.int64)
    by_warps[1, 96](g.device, out, back, NEXT, PREVIOUS, wrong)
    g.synchronize()
    assert not wrong.copy_to_host().any(), wrong.copy_to_host()
    expected = np.arange(24.0).reshape(3, 8) + 100 * PREVIOUS
    assert np.array_equal(back.copy_to_host(), expected), back.copy_to_host()


@cuda.jit
def make_send(ctx, out, datatype, parts, count, to, requests):
    requests[0] = GMPI_Psend_init(ctx, out, parts, count, datatype, to, 9, gmpi.COMM_WORLD)


@cuda.jit
def use_and_free(ctx, parts, out, back, peers, requests, others, wrong):
    """All waits of several requests, of a kernel that has made none of them."""
    others[0], others[1] = requests[0], requests[1]
    GMPI_Start(ctx, requests[0])
    GMPI_Start(ctx, requests[1])
    GMPI_Pready_range(ctx, 0, parts - 1, requests[0])
    others[2] = GMPI_Irecv(ctx, back, 1, gmpi.INT, peers[1], 9, gmpi.COMM_WORLD)
    others[3] = GMPI_Isend(ctx, out, 1, gmpi.INT, peers[0], 9, gmpi.COMM_WORLD)
    if parts == 1:
        if GMPI_Waitall(ctx, 4, others) != gmpi.SUCCESS:
            wrong[0] = 1
    else:
        for _i in range(4):
            if GMPI_Waitany(ctx, 4, others)[1].error != gmpi.SUCCESS:
                wrong[0] = 2
    if GMPI_Request_free(ctx, requests[0]) + GMPI_Request_free(ctx, requests[1]) != gmpi.SUCCESS:
        wrong[0] = 3


def one_end_of_the_host(g: gmpi.Context) -> None:
    """A kernel's send, also of a datatype, meets a host's receive; a later kernel uses and frees
    both."""
    column = g.commit(MPI.INT.Create_vector(6, 1, 4).Create_resized(0, 4))
    for datatype, parts, count in ((gmpi.INT, 2, 12), (column, 1, 4)):
        matrix = np.arange(24, dtype=np.int32).reshape(6, 4)
        out = cuda.to_device(matrix + 100 * RANK)
        back, more, wrong = zeros(24, np.int32), zeros(1, np.int32), zeros(1, np.int64)
        requests, others = zeros(2, np.int64), zeros(4, np.int64)
        recv = g.Precv_init(back, 1, 24, gmpi.INT, PREVIOUS, 9)
        make_send[1, 32](g.device, out, datatype, parts, count, NEXT, requests)
        g.synchronize()
        send = requests.copy_to_host()[0]
        requests = cuda.to_device(np.array([send, recv]))
        peers = NEXT, PREVIOUS
        use_and_free[1, 64](g.device, parts, out, more, peers, requests, others, wrong)
        g.synchronize()
        assert wrong.copy_to_host()[0] == 0, wrong.copy_to_host()
        expected = matrix if datatype == gmpi.INT else matrix.T
        assert np.array_equal(back.copy_to_host(), expected.reshape(-1) + 100 * PREVIOUS)
        raises(gmpi.ContextError, "is no such request", partial(g.Request_free, recv))
    g.free(column)


# wide: a kernel
@cuda.jit
def make_one(ctx, sends, buf, partitions, count, datatype, peer, tag, comm, found):
    if sends:
        request = GMPI_Psend_init(ctx, buf, partitions, count, datatype, peer, tag, comm)
    else:
        request = GMPI_Precv_init(ctx, buf, partitions, count, datatype, peer, tag, comm)
    found[0] = GMPI_Wait(ctx, request).error


def wrong_arguments(g: gmpi.Context) -> None:
    """Class and words are those of the host's calls."""
    array = zeros(8, np.float64)
    deep = cuda.to_device(np.zeros((2, 2, 2, 2), np.int32))
    deeper = cuda.to_device(np.zeros((1, 2, 2, 2, 2), np.int32))
    lower = g.commit(MPI.DOUBLE.Create_vector(3, 1, 4))
    twice = g.commit(MPI.DOUBLE.Create_indexed([1, 1], [0, 0]))
    double, world = gmpi.DOUBLE, gmpi.COMM_WORLD
    buffer = gmpi.ERR_BUFFER
    for sends, buf, *arguments, text, error in (
        (1, array, 0, 1, double, NEXT, 0, world, "partitions is 0, allowed is 1..", gmpi.ERR_ARG),
        (1, array, 1 << 40, 1, double, NEXT, 0, world, f"partitions is {1 << 40}", gmpi.ERR_ARG),
        (0, array, 1, -1, double, NEXT, 0, world, "count is -1, allowed is 0..", gmpi.ERR_COUNT),
        (1, array, 3, 3, double, NEXT, 0, world, "buf is one of 64 bytes, allowed is an array of "
         "at least 72 bytes", buffer),
        (1, array, 1, 1, double, SIZE, 0, world, f"dest is {SIZE}, allowed is", gmpi.ERR_RANK),
        (0, array, 1, 1, double, 1 << 32, 0, world, f"source is {1 << 32}, all", gmpi.ERR_RANK),
        (0, array, 1, 1, double, gmpi.ANY_SOURCE, 0, world, "have no wildcards", gmpi.ERR_RANK),
        (1, array, 1, 1, double, NEXT, -1, world, "tag is ANY_TAG, allowed is 0..", gmpi.ERR_TAG),
        (1, array, 1, 1, gmpi.FLOAT, NEXT, 0, world, "datatype is FLOAT, of 4", gmpi.ERR_TYPE),
        (1, array, 1, 1, 5 << 28, NEXT, 0, world, "datatype is 0x50000000", gmpi.ERR_TYPE),
        (1, array, 1, 1, double, NEXT, 0, 77, "comm is 77, allowed is 0..0", gmpi.ERR_COMM),
        (1, array, 1, 1, lower, NEXT, 0, world, "leave the array", buffer),
        (0, array, 1, 1, twice, NEXT, 0, world, "elements of the datatype overlap", buffer),
        (1, array[::2], 1, 1, double, NEXT, 0, world, "buf is a strided view: shape (4,), strides "
         "(16,) bytes, elements of 8 bytes, allowed is an array in one piece; pass", buffer),
        (0, deep[:, :1], 1, 1, gmpi.INT, NEXT, 0, world, "shape (2, 1, 2, 2), strides (32, 16, 8, "
         "4) bytes, elements of 4 bytes", buffer),
        (0, deeper[:, :, :1], 1, 1, gmpi.INT, NEXT, 0, world, "view of 5 dimensions", buffer),
        (1, 0, 1, 1, double, NEXT, 0, world, "buf is null", buffer),
    ):  # fmt: skip
        found = zeros(1, np.int64)
        make_one[1, 32](g.device, sends, buf, *arguments, found)
        call = "GMPI_Psend_init" if sends else "GMPI_Precv_init"
        raised = raises(gmpi.ArgumentError, f"{call} in block 0: ", g.synchronize)
        assert text in str(raised) and raised.error_class == error, (raised, raised.error_class)
        assert found.copy_to_host()[0] == error, (text, found.copy_to_host())
        assert raised.block == 0 and raised.operation == call
    assert not g._partitioned.in_use()
    g.free(lower)
    g.free(twice)


@cuda.jit
def free_what_is_active(ctx, buf, found):
    request = GMPI_Psend_init(ctx, buf, 1, 8, gmpi.DOUBLE, gmpi.PROC_NULL, 0, gmpi.COMM_WORLD)
    found[0] = GMPI_Start(ctx, request)
    found[1] = GMPI_Request_free(ctx, request)
    found[2] = GMPI_Pready(ctx, 0, request)
    found[3] = GMPI_Wait(ctx, request).error
    found[4] = GMPI_Request_free(ctx, request)
    found[5] = GMPI_Start(ctx, request)
    found[6] = GMPI_Request_free(ctx, gmpi.REQUEST_NULL)
    found[7] = GMPI_Request_free(ctx, -1)


def wrong_requests(g: gmpi.Context) -> None:
    """To free what is active is an error that disturbs nothing."""
    array, found = zeros(8, np.float64), cuda.to_device(np.full(8, -1, np.int64))
    before = len(g.errors)
    free_what_is_active[1, 32](g.device, array, found)
    raises(gmpi.ArgumentError, "is active and cannot be freed: wait for it", g.synchronize)
    good, bad = gmpi.SUCCESS, gmpi.ERR_REQUEST
    assert found.copy_to_host().tolist() == [good, bad, good, good, good, bad, bad, bad]
    texts = [str(fault) for fault in g.errors[before:]]
    assert len(texts) == 4, texts
    assert all(f"request is {value}, allowed is" in " ".join(texts) for value in ("0x0", "-0x1"))


def no_room(g: gmpi.Context) -> None:
    """What would have to be allocated while a kernel runs is refused, and what to do is said; after
    the host has made and freed one, its staging serves."""
    if g._memory.direct and not g.config.debug:
        n = ARENA_BYTES // 8 + 8
        array, found = cuda.device_array(n, np.uint8), zeros(1, np.int64)
        arguments = 0, array, 1, n, gmpi.BYTE, RANK, 8, gmpi.COMM_WORLD, found
        make_one[1, 32](g.device, *arguments)
        error = raises(gmpi.ResourceError, "needs staging, and to allocate it", g.synchronize)
        assert "register the array" in str(error) and "GMPI_Precv_init in block 0" in str(error)
        assert found.copy_to_host()[0] == gmpi.GMPI_ERR_NO_RESOURCE
        send = g.Psend_init(array, 1, n, gmpi.BYTE, RANK, 8)
        g.Request_free(g.Precv_init(array, 1, n, gmpi.BYTE, RANK, 8))
        g.Request_free(send)
        send = g.Psend_init(array, 1, n, gmpi.BYTE, RANK, 8)
        make_one[1, 32](g.device, *arguments)
        g.synchronize()
        g.Request_free(send)
        for made in g._partitioned.in_use():
            g.Request_free(made.handle)
    array = zeros(1, np.uint8)
    all_of_them = [
        g.Psend_init(array, 1, 1, gmpi.BYTE, gmpi.PROC_NULL) for _ in range(PARTITIONED_ROWS)
    ]
    found = zeros(1, np.int64)
    make_one[1, 32](g.device, 1, array, 1, 1, gmpi.BYTE, gmpi.PROC_NULL, 0, 0, found)
    raises(gmpi.ResourceError, f"there are {PARTITIONED_ROWS} partitioned req", g.synchronize)
    assert found.copy_to_host()[0] == gmpi.GMPI_ERR_NO_RESOURCE
    for request in all_of_them:
        g.Request_free(request)


def problems(g: gmpi.Context) -> str:
    """What is known by now of ends that differ: two texts, one for each end, or fewer."""
    texts = ""
    for _ in range(2):
        try:
            g.synchronize()
        except gmpi.ArgumentError as error:
            texts += str(error)
    return texts


def ends_that_differ(g: gmpi.Context) -> None:
    """Are told with the block that has made them."""
    array, found, requests = zeros(64, np.int32), zeros(1, np.int64), zeros(2, np.int64)
    recv = g.Precv_init(array, 2, 4, gmpi.INT, PREVIOUS, 9)
    make_send[1, 32](g.device, array, gmpi.INT, 4, 4, NEXT, requests)
    texts = problems(g)
    barrier()
    send = requests.copy_to_host()[0]
    for request in send, recv:  # ends when this end knows of the other
        start_it[1, 32](g.device, request, found)
        texts += problems(g)
        assert found.copy_to_host()[0] == gmpi.ERR_COUNT, found.copy_to_host()
    assert "GMPI_Psend_init in block 0: message is 64 bytes in 4 partitions" in texts, texts
    assert "Precv_init in host: message is 32 bytes in 2 partitions" in texts, texts
    g.Request_free(send)
    g.Request_free(recv)


@cuda.jit
def start_it(ctx, request, found):
    GMPI_Start(ctx, request)
    found[0] = GMPI_Wait(ctx, request).error


def while_the_host_is_at_it(g: gmpi.Context) -> None:
    """The proxy does not wait for a thread of the host: it asks again."""
    array, found = zeros(8, np.float64), zeros(1, np.int64)
    arguments = 1, array, 1, 8, gmpi.DOUBLE, gmpi.PROC_NULL, 0, gmpi.COMM_WORLD, found
    held, asked = threading.Event(), g._partitioned.unless_busy
    refused = []

    def ask(work):
        answer = asked(work)
        if answer is None:
            refused.append(work)
            held.set()
        return answer

    def hold() -> None:
        with g._partitioned._lock:
            begun.set()
            assert held.wait(20)

    begun = threading.Event()
    g._partitioned.unless_busy = ask
    in_thread(hold, lambda: (begun.wait(20), make_one[1, 32](g.device, *arguments)))
    g.synchronize()
    assert refused
    g._partitioned.unless_busy = asked
    (made,) = g._partitioned.in_use()
    g.Request_free(made.handle)


def requests_that_are_left() -> None:
    """Are named when the context closes, with the block that has made them."""
    array, requests = zeros(8, np.int32), zeros(2, np.int64)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with gmpi.Context(WORLD) as g:
            make_send[1, 32](g.device, array, gmpi.INT, 2, 4, gmpi.PROC_NULL, requests)
            g.synchronize()
    texts = [str(w.message) for w in found if w.category is gmpi.LeakWarning]
    assert len(texts) == 1 and "1 partitioned requests were never freed: " in texts[0], texts
    assert "partitioned send to PROC_NULL tag 9" in texts[0], texts
    assert "2 partitions of 16 bytes, made in block 0" in texts[0], texts


def main() -> None:
    with gmpi.Context(WORLD) as g:
        run(
            [
                made_and_freed, warps_of_a_block, one_end_of_the_host, wrong_arguments,
                wrong_requests, no_room, ends_that_differ, while_the_host_is_at_it,
            ],
            g,
        )  # fmt: skip
    requests_that_are_left()
    end()


main()
