"""The direct road: what is particular to it. ``point_to_point --direct`` has the rest."""

from __future__ import annotations

import time
import warnings
from statistics import median

import numpy as np
import registered
from channel_numbers import move_on
from common import (
    RANK,
    SIZE,
    TIME_FACTOR,
    WORLD,
    barrier,
    end,
    every_shape,
    in_thread,
    pattern,
    raises,
    run,
)
from mpi4py import MPI
from script import Script

import gmpi
from device_lib.direct import rows
from gmpi.contract.channels import (
    DEPTH,
    HALF_TURN,
    KEY_TAG_MASK,
    PART_BYTES,
    ROOM,
    STAGED_BYTES,
    WIDE_ROOM,
)
from gmpi.contract.wire import BUSY_BITS, DEVICE_BUSY, DEVICE_STAGED

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE


def no_record_for_a_message(g: gmpi.Context) -> None:
    """The proxy hears of a channel once, and never of a message."""

    def exchange(times: int) -> None:
        s = Script()
        room = s.room(8)
        for _ in range(times):
            r = s.irecv(room, 8, gmpi.BYTE, PREVIOUS, 1)
            q = s.isend(s.data(pattern(8, RANK)), 8, gmpi.BYTE, NEXT, 1)
            s.waitall([r, q])
        s.run(g)
        s.expect(room, pattern(8, PREVIOUS))

    exchange(1)
    records: list[int] = []
    # A wait that takes long, since the other rank does not get a core, has two.
    while len(records) < 40 and WORLD.allreduce(0 not in records):
        before = g._state.taken
        exchange(10)
        records.append(g._state.taken - before)
    assert min(records) == 0, f"records: {records}"


def nobody_needs_no_record(g: gmpi.Context) -> None:
    """PROC_NULL: complete at once, and the status says so (MPI 4.1 section 3.10)."""
    for strided in (False, True):
        s = Script()
        vector = g.commit(MPI.BYTE.Create_vector(2, 2, 4)) if strided else gmpi.BYTE
        room = s.room(8)
        first = s.irecv(room, 1, vector, gmpi.PROC_NULL, 7)
        every = s.waitall([first, s.isend(room, 1, vector, gmpi.PROC_NULL, 3)])
        second = s.irecv(room, 1, vector, gmpi.PROC_NULL, 0)
        wait = s.wait(second)
        s.send(room, 1, vector, gmpi.PROC_NULL, 1)
        blocking = s.recv(room, 1, vector, gmpi.PROC_NULL, 1)
        before = g._state.taken
        s.run(g)
        assert g._state.taken == before
        for found in (every.statuses[0], wait.status, blocking.status):
            assert tuple(found) == (gmpi.SUCCESS, gmpi.PROC_NULL, gmpi.ANY_TAG, 0, 0), found
        if strided:
            g.free(vector)


def more_than_an_inbox_holds(g: gmpi.Context) -> None:
    """Sends wait for their slots, and the receives that free them are posted, in any order."""
    n = DEPTH + 3
    s = Script("warp", 32)
    sends = [s.isend(s.data(pattern(50, RANK + k)), 50, gmpi.BYTE, NEXT, 2) for k in range(n)]
    rooms = [s.room(50) for _ in range(n)]
    receives = [s.irecv(b, 50, gmpi.BYTE, PREVIOUS, 2) for b in rooms]
    for request in [*reversed(receives), *reversed(sends)]:
        s.wait(request)
    s.run(g)
    for k, room in enumerate(rooms):
        s.expect(room, pattern(50, PREVIOUS + k))


