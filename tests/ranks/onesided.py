"""One-sided calls of kernels (MPI 4.1 chapter 12) against NumPy: random epochs, atomic updates from
all ranks at once, messages by flags.

mpiexec -n 3 python3 tests/ranks/onesided.py [--some] [--many]
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
from common import RANK, SIZE, WORLD, barrier, end, every_shape, raises, run, same
from numba import cuda
from onesided_epochs import random_epochs
from onesided_notified import notified, notified_refused, others_that_tell

import gmpi

# --- all at once ----------------------------------------------------------------------------------


@cuda.jit
def contend(ctx, win, one, back, rounds, root, seen, failed):
    """Each block adds to counters of all sizes, with and without an answer."""
    block = cuda.blockIdx.x
    mine = back[block]
    e = gmpi.GMPI_Win_lock_all(ctx, 0, win)
    for i in range(rounds):
        e |= gmpi.GMPI_Fetch_and_op(ctx, one, mine, gmpi.INT64_T, root, 0, gmpi.SUM, win)
        if cuda.threadIdx.x == 0:
            seen[block, i] = mine[0]
        e |= gmpi.GMPI_Accumulate(ctx, one[8:], 1, gmpi.INT32_T, root, 8, 1, gmpi.INT32_T,
                                  gmpi.SUM, win)  # fmt: skip
        e |= gmpi.GMPI_Accumulate(ctx, one[16:], 1, gmpi.DOUBLE, root, 16, 1, gmpi.DOUBLE,
                                  gmpi.SUM, win)  # fmt: skip
        e |= gmpi.GMPI_Accumulate(ctx, one[8:], 3, gmpi.INT16_T, root, 24, 3, gmpi.INT16_T,
                                  gmpi.SUM, win)  # fmt: skip
        e |= gmpi.GMPI_Accumulate(ctx, one[24:], 1, gmpi.UINT8_T, root, 30, 1, gmpi.UINT8_T,
                                  gmpi.BXOR, win)  # fmt: skip
    e |= gmpi.GMPI_Win_unlock_all(ctx, win)
    if cuda.threadIdx.x == 0 and e != 0:
        failed[0] = e


def counters(g: gmpi.Context) -> None:
    """Updates of all ranks and blocks: none is lost, and no two are answered alike."""
    memory = g.zeros(4, np.int64)
    win = g.win(memory, disp_unit=1)
    rounds, blocks, root = 200 if every_shape() else 60, 2, SIZE - 1
    one = np.zeros(4, np.int64)
    one[0] = 1
    one[1:2].view(np.int16)[:] = 1, 0, -1, 3
    one[2:3].view(np.float64)[0] = 0.5
    one[3:4].view(np.uint8)[0] = 0x5A
    seen = cuda.to_device(np.full((blocks, rounds), -1))
    failed = cuda.to_device(np.zeros(1, np.int64))
    back = cuda.to_device(np.zeros((blocks, 1), np.int64))
    barrier()
    data = cuda.to_device(one.view(np.uint8))
    contend[blocks, 1](g.device, win, data, back, rounds, root, seen, failed)
    g.synchronize()
    same(failed, [0], "error class")
    barrier()
    total = rounds * blocks * SIZE
    everyone = np.concatenate(WORLD.allgather(seen.copy_to_host().reshape(-1)))
    same(np.sort(everyone), np.arange(total), "what was fetched")
    if root == RANK:
        found = memory.copy_to_host()
        word = int(one[1:2].view(np.int32)[0])
        assert found[0] == total
        assert found[1:2].view(np.int32)[0] == np.array(word * total, np.int64).astype(np.int32)
        assert found[2:3].view(np.float64)[0] == total / 2
        halves = np.array([1, 0, -1]) * total
        same(found[3:4].view(np.int16)[:3], halves.astype(np.int16), "elements of two bytes")
        assert found[3:4].view(np.uint8)[6] == (0x5A if total % 2 else 0)
    g.win_free(win)
    g.unregister(memory)


@cuda.jit
def in_turn(ctx, win, words, back, rounds, failed):
    """A lock by GMPI_Compare_and_swap around a load, an addition and a store."""
    e = gmpi.GMPI_Win_lock_all(ctx, gmpi.MODE_NOCHECK, win)
    for _ in range(rounds):
        back[0] = 1
        while back[0] != 0:
            e |= gmpi.GMPI_Compare_and_swap(ctx, words[1:], words, back, gmpi.INT64_T, 0, 0, win)
            if e != 0:
                break
        e |= gmpi.GMPI_Get(ctx, back[1:], 1, gmpi.INT64_T, 0, 1, 1, gmpi.INT64_T, win)
        back[1] += 1
        e |= gmpi.GMPI_Put(ctx, back[1:], 1, gmpi.INT64_T, 0, 1, 1, gmpi.INT64_T, win)
        e |= gmpi.GMPI_Win_flush(ctx, 0, win)
        e |= gmpi.GMPI_Accumulate(ctx, words, 1, gmpi.INT64_T, 0, 0, 1, gmpi.INT64_T,
                                  gmpi.REPLACE, win)  # fmt: skip
        e |= gmpi.GMPI_Win_flush_all(ctx, win)
    e |= gmpi.GMPI_Win_unlock_all(ctx, win)
    failed[0] = e


def locks(g: gmpi.Context) -> None:
    """A lock that ranks take in turn keeps what is between apart."""
    memory = g.zeros(2 if RANK == 0 else 0, np.int64)
    win = g.win(memory if RANK == 0 else None, disp_unit=8)
    rounds = 60 if every_shape() else 20
    words, back = cuda.to_device(np.array([0, 1])), cuda.to_device(np.zeros(2, np.int64))
    failed = cuda.to_device(np.zeros(1, np.int64))
    barrier()
    in_turn[1, 1](g.device, win, words, back, rounds, failed)
    g.synchronize()
    same(failed, [0], "error class")
    barrier()
    if RANK == 0:
        same(memory, [0, rounds * SIZE], "the lock, and what was counted under it")
    g.win_free(win)
    if RANK == 0:
        g.unregister(memory)


@cuda.jit
def pass_on(ctx, win, data, flag, back, n, me, to, rounds, wrong):
    """Data, a flush and a flag, to the next rank, again and again; it says that it has them."""
    e = gmpi.GMPI_Win_lock_all(ctx, 0, win)
    for i in range(1, rounds + 1):
        for k in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            data[k] = 1000 * i + me + k
        if cuda.threadIdx.x == 0:
            flag[0] = i
        cuda.syncthreads()
        e |= gmpi.GMPI_Put(ctx, data, n, gmpi.INT64_T, to, 2, n, gmpi.INT64_T, win)
        e |= gmpi.GMPI_Win_flush(ctx, to, win)
        e |= gmpi.GMPI_Accumulate(ctx, flag, 1, gmpi.INT64_T, to, 0, 1, gmpi.INT64_T,
                                  gmpi.REPLACE, win)  # fmt: skip
        # What has come: in our own window.
        e |= gmpi.GMPI_Fetch_and_op(ctx, 0, back, gmpi.INT64_T, me, 0, gmpi.NO_OP, win)
        while back[0] < i and e == 0:
            e |= gmpi.GMPI_Fetch_and_op(ctx, 0, back, gmpi.INT64_T, me, 0, gmpi.NO_OP, win)
        e |= gmpi.GMPI_Win_flush_all(ctx, win)
        e |= gmpi.GMPI_Get(ctx, back[1:], n, gmpi.INT64_T, me, 2, n, gmpi.INT64_T, win)
        for k in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            if back[1 + k] // 1000 != i or back[1 + k] % 1000 < k:
                cuda.atomic.add(wrong, 0, 1)
        cuda.syncthreads()
        # The next rank may store again when all have looked.
        if gmpi.GMPI_Barrier(ctx, gmpi.COMM_WORLD) != 0:
            break
    e |= gmpi.GMPI_Win_unlock_all(ctx, win)
    if cuda.threadIdx.x == 0 and e != 0:
        wrong[0] = -e


def flags(g: gmpi.Context) -> None:
    """Who sees a flag that comes after a flush finds what was stored before it."""
    n, rounds = 40, 12 if every_shape() else 5
    memory = g.zeros(2 + n, np.int64)
    win = g.win(memory)
    data, flag = cuda.to_device(np.zeros(n, np.int64)), cuda.to_device(np.zeros(1, np.int64))
    back, wrong = cuda.to_device(np.zeros(1 + n, np.int64)), cuda.to_device(np.zeros(1, np.int64))
    barrier()
    pass_on[1, 33](g.device, win, data, flag, back, n, RANK, (RANK + 1) % SIZE, rounds, wrong)
    g.synchronize()
    same(wrong, [0], "wrong elements")
    g.win_free(win)
    g.unregister(memory)


@cuda.jit
def complex_sums(ctx, win, data, failed):
    e = gmpi.GMPI_Win_fence(ctx, 0, win)
    e |= gmpi.GMPI_Accumulate(ctx, data, 4, gmpi.C_DOUBLE_COMPLEX, 0, 0, 4, gmpi.C_DOUBLE_COMPLEX,
                              gmpi.SUM, win)  # fmt: skip
    e |= gmpi.GMPI_Put_warp(ctx, data, 4, gmpi.C_DOUBLE_COMPLEX, gmpi.PROC_NULL, 0, 4,
                            gmpi.C_DOUBLE_COMPLEX, win)  # fmt: skip
    e |= gmpi.GMPI_Win_fence(ctx, 0, win)
    failed[0] = e


def numbers_in_halves(g: gmpi.Context) -> None:
    """Sums of complex numbers; a target that is PROC_NULL."""
    memory = g.zeros(4, np.complex128)
    win = g.win(memory)
    data = np.arange(4) * (1 + 2j) + RANK
    failed = cuda.to_device(np.zeros(1, np.int64))
    complex_sums[1, 32](g.device, win, cuda.to_device(data), failed)
    g.synchronize()
    same(failed, [0], "error class")
    if RANK == 0:
        same(memory, np.arange(4) * (1 + 2j) * SIZE + sum(range(SIZE)), "sums")
    g.win_free(win)
    g.unregister(memory)


def again_and_again(g: gmpi.Context) -> None:
    """Rows and communicators of windows that were freed are used anew."""
    memory = g.zeros(4)
    g.win_free(g.win(memory))
    known = len(g._state.communicators)
    for _ in range(3):
        one, other = g.win(memory), g.win(memory)
        assert one != other
        g.win_free(one)
        g.win_free(other)
    assert len(g._state.communicators) == known + 1
    if "--many" in sys.argv:
        windows = [g.win(memory) for _ in range(64)]
        raises(gmpi.ContextError, "there are 64 windows", lambda: g.win(memory))
        for win in windows:
            g.win_free(win)
        for _ in range(300):
            g.win_free(g.win(None))
    g.unregister(memory)


def main() -> None:
    scenarios: list[Callable[..., None]] = [
        random_epochs, counters, locks, flags, numbers_in_halves,
        again_and_again, notified, notified_refused, others_that_tell,
    ]  # fmt: skip
    with gmpi.Context(WORLD) as g:
        run(scenarios, g)
    end()


main()
