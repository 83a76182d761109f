"""Compiles the kernels of the applications in ``examples``, and of the soaks, for sm_90, without a
GPU.

    NUMBA_ENABLE_CUDASIM=0 python tests/compile_applications_for_sm90.py [NAME ...]

The simulator runs Python, which forgives what Numba's compiler does not. Prints a line for each.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from numba import cuda, types
from numba.cuda.typing.typeof import typeof

from gmpi.launch import precompile

CC = (9, 0)
precompile.compile_without_gpu(CC)

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / path) for path in ("examples", "benchmarks/twins", "tests/gpu")]

from device_lib.platform.context import DeviceContext  # noqa: E402

CONTEXT = typeof(DeviceContext(0, 0, 0, 0))
INT, REAL = types.int64, types.float64
INTS, REALS, PLANE, BOOLS = INT[::1], REAL[::1], REAL[:, ::1], types.boolean[::1]
SPINS, COUPLINGS = types.int8[:, :, ::1], types.int8[:, :, :, ::1]
ROWS = INT[:, ::1]
CUBE, FACE, WEIGHTS = REAL[:, :, ::1], REAL[:, :], types.UniTuple(REAL, 4)
GRIDS = types.UniTuple(CUBE, 5)
POINTS = REAL[:, :, :, ::1]
COMPLEX, COMPLEX_PLANE = types.complex128[::1], types.complex128[:, ::1]
SINGLES, SHORTS = types.float32[::1], types.int32[::1]
BLOCK = types.Tuple((types.UniTuple(SINGLES, 5), types.UniTuple(SHORTS, 5)))
SITES = types.UniTuple(SINGLES, 2)
COMPLEX_VIEW = types.complex128[:, :]
MATRIX = types.Tuple((REALS, INTS, INTS))

BYTES = types.uint8[:, ::1]
WORDS, WORD_ROWS = types.uint32[::1], types.uint32[:, ::1]


def of_bfs() -> tuple[Any, types.Type]:
    """Types of a side of the grid of ranks, and of the arrays of a rank."""
    arrays = (*[WORD_ROWS] * 6, *[INTS] * 4)
    return types.UniTuple(INT, 3), types.NamedTuple(arrays, importlib.import_module("bfs").State)


def of_particles() -> types.Type:
    """Of the arrays of a rank."""
    lists = (BOXES, INTS, BOXES, BOXES, INTS, BOXES)
    arrays = (BOXES, INTS, INTS, BOXES, INTS, INTS, *lists, INTS, INTS, ROWS)
    return types.NamedTuple(arrays, importlib.import_module("particles").State)


BOXES = INT[:, :, ::1]
SIDE, BFS = of_bfs()
PARTICLES = of_particles()

#: By program: each kernel and the types of its arguments.
KERNELS: dict[str, dict[str, tuple[Any, ...]]] = {
    "bfs": {"search": (CONTEXT, SIDE, SIDE, INTS, WORDS, BFS, INT)},
    "bfs_cuda_mpi": {
        "begin": (BFS, INT, INT), "compact_new": (BFS,), "compact_found": (BFS,),
        "enqueue": (BFS, INTS, SIDE), "follow": (BFS, INTS, WORDS), "merge": (BFS, SIDE),
        "finish": (BFS, SIDE, INT),
    },
    "particles": {"simulate": (CONTEXT, PARTICLES, INT, INT)},
    "particles_cuda_mpi": {
        "settle": (PARTICLES, ROWS, INT, INT), "internal": (PARTICLES, ROWS, INT, INT),
        "receive": (PARTICLES, BOXES, ROWS, INT),
        "frontier": (PARTICLES, ROWS, ROWS, INT, INT, INT),
    },
    "mg": {"solve": (CONTEXT, GRIDS, GRIDS, CUBE, types.UniTuple(INT, 6), WEIGHTS, REALS, INT)},
    "mg_cuda_mpi": {
        "apply": (CUBE, REAL, CUBE, WEIGHTS, CUBE, INT), "interpolate": (CUBE, REAL, CUBE),
        "pack": (FACE, FACE, PLANE), "unpack": (FACE, FACE, PLANE), "squares": (CUBE, REALS),
    },
    "heat": {"solve": (CONTEXT, PLANE, PLANE, *[INT] * 4, REALS, REAL, INT, INTS)},
    "heat_cuda_mpi": {
        "step": (PLANE, PLANE, REALS), "pack": (PLANE, REALS), "unpack": (PLANE, REALS, BOOLS),
    },
    "cg": {
        "solve": (
            CONTEXT, MATRIX, INTS, *[REALS] * 5, REAL[:, :, ::1], PLANE, REAL, INT,
        ),
    },
    "cg_cuda_mpi": {
        "begin": (*[REALS] * 5, INT, INT), "product": (MATRIX, *[REALS] * 3, INT, INT),
        "improve": (*[REALS] * 4, REAL, REALS, INT, INT), "direct": (REALS, REALS, REAL, INT, INT),
        "finish": (*[REALS] * 4, INT, INT), "normalize": (REALS, REALS, REAL, INT, INT),
    },
    "hacc": {
        "by_struct": (CONTEXT, BLOCK, BLOCK, SITES, ROWS, ROWS, ROWS, INT),
        "by_hand": (
            CONTEXT, BLOCK, BLOCK, SITES, ROWS, ROWS,
            types.Tuple((SINGLES, SINGLES, SHORTS, SHORTS)), INT,
        ),
    },
    "hacc_cuda_mpi": {"count": (SINGLES, SINGLES, BLOCK[0], INT, INTS)},
    "halo26": {
        "by_messages": (CONTEXT, POINTS, REALS, *[INTS] * 4, REAL, INT),
        "by_partitions": (CONTEXT, POINTS, *[INTS] * 3, REAL, INT),
    },
    "halo26_cuda_mpi": {
        "change": (POINTS, REAL), "pack": (POINTS, ROWS, INTS, INTS, REALS),
        "unpack": (POINTS, ROWS, INTS, INTS, REALS),
    },
    "reshape": {
        "transform": (
            CONTEXT, *[COMPLEX_PLANE] * 4, COMPLEX, types.UniTuple(INTS, 4), types.boolean,
            types.boolean, INT, INTS,
        ),
    },
    "reshape_cuda_mpi": {
        "transform_rows": (COMPLEX_PLANE, COMPLEX_PLANE, COMPLEX),
        "transform_columns": (COMPLEX_PLANE, COMPLEX_PLANE, COMPLEX),
        "copy": (COMPLEX_VIEW, COMPLEX_PLANE), "turn": (COMPLEX_VIEW, COMPLEX_VIEW),
    },
    "soak_collectives": {
        "soak": (
            CONTEXT, INT, INT, INTS, INTS, ROWS, ROWS, ROWS, types.int32[:, :, ::1], INTS, ROWS,
            INT, INT, INT,
        ),
    },
    "soak_grid": {
        "soak": (CONTEXT, INT, INT, INTS, INTS, INTS, INTS, INT, INT, INTS),
    },
    "soak_kernel": {
        "soak": (
            CONTEXT, INT, INT, INTS, INT, *[BYTES] * 3, PLANE, PLANE, INT, INTS, INT, INT, ROWS,
            ROWS, BYTES, BYTES, INTS, INTS, BYTES, ROWS, INT, INT, INT,
        ),
    },
    "spin_glass": {
        "simulate": (CONTEXT, SPINS, COUPLINGS, *[INT] * 3, *[INTS] * 4, INT),
    },
    "spin_glass_cuda_mpi": {
        "slices": (SPINS, COUPLINGS, *[INT] * 4, INTS), "energy_of": (SPINS, COUPLINGS, INTS),
    },
    "stencil9": {
        "stencil": (CONTEXT, PLANE, PLANE, *[INT] * 4, types.UniTuple(INT, 4), INT),
    },
    "stencil9_cuda_mpi": {
        "update": (PLANE, PLANE), "pack": (PLANE, PLANE), "unpack": (PLANE, PLANE),
    },
    "workers": {"work": (CONTEXT, ROWS, ROWS)},
}  # fmt: skip


def main(names: list[str]) -> None:
    for name in names or KERNELS:
        module = importlib.import_module(name)
        for kernel, arguments in KERNELS[name].items():
            body = getattr(module, kernel).py_func
            signature = types.void(*arguments)
            ptx, _ = cuda.compile(body, signature, device=False, cc=CC, output="ptx", abi="numba")
            print(f"{name}.{kernel}: {len(ptx.splitlines())} lines of PTX", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
