"""GPU memory of the user's that the other ranks of the node can write to: registered arrays.

What a context allocates (``Context.empty``) is exported from the start, other arrays when the user
registers them. A peer maps a whole allocation; an array lies somewhere in it. Memory that a peer
has been told of stays until the context closes, whatever the user does with the array: freeing what
others map is undefined. So does what is mapped here, since unmapping waits for kernels.

In the simulator an allocation is a memory file. Other arrays cannot be mapped there: they are
registered all the same, and what comes for them goes through staging.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from device_lib.platform.primitives import SIMULATOR
from gmpi.contract.sizes import align
from gmpi.errors import ContextError
from gmpi.fault_words import view_words
from gmpi.memory.gpu_staging import MemoryFile, Token, cuda_call

_BLOCK = 2 << 20  # see cuIpcGetMemHandle: what lies beside it in one is exported with it


class Region(NamedTuple):
    """A registered array.

    Attributes:
        array: kept.
        address, nbytes: of the array.
        token: of the allocation that it lies in; None: it cannot be mapped.
        offset: of the array in the allocation.
        buffer: the driver's number of the allocation.
        peers: ranks of the node that may map it for messages and collectives; None: all.
    """

    array: Any
    address: int
    nbytes: int
    token: Token | None
    offset: int
    buffer: int
    peers: frozenset[int] | None = None


class _File:
    """A memory file as an array's memory, which keeps it."""

    def __init__(self, nbytes: int) -> None:
        self.file = MemoryFile.create(align(nbytes, 4096))
        data = self.file.address, False
        self.__array_interface__ = {"data": data, "shape": (nbytes,), "typestr": "|u1"}


def place_of(array: Any) -> tuple[int, int]:
    """(address, bytes) of an array in GPU memory whose elements lie in one piece.

    Raises:
        TypeError: it is no array of a GPU.
        ValueError: its elements do not lie in one piece; says in words what it is.
    """
    if SIMULATOR:
        from device_lib.simulator.arrays import memory_of

        found = array if isinstance(array, np.ndarray) else memory_of(array)
        if found is None:
            raise TypeError
        if not found.flags.c_contiguous and not found.flags.f_contiguous:
            raise ValueError(view_words(found.shape, found.strides, found.itemsize))
        return int(found.__array_interface__["data"][0]), found.nbytes
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is None:
        raise TypeError
    shape, strides = interface["shape"], interface.get("strides")
    itemsize = np.dtype(interface["typestr"]).itemsize
    nbytes = int(np.prod(shape, dtype=np.int64)) * itemsize
    if strides is not None and nbytes and not _in_one_piece(shape, strides, itemsize):
        raise ValueError(view_words(shape, strides, itemsize))
    return int(interface["data"][0] or 0), nbytes


