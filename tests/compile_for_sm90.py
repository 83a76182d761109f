"""Compiles the device library and some kernels for sm_90 and links them, without a GPU.

    NUMBA_ENABLE_CUDASIM=0 python tests/compile_for_sm90.py [--some] DIRECTORY

Writes the PTX of each library function and kernel, and what the assembler says of each:
``properties.json`` = {name: {stack, spill_stores, spill_loads}}; and how many registers a thread
kernels take with each build of the library: ``registers.json`` = {name: {limit: registers}}; and
with which build a kernel is linked that has a limit of its own: ``limited.json`` = [[options,
limit]]. Fails where something does not compile or link. With ``--some``: the whole library, but
without what takes longest of the kernels.
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

import gmpi
from gmpi.launch import precompile

CC = (9, 0)
precompile.compile_without_gpu(CC)

import roads  # noqa: E402
import script_kernel  # noqa: E402

from device_lib.move.reduce import combine  # noqa: E402
from device_lib.platform import assembler, library  # noqa: E402
from device_lib.platform.context import DeviceContext, TracedContext  # noqa: E402
from gmpi.contract.collectives import reduction_word  # noqa: E402
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

BYTES, WORDS = types.uint8[::1], types.int64[::1]
CONTEXT = typeof(DeviceContext(0, 0, 0, 0))
TRACED = typeof(TracedContext(0, 0, 0, 0, 0, 0))
LOR_64 = reduction_word(gmpi.LOR, gmpi.INT64_T)


def exchange(ctx: Any, send: Any, recv: Any, n: int, peer: int) -> None:
    """The kernel that everybody writes first."""
    r = gmpi.GMPI_Irecv(ctx, recv, n, gmpi.FLOAT, peer, 7, gmpi.COMM_WORLD)
    s = gmpi.GMPI_Isend(ctx, send, n, gmpi.FLOAT, peer, 7, gmpi.COMM_WORLD)
    gmpi.GMPI_Wait(ctx, s)
    gmpi.GMPI_Wait(ctx, r)


def traced_exchange(ctx: Any, send: Any, recv: Any, n: int, peer: int) -> None:
    """The same with a context that is traced."""
    r = gmpi.GMPI_Irecv(ctx, recv, n, gmpi.FLOAT, peer, 7, gmpi.COMM_WORLD)
    s = gmpi.GMPI_Isend(ctx, send, n, gmpi.FLOAT, peer, 7, gmpi.COMM_WORLD)
    gmpi.GMPI_Wait(ctx, s)
    gmpi.GMPI_Wait(ctx, r)


def traced_calls(ctx: Any, a: Any, n: int) -> None:
    """Calls with all kinds of arguments and results, by name, of each scope."""
    gmpi.GMPI_Sendrecv(ctx, a, n, gmpi.BYTE, 1, 2, a, n, gmpi.BYTE, gmpi.ANY_SOURCE, 4, 0)
    gmpi.GMPI_Send(ctx, buf=a, count=n, datatype=gmpi.BYTE, dest=1, tag=2, comm=0)
    r = gmpi.GMPI_Irecv_warp(ctx, a, n, gmpi.BYTE, 1, 2, 0)
    done, status = gmpi.GMPI_Test_warp(ctx, r)
    gmpi.GMPI_Waitall(ctx, 2, (r, gmpi.GMPI_Ibarrier(ctx, 0)))
    gmpi.GMPI_Startall(ctx, 1, (r,))
    gmpi.GMPI_Pready(ctx, r, status.tag)
    a[0] = done and gmpi.GMPI_Parrived(ctx, r, 0)
    gmpi.GMPI_Wait_grid(ctx, r)
    gmpi.GMPI_Synchronize(ctx)


@cuda.jit(device=True)
def _one_path(ctx: Any, buf: Any) -> int:
    return gmpi.GMPI_Allreduce(ctx, gmpi.IN_PLACE, buf, 1, gmpi.DOUBLE, gmpi.SUM, 0)


@cuda.jit(device=True)
def _other_path(ctx: Any, buf: Any) -> int:
    gmpi.GMPI_Barrier(ctx, 0)
    return gmpi.GMPI_Allreduce(ctx, gmpi.IN_PLACE, buf, 1, gmpi.DOUBLE, gmpi.MAX, 0)


def two_paths(ctx: Any, a: Any, b: Any) -> None:
    """Shared memory of the library must not be defined twice."""
    _one_path(ctx, a)
    _other_path(ctx, b)
    gmpi.GMPI_Barrier_warp(ctx, 0)


def kinds_of_buffers(ctx: Any, a: Any, b: Any, c: Any, flags: Any) -> None:
    """Slices, two dimensions, shared and local memory, addresses, tuples of requests."""
    tile = cuda.shared.array(64, types.float32)
    own = cuda.local.array(4, types.int64)
    r0 = gmpi.GMPI_Irecv(ctx, a[4:], 4, gmpi.FLOAT, 0, 1, 0)
    r1 = gmpi.GMPI_Irecv(ctx, b[1], b.shape[1], gmpi.DOUBLE, 0, 1, 0)
    r2 = gmpi.GMPI_Isend(ctx, c, 4, gmpi.C_DOUBLE_COMPLEX, 0, 1, 0)
    r3 = gmpi.GMPI_Isend(ctx, tile, 64, gmpi.FLOAT, 0, 1, 0)
    gmpi.GMPI_Waitall(ctx, 4, (r0, r1, r2, r3))
    own[0] = gmpi.GMPI_Isend(ctx, flags[0], flags[1], flags[2], flags[3], flags[4], 0)
    status = gmpi.GMPI_Wait(ctx, own[0])
    flags[6], status = gmpi.GMPI_Waitany(ctx, 2, own)
    flags[7], status = gmpi.GMPI_Waitany(ctx, 2, flags[8::2])
    flags[5] = status.error


def small_integers(ctx: Any, a: Any, n: Any, tag: Any) -> None:
    """Arguments of other integer types than int64."""
    status = gmpi.GMPI_Sendrecv(
        ctx, a, n, gmpi.BYTE, tag, tag, a, n, gmpi.BYTE, gmpi.ANY_SOURCE, tag, 0
    )
    a[0] = status.count


def views(ctx: Any, u: Any, flat: Any, n: int, peer: int) -> None:
    """Slices of three dimensions; a derived datatype."""
    r = gmpi.GMPI_Irecv(ctx, u[:, 1, 2], u.shape[0], gmpi.FLOAT, peer, 1, 0)
    s = gmpi.GMPI_Isend(ctx, u[1:-1, ::2, 1:], n, gmpi.FLOAT, peer, 1, 0)
    gmpi.GMPI_Waitall(ctx, 2, (r, s))
    gmpi.GMPI_Send_warp(ctx, flat, 1, n, peer, 2, 0)
    gmpi.GMPI_Allreduce(ctx, u[0, :, 0], u[1, :, 0], 3, gmpi.FLOAT, gmpi.SUM, 0)
    gmpi.GMPI_Bcast(ctx, u[0, 0, ::2], 3, gmpi.FLOAT, 0, 0)


def grids(ctx: Any, a: Any, u: Any, n: int, peer: int) -> None:
    """Grid scope: contiguous, strided, with memory of each thread's own."""
    own = cuda.local.array(2, types.int64)
    own[0] = gmpi.GMPI_Irecv_grid(ctx, a, n, gmpi.FLOAT, peer, 1, 0)
    own[1] = gmpi.GMPI_Isend_grid(ctx, u[1:, 1:], n, gmpi.FLOAT, peer, 1, 0)
    gmpi.GMPI_Waitall_grid(ctx, 2, own)
    gmpi.GMPI_Allreduce_grid(ctx, gmpi.IN_PLACE, a, n, gmpi.FLOAT, gmpi.SUM, 0)
    index, status = gmpi.GMPI_Waitany_grid(ctx, 2, own)
    a[0] = index + status.count


