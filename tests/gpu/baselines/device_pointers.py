"""Ping-pong of an MPI that takes device pointers: the kernel exits, MPI moves GPU memory.

    mpirun -n 2 python3 tests/gpu/baselines/device_pointers.py

What a CUDA program with a CUDA-aware MPI does: receive into GPU memory, kernel, wait for the
stream, send from GPU memory. Rank 0 prints "device_pointers SIZE p1 p50 p90 p99 min max n", one
way in us. Each half round trip adds 1 to the first byte, which is compared, as are the others.
"""

from __future__ import annotations

import time

import cupy
import numpy as np
from mpi4py import MPI

SIZES = [8, 1 << 10, 1 << 13, 1 << 16, 1 << 20, 1 << 24, 1 << 26]
_KERNEL = r"""
extern "C" __global__ void touch(unsigned char *p) {
    if (threadIdx.x == 0) p[0] = p[0] + 1;  // the work between two messages
}
"""


def one_way_us(comm: MPI.Comm, touch: cupy.RawKernel, nbytes: int) -> np.ndarray:
    """Half round trips on rank 0."""
    rounds = 1000 if nbytes <= 65536 else 300 if nbytes <= 1 << 20 else 30
    skip = max(2, rounds // 10)
    stream = cupy.cuda.Stream(non_blocking=True)
    pattern = (np.arange(nbytes) * 7 % 251).astype(np.uint8)
    pattern[0] = 0
    data = cupy.asarray(pattern if comm.rank == 0 else np.zeros_like(pattern))
    cupy.cuda.Device().synchronize()
    message = [data, nbytes, MPI.BYTE]
    peer = 1 - comm.rank
    times = np.zeros(skip + rounds)

    def step() -> None:
        touch((1,), (32,), (data,), stream=stream)
        stream.synchronize()

    comm.Barrier()
    for i in range(skip + rounds):
        begin = time.perf_counter()
        if comm.rank == 0:
            step()
            comm.Send(message, peer, 1)
            comm.Recv(message, peer, 1)
        else:
            comm.Recv(message, peer, 1)
            step()
            comm.Send(message, peer, 1)
        times[i] = time.perf_counter() - begin
    pattern[0] = 2 * (skip + rounds) & 0xFF
    if not (data.get() == pattern).all():
        raise RuntimeError(f"{nbytes} bytes: what arrived on rank {comm.rank} is wrong")
    return times[skip:] * 5e5


def main() -> None:
    comm = MPI.COMM_WORLD
    cupy.cuda.Device(comm.rank % cupy.cuda.runtime.getDeviceCount()).use()
    touch = cupy.RawKernel(_KERNEL, "touch")
    for nbytes in SIZES:
        us = one_way_us(comm, touch, nbytes)
        if comm.rank == 0:
            values = [*np.percentile(us, (1, 50, 90, 99)), us.min(), us.max()]
            text = " ".join(f"{value:.4f}" for value in values)
            print(f"device_pointers {nbytes} {text} {len(us)}", flush=True)


if __name__ == "__main__":
    main()
