"""Probes, and cancelled receives, in kernels and on the host.

mpiexec -n 2 python3 tests/ranks/looking.py [--direct] [SCENARIO ...]
"""

from __future__ import annotations

import sys
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
from common import RANK, SIZE, WORLD, end, pattern, raises, run, same
from mpi4py import MPI
from numba import cuda

import gmpi
from device_lib.api.binding import block_calls, warp_calls

EAGER, CHUNK = 256, 1024
#: Inline, in staging, in chunks; empty, and as long as a header.
SIZES = [0, 8, 32, 200, EAGER, EAGER + 1, 3001, 9000]
GO = 999


def _kernel(c: SimpleNamespace) -> Any:
    probe, iprobe, recv, irecv, send = c.probe, c.iprobe, c.recv, c.irecv, c.send
    cancel, wait = c.cancel, c.wait

    @cuda.jit
    def look(ctx, source, tags, room, log):
        """Messages of unknown length, in another order than that in which they were sent."""
        for i in range(tags.shape[0]):
            status = probe(ctx, source, tags[i], 0)
            there, again = iprobe(ctx, status.source, status.tag, 0)
            log[i, 0] = status.error
            log[i, 1] = status.source
            log[i, 2] = status.tag
            log[i, 3] = status.nbytes
            log[i, 4] = status.count
            log[i, 5] = 1 if there else 0
            log[i, 6] = again.nbytes
            got = recv(ctx, room[i], status.nbytes, gmpi.BYTE, status.source, status.tag, 0)
            log[i, 7] = got.error + got.tag - status.tag + got.nbytes - status.nbytes
        there, again = iprobe(ctx, source, gmpi.ANY_TAG, 0)
        log[0, 8] = 1 if there else 0

    @cuda.jit
    def mixed(ctx, room, log):
        """A long message is probed; a receive of any tag gets the one that was sent before it."""
        log[0] = probe(ctx, 1, 12, 0).nbytes
        log[1] = recv(ctx, room[0], room.shape[1], gmpi.BYTE, 1, gmpi.ANY_TAG, 0).tag
        log[2] = recv(ctx, room[1], room.shape[1], gmpi.BYTE, gmpi.ANY_SOURCE, 13, 0).tag
        log[3] = recv(ctx, room[2], room.shape[1], gmpi.BYTE, 1, gmpi.ANY_TAG, 0).tag

    @cuda.jit
    def cancels(ctx, n, room, log):
        request = irecv(ctx, room, n, gmpi.BYTE, 1, 20, 0)
        other = irecv(ctx, room, 8, gmpi.BYTE, 1, 21, 0)
        log[0] = cancel(ctx, request)
        status = wait(ctx, request)
        log[1] = status.error + status.nbytes
        log[2] = 1 if gmpi.GMPI_Test_cancelled(ctx, status) else 0
        send(ctx, room, 0, gmpi.BYTE, 1, GO, 0)
        status = wait(ctx, other)
        log[3] = (
            status.error + status.nbytes + (100 if gmpi.GMPI_Test_cancelled(ctx, status) else 0)
        )
        # What has come cannot be cancelled, and its bytes are there.
        request = irecv(ctx, room, n, gmpi.BYTE, 1, 20, 0)
        send(ctx, room, 0, gmpi.BYTE, 1, GO, 0)
        recv(ctx, room[:0], 0, gmpi.BYTE, 1, 22, 0)
        log[4] = cancel(ctx, request)
        status = wait(ctx, request)
        log[5] = status.error + status.nbytes
        log[6] = 1 if gmpi.GMPI_Test_cancelled(ctx, status) else 0
        log[7] = cancel(ctx, request)
        for _ in range(40):  # places of requests are given back
            request = irecv(ctx, room, 8, gmpi.BYTE, 1, 30, 0)
            log[8] = cancel(ctx, request) + wait(ctx, request).error

    mprobe, improbe, mrecv, imrecv = c.mprobe, c.improbe, c.mrecv, c.imrecv

    @cuda.jit
    def take(ctx, source, tags, room, log):
        """Messages are taken, and then received in reverse; nobody else gets them."""
        taken = cuda.local.array(16, np.int64)
        for i in range(tags.shape[0]):
            if i % 2 == 0:
                taken[i], status = mprobe(ctx, source, tags[i], 0)
            else:
                there = False
                while not there:
                    there, taken[i], status = improbe(ctx, source, tags[i], 0)
            log[i, 0] = status.error
            log[i, 1] = status.source
            log[i, 2] = status.tag
            log[i, 3] = status.nbytes
        there, none, status = improbe(ctx, source, gmpi.ANY_TAG, 0)
        log[0, 6] = (1 if there else 0) + none
        for k in range(tags.shape[0]):
            i = tags.shape[0] - 1 - k
            n = room.shape[1] if i % 3 == 0 else log[i, 3]
            if i % 2 == 0:
                status = mrecv(ctx, room[i], n, gmpi.BYTE, taken[i])
            else:
                status = wait(ctx, imrecv(ctx, room[i], n, gmpi.BYTE, taken[i]))
            log[i, 4] = status.error + status.source - source + status.tag - tags[i]
            log[i, 5] = status.count

    return SimpleNamespace(look=look, mixed=mixed, cancels=cancels, take=take)


