"""Mistakes of beginners, each planted in a small kernel: strict mode finds it and names its lines.

Each kernel is launched twice: as it is, and with ``right``, where the mistake is corrected and
nothing may be found. A comment ``# line`` is on each line that a finding must name.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import numpy as np
from common import RANK, WORLD
from mpi4py import MPI
from numba import cuda

import gmpi
from device_lib.platform.lanes import BarrierError
from gmpi import (
    GMPI_Allreduce,
    GMPI_Iallreduce,
    GMPI_Irecv,
    GMPI_Irecv_warp,
    GMPI_Isend,
    GMPI_Parrived,
    GMPI_Pready,
    GMPI_Pready_range,
    GMPI_Precv_init,
    GMPI_Psend_init,
    GMPI_Recv,
    GMPI_Request_free,
    GMPI_Send,
    GMPI_Sendrecv,
    GMPI_Start,
    GMPI_Test,
    GMPI_Wait,
    GMPI_Wait_warp,
    GMPI_Waitall,
    GMPI_Waitany,
)

N = 64  # threads of a block, and elements of a message
D, W = gmpi.DOUBLE, gmpi.COMM_WORLD
Kernel = Any
PLANTED: list[tuple[Kernel, str, int]] = []  # kernel, kind of finding, blocks


def planted(kind: str, blocks: int = 1) -> Callable[[Any], Any]:
    def add(kernel: Any) -> Any:
        PLANTED.append((cuda.jit(kernel), kind, blocks))
        return kernel

    return add


# --- buffers of open requests ---------------------------------------------------------------------


@planted("read before wait")
def reads_what_has_not_come(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    r = GMPI_Irecv(ctx, b, N, D, peer, 1, W)  # line
    GMPI_Send(ctx, a, N, D, peer, 1, W)
    if right:
        GMPI_Wait(ctx, r)
        out[i] = b[i]
    else:
        out[i] = b[i]  # line
        GMPI_Wait(ctx, r)


@planted("write before wait")
def changes_what_is_being_sent(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    s = GMPI_Isend(ctx, a, N, D, peer, 1, W)  # line
    if right:
        GMPI_Recv(ctx, b, N, D, peer, 1, W)
        GMPI_Wait(ctx, s)
        a[i] = i + 0.5
    else:
        a[i] = i + 0.5  # line
        GMPI_Recv(ctx, b, N, D, peer, 1, W)
        GMPI_Wait(ctx, s)


@planted("write before wait")
def clears_a_buffer_too_late(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    if right:
        b[i] = 0.5
    r = GMPI_Irecv(ctx, b, N, D, peer, 1, W)  # line
    if not right:
        b[i] = 0.5  # line
    GMPI_Send(ctx, a, N, D, peer, 1, W)
    GMPI_Wait(ctx, r)


@planted("read before wait")
def takes_a_test_for_a_wait(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    r = GMPI_Irecv(ctx, b, N, D, peer, 1, W)  # line
    s = GMPI_Isend(ctx, a, N, D, peer, 1, W)
    done = False
    done, _ = GMPI_Test(ctx, r)
    while right and not done:
        done, _ = GMPI_Test(ctx, r)
    out[i] = b[i]  # line
    GMPI_Wait(ctx, s)
    if not done:
        GMPI_Wait(ctx, r)


@planted("read before wait")
def waits_for_one_of_two(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    column = b[::2]
    r = GMPI_Irecv(ctx, column, N // 2, D, peer, 1, W)  # line
    s = GMPI_Isend(ctx, a, N // 2, D, peer, 1, W)
    GMPI_Wait(ctx, s)
    if right:
        out[i] = b[2 * (i // 2) + 1]
    else:
        out[i] = b[i]  # line
    GMPI_Wait(ctx, r)


@planted("read before wait")
def its_warp_waits_later(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    w = i // 32
    half = b[32 * w : 32 * w + 32]
    r = GMPI_Irecv_warp(ctx, half, 32, D, peer, w, W)  # line
    s = GMPI_Isend(ctx, a, 32, D, peer, 0, W)
    t = GMPI_Isend(ctx, a, 32, D, peer, 1, W)
    if right:
        GMPI_Wait_warp(ctx, r)
        out[i] = b[i]
    else:
        out[i] = b[i]  # line
        GMPI_Wait_warp(ctx, r)
    GMPI_Waitall(ctx, 2, (s, t))


@planted("buffers overlap")
def receives_twice_into_one_buffer(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    n = N // 2
    q = GMPI_Irecv(ctx, b, n, D, peer, 1, W)  # line
    if right:
        r = GMPI_Irecv(ctx, b[n:], n, D, peer, 2, W)
    else:
        r = GMPI_Irecv(ctx, b[n - 1 :], n, D, peer, 2, W)  # line
    s = GMPI_Isend(ctx, a, n, D, peer, 1, W)
    t = GMPI_Isend(ctx, a, n, D, peer, 2, W)
    GMPI_Waitall(ctx, 4, (q, r, s, t))


@planted("buffers overlap")
def forwards_what_has_not_come(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    q = GMPI_Irecv(ctx, b, N, D, peer, 1, W)  # line
    s = GMPI_Isend(ctx, a, N, D, peer, 1, W)
    r = GMPI_Irecv(ctx, out, N, D, peer, 2, W)
    if right:
        GMPI_Wait(ctx, q)
    t = GMPI_Isend(ctx, b, N, D, peer, 2, W)  # line
    if not right:
        GMPI_Wait(ctx, q)
    GMPI_Waitall(ctx, 3, (s, r, t))


@planted("buffers overlap")
def reduces_into_its_own_input(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    if right:
        GMPI_Allreduce(ctx, gmpi.IN_PLACE, a, N, D, gmpi.SUM, W)
    else:
        GMPI_Allreduce(ctx, a, a, N, D, gmpi.SUM, W)  # line


@planted("read before wait")
def reads_a_sum_too_early(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    r = GMPI_Iallreduce(ctx, a, b, N, D, gmpi.SUM, W)  # line
    if right:
        GMPI_Wait(ctx, r)
        out[i] = b[0]
    else:
        out[i] = b[0]  # line
        GMPI_Wait(ctx, r)


@planted("write before wait")
def changes_a_partition_that_is_ready(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    s = GMPI_Psend_init(ctx, a, 2, N // 2, D, peer, 1, W)  # line
    r = GMPI_Precv_init(ctx, b, 2, N // 2, D, peer, 1, W)
    GMPI_Start(ctx, s)
    GMPI_Start(ctx, r)
    GMPI_Pready(ctx, 0, s)
    if i < 32 and not right:
        a[i] = i + 0.5  # line
    if i >= 32:
        a[i] = i + 0.5
    GMPI_Pready(ctx, 1, s)
    GMPI_Wait(ctx, s)
    GMPI_Wait(ctx, r)
    GMPI_Request_free(ctx, s)
    GMPI_Request_free(ctx, r)


@planted("read before wait")
def reads_another_partition(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    s = GMPI_Psend_init(ctx, a, 2, N // 2, D, peer, 1, W)
    r = GMPI_Precv_init(ctx, b, 2, N // 2, D, peer, 1, W)  # line
    GMPI_Start(ctx, s)
    GMPI_Start(ctx, r)
    GMPI_Pready_range(ctx, 0, 1, s)
    while not GMPI_Parrived(ctx, r, 0):
        cuda.nanosleep(100)
    if right:
        out[i] = b[i % 32]
    else:
        out[i] = b[i]  # line
    GMPI_Wait(ctx, s)
    GMPI_Wait(ctx, r)
    GMPI_Request_free(ctx, s)
    GMPI_Request_free(ctx, r)


# --- requests -------------------------------------------------------------------------------------


@planted("never waited for")
def forgets_its_send(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    s = GMPI_Isend(ctx, a, N, D, peer, 1, W)  # line
    GMPI_Recv(ctx, b, N, D, peer, 1, W)
    if right:
        GMPI_Wait(ctx, s)


@planted("waited twice")
def waits_twice(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    s = GMPI_Isend(ctx, a, N, D, peer, 1, W)  # line
    GMPI_Recv(ctx, b, N, D, peer, 1, W)
    GMPI_Wait(ctx, s)  # line
    if not right:
        GMPI_Wait(ctx, s)  # line


# --- races ----------------------------------------------------------------------------------------


@planted("race", 3)
def sends_what_other_blocks_still_write(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.grid(1)
    a[i] = i + 0.5  # line
    if right:
        cuda.cg.this_grid().sync()
    if cuda.blockIdx.x == 0:
        GMPI_Sendrecv(ctx, a, 3 * N, D, peer, 1, b, 3 * N, D, peer, 1, W)  # line


@planted("race", 2)
def others_read_without_a_grid_barrier(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    if cuda.blockIdx.x == 0:
        GMPI_Sendrecv(ctx, a, N, D, peer, 1, b, N, D, peer, 1, W)  # line
    if right:
        cuda.cg.this_grid().sync()
    if cuda.blockIdx.x == 1:
        out[cuda.threadIdx.x] = b[cuda.threadIdx.x]  # line


@planted("race", 2)
def receives_while_others_read(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    if cuda.blockIdx.x == 1:
        out[i] = b[i]  # line
    if right:
        cuda.cg.this_grid().sync()
    if cuda.blockIdx.x == 0:
        GMPI_Sendrecv(ctx, a, N, D, peer, 1, b, N, D, peer, 1, W)  # line


@planted("race", 2)
def reads_the_halo_of_another_block(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.grid(1)
    for _ in range(2):
        if i > 0:
            b[i] = a[i - 1] + 1.5  # line
        if right:
            cuda.cg.this_grid().sync()
        else:
            cuda.syncthreads()
        a, b = b, a


@planted("race")
def no_syncthreads(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    tile = cuda.shared.array(64, np.float64)
    i = cuda.threadIdx.x
    tile[i] = i + 0.5  # line
    if right:
        cuda.syncthreads()
    out[i] = tile[63 - i]  # line


@planted("race")
def no_syncthreads_before_the_next_step(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    for step in range(3):
        a[i] = step * 100.0 + i  # line
        cuda.syncthreads()
        out[i] = a[(i + 40) % 64]  # line
        if right:
            cuda.syncthreads()


@planted("race")
def no_syncwarp(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    a[i] = i + 0.5  # line
    if right:
        cuda.syncwarp()
    out[i] = a[i ^ 1]  # line


@planted("race", 2)
def counts_without_an_atomic(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    if right:
        cuda.atomic.add(out, 0, 1)
    else:
        out[0] += 1  # line


@planted("race", 2)
def counts_without_a_fence(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    if cuda.blockIdx.x == 1:
        a[i] = i + 0.5  # line
        cuda.syncthreads()
        if i == 0:
            if right:
                cuda.threadfence()
            cuda.atomic.add(out, 0, 1)
    else:
        if i == 0:
            while cuda.atomic.add(out, 0, 0) == 0:
                cuda.nanosleep(100)
            cuda.threadfence()
        cuda.syncthreads()
        GMPI_Sendrecv(ctx, a, N, D, peer, 1, b, N, D, peer, 1, W)  # line


@planted("race", 2)
def reads_a_sum_that_others_add_to(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    i = cuda.grid(1)
    cuda.atomic.add(out, 0, 1.0)  # line
    if right:
        cuda.cg.this_grid().sync()
    if i == 0:
        b[0] = out[0]  # line


# --- scopes ---------------------------------------------------------------------------------------


@planted("divergent barrier")
def two_barriers_of_two_branches(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    if right:
        cuda.syncthreads()
    elif cuda.threadIdx.x < 32:
        cuda.syncthreads()  # line
    else:
        cuda.syncthreads()  # line


@cuda.jit
def first_warp_only(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    if cuda.threadIdx.x < 32:
        GMPI_Recv(ctx, b, N, D, peer, 1, W)  # line


@cuda.jit
def a_barrier_for_a_call(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    if cuda.threadIdx.x < 32:
        GMPI_Recv(ctx, b, N, D, peer, 1, W)
    else:
        cuda.syncthreads()
    cuda.syncthreads()


@cuda.jit
def sends_head_to_head(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    if right and peer == 0:
        GMPI_Recv(ctx, b, N, D, peer, 1, W)
        GMPI_Send(ctx, a, N, D, peer, 1, W)
    else:
        GMPI_Send(ctx, a, N, D, peer, 1, W)
        GMPI_Recv(ctx, b, N, D, peer, 1, W)


@cuda.jit
def expects_the_first_one_first(ctx, a, b, out, peer, right):  # type: ignore[no-untyped-def]
    n = N // 2
    requests = cuda.local.array(2, np.int64)
    requests[0] = GMPI_Irecv(ctx, b, n, D, peer, 1, W)
    requests[1] = GMPI_Irecv(ctx, b[n:], n, D, peer, 2, W)
    s = GMPI_Isend(ctx, a, n, D, peer, 1, W)
    t = GMPI_Isend(ctx, a, n, D, peer, 2, W)
    GMPI_Waitall(ctx, 2, (s, t))
    for k in range(2):
        index, _ = GMPI_Waitany(ctx, 2, requests)
        if cuda.threadIdx.x == 0:
            out[k] = index


# --- running them ---------------------------------------------------------------------------------


def launch(g: gmpi.Context, kernel: Kernel, blocks: int, right: bool) -> tuple[np.ndarray, list]:
    """out, and what was found."""
    a = cuda.to_device(np.arange(3.0 * N) + 1000 * RANK)
    b, out = cuda.to_device(np.zeros(3 * N)), cuda.to_device(np.zeros(3 * N))
    found = []
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            kernel[blocks, N](g.device, a, b, out, 1 - RANK, right)
    except gmpi.StrictError as exc:
        found = list(exc.findings)
        assert f"rank {RANK}: strict mode has found" in str(exc), exc
        assert all(finding.text in told.getvalue() for finding in found)
    return out.copy_to_host(), found


def lines_of(kernel: Kernel) -> list[str]:
    """The lines that a finding must name."""
    source, first = inspect.getsourcelines(kernel.py_func)
    name = Path(__file__).name
    return [f"{name}:{first + k}" for k, line in enumerate(source) if line.endswith("# line\n")]


def mistakes(g: gmpi.Context) -> None:
    for kernel, kind, blocks in PLANTED:
        name = kernel.py_func.__name__
        _, found = launch(g, kernel, blocks, right=False)
        assert [finding.kind for finding in found] == [kind], (name, found)
        for line in lines_of(kernel):
            assert line in found[0].text, (name, line, found[0].text)
        common.barrier()
    assert len(PLANTED) >= 12


def corrected(g: gmpi.Context) -> None:
    for kernel, _, blocks in PLANTED:
        _, found = launch(g, kernel, blocks, right=True)
        assert not found, (kernel.py_func.__name__, found[0].text)
        g.synchronize()
        common.barrier()


def scopes(g: gmpi.Context) -> None:
    """Not all threads of the block make a call: that ends the kernel."""
    common.raises(
        gmpi.UsageError,
        "while others are in",
        lambda: launch(g, a_barrier_for_a_call, 1, False),
    )
    (line,) = lines_of(first_warp_only)
    exc = common.raises(
        BarrierError, "some threads of its scope only", lambda: launch(g, first_warp_only, 1, False)
    )
    assert line in str(exc), exc


def orders(g: gmpi.Context) -> None:
    """Completions come in an order that the program may not rely on."""
    seen: set[float] = set()
    for _ in range(40):  # all of them alike: once in 10^12 times
        seen.add(launch(g, expects_the_first_one_first, 1, True)[0][0])
        if WORLD.allreduce(len(seen), MPI.MIN) == 2:
            break
    assert seen == {0, 1}, seen
    g.synchronize()


def head_to_head(g: gmpi.Context) -> None:
    launch(g, sends_head_to_head, 1, True)
    g.synchronize()
    common.barrier()
    launch(g, sends_head_to_head, 1, False)
    told = ""
    try:
        g.synchronize()
    except gmpi.RequestTimeoutError as exc:
        told = str(exc)
    # The rank that gives up first may answer the other one with what it does next.
    assert any("wait for sends in a circle, " in text for text in WORLD.allgather(told)), told


warnings.simplefilter("ignore", gmpi.LeakWarning)  # of the request that is forgotten
for check, settings in (
    (corrected, {}),
    (orders, {}),
    (mistakes, {"on_error": "return"}),
    (scopes, {}),
    (head_to_head, {"timeout_s": 1.0, "watchdog_s": 0.0}),
):
    with gmpi.Context(WORLD, sim="strict,seed=3", **settings) as g:
        common.run([check], g)
common.end()
