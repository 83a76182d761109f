"""Collectives that do not block and do not end well; ``direct_pending`` runs these, too."""

from __future__ import annotations

import contextlib
import threading
import warnings

import numpy as np
from common import RANK, SIZE, WORLD, barrier, raises
from numba import cuda, int64

import gmpi
from gmpi import (
    GMPI_Iallreduce,
    GMPI_Ibarrier,
    GMPI_Ibcast,
    GMPI_Test,
    GMPI_Testall,
    GMPI_Testany,
    GMPI_Wait,
    GMPI_Waitany,
)
from gmpi.contract.wire import DEVICE_PENDING

THREADS = 32 if gmpi.SIMULATOR else 256
N = 3  # numbers of a call


@cuda.jit
def calls_of(ctx, mine, rooms, n, op, comm, errors):
    a = GMPI_Iallreduce(ctx, mine[0], rooms[0], N, gmpi.INT64_T, gmpi.SUM, comm)
    b = GMPI_Iallreduce(ctx, mine[1], rooms[1], n, gmpi.INT64_T, op, comm)
    c = GMPI_Iallreduce(ctx, mine[2], rooms[2], N, gmpi.INT64_T, gmpi.SUM, comm)
    errors[2] = GMPI_Wait(ctx, c).error
    errors[1] = GMPI_Wait(ctx, b).error
    errors[0] = GMPI_Wait(ctx, a).error
    errors[3] = GMPI_Wait(ctx, GMPI_Ibarrier(ctx, comm)).error


def that_differ(g: gmpi.Context) -> None:
    """End with an error that names both; those before are right, later ones are refused."""
    if SIZE == 1:
        return
    odd = RANK == SIZE - 1
    for n, op, said in (
        (N - 1 if odd else N, gmpi.SUM, "GMPI_Iallreduce SUM of 2 INT64_T"),
        (N, gmpi.MAX if odd else gmpi.SUM, "GMPI_Iallreduce MAX of 3"),
    ):
        other = WORLD.Dup()
        comm = g.comm(other, wildcards=False)
        mine = np.arange(3 * N, dtype=np.int64).reshape(3, N)
        given, rooms = cuda.to_device(mine), cuda.to_device(0 * mine)
        errors = cuda.to_device(np.zeros(4, np.int64))
        calls_of[1, THREADS](g.device, given, rooms, n, op, comm, errors)
        text = ""
        try:
            g.synchronize()
        except gmpi.GMPIError as exc:
            text = str(exc)
        assert said in text, text
        found = errors.copy_to_host()
        assert found.tolist() == [0, gmpi.ERR_OTHER, gmpi.ERR_OTHER, gmpi.ERR_OTHER], found
        np.testing.assert_array_equal(rooms.copy_to_host()[0], SIZE * mine[0])
        assert g._memory.read_device(DEVICE_PENDING, 8).view(np.int64)[0] == 0
        barrier()
        g.free(comm)
        other.Free()


@cuda.jit
def bcast_and_others(ctx, room, n, root, comm, errors):
    GMPI_Ibcast(ctx, room, n, gmpi.INT64_T, root, comm)
    GMPI_Ibcast(ctx, room, N, gmpi.INT64_T, root, comm)
    c = GMPI_Iallreduce(ctx, gmpi.IN_PLACE, room, N, gmpi.INT64_T, gmpi.SUM, comm)
    errors[0] = GMPI_Wait(ctx, c).error
    errors[1] = GMPI_Wait(ctx, GMPI_Ibarrier(ctx, comm)).error


def a_bcast_that_differs(g: gmpi.Context) -> None:
    """On a rank from which the others need nothing in it: they see it in a later call."""
    if SIZE == 1:
        return
    other = WORLD.Dup()
    comm = g.comm(other, wildcards=False)
    room, errors = cuda.to_device(np.ones(N, np.int64)), cuda.to_device(np.zeros(2, np.int64))
    n = N - 1 if RANK == SIZE - 1 else N
    bcast_and_others[1, THREADS](g.device, room, n, 0, comm, errors)
    text = ""
    try:
        g.synchronize()
    except gmpi.GMPIError as exc:
        text = str(exc)
    first, second = errors.copy_to_host().tolist()
    assert "GMPI_Ibcast of 16 bytes from root 0" in text, (text, first, second)
    # The Iallreduce had been started by all, and may have come to its end on others.
    assert first == gmpi.ERR_OTHER or (RANK != SIZE - 1 and first == gmpi.SUCCESS), first
    assert second == gmpi.ERR_OTHER, second
    barrier()
    g.free(comm)
    other.Free()


