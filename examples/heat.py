"""Heat in a plate: one kernel per GPU computes, exchanges halos and asks whether it has converged.

    mpiexec -n 4 python examples/heat.py [--size ROWS,COLUMNS] [--limit N] [--picture heat.png]

The plate is cut into rectangles, one for each rank. Around its points a rank has one layer: points
of a neighbour, or the edge of the plate, which keeps its temperature. In each step every point
takes the mean of its four neighbours, until no point of any rank changes by more than --tolerance.
The result is compared with NumPy's, bit by bit.
"""

import argparse

import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import GMPI_Allreduce, GMPI_Irecv, GMPI_Isend, GMPI_Waitall

CHECK = 10  # steps from one question whether all have converged to the next
THREADS = 32 if gmpi.SIMULATOR else 512


@cuda.jit(device=True)
def exchange(ctx, u, north, south, west, east):
    """Sends the outermost points to the neighbours, and receives theirs (one block).

    A row lies in one piece. A column is a slice with a stride: GMPI packs it. A neighbour that is
    not there is PROC_NULL: nothing is sent, and the edge of the plate stays.
    """
    rows, columns = u.shape[0], u.shape[1]
    requests = (
        GMPI_Irecv(ctx, u[0], columns, gmpi.DOUBLE, north, 1, gmpi.COMM_WORLD),
        GMPI_Irecv(ctx, u[rows - 1], columns, gmpi.DOUBLE, south, 2, gmpi.COMM_WORLD),
        GMPI_Irecv(ctx, u[1:-1, 0], rows - 2, gmpi.DOUBLE, west, 3, gmpi.COMM_WORLD),
        GMPI_Irecv(ctx, u[1:-1, columns - 1], rows - 2, gmpi.DOUBLE, east, 4, gmpi.COMM_WORLD),
        GMPI_Isend(ctx, u[rows - 2], columns, gmpi.DOUBLE, south, 1, gmpi.COMM_WORLD),
        GMPI_Isend(ctx, u[1], columns, gmpi.DOUBLE, north, 2, gmpi.COMM_WORLD),
        GMPI_Isend(ctx, u[1:-1, columns - 2], rows - 2, gmpi.DOUBLE, east, 3, gmpi.COMM_WORLD),
        GMPI_Isend(ctx, u[1:-1, 1], rows - 2, gmpi.DOUBLE, west, 4, gmpi.COMM_WORLD),
    )
    GMPI_Waitall(ctx, 8, requests)


@cuda.jit  # wide: a kernel's arrays and neighbours
def solve(ctx, u, v, north, south, west, east, change, tolerance, limit, steps):
    """All steps. u and v take turns; change[k] is the largest change in check k, of all ranks."""
    grid = cuda.cg.this_grid()
    columns = u.shape[1] - 2
    points = (u.shape[0] - 2) * columns
    n = 0
    while n < limit:
        if cuda.blockIdx.x == 0:
            exchange(ctx, u, north, south, west, east)
        grid.sync()  # what has come is visible to all blocks
        largest = 0.0
        for point in range(cuda.grid(1), points, cuda.gridsize(1)):
            i, j = 1 + point // columns, 1 + point % columns
            v[i, j] = 0.25 * ((u[i - 1, j] + u[i + 1, j]) + (u[i, j - 1] + u[i, j + 1]))
            largest = max(largest, abs(v[i, j] - u[i, j]))
        n += 1
        u, v = v, u
        if n % CHECK == 0:
            k = n // CHECK
            cuda.atomic.max(change, k, largest)
            grid.sync()
            if cuda.blockIdx.x == 0:
                most = change[k : k + 1]
                GMPI_Allreduce(ctx, gmpi.IN_PLACE, most, 1, gmpi.DOUBLE, gmpi.MAX, gmpi.COMM_WORLD)
            grid.sync()
            if change[k] < tolerance:
                break
        else:
            grid.sync()  # what all blocks have computed is visible to block 0
    if cuda.grid(1) == 0:
        steps[0] = n


