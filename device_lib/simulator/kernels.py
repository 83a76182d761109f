"""``cuda.jit`` and what it makes; launches."""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from greenlet import getcurrent

from device_lib.simulator import lanes, meetings
from device_lib.simulator.arrays import as_cuda_array, is_cuda_array, memory_of
from device_lib.simulator.atomics import OPERATIONS, atomic
from device_lib.simulator.lanes import Block, Grid
from device_lib.simulator.memory import BlockMemory, with_fields

#: What ``max_cooperative_grid_blocks`` answers. All blocks are alive whatever their number; a
#: real GPU has a limit, and programs want to test what they do beyond it.
RESIDENT_BLOCKS = 1024

#: Strict mode (``device_lib/strict``); None: it is off.
checker: Any = None

#: Makes each launch of a program: of it, its arguments, and what really makes it of these.
Around = Callable[["Configured", tuple[Any, ...], Callable[[tuple[Any, ...]], None]], None]
_around: Around | None = None

_OPTIONS = frozenset({
    "abi", "abi_info", "argtypes", "bind", "boundscheck", "cache", "chip", "debug", "extensions",
    "fastmath", "forceinline", "inline", "launch_bounds", "lineinfo", "link", "lto",
    "max_registers", "opt", "restype", "shared_memory_carveout",
})  # fmt: skip
_called: WeakKeyDictionary[Any, dict[frozenset[str], bool]] = WeakKeyDictionary()


def jit(func_or_sig: Any = None, device: bool = False, **options: Any) -> Any:
    """A kernel, or a device function, of a Python function.

    Args:
        func_or_sig: the function; or its signature, or several, or nothing: then what is returned
            is a decorator. Nothing is compiled, so signatures say nothing.
        device: a device function, which kernels call.
        options: those of ``numba.cuda.jit``, of which only ``extensions`` means something here.
    """
    unknown = sorted(options.keys() - _OPTIONS)
    if unknown:
        allowed = ", ".join(sorted(_OPTIONS))
        raise TypeError(f"cuda.jit has no option {unknown[0]}, allowed is {allowed}")
    for option in ("link", "boundscheck"):
        if options.get(option):
            raise NotImplementedError(f"{option}: the simulator compiles and links nothing")
    function = getattr(func_or_sig, "py_func", func_or_sig)  # as of a function of @njit
    if inspect.isfunction(function):
        return _made(function, device, options)
    if callable(func_or_sig) and not hasattr(func_or_sig, "args"):
        raise TypeError(f"cuda.jit is given {func_or_sig!r}, allowed is a function or a signature")
    return lambda fn: _made(getattr(fn, "py_func", fn), device, options)


def _made(function: Any, device: bool, options: dict[str, Any]) -> Any:
    if device:
        function.py_func = function  # a call of it costs what one of Python costs
        return function
    return Kernel(function, options.get("extensions") or ())


class _Overload:
    """One compilation of a kernel, as which the kernel itself serves for any types."""

    def max_cooperative_grid_blocks(self, blockdim: Any, dynsmemsize: int = 0) -> int:
        return RESIDENT_BLOCKS


class _Overloads(dict):  # type: ignore[type-arg]
    def __missing__(self, key: Any) -> _Overload:
        return self[()]  # type: ignore[no-any-return]