def _in_one_piece(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    def holds(order: Iterable[int]) -> bool:
        run = itemsize
        for d in order:
            if shape[d] != 1 and strides[d] != run:
                return False
            run *= shape[d]
        return True

    return holds(reversed(range(len(shape)))) or holds(range(len(shape)))


class Exported:
    """The registered arrays of one context, and the memory of peers that is mapped for them."""

    def __init__(self, gpu: bool) -> None:
        """When all ranks have closed the context before. ``gpu``: really a GPU, no simulator."""
        _outlived.clear()
        self._gpu = gpu
        self._regions: dict[tuple[int, int], Region] = {}
        self._told: dict[tuple[int, int], Region] = {}
        self._mapped: dict[Token, Any] = {}  # address, or the memory file
        self._mapping = threading.Lock()  # of _mapped: the proxy's thread maps, too
        #: Is told of every array: gmpi/memory/registered.py.
        self.follower: Any = None

    def allocate(
        self, shape: Any, dtype: Any, clear: bool, peers: frozenset[int] | None = None
    ) -> Any:
        """A fresh array, registered. ``peers`` is as in ``Region``."""
        kind = np.dtype(dtype)
        nbytes = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        if SIMULATOR:
            from device_lib.simulator.arrays import DeviceArray

            source = _File(max(nbytes, 1))
            memory = np.asarray(source)[:nbytes]
            array = DeviceArray(memory.view(kind).reshape(shape))
            token = Token(os.getpid(), b"", source.file.fd)
            self._keep(Region(array, source.file.address, nbytes, token, 0, 0, peers))
            return array
        from cuda.bindings import driver
        from numba import cuda

        whole = cuda.device_array(align(max(nbytes, 1), _BLOCK), np.uint8)
        if clear:
            # On a stream of its own: on Numba's it would wait for kernels that run.
            flags = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
            stream = cuda_call(driver.cuStreamCreate(flags))
            cuda_call(driver.cuMemsetD8Async(place_of(whole)[0], 0, whole.nbytes, stream))
            cuda_call(driver.cuStreamSynchronize(stream))
            cuda_call(driver.cuStreamDestroy(stream))
        array = whole[:nbytes].view(kind).reshape(shape)
        if nbytes:
            self.register(array, peers)
        return array

    def register(self, array: Any, peers: frozenset[int] | None = None) -> None:
        """Lets peers write to an array. ``peers`` is as in ``Region``.

        Raises:
            ContextError: it is no contiguous array of this GPU, is registered already, or its
                memory cannot be exported.
        """
        try:
            address, nbytes = place_of(array)
        except TypeError:
            raise ContextError(
                f"array is a {type(array).__name__}, allowed is an array in GPU memory: of "
                "Context.empty, of Numba, or with __cuda_array_interface__"
            ) from None
        except ValueError as exc:
            raise ContextError(
                f"array is {exc}, allowed is an array in one piece; register the whole array that "
                "it is a view of"
            ) from None
        if (address, nbytes) in self._regions:
            raise ContextError("array is registered already; Context.unregister(array) ends that")
        token, offset, buffer = (None, 0, 0) if SIMULATOR else _export(address)
        self._keep(Region(array, address, nbytes, token, offset, buffer, peers))

    def _keep(self, region: Region) -> None:
        self._regions[region.address, region.nbytes] = region
        if self.follower is not None:
            self.follower.added(region)

    def unregister(self, array: Any, in_use: str) -> None:
        """Forgets a registration.

        Args:
            in_use: what uses it, in words; empty: nothing.
        """
        try:
            key = place_of(array)
        except (TypeError, ValueError):
            key = (0, 0)
        if key not in self._regions:
            raise ContextError(
                "array is not registered: it has been unregistered before, or is another one than "
                "was passed to Context.register"
            )
        if in_use:
            raise ContextError(f"array cannot be unregistered: {in_use}; free them first")
        region = self._regions.pop(key)
        if self.follower is not None:
            self.follower.removed(region)

    def find(self, address: int, nbytes: int) -> Region | None:
        """The registration that a piece of memory lies in.

        Raises:
            ContextError: its memory has been freed.
        """
        for region in list(self._regions.values()):  # another thread may register
            begin, end = region.address, region.address + region.nbytes
            if begin <= address and address + nbytes <= end:
                if region.buffer and _buffer_of(region.address) != region.buffer:
                    raise ContextError(
                        "the memory of a registered array has been freed since: unregister it "
                        "before its memory goes"
                    )
                return region
        return None

    def tell(self, region: Region) -> None:
        """A peer is told of it: it stays to the end."""
        self._told[region.address, region.nbytes] = region

    def map(self, token: Token) -> int:
        """Address of an allocation of a peer's; 0: it cannot be mapped."""
        if token.pid == os.getpid():
            return self._own(token)
        with self._mapping:
            if token not in self._mapped:
                self._mapped[token] = self._map(token)
            found = self._mapped[token]
        return int(found.address) if isinstance(found, MemoryFile) else int(found)

    def _own(self, token: Token) -> int:
        """The same for one of ours."""
        for region in (*self._regions.values(), *self._told.values()):
            if region.token == token:
                return region.address - region.offset
        return 0

    def _map(self, token: Token) -> Any:
        if not self._gpu:
            return MemoryFile.open(token.pid, token.fd) or 0
        from cuda.bindings import driver

        handle = driver.CUipcMemHandle()
        handle.reserved = token.handle
        flags = driver.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
        error, address = driver.cuIpcOpenMemHandle(handle, flags)
        return int(address) if int(error) == 0 else 0

    def close(self) -> None:
        """Lets go of what peers have exported. No kernel runs.

        What they have been told of stays until the next context: when that opens, all ranks have
        closed this one.
        """
        if self._gpu:
            from cuda.bindings import driver

            for address in self._mapped.values():
                if address:
                    driver.cuIpcCloseMemHandle(address)  # fails where a kernel has died: no matter
        self._mapped.clear()
        self.follower = None
        _outlived.extend(self._told.values())
        self._regions.clear()
        self._told.clear()


_outlived: list[Region] = []


def _buffer_of(address: int) -> int:
    """The driver's number of the allocation at an address; 0: there is none."""
    from cuda.bindings import driver

    which = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_BUFFER_ID
    error, number = driver.cuPointerGetAttribute(which, address)
    return int(number) if int(error) == 0 else 0


def _export(address: int) -> tuple[Token, int, int]:
    """(token, offset, number) of the allocation at an address."""
    from cuda.bindings import driver

    try:
        base = int(cuda_call(driver.cuMemGetAddressRange(address)))
        handle = cuda_call(driver.cuIpcGetMemHandle(base))
    except RuntimeError as exc:
        raise ContextError(
            f"array is in memory that cannot be exported: {exc}; allowed is memory of cudaMalloc, "
            "also in CuPy's or PyTorch's pool, but no managed memory, nor that of a stream-ordered "
            "or virtual allocator: use Context.empty"
        ) from exc
    return Token(os.getpid(), bytes(handle.reserved), -1), address - base, _buffer_of(address)