def sizes_between_the_ways(g: gmpi.Context) -> None:
    """In a slot, in the wide slot, in parts and rounds; all at once, taken in any order, and cut
    off."""
    sizes = [ROOM, ROOM + 1, WIDE_ROOM, WIDE_ROOM + 1, 2 * PART_BYTES + 1, 9]
    sizes += [STAGED_BYTES + PART_BYTES + 5, 380, 381, 1532, 2047]
    threads_of_block = 40
    if every_shape():
        sizes += [ROOM - 1, 40001, WIDE_ROOM - 1, ROOM + 4]
        threads_of_block = 96
    shapes = ("warp", 32, 1.0), ("block", threads_of_block, 1.5), ("block", threads_of_block, 0.6)
    for scope, threads, part in shapes:
        s = Script(scope, threads)
        rooms = [s.room(int(part * n)) for n in sizes]
        receives = [s.irecv(b, b.nbytes, gmpi.BYTE, PREVIOUS, 8) for b in rooms]
        sends = [
            s.isend(s.data(pattern(n, RANK + k)), n, gmpi.BYTE, NEXT, 8)
            for k, n in enumerate(sizes)
        ]
        if threads == 32:
            receives.reverse()
        for request in [*receives, *sends]:
            s.wait(request)
        s.launch(g)
        if part < 1:
            raises(gmpi.TruncationError, "", lambda s=s: s.collect(g))
            s.read_back()
        else:
            s.collect(g)
        for k, (n, room) in enumerate(zip(sizes, rooms)):
            content = pattern(n, PREVIOUS + k)[: room.nbytes]
            s.expect(room, content, f"{n} bytes into {room.nbytes}")


