"""How often host memory is looked at while many wait, as often in all, however many they are; and
when a wait takes long.

A look is a read over PCIe, and the user's own copies and launches stand in the same queue: 16 warps
that look all the time are not noticed, but 64 make a copy of 8 bytes 20 times slower, and 128 sixty
times. So where many wait for long, each rests between two looks.

How many there are, nobody is told: each counts its looks in a common counter, and sees how far that
has come since it did so before. Who has ended or was aborted just counts no more. Waits that are
over before the second count, some 35 us, are not touched, and neither are those of few warps. A
warp counts once however many requests it polls: 64 warps that wait for 16 each would rest for 70 us
otherwise, and have a third fewer messages a second.

Who waits for long thinks of others: goes on with their requests, and tells the proxy of the wait.
All long waits of the direct road and of the grid take their turns here.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.platform import primitives as gpu
from device_lib.platform.primitives import device
from gmpi.contract.wire import CONTROL_ABORT, DEVICE_ABORT, DEVICE_LOOKED, DEVICE_WAITS

FEW = 16  # looks under way at once that nobody notices
_REST_NS = 70  # what a look takes, divided among so many
NOT_COUNTED = -1
_BETWEEN_NS = 20_000  # two looks for all
PATIENCE = 2 if gpu.SIMULATOR else 8  # turns of a wait, before anything else is thought of
LATE_NS = 50_000_000  # then the proxy is told of a wait
# What is found in a turn of a long wait.
LOOKED = 1  # the caller has looked at host memory for all
LATE = 2  # the wait takes LATE_NS already


@device
def count(ctx, before, lane, mask):
    """Counts the looks of one more period of a wait; all lanes of a warp, every so many polls.

    Args:
        before: what this returned the time before, first NOT_COUNTED.

    Returns:
        (the next ``before``, how long to rest between two polls from now on, in ns).
    """
    counted = 0
    if lane == 0:
        counted = gpu.add_gpu(ctx.device + DEVICE_WAITS, 1)
    counted = gpu.shuffle(mask, counted, 0)
    others = counted - before if before != NOT_COUNTED else 0
    return counted, max(0, others - FEW) * _REST_NS


@device
def rest(ns):
    """Between two polls."""
    if ns > 0:
        gpu.pause(ns)


@device
def may_look_at_host():
    """Whether it is the turn of the caller's block: one microsecond of 16. Where all blocks looked
    at each call that programs make again and again, the host's queue would be full."""
    return gpu.timer_ns() >> 10 & 15 == gpu.block_id() & 15


@device
def look_for_all(ctx, now, in_any_case):
    """(1 where the caller has looked at host memory, else 0; error class of aborted waits), in a
    wait or a test of the direct road; one lane. Programs test again and again, in many blocks.

    What these wait for does not come from host memory: one looks for all in _BETWEEN_NS, for aborts
    and for commands that nobody has come for.

    Args:
        in_any_case: whether the caller looks even if another one does.
    """
    looks = in_any_case
    if not looks:
        last = gpu.load_gpu(ctx.device + DEVICE_LOOKED)
        if now - last >= _BETWEEN_NS:
            looks = gpu.cas_gpu(ctx.device + DEVICE_LOOKED, last, now) == last
    if not looks:
        return 0, gpu.load_gpu(ctx.device + DEVICE_ABORT)
    error = gpu.load_sys(ctx.mapped + CONTROL_ABORT)
    if error != 0:
        gpu.store_gpu(ctx.device + DEVICE_ABORT, error)
    return 1, error


@device
def _since(began, now):
    """(when a wait began, first 0; LATE or 0)."""
    began = now if began == 0 else began
    return began, LATE if now - began > LATE_NS else 0


@device
def long_wait(ctx, began, in_any_case):
    """One turn of a long wait of the direct road: (LOOKED and LATE; error class of aborted waits;
    when the wait began, first 0); one lane.

    Args:
        in_any_case: as ``look_for_all``'s.
    """
    now = gpu.timer_ns()
    began, late = _since(began, now)
    looked, error = look_for_all(ctx, now, in_any_case)
    return looked | late, error, began


@device
def long_wait_at_host(ctx, began):
    """One turn of a wait that looks at host memory each time: (LATE or 0; error class of aborted
    waits; when the wait began, first 0); one lane."""
    began, late = _since(began, gpu.timer_ns())
    return late, gpu.load_sys(ctx.mapped + CONTROL_ABORT) & 0xFF, began
