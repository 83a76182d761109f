"""Long collectives at once that do not end; ``direct_collectives`` runs these, too."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterator

import numpy as np
from common import RANK, SIZE, TIME_FACTOR, WORLD, barrier, every_shape, raises, same
from numba import cuda
from pipelines import ALLGATHER, ALLREDUCE, ALLTOALL, CALLS, KERNELS

import gmpi
from gmpi.contract.collectives import CHUNK, LONG
from gmpi.contract.wire import DEVICE_COLLECTIVES
from gmpi.lifetime import watchdog

#: (call, elements of a block, shape, whether rank 1 leaves in the middle: else it is silent)
STALLS = [
    (ALLREDUCE, 5 * LONG // 8, ("grid", 2, 32), False),
    (ALLTOALL, 9 * LONG // 8, ("block", 1, 64), False),  # more bytes than a signature holds
    (ALLGATHER, 5 * LONG // 8, ("warp", 1, 32), False),
    (ALLREDUCE, 5 * LONG // 8, ("grid", 2, 32), True),
    (ALLGATHER, 3 * LONG // 8, ("block", 1, 32), True),
]


class Leaves(Exception):
    """What ends a rank in the middle of a call."""


@contextlib.contextmanager
def first_piece_only(leaves: bool) -> Iterator[None]:
    """This rank tells nobody of its second piece."""
    from device_lib.direct import pipelines

    write = pipelines.write_packet

    def tell(at: int, low: int, high: int) -> None:
        if low == 1:
            write(at, low, high)
        elif leaves:
            raise Leaves

    pipelines.write_packet = tell
    try:
        yield
    finally:
        pipelines.write_packet = write


def stalls_in_a_pipeline() -> None:
    """The second piece of rank 1 never comes: the others are told so, and end after ``timeout_s``;
    or at once, where rank 1 has gone."""
    if SIZE == 1 or not gmpi.SIMULATOR:
        return
    watchdog.POLL_S, watchdog.ANSWER_S = 0.05, 3.0 * TIME_FACTOR
    for case in STALLS if every_shape() else STALLS[SIZE % 2 :: 2]:
        _stall(*case)


def _stall(call: int, n: int, shape: tuple[str, int, int], leaves: bool) -> None:
    limit = 0.4 * TIME_FACTOR
    timeout = 60.0 * TIME_FACTOR if leaves else limit
    settings = {"watchdog_s": limit, "timeout_s": timeout, "on_error": "return"}
    error: gmpi.GMPIError | None = None
    scope, blocks, threads = shape
    out, back = (cuda.to_device(np.zeros(n * SIZE)) for _ in range(2))
    errors = cuda.to_device(np.full(blocks * threads, -1, np.int64))
    began = time.monotonic()
    stack = contextlib.ExitStack()
    with contextlib.suppress(Leaves), stack:
        g = stack.enter_context(gmpi.Context(WORLD, wildcards=False, **settings))  # type: ignore
        barrier()
        if RANK == 1:
            stack.enter_context(first_piece_only(leaves))
        try:
            KERNELS[scope][blocks, threads](
                g.device, call, False, out, n, gmpi.DOUBLE, back, gmpi.DOUBLE, gmpi.SUM, errors
            )
            g.synchronize()
        except gmpi.GMPIError as exc:
            error = exc
        if not leaves:
            barrier()  # nobody's watchdog goes before all have asked
    barrier()
    assert time.monotonic() - began < 20 * TIME_FACTOR
    if leaves and RANK == 1:
        return
    assert isinstance(error, gmpi.PeerError if leaves else gmpi.RequestTimeoutError), error
    ended = gmpi.GMPI_ERR_ABORTED if leaves else gmpi.GMPI_ERR_TIMEOUT
    found = errors.copy_to_host() % 1000  # MPI may complete a Barrier on the way out
    same(found, np.full(blocks * threads, ended), "errors")
    text = error.report.text
    amount = f" {n} DOUBLE" if call == ALLREDUCE else f" {8 * n} BYTE"
    assert re.search(f"GMPI_{CALLS[call]}.*{amount}", text), text
    piece = "[12]" if leaves and blocks > 1 else "2"  # it may leave before its other block begins
    assert re.search(rf"piece {piece} of \d+ has not come from rank 1", text), text
    why = "rank 1 has ended with Leaves" if leaves else "all ranks are in this call"
    assert why in error.report.causes[0].text, text


def _is_long(g: gmpi.Context) -> bool:
    return bool(g._memory.read_device(DEVICE_COLLECTIVES + CHUNK, 8).view(np.int64)[0])


def aborted_in_a_pipeline() -> None:
    """Rank 1 never says what it has stored: an abort ends the call in all blocks of both."""
    if SIZE == 1 or not gmpi.SIMULATOR:
        return
    from device_lib.direct import pipelines

    write = pipelines.write_packet
    with contextlib.suppress(gmpi.AbortedError), gmpi.Context(WORLD, wildcards=False) as g:
        assert _is_long(g)
        if RANK == 1:
            pipelines.write_packet = lambda *words: None
        n = LONG // 8 + 1
        out, back = (cuda.to_device(np.zeros(n)) for _ in range(2))
        errors = cuda.to_device(np.full(96, -1, np.int64))
        threading.Timer(0.5, g.abort).start()
        barrier()
        KERNELS["grid"][3, 32](
            g.device, ALLREDUCE, False, out, n, gmpi.DOUBLE, back, gmpi.DOUBLE, gmpi.SUM, errors
        )
        raises(gmpi.AbortedError, "aborted", g.synchronize)
        pipelines.write_packet = write
        if RANK < 2:
            aborted = gmpi.GMPI_ERR_ABORTED
            same(errors, np.full(96, aborted + 1000 * aborted), "errors")
        barrier()
    barrier()


ENDINGS = [aborted_in_a_pipeline, stalls_in_a_pipeline]
