"""GMPI_Put_notify, and the counters that it adds to (``onesided.py``)."""

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
    gmpi.GMPI_Win_unlock_all(ctx, win)
    gmpi.GMPI_Win_unlock_all(ctx, none)


def notified_refused(g: gmpi.Context) -> None:
    memory = g.zeros(4, np.int64)
    win, none = g.win(memory, num_notify=2), g.win(memory)
    found = cuda.to_device(np.full(11, -1))
    barrier()
    data = cuda.to_device(np.ones(4, np.int64))
    wrong_ones[1, 32](g.device, win, none, data, found)
    words = "GMPI_Put_notify in block 0: epoch is none"
    raises(gmpi.ArgumentError, words, g.synchronize)
    a = gmpi.ERR_ARG
    expected = [
        gmpi.ERR_RMA_SYNC, a, a, a, gmpi.ERR_RANK, gmpi.ERR_RMA_RANGE, a, a, gmpi.ERR_WIN, 0, 0,
    ]  # fmt: skip
    assert list(found.copy_to_host()) == expected, found.copy_to_host()
    same(memory, np.zeros(4), "the window")
    texts = [fault.text for fault in g.errors]
    for words in (
        "GMPI_Put_notify in block 0: notification_idx is 2, allowed is 0..1; Context.win makes as",
        "GMPI_Put_notify in block 0: notification_idx is -1, allowed is 0..1",
        "GMPI_Put_notify in block 0: notification_idx is 0, allowed is none",
        "GMPI_Win_get_notify_value in block 0: notification_idx is 2, allowed is 0..1",
        "GMPI_Win_reset_notify_value in block 0: notification_idx is 0, allowed is none",
    ):
        assert any(text.startswith(words) for text in texts), (words, texts)
    g.win_free(win)
    g.win_free(none)
    for count in (-1, 65, 1.5):
        raises(gmpi.ContextError, "num_notify is", lambda: g.win(memory, num_notify=count))  # noqa: B023
    g.unregister(memory)
