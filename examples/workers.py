"""A master without a GPU hands out items of work to the blocks of all kernels, one at a time.

    mpiexec -n 3 python examples/workers.py [--items N] [--small]

Two ranks or more: rank 0 is the master, and the blocks of the others are the workers. Some items
take ten times as long as others, so whoever is free asks for the next one. The master receives from
any rank with any tag: the source and the tag of a status say which block has asked. An item is some
numbers; the result is the longest Collatz sequence that begins with one of them.
"""

import argparse
import sys

import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import GMPI_Recv, GMPI_Send

MASTER = 0
NUMBERS = 64 if gmpi.SIMULATOR else 65536  # of an item
BLOCKS, THREADS = (2, 32) if gmpi.SIMULATOR else (64, 256)
STOP = -1


@cuda.jit
def work(ctx, items, results):
    """Every block for itself: it has row b of both arrays, and tag b."""
    b = cuda.blockIdx.x
    item, result = items[b], results[b]  # a number; the item that is done, and its result
    while True:
        GMPI_Send(ctx, result, 2, gmpi.INT64_T, MASTER, b, gmpi.COMM_WORLD)
        GMPI_Recv(ctx, item, 1, gmpi.INT64_T, MASTER, b, gmpi.COMM_WORLD)
        if item[0] == STOP:
            break
        if cuda.threadIdx.x == 0:
            result[0], result[1] = item[0], 0
        cuda.syncthreads()
        longest = 0
        for k in range(cuda.threadIdx.x, NUMBERS, cuda.blockDim.x):
            n, length = item[0] * NUMBERS + k + 1, 1
            while n != 1:
                n = n // 2 if n % 2 == 0 else 3 * n + 1
                length += 1
            longest = max(longest, length)
        cuda.atomic.max(result, 1, longest)
        cuda.syncthreads()  # a send takes what all threads have stored


def serve(host, items, workers):
    """The result of each item, and how many each rank has done."""
    results, done = np.zeros(items, np.int64), np.zeros(workers + 1, np.int64)
    message, answer, status = np.zeros(2, np.int64), np.zeros(1, np.int64), MPI.Status()
    given, busy = 0, workers * BLOCKS
    while busy:
        host.Recv(message, gmpi.ANY_SOURCE, gmpi.ANY_TAG, status=status)
        source, tag = status.Get_source(), status.Get_tag()
        if message[0] != STOP:
            results[message[0]] += message[1]  # added: an item that comes twice is wrong
            done[source] += 1
        answer[0] = given if given < items else STOP
        given += 1
        busy -= answer[0] == STOP
        host.Send(answer, source, tag)
    return results, done


def with_numpy(items):
    longest = np.ones(items, np.int64)
    for item in range(items):
        n = np.arange(item * NUMBERS + 1, (item + 1) * NUMBERS + 1)
        while (n := n[n != 1]).size:
            n = np.where(n & 1, 3 * n + 1, n >> 1)
            longest[item] += 1
    return longest


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--items", type=int, default=20 if gmpi.SIMULATOR else 200)
    parser.add_argument("--small", action="store_true", help="for the simulator: 6 items")
    args = parser.parse_args()
    items, comm = 6 if args.small else args.items, MPI.COMM_WORLD
    if comm.size < 2:
        sys.exit(f"workers needs 2 ranks or more: mpiexec -n 2 python {sys.argv[0]}")
    if items < 1:
        sys.exit(f"--items is {items}: at least 1 is needed")
    is_master = comm.rank == MASTER
    workers = comm.Split(int(is_master))
    if not is_master:  # the GPUs of a node are for these ranks only
        gmpi.select_gpu(workers)
    began = MPI.Wtime()
    with gmpi.Context(comm, gpu=not is_master) as g:
        if is_master:
            results, done = serve(g.host, items, comm.size - 1)
        else:
            nothing = np.full((BLOCKS, 2), STOP, np.int64)
            work[BLOCKS, THREADS](g.device, cuda.to_device(nothing), cuda.to_device(nothing))
            g.synchronize()
    seconds = MPI.Wtime() - began
    if not is_master:
        return 0
    right = np.array_equal(results, with_numpy(items)) and done.sum() == items
    print(f"{items} items for {comm.size - 1} x {BLOCKS} workers; by rank: {done[1:].tolist()}")
    print(f"{seconds:.3f} s altogether, with opening and compiling")
    print(f"the longest sequence has {results.max()} numbers: {'right' if right else 'WRONG'}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
