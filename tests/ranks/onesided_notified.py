"""One-sided calls that tell their target, and the counters that they add to (``onesided.py``)."""

from __future__ import annotations

from typing import Any

import numpy as np
from common import RANK, SIZE, barrier, every_shape, raises, same
from numba import cuda

import gmpi


def _kernel(suffix: str) -> Any:
    put_notify, value_of, reset, lock, unlock = (
        getattr(gmpi, f"GMPI_{name}{suffix}")
        for name in (
            "Put_notify", "Win_get_notify_value", "Win_reset_notify_value", "Win_lock_all",
            "Win_unlock_all",
        )
    )  # fmt: skip

    @cuda.jit
    def pass_on(ctx, win, window, data, n, to, back, rounds, wrong):
        """What comes is passed on when its count is there; the one before may then store again."""
        e = lock(ctx, 0, win)
        for i in range(1, rounds + 1):
            for k in range(cuda.threadIdx.x, n, cuda.blockDim.x):
                data[n - 1 - k] = 1000 * i + n - 1 - k
            e |= put_notify(ctx, data, n, gmpi.INT64_T, to, 1, n, gmpi.INT64_T, 1, win)
            value, error = value_of(ctx, win, 1)
            while value < i and error == 0:
                value, error = value_of(ctx, win, 1)
            e |= error
            for k in range(cuda.threadIdx.x, n, cuda.blockDim.x):
                if window[1 + n - 1 - k] != 1000 * i + n - 1 - k:
                    wrong[1] += 1
            cuda.syncthreads()
            # No elements, and a count: we have looked. That of the next rank is waited for.
            e |= put_notify(ctx, data, 0, gmpi.INT64_T, back, 0, 0, gmpi.INT64_T, 2, win)
            value, error = reset(ctx, win, 2)
            while value == 0 and error == 0:
                value, error = reset(ctx, win, 2)
            if cuda.threadIdx.x == 0 and value > 1:
                wrong[2] += 1
            e |= error
        e |= put_notify(ctx, data, 1, gmpi.INT64_T, gmpi.PROC_NULL, 0, 1, gmpi.INT64_T, 99, win)
        value, error = reset(ctx, win, 1)
        after, late = value_of(ctx, win, 1)
        e |= error | late | unlock(ctx, win)
        if cuda.threadIdx.x == 0:
            wrong[0] = e
            wrong[3] = value - rounds + after

    return pass_on


KERNELS = {"block": _kernel(""), "warp": _kernel("_warp")}


def notified(g: gmpi.Context) -> None:
    """Who sees a count finds what was stored before it."""
    memory = g.zeros(1 + 4000, np.int64)
    windows = [g.win(memory, num_notify=3), g.win(memory, num_notify=64)]
    g.win_free(windows.pop(0))  # the next one has its counters, which are 0
    windows.append(g.win(memory, num_notify=4))
    rounds = 10 if every_shape() else 4
    to, back = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    for k, (scope, threads, n) in enumerate(
        [("block", 33, 40), ("warp", 32, 5), ("block", 64, 4000), ("block", 1, 3)]
    ):
        data, wrong = cuda.to_device(np.zeros(n, np.int64)), cuda.to_device(np.zeros(4, int))
        barrier()
        KERNELS[scope][1, threads](
            g.device, windows[k % 2], memory, data, n, to, back, rounds, wrong
        )
        g.synchronize()
        same(wrong, np.zeros(4), f"{scope} of {threads}: errors, elements, counts")
    for win in windows:
        g.win_free(win)
    g.unregister(memory)


