"""The two regions of a context: mapped memory and device memory (``gmpi/wire.py``).

On a GPU, pinned host memory that the GPU maps and ordinary GPU memory; in the simulator, host
memory for both; on a rank without a kernel, host memory for the first and nothing for the second.
Everything is allocated when the context opens: allocations and, above all, cudaFree wait for
running kernels.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from gmpi.wire import Layout

_PAGE = 4096


class Memory(Protocol):
    """Where the regions are."""

    host: int  # address of mapped memory for the CPU
    mapped: int  # the same memory for the GPU
    device: int  # address of device memory

    def read_device(self, offset: int, nbytes: int) -> np.ndarray:
        """Copies device memory to the host. Only while no kernel runs."""


def _aligned(nbytes: int) -> tuple[np.ndarray, int]:
    memory = np.zeros(nbytes + _PAGE, np.uint8)
    return memory, -(-memory.ctypes.data // _PAGE) * _PAGE


class HostMemory:
    """Both regions in ordinary memory."""

    def __init__(self, layout: Layout, initial: np.ndarray, with_device: bool) -> None:
        self._mapped, self.host = _aligned(layout.mapped_bytes)
        self.mapped = self.host
        self._device, self.device = _aligned(layout.device_bytes if with_device else 0)
        offset = self.device - self._device.ctypes.data
        self._view = self._device[offset : offset + layout.device_bytes]
        self._view[: len(initial)] = initial if with_device else self._view[: len(initial)]

    def read_device(self, offset: int, nbytes: int) -> np.ndarray:
        return self._view[offset : offset + nbytes].copy()


class GPUMemory:
    """Pinned mapped memory and GPU memory of the current device."""

    def __init__(self, layout: Layout, initial: np.ndarray) -> None:
        from numba import cuda

        self._mapped: Any = cuda.mapped_array(
            layout.mapped_bytes + _PAGE, dtype=np.uint8, portable=True
        )
        base = self._mapped.ctypes.data
        self.host = -(-base // _PAGE) * _PAGE
        pointer = self._mapped.__cuda_array_interface__["data"][0]
        self.mapped = pointer + self.host - base
        offset = self.host - base
        # The driver does not clear it. Staging needs no clearing.
        np.asarray(self._mapped)[offset : offset + layout.small] = 0
        clean = np.zeros(layout.device_bytes, np.uint8)
        clean[: len(initial)] = initial
        self._device: Any = cuda.to_device(clean)
        self.device = self._device.__cuda_array_interface__["data"][0]

    def read_device(self, offset: int, nbytes: int) -> np.ndarray:
        return np.asarray(self._device[offset : offset + nbytes].copy_to_host())
