"""The regions of a context: mapped, shared and device memory (``gmpi/wire.py``).

On a GPU: pinned host memory that the GPU maps, a memory file that the GPU maps too, and ordinary
GPU memory. In the simulator: host memory for all of it. On a rank without a kernel: no device
memory. Everything is allocated when the context opens: allocations and, above all, cudaFree wait
for running kernels.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from typing import Any

import numpy as np
from mpi4py import MPI

from gmpi.wire import DEVICE_LARGE, Layout
from host_proxy.state import P_COUNT, P_DEVICE, P_HOST, P_READS

_PAGE = 4096


class SharedRegion:
    """Memory that other processes of this user on this node can map, and the GPU if there is one.

    A memory file without a name: it has no path, takes no space in /dev/shm, and is gone with its
    last user. Others open it through /proc, which the system allows to the same user only.
    """

    def __init__(self, fd: int, nbytes: int, gpu: bool) -> None:
        self.fd = fd
        self.map = mmap.mmap(fd, nbytes)
        self.view = np.frombuffer(self.map, np.uint8)
        self.host = int(self.view.ctypes.data)
        self.device = self.host
        if gpu:
            self.device = self._register(nbytes)

    def _register(self, nbytes: int) -> int:
        """Lets the GPU map it; its address there.

        Numba's ``mempin`` would undo that at once, on whatever thread collects the garbage, and
        CUDA waits for all kernels then: the watchdog's thread would stand still with them. What is
        queued here is undone when no kernel of a context runs (``gmpi/kernels.py``).
        """
        from cuda.bindings import driver
        from numba import cuda

        _call(driver.cuMemHostRegister(self.host, nbytes, driver.CU_MEMHOSTREGISTER_DEVICEMAP))
        queue = cuda.current_context().deallocations
        weakref.finalize(self, _unregister_later, queue, self.host, self.map).atexit = False
        return int(_call(driver.cuMemHostGetDevicePointer(self.host, 0)))

    @classmethod
    def create(cls, nbytes: int, gpu: bool) -> SharedRegion:
        fd = os.memfd_create("gmpi-staging", os.MFD_CLOEXEC)
        os.ftruncate(fd, nbytes)
        return cls(fd, nbytes, gpu)

    @classmethod
    def open(cls, pid: int, fd: int, nbytes: int, gpu: bool) -> SharedRegion:
        """Maps the region of another process.

        Raises:
            OSError: the system does not let us, or it is not on this node.
        """
        return cls(os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC), nbytes, gpu)


def _unregister_later(queue: Any, address: int, memory: mmap.mmap) -> None:
    def unregister(handle: int) -> None:
        from cuda.bindings import driver

        _call(driver.cuMemHostUnregister(handle))
        memory.size()  # was kept until here

    queue.add_item(unregister, address)


class Memory:
    """All regions of a context.

    Attributes:
        host: address of mapped memory for the CPU.
        mapped: the same memory for the GPU.
        device: address of device memory.
        large: large staging, a shared region.
    """

    def __init__(self, layout: Layout, busy: np.ndarray, kernels: bool, gpu: bool) -> None:
        """``busy``: the first bytes of device memory; ``gpu``: really a GPU, no simulator."""
        self.large = SharedRegion.create(layout.large_bytes, gpu)
        self._keep: list[Any] = []
        self._stream: Any = None  # for copies that do not wait for kernels
        initial = np.zeros(layout.device_bytes if kernels else len(busy), np.uint8)
        initial[: len(busy)] = busy
        place = initial[DEVICE_LARGE : DEVICE_LARGE + 8].view(np.int64)
        place[0] = self.large.device
        if gpu:
            self._allocate_gpu(layout, initial)
        else:
            self.host = self.mapped = self._aligned(layout.mapped_bytes)
            self._device: Any = initial
            self.device = int(initial.ctypes.data)

    def _aligned(self, nbytes: int) -> int:
        memory = np.zeros(nbytes + _PAGE, np.uint8)
        self._keep.append(memory)
        return -(-int(memory.ctypes.data) // _PAGE) * _PAGE

    def _allocate_gpu(self, layout: Layout, initial: np.ndarray) -> None:
        from numba import cuda

        mapped: Any = cuda.mapped_array(layout.mapped_bytes + _PAGE, dtype=np.uint8, portable=True)
        self._keep.append(mapped)
        base = int(mapped.ctypes.data)
        self.host = -(-base // _PAGE) * _PAGE
        offset = self.host - base
        self.mapped = int(mapped.__cuda_array_interface__["data"][0]) + offset
        # The driver does not clear it. Staging needs no clearing.
        np.asarray(mapped)[offset : offset + layout.small] = 0
        self._device = cuda.to_device(initial)
        self.device = int(self._device.__cuda_array_interface__["data"][0])

    def read_device(self, offset: int, nbytes: int) -> np.ndarray:
        """Copies device memory to the host. Only while no kernel runs."""
        part = self._device[offset : offset + nbytes]
        return np.asarray(part if isinstance(part, np.ndarray) else part.copy_to_host())

    def read_user(self, address: int, nbytes: int) -> np.ndarray | None:
        """Copies a kernel's buffer to the host while kernels run; None where it cannot be read.

        Any thread. For debug mode.
        """
        found = np.empty(nbytes, np.uint8)
        if isinstance(self._device, np.ndarray):
            ctypes.memmove(found.ctypes.data, address, nbytes)
            return found
        from cuda.bindings import driver

        which = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_CONTEXT
        error, context = driver.cuPointerGetAttribute(which, self.device)
        error, _ = driver.cuPointerGetAttribute(
            driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address
        )
        if int(error) != 0:
            return None  # shared memory: the host has no address for it
        _call(driver.cuCtxSetCurrent(context))
        stream = self._own_stream()
        _call(driver.cuMemcpyAsync(found.ctypes.data, address, nbytes, stream))
        _call(driver.cuStreamSynchronize(stream))
        return found

    def _own_stream(self) -> Any:
        """A stream that does not wait for kernels on the default stream, as Numba's do."""
        from cuda.bindings import driver

        if self._stream is None:
            flags = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
            self._stream = _call(driver.cuStreamCreate(flags))
        return self._stream

    def write_device(self, offset: int, words: np.ndarray) -> None:
        """Copies int64 words to device memory; does not wait for kernels that run."""
        data = np.ascontiguousarray(words)
        if isinstance(self._device, np.ndarray):
            self._device[offset : offset + data.nbytes] = data.view(np.uint8)
            return
        from cuda.bindings import driver

        address = self.device + offset
        stream = self._own_stream()
        _call(driver.cuMemcpyHtoDAsync(address, data.ctypes.data, data.nbytes, stream))
        _call(driver.cuStreamSynchronize(stream))


