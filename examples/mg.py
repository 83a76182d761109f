"""NPB MG, multigrid: one kernel per GPU for all V-cycles, on grids from 256^3 points down to 2^3.

    mpiexec -n 4 python examples/mg.py [--class S|W|A|B] [--small]

The benchmark solves a Poisson equation in a cube without walls, with twenty charges (NAS Parallel
Benchmarks, report RNR-94-007, section 2.1). Ranks cut the cube into 1, 2, 4 or 8 boxes. Each has a
layer of points around it on every grid, which comes from the neighbours after each operator: six
messages, large ones on fine grids, 40 bytes on the coarsest one. With CUDA and MPI a V-cycle on
coarse grids is nothing but launches and waits. The norm of the residual is compared with the
official one.
"""

import argparse
from itertools import product

import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import GMPI_Allreduce, GMPI_Comm_rank, GMPI_Sendrecv

# Operators: what the point itself, 6, 12 and 8 points around it count.
LAPLACE = (-8 / 3, 0.0, 1 / 6, 1 / 12)
MINUS_LAPLACE = (8 / 3, 0.0, -1 / 6, -1 / 12)
RESTRICT = (1 / 2, 1 / 4, 1 / 8, 1 / 16)
INTERPOLATE = (1.0, 1 / 2, 1 / 4, 1 / 8)
SMOOTH, SMOOTH_B = (-3 / 8, 1 / 32, -1 / 64, 0.0), (-3 / 17, 1 / 33, -1 / 61, 0.0)
#: By class: points along an edge, V-cycles, smoother, the official norm.
CLASSES = {
    "S": (32, 4, SMOOTH, 0.5307707005734e-04),
    "W": (128, 4, SMOOTH, 0.6467329375339e-05),
    "A": (256, 4, SMOOTH, 0.2433365309069e-05),
    "B": (256, 20, SMOOTH_B, 0.1800564401355e-05),
    "small": (8, 2, SMOOTH, None),  # NumPy says what is right
}
CHARGES = 10  # of each sign
THREADS = 32 if gmpi.SIMULATOR else 256


@cuda.jit(device=True)
def exchange(ctx, x, peers):
    """The layer around x (all blocks). Each axis takes along what came before: edges, corners."""
    grid, me, block = cuda.cg.this_grid(), GMPI_Comm_rank(ctx, gmpi.COMM_WORLD), cuda.blockIdx.x
    for axis in range(3):
        last, low, high = x.shape[axis] - 1, peers[2 * axis], peers[2 * axis + 1]
        if axis == 0:  # faces of the box, layers around it; a step of 1 gives all of them one type
            first, final = x[1, ::1, ::1], x[last - 1, ::1, ::1]
            before, after = x[0, ::1, ::1], x[last, ::1, ::1]
        elif axis == 1:
            first, final = x[::1, 1, ::1], x[::1, last - 1, ::1]
            before, after = x[::1, 0, ::1], x[::1, last, ::1]
        else:
            first, final = x[::1, ::1, 1], x[::1, ::1, last - 1]
            before, after = x[::1, ::1, 0], x[::1, ::1, last]
        grid.sync()  # all blocks have written what is sent
        if low == me:  # its own neighbour
            for n in range(cuda.grid(1), first.size, cuda.gridsize(1)):
                i, j = n // first.shape[1], n % first.shape[1]
                after[i, j], before[i, j] = first[i, j], final[i, j]
        elif block < 2:  # block 0 sends down and receives from above, block 1 the reverse
            out, into = final if block else first, before if block else after
            to, source, size = high if block else low, low if block else high, first.size
            GMPI_Sendrecv(
                ctx, out, size, gmpi.DOUBLE, to, block,
                into, size, gmpi.DOUBLE, source, block, gmpi.COMM_WORLD,
            )  # fmt: skip
    grid.sync()


@cuda.jit(device=True)
def beside(x, i, j, k):
    return x[i - 1, j, k] + x[i + 1, j, k] + (x[i, j - 1, k] + x[i, j + 1, k])


