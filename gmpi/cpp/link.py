"""CUDA C++ that calls GMPI, from source to object code: NVRTC, then nvJitLink. Needs no GPU.

The program and the calls are linked as LTO-IR, so that a call costs what it costs in a kernel of
Numba's; the functions of the device library come as object code of one of its builds.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

from device_lib.platform import assembler, library
from device_lib.platform.primitives import SIMULATOR
from gmpi.cache.files import cache_directory, read_or_make
from gmpi.cpp import header
from gmpi.errors import UsageError

Capability = tuple[int, int]
HEADER = "gmpi.cuh"
_PROGRAM = "program.cu"
_CURE = 'pip install ".[cu13]" brings NVRTC and nvJitLink, and so does the CUDA toolkit'
_KERNEL = re.compile(r"^\.visible \.entry (\w+)\(", re.M)
_MAKES = "gmpi_partitioned_make_"  # of calls that make requests which stay


class Program(NamedTuple):
    """A program that NVRTC has compiled.

    Attributes:
        ltoir: its code for the linker.
        kernels: their names.
        calls: the symbols of the calls that it makes.
        parts: the functions of the device library that these need.
    """

    ltoir: bytes
    kernels: tuple[str, ...]
    calls: tuple[str, ...]
    parts: tuple[str, ...]

    @property
    def makes_requests(self) -> bool:
        """Whether it calls GMPI_Psend_init, GMPI_Send_init or the like."""
        return any(name.startswith(_MAKES) for name in self.parts)


@cache
def why_not() -> str:
    """What of CUDA's compiler and linker is missing, and how to get it; empty: nothing."""
    if SIMULATOR:
        return "CUDA C++ cannot run in the simulator: unset NUMBA_ENABLE_CUDASIM"
    try:
        from cuda.bindings import nvjitlink, nvrtc

        nvrtc.nvrtcVersion()
        nvjitlink.version()
        assembler.ptxas()
    except Exception as exc:
        reason = str(exc).partition("\n")[0]
        return f"CUDA's compiler and linker are not installed: {_CURE} ({reason})"
    return ""


def require() -> None:
    """Raises UsageError if there is no compiler or linker."""
    if reason := why_not():
        raise UsageError(reason)


@cache
def include_paths() -> tuple[str, ...]:
    """Where CUDA's own headers are, such as cooperative_groups.h."""
    from cuda import pathfinder

    found = [pathfinder.find_nvidia_header_directory(name) for name in ("cudart", "cccl")]
    return tuple(str(path) for path in found if path)


def _nvrtc(source: str, options: Sequence[str], output: str) -> bytes:
    """``output``: ``PTX`` or ``LTOIR``.

    Raises:
        UsageError: the compiler refuses the program.
    """
    from cuda.bindings import nvrtc

    def checked(result: tuple[Any, ...]) -> Any:
        if result[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise UsageError(f"NVRTC: {result[0].name}")
        return result[1] if len(result) == 2 else None

    include = [header.text().encode()]
    made = nvrtc.nvrtcCreateProgram(source.encode(), _PROGRAM.encode(), 1, include,
                                    [HEADER.encode()])  # fmt: skip
    program = checked(made)
    try:
        words = [option.encode() for option in options]
        result = nvrtc.nvrtcCompileProgram(program, len(words), words)
        if result[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = bytearray(checked(nvrtc.nvrtcGetProgramLogSize(program)))
            checked(nvrtc.nvrtcGetProgramLog(program, log))
            said = log.decode(errors="replace").rstrip("\0").strip()
            raise UsageError(f"NVRTC does not accept the program:\n{said or result[0].name}")
        size = checked(getattr(nvrtc, f"nvrtcGet{output}Size")(program))
        code = bytearray(size)
        checked(getattr(nvrtc, f"nvrtcGet{output}")(program, code))
        return bytes(code)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def compile_program(source: str, cc: Capability, options: Sequence[str] = ()) -> Program:
    """Compiles CUDA C++ that includes ``gmpi.cuh``, and the calls that it makes.

    Args:
        options: of NVRTC, such as ``-DN=3``.

    Raises:
        UsageError: the compiler refuses the program, or is not there.
    """
    require()
    from gmpi.cpp import symbols  # not there in the simulator

    target = assembler.architecture(cc)
    common = ["-rdc=true", "-std=c++17", *(f"-I{path}" for path in include_paths()), *options]
    ptx = _nvrtc(source, [f"-arch={target.replace('sm', 'compute')}", *common], "PTX")
    made = _nvrtc(source, [f"-arch={target}", "-dlto", *common], "LTOIR")
    text = ptx.decode()
    calls = symbols.called(text)
    kernels = _KERNEL.findall(text)
    return Program(made, tuple(kernels), tuple(calls), tuple(symbols.parts(calls, cc)))


def _assemble(parts: Sequence[str], cc: Capability, limit: int) -> list[bytes]:
    """Makes what is not in the cache, on all cores."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(lambda name: library.compile_object(name, cc, limit), parts))


def link(program: Program, cc: Capability, limit: int = max(assembler.LIMITS)) -> bytes:
    """Object code of a program with all that it calls, ready to be loaded.

    Args:
        limit: most registers a thread, one of ``assembler.LIMITS``.

    Raises:
        UsageError: the linker refuses it: something that it calls is not there.
    """
    require()
    from gmpi.cpp import symbols  # the same

    pieces = [("ltoir", _PROGRAM, program.ltoir)]
    pieces += [("ltoir", name, symbols.ltoir(name, cc)) for name in program.calls]
    objects = _assemble(program.parts, cc, limit)
    pieces += [("cubin", name, code) for name, code in zip(program.parts, objects)]
    digest = hashlib.sha256(assembler.version().encode())
    for kind, name, code in pieces:
        digest.update(f"{kind} {name} {len(code)}".encode() + code)
    file = f"gmpi_program-sm{cc[0]}{cc[1]}-{limit}-{digest.hexdigest()[:20]}.cubin"

    def make() -> bytes:
        return nvjitlink(pieces, [f"-arch={assembler.architecture(cc)}", "-lto",
                                  f"-maxrregcount={limit}"])  # fmt: skip

    return read_or_make(cache_directory() / file, make)


def nvjitlink(pieces: Sequence[tuple[str, str, bytes]], options: Sequence[str]) -> bytes:
    """Links (kind, name, code); kinds are nvJitLink's: ``ltoir``, ``ptx``, ``cubin``.

    Raises:
        UsageError: the linker refuses it.
    """
    from cuda.bindings import nvjitlink as linker

    handle = linker.create(len(options), list(options))

    def read(size: Callable[[Any], int], get: Callable[[Any, Any], None]) -> bytes:
        found = bytearray(size(handle))
        get(handle, found)
        return bytes(found)

    try:
        for kind, name, code in pieces:
            linker.add_data(handle, getattr(linker.InputType, kind.upper()), code, len(code), name)
        linker.complete(handle)
        return read(linker.get_linked_cubin_size, linker.get_linked_cubin)
    except Exception as exc:
        log = read(linker.get_error_log_size, linker.get_error_log).decode(errors="replace")
        said = log.rstrip("\0").strip()
        raise UsageError(f"nvJitLink cannot link the program: {said or exc}") from None
    finally:
        linker.destroy(handle)
