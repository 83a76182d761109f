"""Columns of a matrix, side by side in the message: of all sizes of elements, with and without
whole tiles, cut anywhere; on both roads."""

from __future__ import annotations

import numpy as np
from common import RANK, SIZE, WORLD, end, pattern, run
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import GMPI_Irecv, GMPI_Isend, GMPI_Wait

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE
KINDS = {4: MPI.INT32_T, 8: MPI.DOUBLE, 16: MPI.C_DOUBLE_COMPLEX}
GAP = 3  # columns of a row that are not moved


# wide: a kernel
@cuda.jit
def shift(ctx, out, n, sent, back, m, received, to, source, comm, found):
    receive = GMPI_Irecv(ctx, back, m, received, source, 1, comm)
    send = GMPI_Isend(ctx, out, n, sent, to, 1, comm)
    GMPI_Wait(ctx, send)
    status = GMPI_Wait(ctx, receive)
    if cuda.threadIdx.x == 0:
        found[0] = status.error
        found[1] = status.nbytes


def matrix(rows: int, wide: int, size: int, rank: int) -> np.ndarray:
    """Bytes of rows x wide elements."""
    return pattern(rows * wide * size, rank + 7 * rows + wide).reshape(rows, wide, size)


def on_device(content: np.ndarray, lead: int) -> tuple[cuda.devicearray.DeviceNDArray, object]:
    """(all of it, what begins ``lead`` bytes behind its first byte)."""
    whole = cuda.to_device(np.concatenate([np.zeros(lead, np.uint8), content]))
    return whole, whole[lead:]


# wide: a case
def transposed(
    g: gmpi.Context, comm: int, size: int, rows: int, columns: int, step: int = 1, lead: int = 0
) -> None:
    """Sends columns to what is contiguous, and what is contiguous to columns.

    Args:
        step: from one column to the next, in elements.
        lead: bytes before the matrix in its memory, which is aligned.
    """
    wide = columns * step + GAP
    used = slice(0, columns * step, step)
    column = KINDS[size].Create_vector(rows, 1, wide).Create_resized(0, step * size).Commit()
    handle = g.commit(column)
    nbytes = rows * columns * size
    found = cuda.to_device(np.zeros(2, np.int64))
    for pack in (True, False):
        mine, theirs = (matrix(rows, wide, size, rank) for rank in (RANK, PREVIOUS))
        packed = np.ascontiguousarray(theirs[:, used].transpose(1, 0, 2)).reshape(-1)
        if pack:
            out, back = mine.reshape(-1), np.zeros(nbytes, np.uint8)
            call = columns, handle, nbytes, gmpi.BYTE
            wanted = packed
        else:
            own = np.ascontiguousarray(mine[:, used].transpose(1, 0, 2)).reshape(-1)
            out, back = own, np.zeros(rows * wide * size, np.uint8)
            call = nbytes, gmpi.BYTE, columns, handle
            expected = np.zeros_like(theirs)
            expected[:, used] = theirs[:, used]
            wanted = expected.reshape(-1)
        (_, there), (_, here) = on_device(out, lead), on_device(back, lead)
        n, sent, m, received = call
        shift[1, 64](
            g.device, there, n, sent, here, m, received, NEXT, PREVIOUS, comm, found
        )  # fmt: skip
        g.synchronize()
        got = here.copy_to_host()
        what = f"{rows} x {columns} of {size} bytes, {'packed' if pack else 'unpacked'}"
        assert found.copy_to_host().tolist() == [gmpi.SUCCESS, nbytes], what
        assert np.array_equal(got, wanted), (what, np.flatnonzero(got != wanted)[:4])
    g.free(handle)
    column.Free()


def columns_of_all_sizes(g: gmpi.Context) -> None:
    """With whole tiles: 4 columns of 8 rows; with some left over; and without any."""
    other = WORLD.Dup()
    roads = gmpi.COMM_WORLD, g.comm(other)
    for comm in roads:
        for size in KINDS:
            for rows, columns in ((8, 4), (24, 13), (16, 3), (12, 9), (1, 8), (8, 64)):
                transposed(g, comm, size, rows, columns)
    g.synchronize()


def columns_in_many_pieces(g: gmpi.Context) -> None:
    """Chunks and rounds end in the midst of columns."""
    other = WORLD.Dup()
    roads = gmpi.COMM_WORLD, g.comm(other)
    for comm in roads:
        for size, rows, columns in ((8, 72, 61), (4, 40, 96), (8, 1000, 70)):
            transposed(g, comm, size, rows, columns)


def columns_that_do_not_interleave(g: gmpi.Context) -> None:
    """Every second one; and in memory that is aligned to less than an element."""
    for size in KINDS:
        transposed(g, gmpi.COMM_WORLD, size, 24, 13, step=2)
        transposed(g, gmpi.COMM_WORLD, size, 24, 13, lead=size // 2)


def main() -> None:
    with gmpi.Context(WORLD, wildcards=False, chunk_bytes=4096) as g:
        run([columns_of_all_sizes, columns_in_many_pieces, columns_that_do_not_interleave], g)
    end()


main()
