"""Compiles functions that only compiled code calls: as far as their callers need, no further.

Numba makes machine code of every function. Here a function's code is linked into its callers and
never runs on its own, so it stays what LLVM starts from, and the entry that it ends up in is
optimised as a whole. For the 400 functions of the engine the rest took a third of the time.

LLVM decides by size what becomes part of its callers, and a call costs 20 to 30 instructions:
status and result of each go through memory. So functions may say it: what each message goes through
is always a part of its callers, and what only errors need never is.

How Numba keeps code in between is its own affair. Where it is not as this file knows it, functions
are compiled as Numba does it: slower, to the same effect.
"""

# mypy: disable-error-code="no-untyped-def,misc"
from __future__ import annotations

from llvmlite.binding import Linkage
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

_KNOWN = (
    "_finalize_dynamic_globals",
    "_finalize_final_module",
    "_get_module_for_linking",
    "_optimize_final_module",
    "_verify_declare_only_symbols",
    "codegen",
    "enable_object_caching",
    "get_pointer_to_function",
)


INLINED = "alwaysinline"
APART = "noinline"


class Placed(JITCodeLibrary):
    """Code that says whether it is to become part of its callers: ``placement``, an attribute of
    LLVM's, "" where LLVM decides."""

    placement = ""

    def _get_module_for_linking(self):
        if self._shared_module is not None or not self.placement:
            return super()._get_module_for_linking()
        # What was linked in has another linkage; wrappers are for callers in Python and C.
        ours = [
            function.name
            for function in self.get_defined_functions()
            if function.linkage == Linkage.external
            and not function.name.startswith(("cpython.", "cfunc."))
        ]
        module = super()._get_module_for_linking()
        for name in ours:
            module.get_function(name).add_function_attribute(self.placement)
        return module


class Linked(Placed):
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


def compiler(placement="", library=Linked):
    """The class of Numba's compilers for functions with such code."""

    class PlacedCompiler(Compiler):
        def compile_extra(self, func):
            code = library(self.state.targetctx.codegen(), func.__qualname__)
            code.placement = placement
            code.enable_object_caching()
            self.state.library = code
            return super().compile_extra(func)

    known = all(hasattr(JITCodeLibrary, name) for name in _KNOWN)
    return PlacedCompiler if known else Compiler