@cuda.jit(device=True)
def across(x, i, j, k):
    return x[i - 1, j - 1, k] + x[i - 1, j + 1, k] + (x[i + 1, j - 1, k] + x[i + 1, j + 1, k])


@cuda.jit(device=True)
def apply(out, keep, old, weights, x, stride):
    """out = keep * old + what an operator makes of x, of every stride-th point of it."""
    rows, columns = out.shape[1] - 2, out.shape[2] - 2
    points = (out.shape[0] - 2) * rows * columns
    for n in range(cuda.grid(1), points, cuda.gridsize(1)):
        p, q, s = 1 + n // columns // rows, 1 + n // columns % rows, 1 + n % columns
        i, j, k = stride * p, stride * q, stride * s
        faces = beside(x, i, j, k) + (x[i, j, k - 1] + x[i, j, k + 1])
        edges = across(x, i, j, k) + (beside(x, i, j, k - 1) + beside(x, i, j, k + 1))
        corners = across(x, i, j, k - 1) + across(x, i, j, k + 1)
        made = weights[0] * x[i, j, k] + weights[1] * faces + weights[2] * edges
        out[p, q, s] = keep * old[p, q, s] + (made + weights[3] * corners)


@cuda.jit(device=True)
def interpolate(fine, keep, coarse):
    """fine = keep * fine + coarse, the layer around it, too: odd points lie between two others."""
    rows, columns = fine.shape[1], fine.shape[2]
    for n in range(cuda.grid(1), fine.size, cuda.gridsize(1)):
        i, j, k = n // columns // rows, n // columns % rows, n % columns
        a, b, c = i // 2, j // 2, k // 2
        d, e, f = a + i % 2, b + j % 2, c + k % 2
        low = coarse[a, b, c] + coarse[a, b, f] + (coarse[a, e, c] + coarse[a, e, f])
        high = coarse[d, b, c] + coarse[d, b, f] + (coarse[d, e, c] + coarse[d, e, f])
        fine[i, j, k] = keep * fine[i, j, k] + 0.125 * (low + high)


