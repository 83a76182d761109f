"""Where no receive uses ANY_TAG, messages are spread over duplicates, and nothing else changes."""

from __future__ import annotations

import sys
import time
import warnings

import numpy as np
from common import RANK, SIZE, WORLD, end, in_thread, pattern, raises, run, same
from mpi4py import MPI
from script import Script

import gmpi
from gmpi import communicators
from gmpi.contract.rules import TAG_DUPLICATES, duplicate_of
from gmpi.diagnose.tables import ranks_text
from gmpi.observe import report
from host_proxy.platform.duplicate import Duplicate

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE
UB = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)
TAGS = [*range(12), 64, 4096, UB - 1, UB]
KEY = "mpi_assert_no_any_tag"
ADVICE = (
    f"the communicator was registered with no_any_tag or wildcards=False, or with {KEY} in its "
    "info: name the tag, or register it without"
)


def duplicate(tag: int) -> int:
    return duplicate_of(tag, TAG_DUPLICATES - 1)


def lengths(g: gmpi.Context) -> list[int]:
    """Inline, in small staging, and in chunks."""
    eager = g.layout.eager_bytes
    return [8, 0, 144, 145, eager, eager + 1, 5 * eager]


# --- messages -------------------------------------------------------------------------------------


def all_duplicates_are_used(g: gmpi.Context) -> None:
    """Otherwise what follows would pass without them. Reports look at each of them."""
    assert {duplicate(tag) for tag in TAGS} == set(range(TAG_DUPLICATES))
    duplicates = g._state.communicators[gmpi.COMM_WORLD].all_messages
    assert len(duplicates) == TAG_DUPLICATES
    sends = [g.host.Isend(pattern(8, tag), NEXT, tag) for tag in TAGS]
    for tag in TAGS:
        limit = time.monotonic() + 10
        while not duplicates[duplicate(tag)].Iprobe(PREVIOUS, tag):
            assert time.monotonic() < limit, f"tag {tag} is not on duplicate {duplicate(tag)}"
    first = {duplicate(tag): tag for tag in reversed(TAGS)}
    found = report.unexpected(g._state, g._communicators.groups)
    assert sorted(m.tag for m in found) == sorted(first.values()), found
    room = np.zeros(8, np.uint8)
    for tag in reversed(TAGS):
        assert g.host.Recv(room, PREVIOUS, tag).tag == tag
        same(room, pattern(8, tag), f"tag {tag}")
    g.host.Waitall(sends)


def kernel_to_kernel(g: gmpi.Context) -> None:
    """Two messages of each tag, of all lengths: in order within a tag, in any order of the tags."""
    mixed = np.random.default_rng(7).permutation(len(TAGS)).tolist()
    some = lengths(g)
    for source in (PREVIOUS, gmpi.ANY_SOURCE):
        s = Script()
        received = []
        for k in mixed:
            for second in (0, 1):
                n = some[(k + 3 * second) % len(some)]
                room = s.room(n)
                request = s.irecv(room, n, gmpi.BYTE, source, TAGS[k])
                received.append((request, room, n, TAGS[k], 2 * k + second))
        sends = []
        for second in (0, 1):
            for k, tag in enumerate(TAGS):
                n = some[(k + 3 * second) % len(some)]
                out = s.data(pattern(n, 100 * RANK + 2 * k + second))
                sends.append(s.isend(out, n, gmpi.BYTE, NEXT, tag))
        waits = [s.wait(request) for request, *_ in received]
        sent = s.waitall(sends)
        s.run(g)
        assert sent.error == gmpi.SUCCESS
        for wait, (_, room, n, tag, seed) in zip(waits, received):
            assert wait.status == (gmpi.SUCCESS, PREVIOUS, tag, n, n), wait.status
            s.expect(room, pattern(n, 100 * PREVIOUS + seed), f"tag {tag}")


