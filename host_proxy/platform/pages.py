"""Host memory in whole pages that we map ourselves, so that we say when it goes.

MPI and the proxy know staging by its address alone. What is given back too early is touched all the
same, mostly without a sign. With ``guarded``, as in tests, every touch of memory that was given
back, and of the pages beside it, ends the process at once: the pages stay reserved and cannot be
accessed.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
from collections.abc import Callable

guarded = False  # for memory that is mapped from now on

PAGE = mmap.PAGESIZE
_NO_ACCESS = 0
_ACCESS = mmap.PROT_READ | mmap.PROT_WRITE
_RESERVE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
_MAP_FIXED = 0x10
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
]  # fmt: skip
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.process_vm_readv.restype = ctypes.c_ssize_t
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def _map(address: int | None, nbytes: int, access: int, flags: int, fd: int) -> int:
    found = _libc.mmap(address, nbytes, access, flags, fd, 0)
    if found == _FAILED or found is None:
        number = ctypes.get_errno()
        raise MemoryError(f"cannot map {nbytes} bytes of host memory: {os.strerror(number)}")
    return int(found)


class _Piece(ctypes.Structure):
    """iovec of C."""

    _fields_ = [("address", ctypes.c_void_p), ("nbytes", ctypes.c_size_t)]


def read(address: int, to: int, nbytes: int) -> bool:
    """Copies memory of this process, if all of it is there; whether it is. Never a signal."""
    here, there = _Piece(to, nbytes), _Piece(address, nbytes)
    pid, one = os.getpid(), ctypes.c_ulong(1)
    found = _libc.process_vm_readv(
        pid, ctypes.byref(here), one, ctypes.byref(there), one, ctypes.c_ulong(0)
    )
    if found < 0 and ctypes.get_errno() not in (errno.EFAULT, errno.EINVAL):
        ctypes.memmove(to, address, nbytes)  # the system does not allow to ask
        return True
    return int(found) == nbytes


class Pages:
    """Zeroed memory, or a memory file, until ``give_back`` or until nobody refers to it.

    Attributes:
        address: of the first byte, at the beginning of a page.
        nbytes: as many as were asked for.
    """

    def __init__(self, nbytes: int, fd: int = -1) -> None:
        """``fd``: of a memory file; else the memory is anonymous."""
        self.address = 0
        self.nbytes = nbytes
        self._guarded = guarded
        self._length = -(-max(nbytes, 1) // PAGE) * PAGE
        flags = mmap.MAP_SHARED if fd >= 0 else mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        if not self._guarded:
            self.address = _map(None, self._length, _ACCESS, flags, fd)
            return
        begin = _map(None, self._length + 2 * PAGE, _NO_ACCESS, _RESERVE, -1) + PAGE
        self.address = _map(begin, self._length, _ACCESS, flags | _MAP_FIXED, fd)

    def give_back(self) -> None:
        """Nobody uses it any more. Idempotent."""
        address, self.address = self.address, 0
        if not address:
            return
        if self._guarded:
            # Fresh pages without access in their place: the memory goes, the addresses stay.
            _map(address, self._length, _NO_ACCESS, _RESERVE | _MAP_FIXED, -1)
        else:
            _libc.munmap(address, self._length)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        # When Python goes, MPI is still there, and it may still use the memory. ``sys`` may have
        # gone already.
        if not is_finalizing():
            self.give_back()
