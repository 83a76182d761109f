"""A halo of 26 neighbours: faces, edges and corners of a cube of points, by derived datatypes.

    mpiexec -n 2 python examples/halo26.py [--points 256] [--how messages|partitions]
                                           [--construction 0..14]

Ranks form a torus in three dimensions. Each has a cube of points with 8 doubles each, and a halo of
3 points around it, which comes from 26 neighbours (C. Pearson et al., TEMPI, HPDC 2021, section
6.4). Datatypes are built in one of 15 ways (section 6.1), which are all the same once they are
committed. Every double of the halo is compared with its number in the whole torus.
"""

import argparse
from contextlib import ExitStack
from itertools import product
from math import gcd

import numpy as np
from mpi4py import MPI
from numba import cuda, int64

import gmpi
from gmpi import GMPI_Irecv, GMPI_Isend, GMPI_Parrived, GMPI_Pready, GMPI_Startall, GMPI_Waitall

FIELDS, RADIUS = 8, 3
POINT = 8 * FIELDS  # bytes
WAYS = [way for way in product((-1, 0, 1), repeat=3) if any(way)]  # WAYS[25 - k] leads back
CUTS = 32  # a region with a long side is so many partitions, at most
CHECKED = 2  # exchanges
FAMILIES = ("subarray", "hvector of vector", "hvector of hvector of vector of ones",
            "hvector of hvector of vector of all", "subarray of vector")  # fmt: skip
UNITS = ("bytes", "doubles", "points")
WAYS_TO_SEND = ("messages", "partitions")
COMMITS = 3 if gmpi.SIMULATOR else 100  # of each construction, for their times
THREADS = 32 if gmpi.SIMULATOR else 512


def construct(number, shape, part):
    """A box of points, of an array of points: the same bytes in 15 ways."""
    doubles = MPI.DOUBLE.Create_contiguous(FIELDS)
    unit, size = ((MPI.BYTE, POINT), (MPI.DOUBLE, FIELDS), (doubles, 1))[number % 3]
    (rows, columns), (a, b, c) = shape[1:3], part
    row, plane = columns * POINT, rows * columns * POINT
    family = number // 3
    if family == 0:
        sizes = shape[0], rows, columns * size
        return unit.Create_subarray(sizes, (a, b, c * size), (0, 0, 0))
    if family in (2, 3):
        ones, length = (c * size, 1) if family == 2 else (1, c * size)
        line = unit.Create_vector(ones, length, length)
        return line.Create_hvector(b, 1, row).Create_hvector(a, 1, plane)
    face = unit.Create_vector(b, c * size, columns * size)
    if family == 1:
        return face.Create_hvector(a, 1, plane)
    return face.Create_resized(0, plane).Create_subarray((shape[0],), (a,), (0,))


class Regions:
    """What a rank sends to each of its neighbours, and where it receives.

    Attributes:
        parts: points along each axis.
        out, back: the first double of what is sent, and of where it is received.
        peers: ranks of the neighbours.
    """

    def __init__(self, comm, n):
        self.n, self.shape = n, (n + 2 * RADIUS,) * 3
        strides = self.shape[0] ** np.arange(2, -1, -1) * FIELDS
        first = {-1: RADIUS, 0: RADIUS, 1: n}
        beyond = {-1: 0, 0: RADIUS, 1: n + RADIUS}
        self.parts = [tuple(n if w == 0 else RADIUS for w in way) for way in WAYS]
        self.out = np.array([[first[w] for w in way] for way in WAYS]) @ strides
        self.back = np.array([[beyond[w] for w in way] for way in WAYS]) @ strides
        self.peers = np.array([comm.Get_cart_rank(np.add(comm.coords, way)) for way in WAYS])

    def slabs(self, k):
        """Region k, cut along its first long axis: how many, of how many points, how far apart."""
        if 0 not in WAYS[k]:
            return 1, self.parts[k], 0
        axis, cuts = WAYS[k].index(0), gcd(self.n, CUTS)
        part = list(self.parts[k])
        part[axis] //= cuts
        return cuts, tuple(part), self.shape[0] ** (2 - axis) * POINT * part[axis]


