"""What needs a compiler or a driver: it can be imported and named, and says so when it is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_WHY = "needs a GPU's compiler or driver: unset NUMBA_ENABLE_CUDASIM, or do without it there"
_CALLS = (
    "compile", "compile_all", "compile_for_current_device", "compile_ptx",
    "compile_ptx_for_current_device", "guvectorize", "open_ipc_array", "set_memory_manager",
    "vectorize",
)  # fmt: skip
_CLASSES = (
    "BaseCUDAMemoryManager", "GetIpcHandleMixin", "HostOnlyCUDAMemoryManager", "IpcHandle",
    "MappedMemory", "MemoryPointer", "PinnedMemory",
)  # fmt: skip
_CODE = ("Archive", "CUSource", "Cubin", "Fatbin", "LTOIR", "LinkableCode", "Object", "PTXSource")


class KernelRuntimeError(RuntimeError):
    """Is not raised: a kernel's own exceptions come out of its launch."""


class CudaSupportError(ImportError):
    """Is not raised: there is always a device."""


def _call(name: str) -> Callable[..., Any]:
    def absent(*args: Any, **options: Any) -> Any:
        raise NotImplementedError(f"cuda.{name} {_WHY}")

    absent.__name__ = name
    return absent


class _Code:
    """Code to link, which ``jit`` and ``declare_device`` refuse."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.data = args[0] if args else None


def _no_instance(self: Any, *args: Any, **options: Any) -> None:
    raise NotImplementedError(f"cuda.{type(self).__name__} {_WHY}")


def declare_device(name: str, sig: Any, **options: Any) -> Callable[..., Any]:
    """A function of CUDA C++, which no simulated kernel can call."""
    return _call(name)


ABSENT: dict[str, Any] = {
    **{name: _call(name) for name in _CALLS},
    **{name: type(name, (), {"__init__": _no_instance}) for name in _CLASSES},
    **{name: type(name, (_Code,), {}) for name in _CODE},
    "CudaSupportError": CudaSupportError,
    "KernelRuntimeError": KernelRuntimeError,
    "declare_device": declare_device,
}
