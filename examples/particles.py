"""Particles in domains of any shape: one kernel per GPU moves them, and they move between ranks.

    mpiexec -n 4 python examples/particles.py [--cells 32] [--steps 200] [--small]

A cube without walls is cut into cells as wide as the reach of a force, and each cell has a rank. In
each step a rank tells its neighbours where the particles of its frontier cells are, each of them
only what is next to it; meanwhile those of internal cells feel their forces. Particles that have
moved into external cells go to the ranks of these (M. Bernaschi et al., Large scale simulations on
GPU clusters, section 3.2). Nobody knows beforehand how many. All numbers are integers, so order
does not matter: momentum stays to the last bit, and a checksum of all is compared with NumPy's.
"""

import argparse
from collections import namedtuple
from itertools import product

import numpy as np
from mpi4py import MPI
from numba import cuda, int64

import gmpi
from gmpi import GMPI_Comm_rank, GMPI_Irecv, GMPI_Isend, GMPI_Waitall

BITS, SHIFT = 20, 30  # of the width of a cell; of a velocity that are less than a unit of length
DENSITY, MOST = 4, 32  # particles of a cell: in the beginning, and at most
RANKS, REQUESTS, COUNT = 32, 64, 3  # at most; where in a status the count is
THREADS = 32 if gmpi.SIMULATOR else 256

# A rank's arrays. A particle is a row: its number, x, y, z, and a velocity.
# bodies (2, n, 7): particles, now and after the step; number (1,): of these. held (cells,): how
# many are in each cell; at (cells, MOST, 3): where they are. owner, near (cells,): its rank, and
# for a frontier cell bits of the ranks next to it. halo, listed: positions for each rank, and how
# many; ghosts: theirs. out, leaving, inbox: the same of particles. came (ranks,): how many rows
# have come. peers: ranks to exchange with. done (REQUESTS, 5): statuses.
NAMES = "bodies number held at owner near halo listed ghosts out leaving inbox came peers done"
State = namedtuple("State", NAMES)


@cuda.jit(device=True)
def exchange(ctx, s, messages, lengths, inbox):
    """Rows to and from all neighbours (one block). The status says how many have come."""
    n, room, width, i64 = s.peers.size, messages.shape[1], messages.shape[2], gmpi.INT64_T
    requests = cuda.local.array(REQUESTS, int64)
    for k in range(n):
        peer, into, length = s.peers[k], inbox[s.peers[k]], min(lengths[s.peers[k]], room) * width
        requests[k] = GMPI_Irecv(ctx, into, room * width, i64, peer, 1, gmpi.COMM_WORLD)
        requests[n + k] = GMPI_Isend(ctx, messages[peer], length, i64, peer, 1, gmpi.COMM_WORLD)
    GMPI_Waitall(ctx, 2 * n, requests, s.done)
    for k in range(n):
        s.came[s.peers[k]], lengths[s.peers[k]] = s.done[k, COUNT] // width, 0


@cuda.jit(device=True)
def cell_of(row, x, cells):
    return ((row[x] >> BITS) * cells + (row[x + 1] >> BITS)) * cells + (row[x + 2] >> BITS)


@cuda.jit(device=True)
def append(rows, counter, k, row, first):
    """row[first:], behind the others. Where there is no room it is lost, which the check sees."""
    place = cuda.atomic.add(counter, k, 1)
    for a in range(rows.shape[1] if place < rows.shape[0] else 0):
        rows[place, a] = row[first + a]


@cuda.jit(device=True)
def settle(s, row, cells):
    """A particle of this rank, to its cell, and to the lists for the ranks next to that."""
    cell = cell_of(row, 1, cells)
    append(s.at[cell], s.held, cell, row, 1)
    near, rank = s.near[cell], 0
    while near != 0:
        if near & 1:
            append(s.halo[rank], s.listed, rank, row, 1)
        near, rank = near >> 1, rank + 1


