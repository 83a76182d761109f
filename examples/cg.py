"""NPB CG, conjugate gradients: one kernel per GPU for all iterations of the benchmark.

    mpiexec -n 2 python examples/cg.py [--class S|W|A|B] [--small]

The smallest eigenvalue of a sparse matrix, by inverse iteration: each step solves A z = x by 25
iterations of conjugate gradients (NAS Parallel Benchmarks, report RNR-94-007, section 2.2). A rank
has some rows of A. For A p it needs all of p, so each rank sends its part to all others. Sums over
all ranks are Allreduces. The result is compared with the official one.
"""

import argparse

import numpy as np
from mpi4py import MPI
from numba import cuda, int64

import gmpi
from gmpi import GMPI_Allreduce, GMPI_Comm_rank, GMPI_Irecv, GMPI_Isend, GMPI_Waitall

#: By class: order of A, nonzeros of a random vector, steps, shift, the official zeta.
CLASSES = {
    "S": (1400, 7, 15, 10, 8.5971775078648),
    "W": (7000, 8, 15, 12, 10.362595087124),
    "A": (14000, 11, 15, 20, 17.130235054029),
    "B": (75000, 13, 75, 60, 22.712745482631),
    "small": (24, 2, 2, 5, None),  # NumPy says what is right
}
INNER, CONDITION = 25, 0.1  # iterations of conjugate gradients in a step
SUMS = 2 * INNER + 2  # of a step, over all ranks
MOST_RANKS, REQUESTS = 16, 32
THREADS = 32 if gmpi.SIMULATOR else 256


@cuda.jit(device=True)
def gather(ctx, p, first):
    """All of p for all ranks: rank n has computed p[first[n]:first[n + 1]] (one block)."""
    me, ranks = GMPI_Comm_rank(ctx, gmpi.COMM_WORLD), first.size - 1
    requests = cuda.local.array(REQUESTS, int64)
    mine = p[first[me] : first[me + 1]]
    for k in range(1, ranks):
        peer = (me + k) % ranks
        part = p[first[peer] : first[peer + 1]]
        requests[2 * k - 2] = GMPI_Irecv(ctx, part, part.size, gmpi.DOUBLE, peer, 1, 0)
        requests[2 * k - 1] = GMPI_Isend(ctx, mine, mine.size, gmpi.DOUBLE, peer, 1, 0)
    GMPI_Waitall(ctx, 2 * ranks - 2, requests)


@cuda.jit(device=True)
def total(ctx, sums, count):
    """Of all ranks (one block)."""
    GMPI_Allreduce(ctx, gmpi.IN_PLACE, sums, count, gmpi.DOUBLE, gmpi.SUM, gmpi.COMM_WORLD)


@cuda.jit(device=True)
def add(sums, k, mine):
    """What the threads of a warp have, to a sum of this rank."""
    for shift in (16, 8, 4, 2, 1):
        mine += cuda.shfl_down_sync(0xFFFFFFFF, mine, shift)
    if cuda.laneid == 0:
        cuda.atomic.add(sums, k, mine)


