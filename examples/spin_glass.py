"""A spin glass: the 3-D Ising model with random couplings of +1 and -1, on a torus of L^3 spins.

    mpiexec -n 2 python examples/spin_glass.py [--length 128] [--sweeps 1000] [--temperature 1.1]

The lattice is cut into slices orthogonal to its diagonal: slice s has the spins with x + y + z = s
(modulo L), so all neighbours of a spin are in the slices before and after its own (M. Lulli et al.,
Comput. Phys. Commun. 196, 2015). Even slices are updated together, then odd ones. A rank has an
even number of slices: after each half sweep it sends one slice to one neighbour, and receives one
from the other. The slice that is sent is updated first, and travels while the rest is updated.

Four sweeps are compared with NumPy, bit by bit; after all, the energy with that of the host.
"""

import argparse

import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import GMPI_Allreduce, GMPI_Sendrecv

CHECKED = 4  # sweeps
ONES = 0x7FFFFFFF
THREADS = 32 if gmpi.SIMULATOR else 512


def scramble(x):
    """A hash of 31 bits: random numbers by place and time, whoever has the place."""
    x = (x ^ x >> 17) * 0x6D5AD4BB & ONES
    x = (x ^ x >> 11) * 0x2C4C1B51 & ONES
    x = (x ^ x >> 15) * 0x31848BAB & ONES
    return x ^ x >> 14


scramble_on_gpu = cuda.jit(device=True)(scramble)


