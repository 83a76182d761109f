"""Compiles Himeno's kernels for sm_90, without a GPU, and links those that send no messages.

    NUMBA_ENABLE_CUDASIM=0 python tests/compile_himeno_for_sm90.py

Prints, as JSON, what the assembler says of each: {name: {stack, spill_stores, spill_loads}}; for
those that stay also ``resident``, the blocks that the registers of a multiprocessor hold, and
``wanted``, how many the plan says. Of the programs, which need the device library: {name: {calls:
functions of others, shared: bytes of shared memory that the blocks of a multiprocessor take}}.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
from compile_for_sm90 import CC, CONTEXT, called, link, properties
from numba import cuda, types

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks" / "himeno"))

cuda.get_current_device().MULTIPROCESSOR_COUNT = 132

import _himeno_together  # noqa: E402
import himeno  # noqa: E402
import himeno_tuned  # noqa: E402
from _himeno_faces import table  # noqa: E402
from _himeno_grid import Part, parse_size, part_of  # noqa: E402
from _himeno_kernels import (  # noqa: E402
    launched_plan,
    make_launched,
    make_persistent,
    persistent_plan,
)
from _himeno_messages import Messages  # noqa: E402
from _himeno_partitions import Partitions  # noqa: E402
from _himeno_strips import wave_plan  # noqa: E402
from _himeno_sweep import Plan  # noqa: E402
from _himeno_wave import make_persistent_wave  # noqa: E402

FLOATS = types.float32[::1]
DOUBLES = types.float64[::1]
WORDS = types.int64[::1]
SUMS = types.float64[:, ::1]
ROWS = types.int64[:, ::1]


def runtime() -> bytes:
    """What synchronizes a cooperative grid: device code of the CUDA runtime."""
    import nvidia

    for place in nvidia.__path__:
        for path in Path(place).rglob("libcudadevrt.a"):
            return path.read_bytes()
    raise SystemExit("no libcudadevrt.a beside the other libraries of CUDA")


def compiled(kernel: Any, *arguments: Any) -> str:
    ptx, _ = cuda.compile(
        kernel.py_func, types.void(*arguments), device=False, cc=CC, output="ptx", abi="numba"
    )
    return str(ptx)


def resident(plan: Plan) -> int:
    """Blocks that the registers of a multiprocessor of sm_90 hold, with as many as are allowed.

    Each quarter has 16384, and gives them to warps by 256.
    """
    of_a_warp = -(-32 * plan.registers // 256) * 256
    return 4 * (16384 // of_a_warp) // (plan.threads // 32)


def shared(ptx: str, plan: Plan) -> int:
    """Shared memory of a multiprocessor, of which each block takes 1 KiB besides its own."""
    own = 0
    found = re.findall(r"^\.(?:visible|weak) \.shared \.align (\d+) \.b8 \w+\[(\d+)\]", ptx, re.M)
    for align, nbytes in [*found, (128, plan.shared_bytes)]:
        own += -own % int(align) + int(nbytes)
    return plan.blocks * (own + 1024)


def sweeps(size: str) -> dict[str, tuple[str, Plan]]:
    """(PTX, plan) of the sweeps that the programs choose for half of a grid."""
    part = part_of(0, parse_size(size), (2, 1, 1))
    launched, persistent, wave = launched_plan(part), persistent_plan(part), wave_plan(part)
    boxes = [*part.outer, part.inner]
    fields = (FLOATS, FLOATS, FLOATS)
    made = make_launched(part, launched, boxes).kernel
    found = {"launched": (compiled(made, *fields, DOUBLES), launched)}
    for name, make, plan in (
        ("persistent", make_persistent, persistent),
        ("wave", make_persistent_wave, wave),
    ):
        made = make(part, plan).kernel
        found[name] = compiled(made, *fields, SUMS, WORDS, types.int64), plan
    return {f"{name} {size}": pair for name, pair in found.items()}


@cuda.jit(device=True)
def nothing(*arguments: Any) -> int:
    return 0


def example(size: str, messages: bool = False) -> str:
    """PTX of the readable program's kernel for half of a grid; first of all with its messages."""
    i, j, k = parse_size(size)
    for name in ("exchange", "GMPI_Iallreduce", "GMPI_Wait", "GMPI_Allreduce"):
        if not messages:
            setattr(himeno, name, nothing)
    kernel = himeno.make_kernel(((i - 2) // 2 + 2, j, k))
    arrays = (types.float32[:, :, :, ::1], types.float64[:, :, ::1], WORDS)
    return compiled(kernel, CONTEXT, *arrays, *(types.int64,) * 5)


def programs(part: Part) -> dict[str, dict[str, Any]]:
    fields = (CONTEXT, FLOATS, FLOATS, FLOATS, ROWS)
    one, two = persistent_plan(part), wave_plan(part)
    requests = types.int64[:, :, ::1]
    found = {}
    for name, halos in (("himeno", Messages), ("partitioned", Partitions)):
        kernel = himeno_tuned.make_kernel(part, one, halos(part, one), True)
        found[name] = compiled(kernel, *fields, requests, SUMS, WORDS, ROWS, types.int64), one
    messages: np.ndarray = table(part, *two.pieces)
    kernel = _himeno_together.make_kernel(part, two, messages, True).kernel
    found["two iterations together"] = (
        compiled(kernel, *fields, SUMS, WORDS, ROWS, types.int64),
        two,
    )
    return {
        name: {"calls": sorted(called(ptx)), "shared": shared(ptx, plan)}
        for name, (ptx, plan) in found.items()
    }


def main() -> None:
    found: dict[str, Any] = programs(part_of(1, parse_size("L"), (4, 1, 1)))
    library = runtime()
    for size in ("S", "L"):
        for name, (ptx, plan) in sweeps(size).items():
            limit = [f"-maxrregcount={plan.registers}"] if plan.registers else []
            (found[name],) = properties(link({name: ptx}, *limit, library=library)).values()
            if not name.startswith("launched"):
                found[name].update(resident=resident(plan), wanted=plan.blocks)
    found["example"] = {"calls": sorted(called(example("L", messages=True)))}
    for size in ("M", "XL"):
        limit = f"-maxrregcount={himeno.REGISTERS}"
        ptx = example(size)
        (found[f"example {size}"],) = properties(link({"k": ptx}, limit, library=library)).values()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
