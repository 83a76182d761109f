"""The simulator twin of ``clocks_cuda``: clocks, and what a waiting loop does between two looks."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import time

from greenlet import getcurrent

from device_lib.simulator.addresses import WORDS
from device_lib.simulator.lanes import pause as _pause
from gmpi.contract.wire import CONTROL_ABORT, CONTROL_BLOCKS, CONTROL_COMMANDS, CONTROL_DOORBELL

_CONTROL = (CONTROL_DOORBELL, CONTROL_ABORT, CONTROL_COMMANDS, CONTROL_BLOCKS)
_WATCH_TURNS = 16  # what else a loop waits for, in device memory, must not wait for long

clock = time.perf_counter_ns
timer_ns = time.monotonic_ns


def pause(ns):
    _pause()


spin = _pause


def wait_cycles(cycles):
    if cycles > 0:
        _pause()  # for how long is of no matter: the proxy may be waiting for the processor


def relax(control):
    """One turn of a loop in which all lanes of the warp have found nothing new.

    They meet, and one looks for all whether any packet that they have seen is different now, or the
    control packets have something to say: a hundredth of the work of as many lanes looking once
    more.
    """
    me = getcurrent()
    me.warp.meet(me, me.warp.alive, (me.seen, control), _watch)
    me.seen.clear()


def _watch(rows):
    me = getcurrent()
    seen = set().union(*(dict(row[0]).items() for row in rows if row is not None))
    control = rows[me.lane_id][1]
    for _ in range(_WATCH_TURNS):
        me.pause()
        changed = any(WORDS[address >> 3] != word for address, word in seen)
        if changed or any(WORDS[control + at >> 3] for at in _CONTROL):
            me.grid.wake()
            return
