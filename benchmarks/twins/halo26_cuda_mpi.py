"""examples/halo26.py with CUDA and mpi4py: kernels pack and unpack, and copies go by the host.

    mpiexec -n 2 python benchmarks/twins/halo26_cuda_mpi.py [options of halo26.py]

As such programs are usually written: one kernel packs all 26 regions, another one unpacks them.
Each face is copied to page-locked memory by itself, and sent while the next one is copied; what has
come is copied back while the next one is under way. Edges and corners are copied together. The
array, its regions and the check are those of the example.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numba import cuda

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import halo26

import gmpi

THREADS = 32 if gmpi.SIMULATOR else 256
FACES = 6
PARTS = [slice(face, face + 1) for face in range(FACES)] + [slice(FACES, 26)]


@cuda.jit
def change(u, amount):  # type: ignore[no-untyped-def]
    halo26.change(u, amount)


@cuda.jit
def pack(u, shape, first, begin, packed):  # type: ignore[no-untyped-def]
    """Region blockIdx.y, a warp a row."""
    k = cuda.blockIdx.y
    a, b, c = shape[k, 0], shape[k, 1], shape[k, 2]
    edge = u.shape[0]
    flat = u.reshape(u.size)
    warp = (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) // 32
    for n in range(warp, a * b, cuda.gridDim.x * cuda.blockDim.x // 32):
        row = first[k] + (n // b * edge + n % b) * edge * halo26.FIELDS
        for z in range(cuda.laneid, c * halo26.FIELDS, 32):
            packed[begin[k] + n * c * halo26.FIELDS + z] = flat[row + z]


@cuda.jit
def unpack(u, shape, first, begin, packed):  # type: ignore[no-untyped-def]
    k = cuda.blockIdx.y
    a, b, c = shape[k, 0], shape[k, 1], shape[k, 2]
    edge = u.shape[0]
    flat = u.reshape(u.size)
    warp = (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) // 32
    for n in range(warp, a * b, cuda.gridDim.x * cuda.blockDim.x // 32):
        row = first[k] + (n // b * edge + n % b) * edge * halo26.FIELDS
        for z in range(cuda.laneid, c * halo26.FIELDS, 32):
            flat[row + z] = packed[begin[k] + n * c * halo26.FIELDS + z]


class Halo:
    """Staging of one rank, on the GPU and in page-locked memory; faces first."""

    def __init__(self, comm: MPI.Cartcomm, regions: Any) -> None:
        shape, self.comm = np.array(regions.parts), comm
        order = np.argsort(-shape.prod(axis=1), kind="stable")
        self.ways, self.peers = order.tolist(), regions.peers[order].tolist()
        self.begin = np.append(0, np.cumsum(shape[order].prod(axis=1) * halo26.FIELDS))
        words = int(self.begin[-1])
        self.packed, self.arrived = (cuda.device_array(words) for _ in range(2))
        self.out, self.back = (cuda.pinned_array(words) for _ in range(2))
        self.shape, self.edges, self.beyond, self.places = (
            cuda.to_device(np.ascontiguousarray(array))
            for array in (shape[order], regions.out[order], regions.back[order], self.begin)
        )
        self.copied = [cuda.event() for _ in PARTS]
        self.outward, self.inward = cuda.stream(), cuda.stream()
        rows = int(shape[:, :2].prod(axis=1).max())
        self.grid = (1, 26) if gmpi.SIMULATOR else (min(512, -(-32 * rows // THREADS)), 26)

    def piece(self, k: int) -> slice:
        return slice(self.begin[k], self.begin[k + 1])

    def exchange(self, u: Any) -> None:
        cuda.synchronize()  # what the cube has become
        pack[(self.grid, THREADS, self.outward)](
            u, self.shape, self.edges, self.places, self.packed
        )
        for part, copied in zip(PARTS, self.copied):
            bounds = slice(self.begin[part.start], self.begin[part.stop])
            self.packed[bounds].copy_to_host(self.out[bounds], self.outward)
            copied.record(self.outward)
        pieces = [self.piece(k) for k in range(26)]
        where = list(zip(pieces, self.peers, self.ways))
        receives = [self.comm.Irecv(self.back[at], peer, 25 - way) for at, peer, way in where]
        sends = []
        for part, copied in zip(PARTS, self.copied):
            copied.synchronize()
            sends += [self.comm.Isend(self.out[at], peer, way) for at, peer, way in where[part]]
        for part in PARTS:
            MPI.Request.Waitall(receives[part])
            bounds = slice(self.begin[part.start], self.begin[part.stop])
            self.arrived[bounds].copy_to_device(self.back[bounds], self.inward)
        unpack[(self.grid, THREADS, self.inward)](
            u, self.shape, self.beyond, self.places, self.arrived
        )
        MPI.Request.Waitall(sends)
        self.inward.synchronize()


def run(
    comm: MPI.Cartcomm, _: str, regions: Any, __: int, start: Any, amount: float, steps: int
) -> tuple[np.ndarray, float]:
    """As the function of the example."""
    u, halo = cuda.to_device(start), Halo(comm, regions)
    blocks = 2 if gmpi.SIMULATOR else 1024
    change[blocks, THREADS](u, 0.0)  # compiles
    if not gmpi.SIMULATOR:
        halo.exchange(u)
        u.copy_to_device(start)
    comm.Barrier()
    began = MPI.Wtime()
    for _ in range(steps):
        if amount:
            change[blocks, THREADS](u, amount)
        halo.exchange(u)
    seconds = MPI.Wtime() - began
    return u.copy_to_host(), seconds / steps


def main() -> int:
    return halo26.main(run, ways=("copies",))


if __name__ == "__main__":
    raise SystemExit(main())
