"""Direct Alltoallv and Alltoallw with IN_PLACE: scenarios of ``exchanges``."""

from __future__ import annotations

import contextlib

import numpy as np
from channel_numbers import move_on
from common import RANK, SIZE, WORLD, barrier, pattern, same
from mpi4py import MPI
from numba import cuda, int32

import gmpi
from gmpi import GMPI_Alltoallv, GMPI_Alltoallw
from gmpi.contract import channels
from gmpi.contract.channels import DEPTH, HALF_TURN


@cuda.jit
def swap(ctx, b, counts, displs, errors):
    for k in range(errors.size):
        errors[k] = GMPI_Alltoallv(
            ctx, gmpi.IN_PLACE, counts[k], displs, gmpi.BYTE, b[k], counts[k], displs, gmpi.BYTE,
            gmpi.COMM_WORLD,
        )  # fmt: skip


def swapped(
    g: gmpi.Context, counts: np.ndarray, threads: int = 32, registered: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """(error classes, what is in the blocks afterwards), of a row of counts for each call. Block r
    of rank k has bytes of ``pattern(..., 9 * k + r)`` before."""
    room = int(counts.max()) + 1
    room = -(-room // 16) * 16
    own = np.stack([pattern(room, 9 * RANK + r) for r in range(SIZE)])
    b = (g.zeros if registered else cuda.device_array)((len(counts), SIZE * room), np.uint8)
    b.copy_to_device(np.ascontiguousarray(np.broadcast_to(own.reshape(-1), b.shape)))
    errors, displs = cuda.to_device(np.full(len(counts), -1)), room * np.arange(SIZE)
    swap[1, threads](g.device, b, cuda.to_device(counts), cuda.to_device(displs), errors)
    with contextlib.suppress(gmpi.TruncationError):
        g.synchronize()
    found = b.copy_to_host().reshape(len(counts), SIZE, room)
    if registered:
        barrier()
        g.unregister(b)
    return errors.copy_to_host(), found


def check(found: np.ndarray, counts: np.ndarray, what: str) -> None:
    """All blocks of one call are those of the other ranks, and what is behind them is as it was."""
    for r, block in enumerate(found):
        n = counts[r]
        same(block[:n], pattern(n, 9 * r + RANK), f"{what}, {n} bytes of {r}")
        same(block[n:], pattern(len(block), 9 * RANK + r)[n:], f"{what}, behind {n} bytes of {r}")


def swaps_of_all_lengths(g: gmpi.Context) -> None:
    """In a slot, in the wide slot, in several rounds. A registered array is none that another rank
    may store to."""
    rounds = 2 * channels.PART_BYTES << channels.LEAST_ROUND
    short = [0, 1, 8, 9, 700, channels.ROOM, channels.ROOM + 16, 65536]
    long = [channels.WIDE_ROOM, channels.WIDE_ROOM + 1, rounds + 77]
    for threads, registered, several in ((20, False, short), (32, True, long), (100, False, short)):
        lengths = np.array(several)
        calls = np.arange(len(lengths))[:, None]
        counts = lengths[(calls + RANK + np.arange(SIZE)) % len(lengths)]
        errors, found = swapped(g, counts, threads, registered)
        same(errors, [0] * len(lengths), "error classes")
        for k, row in enumerate(found):
            check(row, counts[k], f"{threads} threads, call {k}")


def swaps_that_differ(g: gmpi.Context) -> None:
    """An error on a rank whose count is less or more than the other's; what is behind it is right.
    Both ranks of a pair find it."""
    if SIZE == 1:
        return
    for few, many in ((0, 5), (40, 5000), (4, 300000), (200000, 700000)):
        counts = np.full((2, SIZE), 8)
        if RANK < 2:
            counts[0, 1 - RANK] = few if RANK == 0 else many
        before = len(g.errors)
        errors, found = swapped(g, counts)
        wrong = gmpi.ERR_TRUNCATE if RANK < 2 else gmpi.SUCCESS
        assert tuple(errors) == (wrong, gmpi.SUCCESS), (few, many, errors)
        check(found[1], counts[1], "behind it")
        if RANK < 2:
            same(
                found[0, 1 - RANK, :few], pattern(few, 9 * (1 - RANK) + RANK), "there was room for"
            )
            (text,) = (error.text for error in g.errors[before:])
            lengths = (many, few) if RANK == 0 else (few, many)
            assert f"message length is {lengths[0]}, allowed is {lengths[1]} bytes" in text, text
        else:
            assert len(g.errors) == before


def to_higher_ranks(keys: np.ndarray) -> np.ndarray:
    """Of channels of exchanges: those that go from a rank to one with a higher number."""
    peers = keys >> channels.KEY_PEER_SHIFT & channels.KEY_PEERS - 1
    receives = keys >> channels.KEY_RECEIVES_SHIFT & 1
    return (keys >> 62 & 1 == 0) & np.where(receives == 1, peers < RANK, peers > RANK)


def numbers_of_swaps_wrap(g: gmpi.Context) -> None:
    """Those of one way: then a block that comes the quick way is held until the other one, which
    cannot go that way, has gone."""
    swapped(g, np.full((1, SIZE), 8))  # there are channels
    for nbytes, first in ((1000, 2 * HALF_TURN - DEPTH), (channels.ROOM + 5, HALF_TURN - DEPTH)):
        barrier()
        move_on(g, to_higher_ranks, first)
        barrier()
        counts = np.full((2 * DEPTH + 1, SIZE), nbytes)
        errors, found = swapped(g, counts)
        same(errors, [0] * len(counts), "error classes")
        for row in found:
            check(row, counts[0], f"from {first}")


# wide: a kernel
@cuda.jit
def swap_scattered(ctx, b, counts, displs, types, view, same_counts, same_displs, errors):
    """Of datatypes, of a strided view, and in shared memory."""
    w, i = gmpi.COMM_WORLD, gmpi.INT32_T
    errors[0] = GMPI_Alltoallw(
        ctx, gmpi.IN_PLACE, counts, displs, types, b, counts, displs, types, w
    )
    errors[1] = GMPI_Alltoallv(
        ctx, gmpi.IN_PLACE, same_counts, same_displs, i, view[::2], same_counts, same_displs, i, w
    )
    shared, one = cuda.shared.array(8, int32), cuda.shared.array(8, int32)
    order = cuda.shared.array(8, int32)
    if cuda.threadIdx.x < 8:
        shared[cuda.threadIdx.x] = 10 * RANK + cuda.threadIdx.x
        one[cuda.threadIdx.x], order[cuda.threadIdx.x] = 1, cuda.threadIdx.x
    cuda.syncthreads()
    errors[2] = GMPI_Alltoallv(ctx, gmpi.IN_PLACE, one, order, i, shared, one, order, i, w)
    if cuda.threadIdx.x < 8:
        view[2 * cuda.threadIdx.x + 1] = shared[cuda.threadIdx.x]


def swaps_of_what_is_scattered(g: gmpi.Context) -> None:
    """Blocks that do not lie in one piece, short and in rounds, at both ends or at one."""
    vector = MPI.INT32_T.Create_vector(3, 1, 2).Create_resized(0, 24).Commit()
    kinds = [(vector, g.commit(vector), 24, 3), (MPI.INT32_T, gmpi.INT32_T, 4, 1)]
    for units in (3, 30, 2100):
        mine = [kinds[(RANK + r + (r < RANK)) % 2] for r in range(SIZE)]
        counts = np.array([units // kind[3] for kind in mine])
        extents = np.array([n * kind[2] for n, kind in zip(counts, mine)])
        displs = np.cumsum([0, *extents[:-1]])
        content = np.arange(sum(extents) // 4, dtype=np.int32) + RANK * 10**7
        wanted = content.copy()
        types = [kind[0] for kind in mine]
        WORLD.Alltoallw(MPI.IN_PLACE, [wanted, (counts.tolist(), displs.tolist()), types])
        flat = np.arange(units * SIZE + 8, dtype=np.int32)
        view = np.full((len(flat), 2), -1, np.int32)
        view[:, 0] = flat + RANK * 10**7
        arrays = [
            content, counts, displs, np.array([kind[1] for kind in mine]), view.reshape(-1),
            np.full(SIZE, units), units * np.arange(SIZE), np.full(3, -1),
        ]  # fmt: skip
        b, *others, errors = (cuda.to_device(array) for array in arrays)
        swap_scattered[1, 64](g.device, b, *others, errors)
        g.synchronize()
        same(errors, [0] * 3, "error classes")
        same(b, wanted, f"{units} integers a block")
        for r in range(SIZE):
            own = flat[RANK * units : RANK * units + units]
            view[r * units : r * units + units, 0] = own + r * 10**7
        view[:8, 1] = [10 * r + RANK for r in range(SIZE)] + list(
            range(10 * RANK + SIZE, 10 * RANK + 8)
        )
        same(others[3], view.reshape(-1), f"{units} integers of a view")
    g.free(kinds[0][1])
    vector.Free()


SCENARIOS = [
    swaps_of_all_lengths, swaps_that_differ, numbers_of_swaps_wrap, swaps_of_what_is_scattered,
]  # fmt: skip