@cuda.jit
def solve(ctx, u, r, v, peers, smooth, square, cycles):
    """All V-cycles. u and r are tuples of arrays, of the coarsest grid first."""
    grid, top = cuda.cg.this_grid(), len(u) - 1
    apply(r[top], 1.0, v, MINUS_LAPLACE, u[top], 1)
    exchange(ctx, r[top], peers)
    for _ in range(cycles):
        for k in range(top, 0, -1):
            apply(r[k - 1], 0.0, r[k - 1], RESTRICT, r[k], 2)
            exchange(ctx, r[k - 1], peers)
        for k in range(top + 1):
            if k > 0:
                interpolate(u[k], 1.0 if k == top else 0.0, u[k - 1])
                grid.sync()
                apply(r[k], 1.0, v if k == top else r[k], MINUS_LAPLACE, u[k], 1)
                exchange(ctx, r[k], peers)
            apply(u[k], 1.0 if k > 0 else 0.0, u[k], smooth, r[k], 1)
            exchange(ctx, u[k], peers)
        apply(r[top], 1.0, v, MINUS_LAPLACE, u[top], 1)
        exchange(ctx, r[top], peers)
    mine, rest = 0.0, r[top]
    rows, columns = rest.shape[1] - 2, rest.shape[2] - 2
    for n in range(cuda.grid(1), (rest.shape[0] - 2) * rows * columns, cuda.gridsize(1)):
        mine += rest[1 + n // columns // rows, 1 + n // columns % rows, 1 + n % columns] ** 2
    cuda.atomic.add(square, 0, mine)
    grid.sync()
    if cuda.blockIdx.x == 0:
        GMPI_Allreduce(ctx, gmpi.IN_PLACE, square, 1, gmpi.DOUBLE, gmpi.SUM, gmpi.COMM_WORLD)


def charges(points):
    """The benchmark's: +1 where its random numbers are largest, -1 where they are smallest."""
    powers = np.multiply.accumulate(np.full(points**3, 5**13, np.uint64))  # modulo 2**64
    numbers = powers * np.uint64(314159265) & np.uint64(2**46 - 1)
    v = np.zeros(points**3)
    v[np.argpartition(numbers, CHARGES)[:CHARGES]] = -1
    v[np.argpartition(numbers, -CHARGES)[-CHARGES:]] = 1
    return v.reshape(points, points, points).transpose(2, 1, 0)


def with_numpy(v, smooth, cycles):
    """The norm of the residual."""

    def apply(weights, x):
        near = product((-1, 0, 1), repeat=3)
        return sum(weights[np.abs(d).sum()] * np.roll(x, d, (0, 1, 2)) for d in near)

    def cycle(r):
        if len(r) == 2:
            return apply(smooth, r)
        z = np.zeros(r.shape)
        z[1::2, 1::2, 1::2] = cycle(apply(RESTRICT, r)[1::2, 1::2, 1::2])
        z = apply(INTERPOLATE, z)
        return z + apply(smooth, r - apply(LAPLACE, z))

    u = np.zeros(v.shape)
    for _ in range(cycles):
        u += cycle(v - apply(LAPLACE, u))
    return np.sqrt(((v - apply(LAPLACE, u)) ** 2).mean())


def grids(comm, points):
    """Arrays of zeros for each grid, the coarsest one first: this rank's box and a layer around."""
    sizes = [2**k for k in range(1, points.bit_length())]
    shapes = [[size // d + 2 for d in comm.dims] for size in sizes]
    return tuple(cuda.to_device(np.zeros(shape)) for shape in shapes)


def run(comm, v, points, smooth, cycles):
    """The norm of the residual after all V-cycles, and the time."""
    v, peers = (
        cuda.to_device(np.pad(v, 1)),
        (*comm.Shift(0, 1), *comm.Shift(1, 1), *comm.Shift(2, 1)),
    )
    with gmpi.Context(comm, wildcards=False) as g:
        for n in (0, cycles):  # the first one compiles
            u, r, square = grids(comm, points), grids(comm, points), cuda.to_device(np.zeros(1))
            values = (g.device, u, r, v, peers, smooth, square, n)
            blocks = g.max_blocks(solve, THREADS, values)
            blocks = min(blocks, 2) if gmpi.SIMULATOR else blocks
            comm.Barrier()
            began = MPI.Wtime()
            solve[blocks, THREADS](*values)
            g.synchronize()  # raises the first error of any call in the kernel
            seconds = comm.allreduce(MPI.Wtime() - began, MPI.MAX)
    return (square.copy_to_host()[0] / points**3) ** 0.5, seconds


def main(run=run):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--class", dest="name", default="S", choices=list(CLASSES)[:4])
    parser.add_argument("--small", action="store_true", help="for the simulator: 8^3, 2 V-cycles")
    args = parser.parse_args()
    name, size = "small" if args.small else args.name, MPI.COMM_WORLD.size
    if size not in (1, 2, 4, 8):
        raise SystemExit(f"mg needs 1, 2, 4 or 8 ranks, not {size}: the coarsest grid is 2^3")
    comm = MPI.COMM_WORLD.Create_cart(MPI.Compute_dims(size, 3), periods=(True,) * 3)
    gmpi.select_gpu(comm)
    points, cycles, smooth, official = CLASSES[name]
    v = charges(points)
    box = tuple(
        slice(points // d * c, points // d * (c + 1)) for d, c in zip(comm.dims, comm.coords)
    )
    norm, seconds = run(comm, v[box], points, smooth, cycles)
    if comm.rank > 0:
        return 0
    if official is None:
        official = with_numpy(v, smooth, cycles)
    right = abs(norm / official - 1) < 1e-8
    rate = 58e-6 * cycles * points**3 / seconds
    print(f"class {name} on {comm.dims} ranks: {rate:.1f} Mop/s")
    print(f"the norm is {norm:.13e}: {'right' if right else 'WRONG'}")
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