def data_with_gaps_do_not_wait_for_the_receiver(g: gmpi.Context) -> None:
    """As data in one piece do not, in a slot and in the wide slot: all ranks end their sends before
    they post a receive; into gaps and into one piece."""
    for scope, n in [("block", 40), ("warp", ROOM + 4), ("block", WIDE_ROOM)]:
        every_second = g.commit(MPI.FLOAT.Create_vector(n // 4, 1, 2))
        sent, received = (pattern(n, who).reshape(-1, 4) for who in (RANK, PREVIOUS))
        gaps = np.full_like(received, 0xA5)
        s = Script(scope, 64 if scope == "block" else 32)
        data = s.data(np.hstack([sent, sent + 1]))
        packed, spread = s.room(n), s.room(2 * n)
        s.wait(s.isend(data, 1, every_second, NEXT, 9))
        s.wait(s.irecv(packed, n, gmpi.BYTE, PREVIOUS, 9))
        s.wait(s.isend(data, 1, every_second, NEXT, 9))
        s.wait(s.irecv(spread, 1, every_second, PREVIOUS, 9))
        s.run(g)
        s.expect(packed, received, f"{n} bytes")
        s.expect(spread, np.hstack([received, gaps]), f"{n} bytes with gaps")
        g.free(every_second)


def of_an_exchange(g: gmpi.Context, scope: str, n: int, sends_first: bool) -> float:
    """Seconds of a message each way: the median of seven launches with 100 of them."""
    times, launches = (4, 1) if gmpi.SIMULATOR else (100, 7)
    took = []
    for exchanges in [1, *[times] * launches]:  # the first one compiles
        s = Script(scope, 32)
        room, data = s.room(n), s.data(pattern(n, RANK))
        for _ in range(exchanges):
            r = s.irecv(room, n, gmpi.BYTE, PREVIOUS, 10)
            q = s.isend(data, n, gmpi.BYTE, NEXT, 10)
            for request in (q, r) if sends_first else (r, q):
                s.wait(request)
        barrier()
        began = time.monotonic()
        s.run(g)
        took.append((time.monotonic() - began) / exchanges)
        s.expect(room, pattern(n, PREVIOUS))
    return median(took[1:])


def a_wait_goes_on_with_what_its_block_has_begun(g: gmpi.Context) -> None:
    """At once: all ranks wait for their receives first, or for their sends. What other blocks have
    begun is left alone for a while."""
    alone_ns = rows.ALONE_NS
    if gmpi.SIMULATOR:
        rows.ALONE_NS = 20_000_000_000
    ways = [("block", WIDE_ROOM, False)]
    ways += [(scope, WIDE_ROOM + 1, way) for scope in ("warp", "block") for way in (False, True)]
    for scope, n, sends_first in ways:
        seconds = of_an_exchange(g, scope, n, sends_first)
        if gmpi.SIMULATOR:  # there once is too often
            assert seconds < rows.ALONE_NS / 8e9, f"{scope}, {n} bytes: {seconds} s"
            continue
        # Beside other programs all takes longer: so does a third of the message, which no wait
        # need go on with. An exchange takes up to twice as long; alone 100 us, and 60.
        third = of_an_exchange(g, scope, WIDE_ROOM // 3, sends_first)
        late = seconds - 2 * third
        assert late < rows.ALONE_NS / 2e9, f"{scope}, {n} bytes: {seconds} s, of a third {third}"
    rows.ALONE_NS = alone_ns


def wildcards_are_refused(g: gmpi.Context) -> None:
    for source, tag, field in ((gmpi.ANY_SOURCE, 3, "source"), (PREVIOUS, gmpi.ANY_TAG, "tag")):
        s = Script()
        call = s.recv(s.room(8), 8, gmpi.BYTE, source, tag)
        s.launch(g)
        raises(gmpi.ArgumentError, f"{field} is ANY_", lambda: s.collect(g))  # noqa: B023
        s.collect(g)
        assert call.error in (gmpi.ERR_RANK, gmpi.ERR_TAG)


def bad_arguments(g: gmpi.Context) -> None:
    """Are refused as ever, and no message is counted for them."""
    s = Script()
    wrong = [
        s.send(s.room(8), 8, gmpi.BYTE, SIZE, 3),
        s.send(s.room(8), 8, gmpi.BYTE, -7, 3),
        s.send(s.room(8), 8, gmpi.BYTE, NEXT, -3),
        s.send(s.room(8), -1, gmpi.BYTE, NEXT, 4),
        s.recv(s.room(8), 8, 12345, PREVIOUS, 4),
    ]
    s.launch(g)
    raises(gmpi.ArgumentError, "dest is", lambda: s.collect(g))
    s.collect(g)
    assert all(call.error != gmpi.SUCCESS for call in wrong)
    again = Script()
    room = again.room(8)
    r = again.irecv(room, 8, gmpi.BYTE, PREVIOUS, 4)
    again.waitall([r, again.isend(again.data(pattern(8, RANK)), 8, gmpi.BYTE, NEXT, 4)])
    again.run(g)
    again.expect(room, pattern(8, PREVIOUS))


def the_host_is_refused(g: gmpi.Context) -> None:
    place = np.zeros(8, np.uint8)
    raises(gmpi.ContextError, "second communicator", lambda: g.host.Send(place, NEXT, 1))
    raises(gmpi.ContextError, "second communicator", lambda: g.host.Recv(place, PREVIOUS, 1))
    g.host.Barrier()
    handle = g.comm(WORLD)
    s = Script()
    s.send(s.data(pattern(8, RANK)), 8, gmpi.BYTE, NEXT, 5, handle)
    s.launch(g)
    g.host.Recv(place, PREVIOUS, 5, handle)
    s.collect(g)
    assert (place == pattern(8, PREVIOUS)).all()


def numbers_wrap(g: gmpi.Context) -> None:
    """Both ends begin just before the numbers of packets repeat, and before half of that."""
    for tag, first in ((6, 2 * HALF_TURN - DEPTH), (7, HALF_TURN - DEPTH)):
        exchange = Script()
        r = exchange.irecv(exchange.room(8), 8, gmpi.BYTE, PREVIOUS, tag)
        q = exchange.isend(exchange.data(pattern(8, 1)), 8, gmpi.BYTE, NEXT, tag)
        exchange.waitall([r, q])
        exchange.run(g)
        barrier()
        move_on(g, lambda keys, tag=tag: keys & KEY_TAG_MASK == tag, first)
        barrier()
        for n in (8, 1000, ROOM + 5, WIDE_ROOM + 1):
            s = Script("warp", 32)
            rooms = []
            for k in range(2 * DEPTH + 1):
                rooms.append(s.room(n))
                r = s.irecv(rooms[-1], n, gmpi.BYTE, PREVIOUS, tag)
                q = s.isend(s.data(pattern(n, RANK + k)), n, gmpi.BYTE, NEXT, tag)
                s.waitall([r, q])
            s.run(g)
            for k, room in enumerate(rooms):
                s.expect(room, pattern(n, PREVIOUS + k), f"{n} bytes, message {k} from {first}")


def requests_that_nobody_waits_for() -> None:
    """The warning at the end names them."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with gmpi.Context(WORLD, wildcards=False) as g:
            s = Script()
            s.irecv(s.room(24), 24, gmpi.BYTE, PREVIOUS, 9)
            s.run(g)
    texts = [str(w.message) for w in caught if w.category is gmpi.LeakWarning]
    wanted = f"GMPI_Irecv peer {PREVIOUS} tag 9 on communicator 0, 24 bytes"
    assert any(wanted in text for text in texts), texts


def waits_that_take_too_long() -> None:
    """Are named by the report, and end."""
    with gmpi.Context(WORLD, wildcards=False, watchdog_s=0, timeout_s=0.8) as g:
        s = Script()
        call = s.recv(s.room(8), 8, gmpi.BYTE, PREVIOUS, 7)
        s.launch(g)
        found = raises(gmpi.RequestTimeoutError, "", lambda: s.collect(g))
        assert f"GMPI_Recv from {PREVIOUS} tag 7" in str(found), found
        s.read_back()
        assert call.error == gmpi.GMPI_ERR_TIMEOUT


def who_waits_for_a_slot_holds_no_staging() -> None:
    """A long send that finds no slot has said nothing yet: its receiver's staging buffer would be
    taken from sends that have slots."""
    n, staged = WIDE_ROOM + 16, []
    with gmpi.Context(WORLD, wildcards=False, request_slots=BUSY_BITS) as g:
        device = g._memory.device
        for nbytes in (8, n):
            s = Script()
            for _ in range(1 if nbytes == n else DEPTH):  # the first ones go another way
                if RANK == 0:
                    s.wait(s.isend(s.data(pattern(nbytes, 1)), nbytes, gmpi.BYTE, 1, 3))
                elif RANK == 1:
                    room = s.room(nbytes)
                    s.recv(room, nbytes, gmpi.BYTE, 0, 3)
            if nbytes == n and RANK == 0:
                g._memory.write(device + DEVICE_BUSY, np.array([(1 << BUSY_BITS) - 1]))
            barrier()

            def meanwhile(nbytes: int = nbytes) -> None:
                if nbytes == n and RANK == 0:
                    time.sleep(1.0 * TIME_FACTOR)
                    g._memory.write(device + DEVICE_BUSY, np.zeros(1, np.int64))
                elif nbytes == n and RANK == 1:
                    time.sleep(0.5 * TIME_FACTOR)
                    staged.append(g._memory.fetch(device + DEVICE_STAGED, 8).view(np.int64)[0])

            in_thread(meanwhile, lambda s=s: s.run(g) if RANK < 2 else None)  # type: ignore[misc]
            if RANK == 1:
                s.expect(room, pattern(nbytes, 1))
        assert not any(staged), staged
        assert g.errors == []
        barrier()


def main() -> None:
    with gmpi.Context(WORLD, wildcards=False) as g:
        run(
            [
                no_record_for_a_message, nobody_needs_no_record, more_than_an_inbox_holds,
                sizes_between_the_ways, data_with_gaps_do_not_wait_for_the_receiver,
                a_wait_goes_on_with_what_its_block_has_begun, wildcards_are_refused,
                bad_arguments, the_host_is_refused, numbers_wrap, *registered.SCENARIOS,
            ],
            g,
        )  # fmt: skip
    requests_that_nobody_waits_for()
    waits_that_take_too_long()
    who_waits_for_a_slot_holds_no_staging()
    end()


main()