@cuda.jit(device=True)
def kick(s, row, cells):
    """What all particles within reach do to one: the nearer, the more; itself, nothing."""
    wrap, half, fx, fy, fz = (cells << BITS) - 1, cells << BITS - 1, 0, 0, 0
    x, y, z = row[1], row[2], row[3]
    for n in range(27):
        i = (x >> BITS) + n // 9 - 1 & cells - 1
        j = (y >> BITS) + n // 3 % 3 - 1 & cells - 1
        cell = (i * cells + j) * cells + ((z >> BITS) + n % 3 - 1 & cells - 1)
        for k in range(min(s.held[cell], MOST)):
            dx = (x - s.at[cell, k, 0] + half & wrap) - half
            dy = (y - s.at[cell, k, 1] + half & wrap) - half
            dz = (z - s.at[cell, k, 2] + half & wrap) - half
            much = (1 << 2 * BITS) - dx * dx - dy * dy - dz * dz >> BITS
            if much > 0:
                fx, fy, fz = fx + much * dx, fy + much * dy, fz + much * dz
    row[4], row[5], row[6] = row[4] + fx, row[5] + fy, row[6] + fz


@cuda.jit(device=True)
def drift(s, row, cells, me, new):
    """Moves a particle, to the next array or to those that leave."""
    for a in range(1, 4):
        row[a] = row[a] + (row[a + 3] >> SHIFT) & (cells << BITS) - 1
    cell = cell_of(row, 1, cells)
    if s.owner[cell] == me:
        append(new, s.number, 0, row, 0)
    else:
        append(s.out[s.owner[cell]], s.leaving, s.owner[cell], row, 0)


@cuda.jit(device=True)
def receive(s, messages, new, cells):
    """Positions go to their cells, and particles to those that are here."""
    for rank in range(s.came.size):
        for k in range(cuda.grid(1), s.came[rank], cuda.gridsize(1)):
            row = messages[rank, k]
            if row.size == 3:
                cell = cell_of(row, 0, cells)
                append(s.at[cell], s.held, cell, row, 0)
            else:
                append(new, s.number, 0, row, 0)


@cuda.jit
def simulate(ctx, s, cells, steps):
    """All steps. The particles are in bodies[steps % 2] in the end."""
    grid, me, block_0 = cuda.cg.this_grid(), GMPI_Comm_rank(ctx, 0), cuda.blockIdx.x == 0
    begin, step, old, new = cuda.grid(1), cuda.gridsize(1), s.bodies[0], s.bodies[1]
    for _ in range(steps):
        number = min(s.number[0], old.shape[0])
        for p in range(begin, number, step):
            settle(s, old[p], cells)
        grid.sync()
        if block_0:
            exchange(ctx, s, s.halo, s.listed, s.ghosts)
        else:
            for p in range(begin - cuda.blockDim.x, number, step - cuda.blockDim.x):
                if s.near[cell_of(old[p], 1, cells)] == 0:
                    kick(s, old[p], cells)
        grid.sync()
        receive(s, s.ghosts, new, cells)
        s.number[0] = 0
        grid.sync()
        for p in range(begin, number, step):
            if s.near[cell_of(old[p], 1, cells)] != 0:
                kick(s, old[p], cells)
            drift(s, old[p], cells, me, new)
        grid.sync()
        if block_0:
            exchange(ctx, s, s.out, s.leaving, s.inbox)
        for cell in range(begin, s.held.size, step):
            s.held[cell] = 0
        grid.sync()
        receive(s, s.inbox, new, cells)
        grid.sync()
        old, new = new, old


def some_particles(cells, density):
    rng, count = np.random.default_rng(cells), density * cells**3
    rows = rng.integers(-1 << SHIFT + 15, 1 << SHIFT + 15, (count, 7))
    rows[:, 0] = np.arange(count)
    places = np.indices((cells,) * 3).reshape(3, -1).T.repeat(density, 0)
    rows[:, 1:4] = (places << BITS) + rng.integers(0, 1 << BITS, (count, 3))
    return rows


