"""What happens when a kernel that takes a context is launched.

Numba launches kernels, not GMPI, yet three things must be known at that moment: whether the
context is open, whether the whole grid can be resident (a block that is not cannot answer the one
that waits for it, and the program hangs), and on which stream the kernel runs, so that
``Context.synchronize`` can wait for it without blocking Ctrl-C. So the launch methods of
numba-cuda's kernel classes are wrapped, here and nowhere else; the simulator lets us make its
launches. Kernels without a context are not touched.

Numba also warns of small grids, which are usual where a kernel keeps running and communicates: not
for kernels with a context.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from device_lib.platform.context import CONTEXTS, AnyContext
from device_lib.platform.primitives import SIMULATOR
from gmpi.launch import preparing

#: Called with (device context, launch) before a launch, which then gets the device context that is
#: returned, and with the stream after it.
Before = Callable[[AnyContext, "Launch"], AnyContext]
After = Callable[[AnyContext, Any], None]

_hooks: tuple[Before, After] | None = None
_INITS = (
    "Psend_init", "Precv_init", "Send_init", "Ssend_init", "Bsend_init", "Rsend_init",
    "Recv_init", "Allreduce_init", "Bcast_init", "Barrier_init",
)  # fmt: skip
_MAKING = frozenset(f"GMPI_{call}{scope}" for call in _INITS for scope in ("", "_warp"))
#: Ranks that share the GPU: a launch takes a build that leaves room for as large grids of them all.
_sharers = 1

PASS_THE_DEVICE = (
    "a kernel takes Context.device, not the Context itself: kernel[...](g.device, ...)"
)


class Launch(NamedTuple):
    """One launch, and what the device can hold of it.

    Attributes:
        name: of the kernel, as the user wrote it.
        blocks, threads: of the grid, and of a block.
        resident: blocks that the device can hold at once.
        registers: a thread takes; 0 in the simulator.
        shared_bytes: a block takes, static and dynamic.
        makes_requests: whether it calls GMPI_Psend_init, GMPI_Send_init or the like.
    """

    name: str
    blocks: int
    threads: int
    resident: int
    registers: int = 0
    shared_bytes: int = 0
    makes_requests: bool = False


def _context_of(args: tuple[Any, ...]) -> AnyContext | None:
    from gmpi.context import Context

    for arg in args:
        if isinstance(arg, CONTEXTS):
            return arg
        if isinstance(arg, Context):
            raise TypeError(PASS_THE_DEVICE)
    return None


def _wrap_gpu() -> None:
    from numba.cuda import dispatcher
    from numba.cuda.typing.typeof import typeof_impl

    from gmpi.launch import builds

    original = dispatcher._Kernel.launch

    def launch(
        self: Any, args: Any, griddim: Any, blockdim: Any, stream: Any = 0, sharedmem: int = 0
    ) -> Any:
        ctx = _context_of(args)
        if ctx is None or _hooks is None:
            return original(self, args, griddim, blockdim, stream, sharedmem)

        blocks, threads = prod(griddim), prod(blockdim)
        chosen = builds.choose(self, blocks * _sharers, threads, sharedmem)
        makes = builds.makes_requests(self)
        given = _hooks[0](ctx, Launch(builds.name_of(self), blocks, threads, *chosen[1:], makes))
        args = tuple(given if arg is ctx else arg for arg in args)
        result = original(chosen.kernel, args, griddim, blockdim, stream, sharedmem)
        _hooks[1](ctx, stream)
        return result

    dispatcher._Kernel.launch = launch
    _wrap_calls(dispatcher)

    from gmpi.context import Context

    @typeof_impl.register(Context)
    def refuse(value: Any, c: Any) -> None:
        raise TypeError(PASS_THE_DEVICE)


def _wrap_calls(dispatcher: Any) -> None:
    """Reports know of kernels that are being compiled, and Numba's warning of a small grid waits
    for the launch.

    Numba gives it in ``kernel[blocks, threads]``, where it is not known yet with which arguments
    the kernel will be launched.
    """
    from numba.cuda.core.errors import NumbaPerformanceWarning

    configuration = dispatcher._LaunchConfiguration
    make, call = configuration.__init__, configuration.__call__
    held = threading.local()

    def hold(message: Any, *args: Any, **options: Any) -> None:
        if isinstance(message, NumbaPerformanceWarning):
            held.message = message
        else:
            warnings.warn(message, *args, **options)

    def make_silently(self: Any, *args: Any, **options: Any) -> None:
        held.message = None
        make(self, *args, **options)
        self._held_back = held.message

    def launch(self: Any, *args: Any) -> Any:
        if any(isinstance(arg, CONTEXTS) for arg in args):
            preparing.begin()
            try:
                return call(self, *args)  # compiles, the first time
            finally:
                preparing.end()
        message = getattr(self, "_held_back", None)
        if message is not None:
            self._held_back = None  # once, as Numba does
            warnings.warn(message, stacklevel=2)
        return call(self, *args)

    dispatcher.warn = hold
    configuration.__init__, configuration.__call__ = make_silently, launch


def _wrap_simulator() -> None:
    from device_lib.simulator import kernels

    def launch(
        configured: Any, args: tuple[Any, ...], go: Callable[[tuple[Any, ...]], None]
    ) -> None:
        ctx = _context_of(args)
        if ctx is None or _hooks is None:
            go(args)
            return
        blocks, threads = prod(configured.grid_dim), prod(configured.block_dim)
        function = configured.kernel.py_func
        makes = kernels.calls(function, _MAKING)
        resident = kernels.RESIDENT_BLOCKS
        what = Launch(function.__qualname__, blocks, threads, resident, makes_requests=makes)
        before, after = _hooks
        given = before(ctx, what)
        try:
            go(tuple(given if arg is ctx else arg for arg in args))
        finally:
            after(ctx, None)

    kernels.launch_by(launch)


def install(before: Before, after: After, sharers: int = 1) -> None:
    """Calls ``before`` and ``after`` around every launch with a context argument.

    Args:
        sharers: ranks that share the GPU.
    """
    global _hooks, _sharers
    _sharers = max(_sharers, sharers)
    first = _hooks is None
    _hooks = before, after
    if first:
        if SIMULATOR:
            _wrap_simulator()
        else:
            _wrap_gpu()


def begin(ctx: AnyContext, what: Launch) -> AnyContext:
    """A launch that is not Numba's is about to be made: what its kernel gets for ``ctx``.

    Raises:
        ContextError: the context is closed.
        GridError: not all of its blocks can be resident at once.
    """
    assert _hooks is not None  # there has been a context
    return _hooks[0](ctx, what)


def follow(ctx: AnyContext, stream: Any) -> None:
    """It has been made, on ``stream``, as Numba knows it."""
    assert _hooks is not None
    _hooks[1](ctx, stream)


def sharers() -> int:
    """Ranks that share the GPU."""
    return _sharers


def max_blocks(
    kernel: Any,
    block: int | tuple[int, ...],
    shared_bytes: int = 0,
    lean: bool = False,
    keep_registers: bool = False,
) -> int:
    """Largest grid that is resident as a whole, for a compiled kernel.

    Args:
        block: threads of a block, in up to three dimensions.
        shared_bytes: dynamic shared memory of a block.
        lean, keep_registers: as of ``Context.max_blocks``.
    """
    if lean and keep_registers:
        raise ValueError(
            "lean and keep_registers are True, allowed is one of them: the lean build holds the "
            "kernel's own code to 40 registers"
        )
    if SIMULATOR:
        from device_lib.simulator.kernels import RESIDENT_BLOCKS

        return RESIDENT_BLOCKS
    compiled = list(kernel.overloads.values())
    if not compiled:
        raise ValueError(
            "the kernel has not been compiled yet: give it a signature, or launch it once, or "
            "pass example arguments to max_blocks(kernel, threads, args=(...))"
        )
    from gmpi.launch import builds

    threads = prod(block) if isinstance(block, tuple) else block
    held = not keep_registers
    return min(builds.most_blocks(k, threads, shared_bytes, lean, held) for k in compiled)
