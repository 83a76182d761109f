"""Partitioned requests: every byte, many shapes of both ends, many rounds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from common import RANK, SIZE, WORLD, end, every_shape, pattern, raises, run
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
    GMPI_Start,
    GMPI_Start_warp,
    GMPI_Startall,
    GMPI_Test,
    GMPI_Wait,
    GMPI_Wait_warp,
    GMPI_Waitall,
    GMPI_Waitany,
)
from gmpi.contract import partitions

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE
ROUNDS = 4


def contents(n: int, rank: int) -> np.ndarray:
    """What a rank sends in each round."""
    return np.stack([pattern(n, 100 * rank + i) for i in range(ROUNDS)])


# wide: a kernel
@cuda.jit
def by_blocks(ctx, send, recv, source, out, back, found, parts, theirs, wrong):
    """Blocks take partitions in turn; block 0 starts and waits."""
    grid = cuda.cg.this_grid()
    block, blocks = cuda.blockIdx.x, cuda.gridDim.x
    lane, lanes = cuda.threadIdx.x, cuda.blockDim.x
    rounds, n = source.shape
    for i in range(rounds):
        if block == 0:
            error = GMPI_Start(ctx, recv) + GMPI_Start(ctx, send)
            if error != gmpi.SUCCESS and lane == 0:
                wrong[0] += 1
        grid.sync()
        for p in range(block, parts, blocks):
            size = n // parts
            for k in range(p * size + lane, (p + 1) * size, lanes):
                out[k] = source[i, k]
            if GMPI_Pready(ctx, p, send) != gmpi.SUCCESS and lane == 0:
                wrong[1] += 1
        for p in range(block, theirs, blocks):
            while not GMPI_Parrived(ctx, recv, p):
                pass
            if not GMPI_Parrived(ctx, recv, p) and lane == 0:
                wrong[1] += 1
            size = n // theirs
            for k in range(p * size + lane, (p + 1) * size, lanes):
                found[i, k] = back[k]
        grid.sync()
        if block == 0:
            status = GMPI_Wait(ctx, recv)
            if (status.error != gmpi.SUCCESS or status.nbytes != n) and lane == 0:
                wrong[2] += 1
            if GMPI_Wait(ctx, send).error != gmpi.SUCCESS and lane == 0:
                wrong[3] += 1
        grid.sync()


def exchange(g, n, parts, theirs, blocks, threads, where) -> None:
    """A round trip around the ranks; ``where``: the kind of memory that is received into."""
    out = cuda.to_device(np.zeros(n, np.uint8))
    back = g.zeros(n, np.uint8) if where == "empty" else cuda.to_device(np.zeros(n, np.uint8))
    if where == "registered":
        g.register(back)
    send = g.Psend_init(out, parts, n // parts, gmpi.BYTE, NEXT, 5)
    recv = g.Precv_init(back, theirs, n // theirs, gmpi.BYTE, PREVIOUS, 5)
    found = cuda.to_device(np.zeros((ROUNDS, n), np.uint8))
    wrong = cuda.to_device(np.zeros(4, np.int64))
    source = cuda.to_device(contents(n, RANK))
    by_blocks[blocks, threads](g.device, send, recv, source, out, back, found, parts, theirs, wrong)
    g.synchronize()
    what = f"{n} bytes in {parts} to {theirs} partitions, {blocks} x {threads}, {where}"
    assert not wrong.copy_to_host().any(), f"{what}: {wrong.copy_to_host()}"
    expected = contents(n, PREVIOUS)
    got = found.copy_to_host()
    assert np.array_equal(got, expected), f"{what}: {np.argwhere(got != expected)[:4]}"
    g.Request_free(send)
    g.Request_free(recv)
    if where != "plain":
        g.unregister(back)


def shapes_of_both_ends(g: gmpi.Context) -> None:
    """Packets and stores; equal and other numbers of partitions; few and many threads."""
    packed = [
        (8, 1, 1, 1, 32, "plain"),
        (100, 1, 1, 1, 70, "plain"),
        (96, 4, 4, 2, 33, "empty"),
        (1200, 3, 5, 2, 64, "plain"),
        (840, 7, 2, 1, 32, "registered"),
        (0, 2, 3, 1, 32, "plain"),
    ]
    stored = [
        (4096, 1, 1, 1, 64, "empty"),
        (2090, 2, 2, 2, 64, "plain"),
        (2598, 2, 3, 2, 64, "registered"),
        (1575, 5, 3, 2, 40, "empty"),
    ]
    for case in packed if every_shape() else packed[:1] + packed[3:]:
        exchange(g, *case)
    with few_in_packets():
        for case in stored if every_shape() else stored[1:3]:
            exchange(g, *case)


@contextmanager
def few_in_packets() -> Iterator[None]:
    """Partitions of more than 256 bytes are stored without packets, and make groups of their own
    on the proxied road: the simulator takes long to move as many bytes as it takes otherwise."""
    most = partitions.MOST_IN_PACKETS, partitions.GROUP_LEAST
    partitions.MOST_IN_PACKETS = partitions.GROUP_LEAST = 256
    try:
        yield
    finally:
        partitions.MOST_IN_PACKETS, partitions.GROUP_LEAST = most


def groups_of_partitions(g: gmpi.Context) -> None:
    """On the proxied road: more partitions than messages, and long messages, in both directions."""
    if not any(f"GMPI_{name}" in os.environ for name in ("ROAD", "TEST_NODES", "DEBUG")):
        return
    with few_in_packets():
        exchange(g, 2560, 40, 8, 2, 64, "plain")
        if every_shape():
            exchange(g, 16800, 6, 4, 2, 128, "plain")


@cuda.jit
def one_block(ctx, send, recv, out, rounds, handles, statuses, wrong):
    """Startall, Pready_range, and only then a wait: nobody looks at partitions one by one."""
    for i in range(rounds):
        handles[0] = recv
        handles[1] = send
        cuda.syncthreads()
        if GMPI_Startall(ctx, 2, handles) != gmpi.SUCCESS:
            wrong[0] = 1
        if cuda.threadIdx.x < out.size:
            out[cuda.threadIdx.x] += 1
        if GMPI_Pready_range(ctx, 0, 3, send) != gmpi.SUCCESS:
            wrong[0] = 2
        if i % 2 == 0:
            if GMPI_Waitall(ctx, 2, handles, statuses) != gmpi.SUCCESS:
                wrong[0] = 3
        else:
            first, status = GMPI_Waitany(ctx, 2, handles)
            second, other = GMPI_Waitany(ctx, 2, handles)
            none, _ = GMPI_Waitany(ctx, 2, handles)
            if first + second != 1 or none != -1 or status.error + other.error != 0:
                wrong[0] = 4
        if handles[0] != recv or handles[1] != send:
            wrong[0] = 5


def waits_of_every_kind(g: gmpi.Context) -> None:
    out, back = (cuda.to_device(np.full(32, 10 * RANK, np.int32)) for _ in range(2))
    send = g.Psend_init(out, 4, 8, gmpi.INT, NEXT, 6)
    recv = g.Precv_init(back, 2, 16, gmpi.INT, PREVIOUS, 6)
    handles = cuda.to_device(np.zeros(2, np.int64))
    statuses = cuda.to_device(np.zeros(2, gmpi.STATUS_DTYPE))
    wrong = cuda.to_device(np.zeros(1, np.int64))
    one_block[1, 64](g.device, send, recv, out, ROUNDS, handles, statuses, wrong)
    g.synchronize()
    assert wrong.copy_to_host()[0] == 0, wrong.copy_to_host()
    assert (back.copy_to_host() == 10 * PREVIOUS + ROUNDS).all(), back.copy_to_host()
    first = statuses.copy_to_host()[0]
    assert tuple(first) == (gmpi.SUCCESS, PREVIOUS, 6, 32, 128), first
    g.Request_free(send)
    g.Request_free(recv)


@cuda.jit
def beside_others(ctx, send, recv, out, found, peers, handles, statuses, wrong):
    """Partitioned and other requests in the same calls."""
    to, source = peers
    for i in range(4):
        handles[0] = recv
        handles[1] = GMPI_Irecv(ctx, found, 8, gmpi.INT, source, 3, gmpi.COMM_WORLD)
        handles[2] = send
        handles[3] = GMPI_Isend(ctx, out, 8, gmpi.INT, to, 3, gmpi.COMM_WORLD)
        GMPI_Start(ctx, send)
        GMPI_Start(ctx, recv)
        if GMPI_Test(ctx, send)[0]:
            wrong[0] = 1
        GMPI_Pready_range(ctx, 0, 1, send)
        if i % 2 == 0:
            if GMPI_Waitall(ctx, 4, handles, statuses) != gmpi.SUCCESS:
                wrong[0] = 2
            if statuses[0]["nbytes"] != 32 or statuses[1]["nbytes"] != 32:
                wrong[0] = 3
        else:
            seen = 0
            for _k in range(4):
                index, status = GMPI_Waitany(ctx, 4, handles)
                seen += 1 << index
                if status.error != gmpi.SUCCESS:
                    wrong[0] = 4
            if seen != 15:
                wrong[0] = 5


def beside_other_requests(g: gmpi.Context) -> None:
    out = cuda.to_device(np.full(8, RANK, np.int32))
    back, found = (cuda.to_device(np.full(8, -1, np.int32)) for _ in range(2))
    send = g.Psend_init(out, 2, 4, gmpi.INT, NEXT, 3)
    recv = g.Precv_init(back, 2, 4, gmpi.INT, PREVIOUS, 3)
    handles = cuda.to_device(np.zeros(4, np.int64))
    statuses = cuda.to_device(np.zeros(4, gmpi.STATUS_DTYPE))
    wrong = cuda.to_device(np.zeros(1, np.int64))
    peers = NEXT, PREVIOUS
    beside_others[1, 32](g.device, send, recv, out, found, peers, handles, statuses, wrong)
    g.synchronize()
    assert wrong.copy_to_host()[0] == 0, wrong.copy_to_host()
    assert (back.copy_to_host() == PREVIOUS).all() and (found.copy_to_host() == PREVIOUS).all()
    g.Request_free(send)
    g.Request_free(recv)


@cuda.jit
def by_warps(ctx, send, recv, out, back, wrong):
    """Warp 0 starts; each warp has a partition of its own."""
    warp = cuda.threadIdx.x // 32
    lane = cuda.laneid
    if warp == 0:
        GMPI_Start_warp(ctx, recv)
        GMPI_Start_warp(ctx, send)
    cuda.syncthreads()
    out[warp * 40 + lane] = warp * 100 + lane
    if lane < 8:
        out[warp * 40 + 32 + lane] = warp
    if GMPI_Pready_warp(ctx, warp, send) != gmpi.SUCCESS:
        wrong[0] = 1
    while not GMPI_Parrived_warp(ctx, recv, warp):
        pass
    if back[warp * 40 + lane] != warp * 100 + lane:
        wrong[0] = 2
    cuda.syncthreads()
    if warp == 0:
        status = GMPI_Wait_warp(ctx, recv)
        if status.nbytes != 4 * 40 * 3 or GMPI_Wait_warp(ctx, send).error != gmpi.SUCCESS:
            wrong[0] = 3


def warps_of_a_block(g: gmpi.Context) -> None:
    out, back = (cuda.to_device(np.zeros(120, np.int32)) for _ in range(2))
    send = g.Psend_init(out, 3, 40, gmpi.INT, NEXT, 7)
    recv = g.Precv_init(back, 3, 40, gmpi.INT, PREVIOUS, 7)
    wrong = cuda.to_device(np.zeros(1, np.int64))
    by_warps[1, 96](g.device, send, recv, out, back, wrong)
    g.synchronize()
    assert wrong.copy_to_host()[0] == 0, wrong.copy_to_host()
    assert np.array_equal(back.copy_to_host(), out.copy_to_host())
    g.Request_free(send)
    g.Request_free(recv)


def sends_that_are_ready_early(g: gmpi.Context) -> None:
    """No Pready waits for the receiver: in packets, in stores, and to ourselves."""
    with few_in_packets():
        early_in_both(g)


def early_in_both(g: gmpi.Context) -> None:
    for n in (64, 1032):
        for dest, source in ((NEXT, PREVIOUS), (RANK, RANK)):
            out = cuda.to_device(pattern(n, RANK))
            back = g.zeros(n, np.uint8)
            send = g.Psend_init(out, 2, n // 2, gmpi.BYTE, dest, 8)
            recv = g.Precv_init(back, 2, n // 2, gmpi.BYTE, source, 8)
            early[1, 32](g.device, send, recv)
            g.synchronize()
            assert np.array_equal(back.copy_to_host(), pattern(n, source)), (n, dest)
            g.Request_free(send)
            g.Request_free(recv)


@cuda.jit
def early(ctx, send, recv):
    GMPI_Start(ctx, send)
    GMPI_Pready(ctx, 0, send)
    GMPI_Pready(ctx, 1, send)
    GMPI_Start(ctx, recv)
    while not GMPI_Parrived(ctx, recv, 1):
        pass
    GMPI_Wait(ctx, recv)
    GMPI_Wait(ctx, send)


def derived_datatypes(g: gmpi.Context) -> None:
    """Columns of a matrix on one side or on both, in other numbers of partitions."""
    rows, columns, width = 12, 10, 3
    vector = MPI.INT.Create_vector(rows, width, columns)
    handle = g.commit(vector)
    column = g.commit(MPI.INT.Create_vector(4, 2, 5).Create_resized(0, 4 * 20))
    total = rows * width
    # The matrix, whose first columns are sent as one element, in two partitions of one or as many.
    matrix = np.arange(rows * columns, dtype=np.int32).reshape(rows, columns)
    packed = matrix[:, :width].reshape(-1)
    for sends_typed, takes_typed in ((True, False), (False, True), (True, True)):
        mine = matrix + 1000 * RANK if sends_typed else packed + 1000 * RANK
        source = cuda.to_device(np.ascontiguousarray(mine))
        target = cuda.to_device(np.full((rows, columns) if takes_typed else total, -1, np.int32))
        send = (
            g.Psend_init(source, 1, 1, handle, NEXT, 9)
            if sends_typed
            else g.Psend_init(source, 2, total // 2, gmpi.INT, NEXT, 9)
        )
        recv = (
            g.Precv_init(target, 1, 1, handle, PREVIOUS, 9)
            if takes_typed
            else g.Precv_init(target, 3, total // 3, gmpi.INT, PREVIOUS, 9)
        )
        whole[1, 64](g.device, send, recv, 1 if sends_typed else 2)
        g.synchronize()
        expected = packed + 1000 * PREVIOUS
        if takes_typed:
            full = np.full((rows, columns), -1, np.int32)
            full[:, :width] = expected.reshape(rows, width)
            expected = full
        got = target.copy_to_host()
        assert np.array_equal(got, expected), (sends_typed, takes_typed, got)
        raises(gmpi.DatatypeError, "partitioned requests use it", lambda: g.free(handle)) if (
            sends_typed or takes_typed
        ) else None
        g.Request_free(send)
        g.Request_free(recv)
    g.free(handle)
    g.free(column)


@cuda.jit
def whole(ctx, send, recv, parts):
    GMPI_Start(ctx, recv)
    GMPI_Start(ctx, send)
    GMPI_Pready_range(ctx, 0, parts - 1, send)
    GMPI_Wait(ctx, recv)
    GMPI_Wait(ctx, send)


def order_and_nobody(g: gmpi.Context) -> None:
    """Ends match in the order in which they were made; PROC_NULL has no other end."""
    outs = [cuda.to_device(np.full(3, 10 * RANK + k, np.int64)) for k in range(3)]
    backs = [cuda.to_device(np.zeros(3, np.int64)) for _ in range(3)]
    sends = [g.Psend_init(a, 1, 3, gmpi.INT64_T, NEXT, 11) for a in outs]
    receives = [g.Precv_init(a, 1, 3, gmpi.INT64_T, PREVIOUS, 11) for a in backs]
    for k in (2, 0, 1):
        whole[1, 32](g.device, sends[k], receives[k], 1)
    g.synchronize()
    for k, back in enumerate(backs):
        assert (back.copy_to_host() == 10 * PREVIOUS + k).all(), (k, back.copy_to_host())
    send = g.Psend_init(outs[0], 3, 1, gmpi.INT64_T, gmpi.PROC_NULL, 1)
    recv = g.Precv_init(outs[0], 3, 1, gmpi.INT64_T, gmpi.PROC_NULL, 1)
    for _ in range(2):
        whole[1, 32](g.device, send, recv, 3)
    g.synchronize()
    for request in (*sends, *receives, send, recv):
        g.Request_free(request)


def main() -> None:
    with gmpi.Context(WORLD) as g:
        run(
            [
                shapes_of_both_ends, groups_of_partitions, waits_of_every_kind,
                beside_other_requests, warps_of_a_block, sends_that_are_ready_early,
                derived_datatypes, order_and_nobody,
            ],
            g,
        )  # fmt: skip
    end()


main()