def ends(ctx: Any, a: Any, b: Any, flags: Any) -> None:
    """Partitioned requests that the kernel makes, of arrays, slices and addresses. And a carry."""
    flags[5] = combine(LOR_64, flags[0], flags[1])
    send = gmpi.GMPI_Psend_init(ctx, a[4:], 4, flags[0], gmpi.FLOAT, 0, 1, 0)
    recv = gmpi.GMPI_Precv_init_warp(ctx, b[::2], 4, 1, gmpi.FLOAT, flags[1], 1, 0)
    flags[2] = gmpi.GMPI_Psend_init(ctx, flags[3], 4, 1, gmpi.FLOAT, 0, 1, 0)
    gmpi.GMPI_Start(ctx, send)
    gmpi.GMPI_Pready(ctx, 3, send)
    if gmpi.GMPI_Parrived(ctx, recv, 1):
        flags[4] = gmpi.GMPI_Request_free(ctx, send) + gmpi.GMPI_Request_free_warp(ctx, recv)


def windows(ctx: Any, a: Any, result: Any, n: int, win: int) -> None:
    """One-sided calls, of a block and of a warp."""
    d = gmpi.DOUBLE
    e = gmpi.GMPI_Win_fence(ctx, 0, win)
    e |= gmpi.GMPI_Put(ctx, a, n, d, 1, 4, n, d, win)
    e |= gmpi.GMPI_Accumulate(ctx, a[1:], n, d, 1, 4, n, d, gmpi.SUM, win)
    e |= gmpi.GMPI_Get_accumulate(ctx, a, n, d, result, n, d, 1, 4, n, d, gmpi.PROD, win)
    e |= gmpi.GMPI_Win_fence(ctx, gmpi.MODE_NOSUCCEED, win)
    e |= gmpi.GMPI_Win_lock_all_warp(ctx, 0, win)
    e |= gmpi.GMPI_Get_warp(ctx, result, n, d, 1, 4, n, d, win)
    e |= gmpi.GMPI_Fetch_and_op_warp(ctx, a, result, d, 1, 4, gmpi.SUM, win)
    e |= gmpi.GMPI_Win_flush_warp(ctx, 1, win)
    gmpi.GMPI_Wait(ctx, gmpi.GMPI_Rput(ctx, a, n, d, 1, 4, n, d, win))
    tile = cuda.shared.array(4, types.int64)
    e |= gmpi.GMPI_Compare_and_swap(ctx, tile, tile[1:], tile[2:], gmpi.INT64_T, 1, 4, win)
    e |= gmpi.GMPI_Win_unlock_all(ctx, win)
    result[0] = e


