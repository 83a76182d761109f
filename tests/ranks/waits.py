"""Waits that look at many requests, how often they look, and whom they help."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from common import (
    RANK,
    SIZE,
    TIME_FACTOR,
    WORLD,
    barrier,
    end,
    pattern,
    raises,
    run,
    same,
    take_large_slots,
)
from greenlet import getcurrent
from numba import cuda
from script import Call, Script

import gmpi
from device_lib.platform import primitives
from device_lib.proxied import commands
from gmpi.contract import wire
from host_proxy.platform.state import G_PATIENCE_NS, S_HANDLE

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE
BYTE = gmpi.BYTE


@contextmanager
def looks() -> Iterator[dict[int, list[int]]]:
    """Addresses that each lane of the simulator reads packets at, in order."""
    seen: dict[int, list[int]] = defaultdict(list)
    original = primitives.read_packet

    def read_packet(address: int) -> tuple[int, int]:
        seen[getcurrent().lane_id].append(address)
        return original(address)  # type: ignore[no-any-return]

    users: list[Any] = [
        module
        for name, module in sys.modules.items()
        if name.startswith("device_lib.") and getattr(module, "read_packet", None) is original
    ]
    for module in users:
        module.read_packet = read_packet
    try:
        yield seen
    finally:
        for module in users:
            module.read_packet = original


def unfinished(g: gmpi.Context, s: Script) -> None:
    """Runs a script that leaves requests open, which ``Context.synchronize`` would raise."""
    s.launch(g)
    s.read_back()


def opened(g: gmpi.Context, sizes: list[int]) -> tuple[Script, list[Call], Callable[[], None]]:
    """Receives in a kernel that has ended, their handles in a script that goes on with them.

    Returns:
        The script, the requests in it, and what checks the bytes after it has run.
    """
    first = Script()
    rooms = [first.room(n) for n in sizes]
    calls = [first.irecv(b, b.nbytes, BYTE, PREVIOUS, k) for k, b in enumerate(rooms)]
    unfinished(g, first)
    s = Script()

    def check() -> None:
        first.read_heap()
        for k, (n, room) in enumerate(zip(sizes, rooms)):
            first.expect(room, pattern(n, PREVIOUS + k), f"message {k}")

    return s, [s.plant(first.handle(call)) for call in calls], check


def send(s: Script, n: int, tag: int) -> Call:
    return s.isend(s.data(pattern(n, RANK + tag)), n, BYTE, NEXT, tag)


def one_look_at_many(g: gmpi.Context) -> None:
    """Waitany looks at all its requests at once, each lane at its own."""
    if not gmpi.SIMULATOR:
        return
    many, chosen = 20, 13
    sizes = [8] * many
    s, receives, check = opened(g, sizes)
    early = send(s, 8, chosen)
    first = s.waitany(receives[0], many)
    with looks() as seen:
        unfinished(g, s)
    assert first.flag == chosen and first.status == (gmpi.SUCCESS, PREVIOUS, chosen, 8, 8)
    begin = g._memory.host + g.layout.completions
    end = g._memory.host + g.layout.small
    own = {r.handle: (s._planted[r.handle] >> wire.HANDLE_SLOT_SHIFT) & 0xFFFF for r in receives}
    for lane, addresses in seen.items():
        slots = {(at - begin) // wire.SLOT_BYTES for at in addresses if begin <= at < end}
        assert len(slots & set(own.values())) <= 1, f"lane {lane} has looked at {slots}"
    barrier()  # nobody's others come before all have looked
    rest = [k for k in range(many) if k != chosen]
    t = Script()
    others = [t.plant(s._planted[receives[k].handle]) for k in rest]
    requests = [send(t, 8, k) for k in rest]
    done = [t.waitall(others), t.waitall(requests)]
    last = t.plant(s.handle(early))
    t.wait(last)
    t.run(g)
    assert [c.error for c in done] == [gmpi.SUCCESS] * 2
    check()


def one_look_of_a_test(g: gmpi.Context) -> None:
    """Test reads host memory once, whatever the request, and finds it when it is there."""
    if not gmpi.SIMULATOR:
        return
    sizes = [8, 300, g.layout.eager_bytes + 8]
    for k, n in enumerate(sizes):
        s, requests, check = opened(g, [n])
        tested = s.test(requests[0])
        with looks() as seen:
            unfinished(g, s)
        assert tested.flag == 0
        most = {lane: len(addresses) for lane, addresses in seen.items() if len(addresses) > 1}
        assert not most, f"{n} bytes: looks of each lane {most}"
        barrier()
        t = Script()
        again = t.plant(s._planted[requests[0].handle])
        q = send(t, n, 0)
        found = t.test_until(again)
        t.wait(q)
        t.run(g)
        assert found.status == (gmpi.SUCCESS, PREVIOUS, 0, n, n), (k, found.status)
        check()


def any_of_many(g: gmpi.Context) -> None:
    """More requests than a warp has lanes, of all kinds, some null: each is found once."""
    eager = g.layout.eager_bytes
    kinds = [8, 0, 145, eager, eager + 4, 300, 3 * 65536 + 5 if eager > 256 else 5 * 512, 144]
    for scope, threads, many in (("block", 64, 9), ("warp", 20, 12)):
        s = Script(scope, threads)
        sizes = [kinds[k % len(kinds)] if k % 8 != 6 or k < 8 else 8 for k in range(many)]
        rooms = [s.room(n) for n in sizes]
        receives = [s.irecv(b, b.nbytes, BYTE, PREVIOUS, k) for k, b in enumerate(rooms)]
        sends = [send(s, n, k) for k, n in enumerate(sizes)]
        found = [s.waitany(receives[0], 2 * many) for _ in range(2 * many)]
        none = s.waitany(receives[0], 2 * many)
        nothing = s.waitany(receives[0], 0)
        s.run(g)
        assert sorted(call.flag for call in found) == list(range(2 * many))
        assert len(sends) == many
        for call in found:
            k = call.flag
            if k < many:
                assert call.status == (gmpi.SUCCESS, PREVIOUS, k, sizes[k], sizes[k]), call.status
            assert call.error == gmpi.SUCCESS
        empty = gmpi.Status(gmpi.SUCCESS, gmpi.ANY_SOURCE, gmpi.ANY_TAG, 0, 0)
        assert none.flag == nothing.flag == -1 and none.status == nothing.status == empty
        for k, (n, room) in enumerate(zip(sizes, rooms)):
            s.expect(room, pattern(n, PREVIOUS + k), f"message {k}, {n} bytes")


def any_of_refused(g: gmpi.Context) -> None:
    """A request that was refused, and one that is none, do not hold up Waitany: they are found."""
    s = Script()
    room = s.room(8)
    refused = s.irecv(room, 8, BYTE, SIZE, 1)
    stranger = s.plant(12345)
    good = s.irecv(room, 8, BYTE, PREVIOUS, 1)
    found = [s.waitany(refused, 3) for _ in range(2)]
    q = send(s, 8, 1)
    found.append(s.waitany(refused, 3))
    s.wait(q)
    assert stranger.handle + 1 == good.handle
    s.launch(g)
    errors = []
    for _ in range(2):
        try:
            s.collect(g)
        except gmpi.ArgumentError as exc:
            errors.append(exc.field)
    s.collect(g)
    by_place = {call.flag: call.error for call in found}
    assert by_place == {0: gmpi.ERR_RANK, 1: gmpi.ERR_REQUEST, 2: gmpi.SUCCESS}, by_place
    assert errors, "nothing was said of the refused calls"
    s.expect(room, pattern(8, PREVIOUS + 1))


# --- whose commands
# ---------------------------------------------------------------------------------


@contextmanager
def patience(g: gmpi.Context, ns: int) -> Iterator[set[int]]:
    """How long nobody may come for a command; yields the blocks that have answered one."""
    state = g._state.globals
    before = int(state[G_PATIENCE_NS])
    state[G_PATIENCE_NS] = ns
    blocks = set()
    answers = commands.answer, commands.answer_last

    def noting(answer: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            blocks.add(getcurrent().block.number)
            return answer(*arguments)

        return call

    if gmpi.SIMULATOR:
        commands.answer, commands.answer_last = map(noting, answers)  # type: ignore[assignment]
    try:
        yield blocks
    finally:
        commands.answer, commands.answer_last = answers  # type: ignore[assignment]
        state[G_PATIENCE_NS] = before


_NEVER_NS = 1 << 60


def sends_are_waited_for_first(g: gmpi.Context) -> None:
    """Both ranks wait for their long sends before their receives: the block moves both."""
    n = 3 * 65536 + 8 if g.layout.eager_bytes > 256 else 9 * 512
    with patience(g, _NEVER_NS):
        for how in ("wait", "test_until", "waitall", "waitany"):
            s = Script()
            room = s.room(n)
            r = s.irecv(room, n, BYTE, PREVIOUS, 1)
            q = send(s, n, 1)
            if how == "waitall":
                s.waitall([q])
            elif how == "waitany":
                s.waitany(q, 1)
            else:
                getattr(s, how)(q)
            s.wait(r)
            s.run(g)
            s.expect(room, pattern(n, PREVIOUS + 1), how)


def strangers_are_left_alone(g: gmpi.Context) -> None:
    """A block that waits for a few bytes does not move what other blocks have come for."""
    long = g.layout.eager_bytes + 800
    with patience(g, _NEVER_NS) as blocks:
        s = Script(callers=2)
        other = s.callers[1]
        room, rooms = s.room(8), [s.room(long) for _ in range(3)]
        r = s.irecv(room, 8, BYTE, PREVIOUS, 99)
        s.wait(r)
        for k, big in enumerate(rooms):
            incoming = other.irecv(big, long, BYTE, PREVIOUS, k)
            data = s.data(pattern(long, RANK + k))
            other.wait(other.isend(data, long, BYTE, NEXT, k))
            other.wait(incoming)
        other.wait(other.isend(s.data(pattern(8, RANK)), 8, BYTE, NEXT, 99))
        s.run(g)
    assert not gmpi.SIMULATOR or blocks == {1}, f"commands of block 1 were executed by {blocks}"
    s.expect(room, pattern(8, PREVIOUS))
    for k, big in enumerate(rooms):
        s.expect(big, pattern(long, PREVIOUS + k))


def nobody_waits_yet(g: gmpi.Context) -> None:
    """What a block has opened and does not wait for goes on while another block waits."""
    long = g.layout.eager_bytes + 800
    with patience(g, 100_000) as blocks:
        s = Script(callers=2)
        other = s.callers[1]
        big, room = s.room(long), s.room(8)
        r = s.irecv(big, long, BYTE, PREVIOUS, 1)
        q = send(s, long, 1)
        s.pause(int(2e9))
        s.waitall([r, q])
        other.sendrecv(s.data(pattern(8, RANK)), 8, BYTE, NEXT, 2, room, 8, PREVIOUS, 2)
        # Complete only when both blocks' receives have moved on: there is one open until then.
        other.synchronize()
        s.run(g)
    allowed = [{1}]
    if (g._state.slots[g.layout.first_narrow :, S_HANDLE] != 0).any():
        # Block 0's send has waited for a large slot, and moved what came meanwhile: maybe all.
        blocks.discard(0)
        allowed.append(set())
    assert not gmpi.SIMULATOR or blocks in allowed, f"commands of block 0 were executed by {blocks}"
    s.expect(big, pattern(long, PREVIOUS + 1))
    s.expect(room, pattern(8, PREVIOUS))


def no_slot_is_free() -> None:
    """Who waits for a request slot moves messages meanwhile, as MPI promises of every wait."""
    barrier()
    settings = {"large_slots": 1, "request_slots": 32, "resource_timeout_s": TIME_FACTOR}
    with gmpi.Context(WORLD, watchdog_s=0, **settings) as g:
        long = g.layout.eager_bytes + 800
        tags = range(1 + 32)
        with patience(g, _NEVER_NS) as blocks:
            s = Script()
            if RANK == 0:
                rooms = [s.room(long) for _ in tags]
                receives = [s.irecv(rooms[tag], long, BYTE, NEXT, tag) for tag in tags]
                refused = s.irecv(s.room(long), long, BYTE, NEXT, len(tags))
                s.wait(refused)
            else:
                for tag in tags:
                    s.wait(send(s, long, tag))
            barrier()
            s.launch(g)
            s.read_back()
            moved = set(blocks)
        if RANK == 0:
            assert s.calls[-1].error == gmpi.GMPI_ERR_NO_RESOURCE, s.calls[-1].status
            assert not gmpi.SIMULATOR or moved == {0}, "the messages did not move"
            t = Script()
            done = t.waitall([t.plant(s.handle(r)) for r in receives])
            t.launch(g)
            raises(gmpi.ResourceError, "", lambda: t.collect(g))
            t.collect(g)
            assert done.error == gmpi.SUCCESS
            s.read_heap()
            for tag, room in enumerate(rooms):
                s.expect(room, pattern(long, NEXT + tag))
        barrier()


@cuda.jit
def _messages_in_views(ctx, out, into, requests, statuses, apart):  # type: ignore[no-untyped-def]
    """Handles in every other element of an array, in a column, and backwards."""
    for k in range(4):
        handle = gmpi.GMPI_Irecv(ctx, into[k], 8, BYTE, PREVIOUS, k, gmpi.COMM_WORLD)
        requests[2 * k], requests[9 + 2 * k] = handle, 77
        requests[2 * k + 1] = 77
    gmpi.GMPI_Waitall(ctx, 4, requests[8::2], statuses[:4])  # zeros: null requests
    for k in range(4):
        gmpi.GMPI_Send(ctx, out[k], 8 - k, BYTE, NEXT, k, gmpi.COMM_WORLD)
    if apart == 0:
        gmpi.GMPI_Waitall(ctx, 4, requests[:8:2], statuses[::2])
    elif apart == 1:
        gmpi.GMPI_Waitall(ctx, 4, requests[6::-2], statuses[7::-2])
    elif apart == 2:
        gmpi.GMPI_Waitall(ctx, 4, requests.reshape(2, 4, 2)[0, :, 0], statuses[::2])
    else:
        gmpi.GMPI_Waitall(ctx, 4, requests[:8].reshape(2, 2, 2)[:, :, 0])


def handles_in_views(g: gmpi.Context) -> None:
    """Waitall took what lies between the elements of a view for requests, and cleared it."""
    out = np.stack([pattern(8, RANK + k) for k in range(4)])
    for apart in range(4):
        into = cuda.to_device(np.zeros((4, 8), np.uint8))
        requests = cuda.to_device(np.zeros(16, np.int64))
        statuses = cuda.to_device(np.zeros(8, gmpi.STATUS_DTYPE))
        _messages_in_views[1, 32](g.device, cuda.to_device(out), into, requests, statuses, apart)
        g.synchronize()
        for k, row in enumerate(into.copy_to_host()):
            same(row[: 8 - k], pattern(8, PREVIOUS + k)[: 8 - k], f"message {k}, way {apart}")
        left = requests.copy_to_host()
        assert list(left[:8]) == [gmpi.REQUEST_NULL, 77] * 4, (apart, left)
        if apart < 3:
            lengths = statuses.copy_to_host()["nbytes"]
            wanted = [0, 8, 0, 7, 0, 6, 0, 5] if apart == 1 else [8, 0, 7, 0, 6, 0, 5, 0]
            assert list(lengths) == wanted, (apart, lengths)


SCENARIOS = [
    handles_in_views, one_look_at_many, one_look_of_a_test, any_of_many, any_of_refused,
    sends_are_waited_for_first, strangers_are_left_alone, nobody_waits_yet,
]  # fmt: skip


def main() -> None:
    settings = {"large_slots": 64, "ring_slots": 256}
    small = {"eager_bytes": 256, "chunk_bytes": 512, "ring_slots": 64, "large_slots": 64}
    if "--small" in sys.argv:
        settings = small
    with gmpi.Context(WORLD, **settings) as g:
        run(SCENARIOS, g)
        assert g.pending == []
    with gmpi.Context(WORLD, **small) as g:
        take_large_slots(g)
        run([strangers_are_left_alone, nobody_waits_yet], g)
    if SIZE == 2 and not sys.argv[1:]:
        no_slot_is_free()
    end()


main()
