"""Atomic updates of one element (``device_lib/move/atomics.py``) in the simulator."""

from __future__ import annotations

import ctypes
import mmap
from multiprocessing import get_context

import numpy as np
import pytest

import gmpi
from device_lib.move import atomics
from gmpi.contract.collectives import NOT_OURS
from gmpi.contract.constants import DATATYPES

pytestmark = pytest.mark.quick

INTEGERS = [f"{sign}INT{bits}_T" for sign in ("", "U") for bits in (8, 16, 32, 64)]
DTYPES = {name: dtype for name, _, dtype in DATATYPES}
FUNCTIONS = {
    "SUM": np.add, "PROD": np.multiply, "MIN": np.minimum, "MAX": np.maximum,
    "BAND": np.bitwise_and, "BOR": np.bitwise_or, "BXOR": np.bitwise_xor,
    "LAND": np.logical_and, "LOR": np.logical_or, "LXOR": np.logical_xor,
    "REPLACE": lambda a, b: b, "NO_OP": lambda a, b: a,
}  # fmt: skip
ALL = set(FUNCTIONS)
REAL = {"SUM", "PROD", "MIN", "MAX", "REPLACE", "NO_OP"}
ALLOWED = {
    **dict.fromkeys(INTEGERS, ALL),
    **dict.fromkeys(("FLOAT", "DOUBLE"), REAL),
    "C_BOOL": {"LAND", "LOR", "LXOR", "REPLACE", "NO_OP"},
    "BYTE": {"BAND", "BOR", "BXOR", "REPLACE", "NO_OP"},
    "CHAR": {"REPLACE", "NO_OP"},
    "LONG_DOUBLE": set(),
    "C_FLOAT_COMPLEX": set(),
    "C_DOUBLE_COMPLEX": set(),
}
COMPARED = {*INTEGERS, "C_BOOL", "BYTE", "CHAR"}


@pytest.mark.parametrize("name", ALLOWED)
def test_which_operations_there_are_for_a_datatype(name: str) -> None:
    datatype = getattr(gmpi, name)
    for op in FUNCTIONS:
        kind = atomics.kind_of(getattr(gmpi, op), datatype, 1)
        assert (kind != NOT_OURS) == (op in ALLOWED[name]), op
        kind = atomics.kind_of(getattr(gmpi, op), datatype, 0)
        halves = "COMPLEX" in name and op == "SUM"
        assert (kind != NOT_OURS) == (op in ALLOWED[name] or halves), op
    assert atomics.may_compare(datatype) == (name in COMPARED)
    for op in (-1, 12, 15, 255):
        assert atomics.kind_of(op, datatype, 0) == NOT_OURS


@pytest.mark.parametrize("name", [name for name in ALLOWED if ALLOWED[name]])
def test_an_element_is_updated_and_none_beside_it(name: str) -> None:
    rng = np.random.default_rng(3)
    dtype, datatype = DTYPES[name], getattr(gmpi, name)
    for op in ALLOWED[name]:
        kind = atomics.kind_of(getattr(gmpi, op), datatype, 1)
        for _ in range(8):
            memory = rng.integers(0, 256, 32, np.uint8)
            values = rng.integers(0, 256, dtype.itemsize, np.uint8)
            if dtype.kind == "f":
                memory[:] = rng.normal(size=32 // dtype.itemsize).astype(dtype).view(np.uint8)
                values[:] = rng.normal(size=1).astype(dtype).view(np.uint8)
            elif dtype.kind == "b":
                memory &= 1
                values &= 1
            number = int(rng.integers(32 // dtype.itemsize))
            view, value = memory.view(dtype), values.view(dtype)
            wanted, before = memory.copy(), view[number]
            if name == "CHAR":  # of bytes, which have no arithmetic
                wanted.view(dtype)[number] = value[0] if op == "REPLACE" else before
            else:
                with np.errstate(all="ignore"):
                    wanted.view(dtype)[number] = FUNCTIONS[op](before, value[0])
            place = int(memory.ctypes.data) + number * dtype.itemsize
            bits = int.from_bytes(values.tobytes(), "little")
            old = atomics.fetch(kind, place, bits) & (1 << 8 * dtype.itemsize) - 1
            assert old.to_bytes(dtype.itemsize, "little") == np.asarray(before).tobytes(), op
            assert (memory == wanted).all(), op


@pytest.mark.parametrize("shift", range(4))
def test_what_is_not_as_expected_is_not_swapped(shift: int) -> None:
    memory = np.arange(32, dtype=np.uint8)
    size = 1 << shift
    for number in range(32 // size):
        before = memory.copy()
        place = int(memory.ctypes.data) + number * size
        old = before[number * size :][:size].tobytes()
        expected = int.from_bytes(old, "little")
        mask = (1 << 8 * size) - 1
        assert atomics.compare_and_swap(shift, place, expected ^ 1, 0) & mask == expected
        assert (memory == before).all()
        new = bytes([200 + number]) * size
        swapped = atomics.compare_and_swap(shift, place, expected, int.from_bytes(new, "little"))
        assert swapped & mask == expected
        assert memory[number * size :][:size].tobytes() == new
        memory[number * size :][:size] = before[number * size :][:size]
        assert (memory == before).all()


PROCESSES, TIMES = 3, 4000


def _hammer(place: int) -> None:
    """Adds 1 to an element of each size, side by side, and to one by compare and swap."""
    kinds = [
        atomics.kind_of(gmpi.SUM, datatype, 1)
        for datatype in (gmpi.INT64_T, gmpi.INT32_T, gmpi.INT16_T, gmpi.UINT8_T, gmpi.UINT8_T)
    ]
    for _ in range(TIMES):
        for kind, at in zip(kinds, (0, 8, 12, 14, 15)):
            atomics.fetch(kind, place + at, 1)
        old, found = -1, 0
        while old != found:
            old = found
            found = atomics.compare_and_swap(3, place + 16, old, old + 1)


def test_no_update_of_any_process_is_lost() -> None:
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    place = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    context = get_context("fork")
    processes = [context.Process(target=_hammer, args=(place,)) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    total = PROCESSES * TIMES
    words = np.frombuffer(memory, np.uint8, 24)
    assert words[:8].view(np.int64)[0] == total
    assert words[8:12].view(np.int32)[0] == total
    assert words[12:14].view(np.int16)[0] == total
    assert words[14] == words[15] == total % 256
    assert words[16:].view(np.int64)[0] == total
