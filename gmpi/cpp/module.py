"""``gmpi.cupy_module``: CUDA C++ that calls GMPI, compiled, linked and launched from CuPy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from math import prod
from typing import Any

from device_lib.platform.assembler import LIMITS
from device_lib.platform.context import CONTEXTS, AnyContext
from gmpi.cpp import launching, link
from gmpi.errors import UsageError
from gmpi.launch import launch, preparing
from gmpi.launch.builds import Choice, first_that_fits, must_be_allowed
from gmpi.launch.launch import PASS_THE_DEVICE, Launch


def _cupy() -> Any:
    try:
        import cupy
    except ImportError:
        raise UsageError(
            'cupy_module needs CuPy, which is not installed: pip install ".[cu13]" brings it'
        ) from None
    return cupy


def _taken(argument: Any) -> Any:
    """An argument as CuPy takes it: of the arrays of others, one of its own of the same memory."""
    cupy = _cupy()
    foreign = hasattr(argument, "__cuda_array_interface__")
    if foreign and not isinstance(argument, cupy.ndarray):
        return cupy.asarray(argument)
    return argument


def cupy_module(
    source: str, options: Sequence[str] = (), *, cooperative: bool = False
) -> CupyModule:
    """Compiles CUDA C++ that calls GMPI, for the current GPU, and links the device library to it.

        module = gmpi.cupy_module('''
            #include "gmpi.cuh"
            extern "C" __global__ void shift(gmpi_context ctx, float *a, long long to) {
                GMPI_Sendrecv_replace(ctx, a, 8, GMPI_FLOAT, to, 7, to, 7, GMPI_COMM_WORLD);
            }''')
        shift = module.get_function("shift")
        shift((1,), (128,), (g.device, array, 1 - g.rank))
        g.synchronize()

    Args:
        source: includes ``gmpi.cuh``; its kernels are ``extern "C"`` and take a ``gmpi_context``,
            for which a launch is given ``Context.device``.
        options: of NVRTC, such as ``("-DN=3", "-I/where")``.
        cooperative: whether kernels are launched so that ``cooperative_groups`` can synchronize
            whole grids.

    Returns:
        The module, whose ``get_function`` gives kernels that are called as CuPy's RawKernel.

    Raises:
        UsageError: the compiler or the linker refuses the program; CuPy, NVRTC or nvJitLink is not
            installed; in the simulator.
    """
    link.require()
    cupy = _cupy()
    text = cupy.cuda.Device().compute_capability  # "90"
    cc = int(text[:-1]), int(text[-1])
    return CupyModule(link.compile_program(source, cc, options), cc, cooperative)


class CupyModule:
    """What ``cupy_module`` returns."""

    def __init__(self, program: link.Program, cc: tuple[int, int], cooperative: bool) -> None:
        self.program = program
        self.cooperative = cooperative
        self._cc = cc
        self._loaded = cache(self._load)

    def _load(self, limit: int) -> Any:
        """CuPy's module of the program, linked with one build of the device library."""
        module = _cupy().cuda.function.Module()
        module.load(link.link(self.program, self._cc, limit))
        return module

    def get_function(self, name: str) -> CupyKernel:
        """A kernel of the module.

        Raises:
            UsageError: there is none of that name.
        """
        if name not in self.program.kernels:
            there = ", ".join(self.program.kernels) or "none"
            raise UsageError(
                f'the module has no kernel {name}: it has {there}; write extern "C" __global__'
            )
        return CupyKernel(self, name)

    def _function(self, name: str, limit: int) -> Any:
        return self._loaded(limit).get_function(name)


class CupyKernel:
    """A kernel of a ``CupyModule``, called as CuPy's: ``kernel(grid, block, args)``.

    As Numba's kernels, it is linked with the build of the device library under which the grid fits
    (``gmpi/launch/builds.py``).
    """

    def __init__(self, module: CupyModule, name: str) -> None:
        self.name = name
        self._module = module
        self._chosen = cache(self._choose)

    def __repr__(self) -> str:
        return f"<gmpi.CupyKernel {self.name}>"

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: tuple[Any, ...],
        *,
        shared_mem: int = 0,
        stream: Any = None,
    ) -> None:
        """Launches it.

        Args:
            grid, block: blocks of the grid and threads of a block, in up to three dimensions.
            args: as for CuPy's RawKernel, and ``Context.device`` once. Arrays of Numba, or of
                anything else with ``__cuda_array_interface__``, are taken as well.
            shared_mem: bytes of dynamic shared memory of a block.
            stream: of CuPy; None: the current one.

        Raises:
            UsageError: no argument is Context.device.
            ContextError: the context is closed.
            GridError: the grid cannot be resident as a whole.
        """
        ctx = self._context(args)
        preparing.begin()
        try:
            self._launch(ctx, grid, block, args, shared_mem, stream)
        finally:
            preparing.end()

    def _launch(
        self,
        ctx: AnyContext,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: tuple[Any, ...],
        shared_mem: int,
        stream: Any,
    ) -> None:
        stream = stream or _cupy().cuda.get_current_stream()
        blocks, threads = prod(grid), prod(block)
        function, what = self._chosen(blocks, threads, shared_mem)
        given = launch.begin(ctx, what)
        passed = tuple(launching.as_structure(given) if a is ctx else _taken(a) for a in args)
        try:
            more = {"enable_cooperative_groups": self._module.cooperative}
            function(tuple(grid), tuple(block), passed, shared_mem, stream, **more)
        finally:
            launch.follow(ctx, launching.stream_of(stream.ptr))

    def _context(self, args: tuple[Any, ...]) -> Any:
        from gmpi.context import Context

        for arg in args:
            if isinstance(arg, CONTEXTS):
                return arg
            if isinstance(arg, Context):
                raise TypeError(PASS_THE_DEVICE)
        raise UsageError(f"kernel {self.name} needs Context.device among its arguments")

    def max_blocks(self, threads: int, shared_mem: int = 0) -> int:
        """The largest grid that is resident as a whole, beside grids as large of the other ranks
        that share the GPU: as ``Context.max_blocks``."""
        most = max(choice.resident for choice in self._measured(threads, shared_mem))
        return most // launch.sharers()

    def _choose(self, blocks: int, threads: int, shared: int) -> tuple[Any, Launch]:
        """The first build under which so many blocks are resident, or that with the most."""
        chosen = first_that_fits(self._measured(threads, shared), blocks * launch.sharers())
        makes = self._module.program.makes_requests
        return chosen.kernel, Launch(self.name, blocks, threads, *chosen[1:], makes)

    def _measured(self, threads: int, shared: int) -> Iterator[Choice]:
        """With each build, those with the most registers first."""
        return (self._measure(limit, threads, shared) for limit in LIMITS)

    def _measure(self, limit: int, threads: int, shared: int) -> Choice:
        """With one build. ``shared``: bytes of dynamic shared memory."""
        from cuda.bindings.driver import CUfunction_attribute as Attribute

        driver = _cupy().cuda.driver
        function = self._module._function(self.name, limit)
        known = (
            Attribute.CU_FUNC_ATTRIBUTE_NUM_REGS,
            Attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
        )
        registers, static = (driver.funcGetAttribute(int(a), function.ptr) for a in known)
        if must_be_allowed(static, shared):
            allowed = Attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            driver.funcSetAttribute(function.ptr, int(allowed), shared)
        each = driver.occupancyMaxActiveBlocksPerMultiprocessor(function.ptr, threads, shared)
        processors = _cupy().cuda.Device().attributes["MultiProcessorCount"]
        return Choice(function, each * processors, registers, static + shared)
