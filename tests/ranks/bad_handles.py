"""Handles that nobody gave out, and counts that arrays have no room for: every call refuses them,
and no request that is open is harmed.

Open requests of several kinds wait meanwhile, of the proxied road or, with ``--direct``, of the
direct one. Handles are those of these requests with one bit turned, or two, and random ones. The
first calls come before there is any request at all.
"""

from __future__ import annotations

import sys

import numpy as np
from common import RANK, WORLD, end, every_shape, raises, run
from numba import cuda

import gmpi
from gmpi import (
    GMPI_Irecv,
    GMPI_Isend,
    GMPI_Parrived,
    GMPI_Pready,
    GMPI_Pready_list,
    GMPI_Request_free,
    GMPI_Start,
    GMPI_Startall,
    GMPI_Test,
    GMPI_Testall,
    GMPI_Testany,
    GMPI_Testsome,
    GMPI_Wait,
    GMPI_Waitall,
    GMPI_Waitall_grid,
    GMPI_Waitall_warp,
    GMPI_Waitany,
    GMPI_Waitsome,
)
from gmpi.contract.wire import HANDLE_ERROR_SHIFT, LISTED

DIRECT = "--direct" in sys.argv[1:]
CALLS = 8
SIZES = (4, 700, 5000, 300_000)  # short, of a cell, in the wide slot, in rounds


@cuda.jit(device=True)
def try_all(ctx, handle, found, i):
    """What each call says to a handle."""
    two = cuda.local.array(2, np.int64)
    two[0] = two[1] = handle
    found[0, i] = GMPI_Start(ctx, handle)
    found[1, i] = GMPI_Pready(ctx, 0, handle)
    found[2, i] = GMPI_Parrived(ctx, handle, 0)
    found[3, i] = GMPI_Wait(ctx, handle).error
    _, status = GMPI_Test(ctx, handle)
    found[4, i] = status.error
    _, status = GMPI_Waitany(ctx, 2, two)
    found[5, i] = status.error
    two[0] = two[1] = handle
    found[6, i] = GMPI_Waitall(ctx, 2, two)
    found[7, i] = GMPI_Request_free(ctx, handle)


@cuda.jit
def alone(ctx, handles, found):
    for i in range(handles.size):
        try_all(ctx, handles[i], found, i)


@cuda.jit
def beside(ctx, out, back, sizes, handles, turns, found, errors):
    """Receives are open, whose handles come before the others in ``handles``. Each of these is
    tried with some bits turned, unless that is another request's. Then the messages are sent, and
    must come."""
    at = 0
    for i in range(sizes.size):
        part = back[at : at + sizes[i]]
        handles[i] = GMPI_Irecv(ctx, part, sizes[i], gmpi.BYTE, 0, 10 + i, gmpi.COMM_WORLD)
        at += sizes[i]
    cuda.syncthreads()
    for i in range(handles.size):
        for turn in range(turns.size):
            handle = handles[i] ^ turns[turn]
            theirs = False
            for k in range(handles.size):
                theirs = theirs or handles[k] == handle
            if not theirs:
                try_all(ctx, handle, found, i * turns.size + turn)
    at = 0
    for i in range(sizes.size):
        part = out[at : at + sizes[i]]
        send = GMPI_Isend(ctx, part, sizes[i], gmpi.BYTE, 0, 10 + i, gmpi.COMM_WORLD)
        errors[i] = GMPI_Wait(ctx, handles[i]).error
        errors[i] += GMPI_Wait(ctx, send).error
        at += sizes[i]


def check(g: gmpi.Context, given: np.ndarray, found: np.ndarray) -> None:
    """All were refused, but for those that say that no request was opened, and how that ended."""
    error = raises(gmpi.ArgumentError, "request is", g.synchronize)
    assert error.error_class == gmpi.ERR_REQUEST, error
    for i, handle in enumerate(given.tolist()):
        expected = [gmpi.ERR_REQUEST] * CALLS
        expected[2] = 1  # Parrived: nothing to wait for
        if handle >> HANDLE_ERROR_SHIFT == 1:
            expected[3:] = [handle & 0xFF] * 5
        elif handle == gmpi.REQUEST_NULL:
            expected[3:7] = [gmpi.SUCCESS] * 4
        said = found[:, i].tolist()
        assert said == expected, (hex(handle & (1 << 64) - 1), said, expected)


def without_any_request(g: gmpi.Context) -> None:
    rng, count = np.random.default_rng(RANK), 40 if every_shape() else 10
    words = rng.integers(0, 1 << 64, count, np.uint64, endpoint=False)
    kinds = rng.integers(0, 32, count, np.uint64) << np.uint64(59)
    slots = rng.integers(0, 1 << 12, count, np.uint64) << np.uint64(32)
    handles = np.concatenate([np.array([0, 1], np.uint64), words, kinds | slots]).astype(np.int64)
    found = cuda.to_device(np.full((CALLS, handles.size), -1, np.int64))
    alone[1, 32](g.device, cuda.to_device(handles), found)
    check(g, handles, found.copy_to_host())