def blocks(ctx: Any, a: Any, b: Any, counts: Any, comm: int) -> None:
    """Collectives with counts and among neighbours."""
    f = gmpi.FLOAT
    e = gmpi.GMPI_Neighbor_alltoall(ctx, a, 4, f, b, 4, f, comm)
    e |= gmpi.GMPI_Neighbor_alltoallv(ctx, a, counts, counts, f, b, counts, counts, f, comm)
    e |= gmpi.GMPI_Allgatherv_warp(ctx, a, 4, f, b, counts, counts, f, comm)
    counts[0] = gmpi.GMPI_Ineighbor_allgather_warp(ctx, a, e, f, b[::2], 1, f, comm)


INTERPRETER = (
    types.int64[:, :, ::1], BYTES, types.int64[:, ::1],
    typeof(__import__("numpy").zeros((1, 1), gmpi.STATUS_DTYPE)), types.int64[:, :, :, ::1],
)  # fmt: skip
EXCHANGED = types.float32[::1], types.float32[::1], types.int64, types.int64
KERNELS = {
    "exchange": (exchange, EXCHANGED),
    "checked": (
        roads.exchange_checked.py_func,
        (BYTES, BYTES, *[types.int64] * 3, types.int32[::1], types.int64),
    ),
    "traced_exchange": (traced_exchange, EXCHANGED),
    "traced_calls": (traced_calls, (BYTES, types.int64)),
    "two_paths": (two_paths, (types.float64[::1], types.float64[::1])),
    "kinds_of_buffers": (
        kinds_of_buffers,
        (types.float32[::1], types.float64[:, ::1], types.complex128[::1, :], WORDS),
    ),
    "views": (views, (types.float32[:, :, ::1], BYTES, types.int64, types.int64)),
    "grids": (grids, (types.float32[::1], types.float32[:, ::1], types.int64, types.int64)),
    "ends": (ends, (types.float32[::1], types.float32[::1], WORDS)),
    "windows": (windows, (types.float64[::1], types.float64[::1], types.int64, types.int64)),
    "blocks": (blocks, (types.float32[::1], types.float32[::1], WORDS, types.int64)),
    "small_integers": (small_integers, (BYTES, types.uint32, types.int16)),
    "script_block": (script_kernel.KERNELS["block"].py_func, INTERPRETER),
    "script_grid": (script_kernel.KERNELS["grid"].py_func, INTERPRETER),
    "script_warp": (script_kernel.KERNELS["warp"].py_func, INTERPRETER),
}


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


def library_ptx() -> dict[str, str]:
    return {name: library.compile_ptx(name, CC) for name in library.functions}


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
        # The library by one process: its functions have most of what they call in common. Kernels
        # that call it look for it in the cache, so they come afterwards, the longest ones first.
        made_library = pool.submit(library_ptx)
        packing = {name: pool.submit(packing_ptx, name) for name in PACKING}
        functions = made_library.result()
        wanted = [
            name
            for name in reversed(KERNELS)
            if not (SOME and ("script" in name or name == "checked"))
        ]
        kernels = {name: pool.submit(kernel_ptx, name) for name in wanted}
        for name, ptx in functions.items():
            (directory / f"{name}.ptx").write_text(ptx)
        texts = {name: made.result() for name, made in kernels.items()}
        for name, ptx in texts.items():
            (directory / f"kernel_{name}.ptx").write_text(ptx)
            assert called(ptx) <= functions.keys(), f"{name}: {called(ptx) - functions.keys()}"
        # All in one: to assemble the library takes seconds. No kernel has what another one calls.
        found = properties(link({**functions, **texts}))
        for name, made in packing.items():
            ptx = made.result()
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
