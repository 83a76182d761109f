"""Ping-pong the conventional way, as fast as it goes: the kernel exits for every message.

A half round trip is: receive on the host, copy to the GPU, kernel, copy to pinned memory, wait for
the stream, send. Kernel and copies are launched one by one and, in a second variant, as one CUDA
graph; the faster one counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

_KERNEL = r"""
extern "C" __global__ void touch(unsigned char *p, long long n) {
    if (n > 0 && threadIdx.x == 0) p[0] = p[0] + 1;  // the work between two messages
}
"""


def _variants(host: np.ndarray, nbytes: int) -> dict[str, Callable[[], None]]:
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    runtime = cupy.cuda.runtime
    device = cupy.zeros(max(1, nbytes), cupy.uint8)
    touch = cupy.RawKernel(_KERNEL, "touch")
    address, pointer = host.ctypes.data, device.data.ptr
    arguments = (device, np.int64(nbytes))
    to_device, to_host = runtime.memcpyHostToDevice, runtime.memcpyDeviceToHost

    def enqueue() -> None:
        if nbytes:
            runtime.memcpyAsync(pointer, address, nbytes, to_device, stream.ptr)
        touch((1,), (32,), arguments)
        if nbytes:
            runtime.memcpyAsync(address, pointer, nbytes, to_host, stream.ptr)

    def one_by_one() -> None:
        with stream:
            enqueue()
        stream.synchronize()

    with stream:
        touch((1,), (32,), arguments)  # compiles
        stream.synchronize()
        stream.begin_capture()
        enqueue()
        graph = stream.end_capture()
    graph.upload(stream)
    stream.synchronize()

    def as_graph() -> None:
        graph.launch(stream)
        stream.synchronize()

    return {"launches": one_by_one, "graph": as_graph}


def one_way_us(comm: MPI.Comm, nbytes: int, skip: int, iterations: int) -> dict[str, np.ndarray]:
    """Half round trips in us of each variant, on rank 0."""
    import cupy

    pinned = cupy.cuda.alloc_pinned_memory(max(1, nbytes))
    host = np.frombuffer(pinned, np.uint8, nbytes)
    host[:] = 0
    message = [host, nbytes, MPI.BYTE]
    peer = 1 - comm.rank
    found = {}
    for name, step in _variants(host, nbytes).items():
        comm.Barrier()
        times = np.zeros(skip + iterations)
        for i in range(skip + iterations):
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
        found[name] = times[skip:] * 5e5
        if nbytes and comm.rank == 0:
            # Each half round trip adds 1 to the first byte: the data really went through the GPUs.
            rounds = 2 * (skip + iterations)
            expected = (rounds if name == "launches" else 2 * rounds) & 0xFF
            if host[0] != expected:
                raise RuntimeError(f"conventional path: byte 0 is {host[0]}, expected {expected}")
    return found


def host_one_way_us(comm: MPI.Comm, nbytes: int, skip: int, iterations: int) -> np.ndarray:
    """Half round trips in us of plain mpi4py between host buffers, on rank 0."""
    host = np.zeros(nbytes, np.uint8)
    message = [host, nbytes, MPI.BYTE]
    peer = 1 - comm.rank
    times = np.zeros(skip + iterations)
    comm.Barrier()
    for i in range(skip + iterations):
        begin = time.perf_counter()
        if comm.rank == 0:
            comm.Send(message, peer, 2)
            comm.Recv(message, peer, 2)
        else:
            comm.Recv(message, peer, 2)
            comm.Send(message, peer, 2)
        times[i] = time.perf_counter() - begin
    return times[skip:] * 5e5
