"""Blocks of a Voronoi tessellation travel from rank to rank: structs of pointers, each one message.

    mpiexec -n 2 python examples/hacc.py [--particles 4096] [--how struct|packed]

A cosmological simulation turns particles into cells of a Voronoi tessellation. A rank has a block
of them: a struct of numbers and of pointers to arrays, each as long as the block needs (J. Jenkins
et al., Processing MPI derived datatypes on noncontiguous GPU-resident data, TPDS 2014, section 5.2,
on HACC). A datatype of absolute addresses describes the block, so it is sent as a whole: from
BOTTOM, count 1. Every block goes around the ring of ranks. Each rank counts how many of its voids,
large cells, are near voids of the visitor. The counts are compared with NumPy's; when a block is
home again, each of its bytes with what it was.

The geometry is random: a cell has as many faces and corners as cells of random points have on
average (15.5 faces, each of 5.2 corners; four cells meet at a corner).
"""

import argparse
from contextlib import ExitStack

import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import GMPI_Comm_rank, GMPI_Comm_size, GMPI_Irecv, GMPI_Isend, GMPI_Waitall

FLOATS = ("mins and maxs", "vertices", "sites", "areas", "vols")
INTS = ("counts", "cells", "face_verts", "num_cell_faces", "num_face_verts")
SITES, VOLS = FLOATS.index("sites"), FLOATS.index("vols")
WAYS = ("struct", "packed")
BOX, NEAR, LARGE = 64.0, 16.0, 1.2  # a side of the box; how near in each direction; a void
THREADS = 32 if gmpi.SIMULATOR else 256


def block_of(rank, particles):
    """The block of a rank, which has some more particles than the one before: floats, ints."""
    random = np.random.default_rng(rank)
    cells = particles * (3 + rank % 3) // 4
    faces, cell_corners = int(15.5 * cells / 2), int(15.5 * 5.2 / 3 * cells)
    corners, face_corners = cell_corners // 4, int(5.2 * faces)
    counts = (corners, cells, cell_corners, cells, faces, face_corners, cells)
    lengths = (6, 3 * corners, 3 * cells, cells, cells)
    floats = [random.uniform(0, BOX, length).astype(np.float32) for length in lengths]
    floats[VOLS] = random.gamma(5.6, 1 / 5.6, cells).astype(np.float32)  # of mean 1
    lengths = (cell_corners, face_corners, cells, faces)
    ints = [random.integers(0, corners, length).astype(np.int32) for length in lengths]
    return floats, [np.array(counts, np.int32), *ints]


@cuda.jit(device=True)
def count_pairs(mine, visitor, cells, near, begin, step):
    """Pairs of voids, one of this rank and one of the visitor, as thread ``begin`` of ``step``."""
    sites, vols = mine
    their_sites, their_vols = visitor[SITES], visitor[VOLS]
    found = 0
    for k in range(begin, vols.size * cells, step):
        i, j = k // cells, k % cells
        if vols[i] > LARGE and their_vols[j] > LARGE:
            x = abs(sites[3 * i] - their_sites[3 * j])
            y = abs(sites[3 * i + 1] - their_sites[3 * j + 1])
            z = abs(sites[3 * i + 2] - their_sites[3 * j + 2])
            if x < NEAR and y < NEAR and z < NEAR:
                found += 1
    cuda.atomic.add(near, 0, found)


@cuda.jit(device=True)
def count_beside(mine, visitor, cells, near):
    """By all blocks but block 0, which communicates."""
    begin = (cuda.blockIdx.x - 1) * cuda.blockDim.x + cuda.threadIdx.x
    count_pairs(mine, visitor, cells, near, begin, (cuda.gridDim.x - 1) * cuda.blockDim.x)


