"""SHOC's Stencil2D: a stencil of 9 points on squares of 128 to 2048 points a side, for each rank.

    mpiexec -n 4 python examples/stencil9.py [--sizes 128,256,512,1024,2048] [--iterations 1000]

Ranks form a torus. Each has a square and a layer of one point around it, which come from the eight
neighbours: first columns, by derived datatypes, then rows that are two points longer, so corners
need no messages of their own (Danalis et al., The Scalable HeterOgeneous Computing benchmark suite,
GPGPU 2010). Ten iterations are compared with NumPy.
"""

import argparse

import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import GMPI_Irecv, GMPI_Isend, GMPI_Waitall

CENTER, CARDINAL, DIAGONAL = 0.25, 0.15, 0.0375  # of SHOC, but for the sum: it is 1
CHECKED = 10
THREADS = 32 if gmpi.SIMULATOR else 512


@cuda.jit(device=True)
def exchange(ctx, u, north, south, west, east, columns):
    """The layer around the square (one block). A derived datatype takes the whole array."""
    last, width = u.shape[0] - 1, u.shape[1]
    to_west, to_east, from_west, from_east = columns
    r0 = GMPI_Irecv(ctx, u, 1, from_west, west, 1, gmpi.COMM_WORLD)
    r1 = GMPI_Irecv(ctx, u, 1, from_east, east, 2, gmpi.COMM_WORLD)
    s0 = GMPI_Isend(ctx, u, 1, to_east, east, 1, gmpi.COMM_WORLD)
    s1 = GMPI_Isend(ctx, u, 1, to_west, west, 2, gmpi.COMM_WORLD)
    GMPI_Waitall(ctx, 4, (r0, r1, s0, s1))
    r0 = GMPI_Irecv(ctx, u[0], width, gmpi.DOUBLE, north, 3, gmpi.COMM_WORLD)
    r1 = GMPI_Irecv(ctx, u[last], width, gmpi.DOUBLE, south, 4, gmpi.COMM_WORLD)
    s0 = GMPI_Isend(ctx, u[last - 1], width, gmpi.DOUBLE, south, 3, gmpi.COMM_WORLD)
    s1 = GMPI_Isend(ctx, u[1], width, gmpi.DOUBLE, north, 4, gmpi.COMM_WORLD)
    GMPI_Waitall(ctx, 4, (r0, r1, s0, s1))


@cuda.jit(device=True)
def update(u, v, begin, step):
    columns = u.shape[1] - 2
    for point in range(begin, (u.shape[0] - 2) * columns, step):
        i, j = 1 + point // columns, 1 + point % columns
        cardinal = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]
        diagonal = u[i - 1, j - 1] + u[i - 1, j + 1] + u[i + 1, j - 1] + u[i + 1, j + 1]
        v[i, j] = CENTER * u[i, j] + CARDINAL * cardinal + DIAGONAL * diagonal


@cuda.jit  # wide: a kernel's arrays and neighbours
def stencil(ctx, u, v, north, south, west, east, columns, iterations):
    grid = cuda.cg.this_grid()
    for _ in range(iterations):
        if cuda.blockIdx.x == 0:
            exchange(ctx, u, north, south, west, east, columns)
        grid.sync()
        update(u, v, cuda.grid(1), cuda.gridsize(1))
        grid.sync()
        u, v = v, u


def with_numpy(torus, iterations):
    for _ in range(iterations):
        rows = np.roll(torus, 1, 0) + np.roll(torus, -1, 0)
        columns = np.roll(torus, 1, 1) + np.roll(torus, -1, 1)
        diagonal = np.roll(rows, 1, 1) + np.roll(rows, -1, 1)
        torus = CENTER * torus + CARDINAL * (rows + columns) + DIAGONAL * diagonal
    return torus


def run(comm, size, u, v, iterations):
    """Some iterations, beginning with u; their time."""
    with gmpi.Context(comm, wildcards=False) as g:
        places = (1, size, 0, size + 1)
        types = [MPI.DOUBLE.Create_subarray(u.shape, (size, 1), (1, place)) for place in places]
        columns = tuple(g.commit(datatype) for datatype in types)
        values = (g.device, u, v, *comm.Shift(0, 1), *comm.Shift(1, 1), columns, iterations)
        blocks = g.max_blocks(stencil, THREADS, values)
        blocks = min(blocks, 2 if gmpi.SIMULATOR else -(-size * size // THREADS))
        comm.Barrier()
        began = MPI.Wtime()
        stencil[blocks, THREADS](*values)
        g.synchronize()  # raises the first error of any call in the kernel
        seconds = MPI.Wtime() - began
        for handle in columns:
            g.free(handle)
    return comm.allreduce(seconds, MPI.MAX)


def main(run=run):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="128,256,512,1024,2048", help="of a rank's square")
    parser.add_argument("--iterations", type=int, default=1000, help="that are timed, even")
    parser.add_argument("--small", action="store_true", help="for the simulator: size 6, a few")
    args = parser.parse_args()
    sizes = [6] if args.small else [int(size) for size in args.sizes.split(",")]
    checked, timed = (4, 2) if args.small else (CHECKED, args.iterations)
    if min(sizes) < 1 or timed < 2 or timed % 2:
        raise SystemExit(
            f"--sizes {args.sizes}: at least 1; --iterations {timed}: even, at least 2"
        )
    dims = MPI.Compute_dims(MPI.COMM_WORLD.size, 2)
    comm = MPI.COMM_WORLD.Create_cart(dims, periods=(True, True))
    gmpi.select_gpu(comm)
    rights = []
    for size in sizes:
        torus = np.random.default_rng(size).random((dims[0] * size, dims[1] * size))
        box = tuple(slice(size * at, size * (at + 1)) for at in comm.coords)
        u, v = (cuda.to_device(np.pad(torus[box], 1)) for _ in range(2))
        run(comm, size, u, v, checked)
        expected = with_numpy(torus, checked)[box]
        right = np.allclose(u.copy_to_host()[1:-1, 1:-1], expected, rtol=1e-12, atol=0)
        seconds = run(comm, size, u, v, timed)
        # The weights add up to 1, so the sum over the torus stays.
        total = comm.allreduce(u.copy_to_host()[1:-1, 1:-1].sum())
        right &= abs(total / torus.sum() - 1) < 1e-9
        rights += comm.allgather(bool(right))
        if comm.rank == 0:
            words = "right" if all(rights) else "WRONG"
            rate = 1e-9 * timed * torus.size / seconds
            print(f"{size:6} {1e6 * seconds / timed:12.2f} us {rate:12.4f} points/ns  {words}")
    return 0 if all(rights) else 1


if __name__ == "__main__":
    raise SystemExit(main())