@cuda.jit(device=True)
def change(u, amount):
    """All values of the cube: where a stencil would be."""
    n = u.shape[0] - 2 * RADIUS
    for k in range(cuda.grid(1), n * n * n * FIELDS, cuda.gridsize(1)):
        point = k // FIELDS
        x, y, z = point // (n * n), point // n % n, point % n
        u[RADIUS + x, RADIUS + y, RADIUS + z, k % FIELDS] += amount


# wide: where to send and to receive
@cuda.jit
def by_messages(ctx, u, flat, peers, types, out, back, amount, steps):
    """Every block has some regions. The tag is the way that a message goes."""
    grid = cuda.cg.this_grid()
    requests = cuda.local.array(2 * 26, int64)
    for _ in range(steps):
        if amount != 0:
            change(u, amount)
            grid.sync()
        n = 0
        for k in range(cuda.blockIdx.x, 26, cuda.gridDim.x):
            halo, edge = flat[back[k] :], flat[out[k] :]
            requests[n] = GMPI_Irecv(ctx, halo, 1, types[k], peers[k], 25 - k, gmpi.COMM_WORLD)
            requests[n + 1] = GMPI_Isend(ctx, edge, 1, types[k], peers[k], k, gmpi.COMM_WORLD)
            n += 2
        GMPI_Waitall(ctx, n, requests)
        grid.sync()  # all of the halo is visible to all blocks


@cuda.jit
def by_partitions(ctx, u, requests, region, partition, amount, steps):
    """Blocks take partitions in turn; requests[:26] are sends, the others receives."""
    grid = cuda.cg.this_grid()
    for _ in range(steps):
        if cuda.blockIdx.x == 0:
            GMPI_Startall(ctx, 2 * 26, requests)
        if amount != 0:
            change(u, amount)
        grid.sync()
        for k in range(cuda.blockIdx.x, region.size, cuda.gridDim.x):
            GMPI_Pready(ctx, partition[k], requests[region[k]])
        for k in range(cuda.blockIdx.x, region.size, cuda.gridDim.x):
            while not GMPI_Parrived(ctx, requests[26 + region[k]], partition[k]):
                pass
        grid.sync()
        if cuda.blockIdx.x == 0:
            GMPI_Waitall(ctx, 2 * 26, requests)


def for_messages(g, ending, regions, flat, number):
    """What by_messages takes: a datatype for each region, the same to send and to receive."""
    types = [g.commit(construct(number, regions.shape, part)) for part in regions.parts]
    for handle in types:
        ending.callback(g.free, handle)
    arrays = regions.peers, np.array(types), regions.out, regions.back
    return by_messages, (flat, *(cuda.to_device(array) for array in arrays))


def for_partitions(g, ending, regions, flat, number):
    """What by_partitions takes. Partitions of a region are elements of one datatype."""
    requests, work = np.zeros(2 * 26, np.int64), []
    for k, peer in enumerate(regions.peers.tolist()):
        cuts, part, step = regions.slabs(k)
        slab = g.commit(construct(number, regions.shape, part).Create_resized(0, step))
        ending.callback(g.free, slab)
        requests[k] = g.Psend_init(flat[regions.out[k] :], cuts, 1, slab, peer, k)
        requests[26 + k] = g.Precv_init(flat[regions.back[k] :], cuts, 1, slab, peer, 25 - k)
        work += [(k, cut) for cut in range(cuts)]
    for request in requests.tolist():
        ending.callback(g.Request_free, request)
    arrays = (requests, *np.array(work).T.copy())
    return by_partitions, tuple(cuda.to_device(array) for array in arrays)


def run(comm, how, regions, number, start, amount, steps):
    """Some exchanges; the array after them, and the time of one."""
    prepare = {"messages": for_messages, "partitions": for_partitions}[how]
    with gmpi.Context(comm, wildcards=False) as g, ExitStack() as ending:
        u = g.zeros(start.shape, np.float64)  # memory that peers can write to
        u.copy_to_device(start)
        kernel, values = prepare(g, ending, regions, u.reshape(-1), number)
        values = (g.device, u, *values, amount)
        blocks = g.max_blocks(kernel, THREADS, (*values, steps))
        blocks = min(blocks, 3) if gmpi.SIMULATOR else blocks
        kernel[blocks, THREADS](*values, 0)  # compiles
        g.synchronize()
        comm.Barrier()
        began = MPI.Wtime()
        kernel[blocks, THREADS](*values, steps)
        g.synchronize()  # raises the first error of any call in the kernel
        seconds = MPI.Wtime() - began
        return u.copy_to_host(), seconds / steps


