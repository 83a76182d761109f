"""The CUDA twin of clocks, and of what a waiting loop does between two looks."""

# mypy: disable-error-code="no-untyped-def,misc"
from __future__ import annotations

from numba import cuda
from numba.cuda import types

from device_lib.platform.ptx import device, ptx

clock = ptx("mov.u64 $0, %clock64;", "=l", types.int64, 0)
_clock_low = ptx("mov.u32 $0, %clock;", "=r", types.uint32, 0)
timer_ns = ptx("mov.u64 $0, %globaltimer;", "=l", types.int64, 0)


@device
def wait_cycles(cycles):
    """Returns when so many cycles have passed, fewer than 2**32."""
    begin = _clock_low()
    while (_clock_low() - begin) & 0xFFFFFFFF < cycles:
        pass


@device
def pause(ns):
    """One turn of a waiting loop: sleeps about ``ns`` nanoseconds."""
    cuda.nanosleep(ns)


@device
def spin():
    """One turn of a waiting loop whose load takes long enough."""


@device
def relax(control):
    """One turn of a loop in which all lanes of a warp poll the host together and vote.

    Nothing to do: each poll takes 1 us, and the host is not disturbed by one lane's reads.
    """
