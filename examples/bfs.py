"""Breadth-first search of a Graph500 graph: one kernel per GPU goes through all levels.

    mpiexec -n 4 python examples/bfs.py [--scale 20] [--roots 8] [--small]

The adjacency matrix of an R-MAT graph is cut into blocks, one for each rank of a grid. In a level a
rank tells the ranks of its column which of its vertices are new (expand), all follow the edges from
these, and each tells the ranks of its row which of their vertices it has found (fold): by a list or
a bitmap, whichever is shorter (M. Bernaschi et al., Large scale simulations on GPU clusters,
section 3.3). Parents come last. Each tree is validated by the five rules of Graph500.
"""

import argparse
from collections import namedtuple

import numpy as np
from mpi4py import MPI
from numba import cuda, int64

import gmpi
from gmpi import GMPI_Allreduce, GMPI_Sendrecv

EDGES, CHUNK = 16, 1024  # of the list, for each vertex; that a warp follows at once
NONE = ALL = 0xFFFFFFFF
THREADS = 32 if gmpi.SIMULATOR else 512

# A rank's arrays: R x C ranks have n vertices each, and a bitmap of these has n / 32 words.
# new (1, words): vertices of this rank that the last level has reached. out (C, words): vertices
# found by this rank in this level, by their owner's column. lists (C, words): the same, if shorter.
# inbox (R or C, words): what has come, and came: how long it is. parents (C, n): of all vertices
# that this rank has found, as numbers in its column. claims (C, n): those of this rank's vertices
# that its row has found. tree (n,): parents, -1: none, or -2 - j while column j has them. queue:
# vertices, and chunk of edges << 32. counts (C + 2,): of lists, of the queue, of new in all ranks.
State = namedtuple("State", "new out lists inbox parents claims tree queue counts came")


@cuda.jit(device=True)
def exchange(ctx, s, messages, inbox, along):
    """To each rank of a row or a column: a list, or what is in messages. Its length says which."""
    grid, (comm, me, ranks), words = cuda.cg.this_grid(), along, messages.shape[1]
    grid.sync()  # all blocks have written; then block 0 communicates
    for k in range(1, ranks if cuda.blockIdx.x == 0 else 1):
        to, source, u32 = (me + k) % ranks, (me + ranks - k) % ranks, gmpi.UINT32_T
        which, into = to % messages.shape[0], inbox[source]
        length = min(s.counts[which], words)
        send = s.lists[which] if length < words else messages[which]
        status = GMPI_Sendrecv(ctx, send, length, u32, to, 1, into, words, u32, source, 1, comm)
        s.came[source] = status.count
    grid.sync()  # what has come is visible to all


@cuda.jit(device=True)
def told(s, messages, along, item):
    """What all ranks tell, 32 vertices an item: the rank and a vertex for each lane, or -1."""
    (_, me, ranks), words = along, messages.shape[1]
    k, group = item // words, item % words
    peer, at = (me + k) % ranks, 32 * group + cuda.laneid
    message = s.inbox[peer] if k > 0 else messages[peer % messages.shape[0]]
    length = s.came[peer] if k > 0 else words
    if length == words:
        return peer, at if message[group] >> cuda.laneid & 1 else -1
    return peer, int64(message[at]) if at < length else -1


@cuda.jit(device=True)
def places(number, counter, k):
    """Room for ``number`` things of each lane: a scan by shuffles, one atomic for the warp."""
    before = number
    for shift in (1, 2, 4, 8, 16):
        other = cuda.shfl_up_sync(ALL, before, shift)
        before += other if cuda.laneid >= shift else 0
    base = cuda.atomic.add(counter, k, before) if cuda.laneid == 31 and before > 0 else 0
    return cuda.shfl_sync(ALL, base, 31) + before - number


@cuda.jit(device=True)
def compact(s, messages):
    """The set bits of each bitmap as a list, as far as that is shorter; counts them all."""
    words = messages.shape[1]
    for k in range(messages.shape[0]):
        for first in range(cuda.grid(1) - cuda.laneid, words, cuda.gridsize(1)):
            at = first + cuda.laneid
            word = int64(messages[k, at]) if at < words else int64(0)
            place = places(int64(cuda.popc(word)), s.counts, k)
            while word != 0 and place < words:
                s.lists[k, place] = 32 * at + cuda.ffs(word) - 1
                word, place = word & word - 1, place + 1