@cuda.jit
def by_struct(ctx, held, free, mine, lengths, near, types, hops):
    """types[k, rank]: the block of that rank, in ``held`` (k = 0) or ``free`` as they begin."""
    grid = cuda.cg.this_grid()
    me, ranks = GMPI_Comm_rank(ctx, gmpi.COMM_WORLD), GMPI_Comm_size(ctx, gmpi.COMM_WORLD)
    left, right = (me - 1) % ranks, (me + 1) % ranks
    for hop in range(hops):
        visitor, next_one = (me - hop) % ranks, (me - hop - 1) % ranks
        if cuda.blockIdx.x == 0:
            out, into = types[hop % 2, visitor], types[1 - hop % 2, next_one]
            r = GMPI_Irecv(ctx, gmpi.BOTTOM, 1, into, left, 1, gmpi.COMM_WORLD)
            s = GMPI_Isend(ctx, gmpi.BOTTOM, 1, out, right, 1, gmpi.COMM_WORLD)
            GMPI_Waitall(ctx, 2, (r, s))
        else:
            count_beside(mine, held[0], lengths[visitor, VOLS], near[visitor])
        grid.sync()
        held, free = free, held


@cuda.jit(device=True)
def pack(arrays, lengths, buffer):
    """One after the other; the length of all."""
    at = 0
    for field in range(len(arrays)):
        for k in range(cuda.grid(1), lengths[field], cuda.gridsize(1)):
            buffer[at + k] = arrays[field][k]
        at += lengths[field]
    return at


@cuda.jit(device=True)
def unpack(arrays, lengths, buffer):
    at = 0
    for field in range(len(arrays)):
        for k in range(cuda.grid(1), lengths[field], cuda.gridsize(1)):
            arrays[field][k] = buffer[at + k]
        at += lengths[field]
    return at


@cuda.jit
def by_hand(ctx, held, free, mine, lengths, near, buffers, hops):
    """The same with packed buffers: one for floats, one for ints, of each direction."""
    grid = cuda.cg.this_grid()
    me, ranks = GMPI_Comm_rank(ctx, gmpi.COMM_WORLD), GMPI_Comm_size(ctx, gmpi.COMM_WORLD)
    left, right = (me - 1) % ranks, (me + 1) % ranks
    floats_out, floats_in, ints_out, ints_in = buffers
    for hop in range(hops):
        visitor, next_one = (me - hop) % ranks, (me - hop - 1) % ranks
        there = lengths[visitor]
        floats = pack(held[0], there[:5], floats_out)
        ints = pack(held[1], there[5:], ints_out)
        grid.sync()
        if cuda.blockIdx.x == 0:
            requests = (
                GMPI_Irecv(ctx, floats_in, floats_in.size, gmpi.FLOAT, left, 1, gmpi.COMM_WORLD),
                GMPI_Irecv(ctx, ints_in, ints_in.size, gmpi.INT, left, 2, gmpi.COMM_WORLD),
                GMPI_Isend(ctx, floats_out, floats, gmpi.FLOAT, right, 1, gmpi.COMM_WORLD),
                GMPI_Isend(ctx, ints_out, ints, gmpi.INT, right, 2, gmpi.COMM_WORLD),
            )
            GMPI_Waitall(ctx, 4, requests)
        else:
            count_beside(mine, held[0], there[VOLS], near[visitor])
        grid.sync()
        unpack(free[0], lengths[next_one, :5], floats_in)
        unpack(free[1], lengths[next_one, 5:], ints_in)
        grid.sync()
        held, free = free, held


def struct_of(block, lengths):
    """The datatype of a block: all of its arrays, by their addresses."""
    arrays = block[0] + block[1]
    kinds = [MPI.FLOAT] * len(block[0]) + [MPI.INT] * len(block[1])
    addresses = [gmpi.Get_address(a) for a in arrays]
    return MPI.Datatype.Create_struct(lengths.tolist(), addresses, kinds)


def room_for(lengths):
    """A block on the GPU with room for that of any rank."""
    kinds = [np.float32] * len(FLOATS) + [np.int32] * len(INTS)
    arrays = [cuda.to_device(np.zeros(n, kind)) for n, kind in zip(lengths.max(axis=0), kinds)]
    return tuple(arrays[: len(FLOATS)]), tuple(arrays[len(FLOATS) :])


