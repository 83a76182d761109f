"""Opening, misusing, aborting and closing contexts, on any number of ranks."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import lifecycle_ends
import numpy as np
from common import RANK, SIZE, WORLD, barrier, end, raises, run
from lifecycle_ends import NEXT, PREVIOUS, exchange
from mpi4py import MPI
from numba import cuda
from script import Script

import gmpi
from gmpi.contract import wire
from gmpi.diagnose.tables import ranks_text
from gmpi.launch import launch
from host_proxy.platform.state import G_CONTEXT, G_HEAD

# --- opening --------------------------------------------------------------------------------------


def one_after_the_other() -> None:
    for seed in range(3):
        with gmpi.Context(WORLD) as g:
            exchange(g, seed)


def two_at_once() -> None:
    with gmpi.Context(WORLD) as g:
        raises(
            gmpi.ContextError,
            "a context is already open in this process; close it first, or pass it around",
            lambda: gmpi.Context(WORLD),
        )
        exchange(g)


def a_bad_setting_on_one_rank() -> None:
    """All ranks refuse to open the context; nobody hangs in a collective call."""
    slots = 1000 if RANK == SIZE - 1 else 1024
    words = "ring_slots must be a power of two from 64 to 1048576, got 1000; try 1024"
    if RANK == SIZE - 1:
        raises(gmpi.ConfigError, words, lambda: gmpi.Context(WORLD, ring_slots=slots))
    else:
        text = f"rank {SIZE - 1} could not open the context: ConfigError: {words}"
        raises(gmpi.ContextError, text, lambda: gmpi.Context(WORLD, ring_slots=slots))
    with gmpi.Context(WORLD) as g:
        exchange(g)


def different_sizes() -> None:
    """Ranks must cut messages alike."""
    if SIZE == 1:
        return
    others = ranks_text(list(range(1, SIZE)))
    for name, values, shown in (
        ("eager_bytes", (512, 256), ("512", "256")),
        ("debug", (True, False), ("True", "False")),
    ):
        mine: Any = {name: values[RANK > 0]}
        text = (
            f"{name} is {shown[0]} on rank 0 and {shown[1]} on {others}; it must be the same on "
            f"all ranks: pass {name}= to Context, or set GMPI_{name.upper()} for all of them"
        )
        exc = raises(gmpi.ContextError, text, lambda: gmpi.Context(WORLD, **mine))  # noqa: B023
        assert str(exc) == text


def communicators() -> None:
    with gmpi.Context(WORLD) as g:
        if SIZE > 1:
            local = WORLD.Split(RANK % 2, RANK)
            inter = local.Create_intercomm(0, WORLD, 1 - RANK % 2, 5)
            text = "an intercommunicator must be merged first"
            raises(gmpi.ContextError, text, lambda: g.comm(inter))
            raises(gmpi.ContextError, "handle is 1, allowed is 0..0", lambda: g.host.Barrier(1))
            inter.Free()
            local.Free()
        exchange(g)


def without_kernels() -> None:
    with gmpi.Context(WORLD, gpu=False) as g:
        raises(
            gmpi.ContextError,
            "this context was opened with gpu=False: use Context.host, or open it with a GPU",
            lambda: g.device,
        )
        g.host.Barrier()


def many_contexts() -> None:
    """A handle names its context by 6 bits: one kept from the first is not taken for a later's."""
    if SIZE > 1:
        return
    small = {"request_slots": 32, "large_slots": 1, "ring_slots": 64, "watchdog_s": 0}
    handles: dict[int, list[set[int]]] = {}
    for k in range(70):
        with gmpi.Context(WORLD, gpu=k % 64 == 0, **small) as g:
            if k % 64 == 0:
                s = exchange(g)
                identity = int(g._state.globals[G_CONTEXT])
                found = {s.handle(call) & wire.LOW_32 for call in s.calls[:2]}
                handles.setdefault(identity, []).append(found)
    assert len(handles) == 1, "contexts with the same bits"
    ((first, later),) = handles.values()
    assert len(first) == 2 and not first & later, (first, later)


def freed_communicators() -> None:
    """Handles are given back and given out again; one that is in use is not."""
    with gmpi.Context(WORLD, watchdog_s=0) as g:
        handles = []
        for _ in range(3):
            comm = WORLD.Dup()
            handles.append(g.comm(comm))
            comm.Free()
        assert handles == [1, 2, 3]
        own = "communicator 0 is the context's own"
        raises(gmpi.ContextError, own, lambda: g.free(gmpi.COMM_WORLD))
        room = np.zeros(8)
        open_there = g.host.Irecv(room, PREVIOUS, 5, 2) if RANK == 0 else None
        text = "communicator 2 cannot be freed: 1 requests are open on it"
        raises(gmpi.ContextError, text, lambda: g.free(2))
        barrier()
        g.host.Send(np.ones(8), NEXT, 5, 2) if NEXT == 0 else None
        if open_there is not None:
            open_there.Wait()
            assert room.all()
        g.free(2)
        raises(gmpi.ContextError, "handle is 2, which was freed", lambda: g.free(2))
        raises(gmpi.ContextError, "handle is 2, which was freed", lambda: g.host.Barrier(2))
        s = Script()
        refused = s.barrier(2)
        s.launch(g)
        raises(gmpi.ArgumentError, "communicator is 2, allowed is 0..3", g.synchronize)
        s.read_back()
        assert refused.error == gmpi.ERR_COMM
        assert g.comm(WORLD) == 2  # the lowest that is free
        s = Script()
        again = [s.barrier(handle) for handle in (1, 2, 3)]
        s.run(g)
        assert {call.error for call in again} == {gmpi.SUCCESS}
        for handle in (3, 1):
            g.free(handle)
        exchange(g)


