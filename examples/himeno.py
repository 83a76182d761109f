"""The Himeno benchmark in one kernel per GPU that computes, exchanges halos and sums residuals.

    mpiexec -n 2 python examples/himeno.py [--size XS|S|M|L|XL|I,J,K] [--iterations N] [--verify]

Poisson's equation by Jacobi iteration, with a stencil of 19 points. The grid is cut along i and j.
Each rank has one layer around its points: the halo, or the edge of the grid, which never changes.
Blocks first update the rows that neighbours need; then block 0 exchanges halos while others go on.
"""

import argparse
from contextlib import ExitStack
from operator import getitem

import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import GMPI_Allreduce, GMPI_Irecv, GMPI_Isend, GMPI_Waitall

SIZES = {"XS": "32,32,64", "S": "64,64,128", "M": "128,128,256", "L": "256,256,512"}
SIZES["XL"] = "512,512,1024"
OMEGA, SUMS = np.float32(0.8), 8  # sums of residuals, so that not all blocks add to the same one
# Threads of a block; each may have 128 registers, if a multiprocessor has one block only.
COLUMNS, ROWS, REGISTERS = 8 if gmpi.SIMULATOR else 128, 4, 128
ONCE = getitem if gmpi.SIMULATOR else cuda.ldcs  # what it reads leaves the cache first


# fmt: off
def relax(m, n, i, j, k, once):
    """Iteration n at one point: its new pressure, its residual's square. once(a, at) is a[at]."""
    a, b, c, bnd, wrk1, p = m[0:4], m[4:7], m[7:10], m[10], m[11], m[12 + n%2]
    s0 = ( once(a, (0,i,j,k)) * p[i+1,j,  k  ]
         + once(a, (1,i,j,k)) * p[i,  j+1,k  ]
         + once(a, (2,i,j,k)) * p[i,  j,  k+1]
         + once(b, (0,i,j,k)) * (p[i+1,j+1,k  ] - p[i+1,j-1,k  ] - p[i-1,j+1,k  ] + p[i-1,j-1,k  ])
         + once(b, (1,i,j,k)) * (p[i,  j+1,k+1] - p[i,  j-1,k+1] - p[i,  j+1,k-1] + p[i,  j-1,k-1])
         + once(b, (2,i,j,k)) * (p[i+1,j,  k+1] - p[i-1,j,  k+1] - p[i+1,j,  k-1] + p[i-1,j,  k-1])
         + once(c, (0,i,j,k)) * p[i-1,j,  k  ]
         + once(c, (1,i,j,k)) * p[i,  j-1,k  ]
         + once(c, (2,i,j,k)) * p[i,  j,  k-1]
         + once(wrk1, (i,j,k)))
    ss = (s0 * once(a, (3,i,j,k)) - p[i,j,k]) * once(bnd, (i,j,k))
    return p[i,j,k] + OMEGA * ss, np.float64(ss * ss)
relax_on_gpu = cuda.jit(device=True)(relax)
# fmt: on


@cuda.jit(device=True)
def update_row(m, n, i, j, step):
    """Iteration n at a thread's points of a row, each step-th: the sum of their squares. Two at a
    time: so the loads of both are under way together. p and wrk2 take turns, nothing is copied."""
    ni, nj, nk = m.shape[1] - 2, m.shape[2] - 2, m.shape[3] - 2
    wrk2, gosa = m[13 - n % 2], 0.0
    if 0 < i <= ni and 0 < j <= nj:  # always; but now the compiler knows: not negative
        for k in range(cuda.threadIdx.x, nk + 1, 2 * step):
            k0, k1 = max(1, min(k, nk)), max(1, min(k + step, nk))
            new0, square0 = relax_on_gpu(m, n, i, j, k0, ONCE)
            new1, square1 = relax_on_gpu(m, n, i, j, k1, ONCE)
            if k0 == k:
                wrk2[i, j, k0], gosa = new0, gosa + square0
            if k1 == k + step:
                wrk2[i, j, k1], gosa = new1, gosa + square1
    return gosa


