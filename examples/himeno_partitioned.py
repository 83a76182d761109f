"""The Himeno benchmark with partitioned halos: each block sends what it has just computed.

    mpiexec -n 2 python examples/himeno_partitioned.py [--size XS|S|M|L|XL|I,J,K] [--iterations N]
        [--verify]

As himeno.py, but no block is there only to communicate. The grid is cut along i, so a face is one
piece of memory. It is divided into pieces of a few rows, and each has partitioned requests of its
own: the block that has updated a piece sends it, and receives the neighbour's piece beside it.
"""

import numpy as np
from himeno import ONCE, REGISTERS, SUMS, main, relax_on_gpu, update_row
from numba import cuda

import gmpi
from gmpi import GMPI_Allreduce_warp, GMPI_Pready, GMPI_Start, GMPI_Wait

PIECE = 4  # rows; a row has one i and one j
LANES, WARPS = 32, 2 if gmpi.SIMULATOR else 16  # of a block


def make_kernel(shape, faces):
    """The kernel for arrays of this shape, which is compiled in, as in the original.

    faces: the i whose points neighbours need: [], [1], [ni] or [1, ni].
    """
    ni, nj, nk = (extent - 2 for extent in shape)  # points that change
    every_shape = (14, *shape)
    pieces, sides = -(-nj // PIECE), len(faces)  # pieces of a face
    first_face, last_face = min(faces, default=0), max(faces, default=0)
    first_i = 1 + (1 in faces)
    rows = (ni - sides) * nj  # that no neighbour needs

    @cuda.jit(max_registers=REGISTERS)
    def himeno(ctx, m, gosa, taken, sends, receives, iterations):
        """All iterations. gosa[0] is of this rank, gosa[1] the sum over all ranks. taken: rows that
        warps have taken. sends, receives: requests of each array and piece."""
        if m.shape != every_shape:
            return  # never; but now the compiler knows the shape
        grid = cuda.cg.this_grid()
        lane, warps = cuda.threadIdx.x, cuda.gridDim.x * WARPS
        warp = cuda.blockIdx.x * WARPS + cuda.threadIdx.y
        for n in range(iterations):
            out, mine = 1 - n % 2, 0.0
            for piece in range(cuda.blockIdx.x, sides * pieces, cuda.gridDim.x):
                GMPI_Start(ctx, receives[out, piece])
                GMPI_Start(ctx, sends[out, piece])
                i = first_face if piece < pieces else last_face
                j = 1 + piece % pieces * PIECE
                across = min(PIECE, nj + 1 - j) * (nk + 2)
                for point in range(cuda.threadIdx.y * LANES + lane, across, LANES * WARPS):
                    row, k = j + point // (nk + 2), point % (nk + 2)
                    if 0 < k <= nk:
                        new, square = relax_on_gpu(m, n, i, row, k, ONCE)
                        m[12 + out, i, row, k] = new
                        mine += square
                GMPI_Pready(ctx, 0, sends[out, piece])
            if warp == warps - 1 and n > 0:  # of the iteration before
                GMPI_Allreduce_warp(
                    ctx, gosa[0, n - 1], gosa[1, n - 1], SUMS, gmpi.DOUBLE, gmpi.SUM, 0
                )
            row = warp  # the first one; then each warp takes the next that nobody has
            while row < rows:
                following = 0
                if lane == 0:
                    following = warps + cuda.atomic.add(taken, 0, 1) - n * rows
                at = rows - 1 - row if n % 2 else row  # to and fro: the cache has what was last
                i, j = first_i + at // nj, 1 + at % nj
                mine += update_row(m, n, i, j, LANES)
                row = cuda.shfl_sync(0xFFFFFFFF, following, 0)
            for shift in (16, 8, 4, 2, 1):  # sum over the warp
                mine += cuda.shfl_down_sync(0xFFFFFFFF, mine, shift)
            if lane == 0:
                cuda.atomic.add(gosa, (0, n, cuda.blockIdx.x % SUMS), mine)
            for piece in range(cuda.blockIdx.x, sides * pieces, cuda.gridDim.x):
                GMPI_Wait(ctx, receives[out, piece])
                GMPI_Wait(ctx, sends[out, piece])
            grid.sync()
        if warp == warps - 1:
            GMPI_Allreduce_warp(ctx, gosa[0, n], gosa[1, n], SUMS, gmpi.DOUBLE, gmpi.SUM, 0)

    return himeno


def solver(g, ending, comm, m):
    """The kernel, and its arguments between arrays and iterations."""
    ni, nj, nk = (extent - 2 for extent in m.shape[1:])
    low, high = comm.Shift(0, 1)
    sides = [(1, 0, low, 0), (ni, ni + 1, high, 1)]
    sides = [side for side in sides if side[2] != gmpi.PROC_NULL]
    sends, receives = [], []
    for u in (m[12], m[13]):
        for edge, halo, peer, way in sides:
            for j in range(1, nj + 1, PIECE):
                piece = slice(j, min(j + PIECE, nj + 1))
                count = (piece.stop - j) * (nk + 2)
                sends.append(g.Psend_init(u[edge, piece], 1, count, gmpi.FLOAT, peer, way))
                receives.append(g.Precv_init(u[halo, piece], 1, count, gmpi.FLOAT, peer, 1 - way))
    for request in sends + receives:
        ending.callback(g.Request_free, request)
    shape = 2, max(1, len(sends) // 2)
    requests = (cuda.to_device(np.resize(all or [0], shape)) for all in (sends, receives))
    return make_kernel(m.shape[1:], [side[0] for side in sides]), tuple(requests)


if __name__ == "__main__":
    raise SystemExit(main(__doc__, solver, 1, (LANES, WARPS)))