KERNELS = {"block": _kernel(block_calls), "warp": _kernel(warp_calls)}


def send_all(g: gmpi.Context, by_kernel: bool) -> None:
    for i, n in enumerate(SIZES):
        if by_kernel:
            data = cuda.to_device(pattern(n + 1, i))
            send_one[1, 32](g.device, data, n, i)
            g.synchronize()
        else:
            g.host.Bsend(pattern(n + 1, i)[:n], 0, i)


@cuda.jit
def send_one(ctx, data, n, tag):
    request = gmpi.GMPI_Ibsend(ctx, data, n, gmpi.BYTE, 0, tag, gmpi.COMM_WORLD)
    gmpi.GMPI_Wait(ctx, request)


def probes(g: gmpi.Context) -> None:
    for scope, source, by_kernel in (
        ("block", 1, True), ("warp", gmpi.ANY_SOURCE, False), ("block", gmpi.ANY_SOURCE, True),
    ):  # fmt: skip
        if RANK == 1:
            send_all(g, by_kernel)
        if RANK == 0:
            tags = [6, 1, 0, 7, 2, 5, 4, 3]
            room = cuda.to_device(np.zeros((len(tags), max(SIZES) + 1), np.uint8))
            log = cuda.to_device(np.full((len(tags), 9), -1))
            KERNELS[scope].look[1, 32](g.device, source, cuda.to_device(np.array(tags)), room, log)
            g.synchronize()
            found = log.copy_to_host()
            for i, tag in enumerate(tags):
                n = SIZES[tag]
                assert list(found[i, :8]) == [0, 1, tag, n, n, 1, n, 0], (tag, n, found[i])
                same(room.copy_to_host()[i, :n], pattern(n + 1, tag)[:n], f"{n} bytes")
            assert found[0, 8] == 0, "a message that is not there"
        WORLD.Barrier()


def order(g: gmpi.Context) -> None:
    """Between what a probe has taken from MPI and what is still there."""
    sizes = {11: 40, 12: 5000, 13: 3000}
    if RANK == 1:
        for tag, n in sizes.items():
            g.host.Bsend(pattern(n, tag), 0, tag)
    elif RANK == 0:
        room, log = cuda.to_device(np.zeros((3, 5000), np.uint8)), cuda.to_device(np.full(4, -1))
        KERNELS["block"].mixed[1, 32](g.device, room, log)
        g.synchronize()
        assert list(log.copy_to_host()) == [5000, 11, 13, 12], log.copy_to_host()
        for row, tag in enumerate((11, 13, 12)):
            n = sizes[tag]
            same(room.copy_to_host()[row, :n], pattern(n, tag), f"tag {tag}")