@cuda.jit(device=True)
def update(spins, couplings, s, first, key, up, begin, step):
    """The spins of slice s, by a heat bath: each is up with the probability that its field gives.

    couplings[k, s, x, y]: to the neighbour along axis k, in the next slice. Threads begin at
    spin ``begin`` and go on by ``step``.
    """
    n = spins.shape[1]
    for site in range(begin, n * n, step):
        x, y = site // n, site % n
        east, north = (x + 1) % n, (y + 1) % n
        west, south = (x + n - 1) % n, (y + n - 1) % n
        field = (
            couplings[0, s, x, y] * spins[s + 1, east, y]
            + couplings[1, s, x, y] * spins[s + 1, x, north]
            + couplings[2, s, x, y] * spins[s + 1, x, y]
            + couplings[0, s - 1, west, y] * spins[s - 1, west, y]
            + couplings[1, s - 1, x, south] * spins[s - 1, x, south]
            + couplings[2, s - 1, x, y] * spins[s - 1, x, y]
        )
        place = (first + s - 1) * n * n + site
        chance = scramble_on_gpu(scramble_on_gpu(place) + key & ONES)
        spins[s, x, y] = 1 if chance < up[(field + 6) // 2] else -1


# wide: a lattice and its neighbours
@cuda.jit
def simulate(ctx, spins, couplings, first, low, high, up, keys, energy, done, sweeps):
    """spins[1:-1] are this rank's slices, number ``first`` and on; the others are neighbours'."""
    grid = cuda.cg.this_grid()
    last, n = spins.shape[0] - 2, spins.shape[1]
    begin = (cuda.blockIdx.x - 1) * cuda.blockDim.x + cuda.threadIdx.x
    step = (cuda.gridDim.x - 1) * cuda.blockDim.x
    for half in range(2 * sweeps):
        even = half % 2 == 0
        sent, halo = (1, last + 1) if even else (last, 0)
        to, source = (low, high) if even else (high, low)
        if cuda.blockIdx.x > 0:
            update(spins, couplings, sent, first, keys[half], up, begin, step)
            cuda.syncthreads()
            if cuda.threadIdx.x == 0:  # tells block 0 that its share of this slice is done
                cuda.threadfence()
                cuda.atomic.add(done, 0, 1)
            for s in range(3 if even else 2, last + 1 if even else last, 2):
                update(spins, couplings, s, first, keys[half], up, begin, step)
        else:
            if cuda.threadIdx.x == 0:
                while cuda.atomic.add(done, 0, 0) < (half + 1) * (cuda.gridDim.x - 1):
                    cuda.nanosleep(100)
                cuda.threadfence()
            cuda.syncthreads()
            GMPI_Sendrecv(
                ctx, spins[sent], n * n, gmpi.INT8_T, to, half % 2, spins[halo], n * n,
                gmpi.INT8_T, source, half % 2, gmpi.COMM_WORLD,
            )  # fmt: skip
        grid.sync()
    if cuda.blockIdx.x > 0:
        mine = np.int64(0)
        for site in range(begin, last * n * n, step):
            s, x, y = 1 + site // (n * n), site // n % n, site % n
            mine -= spins[s, x, y] * (
                couplings[0, s, x, y] * spins[s + 1, (x + 1) % n, y]
                + couplings[1, s, x, y] * spins[s + 1, x, (y + 1) % n]
                + couplings[2, s, x, y] * spins[s + 1, x, y]
            )
        cuda.atomic.add(energy, 0, mine)
    grid.sync()
    if cuda.blockIdx.x == 0:
        GMPI_Allreduce(ctx, gmpi.IN_PLACE, energy, 1, gmpi.INT64_T, gmpi.SUM, gmpi.COMM_WORLD)


def some_couplings(n, slices, share):
    """Those of some slices: +1 with probability ``share``, the same whoever asks."""
    place = (np.asarray(slices) % n)[:, None] * n * n + np.arange(n * n)
    chance = [scramble(scramble(place) + scramble(np.int64(7 + k)) & ONES) for k in range(3)]
    couplings = np.where(np.array(chance) < share * ONES, 1, -1).astype(np.int8)
    return couplings.reshape(3, len(slices), n, n)


def fields(spins, couplings):
    """Of all spins of the torus, by NumPy: from the next slices, and from those before."""
    after = np.roll(spins, -1, 0)
    ahead = (np.roll(after, -1, 1), np.roll(after, -1, 2), after)
    forward = sum(couplings[k] * ahead[k] for k in range(3))
    behind = [np.roll(couplings[k] * spins, 1, 0) for k in range(3)]
    return forward, np.roll(behind[0], 1, 1) + np.roll(behind[1], 1, 2) + behind[2]


def with_numpy(n, couplings, up, keys):
    spins = np.ones((n, n, n), np.int8)
    places = scramble(np.arange(n**3)).reshape(spins.shape)
    for half, key in enumerate(keys):
        field = sum(fields(spins, couplings))
        new = np.where(scramble(places + key & ONES) < up[(field + 6) // 2], 1, -1)
        spins[half % 2 :: 2] = new[half % 2 :: 2]
    return spins


def run(comm, n, first, couplings, up, keys):
    """The spins of this rank, the energy of all, and the time."""
    spins = cuda.to_device(np.ones((couplings.shape[1] + 1, n, n), np.int8))
    energy, done = (cuda.to_device(np.zeros(1, np.int64)) for _ in range(2))
    couplings, up, keys = (cuda.to_device(array) for array in (couplings, up, keys))
    low, high = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    with gmpi.Context(comm, wildcards=False) as g:
        values = (g.device, spins, couplings, first, low, high, up, keys, energy, done)
        most = g.max_blocks(simulate, THREADS, (*values, len(keys) // 2))
        blocks = min(most, 3) if gmpi.SIMULATOR else most
        simulate[blocks, THREADS](*values, 0)  # compiles
        g.synchronize()
        energy.copy_to_device(np.zeros(1, np.int64))
        comm.Barrier()
        began = MPI.Wtime()
        simulate[blocks, THREADS](*values, len(keys) // 2)
        g.synchronize()  # raises the first error of any call in the kernel
        seconds = comm.allreduce(MPI.Wtime() - began, MPI.MAX)
    return spins.copy_to_host()[1:-1], energy.copy_to_host()[0], seconds


def main(run=run):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--length", type=int, default=128, help="L, even")
    parser.add_argument("--sweeps", type=int, default=1000)
    parser.add_argument("--temperature", type=float, default=1.1)
    parser.add_argument("--nishimori", action="store_true", help="more couplings of +1 than of -1")
    parser.add_argument("--small", action="store_true", help="for the simulator: L = 8, 4 sweeps")
    args = parser.parse_args()
    comm, n = MPI.COMM_WORLD, 8 if args.small else args.length
    if n % 2 or n < 2 * comm.size:
        raise SystemExit(f"--length is {n}: an even number is needed, of at least 2 for each rank")
    if args.sweeps < 1 or args.temperature <= 0:
        raise SystemExit(f"--sweeps is {args.sweeps}, --temperature is {args.temperature}: at "
                         "least 1, and more than 0, are needed")  # fmt: skip
    gmpi.select_gpu(comm)
    first, end = (2 * (n // 2 * rank // comm.size) for rank in (comm.rank, comm.rank + 1))
    # With this share of +1 the mean energy is known, of any lattice at any time
    # (H. Nishimori, Prog. Theor. Phys. 66, 1981): -3 tanh(1 / T) for each spin.
    mean = np.tanh(1 / args.temperature)
    share = (1 + mean) / 2 if args.nishimori else 0.5
    couplings = some_couplings(n, np.arange(first - 1, end), share)
    up = ONES / (1 + np.exp(-2 * np.arange(-6, 7, 2) / args.temperature))
    up = up.astype(np.int64)
    keys = scramble(np.arange(2 * max(CHECKED, args.sweeps)) + 1000)
    if n <= 128:
        spins, energy, seconds = run(comm, n, first, couplings, up, keys[: 2 * CHECKED])
        expected = with_numpy(n, some_couplings(n, range(n), share), up, keys[: 2 * CHECKED])
        right = np.array_equal(spins, expected[first:end])
    else:
        right = True
    if not args.small:
        spins, energy, seconds = run(comm, n, first, couplings, up, keys[: 2 * args.sweeps])
    parts, rights = comm.gather(spins), comm.gather(right)
    if comm.rank > 0:
        return 0
    spins, sweeps = np.concatenate(parts), CHECKED if args.small else args.sweeps
    forward, _ = fields(spins, some_couplings(n, range(n), share))
    rights.append(energy == -(spins * forward).sum(dtype=np.int64))
    print(f"L = {n} on {comm.size} ranks, {sweeps} sweeps: {energy / n**3:.5f} a spin")
    print(f"{1e-9 * sweeps * n**3 / seconds:.3f} spins/ns")
    if args.nishimori:
        error = (energy / n**3 + 3 * mean) / np.sqrt(3 * (1 - mean**2) / n**3)
        rights.append(abs(error) < 5)
        print(f"expected {-3 * mean:.5f}, {error:.1f} standard deviations away")
    print("right" if all(rights) else f"WRONG: {rights}")
    return 0 if all(rights) else 1


if __name__ == "__main__":
    raise SystemExit(main())
