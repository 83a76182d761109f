"""Long messages of the direct road into registered arrays; ``direct`` runs these."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
from common import RANK, SIZE, WORLD, barrier, pattern, raises
from numba import cuda, int64

import gmpi
from device_lib.proxied.slots import error_handle
from gmpi import (
    GMPI_Barrier,
    GMPI_Barrier_grid,
    GMPI_Irecv,
    GMPI_Irecv_grid,
    GMPI_Isend,
    GMPI_Isend_grid,
    GMPI_Wait,
    GMPI_Wait_grid,
)
from gmpi.contract.channels import DEPTH, STAGED, STAGED_BYTES, WIDE_ROOM

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE
TAG = 12
STRIDE = 97  # of the bytes that kernels read
ROOM = 1 << 19  # bytes of the arrays
LONG = WIDE_ROOM + 4096
PATIENCE_S = 60
MANY = DEPTH + 3  # messages; more than a channel has slots
# What Isend returns of a message that is over: on a GPU a function of kernels says so.
_OVER = getattr(error_handle, "py_func", error_handle)(gmpi.SUCCESS)
_seeds = itertools.count(0, 10)  # of what is sent: never twice the same


# wide: a kernel
@cuda.jit
def pass_on(ctx, out, count, datatype, back, room, to, source, found):
    """One message around the ring; what has come is read by all threads at once."""
    receive = GMPI_Irecv(ctx, back, room, gmpi.BYTE, source, TAG, gmpi.COMM_WORLD)
    send = GMPI_Isend(ctx, out, count, datatype, to, TAG, gmpi.COMM_WORLD)
    status = GMPI_Wait(ctx, receive)
    sum_of = 0
    for k in range(cuda.threadIdx.x * STRIDE, status.nbytes, cuda.blockDim.x * STRIDE):
        sum_of += int64(back[k])
    cuda.atomic.add(found, 2, sum_of)
    GMPI_Wait(ctx, send)
    if cuda.threadIdx.x == 0:
        found[0] = status.nbytes
        found[1] = status.error


# wide: a kernel
@cuda.jit
def pass_on_by_grid(ctx, out, count, datatype, back, room, to, source, found):
    receive = GMPI_Irecv_grid(ctx, back, room, gmpi.BYTE, source, TAG, gmpi.COMM_WORLD)
    send = GMPI_Isend_grid(ctx, out, count, datatype, to, TAG, gmpi.COMM_WORLD)
    status = GMPI_Wait_grid(ctx, receive)
    begin = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    sum_of = 0
    step = cuda.blockDim.x * cuda.gridDim.x * STRIDE
    for k in range(begin * STRIDE, status.nbytes, step):
        sum_of += int64(back[k])
    cuda.atomic.add(found, 2, sum_of)
    GMPI_Wait_grid(ctx, send)
    if begin == 0:
        found[0] = status.nbytes
        found[1] = status.error


# wide: a kernel
@cuda.jit
def post_all_then_send(ctx, out, back, lengths, rooms, to, source, found):
    """Many messages, whose receives have been posted before."""
    receives = cuda.local.array(MANY, int64)
    sends = cuda.local.array(MANY, int64)
    for k in range(MANY):
        receives[k] = GMPI_Irecv(ctx, back[k], rooms[k], gmpi.BYTE, source, TAG, gmpi.COMM_WORLD)
    GMPI_Barrier(ctx, gmpi.COMM_WORLD)
    for k in range(MANY):
        sends[k] = GMPI_Isend(ctx, out[k], lengths[k], gmpi.BYTE, to, TAG, gmpi.COMM_WORLD)
    for k in range(MANY):
        status = GMPI_Wait(ctx, receives[k])
        if cuda.threadIdx.x == 0:
            found[k, 0] = sends[k]
            found[k, 1] = status.nbytes
            found[k, 2] = status.error
    for k in range(MANY):
        GMPI_Wait(ctx, sends[k])


# wide: the same
@cuda.jit
def post_all_then_send_by_grid(ctx, out, back, lengths, rooms, to, source, found):
    receives = cuda.local.array(MANY, int64)
    sends = cuda.local.array(MANY, int64)
    for k in range(MANY):
        receives[k] = GMPI_Irecv_grid(
            ctx, back[k], rooms[k], gmpi.BYTE, source, TAG, gmpi.COMM_WORLD
        )
    GMPI_Barrier_grid(ctx, gmpi.COMM_WORLD)
    for k in range(MANY):
        sends[k] = GMPI_Isend_grid(ctx, out[k], lengths[k], gmpi.BYTE, to, TAG, gmpi.COMM_WORLD)
    for k in range(MANY):
        status = GMPI_Wait_grid(ctx, receives[k])
        if cuda.grid(1) == 0:
            found[k, 0] = sends[k]
            found[k, 1] = status.nbytes
            found[k, 2] = status.error
    for k in range(MANY):
        GMPI_Wait_grid(ctx, sends[k])


def _staging(g: gmpi.Context) -> np.ndarray:
    begin = g._memory.staging_address + g._memory.direct
    return g._memory.fetch(begin, STAGED * STAGED_BYTES)


def _exchange(
    g: gmpi.Context, back: Any, n: int, room: int, *, kernel: Any = pass_on, step: int = 0
) -> tuple[bool, int]:
    """A message of ``n`` bytes into ``room``: (whether it has gone through staging, error).

    ``step``: the sender's bytes lie so far apart.
    """
    barrier()  # or one that comes early is in what is compared with
    before = _staging(g)
    seed = next(_seeds)
    content = pattern(n, seed + RANK)
    count, datatype = n, gmpi.BYTE
    source = content
    kind = None
    if step:
        kind = vector(n, step)
        datatype, count = g.commit(kind), 1
        source = np.zeros(n * step, np.uint8)
        source[::step] = content
    out = cuda.to_device(source)
    found = cuda.to_device(np.zeros(3, np.int64))
    blocks = 1 if kernel is pass_on else 2
    kernel[blocks, 64](g.device, out, count, datatype, back, room, NEXT, PREVIOUS, found)
    if room < n:
        raises(gmpi.TruncationError, "", g.synchronize)
    else:
        g.synchronize()
    nbytes, error, sum_of = map(int, found.copy_to_host())
    moved = min(n, room)
    expected = pattern(n, seed + PREVIOUS)[:moved]
    assert nbytes == moved, (nbytes, moved)
    assert sum_of == int(expected[::STRIDE].sum(dtype=np.int64)), (
        "what the kernel has read is something else"
    )
    assert np.array_equal(back.copy_to_host()[:moved], expected)
    if kind is not None:
        g.free(datatype)
        kind.Free()
    barrier()
    return not np.array_equal(before, _staging(g)), error


def vector(n: int, step: int) -> Any:
    from mpi4py import MPI

    return MPI.BYTE.Create_vector(n, 1, step).Commit()


def straight_to_the_users_buffer(g: gmpi.Context) -> None:
    """Once the sender has mapped it; by a block, by a grid, and from bytes that lie apart."""
    heap = g.zeros(ROOM, np.uint8)
    back = heap[64:]
    until = time.monotonic() + PATIENCE_S
    staged = True
    while WORLD.allreduce(staged):
        assert time.monotonic() < until, "no sender has mapped it"
        staged, error = _exchange(g, back, LONG, LONG)
    for n, options in (
        (LONG, {"kernel": pass_on_by_grid}),
        (LONG, {"kernel": pass_on_by_grid, "step": 2}),
        (ROOM - 64, {}),
        (LONG, {"step": 3}),
    ):
        staged, error = _exchange(g, back, n, n, **options)  # type: ignore[arg-type]
        assert not staged and error == gmpi.SUCCESS, (n, options)
    # Truncated: nothing behind the room is written.
    heap.copy_to_device(np.full(ROOM, 0xEE, np.uint8))
    staged, error = _exchange(g, back, 2 * LONG, LONG)
    assert not staged and error == gmpi.ERR_TRUNCATE
    whole = heap.copy_to_host()
    assert (whole[:64] == 0xEE).all() and (whole[64 + LONG :] == 0xEE).all()
    g.unregister(heap)


def through_staging_else(g: gmpi.Context) -> None:
    """Addresses and lengths that are no multiples of 16, arrays that are not registered any more,
    and places that reach beyond them."""
    heap = g.zeros(ROOM, np.uint8)
    until = time.monotonic() + PATIENCE_S
    staged = True
    while WORLD.allreduce(staged):
        assert time.monotonic() < until, "no sender has mapped it"
        staged, error = _exchange(g, heap, LONG, LONG)
    for back, n in ((heap[8:], LONG), (heap, LONG + 4), (heap[1:], LONG + 3)):
        staged, error = _exchange(g, back, n, n)
        assert staged and error == gmpi.SUCCESS, n
    g.unregister(heap)
    staged, error = _exchange(g, heap, LONG, LONG)
    assert staged and error == gmpi.SUCCESS


def mapped_by_a_communicator_only(g: gmpi.Context) -> None:
    """An array that only ranks of a communicator may map: the others' bytes go through staging."""
    alone = g.comm(WORLD.Split(RANK, 0), wildcards=False)
    for some, staged_for_ever in (
        (g.zeros(ROOM, np.uint8, comm=alone), SIZE > 1),
        (g.zeros(ROOM, np.uint8, comm=gmpi.COMM_WORLD), False),
    ):
        until = time.monotonic() + PATIENCE_S
        staged, looks = True, 0
        while WORLD.allreduce(staged) and looks < (5 if staged_for_ever else 1 << 30):
            assert time.monotonic() < until, "no sender has mapped it"
            staged, error = _exchange(g, some, LONG, LONG)
            assert error == gmpi.SUCCESS
            looks += 1
        assert staged == staged_for_ever
        g.unregister(some)
    g.free(alone)
    raises(gmpi.ArgumentError, "comm is 99", lambda: g.empty(4, comm=99))
    raises(gmpi.ArgumentTypeError, "comm is 'all'", lambda: g.zeros(4, comm="all"))
    array = cuda.to_device(np.zeros(4))
    raises(gmpi.ArgumentError, f"comm is {alone}", lambda: g.register(array, comm=alone))


