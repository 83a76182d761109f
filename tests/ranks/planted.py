"""Mistakes of beginners, each planted in a small kernel: strict mode finds it and names its lines.

Each kernel is launched twice: as it is, and with ``right``, where the mistake is corrected and
nothing may be found. A comment ``# line`` is on each line that a finding must name.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import warnings
from pathlib import Path

import common
import numpy as np
import planted_races
from common import RANK, WORLD
from mpi4py import MPI
from numba import cuda
from planted_buffers import PLANTED, D, Kernel, N, W

import gmpi
from device_lib.simulator.meetings import BarrierError
from gmpi import (
    GMPI_Irecv,
    GMPI_Isend,
    GMPI_Recv,
    GMPI_Send,
    GMPI_Waitall,
    GMPI_Waitany,
)

# --- scopes and orders ----------------------------------------------------------------------------


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
    name = Path(inspect.getsourcefile(kernel.py_func) or "").name
    return [f"{name}:{first + k}" for k, line in enumerate(source) if line.endswith("# line\n")]


def mistakes(g: gmpi.Context) -> None:
    for kernel, kind, blocks in PLANTED:
        name = kernel.py_func.__name__
        _, found = launch(g, kernel, blocks, right=False)
        assert [finding.kind for finding in found] == [kind], (name, found)
        for line in lines_of(kernel):
            assert line in found[0].text, (name, line, found[0].text)
        common.barrier()
    assert len(PLANTED) >= 12 and any(
        k.py_func.__module__ == planted_races.__name__ for k, *_ in PLANTED
    )


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
