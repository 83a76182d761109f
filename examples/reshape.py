"""A distributed 2-D FFT in one kernel: rows, the reshape between ranks, columns.

    mpiexec -n 2 python examples/reshape.py [--size 4096] [--layout columns|turned]
                                            [--how messages|alltoall]

A rank has some rows of a complex matrix and transforms them. Then the ranks exchange blocks, until
each has some columns as a whole, and transform these. What a rank sends to another one is a part of
each of its rows: a vector. It arrives in one piece, as more rows of a narrow matrix ("columns"), or
each row becomes a column ("turned"), so that the second FFT finds its numbers side by side (W. Wu
et al., GPU-aware non-contiguous data movement in Open MPI, HPDC 2016, sections 5.2.2 and 5.2.3).
Nobody packs, turns or copies anything by hand. The result is compared with NumPy's FFT.
"""

import argparse
from contextlib import ExitStack

import numpy as np
from mpi4py import MPI
from numba import cuda, int64

import gmpi
from gmpi import (
    GMPI_Alltoall_grid,
    GMPI_Barrier,
    GMPI_Irecv_grid,
    GMPI_Isend_grid,
    GMPI_Waitall_grid,
)

LAYOUTS, WAYS = ("columns", "turned"), ("messages", "alltoall")
NUMBER = np.dtype(np.complex128).itemsize
EVEN = 0x55555555  # n & EVEN: whether n, a power of two, has an even exponent
REQUESTS = 64  # two for each rank
THREADS = 32 if gmpi.SIMULATOR else 256


