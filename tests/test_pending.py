"""The compiled engine's pending requests: their order, and that each is answered in time."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from machine import Machine

from gmpi.contract import wire
from gmpi.contract.sizes import Layout
from host_proxy.platform import state as st
from host_proxy.platform.mpi_library import HANDLE_BYTES

pytestmark = [pytest.mark.mpi, pytest.mark.mpich, pytest.mark.quick]

LAYOUT = Layout(ring_slots=1024, request_slots=512, large_slots=4, eager_bytes=256, chunk_bytes=512)


def machine() -> Machine:
    """One whose ``step`` ends at the first window in which nothing has completed."""
    m = Machine(LAYOUT)
    m.globals[st.G_SPIN_NS] = 1 << 60
    m.globals[st.G_CROWDED] = 1
    return m


def places(m: Machine) -> list[int]:
    """Where in the array the pending requests are."""
    kept, window, end = (int(m.globals[i]) for i in (st.G_KEPT, st.G_WINDOW, st.G_END))
    return [*range(kept), *range(window, end)]


def handles(m: Machine) -> list[int]:
    """The MPI requests that are pending, as they stand in the array."""
    return [m._request(int(m.globals[st.G_HANDLES]) + n * HANDLE_BYTES).value for n in places(m)]


def receive(m: Machine, slot: int) -> int:
    return m.open(wire.OP_IRECV, slot, flags=wire.FLAG_BACK, count=8, packets=3)


def arrive(m: Machine, place: int) -> int:
    """A message of 8 bytes has come for the receive at a place: the receive's slot."""
    slot = int(m.state.pending[place, st.A_SLOT])
    at = m.layout.small + slot * m.layout.small_stride + wire.STAGING_LEAD - wire.MESSAGE_HEADER
    header = np.array([8, 0, wire.NOT_SHARED, 0], np.int64)
    m.mapped[at : at + 32] = header.view(np.uint8)
    m.finish(place)
    return slot


PLANS = some.lists(some.tuples(some.integers(0, 60), some.integers(0, 90)), max_size=25)


@settings(max_examples=60)
@given(PLANS, some.randoms())
def test_order_and_answers(plan: list[tuple[int, int]], random: Random) -> None:
    """Whatever completes when, the others stay in the order of their calls, each with its row.

    Guards against a row that parts from its handle when the array moves together, and against
    requests that a sweep skips.
    """
    m = machine()
    free = list(range(LAYOUT.request_slots))
    opened: dict[int, int] = {}  # slot: handle of the kernel's request
    for new, done in plan:
        for _ in range(min(new, len(free))):
            slot = free.pop(0)
            opened[slot] = receive(m, slot)
        m.step()
        pending = places(m)
        arrived = random.sample(pending, min(done, len(pending)))
        slots = [arrive(m, place) for place in arrived]
        turns = 0
        while m.finished:
            m.step()
            turns += 1
            assert turns <= 2 * (len(pending) // st.WINDOW_LEAST + 2)
        for slot in slots:
            assert m.error_of(opened.pop(slot)) == 0
            free.append(slot)
        assert handles(m) == sorted(handles(m))
        assert {int(m.state.pending[n, st.A_SLOT]) for n in places(m)} == set(opened)
        assert m.globals[st.G_ACTIVE] == len(places(m)) == len(opened)
        assert m.globals[st.G_END] <= len(m.state.pending)
        assert all(m.error_of(handle) == -1 for handle in opened.values())


@pytest.mark.parametrize(("each", "least", "most"), [(0, 16, 16), (1, 16, 16), (12, 64, 128)])
def test_windows_follow_what_completes(each: int, least: int, most: int) -> None:
    """Few requests a call while few complete, more while more do.

    Every second call here finds ``each``, the others nothing: windows of 8 * ``each``.
    """
    m = machine()
    for slot in range(400):
        receive(m, slot)
    m.step()
    for _ in range(40):
        window = int(m.globals[st.G_WINDOW])
        end = min(window + each, int(m.globals[st.G_END]))
        slots = [arrive(m, place) for place in range(window, end)]
        m.tested.clear()
        m.step()
        for slot in slots:
            receive(m, slot)
    assert least <= max(m.tested) <= most


def test_as_much_as_possible_after_a_nap() -> None:
    """Where the proxy sleeps between two looks, a request must not wait for many of them."""
    m = Machine(LAYOUT)  # naps at once
    for slot in range(400):
        receive(m, slot)
    m.step()
    m.tested.clear()
    m.step()
    m.step()
    assert st.WINDOW in m.tested[:2]  # the first may be the end of a sweep


def test_an_old_request_among_new_ones_that_always_complete() -> None:
    """The answer for the first one comes in time, wherever the sweep is."""
    m = machine()
    for slot in range(300):
        receive(m, slot)
    m.step()
    for start in range(5):
        oldest = arrive(m, places(m)[0])
        serial = int(m.state.slots[oldest, st.S_SERIAL])
        turns = 0
        while m.state.slots[oldest, st.S_STATE] == st.OPEN:
            assert (turns := turns + 1) <= 300 // st.WINDOW_LEAST + 3, f"{start}: {serial}"
            window = int(m.globals[st.G_WINDOW])
            busy = arrive(m, max(window, 1)) if window < m.globals[st.G_END] else oldest
            m.step()
            if busy != oldest and m.state.slots[busy, st.S_STATE] != st.OPEN:
                receive(m, busy)
        receive(m, oldest)
        m.step()
