"""Machine code of the compiled engine that comes from disk: nothing is read that nobody asks for.

Beside machine code Numba keeps what LLVM made it from, for functions that call this one and are
compiled later. It reads that each time, and asks LLVM for the names in it one by one: half of the
time in which the engine is loaded. Here the names are kept as well, and the rest is read when it is
linked, which happens where one function of the engine is on disk and another one is not.
"""

# mypy: disable-error-code="no-untyped-def,misc,no-any-return"
from __future__ import annotations

from functools import partial
from typing import Any

from llvmlite import binding
from numba.core.caching import CompileResultCacheImpl
from numba.core.codegen import JITCodeLibrary


class _Library(JITCodeLibrary):
    """Machine code, and what it was made from where that is asked for."""

    _shared_module: Any

    @classmethod
    def from_disk(cls, codegen, data):
        name, (machine_code, source, names) = data
        self = cls(codegen, name)
        self._source = source
        self.enable_object_caching()
        self._set_compiled_object(machine_code)
        self._finalize_final_module()
        codegen._engine._defined_symbols |= names
        return self

    def _get_module_for_linking(self):
        if self._shared_module is None:
            self._shared_module = binding.parse_bitcode(self._source)
        return self._shared_module


class Loading(CompileResultCacheImpl):
    """How a compiled function is kept, and read again."""

    def reduce(self, result):
        (name, _, (machine_code, source)), *rest = super().reduce(result)
        module = result.library._get_module_for_linking()
        named = (*module.functions, *module.global_variables)
        names = {each.name for each in named if not each.is_declaration}
        return (name, (machine_code, source, names)), *rest

    def rebuild(self, target, kept):
        codegen = target.codegen()
        codegen.unserialize_library = partial(_Library.from_disk, codegen)
        try:
            return super().rebuild(target, kept)
        finally:
            del codegen.unserialize_library
