"""Datatypes for the tests: an enumerated family, and what MPI itself packs."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator

import numpy as np
from mpi4py import MPI

from gmpi.datatypes import Plan
from host_proxy.platform.mpi_library import handle

Make = Callable[[MPI.Datatype], MPI.Datatype]


def _struct(base: MPI.Datatype) -> MPI.Datatype:
    types = [base, MPI.INT, MPI.CHAR]
    return MPI.Datatype.Create_struct([1, 2, 1], [0, 40, 52], types)


def _darray(order: int, distributions: list[int], arguments: list[int], rank: int) -> Make:
    return lambda base: base.Create_darray(4, rank, [7, 9], distributions, arguments, [2, 2], order)


_DEFAULT = MPI.DISTRIBUTE_DFLT_DARG
#: One of each constructor, in the shapes that have broken datatype engines before.
MAKERS: dict[str, Make] = {
    "dup": lambda b: b.Dup(),
    "contiguous": lambda b: b.Create_contiguous(5),
    "contiguous 0": lambda b: b.Create_contiguous(0),
    "contiguous 1": lambda b: b.Create_contiguous(1),
    "vector": lambda b: b.Create_vector(4, 2, 5),
    "vector dense": lambda b: b.Create_vector(4, 3, 3),
    "vector negative": lambda b: b.Create_vector(4, 2, -3),
    "vector stride 0": lambda b: b.Create_vector(3, 1, 0),
    "vector 0": lambda b: b.Create_vector(0, 2, 5),
    "vector length 0": lambda b: b.Create_vector(3, 0, 5),
    "vector overlapping": lambda b: b.Create_vector(3, 3, 1),
    "hvector": lambda b: b.Create_hvector(3, 2, 100),
    "hvector odd": lambda b: b.Create_hvector(3, 1, 67),
    "hvector of vector, order kept": lambda b: b.Create_vector(4, 1, 4).Create_hvector(
        4, 1, b.Get_size()
    ),
    "indexed": lambda b: b.Create_indexed([2, 0, 3, 1], [7, 1, 0, 12]),
    "indexed adjacent": lambda b: b.Create_indexed([2, 3, 1], [0, 2, 6]),
    "indexed regular": lambda b: b.Create_indexed([2, 2, 2], [0, 5, 10]),
    "hindexed": lambda b: b.Create_hindexed([2, 1, 3], [-64, 200, 5]),
    "indexed_block": lambda b: b.Create_indexed_block(2, [9, 0, 4, 13]),
    "indexed_block rows": lambda b: b.Create_indexed_block(1, [0, 2, 9, 11, 30, 32]),
    "hindexed_block": lambda b: b.Create_hindexed_block(2, [-40, 100, 33]),
    "struct": _struct,
    "struct of two": lambda b: MPI.Datatype.Create_struct(
        [2, 1], [-16, 80], [b.Create_vector(2, 1, 2), b]
    ),
    "subarray C": lambda b: b.Create_subarray([5, 6, 7], [2, 3, 4], [1, 2, 3], MPI.ORDER_C),
    "subarray F": lambda b: b.Create_subarray([5, 6, 7], [2, 3, 4], [1, 2, 3], MPI.ORDER_FORTRAN),
    "subarray size 1 with a start": lambda b: b.Create_subarray([4, 5], [1, 2], [3, 1]),
    "subarray whole": lambda b: b.Create_subarray([3, 4], [3, 4], [0, 0]),
    "darray block C": _darray(
        MPI.ORDER_C, [MPI.DISTRIBUTE_BLOCK] * 2, [_DEFAULT, _DEFAULT], 1
    ),
    "darray cyclic F": _darray(
        MPI.ORDER_F, [MPI.DISTRIBUTE_CYCLIC, MPI.DISTRIBUTE_BLOCK], [2, _DEFAULT], 2
    ),
    "darray cyclic C": _darray(MPI.ORDER_C, [MPI.DISTRIBUTE_CYCLIC] * 2, [1, 2], 3),
    "resized": lambda b: b.Create_resized(-8, 64),
    "resized smaller": lambda b: b.Create_vector(2, 1, 3).Create_resized(0, 8),
    "resized negative": lambda b: b.Create_resized(0, -32),
}  # fmt: skip
BASES = {"char": MPI.CHAR, "short": MPI.SHORT, "float": MPI.FLOAT, "double": MPI.DOUBLE}
PAIRS = {"double_int": MPI.DOUBLE_INT, "short_int": MPI.SHORT_INT}


def family() -> Iterator[tuple[str, MPI.Datatype]]:
    """Each constructor over each base type, and each over each other one."""
    bases = {**BASES, **PAIRS}
    for name, make in MAKERS.items():
        bases[f"({name} of float)"] = make(MPI.FLOAT)
    for base_name, base in bases.items():
        for name, make in MAKERS.items():
            # Open MPI makes no distributed array of an empty type.
            with contextlib.suppress(MPI.Exception):
                yield f"{name} of {base_name}", make(base)


def memory_for(p: Plan, count: int, seed: int = 1) -> tuple[np.ndarray, int]:
    """(random bytes, origin): memory that ``count`` elements fit in, with bytes around them."""
    low, high = p.reach(count)
    origin = 64 - min(low, 0) // 16 * 16
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, origin + max(high, 0) + 64, np.uint8), origin


_library = ctypes.CDLL(MPI.__file__)
_INT = ctypes.c_int


def _handle(thing: MPI.Datatype | MPI.Comm) -> ctypes.c_int64:
    return ctypes.c_int64(handle(thing))


def mpi_pack(datatype: MPI.Datatype, memory: np.ndarray, origin: int, count: int) -> np.ndarray:
    """The bytes that this MPI library packs: MPI_Pack itself, for mpi4py's takes no count."""
    datatype.Commit()
    size = datatype.Get_size() * count
    packed = np.zeros(size + 64, np.uint8)
    position = _INT(0)
    error = _library.MPI_Pack(
        ctypes.c_void_p(memory.ctypes.data + origin), _INT(count), _handle(datatype),
        ctypes.c_void_p(packed.ctypes.data), _INT(len(packed)), ctypes.byref(position),
        _handle(MPI.COMM_SELF),
    )  # fmt: skip
    assert error == MPI.SUCCESS and position.value == size
    return packed[:size]


def words(datatype: MPI.Datatype) -> str:
    """The constructors of a datatype, for the report of a failure."""
    base, combiner, params = datatype.decode()
    if combiner == "NAMED":
        return datatype.Get_name().removeprefix("MPI_")
    children = params.pop("datatypes", None) or [base]
    arguments = ", ".join(f"{key}={value}" for key, value in params.items())
    return f"{combiner}({arguments}; {', '.join(words(child) for child in children)})"