class Kernel:
    """A kernel: ``kernel[blocks, threads](...)`` launches it.

    In another kernel it is a device function.
    """

    def __init__(self, function: Callable[..., Any], extensions: Any = ()) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function
        self.extensions = tuple(extensions)
        self.overloads = _Overloads({(): _Overload()})

    def __getitem__(self, configuration: Any) -> Configured:
        if not isinstance(configuration, tuple) or not 2 <= len(configuration) <= 4:
            raise ValueError(
                f"a launch is configured by {configuration!r}, allowed is [blocks, threads], "
                "[blocks, threads, stream] or [blocks, threads, stream, bytes of shared memory]"
            )
        return self.configure(*configuration)

    def configure(
        self, griddim: Any, blockdim: Any, stream: Any = 0, sharedmem: int = 0
    ) -> Configured:
        grid, block = _dimensions("blocks", griddim), _dimensions("threads", blockdim)
        return Configured(self, grid, block, stream, sharedmem)

    def __call__(self, *args: Any) -> Any:
        if isinstance(getcurrent(), lanes.Lane):
            return self.py_func(*args)
        name = self.py_func.__qualname__
        raise ValueError(
            f"{name} is a kernel and is called without a grid: {name}[blocks, threads](...)"
        )

    def forall(
        self, ntasks: int, tpb: int = 0, stream: Any = 0, sharedmem: int = 0
    ) -> Configured | Callable[..., None]:
        """A launch of at least so many threads, in a grid of one dimension."""
        if ntasks < 0:
            raise ValueError(f"forall: ntasks is {ntasks}, allowed is 0 and more")
        if ntasks == 0:
            return lambda *args: None
        threads = tpb or meetings.WARP
        return self[-(-ntasks // threads), threads, stream, sharedmem]

    def specialize(self, *args: Any) -> Kernel:
        return self

    def __getattr__(self, name: str) -> Any:
        words = "the simulator compiles nothing" if name.startswith(("inspect_", "get_")) else ""
        raise AttributeError(f"a simulated kernel has no {name}" + (words and f": {words}"))


class Configured(NamedTuple):
    """A kernel with what a launch of it needs beside its arguments.

    Attributes:
        grid_dim, block_dim: three extents each.
        shared_bytes: dynamic shared memory of a block.
    """

    kernel: Kernel
    grid_dim: tuple[int, int, int]
    block_dim: tuple[int, int, int]
    stream: Any
    shared_bytes: int

    def __call__(self, *args: Any) -> None:
        """Launches the kernel, and waits for its end."""
        if isinstance(getcurrent(), lanes.Lane):
            raise RuntimeError("a kernel launches a kernel, which GPUs do not do for Numba's")
        if _around is None:
            _launch(self, args)
        else:
            _around(self, args, functools.partial(_launch, self))


def _dimensions(name: str, given: Any) -> tuple[int, int, int]:
    try:
        found = tuple(map(operator.index, given if isinstance(given, tuple | list) else (given,)))
    except TypeError:
        found = ()
    if not 1 <= len(found) <= 3 or min(found) < 1:
        raise ValueError(f"{name} is {given!r}, allowed is one to three integers, 1 or larger")
    return (*found, 1, 1)[:3]  # type: ignore[return-value]


# --- arguments ------------------------------------------------------------------------------------


class _Hint:
    """How the elements of a host's array go to a kernel and come back."""

    to_device = from_device = True

    def __init__(self, value: Any) -> None:
        self.value = value


class In(_Hint):
    """They go to the kernel only."""

    from_device = False


class Out(_Hint):
    """They come from the kernel only."""

    to_device = False


class InOut(_Hint):
    """Both, as without a word."""


_Back = list[tuple[np.ndarray, np.ndarray]]


def _argument(value: Any, back: _Back) -> Any:
    """What a kernel gets; what is to be copied back behind it is put into ``back``."""
    if isinstance(value, tuple):
        parts = [_argument(part, back) for part in value]
        if all(map(operator.is_, parts, value)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, int | float | complex | np.number):
        return value
    memory = memory_of(value)
    if memory is not None:
        found = memory.view(np.ndarray)
    elif isinstance(value, _Hint):
        memory = memory_of(value.value)
        found = _copied(value.value, value, back) if memory is None else memory
    elif isinstance(value, np.ndarray):
        found = _copied(value, InOut, back)
    elif isinstance(value, np.void) and value.dtype.names is not None:
        return np.array(value).view(np.recarray)[()]
    elif is_cuda_array(value):
        found = as_cuda_array(value)._memory
    else:
        return value
    return with_fields(found) if found.ndim or found.dtype.names is None else _record(found)


def _record(memory: np.ndarray) -> Any:
    return memory.view(np.recarray)[()]


def _copied(host: np.ndarray, how: Any, back: _Back) -> np.ndarray:
    """On a GPU a kernel works on a copy of an array of the host."""
    found = np.array(host, order="K", subok=False)
    if how.from_device and host.flags.writeable:
        back.append((host, found))
    return found


# --- launches -------------------------------------------------------------------------------------


def _launch(configured: Configured, args: tuple[Any, ...]) -> None:
    kernel, grid_dim, block_dim = configured[:3]
    function = kernel.py_func
    back: _Back = []
    behind: list[Callable[[], None]] = []
    for extension in kernel.extensions:
        stream = configured.stream
        args = tuple(extension.prepare_args(None, a, stream=stream, retr=behind)[1] for a in args)
    given = tuple([_argument(arg, back) for arg in args])
    if checker is not None:
        given = checker.arguments(function, given)
    grid = Grid(grid_dim, block_dim, checker)
    threads = math.prod(block_dim)
    (x, y, _), (u, v, _) = grid_dim, block_dim
    indices = [(t % u, t // u % v, t // (u * v)) for t in range(threads)]
    for number in range(math.prod(grid_dim)):
        index = number % x, number // x % y, number // (x * y)
        block = Block(number, index, threads, BlockMemory(configured.shared_bytes))
        grid.add(block, function, given, indices)
    _run(grid, function.__qualname__)
    for host, found in back:
        host[...] = found
    for each in behind:
        each()


def _run(grid: Grid, kernel: str) -> None:
    """All threads of a launch, to their end."""
    if checker is None:
        grid.run()
        return
    checker.begin(grid, kernel)
    try:
        grid.run()
    except BaseException as why:
        checker.failed(why)
        raise
    checker.end()


def launch_by(around: Around | None) -> None:
    """From now on ``around`` makes all launches; None: they are made as they are."""
    global _around
    _around = around


def check_with(new: Any, atomics: dict[str, Any] | None = None) -> None:
    """From now on kernels tell ``new``, a ``strict.checker.Checker``, what they do; None: nobody.

    Args:
        atomics: what the operations of ``cuda.atomic`` are meanwhile.
    """
    global checker
    checker = new
    vars(atomic).update(OPERATIONS if atomics is None else atomics)


def calls(function: Any, names: frozenset[str]) -> bool:
    """Whether a kernel calls one of these functions of ``gmpi``, by itself or by device functions.

    On a GPU the linked functions say it.
    """
    known = _called.setdefault(function, {})
    if names not in known:
        known[names] = _calls(function, names)
    return known[names]


def _calls(function: Any, names: frozenset[str]) -> bool:
    seen, waiting = set(), [function]
    while waiting:
        this = waiting.pop()
        code = getattr(this, "__code__", None)
        if code is None or code in seen:
            continue
        seen.add(code)
        closure = inspect.getclosurevars(this)
        found = [*closure.globals.values(), *closure.nonlocals.values()]
        named = set(code.co_names)
        for value in found:
            name = str(getattr(value, "__name__", ""))
            named.add(name)
            if not name.startswith("GMPI_"):  # whose own insides say nothing
                waiting.append(getattr(value, "py_func", value))
        if names & named:
            return True
    return False


__all__ = ["In", "InOut", "Out", "jit"]