def _others(suffix: str) -> Any:
    (
        get, accumulate, fetch, rput, rget, raccumulate, rfetch, value_of, lock, unlock, wait, meet,
    ) = (
        getattr(gmpi, f"GMPI_{name}{suffix}")
        for name in (
            "Get_notify", "Accumulate_notify", "Get_accumulate_notify", "Rput_notify",
            "Rget_notify", "Raccumulate_notify", "Rget_accumulate_notify", "Win_get_notify_value",
            "Win_lock_all", "Win_unlock_all", "Wait", "Barrier",
        )
    )  # fmt: skip

    @cuda.jit
    def tell(ctx, win, window, data, n, to, wrong):
        """Ranks read, update and store the next one's memory, and see in their own what the count
        says. Each call has a counter of its own."""
        d, total, null = gmpi.INT64_T, gmpi.SUM, gmpi.PROC_NULL
        e = lock(ctx, 0, win)
        e |= get(ctx, data[:n], n, d, to, 0, n, d, 0, win)  # 0, 1, ...
        value, error = value_of(ctx, win, 0)
        while value < 1 and error == 0:
            value, error = value_of(ctx, win, 0)
        e |= error
        # They have been read: what is stored now was not seen.
        for k in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            window[k] = -1
        e |= accumulate(ctx, data[:n], n, d, to, n, n, d, total, 1, win)
        value, error = value_of(ctx, win, 1)
        while value < 1 and error == 0:
            value, error = value_of(ctx, win, 1)
        e |= error
        for k in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            if window[n + k] != 100 + 2 * k or data[k] != k:
                wrong[1] += 1
        e |= meet(ctx, 0)  # all have looked
        e |= fetch(ctx, data[:n], n, d, data[n:], n, d, to, n, n, d, total, 2, win)
        value, error = value_of(ctx, win, 2)
        while value < 1 and error == 0:
            value, error = value_of(ctx, win, 2)
        e |= error
        for k in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            if window[n + k] != 100 + 3 * k or data[n + k] != 100 + 2 * k:
                wrong[2] += 1
        e |= meet(ctx, 0)
        # With requests, all for one counter.
        e |= wait(ctx, raccumulate(ctx, data[:n], n, d, to, n, n, d, total, 3, win)).error
        e |= wait(ctx, rput(ctx, data[:n], n, d, to, 2 * n, n, d, 3, win)).error
        value, error = value_of(ctx, win, 3)
        while value < 2 and error == 0:
            value, error = value_of(ctx, win, 3)
        e |= error
        for k in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            if window[n + k] != 100 + 4 * k or window[2 * n + k] != k:
                wrong[3] += 1
        request = rfetch(
            ctx, data, 0, d, data[n:], n, d, to, n, n, d, gmpi.NO_OP, 3, win
        )  # fmt: skip
        e |= wait(ctx, request).error
        e |= wait(ctx, rget(ctx, data[2 * n :], n, d, to, 2 * n, n, d, 3, win)).error
        for k in range(cuda.threadIdx.x, n, cuda.blockDim.x):
            if data[n + k] != 100 + 4 * k or data[2 * n + k] != k:
                wrong[4] += 1
        while value < 4 and error == 0:
            value, error = value_of(ctx, win, 3)
        # Nobody is told.
        e |= error | get(ctx, data, 1, d, null, 0, 1, d, 99, win)
        e |= accumulate(ctx, data, 1, d, null, 0, 1, d, total, 99, win)
        e |= fetch(ctx, data, 1, d, data[n:], 1, d, null, 0, 1, d, total, 99, win)
        for index in range(4):
            value, error = value_of(ctx, win, index)
            e |= error
            if cuda.threadIdx.x == 0:
                wrong[5] += value
        e |= unlock(ctx, win)
        if cuda.threadIdx.x == 0:
            wrong[0] = e

    return tell


OTHERS = {"block": _others(""), "warp": _others("_warp")}


def others_that_tell(g: gmpi.Context) -> None:
    """Gets and updates with notification, and those with requests."""
    n = 40
    memory = g.zeros(3 * n, np.int64)
    for scope, threads in (("block", 33), ("warp", 32), ("block", 64)):
        win = g.win(memory, num_notify=4)
        memory[: 2 * n].copy_to_device(
            np.concatenate([np.arange(n), 100 + np.arange(n)]).astype(np.int64)
        )
        data, wrong = cuda.to_device(np.zeros(3 * n, np.int64)), cuda.to_device(np.zeros(6, int))
        barrier()
        OTHERS[scope][1, threads](g.device, win, memory, data, n, (RANK + 1) % SIZE, wrong)
        g.synchronize()
        same(wrong, [0, 0, 0, 0, 0, 1 + 1 + 1 + 4], f"{scope} of {threads}: errors, elements, sum")
        assert [g.host.Win_get_notify_value(win, i) for i in range(4)] == [1, 1, 1, 4]
        raises(
            gmpi.ContextError, "notification_idx is 4, allowed is 0..3",
            lambda: g.host.Win_get_notify_value(win, 4),  # noqa: B023
        )  # fmt: skip
        g.win_free(win)
    g.unregister(memory)


