"""Compiles functions that only compiled code calls: as far as their callers need, no further.

Numba makes machine code of every function. Here a function's code is linked into its callers and
never runs on its own, so it stays what LLVM starts from, and the entry that it ends up in is
optimised as a whole. For the 400 functions of the engine the rest took a third of the time.

How Numba keeps code in between is its own affair. Where it is not as this file knows it, functions
are compiled as Numba does it: slower, to the same effect.
"""

# mypy: disable-error-code="no-untyped-def,misc"
from __future__ import annotations

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

_KNOWN = (
    "_finalize_dynamic_globals",
    "_finalize_final_module",
    "_optimize_final_module",
    "_verify_declare_only_symbols",
    "codegen",
    "enable_object_caching",
    "get_pointer_to_function",
)


class Linked(JITCodeLibrary):
    """Code without an address."""

    def _optimize_final_module(self):
        pass

    def _finalize_final_module(self):
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def get_pointer_to_function(self, name):
        """None: there is no wrapper for callers in Python either."""
        return 0

    @property
    def codegen(self):
        """What Numba gives an environment to, and code that was not made has none."""
        return self

    def set_env(self, name, environment):
        pass


class _LinkedCompiler(Compiler):
    def compile_extra(self, func):
        library = Linked(self.state.targetctx.codegen(), func.__qualname__)
        library.enable_object_caching()
        self.state.library = library
        return super().compile_extra(func)


def compiler():
    """The class of Numba's compilers for such functions."""
    known = all(hasattr(JITCodeLibrary, name) for name in _KNOWN)
    return _LinkedCompiler if known else Compiler
