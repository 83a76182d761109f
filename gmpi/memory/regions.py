"""The regions of a context: mapped and device memory, GPU staging (``gmpi/contract/wire.py``).

On a GPU: pinned host memory that the GPU maps, and ordinary GPU memory. In the simulator: host
memory for all of it. On a rank without a kernel: no device memory. Everything is allocated when the
context opens: allocations and, above all, cudaFree wait for running kernels.
"""

from __future__ import annotations

import ctypes
import weakref
from functools import cached_property
from typing import Any

import numpy as np

from gmpi.contract.channels import ROW_BYTES, Places
from gmpi.contract.collectives import LONG_ARENA_BYTES
from gmpi.contract.partitions import ARENA_BYTES, LOCAL_ARENA_BYTES
from gmpi.contract.sizes import Layout, align
from gmpi.contract.wire import (
    DEVICE_CHANNELS,
    DEVICE_CHANNELS_MASK,
    DEVICE_DIRECT,
    DEVICE_LARGE,
    MAILBOX_RANKS,
)
from gmpi.memory.arena import ARENA_STEP, Arena
from gmpi.memory.gpu_staging import GpuStaging, cuda_call
from host_proxy.platform.pages import Pages, read


class _Pinned:
    """Pinned host memory that the GPU maps; goes when nobody refers to it.

    Numba's own would go with the interpreter, while MPI may still use it, or at once, on whatever
    thread collects the garbage, and CUDA waits for all kernels then. What is queued here is freed
    when no kernel of a context runs (``gmpi/launch/kernels.py``).

    Attributes:
        address: for the CPU; where a page begins.
        device: for the GPU.
    """

    def __init__(self, nbytes: int) -> None:
        from cuda.bindings import driver
        from numba import cuda

        queue = cuda.current_context().deallocations
        flags = driver.CU_MEMHOSTALLOC_PORTABLE | driver.CU_MEMHOSTALLOC_DEVICEMAP
        self.address = int(cuda_call(driver.cuMemHostAlloc(nbytes, flags)))
        free = weakref.finalize(self, queue.add_item, _free_pinned, self.address, nbytes)
        free.atexit = False
        self.device = int(cuda_call(driver.cuMemHostGetDevicePointer(self.address, 0)))


def _free_pinned(address: int) -> None:
    from cuda.bindings import driver

    driver.cuMemFreeHost(address)  # fails where a kernel has died: no matter