@cuda.jit
def wrong_ones(ctx, win, none, data, found):
    d, n = gmpi.INT64_T, 0
    found[0] = gmpi.GMPI_Put_notify(ctx, data, 1, d, 0, 0, 1, d, 0, win)  # no epoch
    gmpi.GMPI_Win_lock_all(ctx, 0, win)
    gmpi.GMPI_Win_lock_all(ctx, 0, none)
    found[1] = gmpi.GMPI_Put_notify(ctx, data, 1, d, 0, 0, 1, d, 2, win)
    found[2] = gmpi.GMPI_Put_notify(ctx, data, 1, d, 0, 0, 1, d, -1, win)
    found[3] = gmpi.GMPI_Put_notify(ctx, data, 1, d, 0, 0, 1, d, 0, none)
    found[4] = gmpi.GMPI_Put_notify(ctx, data, 1, d, SIZE, 0, 1, d, 0, win)
    found[5] = gmpi.GMPI_Put_notify(ctx, data, 2, d, 0, 3, 2, d, 0, win)  # out of the window
    n, found[6] = gmpi.GMPI_Win_get_notify_value(ctx, win, 2)
    n, found[7] = gmpi.GMPI_Win_reset_notify_value(ctx, none, 0)
    n, found[8] = gmpi.GMPI_Win_get_notify_value(ctx, 5, 0)
    n, found[9] = gmpi.GMPI_Win_get_notify_value(ctx, win, 0)
    found[10] = n  # nothing was counted
    op = gmpi.SUM
    found[11] = gmpi.GMPI_Get_notify(ctx, data, 1, d, 0, 0, 1, d, 2, win)
    found[12] = gmpi.GMPI_Accumulate_notify(ctx, data, 1, d, 0, 0, 1, d, op, -1, win)
    found[13] = gmpi.GMPI_Get_accumulate_notify(
        ctx, data, 1, d, data[1:], 1, d, 0, 0, 1, d, op, 0, none
    )
    found[14] = gmpi.GMPI_Get_notify(ctx, data, 1, d, SIZE, 0, 1, d, 0, win)
    found[15] = gmpi.GMPI_Accumulate_notify(ctx, data, 1, d, 0, 9, 1, d, op, 0, win)
    request = gmpi.GMPI_Rput_notify(ctx, data, 1, d, 0, 0, 1, d, 2, win)
    found[16] = gmpi.GMPI_Wait(ctx, request).error
    n, found[17] = gmpi.GMPI_Win_get_notify_value(ctx, win, 0)
    found[18] = n  # nor now
    gmpi.GMPI_Win_unlock_all(ctx, win)
    gmpi.GMPI_Win_unlock_all(ctx, none)


def notified_refused(g: gmpi.Context) -> None:
    memory = g.zeros(4, np.int64)
    win, none = g.win(memory, num_notify=2), g.win(memory)
    found = cuda.to_device(np.full(19, -1))
    barrier()
    data = cuda.to_device(np.ones(4, np.int64))
    wrong_ones[1, 32](g.device, win, none, data, found)
    words = "GMPI_Put_notify in block 0: epoch is none"
    raises(gmpi.ArgumentError, words, g.synchronize)
    a = gmpi.ERR_ARG
    expected = [
        gmpi.ERR_RMA_SYNC, a, a, a, gmpi.ERR_RANK, gmpi.ERR_RMA_RANGE, a, a, gmpi.ERR_WIN, 0, 0,
        a, a, a, gmpi.ERR_RANK, gmpi.ERR_RMA_RANGE, a, 0, 0,
    ]  # fmt: skip
    assert list(found.copy_to_host()) == expected, found.copy_to_host()
    same(memory, np.zeros(4), "the window")
    texts = [fault.text for fault in g.errors]
    for words in (
        "GMPI_Put_notify in block 0: notification_idx is 2, allowed is 0..1; Context.win makes as",
        "GMPI_Put_notify in block 0: notification_idx is -1, allowed is 0..1",
        "GMPI_Put_notify in block 0: notification_idx is 0, allowed is none",
        "GMPI_Win_get_notify_value in block 0: notification_idx is 2, allowed is 0..1",
        "GMPI_Get_notify in block 0: notification_idx is 2, allowed is 0..1",
        "GMPI_Accumulate_notify in block 0: notification_idx is -1, allowed is 0..1",
        "GMPI_Get_accumulate_notify in block 0: notification_idx is 0, allowed is none",
        "GMPI_Win_reset_notify_value in block 0: notification_idx is 0, allowed is none",
    ):
        assert any(text.startswith(words) for text in texts), (words, texts)
    g.win_free(win)
    g.win_free(none)
    for count in (-1, 65, 1.5):
        raises(gmpi.ContextError, "num_notify is", lambda: g.win(memory, num_notify=count))  # noqa: B023
    g.unregister(memory)
