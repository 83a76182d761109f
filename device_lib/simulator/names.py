"""The simulator by the names that ``numba.cuda`` has for it."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

from greenlet import getcurrent

from device_lib.simulator import (
    arrays,
    atomics,
    host,
    kernels,
    lanes,
    mathematics,
    memory,
    reduction,
    threads,
)
from device_lib.simulator.absent import ABSENT
from device_lib.simulator.vectors import VECTORS

_MODULES = threads, memory, atomics, mathematics, kernels, arrays, host, reduction

#: Of a name in ``numba.cuda``, what it stands for.
NAMES: dict[str, Any] = {
    **{name: getattr(module, name) for module in _MODULES for name in module.__all__},
    **VECTORS,
    **ABSENT,
    "HAS_NUMBA": True,
    "implementation": "GMPI",
}


def other(name: str) -> Any:
    """What is another thing each time, or is not of the simulator: types, and Numba's settings."""
    if name == "laneid":
        me = getcurrent()
        if isinstance(me, lanes.Lane):
            return me.lane_id
        raise AttributeError("cuda.laneid is known in a kernel only")
    if name == "config":
        return import_module("numba.core.config")
    if not name.startswith("_"):
        found = getattr(import_module("numba.cuda.types"), name, None)
        if found is not None and not isinstance(found, ModuleType):
            return found
    raise AttributeError(f"module 'numba.cuda' of the simulator has no attribute {name!r}")
