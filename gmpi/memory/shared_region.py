"""A memory file that the processes of a node share and the GPU maps."""

from __future__ import annotations

import os
import weakref
from typing import Any

from host_proxy.platform.pages import Pages


class SharedRegion:
    """Memory that other processes of this user on this node can map, and the GPU if there is one.

    A memory file without a name: it has no path, takes no space in /dev/shm, and is gone with its
    last user. Others open it through /proc, which the system allows to the same user only.
    """

    def __init__(self, fd: int, nbytes: int, gpu: bool) -> None:
        """Takes over the file ``fd``."""
        self.fd = fd
        weakref.finalize(self, os.close, fd)
        self._memory = Pages(nbytes, fd)
        self.host = self._memory.address
        self._gpu = gpu
        self.device = self._register() if gpu else self.host

    def _register(self) -> int:
        """Lets the GPU map it; its address there.

        Numba's ``mempin`` would undo that at once, on whatever thread collects the garbage, and
        CUDA waits for all kernels then: the watchdog's thread would stand still with them. What is
        queued here is undone when no kernel of a context runs (``gmpi/launch/kernels.py``).
        """
        from cuda.bindings import driver
        from numba import cuda

        nbytes, flags = self._memory.nbytes, driver.CU_MEMHOSTREGISTER_DEVICEMAP
        cuda_call(driver.cuMemHostRegister(self.host, nbytes, flags))
        queue = cuda.current_context().deallocations
        weakref.finalize(self, _unregister_later, queue, self.host, self._memory).atexit = False
        return int(cuda_call(driver.cuMemHostGetDevicePointer(self.host, 0)))

    @classmethod
    def create(cls, nbytes: int, gpu: bool) -> SharedRegion:
        fd = os.memfd_create("gmpi-staging", os.MFD_CLOEXEC)
        os.ftruncate(fd, nbytes)
        return cls(fd, nbytes, gpu)

    def map(self, pid: int, fd: int) -> SharedRegion | None:
        """The like of this one that another process has created.

        None where the system does not let us: another user's, or in another container.
        """
        try:
            theirs = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        return SharedRegion(theirs, self._memory.nbytes, self._gpu)


def _unregister_later(queue: Any, address: int, memory: Pages) -> None:
    def unregister(handle: int) -> None:
        from cuda.bindings import driver

        driver.cuMemHostUnregister(handle)  # fails where a kernel has died: no matter
        memory.give_back()

    queue.add_item(unregister, address)


def cuda_call(answer: tuple[Any, ...]) -> Any:
    """The result of a driver function."""
    error, *results = answer
    if int(error) != 0:
        raise RuntimeError(f"the CUDA driver answered {error.name}")
    return results[0] if results else None
