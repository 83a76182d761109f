"""A wait that takes longer than the limits while others go on: no watchdog may end it.

    mpiexec -n 2 python3 tests/ranks/others_move.py

Block 0 of each rank waits for a message that is sent last. Meanwhile the blocks 1 exchange messages
of the direct road, of which the host is not told.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import RANK, TIME_FACTOR, WORLD, end, run
from numba import cuda

import gmpi
from gmpi import GMPI_Recv, GMPI_Send
from gmpi.lifetime import watchdog

PEER = 1 - RANK
LIMIT_S = 0.5 * TIME_FACTOR
watchdog.POLL_S = 0.05
LAST, OTHERS = 1, 2  # tags
PAUSE_NS = 2_000_000


@cuda.jit
def waits(ctx: Any, peer: int, cycles: int, first: Any, word: Any, rounds: Any) -> None:
    if cuda.blockIdx.x == 0:
        GMPI_Recv(ctx, first, 1, gmpi.INT64_T, peer, LAST, 0)
        return
    began = gmpi.clock()
    goes_on = True
    while goes_on:
        if peer == 1:  # rank 0 says when it is over
            if cuda.threadIdx.x == 0:
                word[0] = 1 if gmpi.clock() - began < cycles else 0
                cuda.nanosleep(PAUSE_NS)
            cuda.syncthreads()
            GMPI_Send(ctx, word, 1, gmpi.INT64_T, peer, OTHERS, 0)
        GMPI_Recv(ctx, word, 1, gmpi.INT64_T, peer, OTHERS, 0)
        if peer == 0:
            GMPI_Send(ctx, word, 1, gmpi.INT64_T, peer, OTHERS, 0)
        cuda.syncthreads()
        goes_on = word[0] != 0
        if cuda.threadIdx.x == 0:
            rounds[0] += 1
        cuda.syncthreads()
    GMPI_Send(ctx, rounds, 1, gmpi.INT64_T, peer, LAST, 0)


def _launch(seconds: float, **limits: float) -> int:
    """How many messages the others have sent each way."""
    first, word, rounds = (cuda.to_device(np.zeros(1, np.int64)) for _ in range(3))
    with gmpi.Context(WORLD, wildcards=False, **limits) as g:
        waits[2, 32](g.device, PEER, int(seconds * 1e9), first, word, rounds)
        g.synchronize()
        assert g._watchdog.last is None, g._watchdog.last.text
    count = int(rounds.copy_to_host()[0])
    assert first.copy_to_host()[0] == count
    return count


def a_wait_beside_messages() -> None:
    _launch(0)  # a rank that still compiles would be a wait without progress
    assert _launch(8 * LIMIT_S, timeout_s=LIMIT_S, watchdog_s=LIMIT_S) > 2


run([a_wait_beside_messages])
end()
