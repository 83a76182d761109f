"""Compiles the device library and some kernels for sm_90 and links them, without a GPU.

    NUMBA_ENABLE_CUDASIM=0 python tests/compile_for_sm90.py [--some] DIRECTORY

Writes the PTX of each library function and kernel, and what the assembler says of each:
``properties.json`` = {name: {stack, spill_stores, spill_loads}}; and how many registers a thread
kernels take with each build of the library: ``registers.json`` = {name: {limit: registers}}; and
with which build a kernel is linked that has a limit of its own: ``limited.json`` = [[options,
limit]]. Fails where something does not compile or link. With ``--some``: the whole library, but
without what takes longest of the kernels, and one of them linked with what it calls.
"""

from __future__ import annotations

import gc
import json
import os
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cuda.bindings import nvjitlink
from numba import cuda, types
from numba.cuda import codegen, dispatcher
from numba.cuda.typing.typeof import typeof

sys.path.insert(0, str(Path(__file__).parent / "ranks"))
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from gmpi.launch import precompile

CC = (9, 0)
precompile.compile_without_gpu(CC)

from sm90_kernels import KERNELS  # noqa: E402
from sm90_names import DIRECT, INLINE, MOVING  # noqa: E402

from device_lib.platform import assembler, library  # noqa: E402
from device_lib.platform.context import DeviceContext, TracedContext  # noqa: E402
from device_lib.platform.resolution_cuda import remembered  # noqa: E402
from gmpi.datatypes.parts import MAX_DIMS  # noqa: E402
from gmpi.packing import (  # noqa: E402
    driver,
    kernels_along,
    kernels_bytes,
    kernels_parts,
    kernels_runs,
    kernels_strided,
    kernels_tiles,
)

CONTEXT = typeof(DeviceContext(0, 0, 0, 0))
TRACED = typeof(TracedContext(0, 0, 0, 0, 0, 0, 0))


def link(
    pieces: dict[str, str],
    *more: str,
    library: bytes = b"",
    objects: dict[str, bytes] | None = None,
) -> str:
    """Links PTX, object code and a library for sm_90; what the assembler had to say."""
    options = [f"-arch={assembler.architecture(CC)}", "-verbose", *more]
    handle = nvjitlink.create(len(options), options)

    def log(size: Any, read: Any) -> str:
        text = bytearray(size(handle))
        read(handle, text)
        return text.decode(errors="replace").rstrip("\0")

    def add(kind: nvjitlink.InputType, name: str, data: bytes) -> None:
        nvjitlink.add_data(handle, kind, data, len(data), name)

    try:
        for name, ptx in pieces.items():
            add(nvjitlink.InputType.PTX, name, ptx.encode())
        for name, code in (objects or {}).items():
            add(nvjitlink.InputType.CUBIN, name, code)
        if library:
            add(nvjitlink.InputType.LIBRARY, "library", library)
        nvjitlink.complete(handle)
    except Exception as exc:
        errors = log(nvjitlink.get_error_log_size, nvjitlink.get_error_log)
        raise SystemExit(f"{', '.join(pieces)} do not link: {exc}\n{errors}") from exc
    return log(nvjitlink.get_info_log_size, nvjitlink.get_info_log)


def registers(ptx: str, limit: int) -> int:
    """Registers a thread of a kernel that is linked with one build of the library."""
    wanted = {file.function for name in called(ptx) for file in library.sources(name)}
    objects = {name: library.compile_object(name, CC, limit) for name in wanted}
    found = re.findall(
        r"^info\s+: used (\d+) registers", link({"kernel": ptx}, objects=objects), re.M
    )
    return int(found[-1])


def build_of(name: str, **options: Any) -> int:
    """The build of the library with which Numba links a kernel that has these options."""
    body, arguments = KERNELS[name]
    kernel = dispatcher._Kernel(body, (CONTEXT, *arguments), **options)
    code = kernel._codelibrary
    loaded = SimpleNamespace(module=SimpleNamespace(initialized=True))
    code.get_cufunc = lambda: code.get_cubin() and loaded
    kernel.bind()
    (limit,) = {file.limit for file in code._linking_files if isinstance(file, library.Linked)}
    return int(limit)


def properties(text: str) -> dict[str, dict[str, int]]:
    """Stack and spills of each function in the assembler's words."""
    found = {}
    pattern = (
        r"Function properties for (\w+)\s+ptxas\s+\.\s+"
        r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
    )
    for name, *numbers in re.findall(pattern, text):
        found[name] = dict(zip(("stack", "spill_stores", "spill_loads"), map(int, numbers)))
    return found


def called(ptx: str) -> set[str]:
    """The functions that some PTX expects elsewhere."""
    return set(re.findall(r"^\.extern \.func\s+(?:\([^)]*\)\s*)?(\w+)", ptx, re.M))


def needed(names: list[str], every: dict[str, str]) -> dict[str, str]:
    """PTX of functions and kernels, and of all that they call."""
    found: dict[str, str] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = every[name]
            waiting += called(every[name])
    return found