def fill(block, content):
    for array, values in zip(block[0] + block[1], content[0] + content[1]):
        array[: values.size].copy_to_device(values)


def run(comm, how, content, lengths, hops):
    """What the rank holds after so many hops, the counts by visitor, and the time of a hop."""
    held, free = room_for(lengths), room_for(lengths)
    fill(held, content)
    mine = tuple(cuda.to_device(content[0][field]) for field in (SITES, VOLS))
    near = cuda.to_device(np.zeros((comm.size, 1), np.int64))
    with gmpi.Context(comm, wildcards=False) as g, ExitStack() as ending:
        if how == "struct":
            kernel = by_struct
            types = [[g.commit(struct_of(b, n)) for n in lengths] for b in (held, free)]
            for handle in types[0] + types[1]:
                ending.callback(g.free, handle)
            moved = cuda.to_device(np.array(types))
        else:
            kernel = by_hand
            words = lengths[:, :5].sum(axis=1).max(), lengths[:, 5:].sum(axis=1).max()
            kinds = (np.float32, np.float32, np.int32, np.int32)
            moved = tuple(cuda.to_device(np.zeros(words[k // 2], kinds[k])) for k in range(4))
        values = (g.device, held, free, mine, cuda.to_device(lengths), near, moved)
        blocks = g.max_blocks(kernel, THREADS, (*values, hops))
        blocks = min(blocks, 3) if gmpi.SIMULATOR else blocks
        kernel[blocks, THREADS](*values, 0)  # compiles
        g.synchronize()
        comm.Barrier()
        began = MPI.Wtime()
        kernel[blocks, THREADS](*values, hops)
        g.synchronize()  # raises the first error of any call in the kernel
        seconds = MPI.Wtime() - began
    return held if hops % 2 == 0 else free, near.copy_to_host()[:, 0], seconds / hops


def with_numpy(mine, visitor):
    """Pairs of voids near each other."""
    ours, theirs = (
        block[0][SITES].reshape(-1, 3)[block[0][VOLS] > LARGE] for block in (mine, visitor)
    )
    return sum(int((np.abs(site - theirs) < NEAR).all(axis=1).sum()) for site in ours)


def main(run=run, ways=WAYS):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--particles", type=int, default=4096, help="of a rank, about")
    parser.add_argument("--how", choices=WAYS, help="only this")
    parser.add_argument("--rounds", type=int, default=20, help="of all blocks around the ring")
    parser.add_argument("--small", action="store_true", help="for the simulator: 32 particles")
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    particles, rounds = (32, 1) if args.small else (args.particles, args.rounds)
    if particles < 2 or rounds < 1:
        raise SystemExit(f"--particles is {particles}, --rounds is {rounds}: at least 2 and 1 are "
                         "needed")  # fmt: skip
    gmpi.select_gpu(comm)
    blocks = [block_of(rank, particles) for rank in range(comm.size)]
    content = blocks[comm.rank]
    lengths = np.array([[a.size for a in floats + ints] for floats, ints in blocks])
    expected = [rounds * with_numpy(content, visitor) for visitor in blocks]
    rights = []
    for how in [args.how] if args.how in ways else ways:
        home, near, seconds = run(comm, how, content, lengths, rounds * comm.size)
        pairs = zip(home[0] + home[1], content[0] + content[1])
        same = all(a.copy_to_host()[: b.size].tobytes() == b.tobytes() for a, b in pairs)
        rights += comm.allgather(same and near.tolist() == expected)
        seconds, found = comm.allreduce(seconds, MPI.MAX), comm.allreduce(near.sum())
        if comm.rank == 0:
            rate = 4e-9 * lengths.sum() / comm.size / seconds
            print(f"{how}: {1e6 * seconds:.1f} us a hop, {rate:.3f} GB/s a rank; {found // rounds} "
                  f"pairs of voids: {'right' if all(rights) else 'WRONG'}")  # fmt: skip
    return 0 if all(rights) else 1


if __name__ == "__main__":
    raise SystemExit(main())