@cuda.jit
def wrong_calls(ctx, room, found):
    found[0] = GMPI_Wait(ctx, GMPI_Ibcast(ctx, room, 1, gmpi.INT64_T, 77, 0)).error
    found[1] = GMPI_Wait(
        ctx, GMPI_Iallreduce(ctx, gmpi.IN_PLACE, room, 1, gmpi.INT64_T, 77, 0)
    ).error
    found[2] = GMPI_Wait(
        ctx, GMPI_Iallreduce(ctx, gmpi.IN_PLACE, room, -1, gmpi.INT64_T, gmpi.SUM, 0)
    ).error
    found[3] = GMPI_Wait(ctx, GMPI_Ibcast(ctx, room, 99, gmpi.INT64_T, 0, 0)).error
    found[4] = GMPI_Wait(
        ctx, GMPI_Iallreduce(ctx, gmpi.IN_PLACE, room, 1, gmpi.INT64_T, gmpi.SUM, 0)
    ).error


def bad_arguments(g: gmpi.Context) -> None:
    """Are refused on each rank by itself, and nothing is counted."""
    room, found = cuda.to_device(np.ones(3, np.int64)), cuda.to_device(np.zeros(5, np.int64))
    wrong_calls[1, THREADS](g.device, room, found)
    raises(gmpi.ArgumentError, "root is 77", g.synchronize)
    expected = [gmpi.ERR_ROOT, gmpi.ERR_OP, gmpi.ERR_COUNT, gmpi.ERR_BUFFER, gmpi.SUCCESS]
    assert found.copy_to_host().tolist() == expected, found.copy_to_host()
    assert room.copy_to_host()[0] == SIZE


@cuda.jit
def look_until_over(ctx, how, reduces, errors):
    """In one of the ways in which a program may wait without GMPI_Wait; the last one is that."""
    requests = cuda.local.array(1, int64)
    if reduces:
        requests[0] = GMPI_Iallreduce(
            ctx, gmpi.IN_PLACE, errors, 2, gmpi.INT64_T, gmpi.MAX, gmpi.COMM_WORLD
        )
    else:
        requests[0] = GMPI_Ibarrier(ctx, gmpi.COMM_WORLD)
    done = False
    error = gmpi.SUCCESS
    while not done:
        if how == 0:
            done, status = GMPI_Test(ctx, requests[0])
            error = status.error
        elif how == 1:
            done, error = GMPI_Testall(ctx, 1, requests)
        elif how == 2:
            _, done, status = GMPI_Testany(ctx, 1, requests)
            error = status.error
        elif how == 3:
            error = GMPI_Waitany(ctx, 1, requests)[1].error
            done = True
        else:
            error = GMPI_Wait(ctx, requests[0]).error
            done = True
    errors[0] = error


def aborted_while_they_are_tested() -> None:
    """An abort ends tests, and waits for any, as it ends waits."""
    if SIZE == 1:
        return
    for how in range(4):
        with contextlib.suppress(gmpi.AbortedError), gmpi.Context(WORLD, wildcards=False) as g:
            if RANK == 0:  # the others never come
                errors = cuda.to_device(np.zeros(2, np.int64))
                threading.Timer(0.3, g.abort).start()
                look_until_over[1, THREADS](g.device, how, False, errors)
                raises(gmpi.AbortedError, "aborted", g.synchronize)
                assert errors.copy_to_host()[0] == gmpi.GMPI_ERR_ABORTED, (how, errors[0])
            barrier()
            if RANK != 0:
                g.abort()
        barrier()


def tested_for_too_long() -> None:
    """Is named, and ends by the time limit, as what is waited for."""
    if SIZE == 1:
        return
    barrier_words = "GMPI_Ibarrier on COMM_WORLD (0 bytes, block 0"
    reduction = "GMPI_Iallreduce, 2 INT64_T MAX on COMM_WORLD (16 bytes, block 0"
    for how, words in ((0, barrier_words), (3, reduction), (4, reduction)):
        with gmpi.Context(WORLD, wildcards=False, watchdog_s=0, timeout_s=0.8) as g:
            if RANK == 0:
                errors = cuda.to_device(np.zeros(2, np.int64))
                look_until_over[1, THREADS](g.device, how, words == reduction, errors)
                report = raises(gmpi.RequestTimeoutError, "", g.synchronize).report
                assert words in report.text and report.causes, report.text
                assert errors.copy_to_host()[0] == gmpi.GMPI_ERR_TIMEOUT
            barrier()


@cuda.jit
def forgets(ctx, room):
    GMPI_Iallreduce(ctx, gmpi.IN_PLACE, room, 1, gmpi.INT64_T, gmpi.SUM, 0)


def never_waited_for() -> None:
    """Is named when the context closes."""
    if not gmpi.SIMULATOR:
        return
    room = cuda.to_device(np.ones(1, np.int64))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with gmpi.Context(WORLD, wildcards=False) as g:
            forgets[1, 32](g.device, room)
            g.synchronize()
    texts = [str(w.message) for w in said]
    wanted = "1 collectives were never waited for: GMPI_Iallreduce SUM of 1 INT64_T"
    assert any(wanted in text for text in texts), texts


#: Scenarios that end the context, or need one of their own.
OF_A_CONTEXT = [aborted_while_they_are_tested, tested_for_too_long, never_waited_for]