def beside_open_requests(g: gmpi.Context) -> None:
    total, rng = sum(SIZES), np.random.default_rng(RANK)
    out, back = (np.arange(total) % 251).astype(np.uint8), cuda.to_device(np.zeros(total, np.uint8))
    buffer = cuda.to_device(np.zeros(8))
    kept = [make(buffer, 2, 4, gmpi.DOUBLE, 0, 30) for make in (g.Psend_init, g.Precv_init)]
    ones = np.uint64(1) << np.arange(64, dtype=np.uint64)
    turns = np.concatenate([ones, ones ^ rng.permutation(ones)]) if every_shape() else ones
    turns = turns[turns != 0].astype(np.int64)
    handles = cuda.to_device(np.array([0] * len(SIZES) + kept, np.int64))
    found = np.full((CALLS, handles.size * turns.size), -1, np.int64)
    found, errors = cuda.to_device(found), cuda.to_device(np.full(len(SIZES), -1, np.int64))
    sizes = cuda.to_device(np.array(SIZES, np.int64))
    out, turns = cuda.to_device(out), cuda.to_device(turns)
    beside[1, 32](g.device, out, back, sizes, handles, turns, found, errors)
    opened = handles.copy_to_host()
    given = (opened[:, None] ^ turns.copy_to_host()).ravel()
    tried = ~np.isin(given, opened)
    check(g, given[tried], found.copy_to_host()[:, tried])
    assert errors.copy_to_host().tolist() == [0] * len(SIZES), errors.copy_to_host()
    assert (back.copy_to_host() == out.copy_to_host()).all()
    for request in kept:
        g.Request_free(request)


@cuda.jit
def too_many(ctx, count, partitioned, indices, statuses, found, behind):
    """The array has three elements; what lies behind it is not to be touched."""
    room = cuda.shared.array(4, np.int64)
    if cuda.threadIdx.x < 4:
        room[cuda.threadIdx.x] = gmpi.REQUEST_NULL if cuda.threadIdx.x < 3 else 77
    cuda.syncthreads()
    three = room[:3]
    found[0] = GMPI_Waitall(ctx, count, three)
    _, status = GMPI_Waitany(ctx, count, three)
    found[1] = status.error
    _, found[2] = GMPI_Testall(ctx, count, three)
    _, _, status = GMPI_Testany(ctx, count, three)
    found[3] = status.error
    _, found[4] = GMPI_Testsome(ctx, count, three, indices)
    _, found[5] = GMPI_Waitsome(ctx, count, three, indices)
    found[6] = GMPI_Startall(ctx, count, three)
    found[7] = GMPI_Pready_list(ctx, count, three, partitioned)
    found[8] = GMPI_Waitall(ctx, count, (three[0], three[1], three[2]))
    found[9] = GMPI_Waitall_warp(ctx, count, three)
    found[10] = GMPI_Waitall_grid(ctx, count, three)
    # Fewer statuses than requests.
    found[11] = GMPI_Waitall(ctx, 3, three, statuses[:2])
    _, found[12] = GMPI_Testall(ctx, 3, three, statuses[:2])
    behind[0] = room[3]


def counts_without_room(g: gmpi.Context) -> None:
    indices, behind = (cuda.to_device(np.zeros(3, np.int64)) for _ in range(2))
    statuses = cuda.to_device(np.zeros((3, 5), np.int64))
    for count in (4, -1, 1 << 40):
        found = cuda.to_device(np.full(13, -1, np.int64))
        too_many[1, 32](g.device, count, 0, indices, statuses, found, behind)
        error = raises(gmpi.ArgumentError, "count is", g.synchronize)
        assert error.error_class == gmpi.ERR_COUNT, error
        assert (found.copy_to_host() == gmpi.ERR_COUNT).all(), found.copy_to_host()
        assert behind.copy_to_host()[0] == 77
        texts = [str(fault) for fault in g.errors]
        for name in LISTED:
            wanted = f"GMPI_{name} in block 0: count is {count}, allowed is 0..3; its arrays"
            assert any(wanted in text for text in texts), (wanted, texts)
        assert any("count is 3, allowed is 0..2; its arrays" in text for text in texts), texts


def main() -> None:
    own = WORLD.Split(RANK, 0)  # each rank by itself, to itself
    with gmpi.Context(own, wildcards=not DIRECT, watchdog_s=0) as g:
        run([without_any_request, beside_open_requests, counts_without_room], g)
    end()


main()