def whole(comm, regions):
    """The number of each double in the torus, of the points of this rank and of its halo."""
    n, sizes = regions.n, np.multiply(comm.dims, regions.n)
    around = np.arange(-RADIUS, n + RADIUS)
    x, y, z = np.ix_(*((at * n + around) % size for at, size in zip(comm.coords, sizes)))
    points = (x * sizes[1] + y) * sizes[2] + z
    return (FIELDS * points[..., None] + np.arange(FIELDS)).astype(np.float64)


def commit_times(comm, regions):
    """Prints them, of a face between rows; whether all datatypes are the same when committed."""
    part = regions.parts[WAYS.index((0, -1, 0))]
    plans = [gmpi.datatypes.plan(construct(k, regions.shape, part)).segments() for k in range(15)]
    with gmpi.Context(comm) as g:
        for number in range(15):
            times = np.zeros((COMMITS, 3))
            for n in range(COMMITS):
                times[n, 0] = MPI.Wtime()
                datatype = construct(number, regions.shape, part)
                times[n, 1] = MPI.Wtime()
                handle = g.commit(datatype)
                times[n, 2] = MPI.Wtime()
                g.free(handle)
            if comm.rank == 0:
                create, commit = 1e6 * np.median(np.diff(times), axis=0)
                name = f"{FAMILIES[number // 3]}, {UNITS[number % 3]}"
                print(f"{number:2} {name:45} create {create:7.1f} us, commit {commit:7.1f} us")
    return all(plan == plans[0] for plan in plans)


def main(run=run, ways=WAYS_TO_SEND):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--points", type=int, default=256, help="along an edge of a rank's cube")
    parser.add_argument("--how", choices=WAYS_TO_SEND, help="only this way")
    parser.add_argument("--construction", type=int, default=0, choices=range(15), metavar="0..14")
    parser.add_argument("--steps", type=int, default=20, help="exchanges that are timed")
    parser.add_argument("--small", action="store_true", help="for the simulator: 4 points")
    args = parser.parse_args()
    n = 4 if args.small else args.points
    if n < RADIUS or args.steps < 1:
        raise SystemExit(f"--points is {n}, --steps is {args.steps}: at least {RADIUS}, the width "
                         "of the halo, and 1 are needed")  # fmt: skip
    dims = MPI.Compute_dims(MPI.COMM_WORLD.size, 3)
    comm = MPI.COMM_WORLD.Create_cart(dims, periods=(True,) * 3)
    gmpi.select_gpu(comm)
    regions = Regions(comm, n)
    rights = [commit_times(comm, regions)] if ways is WAYS_TO_SEND else []
    expected = whole(comm, regions)
    inner = (slice(RADIUS, -RADIUS),) * 3
    start = np.full_like(expected, -1.0)
    start[inner] = expected[inner]
    for how in [args.how] if args.how in ways else ways:
        arguments = comm, how, regions, args.construction, start
        u, seconds = run(*arguments, 1.0, CHECKED)
        right = np.array_equal(u, expected + CHECKED)
        if not args.small:
            u, seconds = run(*arguments, 0.0, args.steps)
            right &= np.array_equal(u, expected)
        rights += comm.allgather(right)
        seconds = comm.allreduce(seconds, MPI.MAX)
        if comm.rank == 0:
            rate = 1e-9 * (start == -1).sum() * 8 / seconds
            words = "right" if all(rights) else "WRONG"
            print(f"{how}: {1e6 * seconds:.1f} us an exchange, {rate:.3f} GB/s a rank: {words}")
    return 0 if all(rights) else 1


if __name__ == "__main__":
    raise SystemExit(main())
