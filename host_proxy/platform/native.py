"""What compiled host code needs and Numba lacks: ordered memory access and calls by address.

Every function here works on plain int64 addresses and compiles into its caller. Memory order: a
packet's tag is loaded with acquire before its low word, and stored with release after it; on x86
both are ordinary moves, on Arm they are the matching instructions.
"""

# mypy: disable-error-code="no-untyped-def,misc"
from __future__ import annotations

import os
import platform
import warnings
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core.caching import NullCache
from numba.extending import intrinsic

from gmpi.cache.loading import with_room, without_collector
from host_proxy.platform import linked
from host_proxy.platform.engine_cache import NOWHERE, cache_of, one_at_a_time

_I64 = ir.IntType(64)
_I32 = ir.IntType(32)
_PAUSE = {"x86_64": "llvm.x86.sse2.pause", "AMD64": "llvm.x86.sse2.pause"}.get(platform.machine())

# No GIL; division by zero has no exception path. Wrappers for callers in Python would be most of
# the compile time, so only an ``entry`` gets them.
_OPTIONS = {"nogil": True, "error_model": "numpy"}


def _jit(placement):
    return njit(
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
        pipeline_class=linked.compiler(placement),
        **_OPTIONS,
    )


#: For every function of the compiled engine that only compiled code calls.
jit = _jit("")
#: For those that each message goes through: always a part of their callers.
inlined = _jit(linked.INLINED)
#: For those that only errors and rare cases need: a call, so that their callers stay short.
apart = _jit(linked.APART)


_entries: list[Any] = []


def _entry(function, placement):
    compiler = linked.compiler(placement, linked.Placed)
    dispatcher = njit(pipeline_class=compiler, **_OPTIONS)(function)
    dispatcher._cache = cache_of(function)
    _entries.append(dispatcher)
    return dispatcher


def entry(function):
    """Compiles a function of int64s that Python calls too; kept on disk between runs.

    No two functions in it may call each other in a circle: Numba resolves such calls when it
    compiles, and not when it loads from disk.
    """
    return _entry(function, "")


def entry_inlined(function):
    """``entry`` that is ``inlined`` in compiled code."""
    return _entry(function, linked.INLINED)


def entry_apart(function):
    """``entry`` that is ``apart`` in compiled code."""
    return _entry(function, linked.APART)


def alone(function):
    """Compiles a function of int64s that only Python calls, and is no part of the engine; kept on
    disk."""
    dispatcher = njit(**_OPTIONS)(function)
    dispatcher._cache = cache_of(function)
    return dispatcher


def compile_entries():
    """Compiles every ``entry``, or loads it from disk; afterwards none is compiled any more. How
    many there are. Of the processes of a node one compiles.

    The proxy thread must never do so: kernels would wait for a compiler, whose garbage may be
    device memory, and freeing that waits for the kernels.
    """
    if not _entries:
        return 0
    with without_collector(), one_at_a_time(_entries[0]._cache):
        for dispatcher in _entries:
            if dispatcher._can_compile:
                if isinstance(dispatcher._cache, NullCache):
                    warnings.warn(NOWHERE, RuntimeWarning, stacklevel=2)
                words = dispatcher.py_func.__code__.co_argcount
                with_room(dispatcher.compile, (types.int64,) * words)
                dispatcher.disable_compile()
    return len(_entries)


def directory_of_entries():
    """The folder on disk below which all are kept; empty where nothing can be."""
    paths = [getattr(dispatcher._cache, "cache_path", "") for dispatcher in _entries]
    return os.path.commonpath(paths) if paths and all(paths) else ""


def _at(builder, address, kind=_I64):
    return builder.inttoptr(address, ir.PointerType(kind))


@intrinsic
def load_acquire(typingctx, address):
    def emit(context, builder, sig, args):
        return builder.load_atomic(_at(builder, args[0]), "acquire", 8, typ=_I64)

    return types.int64(types.int64), emit


@intrinsic
def load_acquire_int(typingctx, address):
    """An unsigned C int."""

    def emit(context, builder, sig, args):
        word = builder.load_atomic(_at(builder, args[0], _I32), "acquire", 4, typ=_I32)
        return builder.zext(word, _I64)

    return types.int64(types.int64), emit


@intrinsic
def store_release(typingctx, address, value):
    def emit(context, builder, sig, args):
        builder.store_atomic(args[1], _at(builder, args[0]), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@intrinsic
def load(typingctx, address):
    def emit(context, builder, sig, args):
        return builder.load(_at(builder, args[0]), typ=_I64)

    return types.int64(types.int64), emit


@intrinsic
def store(typingctx, address, value):
    def emit(context, builder, sig, args):
        builder.store(args[1], _at(builder, args[0]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@jit
def get(base, index):
    """Word ``index`` of the int64 array at address ``base``."""
    return load(base + index * 8)


@jit
def put(base, index, value):
    store(base + index * 8, value)


@jit
def bump(base, index, by):
    """Adds to a word."""
    store(base + index * 8, load(base + index * 8) + by)


@intrinsic
def load_int(typingctx, address):
    """A C int, sign-extended."""

    def emit(context, builder, sig, args):
        return builder.sext(builder.load(_at(builder, args[0], _I32), typ=_I32), _I64)

    return types.int64(types.int64), emit


@intrinsic
def store_int(typingctx, address, value):
    def emit(context, builder, sig, args):
        builder.store(builder.trunc(args[1], _I32), _at(builder, args[0], _I32))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@intrinsic
def prefetch(typingctx, address):
    """Asks for a cache line that is about to be read."""

    def emit(context, builder, sig, args):
        byte = ir.PointerType(ir.IntType(8))
        kind = ir.FunctionType(ir.VoidType(), [byte, _I32, _I32, _I32])
        name = "llvm.prefetch.p0i8" if not byte.is_opaque else "llvm.prefetch.p0"
        function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
        read, keep, data = (ir.Constant(_I32, v) for v in (0, 3, 1))
        builder.call(function, [builder.inttoptr(args[0], byte), read, keep, data])
        return context.get_dummy_value()

    return types.void(types.int64), emit


@intrinsic
def pause(typingctx):
    """Tells the core that this is a spin loop."""

    def emit(context, builder, sig, args):
        if _PAUSE:
            function = builder.module.globals.get(_PAUSE) or ir.Function(
                builder.module, ir.FunctionType(ir.VoidType(), []), _PAUSE
            )
            builder.call(function, [])
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def call(typingctx, function, arguments):
    """``int function(...)`` at an address, with a tuple of int64 arguments.

    Every argument travels as 64 bits: C functions read the low half where they take an int or a
    4-byte MPI handle (System V x86-64 and AAPCS64 calling conventions).
    """
    if not isinstance(arguments, types.BaseTuple):
        return None
    size = len(arguments)

    def emit(context, builder, sig, args):
        kind = ir.FunctionType(_I32, [_I64] * size)
        values = [builder.extract_value(args[1], i) for i in range(size)]
        result = builder.call(_at(builder, args[0], kind), values)
        return builder.sext(result, _I64)

    return types.int64(types.int64, types.UniTuple(types.int64, size)), emit
