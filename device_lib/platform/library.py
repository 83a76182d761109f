"""The device library as separately compiled code that kernels link.

The bodies behind the ``GMPI_*`` calls are a few large functions of plain integers. Inlined into
every kernel, as Numba does with device functions, they would cost seconds of compilation and most
of the registers of each kernel. So they are compiled once per GPU architecture, to PTX with the C
ABI and on to object code (``assembler.py``), kept in a cache on disk, and linked: a call is a real
call, its arguments in registers.

In the simulator a library function is the Python function itself.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import functools
import hashlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from importlib import metadata

from device_lib.platform import assembler
from device_lib.platform.primitives import SIMULATOR
from gmpi.cache.files import cache_directory, read_or_make
from gmpi.cache.loading import with_room
from gmpi.cache.sources import fingerprint
from gmpi.contract.constants import FROZEN


@functools.cache
def _compilers() -> str:
    """Versions of all that compiles. To read them takes a few milliseconds."""
    found = []
    for name in ("numba-cuda", "llvmlite", "nvidia-nvvm", "nvidia-cuda-nvcc"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"{name} absent")
    return "".join(found)


def fingerprint_of(*extra: str) -> str:
    """Hash of everything that the compiled code depends on: our sources, the compiler, and the
    constants of the MPI library."""
    digest = hashlib.sha256(f"{FROZEN} {fingerprint('device_lib')}".encode())
    digest.update(_compilers().encode())
    for text in extra:
        digest.update(text.encode())
    return digest.hexdigest()[:20]


def _refuse_another(name: str, first: Callable, second: Callable) -> None:
    """One function may be made twice, for two callers; two may not have one name."""
    if len({getattr(body, "py_func", body).__code__ for body in (first, second)}) > 1:
        raise ValueError(f"two functions of the library are named {name}: name one otherwise")


if SIMULATOR:
    _bodies: dict[str, Callable] = {}

    def linked(name: str, arguments: int, results: int, body: Callable):
        """The library function ``name``: here, its body."""
        if name in _bodies:
            _refuse_another(name, _bodies[name], body)
        _bodies[name] = body
        return body

    def declared(name: str, arguments: int, results: int):
        """The library function ``name`` of a context, whose body ``linked`` is given later."""
        return lambda *words: _bodies[name](*words)

else:
    from llvmlite import ir
    from numba import cuda
    from numba.cuda import dispatcher, types
    from numba.cuda.cudadrv.linkable_code import Cubin, LinkableCode
    from numba.cuda.extending import intrinsic

    from device_lib.platform.context import DeviceContext
    from device_lib.platform.fitting import fitted
    from device_lib.platform.linking_cuda import link_once
    from device_lib.platform.resolution_cuda import remembered

    _DEEPEST = 5000  # frames
    _I64 = ir.IntType(64)
    _EXTERN = re.compile(r"^\.extern \.func .*?(gmpi_\w+)", re.M)
    #: name -> (body, int64 arguments, results)
    functions: dict[str, tuple[Callable, int, int]] = {}

    def _signature(arguments: int, results: int):
        result = types.int64 if results == 1 else types.UniTuple(types.int64, results)
        return result(*[types.int64] * arguments)

    def _takes_context(body: Callable) -> bool:
        return next(iter(inspect.signature(body.py_func).parameters)) == "ctx"  # type: ignore[attr-defined]

    def _entry(body: Callable) -> Callable:
        """``body``, of plain integers."""

        def with_context(*words):
            return body(DeviceContext(words[0], words[1], words[2], 0), *words[3:])

        def plain(*words):
            return body(*words)

        return with_context if _takes_context(body) else plain

    @contextmanager
    def deeper() -> Iterator[None]:
        """Room for the compiler: what a function calls is compiled while it is, some 30 of them,
        with 30 frames of Python's each."""
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, _DEEPEST))
        try:
            yield
        finally:
            sys.setrecursionlimit(limit)

    def compile_ptx(name: str, cc: tuple[int, int]) -> str:
        """PTX of one library function for a compute capability, from the cache if it is there."""
        body, arguments, results = functions[name]
        signature = _signature(arguments, results)
        plain = signature.return_type(types.UniTuple(types.int64, arguments))

        def make() -> bytes:
            options = {"abi": "c", "abi_info": {"abi_name": name}, "output": "ptx"}
            with deeper(), remembered():
                compiled = partial(cuda.compile, device=True, cc=cc, **options)
                ptx = with_room(compiled, _entry(body), plain)[0]
            return str(ptx).encode()

        tag = fingerprint_of(name, f"{cc[0]}.{cc[1]}", str(signature))
        path = cache_directory() / f"{name}-sm{cc[0]}{cc[1]}-{tag}.ptx"
        return read_or_make(path, make).decode()

    def compile_object(name: str, cc: tuple[int, int], limit: int) -> bytes:
        """Object code of one library function, for kernels to link, from the cache if it is there.

        Args:
            limit: most registers a thread, one of ``assembler.LIMITS``.
        """
        # Not of the PTX's own words: Numba may number names in another order each time.
        tag = fingerprint_of(name, f"{cc[0]}.{cc[1]}", assembler.version())
        file = f"{name}-sm{cc[0]}{cc[1]}-{limit}-{tag}.cubin"

        def make() -> bytes:
            return assembler.assemble(name, compile_ptx(name, cc), cc, limit)

        return read_or_make(cache_directory() / file, make)

    class Linked(LinkableCode):  # type: ignore[misc]
        """One function of a build of the library, as Numba's linker takes it."""

        kind = Cubin.kind

        def __init__(self, function: str, limit: int) -> None:
            self.nrt = False
            self.setup_callback = self.teardown_callback = None
            self.function = function
            self.limit = limit
            self._code = b""

        @property
        def name(self) -> str:
            return f"{self.function}.cubin"

        @property
        def data(self) -> bytes:
            if not self._code:
                cc = cuda.get_current_device().compute_capability
                self._code = compile_object(self.function, tuple(cc), self.limit)
            return self._code

        def with_limit(self, limit: int) -> Linked:
            """The same function of another build."""
            return _linked(self.function, limit)

    @functools.cache
    def _linked(function: str, limit: int) -> Linked:
        return Linked(function, limit)

    dispatcher._Kernel.bind = fitted(dispatcher._Kernel.bind, Linked)
    link_once()

    def assemble_all(wanted: Iterable[Linked]) -> None:
        """Makes what is not in the cache, on all cores."""
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            for _ in pool.map(lambda function: function.data, wanted):
                pass

    def sources(name: str) -> list[Linked]:
        """What a kernel that calls ``name`` must link: the function and those that it calls."""
        cc = tuple(cuda.get_current_device().compute_capability)
        return [_linked(function, max(assembler.LIMITS)) for function in closure([name], cc)]

    def closure(names: Iterable[str], cc: tuple[int, int]) -> list[str]:
        """Some functions and all those that they call."""
        found: dict[str, None] = {}
        waiting = list(names)
        while waiting:
            this = waiting.pop()
            if this not in found:
                found[this] = None
                waiting += _calls(this, cc)
        return list(found)

    @functools.cache
    def _calls(name: str, cc: tuple[int, int]) -> list[str]:
        return called(compile_ptx(name, cc))

    def called(ptx: str) -> list[str]:
        """The functions of the library that some PTX expects elsewhere."""
        return _EXTERN.findall(ptx)

    def linked(name: str, arguments: int, results: int, body: Callable):
        """A device function that calls ``body``, compiled on its own and linked.

        Args:
            name: its symbol. Programs in other languages call those of ``gmpi/cpp``, which call it.
            arguments: how many int64 it takes. A context counts three: ``identity`` is left out.
            results: how many int64 it returns: one value, or a tuple.
            body: device function of plain int64 arguments, or of a context and such.
        """
        if name in functions:
            _refuse_another(name, functions[name][0], body)
        functions[name] = body, arguments, results
        return _caller(name, arguments, results, _takes_context(body))

    def declared(name: str, arguments: int, results: int):
        """A device function that calls the library function ``name`` of a context, whose body
        ``linked`` is given later: functions that are made first may call it."""
        return _caller(name, arguments, results, True)

    def _caller(name: str, arguments: int, results: int, takes_context: bool):
        """An intrinsic: Numba would compile a function around it for all types of arguments."""
        result = _signature(arguments, results).return_type
        given = arguments - 3 * takes_context
        words_type = types.UniTuple(types.int64, given)

        def emit_call(codegen, builder, values):
            function = builder.module.globals.get(name)
            if function is None:
                kind = ir.FunctionType(codegen.get_value_type(result), [_I64] * arguments)
                function = ir.Function(builder.module, kind, name)
                # It synchronises threads: the compiler must not copy the call into branches.
                function.attributes.add("convergent")
            for source in sources(name):
                codegen.active_code_library.add_linking_file(source)
            return builder.call(function, values, attrs=("convergent",))

        @intrinsic
        def with_context(typingctx, ctx, *words):
            def emit(codegen, builder, sig, args):
                places = [sig.args[0].fields.index(field) for field in DeviceContext._fields[:3]]
                values = [builder.extract_value(args[0], place) for place in places]
                values += [builder.extract_value(args[1], i) for i in range(given)]
                return emit_call(codegen, builder, values)

            return (result(ctx, words_type), emit) if len(words) == given else None

        @intrinsic
        def plain(typingctx, *words):
            def emit(codegen, builder, sig, args):
                values = [builder.extract_value(args[0], i) for i in range(given)]
                return emit_call(codegen, builder, values)

            return (result(words_type), emit) if len(words) == given else None

        return with_context if takes_context else plain


def parts_of(scope: str, prefix: str = "gmpi") -> Callable:
    """``linked`` for the functions of one scope, which have it in their names."""

    def part(name: str, arguments: int, results: int, body: Callable):
        return linked(f"{prefix}_{name}_{scope}", arguments, results, body)

    return part
