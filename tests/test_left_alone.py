"""Helpers leave a request of the direct road alone that has just been opened: without a fence.

What is wrong without it only a GPU shows (``tests/gpu/many_warps.py``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numba import cuda

from device_lib.direct import rows
from device_lib.platform.context import DeviceContext
from device_lib.proxied import slots
from gmpi.contract.sizes import Layout

SLOT = 5
NUMBER = 7
ALONE_S = rows.ALONE_NS / 1e9


@cuda.jit
def in_kernel(ctx, what, handle, mark, out):  # type: ignore[no-untyped-def]
    if what == "open":
        out[0] = rows.direct_handle(ctx, SLOT, NUMBER, rows.SMALL)
        rows.open_row(ctx, SLOT, out[0], 4096, mark, rows.BEGINS, 1, 8)
    elif what == "look":
        out[0] = rows.left_alone(ctx, SLOT)
    elif what == "claim":
        out[0] = rows.claim(ctx, handle, mark)
    elif what == "leave":
        rows.leave(ctx, handle)
    elif what == "unclaim":
        rows.unclaim(ctx, handle)
    else:
        rows.close_row(ctx, handle)


Call = Callable[..., int]


@pytest.fixture
def call() -> Iterator[Call]:
    layout = Layout(256, 64, 2, 8192, 65536)
    memory = np.zeros(layout.device_bytes + 128, np.uint8)
    ctx = DeviceContext(0, memory.ctypes.data + 127 & ~127, layout.shape(0, p2p=False), 0)

    def run(what: str, handle: int = 0, mark: int = 0) -> int:
        out = np.zeros(1, np.int64)
        in_kernel[1, 1](ctx, what, handle, mark, out)
        return int(out[0])

    yield run
    del memory


def test_a_helper_goes_on_only_with_what_it_has_seen_for_a_while(call: Call) -> None:
    handle = call("open", mark=3)
    began = time.monotonic()
    assert call("look") == 0
    again = call("look")
    if time.monotonic() - began < ALONE_S:
        assert again == 0
    time.sleep(2 * ALONE_S)
    assert call("look") == handle
    assert call("look") == handle


def test_the_next_request_in_the_slot_is_another_one(call: Call) -> None:
    """Also of the same number, on another channel: its handle is equal."""
    handle = call("open", mark=3)
    call("look")
    time.sleep(2 * ALONE_S)
    call("close", handle)
    assert call("open", mark=4) == handle
    assert call("look") == 0


@pytest.mark.parametrize("mark", [slots.CLAIMED, rows.HELPED])
def test_what_somebody_has_is_not_for_helpers(call: Call, mark: int) -> None:
    handle = call("open", mark=3)
    call("look")
    time.sleep(2 * ALONE_S)
    assert call("claim", handle, mark) == rows.MINE
    assert call("look") == 0
    call("leave", handle)
    assert call("look") == handle


def test_what_a_helper_has_begun_others_may_go_on_with(call: Call) -> None:
    handle = call("open", mark=3)
    call("look")
    time.sleep(2 * ALONE_S)
    call("claim", handle, rows.HELPED)
    call("unclaim", handle)
    assert call("look") == handle
    assert call("claim", handle | rows.TOUCHED, rows.HELPED) == rows.FOREIGN  # no user's handle
    assert call("claim", handle, rows.HELPED) == rows.RESUMED
