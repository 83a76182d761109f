"""The code that a function is linked with: each piece once, written once, and without stores that
nobody needs.

Numba lists a function's code with all that it calls, and what those call: what two of them have in
common is there twice, four times, and so on. For some kernels it was written out, read by CUDA's
compiler and thrown away again dozens of times.

Where a function returns a tuple, Numba clears its place on the caller's stack twice before the
call. CUDA's compiler leaves that in large kernels: of 1024 threads, 64 KB in one call.
"""

# mypy: disable-error-code="no-untyped-def,no-any-return"
from __future__ import annotations

import re
from collections.abc import Iterator

from llvmlite import ir
from numba.cuda.codegen import CUDACodeLibrary

# Of values without a name, which are what a call has returned.
_CLEARING = re.compile(r'^ *store \[\d+ x i64\] zeroinitializer, \[\d+ x i64\]\* %"\..*\n', re.M)


def _each(library, seen: set[int]) -> Iterator[ir.Module]:
    """The module of a library and those of all that it is linked with, in Numba's order."""
    seen.add(id(library))
    if not isinstance(library, CUDACodeLibrary):
        yield from library.modules
        return
    yield library._module
    for other in library._linking_libraries:
        if id(other) not in seen:
            yield from _each(other, seen)


def _modules(self) -> list[ir.Module]:
    return list(_each(self, set()))


def _texts(self) -> list[str]:
    """Of the modules. Those of other libraries are complete, and many are linked with them; with
    debug information they have another linkage."""
    if self._llvm_strs is None:
        own, *others = self.modules
        text = str if "g" in self._nvvm_options else _text
        self._llvm_strs = [_without_clearing(str(own)), *map(text, others)]
    return self._llvm_strs


def _without_clearing(text: str) -> str:
    return _CLEARING.sub("", text)


def _text(module: ir.Module) -> str:
    found = getattr(module, "gmpi_text", None)
    if found is None:
        found = module.gmpi_text = _without_clearing(str(module))
    return found


def link_once() -> None:
    """From now on, for all that Numba compiles."""
    CUDACodeLibrary.modules = property(_modules)
    CUDACodeLibrary.llvm_strs = property(_texts)