def probed_by_hosts(g: gmpi.Context) -> None:
    h, status = g.host, MPI.Status()
    if RANK == 1:
        send_all(g, False)
        h.Recv(np.zeros(0, np.uint8), 0, GO)
    elif RANK == 0:
        for tag in (6, 0, 7, 1, 5, 2, 4, 3):
            n = SIZES[tag]
            found = h.Probe(gmpi.ANY_SOURCE, tag, status=status)
            assert (found.source, found.nbytes) == (1, n) == (
                status.Get_source(), status.Get_count()), (tag, n, found)  # fmt: skip
            assert h.Iprobe(1, tag, status=status) and status.Get_tag() == tag
            room = np.zeros(n, np.uint8)
            h.Recv(room, status.Get_source(), tag)
            same(room, pattern(n + 1, tag)[:n], f"{n} bytes")
        assert not h.Iprobe()
        assert h.Iprobe(gmpi.PROC_NULL)
        raises(gmpi.ArgumentError, "Probe in host: source is 7", lambda: h.Probe(7))
        request = h.Irecv(np.zeros(9, np.uint8), 1, 77)
        request.Cancel()
        assert request.Wait(status).Is_cancelled() and status.Is_cancelled()
        h.Send(np.zeros(0, np.uint8), 1, GO)


def taken_by_hosts(g: gmpi.Context) -> None:
    """What Mprobe has taken nobody else receives, whatever comes and in whatever order it is."""
    h, peer = g.host, (RANK + 1) % SIZE
    lengths = [0, 3, g.layout.eager_bytes, 5 * g.layout.chunk_bytes]
    sends = [h.Isend(pattern(n, k + RANK), peer, 40 + k) for k, n in enumerate(lengths)]
    sends.append(h.Isend(pattern(7, 50), peer, 40))
    source = (RANK - 1) % SIZE
    assert h.Improbe(source, 99) is None
    messages = [h.Mprobe(source, 40 + k) for k in range(len(lengths))]
    room = np.zeros(7, np.uint8)
    assert h.Recv(room, source, 40).nbytes == 7  # the second one with this tag
    same(room, pattern(7, 50), "what was not taken")
    for k, n in reversed(list(enumerate(lengths))):
        assert (messages[k].source, messages[k].tag) == (source, 40 + k)
        room = np.zeros(n + 1, np.uint8)
        status = MPI.Status()
        found = messages[k].Recv(room, status) if k % 2 else messages[k].Irecv(room).Wait(status)
        assert found.nbytes == status.Get_count(MPI.BYTE) == n, (found, n)
        same(room[:n], pattern(n, k + source), f"{n} bytes that were taken")
        text = "the message has been received, allowed is one that has not been received"
        raises(gmpi.ArgumentError, text, lambda k=k: messages[k].Recv(np.zeros(1, np.uint8)))
    h.Waitall(sends)
    sends = [h.Isend(pattern(9, 3), peer, 60)]
    status = MPI.Status()
    message = h.Mprobe(status=status)
    assert (status.Get_source(), status.Get_tag(), status.Get_count(MPI.BYTE)) == (source, 60, 9)
    raises(gmpi.TruncationError, "at most 4 bytes", lambda: message.Recv(np.zeros(4, np.uint8)))
    h.Waitall(sends)
    assert h.Mprobe(gmpi.PROC_NULL).Recv(np.zeros(1)).source == gmpi.PROC_NULL


def taken_by_kernels(g: gmpi.Context) -> None:
    order = np.random.default_rng(4).permutation(len(SIZES))
    for scope, threads in (("block", 32), ("warp", 32), ("block", 20)):
        if RANK == 0:
            rooms = cuda.to_device(np.zeros((len(SIZES), max(SIZES)), np.uint8))
            log = cuda.to_device(np.full((len(SIZES), 7), -1))
            tags = cuda.to_device(order)
            KERNELS[scope].take[1, threads](g.device, 1, tags, rooms, log)
            g.synchronize()
            found, room = log.copy_to_host(), rooms.copy_to_host()
            for i, k in enumerate(order):
                n = SIZES[k]
                assert list(found[i, :6]) == [0, 1, k, n, 0, n], (scope, n, found[i])
                same(room[i, :n], pattern(n, k), f"{n} bytes that were taken")
                assert not room[i, n:].any()
            assert found[0, 6] == 0
        elif RANK == 1:
            sends = [g.host.Isend(pattern(n, k), 0, k) for k, n in enumerate(SIZES)]
            g.host.Waitall(sends)
        WORLD.Barrier()