def all_ptx(kernels: list[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Of the library, and of kernels: they have most of what they call in common."""
    functions = {name: library.compile_ptx(name, CC) for name in library.functions}
    return functions, {name: kernel_ptx(name) for name in kernels}


def kernel_ptx(name: str) -> str:
    body, arguments = KERNELS[name]
    body.__qualname__ = name  # the interpreters have the same one, and are linked together
    signature = types.void(TRACED if name.startswith("traced") else CONTEXT, *arguments)
    ptx, _ = cuda.compile(body, signature, device=False, cc=CC, output="ptx", abi="numba")
    return ptx


def packing_kernels(some: bool) -> dict[str, tuple[Any, int, int]]:
    """(body, int64 arguments, most registers) of kernels that ``gmpi.pack`` launches, by name."""
    widths, part_dims = ((16, 4), (MAX_DIMS,)) if some else ((16, 8, 4), (3, MAX_DIMS))
    strided_dims = (1, MAX_DIMS) if some else (1, 3, MAX_DIMS)
    found: dict[str, tuple[Any, int, int]] = {}
    for long, outer in product((True, False), (0, kernels_tiles.MAX_OUTER)):
        body = kernels_tiles.tiles_body(long, outer)
        name = f"tiles_{long:d}_{outer}"
        found[name] = body, kernels_tiles.ARGUMENTS, kernels_tiles.REGISTERS
    for width, outer in product(kernels_bytes.SHAPES, (0, kernels_along.MAX_OUTER)):
        body = kernels_bytes.bytes_body(width, outer)
        found[f"bytes_{width}_{outer}"] = body, kernels_bytes.ARGUMENTS, kernels_bytes.REGISTERS
    for width, dims, unpack in product(widths, strided_dims, (True, False)):
        body = kernels_strided.strided_body(width, dims, unpack)
        arguments = 2 + len(kernels_strided.names_of(dims))
        found[f"strided_{width}_{dims}_{unpack:d}"] = body, arguments, kernels_strided.REGISTERS
    for width, outer in product(widths, (0, kernels_along.MAX_OUTER)):
        body = kernels_along.along_body(width, outer)
        found[f"along_{width}_{outer}"] = body, kernels_along.ARGUMENTS, kernels_along.REGISTERS
    for width, unpack in product(widths, (True, False)):
        body = kernels_runs.runs_body(width, unpack)
        registers = kernels_runs.REGISTERS[width]
        found[f"runs_{width}_{unpack:d}"] = body, kernels_runs.ARGUMENTS, registers
        for dims in part_dims:
            body = kernels_parts.parts_body(width, dims, True, unpack)
            registers = kernels_parts.registers(width, dims)
            found[f"parts_{width}_{dims}_{unpack:d}"] = body, kernels_parts.ARGUMENTS, registers
    return found


def packing_ptx(name: str) -> str:
    body, arguments, _ = PACKING[name]
    wanted = driver.signature(body, arguments)
    with remembered():  # as when they are launched
        ptx, _ = cuda.compile(body, wanted, device=False, cc=CC, output="ptx", abi="numba")
    return ptx


SOME = sys.argv[1:2] == ["--some"]
PACKING = packing_kernels(SOME)
#: Limits that kernels may have of their own.
LIMITED: list[dict[str, Any]] = [{"max_registers": 100}, {"launch_bounds": 1024}]
if not SOME:  # of other builds: to assemble one takes ten seconds
    LIMITED += [
        {}, {"max_registers": 128}, {"max_registers": 32}, {"launch_bounds": 512},
        {"launch_bounds": (512, 2)}, {"launch_bounds": 640, "max_registers": 128},
    ]  # fmt: skip
#: Kernels of each kind: with hardly any code of their own, and with much.
LINKED = ("exchange",) if SOME else ("exchange", "checked", "views", "script_block")


def main(directory: Path) -> None:
    gc.disable()  # of what compilers make hardly anything becomes garbage
    # Forked, with everything imported: nothing has started a thread or a device.
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("fork")) as pool:
        wanted = [n for n in KERNELS if not (SOME and ("script" in n or n == "checked"))]
        made = pool.submit(all_ptx, wanted)
        packing = {name: pool.submit(packing_ptx, name) for name in PACKING}
        functions, texts = made.result()
        for name, ptx in functions.items():
            (directory / f"{name}.ptx").write_text(ptx)
        for name, ptx in texts.items():
            (directory / f"kernel_{name}.ptx").write_text(ptx)
            assert called(ptx) <= functions.keys(), f"{name}: {called(ptx) - functions.keys()}"
        # All in one: to assemble the library takes half a minute. No kernel has what another one
        # calls.
        every = {**functions, **texts}
        linked = needed(["two_paths", *INLINE, *DIRECT, *MOVING], every) if SOME else every
        found = properties(link(linked))
        for name, packed in packing.items():
            ptx = packed.result()
            (directory / f"{name}.ptx").write_text(ptx)
            limit = f"-maxrregcount={PACKING[name][2]}"
            (found[name],) = properties(link({name: ptx}, limit)).values()
    (directory / "properties.json").write_text(json.dumps(found, indent=1))
    limits = [min(assembler.LIMITS)] if SOME else assembler.LIMITS
    taken = {n: {limit: registers(texts[n], limit) for limit in limits} for n in LINKED}
    device = SimpleNamespace(compute_capability=CC)
    codegen.devices.get_context = lambda: SimpleNamespace(device=device)
    limited = [[options, build_of("exchange", **options)] for options in LIMITED]
    (directory / "limited.json").write_text(json.dumps(limited))
    (directory / "registers.json").write_text(json.dumps(taken, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[-1]))
