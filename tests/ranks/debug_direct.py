"""Debug mode on the direct road: what is particular to it. ``debug --direct`` has the rest."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from common import RANK, SIZE, WORLD, end, pattern, run, same
from numba import cuda
from script import Script

import gmpi
from gmpi import (
    GMPI_Irecv,
    GMPI_Isend,
    GMPI_Recv,
    GMPI_Request_free,
    GMPI_Send,
    GMPI_Test,
    GMPI_Wait,
    GMPI_Waitall,
)
from gmpi.memory import exported

BYTE = gmpi.BYTE
NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE
#: In a slot by a packet for each lane, by several; in the wide slot; in rounds.
SIZES = (8, 1000, 20_000, 250_000)


def context(**settings: Any) -> gmpi.Context:
    return gmpi.Context(
        WORLD, wildcards=False, debug=True, on_error="return", timeout_s=20, **settings
    )


def found(g: gmpi.Context, *words: str) -> None:
    """What was found has these words, and nothing else was; without any, nothing was."""
    texts = [str(fault) for fault in g.errors]
    assert len(texts) == bool(words) and all(w in texts[0] for w in words), (texts, words)
    assert all(fault.kind is gmpi.DebugError for fault in g.errors)


def overlapping(first: str, second: str, begin: int, allowed: bool, s: Script) -> None:
    """A call uses bytes 0..200 of a buffer, and another one 150 from ``begin`` on."""
    with context() as g:
        whole = s.data(pattern(400, RANK))
        part = type(whole)(whole.offset + begin, 150)
        both = (first, whole, 200, 1), (second, part, 150, 2)
        calls = []
        for kind, room, n, tag in both:
            peer = NEXT if kind == "isend" else PREVIOUS
            calls.append(getattr(s, kind)(room, n, BYTE, peer, tag))
        s.barrier()
        for kind, _, n, tag in both[: 1 + allowed]:
            if kind == "irecv":
                s.send(s.data(pattern(n, 5)), n, BYTE, NEXT, tag)
            else:
                s.recv(s.room(n), n, BYTE, PREVIOUS, tag)
        done = [s.wait(call) for call in calls]
        s.run(g)
        error = gmpi.SUCCESS if allowed else gmpi.ERR_BUFFER
        assert [call.error for call in done] == [gmpi.SUCCESS, error], (first, second, begin)
        words = (
            f"the buffer of GMPI_{second.capitalize()} in block 0",
            f"overlaps that of GMPI_{first.capitalize()} in block 0",
        )
        found(g, *(() if allowed else words))


def overlaps_of_all_kinds() -> None:
    """A receive where a send is pending, and where a receive is; a send where a receive is. Two
    sends are right, and so is what only touches. In each scope, also of threads that are no full
    warp."""
    scopes = [
        ("block", 32, 1),
        ("block", 40, 1),
        ("block", 20, 1),
        ("warp", 32, 1),
        ("grid", 32, 2),
    ]
    number = 0
    for first, second in product(("irecv", "isend"), repeat=2):
        for begin in (199, 200):
            allowed = begin == 200 or first == second == "isend"
            scope, threads, blocks = scopes[number % len(scopes)]
            overlapping(first, second, begin, allowed, Script(scope, threads, blocks=blocks))
            number += 1


def across_the_roads() -> None:
    """A request of the one road, and one of the other."""
    for second in (0, 1):
        with context() as g:
            proxied = g.comm(WORLD)
            s = Script()
            room = s.room(300)
            comms = (0, proxied) if second else (proxied, 0)
            first = s.irecv(room, 300, BYTE, PREVIOUS, 1, comms[0])
            refused = s.irecv(room, 300, BYTE, PREVIOUS, 1, comms[1])
            s.barrier()
            s.send(s.data(pattern(300, RANK)), 300, BYTE, NEXT, 1, comms[0])
            done = s.wait(refused), s.wait(first)
            again = s.irecv(room, 300, BYTE, PREVIOUS, 1, comms[1])  # it is free now
            s.send(s.data(pattern(300, RANK + 1)), 300, BYTE, NEXT, 1, comms[1])
            done += (s.wait(again),)
            s.run(g)
            assert [c.error for c in done] == [gmpi.ERR_BUFFER, gmpi.SUCCESS, gmpi.SUCCESS]
            s.expect(room, pattern(300, PREVIOUS + 1))
            found(g, "the buffer of GMPI_Irecv", "overlaps that of GMPI_Irecv")


@cuda.jit
def change(ctx, data, n, dest, early, how, errors):  # type: ignore[no-untyped-def]
    """Changes a byte of a send before the send has been waited for, or afterwards."""
    requests = cuda.shared.array(1, np.int64)
    request = GMPI_Isend(ctx, data, n, BYTE, dest, 7, gmpi.COMM_WORLD)
    requests[0] = request
    if early and cuda.threadIdx.x == 0:
        data[n - 3] ^= 255
    cuda.syncthreads()
    if how == 0:
        errors[0] = GMPI_Wait(ctx, request).error
    elif how == 1:
        errors[0] = GMPI_Waitall(ctx, 1, requests)
    else:
        done = False
        while not done:
            done, status = GMPI_Test(ctx, request)
        errors[0] = status.error
    cuda.syncthreads()
    if not early and cuda.threadIdx.x == 0:
        data[n - 3] ^= 255
    cuda.syncthreads()
    GMPI_Send(ctx, data, n, BYTE, dest, 7, gmpi.COMM_WORLD)


@cuda.jit
def receive_twice(ctx, rooms, n, source):  # type: ignore[no-untyped-def]
    for i in range(2):
        GMPI_Recv(ctx, rooms[i], n, BYTE, source, 7, gmpi.COMM_WORLD)


def changed_sends() -> None:
    """Found by Wait, Waitall and Test, in messages of all lengths; not where the wait is over."""
    for n in SIZES:
        for how in range(3):
            for early in (True, False):
                with context() as g:
                    data, rooms = (
                        cuda.to_device(pattern(n, 5)),
                        cuda.to_device(np.zeros((2, n), "u1")),
                    )
                    errors = cuda.to_device(np.zeros(1, np.int64))
                    if RANK % 2 == 0 and RANK + 1 < SIZE:
                        change[1, 64](g.device, data, n, NEXT, early, how, errors)
                    elif RANK % 2:
                        receive_twice[1, 32](g.device, rooms, n, PREVIOUS)
                    g.synchronize()
                    wrong = early and RANK % 2 == 0 and RANK + 1 < SIZE
                    same(errors, [gmpi.ERR_BUFFER if wrong else 0], "error class")
                    words = "the buffer of GMPI_Isend in block 0", "was changed while the send was"
                    found(g, *(words if wrong else ()))


@cuda.jit
def free_and_use_again(ctx, data, room, n, peer, errors):  # type: ignore[no-untyped-def]
    """Whoever has freed a send may touch its buffer when the other rank has answered."""
    request = GMPI_Isend(ctx, data, n, BYTE, peer, 7, gmpi.COMM_WORLD)
    errors[0] = GMPI_Request_free(ctx, request)
    GMPI_Recv(ctx, room, n, BYTE, peer, 7, gmpi.COMM_WORLD)
    GMPI_Send(ctx, room, 0, BYTE, peer, 8, gmpi.COMM_WORLD)
    GMPI_Recv(ctx, room, 0, BYTE, peer, 8, gmpi.COMM_WORLD)
    incoming = GMPI_Irecv(ctx, data, n, BYTE, peer, 9, gmpi.COMM_WORLD)
    errors[1] = GMPI_Send(ctx, room, n, BYTE, peer, 9, gmpi.COMM_WORLD).error
    errors[2] = GMPI_Wait(ctx, incoming).error
    gmpi.GMPI_Synchronize(ctx)


def a_freed_send_is_the_users_again() -> None:
    if SIZE != 2:
        return
    for n in SIZES:
        with context() as g:
            data, room = cuda.to_device(pattern(n, RANK)), cuda.to_device(np.zeros(n, np.uint8))
            errors = cuda.to_device(np.full(3, -1))
            free_and_use_again[1, 32](g.device, data, room, n, NEXT, errors)
            g.synchronize()
            same(errors, [0, 0, 0], "error classes")
            same(data, pattern(n, RANK), "what came back")
            found(g)


@cuda.jit
def send_and_receive(ctx, out, room, n, dest, source, errors):  # type: ignore[no-untyped-def]
    incoming = GMPI_Irecv(ctx, room, n, BYTE, source, 7, gmpi.COMM_WORLD)
    outgoing = GMPI_Isend(ctx, out, n, BYTE, dest, 7, gmpi.COMM_WORLD)
    errors[0] = GMPI_Wait(ctx, outgoing).error
    errors[1] = GMPI_Wait(ctx, incoming).error


def arrays_that_are_gone() -> None:
    """By their addresses, which a kernel may pass in their place.

    What allocates has run before the array is freed: the channel, the kernel. Its address could
    be theirs otherwise. The array is short: peers are told of a long one, and it stays until the
    context closes.
    """
    n = 100
    with context() as g:
        array, room = g.empty(n, np.uint8), cuda.to_device(np.zeros(n, np.uint8))
        array.copy_to_device(pattern(n, RANK))
        address, errors = gmpi.Get_address(array), cuda.to_device(np.full(2, -1))
        to = gmpi.Get_address(room)
        send_and_receive[1, 32](g.device, address, to, n, NEXT, PREVIOUS, errors)
        g.synchronize()
        same(errors, [0, 0], "error classes")
        same(room, pattern(n, PREVIOUS), "message")
        found(g)

        g.unregister(array)
        del array
        if not gmpi.SIMULATOR:
            from device_lib.platform.freeing_cuda import free_dropped

            free_dropped()
        WORLD.Barrier()
        # Both: the message is neither sent nor received.
        send_and_receive[1, 32](g.device, address, address, n, NEXT, PREVIOUS, errors)
        g.synchronize()
        same(errors, [gmpi.ERR_BUFFER] * 2, "error classes")
        texts = [str(fault) for fault in g.errors]
        assert len(texts) == 2, texts
        for name, text in zip(("GMPI_Irecv", "GMPI_Isend"), texts):
            assert f"the buffer of {name} in block 0" in text and "it was freed;" in text, text


def memory_that_goes_meanwhile() -> None:
    """Between the opening and the end of a send, as the host sees it."""
    n = 100
    for goes in (False, True):
        with context() as g:
            engine, looks = g._proxy.python, [0]

            def read(address: int, nbytes: int, own: Any = engine.read, k: Any = looks) -> Any:
                k[0] += 1
                return None if k[0] > 2 and goes else own(address, nbytes)  # noqa: B023

            engine.read = read
            out, room = cuda.to_device(pattern(n, RANK)), cuda.to_device(np.zeros(n, np.uint8))
            errors = cuda.to_device(np.full(2, -1))
            send_and_receive[1, 32](g.device, out, room, n, NEXT, PREVIOUS, errors)
            g.synchronize()
            assert looks == [3]  # a receive is looked at once, a send twice
            same(errors, [gmpi.ERR_BUFFER if goes else 0, 0], "error classes")
            found(g, *(("the buffer of GMPI_Isend in block 0", "it was freed;") if goes else ()))


def a_stale_registration() -> None:
    """The memory of a registered array was freed, and its address belongs to other memory."""
    n = 100
    for stale in (False, True):
        with context() as g:
            array, room = g.zeros(n, np.uint8), cuda.to_device(np.zeros(n, np.uint8))
            regions = g._partitioned.exported._regions
            number_of = exported._buffer_of
            for key, region in regions.items():
                regions[key] = region._replace(buffer=7)
            exported._buffer_of = lambda address: 8 if stale else 7  # noqa: B023
            errors = cuda.to_device(np.full(2, -1))
            if stale:
                room = array
            send_and_receive[1, 32](g.device, array, room, n, NEXT, PREVIOUS, errors)
            g.synchronize()
            exported._buffer_of = number_of
            same(errors, [gmpi.ERR_BUFFER if stale else 0] * 2, "error classes")
            texts = [str(fault) for fault in g.errors]
            assert len(texts) == 2 * stale, texts
            assert all("the memory of a registered array has been freed since" in t for t in texts)


def as_many_requests_as_there_are_slots() -> None:
    """Debug mode takes none for what it says and asks."""
    if SIZE != 2:
        return
    n = 32
    with context(request_slots=n) as g:
        s = Script()
        if RANK == 0:
            rooms = [s.room(40) for _ in range(n)]
            done = s.waitall([s.irecv(room, 40, BYTE, 1, 1) for room in rooms])
        else:
            done = s.waitall([s.isend(s.data(pattern(40, k)), 40, BYTE, 0, 1) for k in range(n)])
        s.run(g)
        assert done.error == gmpi.SUCCESS
        if RANK == 0:
            for k, room in enumerate(rooms):
                s.expect(room, pattern(40, k))
        found(g)


SCENARIOS = [
    overlaps_of_all_kinds, across_the_roads, changed_sends, a_freed_send_is_the_users_again,
    arrays_that_are_gone, memory_that_goes_meanwhile, a_stale_registration,
    as_many_requests_as_there_are_slots,
]  # fmt: skip
run(SCENARIOS)
end()