def _call(answer: tuple[Any, ...]) -> Any:
    """The result of a driver function."""
    error, *results = answer
    if int(error) != 0:
        raise RuntimeError(f"the CUDA driver answered {error.name}")
    return results[0] if results else None


class Peers:
    """The ranks of this node and their large staging, mapped here; collective over ``comm``.

    Attributes:
        table: int64[ranks of this node, P_COUNT], for the proxy.
        regions: their shared regions, ``None`` for our own and for those we cannot map.
    """

    def __init__(self, comm: MPI.Comm, own: SharedRegion, nbytes: int, gpu: bool) -> None:
        local = comm.Split_type(MPI.COMM_TYPE_SHARED)
        self._comm = comm
        self._group = local.Get_group()
        addresses = local.allgather((os.getpid(), own.fd))
        self.table = np.zeros((local.Get_size(), P_COUNT), np.int64)
        self.regions: list[SharedRegion | None] = []
        can_read = np.zeros(local.Get_size(), np.int64)
        for rank, (pid, fd) in enumerate(addresses):
            region: SharedRegion | None = own
            if rank != local.Get_rank():
                try:
                    region = SharedRegion.open(pid, fd, nbytes, gpu)
                except OSError:
                    region = None  # other user, other container: messages go through MPI
            self.regions.append(region)
            if region is not None:
                self.table[rank, P_DEVICE] = region.device
                self.table[rank, P_HOST] = region.host
                can_read[rank] = 1
        # Who reads me is what matters to me as a sender: the transpose.
        everyone = np.zeros((local.Get_size(), local.Get_size()), np.int64)
        local.Allgather(can_read, everyone)
        self.table[:, P_READS] = everyone[:, local.Get_rank()]
        local.Free()

    def of(self, comm: MPI.Comm) -> np.ndarray:
        """For each rank of a communicator, its row in ``table``, -1 when it has none (local)."""
        group = comm.Get_group()
        ranks = MPI.Group.Translate_ranks(group, list(range(group.Get_size())), self._group)
        return np.array([-1 if r == MPI.UNDEFINED else r for r in ranks], np.int64)
