"""One-sided calls that are refused, abandoned or left behind, and ranks without kernels.

mpiexec -n 3 python3 tests/ranks/onesided_refused.py
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from common import RANK, SIZE, WORLD, barrier, end, raises, run, same
from numba import cuda

import gmpi
from gmpi.memory.node import TEST_NODES


@cuda.jit
def misuse(ctx, win, gone, a, f, strided, found):
    d, n = gmpi.INT64_T, gmpi.PROC_NULL
    found[0] = gmpi.GMPI_Put(ctx, a, 1, d, 0, 0, 1, d, win)  # no epoch
    found[1] = gmpi.GMPI_Win_flush(ctx, 0, win)
    found[2] = gmpi.GMPI_Win_unlock_all(ctx, win)
    gmpi.GMPI_Win_lock_all(ctx, 0, win)
    found[3] = gmpi.GMPI_Put(ctx, a, 1, d, 0, 0, 1, d, gone)
    found[4] = gmpi.GMPI_Get(ctx, a, 1, d, 0, 0, 1, d, 7)
    found[5] = gmpi.GMPI_Win_fence(ctx, 0, -1)
    found[6] = gmpi.GMPI_Put(ctx, a, 1, d, 99, 0, 1, d, win)
    found[7] = gmpi.GMPI_Win_flush(ctx, -9, win)
    found[8] = gmpi.GMPI_Put(ctx, a, 1, d, 0, -1, 1, d, win)
    found[9] = gmpi.GMPI_Put(ctx, a, 2, d, 0, 3, 2, d, win)
    found[10] = gmpi.GMPI_Put(ctx, a, 0, d, 0, 1 << 60, 0, d, win)
    found[11] = gmpi.GMPI_Put(ctx, a, -1, d, 0, 0, -1, d, win)
    found[12] = gmpi.GMPI_Put(ctx, a, 2, d, 0, 0, 1, d, win)
    found[13] = gmpi.GMPI_Put(ctx, a, 1, 5, 0, 0, 1, d, win)
    found[14] = gmpi.GMPI_Put(ctx, a, 1, gmpi.INT32_T, 0, 0, 1, d, win)
    found[15] = gmpi.GMPI_Put(ctx, 0, 1, d, 0, 0, 1, d, win)
    found[16] = gmpi.GMPI_Get(ctx, a[3:], 2, d, 0, 0, 2, d, win)
    found[17] = gmpi.GMPI_Put(ctx, strided, 1, d, 0, 0, 1, d, win)
    found[18] = gmpi.GMPI_Accumulate(ctx, a, 1, d, 0, 0, 1, d, 77, win)
    found[19] = gmpi.GMPI_Accumulate(ctx, f, 1, gmpi.DOUBLE, 0, 0, 1, gmpi.DOUBLE, gmpi.BOR, win)
    found[20] = gmpi.GMPI_Accumulate(ctx, f, 1, gmpi.DOUBLE, 0, 0, 1, d, gmpi.SUM, win)
    found[21] = gmpi.GMPI_Compare_and_swap(ctx, f, f, f, gmpi.DOUBLE, 0, 0, win)
    found[22] = gmpi.GMPI_Win_lock_all(ctx, 1 << 20, win)
    found[23] = gmpi.GMPI_Wait(ctx, gmpi.GMPI_Rput(ctx, a, 1, d, 99, 0, 1, d, win)).error
    found[24] = gmpi.GMPI_Get_accumulate(ctx, a, 1, d, a[1:], 2, d, 0, 0, 1, d, gmpi.SUM, win)
    found[25] = gmpi.GMPI_Fetch_and_op(ctx, a, 0, d, 0, 0, gmpi.SUM, win)
    found[26] = gmpi.GMPI_Put(ctx, a, 1, d, n, -5, 1, d, win)
    found[27] = gmpi.GMPI_Get(ctx, a, 4, d, 0, 0, 4, d, win)
    found[28] = gmpi.GMPI_Accumulate(ctx, a, 1, d, 1 % 2, 1, 1, d, gmpi.SUM, gone)
    r = gmpi.GMPI_Raccumulate(ctx, a, 1, d, 98, 0, 1, d, gmpi.SUM, win)
    found[29] = gmpi.GMPI_Wait(ctx, r).error
    r = gmpi.GMPI_Rget_accumulate(ctx, a, 1, d, 0, 1, d, 0, 0, 1, d, gmpi.SUM, win)
    found[30] = gmpi.GMPI_Wait(ctx, r).error
    found[31] = gmpi.GMPI_Win_flush_local(ctx, -8, win)
    found[32] = gmpi.GMPI_Win_flush_local_all(ctx, gone)
    gmpi.GMPI_Win_unlock_all(ctx, win)


@cuda.jit
def unaligned(ctx, win, a, found):
    d = gmpi.INT64_T
    gmpi.GMPI_Win_lock_all(ctx, 0, win)
    found[0] = gmpi.GMPI_Accumulate(ctx, a, 1, d, 0, 4, 1, d, gmpi.SUM, win)
    found[1] = gmpi.GMPI_Put(ctx, a, 1, d, 0, 4, 1, d, win)
    gmpi.GMPI_Win_unlock_all(ctx, win)


EXPECTED = {
    "ERR_RMA_SYNC": (0, 1, 2), "ERR_WIN": (3, 4, 5, 28, 32), "ERR_RANK": (6, 7, 23, 29, 31),
    "ERR_DISP": (8,), "ERR_RMA_RANGE": (9, 10), "ERR_COUNT": (11, 12, 24),
    "ERR_TYPE": (13, 14, 20, 21), "ERR_BUFFER": (15, 16, 17, 25, 30), "ERR_OP": (18, 19),
    "ERR_ASSERT": (22,), "SUCCESS": (26, 27),
}  # fmt: skip
TEXTS = [
    "GMPI_Put in block 0: epoch is none, allowed is one that is open in this rank",
    "GMPI_Win_unlock_all in block 0: epoch is none",
    "GMPI_Put in block 0: win is 0x",
    "GMPI_Win_flush in block 0: target_rank is -9, allowed is 0..",
    "GMPI_Put in block 0: target_rank is 99, allowed is 0..",
    "GMPI_Put in block 0: target_disp is -1, allowed is 0 or more; the window of rank 0 has 32",
    "target_disp is 3, allowed is so much that all elements lie in the window of rank 0, which has "
    "32 bytes",
    "count is -1, allowed is 0..",
    "GMPI_Put in block 0: count is one of 16 bytes, allowed is one of 8 bytes",
    "datatype is 0x5, allowed is a predefined datatype",
    "GMPI_Put in block 0: buffer is null, allowed is an array in one piece of at least 8 bytes",
    "GMPI_Get in block 0: buffer is smaller than the message",
    "GMPI_Put in block 0: buffer is a strided view",
    "GMPI_Accumulate in block 0: op is 77, allowed is an operation that the GPU has for INT64_T",
    "op is BOR, allowed is an operation that the GPU has for DOUBLE",
    "GMPI_Accumulate in block 0: target_datatype is INT64_T, allowed is one like DOUBLE",
    "GMPI_Compare_and_swap in block 0: datatype is DOUBLE",
    "GMPI_Win_lock_all in block 0: assertion is 1048576",
    "GMPI_Rput in block 0: target_rank is 99",
    "GMPI_Raccumulate in block 0: target_rank is 98",
    "GMPI_Rget_accumulate in block 0: buffer is null",
    "GMPI_Win_flush_local in block 0: target_rank is -8",
    "GMPI_Win_flush_local_all in block 0: win is 0x",
]


def refused_in_kernels(g: gmpi.Context) -> None:
    """An error class, told to the host with target, displacement and what is there."""
    memory = g.zeros(4, np.int64)
    win, gone = g.win(memory), g.win(memory)
    g.win_free(gone)
    a = cuda.to_device(np.full(4, 7))
    strided = cuda.to_device(np.zeros(8, np.int64))[::2]
    found = cuda.to_device(np.full(33, -1))
    misuse[1, 1](g.device, win, gone, a, cuda.to_device(np.zeros(2)), strided, found)
    raises(gmpi.ArgumentError, "GMPI_Put in block 0: epoch is none", g.synchronize)
    wanted = np.full(33, -2)
    for name, numbers in EXPECTED.items():
        wanted[list(numbers)] = getattr(gmpi, name)
    same(found, wanted, "error classes")
    texts = [fault.text for fault in g.errors]
    for text in TEXTS:
        assert any(text in other for other in texts), (text, texts)
    barrier()  # nothing has been stored: what was got is zeros
    same(a, np.zeros(4), "what was got from a window of zeros")
    other = g.win(memory, disp_unit=1)
    found = cuda.to_device(np.full(2, -1))
    barrier()
    unaligned[1, 1](g.device, other, cuda.to_device(np.zeros(1, np.int64)), found)
    raises(gmpi.ArgumentError, "target_disp is 4, allowed is a place at a multiple of 8 bytes",
           g.synchronize)  # fmt: skip
    same(found, [gmpi.ERR_DISP, 0], "of what is not aligned")
    raises(gmpi.ContextError, "2 windows lie in it", lambda: g.unregister(memory))
    g.win_free(other)
    g.win_free(win)
    g.unregister(memory)


def refused_by_the_host(g: gmpi.Context) -> None:
    """On all ranks alike, where something is wrong on one."""
    memory = g.zeros(4)
    raises(gmpi.ArgumentError, "comm is 99, allowed is 0..", lambda: g.win(memory, 99))
    last = SIZE - 1
    wrong: list[tuple[str, Callable[[], Any]]] = [
        ("disp_unit is 0", lambda: g.win(memory, disp_unit=0 if last == RANK else 8)),
        (
            "array is a strided view",
            lambda: g.win(g.zeros(8)[::2] if last == RANK else memory),
        ),
        ("array is a list", lambda: g.win([1.0] if last == RANK else memory)),
    ]
    if not gmpi.SIMULATOR:
        managed = cuda.managed_array(4)
        wrong.append(("array is in memory that cannot be exported", lambda: g.win(managed)))
    elif SIZE > 1:
        plain = cuda.to_device(np.zeros(4))
        wrong.append(("its array cannot be mapped by others; make it with Context.zeros",
                      lambda: g.win(plain)))  # fmt: skip
    for text, call in wrong:
        raises(gmpi.ContextError, text, call)
        barrier()
    win = g.win(memory)
    raises(gmpi.ContextError, "this rank has kernels", lambda: g.host.Win_fence(win))
    g.win_free(win)
    raises(gmpi.ContextError, "window is 0x6", lambda: g.win_free(win))
    raises(gmpi.ContextError, "window is 'w'", lambda: g.host.Win_fence("w"))
    g.unregister(memory)


@cuda.jit
def spin(ctx, win, back, began, failed):
    gmpi.GMPI_Win_lock_all(ctx, 0, win)
    e = 0
    while e == 0:  # for ever: nobody stores
        e = gmpi.GMPI_Fetch_and_op(ctx, 0, back, gmpi.INT64_T, 0, 0, gmpi.NO_OP, win)
        began[0] = 1
    failed[0] = e


def aborted() -> None:
    """A loop that asks again and again ends when the context is aborted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        g = gmpi.Context(WORLD)
        memory = g.zeros(1, np.int64)
        win = g.win(memory)
        back, failed = (cuda.to_device(np.zeros(1, np.int64)) for _ in range(2))
        began = cuda.mapped_array(1, np.int64)  # a copy would wait for the kernel
        began[0] = 0
        gpu = 0 if gmpi.SIMULATOR else cuda.get_current_device().id

        def launch() -> None:
            if not gmpi.SIMULATOR:
                cuda.select_device(gpu)  # each thread has its own
            spin[1, 2](g.device, win, back, began, failed)

        thread = threading.Thread(target=launch)
        thread.start()
        while began[0] == 0:
            time.sleep(0.001)
        g.abort()
        thread.join()
        same(failed, [gmpi.GMPI_ERR_ABORTED], "error class")
        raises(gmpi.AbortedError, "aborted", g.close)
    barrier()