def run(comm, u, v, tolerance, limit):
    """Steps until nothing changes, and the time of all of them."""
    change, steps = cuda.to_device(np.zeros(limit // CHECK + 1)), cuda.to_device(np.zeros(1, int))
    with gmpi.Context(comm, wildcards=False) as g:
        values = (g.device, u, v, *comm.Shift(0, 1), *comm.Shift(1, 1), change, tolerance)
        solve[1, THREADS](*values, 0, steps)  # compiles
        g.synchronize()
        blocks = g.max_blocks(solve, THREADS, (*values, limit, steps))
        blocks = min(blocks, 2) if gmpi.SIMULATOR else blocks
        comm.Barrier()
        began = MPI.Wtime()
        solve[blocks, THREADS](*values, limit, steps)
        g.synchronize()  # raises the first error of any call in the kernel
        return int(steps.copy_to_host()[0]), MPI.Wtime() - began


def plate(size):
    """Cold, with an edge that gets hotter from one corner to the opposite one."""
    u = np.zeros(size)
    u[0] = np.linspace(0, 50, size[1])
    u[:, -1] = np.linspace(50, 100, size[0])
    return u


def with_numpy(u, steps):
    v = u.copy()
    for _ in range(steps):
        v[1:-1, 1:-1] = 0.25 * ((u[:-2, 1:-1] + u[2:, 1:-1]) + (u[1:-1, :-2] + u[1:-1, 2:]))
        u, v = v, u
    return u


def draw(u, path):
    import matplotlib.pyplot as plt

    plt.imshow(u, cmap="inferno")
    plt.colorbar(label="temperature")
    plt.savefig(path)


def main(run=run):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", default="514,514", help="ROWS,COLUMNS, with the edge")
    parser.add_argument("--tolerance", type=float, default=1e-3)
    parser.add_argument("--limit", type=int, default=5000, help="of steps")
    parser.add_argument("--small", action="store_true", help="for the simulator: 30 steps of 14,17")
    parser.add_argument("--picture", help="file to draw the temperatures to (needs matplotlib)")
    args = parser.parse_args()
    size = (14, 17) if args.small else tuple(int(extent) for extent in args.size.split(","))
    comm = MPI.COMM_WORLD.Create_cart(MPI.Compute_dims(MPI.COMM_WORLD.size, 2))
    if len(size) != 2 or min((n - 2) // d for n, d in zip(size, comm.dims)) < 1:
        raise SystemExit(f"{size} is too small for {comm.dims} ranks: each needs a point")
    if args.limit < 1:
        raise SystemExit(f"--limit is {args.limit}: at least 1 step is needed")
    cut = [(n - 2) * np.arange(d + 1) // d for n, d in zip(size, comm.dims)]
    box = tuple(slice(at[me], at[me + 1] + 2) for at, me in zip(cut, comm.coords))
    gmpi.select_gpu(comm)
    start = plate(size)
    u, v = (cuda.to_device(start[box].copy()) for _ in range(2))
    n, seconds = run(comm, u, v, args.tolerance, 30 if args.small else args.limit)
    seconds = comm.allreduce(seconds, MPI.MAX)

    parts = comm.gather((box, (v if n % 2 else u).copy_to_host()))
    if parts is None:
        return 0
    whole = start.copy()
    for (i, j), part in parts:
        whole[i.start + 1 : i.stop - 1, j.start + 1 : j.stop - 1] = part[1:-1, 1:-1]
    right = np.array_equal(whole, with_numpy(start, n))
    print(f"{size} on {comm.dims} ranks: {n} steps, {1e6 * seconds / n:.1f} us each")
    print(f"the bits of the serial program: {'right' if right else 'WRONG'}")
    if args.picture:
        draw(whole, args.picture)
    return 0 if right else 1


if __name__ == "__main__":
    raise SystemExit(main())