@cuda.jit
def take_wrongly(ctx, room, log):
    message, status = gmpi.GMPI_Mprobe(ctx, gmpi.PROC_NULL, 1, 0)
    log[0] = message - gmpi.MESSAGE_NO_PROC + status.error
    status = gmpi.GMPI_Mrecv(ctx, room, 8, gmpi.BYTE, message)
    log[1] = status.error + status.count + status.source - gmpi.PROC_NULL
    log[2] = gmpi.GMPI_Mrecv(ctx, room, 8, gmpi.BYTE, gmpi.MESSAGE_NULL).error
    log[3] = gmpi.GMPI_Mrecv(ctx, room, 8, gmpi.BYTE, 77).error
    message, status = gmpi.GMPI_Mprobe(ctx, SIZE, 1, 0)
    log[4] = status.error if message == gmpi.MESSAGE_NULL else -1
    send = gmpi.GMPI_Isend(ctx, room[8:], 8, gmpi.BYTE, 1 - RANK, 50, 0)
    message, status = gmpi.GMPI_Mprobe(ctx, gmpi.ANY_SOURCE, gmpi.ANY_TAG, 0)
    log[5] = gmpi.GMPI_Mrecv(ctx, room, 3, gmpi.BYTE, message).error  # too short
    log[6] = gmpi.GMPI_Mrecv(ctx, room, 8, gmpi.BYTE, message).error  # was received
    log[7] = gmpi.GMPI_Wait(ctx, send).error


def wrong_messages(g: gmpi.Context) -> None:
    if RANK > 1:
        return
    log = cuda.to_device(np.full(8, -1))
    take_wrongly[1, 32](g.device, cuda.to_device(np.zeros(16, np.uint8)), log)
    words = "GMPI_Mrecv in block 0: message is 0x0, allowed is a message of GMPI_Mprobe or "
    raises(gmpi.ArgumentError, words, g.synchronize)
    r = gmpi.ERR_REQUEST
    expected = [0, 0, r, r, gmpi.ERR_RANK, gmpi.ERR_TRUNCATE, r, 0]
    assert list(log.copy_to_host()) == expected, log.copy_to_host()
    assert "each is received once" in g.errors[-1].text, g.errors[-1].text


@cuda.jit
def take_one(ctx):
    gmpi.GMPI_Mprobe(ctx, 1 - RANK, 70, 0)


