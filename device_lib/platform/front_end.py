"""What is asked of Numba's own CUDA driver and compiler, beside its public interface.

This folder has what depends on the inside of numba-cuda; docs/design.md, *One seam for the front
end*, says which files elsewhere still do, and ``tests/test_front_end.py`` lets no other one in.
"""

from __future__ import annotations

import ctypes
from functools import cache
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

Capability = tuple[int, int]


@cache
def has_driver() -> bool:
    """Whether there is a library of the CUDA driver where Numba looks for it; loads no Numba.

    One that cannot be loaded is there: Numba says why.
    """
    for folder, name in product(("", "/usr/lib/", "/usr/lib64/"), ("libcuda.so", "libcuda.so.1")):
        try:
            ctypes.CDLL(folder + name)
        except OSError:
            if folder and Path(folder, name).is_file():
                return True
        else:
            return True
    return False


def driver() -> Any:
    """The CUDA driver, as Numba calls it: ``get_version``, ``get_device_count``, ``get_device``."""
    from numba.cuda.cudadrv.driver import driver as found

    return found


def toolkit_version() -> tuple[int, ...]:
    """Of the compiler that Numba uses; raises whatever keeps it from being found."""
    from cuda.bindings import nvrtc

    status, *version = nvrtc.nvrtcVersion()
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(status.name)
    return tuple(version)


def known_capabilities() -> list[Capability]:
    """Compute capabilities that CUDA's compiler knows, the least one first."""
    from numba.cuda.cudadrv import nvrtc

    return sorted(nvrtc.get_supported_ccs())


def compile_without_gpu(cc: Capability) -> None:
    """From now on Numba compiles for ``cc`` without asking for a device, in this process."""
    from numba import cuda
    from numba.cuda import dispatcher

    device = SimpleNamespace(compute_capability=cc)
    dispatcher.get_current_device = lambda: device
    cuda.get_current_device = lambda: device


def function_of(kernel: Any) -> Any:
    """The driver's handle of a compiled kernel; loads it."""
    return kernel._codelibrary.get_cufunc().handle