@cuda.jit
def with_a_host(ctx, win, data, me, failed):
    e = gmpi.GMPI_Win_fence(ctx, 0, win)
    e |= gmpi.GMPI_Accumulate(ctx, data, 1, gmpi.DOUBLE, 0, 0, 1, gmpi.DOUBLE, gmpi.SUM, win)
    e |= gmpi.GMPI_Win_fence(ctx, gmpi.MODE_NOSUCCEED, win)
    failed[0] = e


def without_kernels() -> None:
    """A rank that has none takes part with the host's Win_fence; half of the ranks have a window of
    their own."""
    kernels = max(1, SIZE - 1) > RANK
    with gmpi.Context(WORLD, gpu=kernels) as g:
        memory = g.zeros(1) if kernels else None
        if SIZE > 1:
            text = "gpu=False and has no GPU memory"
            raises(gmpi.ContextError, text, lambda: g.win(memory if kernels else np.zeros(1)))
        win = g.win(memory)
        failed = cuda.to_device(np.zeros(1, np.int64))
        if kernels:
            with_a_host[1, 8](g.device, win, cuda.to_device(np.ones(1)), RANK, failed)
            g.synchronize()
        else:
            g.host.Win_fence(win)
            g.host.Win_fence(win)
        same(failed, [0], "error class")
        barrier()
        if RANK == 0:
            same(memory, [max(1, SIZE - 1)], "sum")
        part = WORLD.Split(RANK % 2, -RANK)
        comm = g.comm(part)
        other = g.win(memory, comm)
        g.win_free(other)
        g.free(comm)
        part.Free()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            g.close()
        assert any("1 windows were never freed: 0x6" in str(one.message) for one in caught)


