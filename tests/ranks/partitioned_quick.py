"""Partitioned requests with short partitions, once both ends know each other: every choice that
the quick calls make."""

from __future__ import annotations

import time

import numpy as np
from common import RANK, SIZE, WORLD, end, pattern, raises, run
from numba import cuda

import gmpi
from gmpi import (
    GMPI_Parrived,
    GMPI_Pready,
    GMPI_Pready_range,
    GMPI_Request_get_status,
    GMPI_Start,
    GMPI_Test,
    GMPI_Testall,
    GMPI_Wait,
)

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE
THREADS = 32
ROOM = 12 * THREADS  # bytes of a partition that has a packet for each thread


@cuda.jit
def whole_round(ctx, send, recv, partitions):
    GMPI_Start(ctx, recv)
    GMPI_Start(ctx, send)
    GMPI_Pready_range(ctx, 0, partitions - 1, send)
    GMPI_Wait(ctx, recv)
    GMPI_Wait(ctx, send)


def both_ends(g: gmpi.Context, out, back, partitions: int, tag: int) -> tuple[int, int]:
    """A send and a receive that have been open for a round."""
    n = out.size // partitions
    send = g.Psend_init(out, partitions, n, gmpi.BYTE, NEXT, tag)
    recv = g.Precv_init(back, partitions, n, gmpi.BYTE, PREVIOUS, tag)
    whole_round[1, THREADS](g.device, send, recv, partitions)
    g.synchronize()
    return send, recv


# --- lengths --------------------------------------------------------------------------------------


# wide: a kernel
@cuda.jit
def rounds_of(ctx, send, recv, source, out, back, found, partitions):
    n = source.shape[1]
    lane, lanes = cuda.threadIdx.x, cuda.blockDim.x
    for i in range(source.shape[0]):
        GMPI_Start(ctx, recv)
        GMPI_Start(ctx, send)
        for k in range(lane, n, lanes):
            out[k] = source[i, k]
        for p in range(partitions - 1, -1, -1):
            GMPI_Pready(ctx, p, send)
        for p in range(partitions):
            while not GMPI_Parrived(ctx, recv, p):
                pass
        cuda.syncthreads()
        for k in range(lane, n, lanes):
            found[i, k] = back[k]
        GMPI_Wait(ctx, recv)
        GMPI_Wait(ctx, send)


def partitions_of_all_lengths(g: gmpi.Context) -> None:
    """None, less than a packet, a packet for each thread, one more, and several; and of no whole
    words."""
    rounds = 3
    for partitions, n in (
        (1, 0), (2, 4), (3, 16), (2, ROOM - 8), (2, ROOM), (2, ROOM + 4), (2, 4 * ROOM),
        (1, 9 * ROOM + 20), (2, 7),
    ):  # fmt: skip
        total = partitions * n
        out, back = (cuda.to_device(np.zeros(max(total, 1), np.uint8)) for _ in range(2))
        send = g.Psend_init(out, partitions, n, gmpi.BYTE, NEXT, 1)
        recv = g.Precv_init(back, partitions, n, gmpi.BYTE, PREVIOUS, 1)
        sent, expected = (
            np.stack([pattern(total, 100 * rank + i) for i in range(rounds)])
            for rank in (RANK, PREVIOUS)
        )
        found = cuda.to_device(np.zeros((rounds, max(total, 1)), np.uint8))
        source = cuda.to_device(sent if total else np.zeros((rounds, 1), np.uint8))
        for _turn in range(2):  # while they open, and when they have
            rounds_of[1, THREADS](g.device, send, recv, source, out, back, found, partitions)
            g.synchronize()
            got = found.copy_to_host()[:, :total]
            assert np.array_equal(got, expected), (partitions, n, got, expected)
        g.Request_free(send)
        g.Request_free(recv)


# --- order ----------------------------------------------------------------------------------------


@cuda.jit
def send_rounds(ctx, send, out, rounds):
    for i in range(rounds):
        GMPI_Start(ctx, send)
        out[cuda.threadIdx.x] = i + 1
        GMPI_Pready(ctx, 0, send)
        GMPI_Wait(ctx, send)


@cuda.jit(device=True)
def receive_all(ctx, recv, back, found):
    for i in range(found.shape[0]):
        GMPI_Start(ctx, recv)
        while not GMPI_Parrived(ctx, recv, 0):
            pass
        found[i, cuda.threadIdx.x] = back[cuda.threadIdx.x]
        GMPI_Wait(ctx, recv)


