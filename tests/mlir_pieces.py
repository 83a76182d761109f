"""What the device library is made of, compiled by numba-cuda-mlir for sm_90; one line of JSON each.

python tests/mlir_pieces.py: no GPU is needed. The package asks for one even where the compute
capability is given, so its answer is put in place.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import json
import sys
import warnings
from collections import namedtuple
from typing import Any

from llvmlite import ir
from numba_cuda_mlir import cuda, tools, types
from numba_cuda_mlir.extending import intrinsic
from numba_cuda_mlir.numba_cuda.typing.typeof import typeof

CC = (9, 0)
Context = namedtuple("Context", "mapped device shape identity")


def element(a):
    a[0] += 1


def named_tuple(ctx, a):
    a[0] = ctx.device


def polling(a):
    while a[0] == 0:
        cuda.nanosleep(20)


def warp_votes(a):
    cuda.syncwarp(0xFFFFFFFF)
    mask = cuda.ballot_sync(0xFFFFFFFF, a[0] > 0)
    a[1] = cuda.shfl_sync(0xFFFFFFFF, mask, 0)


def shared_memory(a):
    s = cuda.shared.array(4, types.int64)
    s[cuda.threadIdx.x] = a[0]
    cuda.syncthreads()
    a[1] = s[0]


def grid_barrier(a):
    cuda.cg.this_grid().sync()
    a[0] = 1


def compare_and_swap(a):
    cuda.atomic.cas(a, 0, 1, 2)


def fence(a):
    cuda.threadfence()
    a[0] = 1


def system_fence(a):
    cuda.threadfence_system()
    a[0] = 1


@intrinsic
def timer(typingctx):
    def code(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.IntType(64), [])
        text = "mov.u64 $0, %globaltimer;"
        return builder.call(ir.InlineAsm(kind, text, "=l", side_effect=True), [])

    return types.int64(), code


def llvm_intrinsic(a):
    a[0] = timer()


ARRAY = types.int64[::1]
PIECES: dict[str, tuple[Any, ...]] = {
    "an element of an array": (element, ARRAY),
    "a named tuple, as `g.device` is": (named_tuple, typeof(Context(1, 2, 3, 4)), ARRAY),
    "a loop that polls": (polling, ARRAY),
    "votes and shuffles of a warp": (warp_votes, ARRAY),
    "shared memory and `syncthreads`": (shared_memory, ARRAY),
    "a barrier of the grid": (grid_barrier, ARRAY),
    "compare and swap": (compare_and_swap, ARRAY),
    "`threadfence`": (fence, ARRAY),
    "`threadfence_system`": (system_fence, ARRAY),
    "an intrinsic that is written with llvmlite": (llvm_intrinsic, ARRAY),
}


def problem_of(kernel: Any, *arguments: Any) -> str:
    """Why it does not compile; empty: it does."""
    try:
        options = {"cc": CC, "output": "ptx", "device": False, "abi": "numba"}
        cuda.compile(kernel, types.void(*arguments), **options)
    except Exception as exc:
        return type(exc).__name__
    return ""


def main() -> None:
    warnings.simplefilter("ignore")
    tools._cached_cc = CC
    for name, piece in PIECES.items():
        print(json.dumps([name, problem_of(*piece)]), flush=True)


if __name__ == "__main__":
    sys.exit(main())