@cuda.jit
def only_fences(ctx, win, failed):
    e = gmpi.GMPI_Win_fence(ctx, 0, win)
    e |= gmpi.GMPI_Put(ctx, failed, 0, gmpi.INT64_T, 0, 0, 0, gmpi.INT64_T, win)
    failed[0] = e | gmpi.GMPI_Win_fence(ctx, gmpi.MODE_NOSUCCEED | gmpi.MODE_NOSTORE, win)


def out_of_reach() -> None:
    """Memory that some rank cannot reach is refused on all ranks; without any, a window works."""
    for why, nodes, settings in (
        ("it is on another node", "ab", {}),
        ("there is no direct road between the two", "a", {"road": "proxied"}),
    ):
        os.environ[TEST_NODES] = nodes
        with gmpi.Context(WORLD, **settings) as g:
            memory = g.zeros(4)
            if SIZE > 1:
                text = "rank 0 of the communicator cannot make the window: its kernels cannot "
                text += f"reach the memory of rank 1: {why}"
                raises(gmpi.ContextError, text, lambda array=memory: g.win(array))
            failed = cuda.to_device(np.full(1, -1))
            win = g.win(memory if SIZE == 1 else None)
            only_fences[1, 32](g.device, win, failed)
            g.synchronize()
            same(failed, [0], "error class")
            g.win_free(win)
        barrier()
    del os.environ[TEST_NODES]


def refused() -> None:
    with gmpi.Context(WORLD) as g:
        refused_in_kernels(g)
        refused_by_the_host(g)


run([refused, out_of_reach, aborted, without_kernels])
end()