def announced_before_the_message_comes(g: gmpi.Context) -> None:
    """Receives of registered arrays that are posted first: a long message is over when its Isend
    returns. Not one in some hundred, whose guess of a free request is wrong, nor always where
    others use the GPU, too. Others come all the same: short ones, those of other lengths, and those
    that find their slot taken."""
    back = g.zeros((MANY, ROOM), np.uint8)
    out = cuda.to_device(np.zeros((MANY, ROOM), np.uint8))
    until = time.monotonic() + PATIENCE_S
    staged = True
    at_once_of_all = []
    while WORLD.allreduce(staged):
        assert time.monotonic() < until, "no sender has mapped it"
        staged, _ = _exchange(g, back[0], LONG, LONG)
    by_block, by_grid = (post_all_then_send, 1), (post_all_then_send_by_grid, 3)
    for some, rest, at_once, (kernel, blocks) in (
        ([LONG] * MANY, [LONG] * MANY, None, by_block),  # those before may have been truncated
        ([LONG] * MANY, [LONG] * MANY, DEPTH, by_block),
        ([LONG] * MANY, [ROOM] * MANY, DEPTH, by_grid),
        ([ROOM] * MANY, [ROOM] * MANY, DEPTH, by_block),
        ([8, LONG, LONG + 4, 5000, WIDE_ROOM, ROOM], [ROOM], None, by_block),
        ([LONG, 8, LONG], [ROOM, LONG], None, by_grid),
        ([8] * MANY, [ROOM] * MANY, DEPTH, by_block),
        ([LONG] * MANY, [ROOM] * MANY, DEPTH, by_block),
        # Truncated, some of them.
        ([LONG, ROOM, 8, LONG + 4], [LONG + 4, LONG, ROOM], None, by_block),
        ([LONG, ROOM, 8, LONG + 4], [LONG + 4, LONG, ROOM], None, by_grid),
    ):
        lengths = list(itertools.islice(itertools.cycle(some), MANY))
        rooms = list(itertools.islice(itertools.cycle(rest), MANY))
        barrier()
        seed = next(_seeds)
        content = [pattern(ROOM, seed + k + MANY * RANK) for k in range(MANY)]
        out.copy_to_device(np.array(content, np.uint8))
        back.copy_to_device(np.full((MANY, ROOM), 0xEE, np.uint8))
        found = cuda.to_device(np.zeros((MANY, 3), np.int64))
        n = np.array(lengths, np.int64)
        room = np.array(rooms, np.int64)
        kernel[blocks, 64](
            g.device, out, back, cuda.to_device(n), cuda.to_device(room), NEXT, PREVIOUS, found
        )
        if (room < n).any():
            raises(gmpi.TruncationError, "", g.synchronize)
        else:
            g.synchronize()
        handles, nbytes, errors = found.copy_to_host().T
        moved = np.minimum(n, room)
        assert np.array_equal(nbytes, moved), (nbytes, moved)
        assert np.array_equal(errors, np.where(room < n, gmpi.ERR_TRUNCATE, gmpi.SUCCESS))
        for k, row in enumerate(back.copy_to_host()):
            expected = pattern(ROOM, seed + k + MANY * PREVIOUS)[: moved[k]]
            assert np.array_equal(row[: moved[k]], expected), k
            assert (row[moved[k] :] == 0xEE).all(), k
        if at_once is not None:
            at_once_of_all.append((handles == _OVER)[:at_once])
    share = np.mean(at_once_of_all)
    assert share >= (0.9 if gmpi.SIMULATOR else 0.5), at_once_of_all
    barrier()
    g.unregister(back)


SCENARIOS = [
    straight_to_the_users_buffer, through_staging_else, mapped_by_a_communicator_only,
    announced_before_the_message_comes,
]  # fmt: skip