class Memory:
    """All regions of a context.

    Attributes:
        host: address of mapped memory for the CPU.
        mapped: the same memory for the GPU.
        device: address of device memory.
        staging: GPU staging, if there is one.
        mailbox: address of the mailboxes in it; 0: there are none.
        direct: where direct memory begins in it; 0: there is none.
        table: where the table of channels begins in device memory.
        arena, arena_bytes: address and size of the arena, which is given out piece by piece.
    """

    def __init__(
        self,
        layout: Layout,
        busy: np.ndarray,
        kernels: bool,
        gpu: bool,
        staging: bool,
        processes: tuple[int, ...],
        direct: bool = False,
    ) -> None:
        """
        Args:
            busy: the first bytes of device memory.
            kernels: False on a rank without any.
            gpu: really a GPU, no simulator.
            staging: whether to have GPU staging.
            processes: those of this node, for which to have mailboxes.
            direct: whether to have direct memory, where there is GPU staging.
        """
        self._host = _Pinned(layout.mapped_bytes) if gpu else Pages(layout.mapped_bytes)
        self.host = self._host.address
        self.mapped = self._host.device if isinstance(self._host, _Pinned) else self.host
        self.staging = None
        self.mailbox = self.direct = 0
        ranks = len(processes)
        if staging and kernels:
            landings = ranks if ranks <= MAILBOX_RANKS else 0
            nbytes = layout.mailbox(landings)
            if direct:
                self.direct = align(nbytes, 4096)
                nbytes = self.direct + Places(ranks).nbytes
            self.staging = GpuStaging(nbytes, gpu, processes)
            self.mailbox = self.staging.address + layout.mailbox(0) if landings else 0
        self._stream: Any = None  # for copies that do not wait for kernels
        self.table = align(layout.device_bytes, ROW_BYTES)
        own_arena = align(self.table + ROW_BYTES, ARENA_STEP)
        with_arena = own_arena + LOCAL_ARENA_BYTES
        device_bytes = self.table + Places(ranks).table_bytes if self.direct else with_arena
        initial = np.zeros(device_bytes if kernels else len(busy), np.uint8)
        initial[: len(busy)] = busy
        places = initial[DEVICE_LARGE : DEVICE_LARGE + 24].view(np.int64)
        places[:] = self.mapped + layout.large, self.staging_address, self.mailbox
        if gpu:
            # The driver does not clear it. Staging needs no clearing.
            ctypes.memset(self.host, 0, layout.small)
            try:
                self._allocate_gpu(initial)
            except BaseException:
                if self.staging is not None:
                    self.staging.give_back()  # the next one may have it: it is never freed
                raise
        else:
            self._device: Any = initial
            self.device = int(initial.ctypes.data)
        self.arena, self.arena_bytes = self.device + own_arena, LOCAL_ARENA_BYTES
        if kernels:
            self._write_constants(Places(ranks).rows if self.direct else 1)
        if self.direct:
            self.arena = self.staging_address + self.direct + Places(ranks).arena
            self.arena_bytes = ARENA_BYTES

    def _write_constants(self, rows: int) -> None:
        """Tells kernels where direct memory and the table of channels are, which without a direct
        road has one row that is nobody's: they find nothing."""
        direct = self.staging_address + self.direct if self.direct else 0
        for place, value in (
            (DEVICE_DIRECT, direct),
            (DEVICE_CHANNELS, self.device + self.table),
            (DEVICE_CHANNELS_MASK, rows - 1),
        ):
            self.write_device(place, np.array([value], np.int64))

    def _allocate_gpu(self, initial: np.ndarray) -> None:
        from numba import cuda

        self._device = cuda.to_device(initial)
        self.device = int(self._device.__cuda_array_interface__["data"][0])

    @property
    def has_tables(self) -> bool:
        """Whether there are kernels to tell of anything: else device memory is short."""
        return not isinstance(self._device, np.ndarray) or self._device.nbytes > self.table

    @property
    def gpu_name(self) -> str | None:
        """Which GPU the memory is on, the same in all processes; ``None``: on none."""
        if not isinstance(self._host, _Pinned):
            return None
        from numba import cuda

        return str(cuda.get_current_device().uuid)

    @property
    def staging_address(self) -> int:
        """Of GPU staging, 0 if there is none."""
        return 0 if self.staging is None else self.staging.address

    @cached_property
    def pieces(self) -> Arena:
        """Of the arena."""
        return Arena(self.arena_bytes)

    @cached_property
    def long_pieces(self) -> Arena:
        """Of the long arena, behind the arena."""
        return Arena(LONG_ARENA_BYTES if self.direct else 0)

    def arena_at(self, direct: int) -> int:
        """Where the arena of a rank is whose direct memory is mapped there."""
        return direct + self.arena - self.staging_address - self.direct

    def give_back(self) -> Any:
        """Neither a kernel nor a thread uses it any more: frees it, once.

        GPU staging outlives a context and may serve the next one.

        Returns:
            what MPI may still use, mapped memory; freed when nobody refers to it.
        """
        if self.staging is not None:
            self.staging.give_back()
        if self._stream is not None:
            from cuda.bindings import driver

            driver.cuStreamDestroy(self._stream)  # fails where a kernel has died: no matter
            self._stream = None
        # Not left to the collector of garbage: it may come late, and the next context wants memory.
        host = self._host
        del self.staging, self._device, self._host
        return host

    def read_device(self, offset: int, nbytes: int) -> np.ndarray:
        """Copies device memory to the host. Only while no kernel runs."""
        part = self._device[offset : offset + nbytes]
        return np.asarray(part if isinstance(part, np.ndarray) else part.copy_to_host())

    def fetch(self, address: int, nbytes: int) -> np.ndarray:
        """Copies GPU memory, of this process or mapped here, to the host while kernels run.

        Any thread.
        """
        found = np.empty(nbytes, np.uint8)
        if isinstance(self._device, np.ndarray):
            ctypes.memmove(found.ctypes.data, address, nbytes)
            return found
        from cuda.bindings import driver

        self.use_here()
        stream = self._own_stream()
        cuda_call(driver.cuMemcpyAsync(found.ctypes.data, address, nbytes, stream))
        cuda_call(driver.cuStreamSynchronize(stream))
        return found

    def read_user(self, address: int, nbytes: int) -> np.ndarray | None:
        """``fetch`` of a kernel's buffer; None where the host cannot read it. For debug mode."""
        if isinstance(self._device, np.ndarray):
            found = np.empty(nbytes, np.uint8)
            return found if read(address, found.ctypes.data, nbytes) else None
        from cuda.bindings import driver

        which = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        self.use_here()
        for at in (address, address + nbytes - 1):
            error, _ = driver.cuPointerGetAttribute(which, at)
            if int(error) != 0:
                return None  # shared memory, for which the host has no address, or freed memory
        return self.fetch(address, nbytes)

    def _own_stream(self) -> Any:
        """A stream that does not wait for kernels on the default stream, as Numba's do."""
        from cuda.bindings import driver

        if self._stream is None:
            flags = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
            self._stream = cuda_call(driver.cuStreamCreate(flags))
        return self._stream

    def write_device(self, offset: int, words: np.ndarray) -> None:
        """Copies int64 words to device memory; does not wait for kernels that run."""
        if isinstance(self._device, np.ndarray) and offset + words.nbytes > self._device.nbytes:
            raise ValueError(f"device memory has {self._device.nbytes} bytes, not {offset}")
        self.write(self.device + offset, words)

    def write(self, address: int, words: np.ndarray) -> None:
        """The same, to GPU memory of this process or mapped here."""
        data = np.ascontiguousarray(words)
        if isinstance(self._device, np.ndarray):
            ctypes.memmove(address, data.ctypes.data, data.nbytes)
            return
        from cuda.bindings import driver

        stream = self._own_stream()
        cuda_call(driver.cuMemcpyHtoDAsync(address, data.ctypes.data, data.nbytes, stream))
        cuda_call(driver.cuStreamSynchronize(stream))

    def clear(self, address: int, nbytes: int) -> None:
        """Zeroes GPU memory of this process, likewise."""
        if isinstance(self._device, np.ndarray):
            ctypes.memset(address, 0, nbytes)
            return
        from cuda.bindings import driver

        stream = self._own_stream()
        cuda_call(driver.cuMemsetD8Async(address, 0, nbytes, stream))
        cuda_call(driver.cuStreamSynchronize(stream))

    def use_here(self) -> None:
        """Lets the calling thread, whichever it is, use these functions."""
        if not isinstance(self._device, np.ndarray):
            from cuda.bindings import driver

            which = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_CONTEXT
            context = cuda_call(driver.cuPointerGetAttribute(which, self.device))
            cuda_call(driver.cuCtxSetCurrent(context))