@cuda.jit(device=True)
def enqueue(s, start, along):
    """The new vertices of this column: an entry of the queue for each chunk of their edges."""
    for item in range(cuda.grid(1) // 32, along[2] * s.new.size, cuda.gridsize(1) // 32):
        row, v = told(s, s.new, along, item)
        u = row * s.tree.size + max(v, 0)
        chunks = (start[u + 1] - start[u] + CHUNK - 1) // CHUNK if v >= 0 else 0
        place = places(int64(chunks), s.counts, s.counts.size - 2)
        for chunk in range(chunks):
            s.queue[place + chunk] = chunk << 32 | u


@cuda.jit(device=True)
def follow(s, start, end):
    """The edges of all vertices in the queue. Who finds a vertex first is its parent here."""
    out, parents = s.out.reshape(-1), s.parents.reshape(-1)
    for entry in range(cuda.grid(1) // 32, s.counts[s.counts.size - 2], cuda.gridsize(1) // 32):
        u = s.queue[entry] & ALL
        begin = start[u] + CHUNK * (s.queue[entry] >> 32)
        for edge in range(begin + cuda.laneid, min(begin + CHUNK, start[u + 1]), 32):
            v = int64(end[edge])
            if parents[v] == NONE and cuda.atomic.cas(parents, v, NONE, u) == NONE:
                cuda.atomic.or_(out, v // 32, np.uint32(1 << v % 32))


@cuda.jit(device=True)
def merge(s, along):
    """What the ranks of this row have found, to the vertices that are new."""
    for item in range(cuda.grid(1) // 32, along[2] * s.new.size, cuda.gridsize(1) // 32):
        finder, v = told(s, s.out, along, item)
        if v >= 0 and cuda.atomic.cas(s.tree, v, -1, -2 - finder) == -1:
            cuda.atomic.or_(s.new[0], v // 32, np.uint32(1 << v % 32))


@cuda.jit(device=True)
def fill(array, value):
    for k in range(cuda.grid(1), array.size, cuda.gridsize(1)):
        array[k] = value


@cuda.jit
def search(ctx, row, column, start, end, s, root):
    """All levels, from the root on. Of row and column: communicator, rank in it, its size."""
    grid, (_, j, columns), (_, i, rows), n = cuda.cg.this_grid(), row, column, s.tree.size
    counts, all_new, mine = s.counts[:-1], s.counts[-1:], root - (j * rows + i) * n
    fill(s.parents.reshape(-1), NONE)
    fill(counts, 0)
    for v in range(cuda.grid(1), n, cuda.gridsize(1)):
        s.tree[v] = root if v == mine else -1
        if v % 32 == 0:
            s.new[0, v // 32] = 1 << mine % 32 if v // 32 == mine // 32 else 0
    grid.sync()
    while True:
        compact(s, s.new)
        exchange(ctx, s, s.new, s.inbox, column)  # expand
        if cuda.blockIdx.x == 0:
            GMPI_Allreduce(ctx, counts, all_new, 1, gmpi.INT64_T, gmpi.SUM, gmpi.COMM_WORLD)
        enqueue(s, start, column)
        fill(s.out.reshape(-1), 0)
        grid.sync()
        if all_new[0] == 0:
            break
        follow(s, start, end)
        fill(s.new[0], 0)
        fill(counts[:columns], 0)
        grid.sync()
        compact(s, s.out)
        exchange(ctx, s, s.out, s.inbox, row)  # fold
        merge(s, row)
        fill(counts, 0)
        grid.sync()
    fill(counts, n)
    exchange(ctx, s, s.parents, s.claims, row)
    for v in range(cuda.grid(1), n, cuda.gridsize(1)):
        c = -2 - s.tree[v]
        if c >= 0:
            s.tree[v] = c * rows * n + (s.parents[c, v] if c == j else s.claims[c, v])


def graph(scale, rows, columns, n, i, j):
    """All edges (R-MAT); where those of column j's vertices begin that end in row i; their ends."""
    rng, ends = np.random.default_rng(scale), np.zeros((2, EDGES << scale), np.int64)
    for bit in range(scale):
        low = rng.random(ends.shape[1]) > 0.57 + 0.19
        right = rng.random(ends.shape[1]) > np.where(low, 0.19 / 0.24, 0.57 / 0.76)
        ends += np.array((low, right)) << bit
    edges = rng.permutation(1 << scale)[ends]
    u, v = np.concatenate((edges, edges[::-1]), axis=1)
    mine = (u // (rows * n) == j) & (v // n % rows == i) & (u != v)  # a loop leads to nothing new
    u, v = u[mine] - j * rows * n, v[mine] // (rows * n) * n + v[mine] % n
    key = np.unique(u * (columns * n) + v)
    start = np.searchsorted(key, np.arange(rows * n + 1) * (columns * n))
    return edges, start, (key % (columns * n)).astype(np.uint32)


def validate(edges, root, parent):
    """Whether a tree keeps the five rules of Graph500; the edges of the list that are in it."""
    level = np.where(np.arange(parent.size) == root, 0, -1)
    while (new := (level < 0) & (parent >= 0) & (level[parent] >= 0)).any():
        level[new] = level[parent[new]] + 1
    joined = level == 0  # to the parent, by an edge of the list
    for u, v in (edges, edges[::-1]):
        joined[v[parent[v] == u]] = True
    reached, (u, v) = level >= 0, level[edges]
    right = parent[root] == root and np.array_equal(reached, parent >= 0)  # 1, 2: it is a tree
    right &= np.array_equal(u >= 0, v >= 0) and (abs(u - v) <= 1).all()  # 3: levels, 4: all of it
    right &= np.array_equal(joined, reached)  # 5: by edges of the graph
    return bool(right), int((u >= 0).sum())


def state_of(rows, columns, n, edges):
    words, most = n // 32, max(rows, columns)
    shapes = (1, words), (columns, words), (columns, words), (most, words), *[(columns, n)] * 2
    arrays = [np.zeros(shape, np.uint32) for shape in shapes]
    arrays += [np.zeros(k, int) for k in (n, rows * n + edges // CHUNK, columns + 2, most)]
    return State(*map(cuda.to_device, arrays))


def run(comm, rows, columns, n, matrix, roots):
    """Of each root the parents of this rank's vertices, and the time."""
    start, end, found = *map(cuda.to_device, matrix), []
    s = state_of(rows, columns, n, end.size)
    with gmpi.Context(comm, wildcards=False) as g:
        row, column = (comm.Split(colour) for colour in divmod(comm.rank, columns))
        along = [(g.comm(side, wildcards=False), side.rank, side.size) for side in (row, column)]
        for root in (roots[0], *roots):  # the first one compiles
            values = (g.device, *along, start, end, s, int(root))
            blocks = 2 if gmpi.SIMULATOR else g.max_blocks(search, THREADS, values)
            comm.Barrier()
            began = MPI.Wtime()
            search[blocks, THREADS](*values)
            g.synchronize()  # raises the first error of any call in the kernel
            found.append((s.tree.copy_to_host(), comm.allreduce(MPI.Wtime() - began, MPI.MAX)))
    return found[1:]


def main(run=run):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scale", type=int, default=16, choices=range(1, 32), metavar="1..31")
    parser.add_argument("--roots", type=int, default=8, choices=range(1, 65), metavar="1..64")
    parser.add_argument("--small", action="store_true", help="for the simulator: scale 7, 1 root")
    args, comm = parser.parse_args(), MPI.COMM_WORLD
    scale, searches = (7, 1) if args.small else (args.scale, args.roots)
    gmpi.select_gpu(comm)
    dims, n = MPI.Compute_dims(comm.size, 2)[::-1], -(-(1 << scale) // (32 * comm.size)) * 32
    edges, *matrix = graph(scale, *dims, n, *divmod(comm.rank, dims[1]))
    roots = np.unique(edges[:, edges[0] != edges[1]])[:searches]  # numbers are given by chance
    found = run(comm, *dims, n, matrix, roots)
    trees = comm.gather([tree for tree, _ in found])
    if comm.rank > 0:
        return 0
    # Rank (i, j) has the vertices from (j * rows + i) * n on.
    trees = np.array(trees).reshape(*dims, -1, n).transpose(2, 1, 0, 3).reshape(len(roots), -1)
    rights, traversed = zip(*[validate(edges, *pair) for pair in zip(roots, trees)])
    rate = 1 / np.mean([seconds / m for (_, seconds), m in zip(found, traversed)])
    verdict = "right" if all(rights) else "WRONG"
    print(f"scale {scale} on {dims} ranks, {len(roots)} trees: {rate:.4g} TEPS, {verdict}")
    return 0 if all(rights) else 1


if __name__ == "__main__":
    raise SystemExit(main())