def with_numpy(rows, cells, steps):
    side, x, v = cells << BITS, rows[:, 1:4], rows[:, 4:]
    for _ in range(steps):
        for p in range(len(rows)):
            d = (x[p] - x + side // 2) % side - side // 2
            much = np.maximum((1 << 2 * BITS) - (d * d).sum(1) >> BITS, 0)
            v[p] += much @ d
        x[:] = (x + (v >> SHIFT)) % side
    return rows


def checksum(rows):
    """Of all particles, in any order."""
    mixed = np.zeros(len(rows), np.uint64)
    for column in rows.T.astype(np.uint64):
        mixed = (mixed ^ column) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return int(mixed.sum())


def state_of(comm, cells, rows):
    """Domains: a cell belongs to the rank whose seed is the nearest one, so they have any shape."""
    ranks, centers = comm.size, np.indices((cells,) * 3).reshape(3, -1).T + 0.5
    seeds = (np.arange(ranks)[:, None] + 0.5) * (1 / ranks, 0.7549, 0.5698) % 1 * cells
    away = [np.abs(centers - seed) for seed in seeds]
    owner = np.argmin([(np.minimum(a, cells - a) ** 2).sum(1) for a in away], 0)
    cube, near = owner.reshape((cells,) * 3), 0
    for shift in product((-1, 0, 1), repeat=3):
        near |= 1 << np.roll(cube, shift, (0, 1, 2)).ravel()
    near = np.where(owner == comm.rank, near & ~(1 << comm.rank), 0)
    peers = np.flatnonzero(np.bitwise_or.reduce(near) >> np.arange(ranks) & 1)
    room = 3 * DENSITY * comm.allreduce(np.count_nonzero(near), MPI.MAX) + 1
    rows = rows[cube[tuple(rows[:, 1:4].T >> BITS)] == comm.rank]
    bodies = np.zeros((2, 2 * len(rows) + room, 7), int)
    bodies[0, : len(rows)] = rows
    where, what = (ranks, room, 3), (ranks, room, 7)
    shapes = (cells**3, MOST, 3), where, ranks, where, what, ranks, what, ranks
    at, *boxes = [np.zeros(shape, int) for shape in shapes]
    arrays = [bodies, np.array([len(rows)]), 0 * owner, at, owner, near, *boxes, peers]
    return State(*map(cuda.to_device, (*arrays, np.zeros((REQUESTS, 5), int))))


def run(comm, cells, rows, steps):
    """The particles of this rank after some steps, and the time."""
    with gmpi.Context(comm, wildcards=False) as g:
        for n in (0, steps):  # the first one compiles
            s = state_of(comm, cells, rows)
            blocks = g.max_blocks(simulate, THREADS, (g.device, s, cells, n))
            blocks = min(blocks, 2) if gmpi.SIMULATOR else blocks
            comm.Barrier()
            began = MPI.Wtime()
            simulate[blocks, THREADS](g.device, s, cells, n)
            g.synchronize()  # raises the first error of any call in the kernel
            seconds = comm.allreduce(MPI.Wtime() - began, MPI.MAX)
    return s.bodies.copy_to_host()[steps % 2, : s.number.copy_to_host()[0]], seconds


def main(run=run):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cells", type=int, default=32, help="along each edge of the cube")
    parser.add_argument("--steps", type=int, default=200, help="that are timed")
    parser.add_argument("--small", action="store_true", help="for the simulator: 8 cells, 3 steps")
    args, comm = parser.parse_args(), MPI.COMM_WORLD
    cases = [(8, 1, 3)] if args.small else [(8, DENSITY, 10), (args.cells, DENSITY, args.steps)]
    if args.cells < 4 or args.cells & args.cells - 1 or comm.size > RANKS:
        raise SystemExit(f"--cells {args.cells}: a power of two from 4 on; ranks: at most {RANKS}")
    gmpi.select_gpu(comm)
    rights = []
    for cells, density, steps in cases:
        rows = some_particles(cells, density)
        mine, seconds = run(comm, cells, rows, steps)
        found = comm.allreduce(checksum(mine)) % 2**64
        numbers, momentum = comm.allreduce(len(mine)), comm.allreduce(mine[:, 4:].sum(0))
        rights.append(numbers == len(rows) and (momentum == rows[:, 4:].sum(0)).all())
        if len(rows) <= 8192:
            rights.append(found == checksum(with_numpy(rows, cells, steps)))
        if comm.rank == 0:
            rate = 1e-6 * len(rows) * steps / seconds
            print(f"{cells}^3 cells, {comm.size} ranks: {numbers} particles, checksum {found:016x}")
            print(f"{rate:.4g} million a second; {'right' if all(rights) else f'WRONG: {rights}'}")
    return 0 if all(rights) else 1


if __name__ == "__main__":
    raise SystemExit(main())
