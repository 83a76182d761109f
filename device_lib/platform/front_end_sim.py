"""Puts the simulator where programs look for ``numba.cuda``.

``install`` is called by ``import gmpi``. Where ``numba.cuda`` has not been imported yet, a finder
waits for that and makes the module of the simulator's names: nothing of numba-cuda is run, except
what a program asks for beside them, such as ``numba.cuda.types``. Where it has been imported, the
names in it are replaced, so that ``from numba import cuda`` before ``import gmpi`` is the same
module, and kernels and arrays that are there already are taken over.

Nothing here imports NumPy or Numba unless the simulator is wanted and ``numba.cuda`` asked for.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

_NAME = "numba.cuda"
_OURS = "__gmpi_simulator__"
#: What makes kernels of a program that has done so before we came: module, class, and where it
#: keeps the Python function.
_KERNELS = (
    ("numba.cuda.simulator.kernel", "FakeCUDAKernel", "fn"),
    ("numba.cuda.dispatcher", "CUDADispatcher", "py_func"),
)
_ARRAYS = "numba.cuda.simulator.cudadrv.devicearray", "FakeCUDAArray"


def is_wanted() -> bool:
    """Whether kernels run in the simulator, as Numba's settings say."""
    for name in ("numba.cuda.core.config", "numba.core.config"):
        said = getattr(sys.modules.get(name), "ENABLE_CUDASIM", None)
        if said is not None:
            return bool(said)
    return os.environ.get("NUMBA_ENABLE_CUDASIM", "").strip() not in ("", "0")


def is_simulator() -> bool:
    """Whether ``numba.cuda`` is the simulator; imports it."""
    install()
    return bool(getattr(importlib.import_module(_NAME), _OURS, False))


def install() -> None:
    """From now on ``numba.cuda`` is the simulator, where it is wanted; harmless to call again."""
    loaded = sys.modules.get(_NAME)
    if loaded is None:
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)
    elif is_wanted() and not hasattr(loaded, _OURS):
        _fill(loaded)
        _adopt()


class _Finder(MetaPathFinder, Loader):
    """Finds ``numba.cuda``, once, and loads it."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != _NAME:
            return None
        sys.meta_path.remove(self)
        if not is_wanted():
            return None
        spec = ModuleSpec(_NAME, self, origin=__file__, is_package=True)
        found = importlib.util.find_spec(_NAME)  # numba-cuda's, or Numba's own
        places = None if found is None else found.submodule_search_locations
        spec.submodule_search_locations = list(places or ())
        return spec

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        _fill(module)


_finder = _Finder()


def _fill(module: ModuleType) -> None:
    from device_lib.simulator.names import NAMES, other

    content = vars(module)
    content.pop("laneid", None)  # another number each time: other()
    content.update(NAMES)
    content["__getattr__"] = other
    content[_OURS] = True


def _adopt() -> None:
    """Kernels and arrays that are there already, or whose makers a program has by name."""
    from device_lib.simulator import arrays
    from device_lib.simulator.kernels import Kernel

    made: WeakKeyDictionary[Any, Kernel] = WeakKeyDictionary()

    def take_over(kind: Any, function: str) -> None:
        def ours(kernel: Any) -> Kernel:
            if kernel not in made:
                made[kernel] = Kernel(getattr(kernel, function))
            return made[kernel]

        kind.__getitem__ = lambda self, configuration: ours(self)[configuration]
        kind.__call__ = lambda self, *args: ours(self)(*args)
        kind.forall = lambda self, *args, **options: ours(self).forall(*args, **options)

    for name, kind, function in _KERNELS:
        found = getattr(sys.modules.get(name), kind, None)
        if found is not None:
            take_over(found, function)
    array = getattr(sys.modules.get(_ARRAYS[0]), _ARRAYS[1], None)
    arrays.adopted = () if array is None else (array,)
