"""examples/spin_glass.py with CUDA and mpi4py: each half sweep is two kernels and a message.

    mpiexec -n 2 python benchmarks/twins/spin_glass_cuda_mpi.py [options of spin_glass.py]

As such programs are usually written: the slice that is sent is updated first, in a stream of its
own; it is copied to page-locked memory and sent while another stream updates the rest. Lattice,
update and checks are those of the example.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numba import cuda

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import spin_glass as example

import gmpi


@cuda.jit
def slices(spins, couplings, begin, end, first, key, up):  # type: ignore[no-untyped-def]
    """Updates slices begin, begin + 2, ... before end."""
    for s in range(begin, end, 2):
        example.update(spins, couplings, s, first, key, up, cuda.grid(1), cuda.gridsize(1))


@cuda.jit
def energy_of(spins, couplings, energy):  # type: ignore[no-untyped-def]
    n = spins.shape[1]
    mine = np.int64(0)
    for site in range(cuda.grid(1), (spins.shape[0] - 2) * n * n, cuda.gridsize(1)):
        s, x, y = 1 + site // (n * n), site // n % n, site % n
        mine -= spins[s, x, y] * (
            couplings[0, s, x, y] * spins[s + 1, (x + 1) % n, y]
            + couplings[1, s, x, y] * spins[s + 1, x, (y + 1) % n]
            + couplings[2, s, x, y] * spins[s + 1, x, y]
        )
    cuda.atomic.add(energy, 0, mine)


def run(
    comm: MPI.Comm, n: int, first: int, couplings: Any, up: Any, keys: Any
) -> tuple[np.ndarray, np.int64, float]:
    """As the function of the example."""
    last = couplings.shape[1] - 1
    spins = cuda.to_device(np.ones((last + 2, n, n), np.int8))
    energy = cuda.to_device(np.zeros(1, np.int64))
    couplings, up = cuda.to_device(couplings), cuda.to_device(up)
    low, high = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    out, back = (cuda.pinned_array((n, n), np.int8) for _ in range(2))
    edge, rest = cuda.stream(), cuda.stream()
    blocks = 2 if gmpi.SIMULATOR else -(-n * n // example.THREADS)
    slices[blocks, example.THREADS](spins, couplings, 1, 1, first, 0, up)  # compiles
    energy_of[blocks, example.THREADS](spins, couplings, energy)
    energy.copy_to_device(np.zeros(1, np.int64))
    cuda.synchronize()
    comm.Barrier()
    began = MPI.Wtime()
    for half, key in enumerate(keys):
        even = half % 2 == 0
        sent, halo = (1, last + 1) if even else (last, 0)
        to, source = (low, high) if even else (high, low)
        begin, end = (3, last + 1) if even else (2, last)
        shape = blocks, example.THREADS
        slices[(*shape, edge)](spins, couplings, sent, sent + 1, first, key, up)
        slices[(*shape, rest)](spins, couplings, begin, end, first, key, up)
        spins[sent].copy_to_host(out, edge)
        edge.synchronize()
        comm.Sendrecv(out, to, half % 2, back, source, half % 2)
        spins[halo].copy_to_device(back, edge)
        cuda.synchronize()
    energy_of[blocks, example.THREADS](spins, couplings, energy)
    whole = comm.allreduce(energy.copy_to_host()[0])
    seconds = comm.allreduce(MPI.Wtime() - began, MPI.MAX)
    return spins.copy_to_host()[1:-1], whole, seconds


def main() -> int:
    return example.main(run)


if __name__ == "__main__":
    raise SystemExit(main())