@cuda.jit(device=True)
def fft(x, y, roots):
    """Of x, a power of two (one block); in x after an even number of passes, else in y.

    Stockham's algorithm, which needs no reversal of bits. roots[k] is exp(-2 pi i k / n).
    """
    n = x.size
    m = 1
    while m < n:
        for k in range(cuda.threadIdx.x, n // 2, cuda.blockDim.x):
            low, high, at = x[k], x[k + n // 2], k - k % m
            y[k + at] = low + high
            y[k + at + m] = (low - high) * roots[at]
        cuda.syncthreads()
        x, y = y, x
        m *= 2


@cuda.jit(device=True)
def transform_rows(a, b, roots):
    for i in range(cuda.blockIdx.x, a.shape[0], cuda.gridDim.x):
        fft(a[i], b[i], roots)


@cuda.jit(device=True)
def transform_columns(a, b, roots):
    for i in range(cuda.blockIdx.x, a.shape[1], cuda.gridDim.x):
        fft(a[:, i], b[:, i], roots)


@cuda.jit(device=True)
def exchange(ctx, rows, columns, parts, places, from_parts, from_places):
    """A block of each rank to each rank (all blocks of the grid)."""
    ranks = parts.size
    requests = cuda.local.array(REQUESTS, int64)
    for k in range(ranks):
        there, here = columns[from_places[k] :], rows[places[k] :]
        requests[k] = GMPI_Irecv_grid(ctx, there, 1, from_parts[k], k, 1, gmpi.COMM_WORLD)
        requests[ranks + k] = GMPI_Isend_grid(ctx, here, 1, parts[k], k, 1, gmpi.COMM_WORLD)
    GMPI_Waitall_grid(ctx, 2 * ranks, requests)


# wide: two matrices, each with room for passes, and the blocks of both
@cuda.jit
def transform(ctx, a, b, t, u, roots, blocks, turned, together, rounds, ns):
    """rounds: of the reshape, which takes the time ns[1] - ns[0]."""
    grid = cuda.cg.this_grid()
    parts, places, from_parts, from_places = blocks
    transform_rows(a, b, roots)
    grid.sync()
    if roots.size & EVEN == 0:
        a = b
    rows, columns = a.reshape(a.size), t.reshape(t.size)
    if cuda.blockIdx.x == 0:
        GMPI_Barrier(ctx, gmpi.COMM_WORLD)
    if cuda.grid(1) == 0:
        ns[0] = gmpi.timer_ns()
    for _ in range(rounds):
        if not together:
            exchange(ctx, rows, columns, parts, places, from_parts, from_places)
        else:  # what goes to the ranks is alike, so one datatype describes it
            part, from_part = parts[0], from_parts[0]
            GMPI_Alltoall_grid(ctx, rows, 1, part, columns, 1, from_part, gmpi.COMM_WORLD)
    if cuda.grid(1) == 0:
        ns[1] = gmpi.timer_ns()
    grid.sync()
    if turned:
        transform_rows(t, u, roots)
    else:
        transform_columns(t, u, roots)


def blocks_between_ranks(first, me, turned):
    """By rank: the datatype and the place of what goes there, and of what comes from there."""
    n, number = int(first[-1]), MPI.C_DOUBLE_COMPLEX
    count = np.diff(first).tolist()
    mine = count[me]
    # The extent of a block is the distance to the next one: so MPI's Alltoall finds it.
    parts = [number.Create_vector(mine, c, n).Create_resized(0, c * NUMBER) for c in count]
    if turned:  # a row comes to a column, the next one to the column beside it
        column = number.Create_vector(mine, 1, n).Create_resized(0, NUMBER)
        return parts, first[:-1], [column.Create_contiguous(c) for c in count], first[:-1]
    return parts, first[:-1], [number.Create_contiguous(c * mine) for c in count], first[:-1] * mine


def run(comm, part, first, layout, how, rounds):
    """Columns of the result, as they lie in memory, and the time of a reshape."""
    n, mine = part.shape[1], part.shape[0]
    turned = layout == "turned"
    shape = (mine, n) if turned else (n, mine)
    roots = cuda.to_device(np.exp(-2j * np.pi * np.arange(n) / n))
    with gmpi.Context(comm, wildcards=False) as g, ExitStack() as ending:
        a, b, t, u = (
            g.zeros(each, np.complex128) for each in (part.shape, part.shape, shape, shape)
        )
        parts, places, from_parts, from_places = blocks_between_ranks(first, comm.rank, turned)
        committed = [[g.commit(datatype) for datatype in each] for each in (parts, from_parts)]
        for handle in committed[0] + committed[1]:
            ending.callback(g.free, handle)
        arrays = np.array(committed[0]), places, np.array(committed[1]), from_places
        blocks = tuple(cuda.to_device(array) for array in arrays)
        ns = cuda.to_device(np.zeros(2, np.int64))
        values = (g.device, a, b, t, u, roots, blocks, turned, how == "alltoall")
        grid = g.max_blocks(transform, THREADS, (*values, rounds, ns))
        grid = min(grid, 2) if gmpi.SIMULATOR else grid
        for some in (0, rounds):  # the first one compiles
            a.copy_to_device(part)
            transform[grid, THREADS](*values, some, ns)
            g.synchronize()  # raises the first error of any call in the kernel
        began, ended = ns.copy_to_host()
        result = t if n & EVEN else u
        return result.copy_to_host(), 1e-9 * (ended - began) / rounds


def main(run=run, ways=WAYS):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", type=int, default=4096, help="rows and columns, a power of two")
    parser.add_argument("--layout", choices=LAYOUTS, help="only this")
    parser.add_argument("--how", choices=WAYS, help="only this")
    parser.add_argument("--rounds", type=int, default=20, help="reshapes that are timed")
    parser.add_argument("--small", action="store_true", help="for the simulator: size 8")
    args = parser.parse_args()
    comm, size = MPI.COMM_WORLD, 8 if args.small else args.size
    if size & (size - 1) or size < comm.size or 2 * comm.size > REQUESTS:
        raise SystemExit(f"--size is {size}: a power of two is needed, of 1 row or more for each "
                         f"of {comm.size} ranks, and at most {REQUESTS // 2} ranks")  # fmt: skip
    if args.rounds < 1:
        raise SystemExit(f"--rounds is {args.rounds}: at least 1 is needed")
    gmpi.select_gpu(comm)
    first = size * np.arange(comm.size + 1) // comm.size
    own = slice(first[comm.rank], first[comm.rank + 1])
    random = np.random.default_rng(size)
    matrix = random.uniform(-1, 1, (size, size)) + 1j * random.uniform(-1, 1, (size, size))
    expected = np.fft.fft2(matrix)[:, own]
    rights = []
    for layout in [args.layout] if args.layout else LAYOUTS:
        for how in [args.how] if args.how in ways else ways:
            if how == "alltoall" and size % comm.size:
                continue  # MPI's Alltoall wants blocks that are all alike
            rounds = 1 if args.small else args.rounds
            found, seconds = run(comm, matrix[own].copy(), first, layout, how, rounds)
            found = found.T if layout == "turned" else found
            error = np.abs(found - expected).max() / size
            rights += comm.allgather(bool(error < 1e-13))
            seconds = comm.allreduce(seconds, MPI.MAX)
            if comm.rank == 0:
                rate = 1e-9 * expected.nbytes / seconds
                print(f"{size} x {size}, {layout}, {how}: {1e6 * seconds:.1f} us a reshape, "
                      f"{rate:.3f} GB/s a rank: {'right' if all(rights) else 'WRONG'}")  # fmt: skip
    return 0 if rights and all(rights) else 1


if __name__ == "__main__":
    raise SystemExit(main())