@cuda.jit(device=True)
def exchange(ctx, low, high, to_low, to_high, from_low, from_high):
    """Sends faces to both neighbours in one direction and receives theirs."""
    if low == gmpi.PROC_NULL and high == gmpi.PROC_NULL:
        return
    r0 = GMPI_Irecv(ctx, from_low, from_low.size, gmpi.FLOAT, low, 2, gmpi.COMM_WORLD)
    r1 = GMPI_Irecv(ctx, from_high, from_high.size, gmpi.FLOAT, high, 1, gmpi.COMM_WORLD)
    s0 = GMPI_Isend(ctx, to_low, to_low.size, gmpi.FLOAT, low, 1, gmpi.COMM_WORLD)
    s1 = GMPI_Isend(ctx, to_high, to_high.size, gmpi.FLOAT, high, 2, gmpi.COMM_WORLD)
    GMPI_Waitall(ctx, 4, (s0, s1, r0, r1))


def make_kernel(shape):
    """The kernel for arrays of this shape, which is compiled in, as in the original."""
    ni, nj = shape[0] - 2, shape[1] - 2  # rows that change
    every_shape, inner = (14, *shape), (ni - 2) * (nj - 2)  # rows that no neighbour needs

    @cuda.jit(max_registers=REGISTERS)  # wide: a kernel's arrays and neighbours
    def himeno(ctx, m, gosa, done, low_i, high_i, low_j, high_j, iterations):
        """All iterations. gosa[0] is of this rank, gosa[1] the sum over all ranks."""
        if m.shape != every_shape:
            return  # never; but now the compiler knows the shape
        grid, leader = cuda.cg.this_grid(), cuda.threadIdx.x == 0 and cuda.threadIdx.y == 0
        first, step = (cuda.blockIdx.x - 1) * ROWS + cuda.threadIdx.y, (cuda.gridDim.x - 1) * ROWS
        for n in range(iterations):
            u, mine = m[13 - n % 2], 0.0
            if cuda.blockIdx.x > 0:
                for row in range(first, 2 * nj + 2 * (ni - 2), step):
                    along_j = row < 2 * nj  # rows of the first and last i; then of the other i
                    i = 1 + row % 2 * (ni - 1) if along_j else 2 + row // 2 - nj
                    j = 1 + row // 2 if along_j else 1 + row % 2 * (nj - 1)
                    mine += update_row(m, n, i, j, COLUMNS)
                cuda.syncthreads()
                if leader:  # tells block 0 that one more block has done its share of these
                    cuda.threadfence()
                    cuda.atomic.add(done, 0, 1)
                for at in range(step - 1 - first, inner, step):  # to and fro: L2 has what was last
                    row = inner - 1 - at if n % 2 else at
                    mine += update_row(m, n, 2 + row // (nj - 2), 2 + row % (nj - 2), COLUMNS)
                for shift in (16, 8, 4, 2, 1):  # sum over the warp
                    mine += cuda.shfl_down_sync(0xFFFFFFFF, mine, shift)
                if cuda.laneid == 0:
                    cuda.atomic.add(gosa, (0, n, cuda.blockIdx.x % SUMS), mine)
            else:
                if n > 0:  # of the iteration before, while the others update
                    before = gosa[:, n - 1]
                    GMPI_Allreduce(ctx, before[0], before[1], SUMS, gmpi.DOUBLE, gmpi.SUM, 0)
                if leader:
                    while cuda.atomic.add(done, 0, 0) < (n + 1) * (cuda.gridDim.x - 1):
                        cuda.nanosleep(100)
                    cuda.threadfence()
                cuda.syncthreads()
                # What comes along j goes on along i: so it reaches the neighbour at the edge.
                exchange(ctx, low_j, high_j, u[1:-1, 1], u[1:-1, nj], u[1:-1, 0], u[1:-1, nj + 1])
                exchange(ctx, low_i, high_i, u[1], u[ni], u[0], u[ni + 1])
            grid.sync()
        if cuda.blockIdx.x == 0:
            GMPI_Allreduce(ctx, gosa[0, n], gosa[1, n], SUMS, gmpi.DOUBLE, gmpi.SUM, 0)

    return himeno


def initial(size, box, varied):
    """The arrays in a box of the grid. Varied: all terms of the stencil count."""
    i, j, k = np.ogrid[box]
    m = np.zeros((14, i.size, j.size, k.size), np.float32)
    m[[0, 1, 2, 7, 8, 9, 10]], m[3] = 1, 1 / 6
    m[12:] = (i * i).astype(np.float32) / np.float32((size[0] - 1) ** 2)
    for array in range(14 * varied):
        m[array] += 0.05 * np.sin(min(array, 12) + 0.3 * i + 0.5 * j + 0.7 * k)
    return m


def solver(g, ending, comm, m):
    """How to run iterations on the arrays of this rank: kernel, arguments."""
    return make_kernel(m.shape[1:]), comm.Shift(0, 1) + comm.Shift(1, 1)


def main(about, make, cut_along, threads):
    parser = argparse.ArgumentParser(description=about.split("\n")[0])
    parser.add_argument("--size", default="S", help="XS, S, M, L, XL or I,J,K")
    parser.add_argument("--iterations", type=int, help="instead of about one minute")
    parser.add_argument("--verify", action="store_true", help="compare with one core of the CPU")
    args = parser.parse_args()
    size = [int(extent) for extent in SIZES.get(args.size, args.size).split(",")]
    comm = MPI.COMM_WORLD.Create_cart([*MPI.Compute_dims(MPI.COMM_WORLD.size, cut_along), 1][:2])
    if min((n - 2) // d for n, d in zip(size, comm.dims)) < 2 or size[2] < 3:
        raise SystemExit(f"{size} is too small for {comm.dims} ranks: each needs 2 x 2 rows")
    cut = [(n - 2) * np.arange(d + 1) // d for n, d in zip(size, comm.dims)]
    box = *(slice(at[me], at[me + 1] + 2) for at, me in zip(cut, comm.coords)), slice(size[2])
    start = initial(size, box, args.verify)

    def run(iterations):
        """The residual of each iteration, and the time of all."""
        m[12:].copy_to_device(start[12:])
        gosa, done = map(cuda.to_device, (np.zeros((2, iterations, SUMS)), np.zeros(1, np.int64)))
        values = (g.device, m, gosa, done, *more, iterations)
        most = g.max_blocks(kernel, threads, values, keep_registers=True)
        blocks = min(most, 4) if gmpi.SIMULATOR else most
        began = MPI.Wtime()
        kernel[blocks, threads](*values)
        g.synchronize()  # raises the first error of any call in the kernel
        return gosa.copy_to_host()[1].sum(axis=1), comm.allreduce(MPI.Wtime() - began, MPI.MAX)

    with gmpi.Context(comm, wildcards=False) as g, ExitStack() as ending:
        m = g.empty(start.shape, np.float32)  # memory that neighbours can write to
        m.copy_to_device(start)
        kernel, more = make(g, ending, comm, m)
        gosa, _ = run(5)  # compiles, too
        if args.verify:
            parts = comm.gather((box, m[13].copy_to_host()))
        else:
            count = args.iterations or max(1, int(60 / (run(3)[1] / 3)))
            gosa, seconds = run(count)
    if comm.rank > 0:
        return None
    if args.verify:
        m, expected = initial(size, np.s_[: size[0], : size[1], : size[2]], True), np.zeros(5)
        at = tuple(np.ogrid[1 : size[0] - 1, 1 : size[1] - 1, 1 : size[2] - 1])
        for n in range(5):
            m[13 - n % 2][at], squares = relax(m, n, *at, getitem)
            expected[n] = squares.sum()
        off = [abs(p - m[13][box]).max() for box, p in parts] + [abs(gosa / expected - 1).max()]
        right = np.max(off) < 1e-5
        print(f"{size} on {comm.dims} ranks, 5 iterations: {'right' if right else 'WRONG'}")
        print(f"pressures differ by at most {np.max(off[:-1]):.0e}, gosa by {off[-1]:.0e} of it")
        return not right
    rate = 34e-6 * np.prod([n - 2 for n in size]) * count / seconds
    print(f"cpu : {seconds:f} sec.\nLoop executed for {count} times\nGosa : {gosa[-1]:e}")
    print(f"MFLOPS measured : {rate:f}\nScore based on Pentium III 600MHz : {rate / 82.84:f}")


if __name__ == "__main__":
    raise SystemExit(main(__doc__, solver, 2, (COLUMNS, ROWS)))