# --- launching ------------------------------------------------------------------------------------


@cuda.jit
def _does_nothing(ctx, out):  # type: ignore[no-untyped-def]
    if cuda.threadIdx.x == 0:
        out[cuda.blockIdx.x] = 1


def grids_too_large() -> None:
    with gmpi.Context(WORLD) as g:
        out = cuda.to_device(np.zeros(1 << 22, np.int8))
        _does_nothing[1, 32](g.device, out)
        g.synchronize()
        # A launch is refused by what the GPU holds; ranks that share it must agree on less.
        most = launch.max_blocks(_does_nothing, 32)
        assert most // 2 <= g.max_blocks(_does_nothing, 32) <= most
        text = f"has {most + 1} blocks of 32 threads, but only {most} can be resident at once"
        for part in (text, "would wait for ever; use Context.max_blocks(kernel, threads)"):
            raises(gmpi.GridError, part, lambda: _does_nothing[most + 1, 32](g.device, out))
        exchange(g)
    with gmpi.Context(WORLD, check_grid=False) as g:
        _does_nothing[most + 1, 1](g.device, out)
        g.synchronize()
        assert int(out.copy_to_host().sum()) == most + 1


def after_close() -> None:
    g = gmpi.Context(WORLD)
    device = g.device
    exchange(g)
    g.close()
    g.close()  # idempotent
    closed = "the context is closed; open a new one"
    raises(gmpi.ContextError, closed, lambda: g.device)
    raises(gmpi.ContextError, closed, g.synchronize)
    raises(gmpi.ContextError, closed, lambda: g.comm(WORLD))
    raises(gmpi.ContextError, closed, lambda: g.host.Send(np.zeros(1), NEXT))
    out = cuda.to_device(np.zeros(1, np.int8))
    text = "was launched with a context that is closed"
    raises(gmpi.ContextError, text, lambda: _does_nothing[1, 32](device, out))
    with gmpi.Context(WORLD) as g:
        raises(gmpi.ContextError, text, lambda: _does_nothing[1, 32](device, out))
        exchange(g)


def handles_of_the_context_before() -> None:
    with gmpi.Context(WORLD) as g:
        s = exchange(g)
        old = s.handle(s.calls[0])
    with gmpi.Context(WORLD, on_error="return") as g:
        t = Script()
        done = t.wait(t.plant(old))
        t.run(g)  # on_error="return": nothing is raised
        assert done.error == gmpi.ERR_REQUEST
        assert [f.field for f in g.errors] == ["request"]
        exchange(g)


# --- a long life ----------------------------------------------------------------------------------


def tickets_beyond_31_bits() -> None:
    """Tags repeat after 2^31 records: minutes at full rate, here set forward in memory."""
    if not gmpi.SIMULATOR:
        return  # the counters are in the GPU's memory
    for first in ((1 << 31) - 20, (1 << 32) - 20):
        with gmpi.Context(WORLD, ring_slots=64) as g:
            g._state.globals[G_HEAD] = first
            ctypes.memmove(g._memory.host + wire.CONTROL_CONSUMED, first.to_bytes(8, "little"), 8)
            for counter in (wire.DEVICE_TICKET, wire.DEVICE_CONSUMED):
                g._memory._device[counter : counter + 8].view(np.int64)[0] = first
            for seed in range(20):
                exchange(g, seed)
            assert int(g._state.globals[G_HEAD]) == first + 40


# --- looking --------------------------------------------------------------------------------------


def traces() -> None:
    with gmpi.Context(WORLD) as g:
        text = "open the context with trace=n to keep time stamps of n requests"
        raises(gmpi.ContextError, text, lambda: g.trace)
    with gmpi.Context(WORLD, trace=8) as g:
        for k in range(3):
            exchange(g, k)
            rows = g.trace
            assert len(rows) == 2 * (k + 1)
        exchange(g)
        exchange(g)
        rows = g.trace
        assert len(rows) == 8  # the last ones
        assert len(set(rows["handle"])) == 8
        assert (np.diff(rows["picked_up"]) >= 0).all()
        for before, after in (("picked_up", "called"), ("called", "completed")):
            late = rows["completed"] > rows["called"]  # not at once
            assert (rows[before][late] <= rows[after][late]).all()
        now = time.monotonic_ns()
        assert (now - rows["completed"] < 60e9).all() and (rows["completed"] <= now).all()


def idle_proxy_naps() -> None:
    """Also where it looks for what other proxies have to say of the direct road."""
    for wildcards in (True, False):
        with gmpi.Context(WORLD, spin_ms=1, yield_ms=1, sleep_us=2000, wildcards=wildcards) as g:
            exchange(g)
            time.sleep(0.1)
            before = g.proxy_cpu_seconds
            time.sleep(0.5)
            used = g.proxy_cpu_seconds - before
            assert used < 0.05, f"wildcards={wildcards}: {used:.3f} of 0.5 s"
            exchange(g)


SCENARIOS = [
    one_after_the_other, two_at_once, a_bad_setting_on_one_rank, different_sizes, communicators,
    without_kernels, many_contexts, freed_communicators, grids_too_large, after_close,
    handles_of_the_context_before,
    *lifecycle_ends.SCENARIOS,
    tickets_beyond_31_bits, traces, idle_proxy_naps,
]  # fmt: skip

assert MPI.Query_thread() == MPI.THREAD_MULTIPLE
run(SCENARIOS)
end()