def kernel_and_host(g: gmpi.Context) -> None:
    """Kernels and hosts send to each other: compiled code and Python choose the same duplicate."""
    some = lengths(g)
    length = {tag: some[k // 2 % len(some)] for k, tag in enumerate(TAGS)}
    for to_host, to_kernel in ((TAGS[::2], TAGS[1::2]), (TAGS[1::2], TAGS[::2])):
        s = Script()
        rooms = [s.room(length[tag]) for tag in to_kernel]
        opened = [
            s.irecv(room, length[tag], gmpi.BYTE, gmpi.ANY_SOURCE, tag)
            for room, tag in zip(rooms, to_kernel)
        ]
        opened += [
            s.isend(s.data(pattern(length[tag], RANK + tag)), length[tag], gmpi.BYTE, NEXT, tag)
            for tag in to_host
        ]
        done = s.waitall(opened)
        arrays = [np.zeros(length[tag], np.uint8) for tag in to_host]
        receives = [g.host.Irecv(a, PREVIOUS, tag) for a, tag in zip(arrays, to_host)]
        sends = [g.host.Isend(pattern(length[tag], RANK + tag), NEXT, tag) for tag in to_kernel]
        both = receives + sends
        in_thread(lambda both=both: g.host.Waitall(both), lambda s=s: s.run(g))
        assert done.error == gmpi.SUCCESS
        for tag, room, status in zip(to_kernel, rooms, done.statuses):
            n = length[tag]
            assert status == (gmpi.SUCCESS, PREVIOUS, tag, n, n), status
            s.expect(room, pattern(n, PREVIOUS + tag), f"tag {tag} from the host")
        for tag, array in zip(to_host, arrays):
            same(array, pattern(length[tag], PREVIOUS + tag), f"tag {tag} from the kernel")


def derived_datatypes(g: gmpi.Context) -> None:
    """A column of a kernel's or a host's array, to a kernel and to a host, short and long."""
    for rows in (5, 4000):
        grid = np.arange(rows * 6, dtype=np.int32).reshape(rows, 6)
        datatype = MPI.INT32_T.Create_vector(rows, 1, 6)
        column = g.commit(datatype)
        s = Script()
        room = s.room(4 * rows)
        from_host = s.irecv(room, rows, gmpi.INT32_T, PREVIOUS, 3)
        to_host = s.isend(s.data(grid + RANK), 1, column, NEXT, UB)
        s.waitall([from_host, to_host])
        flat = np.zeros(rows, np.int32)
        both = [g.host.Irecv(flat, PREVIOUS, UB), g.host.Isend([grid - RANK, 1, datatype], NEXT, 3)]
        in_thread(lambda both=both: g.host.Waitall(both), lambda s=s: s.run(g))
        s.expect(room, grid[:, 0] - PREVIOUS, "a column of the host")
        same(flat, grid[:, 0] + PREVIOUS, "a column of the kernel")
        g.free(column)
        datatype.Free()


def collectives_stay(g: gmpi.Context) -> None:
    for n in (1, g.layout.eager_bytes):  # in the compiled engine, and in Python
        s = Script()
        total = s.room(4 * n)
        s.allreduce(s.data(np.full(n, RANK, np.int32)), total, n, gmpi.INT, gmpi.SUM)
        s.barrier()
        s.run(g)
        s.expect(total, np.full(n, sum(range(SIZE)), np.int32), f"{n} ints")


# --- ANY_TAG --------------------------------------------------------------------------------------


def refused_in_a_kernel(g: gmpi.Context, comm: int = gmpi.COMM_WORLD) -> None:
    """ERR_TAG, also where there would be nobody to receive from; the message goes on."""
    for source in (PREVIOUS, gmpi.ANY_SOURCE, gmpi.PROC_NULL):
        s = Script()
        room = s.room(300)
        good = s.irecv(room, 300, gmpi.BYTE, PREVIOUS, 9, comm)
        wrong = s.recv(s.room(16), 4, gmpi.FLOAT, source, gmpi.ANY_TAG, comm)
        s.send(s.data(pattern(300, RANK)), 300, gmpi.BYTE, NEXT, 9, comm)
        done = s.wait(good)
        s.launch(g)
        exc = raises(gmpi.ArgumentError, ADVICE, lambda s=s: s.collect(g))
        shown = {gmpi.ANY_SOURCE: "ANY_SOURCE", gmpi.PROC_NULL: "PROC_NULL"}.get(source, source)
        assert str(exc) == (
            f"GMPI_Recv in block 0: tag is ANY_TAG, allowed is 0..{UB}; {ADVICE} "
            f"[peer {shown}, tag ANY_TAG, communicator {comm}, count 4 of FLOAT]"
        ), exc
        assert (exc.field, exc.value, exc.error_class) == ("tag", "ANY_TAG", gmpi.ERR_TAG)
        s.collect(g)
        assert wrong.error == gmpi.ERR_TAG, wrong.status
        assert done.status == (gmpi.SUCCESS, PREVIOUS, 9, 300, 300), done.status
        s.expect(room, pattern(300, PREVIOUS))
        assert g.pending == []


def refused_for_the_host(g: gmpi.Context) -> None:
    b = np.zeros(8, np.uint8)
    for call, name, shown in (
        (lambda: g.host.Irecv(b), "Irecv", "ANY_SOURCE"),
        (lambda: g.host.Recv(b, PREVIOUS), "Recv", PREVIOUS),
        (lambda: g.host.Recv(b, gmpi.PROC_NULL), "Recv", "PROC_NULL"),
        (lambda: g.host.Sendrecv(b, NEXT, 1, b.copy(), PREVIOUS), "Sendrecv", PREVIOUS),
    ):
        exc = raises(gmpi.ArgumentError, ADVICE, call)
        assert str(exc) == (
            f"{name} in host: tag is ANY_TAG, allowed is 0..{UB}; {ADVICE} "
            f"[peer {shown}, tag ANY_TAG, communicator 0]"
        ), exc
        assert (exc.field, exc.error_class, exc.block) == ("tag", gmpi.ERR_TAG, -1)
    g.host.Barrier()


def takes_any_tag(g: gmpi.Context, comm: int) -> None:
    assert g._state.communicators[comm].all_messages == (g._state.communicators[comm].messages,)
    s = Script()
    room = s.room(8)
    received = s.irecv(room, 8, gmpi.BYTE, gmpi.ANY_SOURCE, gmpi.ANY_TAG, comm)
    s.send(s.data(pattern(8, RANK)), 8, gmpi.BYTE, NEXT, 77, comm)
    done = s.wait(received)
    s.run(g)
    assert done.status == (gmpi.SUCCESS, PREVIOUS, 77, 8, 8), done.status
    s.expect(room, pattern(8, PREVIOUS))


def each_communicator_for_itself(g: gmpi.Context) -> None:
    """By keyword, and by the info key of MPI 4.1 where the MPI library returns it (MPICH does)."""
    info = MPI.Info.Create({KEY: "true"})
    plain, hinted = WORLD.Dup(), WORLD.Dup(info)
    back = hinted.Get_info()
    known = back.Get(KEY) == "true"
    assert known or "MPICH" not in MPI.Get_library_version()
    takes_any_tag(g, g.comm(plain))
    takes_any_tag(g, g.comm(hinted, no_any_tag=False))
    refused_in_a_kernel(g, g.comm(plain, no_any_tag=True))
    (refused_in_a_kernel if known else takes_any_tag)(g, g.comm(hinted))
    for freed in (info, back, plain, hinted):
        freed.Free()


# --- opening and closing --------------------------------------------------------------------------


def ranks_differ() -> None:
    """Nothing would match: refused on all ranks, and nothing is broken by it."""
    if SIZE == 1:
        return
    mine = RANK != 1
    others = ranks_text([rank for rank in range(SIZE) if rank != 1])
    text = (
        f"no_any_tag, or {KEY} in the communicator's info, is True on {others} and False on rank "
        "1; it must be the same on all ranks of the communicator"
    )
    exc = raises(gmpi.ContextError, text, lambda: gmpi.Context(WORLD, no_any_tag=mine))
    assert str(exc) == text, exc
    with gmpi.Context(WORLD) as g:
        exc = raises(gmpi.ContextError, text, lambda: g.comm(WORLD, no_any_tag=mine))
        assert str(exc) == text, exc
        takes_any_tag(g, gmpi.COMM_WORLD)


class Scarce(MPI.Intracomm):
    """Duplicates of which MPI makes only a few; counts those that are not freed."""

    left = 0
    alive = 0

    def Dup(self, info: MPI.Info | None = None) -> MPI.Intracomm:
        if Scarce.left == 0:
            raise MPI.Exception(MPI.ERR_OTHER)
        Scarce.left -= 1
        Scarce.alive += 1
        return super().Dup(info)


class Counted(Duplicate):
    """What the context makes of them."""

    def Free(self) -> None:
        Scarce.alive -= 1
        super().Free()


def out_of_communicators() -> None:
    """What was made of a registration that fails half way is freed; the context goes on."""
    with gmpi.Context(WORLD, gpu=False) as g:
        communicators.Duplicate = Counted
        Scarce.left = TAG_DUPLICATES
        scarce = Scarce(WORLD)
        told = f"takes {TAG_DUPLICATES + 1} duplicates, MPI made {TAG_DUPLICATES}"
        raises(gmpi.ContextError, told, lambda: g.comm(scarce, no_any_tag=True))
        assert Scarce.left == Scarce.alive == 0, Scarce.alive
        Scarce.left = 2
        handle = g.comm(scarce)
        assert (Scarce.alive, handle) == (2, 1), Scarce.alive
        g.host.Sendrecv(pattern(8, RANK), NEXT, 5, np.zeros(8, np.uint8), PREVIOUS, 5, comm=handle)
    communicators.Duplicate = Duplicate
    assert Scarce.alive == 0


def left_behind() -> None:
    """Closing finds messages that nobody received on every duplicate."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with gmpi.Context(WORLD, gpu=False, no_any_tag=True) as g:
            sends = [g.host.Isend(pattern(8, tag), NEXT, tag) for tag in TAGS]
            for tag in TAGS:
                communicator = g._state.communicators[gmpi.COMM_WORLD]
                communicator.messages_of(tag).Probe(PREVIOUS, tag)
    told = "".join(str(w.message) for w in caught)
    assert f"{len(TAGS)} messages came but were never received" in told, told
    for send in sends:
        send._waits_for.Wait()


def main() -> None:
    settings = {"eager_bytes": 256, "chunk_bytes": 512} if "--small" in sys.argv else {}
    with gmpi.Context(WORLD, no_any_tag=True, **settings) as g:
        scenarios = [
            all_duplicates_are_used, kernel_to_kernel, kernel_and_host, derived_datatypes,
            collectives_stay, refused_in_a_kernel, refused_for_the_host,
            each_communicator_for_itself,
        ]  # fmt: skip
        run(scenarios, g)
    run([ranks_differ, out_of_communicators, left_behind])
    end()


main()
