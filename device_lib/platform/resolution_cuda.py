"""What Numba does again and again while the library is compiled, and need not.

The type of a call of one of its own functions is asked once. For each ``+`` and each ``min`` Numba
goes through all templates that it has for them, which is a quarter of the time in which the library
compiles. The answer depends on the function and on the types of its arguments, so it is kept.

Of Numba's passes only some find anything in the library (``passes_cuda.py``).

For each function, and for each call of an intrinsic, Numba goes through all its registries for
operations that have been declared since. How many there are says whether there are new ones.
"""

# mypy: disable-error-code="no-untyped-def,method-assign"
from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numba.core.types.functions import BaseFunction
from numba.cuda.compiler import CUDACompiler
from numba.cuda.core.postproc import PostProcessor
from numba.cuda.target import CUDATargetContext

from device_lib.platform import passes_cuda

_thread = threading.local()
# The function is kept with its answer: its id stays its own.
_known: dict[tuple[Any, ...], tuple[BaseFunction, Any]] = {}
_resolve = BaseFunction.get_call_type
_define = CUDACompiler.define_pipelines
_post_process = PostProcessor.run
_passes: list[passes_cuda.Passes] = []  # one, when it is known
_refresh = CUDATargetContext.refresh
_seen: dict[int, list[int]] = {}  # ``_declared`` when a context was refreshed, by its registries


def _get_call_type(self, context, args, kws):
    if not getattr(_thread, "depth", 0):
        return _resolve(self, context, args, kws)
    key = id(self), id(context), args, tuple(kws.items())
    found = _known.get(key)
    if found is None:
        signature = _resolve(self, context, args, kws)
        # One that Numba compiles for its caller, an overload, depends on the caller's options.
        if self.get_impl_key(signature) is self.typing_key:
            _known[key] = self, signature
        return signature
    return found[1]


def _define_pipelines(self):
    if not getattr(_thread, "depth", 0):
        return _define(self)
    if not _passes:
        _passes.append(passes_cuda.Passes(_define(self)[0].passes))
    return _passes


def _run_post_processor(self, *arguments, **options):
    run = _post_process if self.func_ir.is_generator else passes_cuda.post_process
    run(self, *arguments, **options)


def _declared(context) -> list[int]:
    """How many registries there are for code and types, and how many declarations in them."""
    loaders = [*context._registries.items(), *context.typing_context._registries.items()]
    lists = [getattr(registry, items) for registry, of in loaders for items in of.registry_items]
    return [len(loaders), sum(map(len, lists))]


def _refresh_if_new(self):
    if _declared(self) != _seen.get(id(self._registries)):
        _refresh(self)
        _seen[id(self._registries)] = _declared(self)


BaseFunction.get_call_type = _get_call_type
CUDATargetContext.refresh = _refresh_if_new
CUDACompiler.define_pipelines = _define_pipelines
PostProcessor.run = _run_post_processor


@contextmanager
def remembered() -> Iterator[None]:
    """While this thread compiles functions of the library; may be nested."""
    _thread.depth = getattr(_thread, "depth", 0) + 1
    try:
        yield
    finally:
        _thread.depth -= 1
