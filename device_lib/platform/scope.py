"""Scopes: which threads make a call together.

The paper's rule (section V): every thread of the scope makes the call, it is executed once. One
warp leads: it writes the record and polls; all threads of the scope pack and unpack.
"""

# mypy: disable-error-code="no-untyped-def,misc"
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from device_lib.platform import primitives as gpu
from device_lib.platform.primitives import SIMULATOR, device

#: Mask of a full warp. A constant: with any other the compiler adds instructions that check
#: whether the lanes agree on it.
ALL_LANES = 0xFFFFFFFF
FULL_WARP = 32  # lanes


class Scope(NamedTuple):
    """Device functions that tell a thread its place in the scope.

    Attributes:
        name: the field's word for it.
        rank: () -> rank of the calling thread among the threads of the scope.
        size: () -> number of threads in the scope.
        leads: () -> whether the calling thread is in the leading warp.
        leading_lanes: () -> number of threads in the leading warp.
        sync: () -> barrier of the scope; orders its memory accesses.
        sync_or: (flag) -> ``sync``; whether a thread of the scope has a flag that is not 0.
        sync_full: ``sync`` where the leading warp of the scope is known to be full.
        sync_full_or: ``sync_or``, likewise.
        broadcast: (value) -> thread 0's value in all threads. Two broadcasts need a sync between
            them.
        broadcast_3, broadcast_5: the same for so many values.
        share_full: (value) -> the leading warp's value, which all its lanes have, in all threads;
            every warp is known to be full.
        share_4_full: the same for four values.
        put_row: (lane, a, b, c) called by each lane of the leading warp; after a sync
        get_row: (lane, a, b, c) gives what that lane put, in any thread. ``a, b, c`` are the
            caller's own.
        put_4: (a, b, c, d) called by the leading warp; after a sync
        get_4: (a, b, c, d) gives what its first lane put, in any thread; every warp is known to be
            full. The next ``put_4`` comes after another sync.
        put_4_same: ``put_4`` of what all lanes of the leading warp have.
    """

    name: str
    rank: Callable
    size: Callable
    leads: Callable
    leading_lanes: Callable
    sync: Callable
    sync_or: Callable
    sync_full: Callable
    sync_full_or: Callable
    broadcast: Callable
    share_full: Callable
    broadcast_3: Callable
    share_4_full: Callable
    broadcast_5: Callable
    put_row: Callable
    get_row: Callable
    put_4: Callable
    get_4: Callable
    put_4_same: Callable


if SIMULATOR:
    from greenlet import getcurrent

    def warp_lanes():
        return getcurrent().warp.threads

    def warp_mask():
        return getcurrent().warp.mask

else:

    @device
    def warp_lanes():
        """Number of threads in the calling warp; the last warp of a block may not be full."""
        return min(32, gpu.block_threads() - (gpu.thread_rank() & ~31))

    @device
    def warp_mask():
        """The existing lanes of the calling warp."""
        return (1 << warp_lanes()) - 1


@device
def _in_warp_0():
    return gpu.thread_rank() < 32


@device
def _warp_0_lanes():
    return min(32, gpu.block_threads())


@device
def _always():
    return True


@device
def _sync_this_warp():
    gpu.sync_warp(warp_mask())


@device
def _sync_this_warp_or(flag):
    gpu.sync_warp(warp_mask())
    return gpu.ballot(warp_mask(), flag != 0) != 0


@device
def _sync_full_warp():
    gpu.sync_warp(ALL_LANES)


@device
def _sync_full_warp_or(flag):
    gpu.sync_warp(ALL_LANES)
    return gpu.ballot(ALL_LANES, flag != 0) != 0


@device
def _from_lane_0(a):
    return gpu.shuffle(warp_mask(), a, 0)


if SIMULATOR:  # several values are one shuffle of all

    def _from_lane_0_3(*values):
        return gpu.shuffle(warp_mask(), values, 0)

    _from_lane_0_5: Any = _from_lane_0_3
    broadcast_warp_8: Any = _from_lane_0_3

    def _get_warp_row(lane, *values):
        return gpu.shuffle(warp_mask(), values, lane)

    def _from_first_4(*values):
        return gpu.shuffle(ALL_LANES, values, 0)

else:

    @device
    def _from_lane_0_3(a, b, c):
        mask = warp_mask()
        return gpu.shuffle(mask, a, 0), gpu.shuffle(mask, b, 0), gpu.shuffle(mask, c, 0)

    @device
    def _from_lane_0_4(a, b, c, d):
        mask = warp_mask()
        first = gpu.shuffle(mask, a, 0), gpu.shuffle(mask, b, 0), gpu.shuffle(mask, c, 0)
        return first[0], first[1], first[2], gpu.shuffle(mask, d, 0)

    @device
    def _from_lane_0_5(a, b, c, d, e):
        first = _from_lane_0_4(a, b, c, d)
        return first[0], first[1], first[2], first[3], gpu.shuffle(warp_mask(), e, 0)

    @device
    def broadcast_warp_8(a, b, c, d, e, f, g, h):
        """Eight values of lane 0, in all lanes: no scope but a warp has so many to tell."""
        first = _from_lane_0_4(a, b, c, d)
        second = _from_lane_0_4(e, f, g, h)
        return (
            first[0], first[1], first[2], first[3], second[0], second[1], second[2], second[3],
        )  # fmt: skip

    @device
    def _get_warp_row(lane, a, b, c):
        mask = warp_mask()
        return gpu.shuffle(mask, a, lane), gpu.shuffle(mask, b, lane), gpu.shuffle(mask, c, lane)

    @device
    def _from_first_4(a, b, c, d):
        return (
            gpu.shuffle(ALL_LANES, a, 0),
            gpu.shuffle(ALL_LANES, b, 0),
            gpu.shuffle(ALL_LANES, c, 0),
            gpu.shuffle(ALL_LANES, d, 0),
        )


@device
def _same(a):
    return a


@device
def _same_4(a, b, c, d):
    # The values are there, but what the lanes stored (a received payload) must be too.
    gpu.sync_warp(ALL_LANES)
    return a, b, c, d


@device
def _put_warp_row(lane, a, b, c):
    """Nothing: the lanes hold their rows."""


@device
def _put_nothing(a, b, c, d):
    """The lanes hold their own."""


BLOCK = Scope(
    "block",
    gpu.thread_rank,
    gpu.block_threads,
    _in_warp_0,
    _warp_0_lanes,
    gpu.sync_block,
    gpu.sync_block_or,
    gpu.sync_block,
    gpu.sync_block_or,
    gpu.broadcast_block,
    gpu.broadcast_block,
    gpu.broadcast_block_3,
    gpu.broadcast_block_4,
    gpu.broadcast_block_5,
    gpu.put_block_row,
    gpu.get_block_row,
    gpu.put_block_4,
    gpu.get_block_4,
    gpu.put_block_4_same,
)
WARP = Scope(
    "warp",
    gpu.lane_id,
    warp_lanes,
    _always,
    warp_lanes,
    _sync_this_warp,
    _sync_this_warp_or,
    _sync_full_warp,
    _sync_full_warp_or,
    _from_lane_0,
    _same,
    _from_lane_0_3,
    _same_4,
    _from_lane_0_5,
    _put_warp_row,
    _get_warp_row,
    _put_nothing,
    _from_first_4,
    _put_nothing,
)