@cuda.jit
def receive_rounds(ctx, recv, back, found):
    receive_all(ctx, recv, back, found)


def sends_that_are_rounds_ahead(g: gmpi.Context) -> None:
    """Wait until the receiver has taken what lies where they would go."""
    rounds = 6
    out, back = (cuda.to_device(np.zeros(THREADS, np.uint8)) for _ in range(2))
    send, recv = both_ends(g, out, back, 1, 2)
    found = cuda.to_device(np.zeros((rounds, THREADS), np.uint8))
    if RANK % 2 == 0:
        send_rounds[1, THREADS](g.device, send, out, rounds)
    if PREVIOUS % 2 == 0:
        time.sleep(0.2)
        receive_rounds[1, THREADS](g.device, recv, back, found)
    g.synchronize()
    if PREVIOUS % 2 == 0:
        wanted = np.arange(1, rounds + 1, dtype=np.uint8)[:, None]
        assert (found.copy_to_host() == wanted).all(), found.copy_to_host()
    WORLD.Barrier()
    if RANK % 2 == 1:  # both ends have come as far
        send_rounds[1, THREADS](g.device, send, out, rounds)
    if PREVIOUS % 2 == 1:
        receive_rounds[1, THREADS](g.device, recv, back, found)
    g.synchronize()
    g.Request_free(send)
    g.Request_free(recv)


@cuda.jit
def test_only(ctx, send, recv, out, rounds):
    """The last round is late, and nothing but tests of another request can store it."""
    GMPI_Start(ctx, recv)
    for i in range(rounds):
        GMPI_Start(ctx, send)
        out[cuda.threadIdx.x] = i + 1
        GMPI_Pready(ctx, 0, send)
        if i + 1 < rounds:
            GMPI_Wait(ctx, send)
    done = False
    while not done:
        done = GMPI_Test(ctx, recv)[0]
    GMPI_Wait(ctx, send)


@cuda.jit
def receive_and_answer(ctx, send, recv, back, found):
    receive_all(ctx, recv, back, found)
    GMPI_Start(ctx, send)
    GMPI_Pready(ctx, 0, send)
    GMPI_Wait(ctx, send)


def tests_go_on_with_what_is_late(g: gmpi.Context) -> None:
    if SIZE != 2:
        return
    rounds = 2  # rank 1 has not started the first of them when the second is ready
    out, back = (cuda.to_device(np.zeros(THREADS, np.uint8)) for _ in range(2))
    send, recv = both_ends(g, out, back, 1, 7)
    found = cuda.to_device(np.zeros((rounds, THREADS), np.uint8))
    if RANK == 0:
        test_only[1, THREADS](g.device, send, recv, out, rounds)
    else:
        time.sleep(0.3)
        receive_and_answer[1, THREADS](g.device, send, recv, back, found)
    g.synchronize()
    if RANK == 1:
        assert (found.copy_to_host() == np.arange(1, rounds + 1)[:, None]).all()
    g.Request_free(send)
    g.Request_free(recv)


# --- marks ----------------------------------------------------------------------------------------


@cuda.jit
def change_what_has_come(ctx, send, recv, back, found):
    """A partition that has been taken is the user's."""
    GMPI_Start(ctx, recv)
    GMPI_Start(ctx, send)
    GMPI_Pready(ctx, 0, send)
    while not GMPI_Parrived(ctx, recv, 0):
        pass
    back[cuda.threadIdx.x] = 99
    again = GMPI_Parrived(ctx, recv, 0)
    flag, seen = GMPI_Request_get_status(ctx, recv)
    status = GMPI_Wait(ctx, recv)
    GMPI_Wait(ctx, send)
    if cuda.threadIdx.x == 0:
        found[0] = again
        found[1] = status.nbytes
        found[2] = status.source
        found[3] = flag
        found[4] = seen.nbytes


def what_has_come_is_not_moved_again(g: gmpi.Context) -> None:
    out, back = (cuda.to_device(np.full(THREADS, 7, np.uint8)) for _ in range(2))
    send, recv = both_ends(g, out, back, 1, 3)
    found = cuda.to_device(np.zeros(5, np.int64))
    change_what_has_come[1, THREADS](g.device, send, recv, back, found)
    g.synchronize()
    wanted = [1, THREADS, PREVIOUS, 1, THREADS]
    assert found.copy_to_host().tolist() == wanted, found.copy_to_host()
    assert (back.copy_to_host() == 99).all(), back.copy_to_host()
    g.Request_free(send)
    g.Request_free(recv)