def never_received() -> None:
    """What was taken and not received is told when the context closes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with gmpi.Context(WORLD, timeout_s=30, eager_bytes=EAGER) as g:
            if RANK < 2:
                requests = [g.host.Isend(pattern(9, 1), 1 - RANK, tag) for tag in (70, 71)]
                take_one[1, 32](g.device)
                g.host.Mprobe(1 - RANK, 71)
                g.host.Waitall(requests)
            WORLD.Barrier()
    if RANK < 2:
        text = str(next(w for w in caught if w.category is gmpi.LeakWarning).message)
        assert "2 messages came but were never received" in text, text
        for tag in (70, 71):
            words = f"{1 - RANK} tag {tag} on COMM_WORLD, which a matched probe has taken"
            assert f"9 bytes from {words}" in text, text


def cancelled(g: gmpi.Context) -> None:
    for scope, n in (("block", 8), ("warp", 200), ("block", 3000)):
        if RANK == 0:
            room, log = cuda.to_device(np.zeros(n, np.uint8)), cuda.to_device(np.full(9, -1))
            KERNELS[scope].cancels[1, 32](g.device, n, room, log)
            words = "GMPI_Cancel in block 0: request is 0x"
            raises(gmpi.ArgumentError, words, g.synchronize)
            expected = [0, 0, 1, 8, 0, n, 0, gmpi.ERR_REQUEST, 0]
            assert list(log.copy_to_host()) == expected, (n, log.copy_to_host())
            same(room, pattern(n, 20), f"{n} bytes")
        elif RANK == 1:
            h = g.host
            h.Recv(np.zeros(0, np.uint8), 0, GO)
            h.Send(np.zeros(8, np.uint8), 0, 21)
            h.Recv(np.zeros(0, np.uint8), 0, GO)
            request = h.Isend(pattern(n, 20), 0, 20)
            h.Send(np.zeros(0, np.uint8), 0, 22)
            request.Wait()
        WORLD.Barrier()


@cuda.jit
def wrong(ctx, room, log):
    log[0] = gmpi.GMPI_Probe(ctx, SIZE, 1, 0).error
    log[1] = gmpi.GMPI_Probe(ctx, 0, -7, 0).error
    there, status = gmpi.GMPI_Iprobe(ctx, 0, 1, 99)
    log[2] = status.error if there else -1
    there, status = gmpi.GMPI_Iprobe(ctx, gmpi.PROC_NULL, 1, 0)
    log[3] = status.error + status.nbytes if there and status.source == gmpi.PROC_NULL else -1
    send = gmpi.GMPI_Isend(ctx, room, 8, gmpi.BYTE, 1 - RANK, 40, 0)
    recv = gmpi.GMPI_Irecv(ctx, room[8:], 8, gmpi.BYTE, 1 - RANK, 40, 0)
    log[4] = gmpi.GMPI_Cancel(ctx, send)
    log[5] = gmpi.GMPI_Cancel(ctx, gmpi.REQUEST_NULL)
    log[6] = gmpi.GMPI_Cancel(ctx, 12345)
    log[7] = gmpi.GMPI_Wait(ctx, send).error + gmpi.GMPI_Wait(ctx, recv).error


def wrong_arguments(g: gmpi.Context) -> None:
    """A class and a text each, and nothing waits."""
    if RANK > 1:
        return
    log = cuda.to_device(np.full(8, -1))
    wrong[1, 32](g.device, cuda.to_device(np.zeros(16, np.uint8)), log)
    words = f"GMPI_Probe in block 0: source is {SIZE}, allowed is 0..{SIZE - 1}, ANY_SOURCE or PROC"
    raises(gmpi.ArgumentError, words, g.synchronize)
    expected = [gmpi.ERR_RANK, gmpi.ERR_TAG, gmpi.ERR_COMM, 0, *[gmpi.ERR_REQUEST] * 3, 0]
    assert list(log.copy_to_host()) == expected, log.copy_to_host()
    texts = [fault.text for fault in g.errors[-6:]]
    assert "GMPI_Iprobe in block 0: communicator is 99" in texts[2], texts
    assert all("sends, collectives and partitioned requests cannot" in t for t in texts[3:]), texts


@cuda.jit
def on_the_direct_road(ctx, room, log):
    log[0] = gmpi.GMPI_Probe(ctx, 1 - RANK, 1, 0).error
    request = gmpi.GMPI_Irecv(ctx, room, 8, gmpi.BYTE, 1 - RANK, 40, 0)
    log[1] = gmpi.GMPI_Cancel(ctx, request)
    gmpi.GMPI_Send(ctx, room[8:], 8, gmpi.BYTE, 1 - RANK, 40, 0)
    log[2] = gmpi.GMPI_Wait(ctx, request).error


def refused(g: gmpi.Context) -> None:
    """On the direct road, with a text; the receive that cannot be cancelled gets its message."""
    log = cuda.to_device(np.full(3, -1))
    on_the_direct_road[1, 32](g.device, cuda.to_device(np.zeros(16, np.uint8)), log)
    words = "GMPI_Probe in block 0: communicator is 0, allowed is one that was registered without "
    raises(gmpi.ArgumentError, words, g.synchronize)
    assert list(log.copy_to_host()) == [gmpi.ERR_COMM, gmpi.ERR_REQUEST, 0], log.copy_to_host()
    words = "Probe in host: communicator 0 was registered with wildcards=False"
    raises(gmpi.ContextError, words, lambda: g.host.Probe(1 - RANK, 1))


def main() -> None:
    assert SIZE >= 2
    if "--direct" in sys.argv:
        with gmpi.Context(WORLD, timeout_s=30, wildcards=False) as g:
            run([refused], g)
    else:
        settings = {"eager_bytes": EAGER, "chunk_bytes": CHUNK, "request_slots": 64}
        with gmpi.Context(WORLD, timeout_s=30, **settings) as g:
            run(
                [
                    probes, order, probed_by_hosts, taken_by_hosts, taken_by_kernels,
                    wrong_messages, cancelled, wrong_arguments,
                ],
                g,
            )  # fmt: skip
        if len(sys.argv) == 1:
            never_received()
    end()


main()
