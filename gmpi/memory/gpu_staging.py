"""GPU staging: chunk buffers in GPU memory that the other GPUs of the node map (CUDA IPC).

A long message to a rank that maps them does not leave the GPUs: its threads pack into their own
memory, the receiver's threads read it from there, over NVLink or, where two ranks share a GPU, from
the same memory. MPI carries the header, and an empty notice for each chunk.

What is exported is allocated once in a process and kept for its later contexts, and so is what is
mapped: memory must not be freed before all who map it have let go of it, and freeing, mapping and
unmapping wait for kernels. In the simulator a memory file of the context plays that memory.
"""

from __future__ import annotations

import os
import weakref
from typing import Any, NamedTuple

from gmpi.contract.sizes import align
from host_proxy.platform.pages import Pages

_BLOCK = 2 << 20  # bytes; see cuIpcGetMemHandle


class MemoryFile:
    """Memory that other processes of this user on this node can map: GPU memory of the simulator.

    A memory file without a name: it has no path, takes no space in /dev/shm, and is gone with its
    last user. Others open it through /proc, which the system allows to the same user only.
    """

    def __init__(self, fd: int, nbytes: int) -> None:
        """Takes over the file ``fd``."""
        self.fd = fd
        weakref.finalize(self, os.close, fd)
        self._memory = Pages(nbytes, fd)
        self.address = self._memory.address

    @classmethod
    def create(cls, nbytes: int) -> MemoryFile:
        fd = os.memfd_create("gmpi-staging", os.MFD_CLOEXEC)
        os.ftruncate(fd, nbytes)
        return cls(fd, nbytes)

    @classmethod
    def open(cls, pid: int, fd: int) -> MemoryFile | None:
        """One that another process has created, as a whole.

        None where the system does not let us: another user's, or in another container.
        """
        try:
            theirs = os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        return cls(theirs, os.fstat(theirs).st_size)


def cuda_call(answer: tuple[Any, ...]) -> Any:
    """The result of a driver function."""
    error, *results = answer
    if int(error) != 0:
        raise RuntimeError(f"the CUDA driver answered {error.name}")
    return results[0] if results else None


class Token(NamedTuple):
    """What other processes of the node map it by."""

    pid: int
    handle: bytes  # CUipcMemHandle; empty in the simulator
    fd: int  # memory file, there


class GpuStaging:
    """The GPU staging of one context.

    Attributes:
        address: where it is, for kernels of this process.
        token: for the others.
    """

    def __init__(self, nbytes: int, gpu: bool, processes: tuple[int, ...]) -> None:
        """
        Args:
            gpu: really a GPU, no simulator.
            processes: ids of those that may store to it. One that has not closed an earlier
                context yet still stores to that one's memory: so only a context of the same
                processes, which they open together, gets it again.
        """
        self._use = nbytes, processes
        self._nbytes = nbytes
        self._gpu = gpu
        self._files: list[MemoryFile] = []  # ours, then those of others
        if gpu:
            kept = self._use in _exported
            self.address, handle = _exported.pop(self._use) if kept else _export(nbytes)
            self.token = Token(os.getpid(), handle, -1)
        else:
            self._files.append(MemoryFile.create(nbytes))
            self.address = self._files[0].address
            self.token = Token(os.getpid(), b"", self._files[0].fd)

    def clear(self) -> None:
        """Makes an end of what an earlier context left: it would look like this one's, which counts
        anew. When no kernel of the earlier one runs, on any rank, nor one of this one yet."""
        if not self._gpu:
            return  # fresh
        from cuda.bindings import driver

        stream = cuda_call(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
        cuda_call(driver.cuMemsetD8Async(self.address, 0, self._nbytes, stream))
        cuda_call(driver.cuStreamSynchronize(stream))
        cuda_call(driver.cuStreamDestroy(stream))

    def map(self, token: Token | None) -> int:
        """Address of another rank's, for kernels of this process; 0: it cannot be mapped here."""
        if token is None:
            return 0
        if token == self.token:
            return self.address
        if self._gpu:
            return _map(token)
        theirs = MemoryFile.open(token.pid, token.fd)
        if theirs is None:
            return 0
        self._files.append(theirs)
        return theirs.address

    def give_back(self) -> None:
        """The next context of this process may have it: no kernel can use it any more."""
        if self._gpu:
            _exported[self._use] = self.address, self.token.handle


#: What no context uses now, by size and by the processes that may store to it.
_exported: dict[tuple[int, tuple[int, ...]], tuple[int, bytes]] = {}
_imported: dict[Token, int] = {}


def _export(nbytes: int) -> tuple[int, bytes]:
    """(address, IPC handle) of fresh GPU memory.

    Whole blocks: what the driver puts beside it into one is exported with it.
    """
    from cuda.bindings import driver

    address = int(cuda_call(driver.cuMemAlloc(align(nbytes, _BLOCK))))
    return address, bytes(cuda_call(driver.cuIpcGetMemHandle(address)).reserved)


def _map(token: Token) -> int:
    from cuda.bindings import driver

    if token not in _imported:
        handle = driver.CUipcMemHandle()
        handle.reserved = token.handle
        flags = driver.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
        try:
            _imported[token] = int(cuda_call(driver.cuIpcOpenMemHandle(handle, flags)))
        except RuntimeError:  # no way between the two GPUs, or another container
            _imported[token] = 0
    return _imported[token]