@cuda.jit(device=True)
def multiply(matrix, p, q, low, high):
    """q = A p for the rows of this rank, a warp a row; what the thread has of p q."""
    value, column, start = matrix
    mine = 0.0
    for i in range(low + cuda.grid(1) // 32, high, cuda.gridsize(1) // 32):
        row = 0.0
        for e in range(start[i - low] + cuda.laneid, start[i - low + 1], 32):
            row += value[e] * p[column[e]]
        for shift in (16, 8, 4, 2, 1):
            row += cuda.shfl_down_sync(0xFFFFFFFF, row, shift)
        if cuda.laneid == 0:
            q[i] = row
            mine += p[i] * row
    return mine


# long: the loop reads from its top to its bottom
@cuda.jit  # wide: a matrix, vectors and sums
def solve(ctx, matrix, first, x, z, p, q, r, sums, zeta, shift, steps):
    """All steps. Vectors are as long as A; a rank computes its part of each."""
    grid = cuda.cg.this_grid()
    block_0 = cuda.blockIdx.x == 0
    me = GMPI_Comm_rank(ctx, gmpi.COMM_WORLD)
    low, high = first[me], first[me + 1]
    mine, stride = low + cuda.grid(1), cuda.gridsize(1)
    for step in range(steps):
        s = sums[step]
        rho = 0.0
        for i in range(mine, high, stride):
            z[i], r[i], p[i] = 0.0, x[i], x[i]
            rho += x[i] * x[i]
        add(s, (0, 0), rho)
        grid.sync()  # all blocks have written; then block 0 communicates
        if block_0:
            total(ctx, s[0], 1)
        for n in range(INNER):
            if block_0:
                gather(ctx, p, first)
            grid.sync()  # p is all there
            rho = s[2 * n, 0]
            add(s, (2 * n + 1, 0), multiply(matrix, p, q, low, high))
            grid.sync()
            if block_0:
                total(ctx, s[2 * n + 1], 1)
            grid.sync()
            alpha = rho / s[2 * n + 1, 0]
            square = 0.0
            for i in range(mine, high, stride):
                z[i] += alpha * p[i]
                r[i] -= alpha * q[i]
                square += r[i] * r[i]
            add(s, (2 * n + 2, 0), square)
            grid.sync()
            if block_0:
                total(ctx, s[2 * n + 2], 1)
            grid.sync()
            beta = s[2 * n + 2, 0] / rho
            for i in range(mine, high, stride):
                p[i] = r[i] + beta * p[i]
            grid.sync()
        if block_0:
            gather(ctx, z, first)
        grid.sync()
        multiply(matrix, z, q, low, high)
        grid.sync()
        xz, zz, off = 0.0, 0.0, 0.0
        for i in range(mine, high, stride):
            xz += x[i] * z[i]
            zz += z[i] * z[i]
            off += (x[i] - q[i]) ** 2
        add(s, (SUMS - 1, 0), xz)
        add(s, (SUMS - 1, 1), zz)
        add(s, (SUMS - 1, 2), off)
        grid.sync()
        if block_0:
            total(ctx, s[SUMS - 1], 3)
        grid.sync()
        for i in range(mine, high, stride):
            x[i] = z[i] / s[SUMS - 1, 1] ** 0.5
        if cuda.grid(1) == 0:
            zeta[step, 0], zeta[step, 1] = shift + 1.0 / s[SUMS - 1, 0], s[SUMS - 1, 2] ** 0.5


def random_vectors(order, nonzeros):
    """The benchmark's: (indices, values), a row each; a value of 0 where there are fewer."""
    draws = 8 * order * nonzeros + 1
    powers = np.multiply.accumulate(np.full(draws, 5**13, np.uint64))  # modulo 2**64
    numbers = (powers * np.uint64(314159265) & np.uint64(2**46 - 1)) / 2.0**46
    take = iter(numbers[1:].tolist())
    places, index = 1 << (order - 1).bit_length(), np.zeros((order, nonzeros + 1), np.int64)
    values = np.zeros(index.shape)
    for row in range(order):
        found = {}
        while len(found) < nonzeros:
            value, place = next(take), int(places * next(take))
            if place < order and place not in found:
                found[place] = value
        found[row] = 0.5
        index[row, : len(found)], values[row, : len(found)] = list(found), list(found.values())
    return index, values


def rows_of_matrix(order, nonzeros, shift, low, high):
    """(value, column, start of each row) of some rows of A, a sum of products of vectors."""
    index, values = random_vectors(order, nonzeros)
    scale = CONDITION ** (np.arange(order) / order)
    products = (scale[:, None] * values)[:, :, None] * values[:, None, :]
    row, column = np.broadcast_arrays(index[:, :, None], index[:, None, :])
    n = np.arange(order)[:, None, None]
    products += (CONDITION - shift) * ((row == n) & (column == n) & (values[:, :, None] != 0))
    mine = (row >= low) & (row < high) & (products != 0)
    key = row[mine] * order + column[mine]
    sort = np.argsort(key, kind="stable")
    key, at = np.unique(key[sort], return_index=True)
    start = np.searchsorted(key, np.arange(low, high + 1) * order)
    return np.add.reduceat(products[mine][sort], at), key % order, start


def with_numpy(matrix, shift, steps):
    """zeta, by a dense matrix."""
    value, column, start = matrix
    order = start.size - 1
    a, x = np.zeros((order, order)), np.ones(order)
    a[np.repeat(np.arange(order), np.diff(start)), column] = value
    for _ in range(steps):
        z, r, p = np.zeros(order), x.copy(), x.copy()
        for _ in range(INNER):
            rho, q = r @ r, a @ p
            alpha = rho / (p @ q)
            z, r = z + alpha * p, r - alpha * q
            p = r + (r @ r) / rho * p
        zeta, x = shift + 1 / (x @ z), z / np.linalg.norm(z)
    return zeta


def run(comm, matrix, first, shift, steps):
    """zeta and the norm of the rest of each step, and the time of all of them."""
    matrix = tuple(cuda.to_device(part) for part in matrix)
    first, vectors = cuda.to_device(first), np.ones((5, first[-1]))
    with gmpi.Context(comm, wildcards=False) as g:
        for timed in (False, True):  # the first one compiles
            x, z, p, q, r = (cuda.to_device(vector) for vector in vectors)
            sums = cuda.to_device(np.zeros((steps, SUMS, 3)))
            zeta = cuda.to_device(np.zeros((steps, 2)))
            values = (g.device, matrix, first, x, z, p, q, r, sums, zeta, float(shift))
            blocks = g.max_blocks(solve, THREADS, (*values, steps))
            blocks = min(blocks, 2) if gmpi.SIMULATOR else blocks
            comm.Barrier()
            began = MPI.Wtime()
            solve[blocks, THREADS](*values, steps if timed else 0)
            g.synchronize()  # raises the first error of any call in the kernel
        return zeta.copy_to_host(), MPI.Wtime() - began


def main(run=run):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--class", dest="name", default="S", choices=list(CLASSES)[:4])
    parser.add_argument("--small", action="store_true", help="for the simulator: 24 rows")
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    name = "small" if args.small else args.name
    order, nonzeros, steps, shift, official = CLASSES[name]
    if comm.size > MOST_RANKS:
        raise SystemExit(f"{comm.size} ranks: at most {MOST_RANKS}")
    gmpi.select_gpu(comm)
    first = order * np.arange(comm.size + 1) // comm.size
    own = first[comm.rank : comm.rank + 2]
    found, seconds = run(comm, rows_of_matrix(order, nonzeros, shift, *own), first, shift, steps)
    seconds = comm.allreduce(seconds, MPI.MAX)
    if comm.rank > 0:
        return 0
    for n, (zeta, rest) in enumerate(found, 1):
        print(f"{n:5} {rest:20.14e} {zeta:20.13f}")
    if official is None:
        whole = rows_of_matrix(order, nonzeros, shift, 0, order)
        official = with_numpy(whole, shift, steps)
    right = abs(found[-1, 0] / official - 1) < 1e-10
    each = nonzeros * (nonzeros + 1)
    operations = 2 * steps * order * (3 + each + INNER * (5 + each) + 3)
    print(f"class {name} on {comm.size} ranks: {1e-6 * operations / seconds:.1f} Mop/s")
    print(f"zeta is {found[-1, 0]:.13f}: {'right' if right else 'WRONG'}")
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
