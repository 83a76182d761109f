"""The simulator twin of atomic operations on memory that other GPUs map.

That memory is a file which several processes map, each with kernels of its own. So these are atomic
instructions of the processor, which Python has not got: a few lines of machine code.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm

_CODE = """
define i{bits} @swap(i64 %address, i{bits} %expected, i{bits} %value) {{
  %place = inttoptr i64 %address to ptr
  %both = cmpxchg ptr %place, i{bits} %expected, i{bits} %value seq_cst seq_cst
  %found = extractvalue {{ i{bits}, i1 }} %both, 0
  ret i{bits} %found
}}
"""


@functools.cache
def _compare_and_swap(bits: int) -> tuple[Callable[[int, int, int], int], Any]:
    """The function for words of so many bits, and what keeps its code."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(_CODE.format(bits=bits)), machine)
    engine.finalize_object()
    word = ctypes.c_int64 if bits == 64 else ctypes.c_uint32
    kind = ctypes.CFUNCTYPE(word, ctypes.c_int64, word, word)
    return kind(engine.get_function_address("swap")), engine


def cas_8_sys(address, expected, value):
    return _compare_and_swap(64)[0](address, expected, value)


def cas_4_sys(address, expected, value):
    return _compare_and_swap(32)[0](address, expected, value)


def load_8_sys(address):
    return ctypes.c_int64.from_address(address).value


def load_4_sys(address):
    return ctypes.c_uint32.from_address(address).value