# wide: a kernel
@cuda.jit
def test_both(ctx, sends, recvs, handles, statuses, found):
    """Of two receives one has come: both stay active until both have."""
    for k in range(2):
        handles[k] = recvs[k]
        GMPI_Start(ctx, recvs[k])
        GMPI_Start(ctx, sends[k])
    GMPI_Pready(ctx, 0, sends[0])
    while not GMPI_Parrived(ctx, recvs[0], 0):
        pass
    early = GMPI_Testall(ctx, 2, handles, statuses)[0]
    GMPI_Pready(ctx, 0, sends[1])
    done = False
    while not done:
        done = GMPI_Testall(ctx, 2, handles, statuses)[0]
    GMPI_Wait(ctx, sends[0])
    GMPI_Wait(ctx, sends[1])
    if cuda.threadIdx.x == 0:
        found[0] = early


def tests_that_find_one_of_two(g: gmpi.Context) -> None:
    arrays = [cuda.to_device(np.full(THREADS, RANK, np.uint8)) for _ in range(4)]
    ends = [both_ends(g, arrays[2 * k], arrays[2 * k + 1], 1, 4 + k) for k in range(2)]
    sends, recvs = (cuda.to_device(np.array(some)) for some in zip(*ends))
    handles = cuda.to_device(np.zeros(2, np.int64))
    statuses = cuda.to_device(np.zeros(2, gmpi.STATUS_DTYPE))
    found = cuda.to_device(np.ones(1, np.int64))
    test_both[1, THREADS](g.device, sends, recvs, handles, statuses, found)
    g.synchronize()
    # The first send may be there before its Testall; the second cannot, unless its sender is ahead.
    early = int(found.copy_to_host()[0])
    assert early in (0, 1)
    nbytes = statuses.copy_to_host()["nbytes"].tolist()
    assert nbytes == [THREADS, THREADS], (early, nbytes)
    for request in (request for pair in ends for request in pair):
        g.Request_free(request)


# --- misuse ---------------------------------------------------------------------------------------


@cuda.jit
def misuse(ctx, send, recv, found):
    found[0] = GMPI_Pready(ctx, 0, send)  # not started
    found[1] = GMPI_Parrived(ctx, recv, 0)
    found[2] = GMPI_Wait(ctx, recv).nbytes
    GMPI_Start(ctx, send)
    GMPI_Start(ctx, recv)
    found[3] = GMPI_Start(ctx, send)
    found[4] = GMPI_Start(ctx, recv)
    found[5] = GMPI_Pready(ctx, 2, send)
    found[6] = GMPI_Pready(ctx, -1, send)
    found[7] = GMPI_Pready(ctx, 0, recv)
    found[8] = GMPI_Parrived(ctx, send, 0)
    found[9] = GMPI_Parrived(ctx, recv, 2)
    found[10] = GMPI_Parrived(ctx, recv, -1)
    found[11] = GMPI_Pready(ctx, 0, send)
    found[12] = GMPI_Pready(ctx, 0, send)  # twice
    found[13] = GMPI_Pready(ctx, 1, send)
    found[14] = GMPI_Wait(ctx, recv).nbytes
    found[15] = GMPI_Wait(ctx, send).error
    found[16] = GMPI_Wait(ctx, send).nbytes  # inactive


def misuse_of_what_is_open(g: gmpi.Context) -> None:
    out, back = (cuda.to_device(np.full(16, RANK, np.uint8)) for _ in range(2))
    send, recv = both_ends(g, out, back, 2, 6)
    found = cuda.to_device(np.full(17, -1, np.int64))
    misuse[1, THREADS](g.device, send, recv, found)
    raises(gmpi.ArgumentError, "GMPI_Pready in block 0: request is", g.synchronize)
    request, argument = gmpi.ERR_REQUEST, gmpi.ERR_ARG
    expected = [
        request, 1, 0, request, request, argument, argument, request, 1, 1, 1, 0, argument, 0, 16,
        0, 0,
    ]  # fmt: skip
    assert found.copy_to_host().tolist() == expected, (found.copy_to_host().tolist(), expected)
    assert (back.copy_to_host() == PREVIOUS).all(), back.copy_to_host()
    g.Request_free(send)
    g.Request_free(recv)


def main() -> None:
    with gmpi.Context(WORLD) as g:
        run(
            [
                partitions_of_all_lengths, sends_that_are_rounds_ahead,
                tests_go_on_with_what_is_late,
                what_has_come_is_not_moved_again, tests_that_find_one_of_two,
                misuse_of_what_is_open,
            ],
            g,
        )  # fmt: skip
    end()


main()
