"""Datatypes, reductions, wildcards and error classes as plain integers that kernels can use.

Wildcards and MPI's own error classes have the values of the MPI library that mpi4py has loaded,
so ``MPI.PROC_NULL`` from ``cart.Shift()`` and ``gmpi.PROC_NULL`` are the same number. Numba freezes
them into a kernel when it compiles it: do not share a kernel cache between MPI libraries.

A datatype handle carries its size in bytes (bits 8..15), so a kernel needs no table to know it.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, Final

import numpy as np
from mpi4py import MPI

# --- datatypes ---------------------------------------------------------------------------------
_PREDEFINED: Final = 0x47 << 16  # marks a handle, so that 0, -1 or an array index is not one
_datatypes: list[tuple[str, MPI.Datatype, np.dtype]] = []


def _c(name: str, dtype: object) -> int:
    """Registers MPI's C datatype ``name``, laid out as the NumPy ``dtype``."""
    d = np.dtype(dtype)  # type: ignore[call-overload]
    _datatypes.append((name, getattr(MPI, name), d))
    return int(_PREDEFINED | d.itemsize << 8 | (len(_datatypes) - 1))


BYTE: Final = _c("BYTE", np.uint8)
CHAR: Final = _c("CHAR", "S1")
SIGNED_CHAR: Final = _c("SIGNED_CHAR", np.int8)
UNSIGNED_CHAR: Final = _c("UNSIGNED_CHAR", np.uint8)
WCHAR: Final = _c("WCHAR", f"u{ctypes.sizeof(ctypes.c_wchar)}")
SHORT: Final = _c("SHORT", np.short)
UNSIGNED_SHORT: Final = _c("UNSIGNED_SHORT", np.ushort)
INT: Final = _c("INT", np.intc)
UNSIGNED: Final = _c("UNSIGNED", np.uintc)
LONG: Final = _c("LONG", ctypes.c_long)
UNSIGNED_LONG: Final = _c("UNSIGNED_LONG", ctypes.c_ulong)
LONG_LONG: Final = _c("LONG_LONG", np.longlong)
UNSIGNED_LONG_LONG: Final = _c("UNSIGNED_LONG_LONG", np.ulonglong)
INT8_T: Final = _c("INT8_T", np.int8)
INT16_T: Final = _c("INT16_T", np.int16)
INT32_T: Final = _c("INT32_T", np.int32)
INT64_T: Final = _c("INT64_T", np.int64)
UINT8_T: Final = _c("UINT8_T", np.uint8)
UINT16_T: Final = _c("UINT16_T", np.uint16)
UINT32_T: Final = _c("UINT32_T", np.uint32)
UINT64_T: Final = _c("UINT64_T", np.uint64)
AINT: Final = _c("AINT", np.intp)
COUNT: Final = _c("COUNT", np.int64)
OFFSET: Final = _c("OFFSET", np.int64)
FLOAT: Final = _c("FLOAT", np.float32)
DOUBLE: Final = _c("DOUBLE", np.float64)
LONG_DOUBLE: Final = _c("LONG_DOUBLE", np.longdouble)
C_BOOL: Final = _c("C_BOOL", np.bool_)
C_FLOAT_COMPLEX: Final = _c("C_FLOAT_COMPLEX", np.complex64)
C_DOUBLE_COMPLEX: Final = _c("C_DOUBLE_COMPLEX", np.complex128)
C_LONG_DOUBLE_COMPLEX: Final = _c("C_LONG_DOUBLE_COMPLEX", np.clongdouble)
CXX_BOOL: Final = _c("CXX_BOOL", np.bool_)
CXX_FLOAT_COMPLEX: Final = _c("CXX_FLOAT_COMPLEX", np.complex64)
CXX_DOUBLE_COMPLEX: Final = _c("CXX_DOUBLE_COMPLEX", np.complex128)
CXX_LONG_DOUBLE_COMPLEX: Final = _c("CXX_LONG_DOUBLE_COMPLEX", np.clongdouble)


# Pairs of a value and an index, for MINLOC and MAXLOC (MPI 4.1 section 6.9.4).
def _pair(name: str, value: object) -> int:
    """Registers MPI's ``struct { value; int; }``; dtype: fields ``value`` and ``index``."""
    return _c(name, np.dtype([("value", value), ("index", np.intc)], align=True))


FLOAT_INT: Final = _pair("FLOAT_INT", np.float32)
TWOINT: Final = _pair("TWOINT", np.intc)
# With gaps, which MPI does not send: in a message they are derived datatypes (Context.commit).
DOUBLE_INT: Final = _pair("DOUBLE_INT", np.float64)
LONG_INT: Final = _pair("LONG_INT", ctypes.c_long)
SHORT_INT: Final = _pair("SHORT_INT", np.short)
LONG_DOUBLE_INT: Final = _pair("LONG_DOUBLE_INT", np.longdouble)
FIRST_PAIR: Final = FLOAT_INT & 0xFF  # in DATATYPES; all behind it are pairs
FIRST_WITH_GAPS: Final = DOUBLE_INT & 0xFF  # likewise

# mpi4py's other names for the same types
BOOL: Final = C_BOOL
UNSIGNED_INT: Final = UNSIGNED
SIGNED_SHORT: Final = SHORT
SIGNED_INT: Final = INT
SIGNED_LONG: Final = LONG
SIGNED_LONG_LONG: Final = LONG_LONG
C_COMPLEX: Final = C_FLOAT_COMPLEX
SINT8_T: Final = INT8_T
SINT16_T: Final = INT16_T
SINT32_T: Final = INT32_T
SINT64_T: Final = INT64_T
INT_INT: Final = TWOINT

#: (name, mpi4py datatype, NumPy dtype), indexed by the low byte of the handle
DATATYPES: Final = tuple(_datatypes)
DATATYPE_MARK: Final = _PREDEFINED
DATATYPE_NAMES: Final = {
    _PREDEFINED | d.itemsize << 8 | i: name for i, (name, _, d) in enumerate(DATATYPES)
}


class Auto:
    """The type of ``AUTO``."""

    def __repr__(self) -> str:
        return "gmpi.AUTO"


#: In place of a datatype, in kernels and on the host: that of the array's elements.
AUTO: Final[Any] = Auto()


def datatype_of(dtype: object) -> int:
    """The datatype handle for a NumPy dtype (host only).

    Args:
        dtype: anything ``numpy.dtype`` accepts, for example ``array.dtype``.

    Returns:
        The handle of the first predefined datatype with that kind and size.

    Raises:
        TypeError: no predefined C datatype has this layout.
    """
    d = np.dtype(dtype)  # type: ignore[call-overload]
    for handle, name in DATATYPE_NAMES.items():
        if name not in ("BYTE", "WCHAR") and _is_laid_out(d, DATATYPES[handle & 0xFF][2]):
            return handle
    raise TypeError(
        f"no predefined MPI datatype has the layout of dtype {d}; "
        "use gmpi.BYTE and a count in bytes"
    )


def _is_laid_out(dtype: np.dtype, known: np.dtype) -> bool:
    """Whether they are the same, however fields are named."""
    if dtype.fields is None or known.fields is None:
        return dtype == known
    ours, theirs = ([field[:2] for field in f.values()] for f in (dtype.fields, known.fields))
    return ours == theirs and dtype.itemsize == known.itemsize


# --- reductions ---------------------------------------------------------------------------------
#: (name, mpi4py op), indexed by handle
OPERATIONS_REDUCE: Final = tuple(
    (name, getattr(MPI, name))
    for name in (
        "SUM", "PROD", "MIN", "MAX", "LAND", "LOR", "LXOR", "BAND", "BOR", "BXOR", "MINLOC",
        "MAXLOC",
    )
)  # fmt: skip
SUM: Final = 0
PROD: Final = 1
MIN: Final = 2
MAX: Final = 3
LAND: Final = 4
LOR: Final = 5
LXOR: Final = 6
BAND: Final = 7
BOR: Final = 8
BXOR: Final = 9
MINLOC: Final = 10  # of pairs: the least value, and the least index that it has
MAXLOC: Final = 11


def defined_for(dtype: np.dtype, name: str = "") -> tuple[int, ...]:
    """The predefined operations that MPI defines for elements of a dtype (MPI 4.1 section 6.9.2).

    Args:
        name: of the datatype, where there is one: BYTE and WCHAR are no integers.
    """
    if dtype.fields is not None:
        return MINLOC, MAXLOC
    if name == "WCHAR":
        return ()
    if name == "BYTE":
        return BAND, BOR, BXOR
    numbers = {"b": (LAND, LOR, LXOR), "f": (SUM, PROD, MIN, MAX), "c": (SUM, PROD)}
    return numbers.get(dtype.kind, tuple(range(MINLOC)))


#: For each operation, of which datatypes it is not defined: bits, by the low byte of their handles.
UNFIT: Final = np.array(
    [
        sum((op not in defined_for(d, name)) << i for i, (name, _, d) in enumerate(DATATYPES))
        for op in range(len(OPERATIONS_REDUCE))
    ]
)
OPERATIONS: Final = 64  # how many there can be: behind MPI's, those of Context.op
REPLACE: Final = 64  # of one-sided calls only
NO_OP: Final = 65


def operation_name(number: int) -> str:
    """The name of a reduction's operation in reports."""
    if number < len(OPERATIONS_REDUCE):
        return OPERATIONS_REDUCE[number][0]
    return f"operation {number} of Context.op"


@functools.cache
def _numbers() -> tuple[dict[int, int], dict[int, int]]:
    """By mpi4py's handles: those of predefined datatypes, and those of operations."""
    datatypes: dict[int, int] = {}
    for number, name in DATATYPE_NAMES.items():
        datatypes.setdefault(getattr(MPI, name).handle, number)
    operations = {op.handle: n for n, (_, op) in enumerate(OPERATIONS_REDUCE)}
    return datatypes, operations | {MPI.REPLACE.handle: REPLACE, MPI.NO_OP.handle: NO_OP}


def number_of(value: MPI.Datatype | MPI.Op) -> int | None:
    """Kernels' number for a predefined datatype or operation of mpi4py's; None: it has none."""
    datatypes, operations = _numbers()
    return (operations if isinstance(value, MPI.Op) else datatypes).get(value.handle)


# --- wildcards and special values ---------------------------------------------------------------
PROC_NULL: Final[int] = MPI.PROC_NULL
ANY_SOURCE: Final[int] = MPI.ANY_SOURCE
ANY_TAG: Final[int] = MPI.ANY_TAG
UNDEFINED: Final[int] = MPI.UNDEFINED
BOTTOM: Final = 0  # as a buffer: the displacements of the datatype are addresses
IN_PLACE: Final = -0x1A9C  # in place of a send buffer; no address has this value
COMM_WORLD: Final = 0  # the communicator that the context was opened with
REQUEST_NULL: Final = 0
MESSAGE_NULL: Final = 0
MESSAGE_NO_PROC: Final = 1  # what a probe of PROC_NULL gives
#: In place of a tag, in a status: no message has come, the receive was cancelled. No tag, and not
#: ANY_TAG of any MPI library.
NO_MESSAGE: Final = -0x1CA9C
MODE_NOCHECK: Final[int] = MPI.MODE_NOCHECK  # assertions about an epoch
MODE_NOSTORE: Final[int] = MPI.MODE_NOSTORE
MODE_NOPUT: Final[int] = MPI.MODE_NOPUT
MODE_NOPRECEDE: Final[int] = MPI.MODE_NOPRECEDE
MODE_NOSUCCEED: Final[int] = MPI.MODE_NOSUCCEED

#: One element of the ``statuses`` array of ``GMPI_Waitall``: the fields of ``gmpi.Status``.
STATUS_DTYPE: Final = np.dtype(
    [
        ("error", np.int64),
        ("source", np.int64),
        ("tag", np.int64),
        ("count", np.int64),
        ("nbytes", np.int64),
    ]
)

# --- error classes ------------------------------------------------------------------------------
SUCCESS: Final[int] = MPI.SUCCESS
ERR_ARG: Final[int] = MPI.ERR_ARG
ERR_BUFFER: Final[int] = MPI.ERR_BUFFER
ERR_COUNT: Final[int] = MPI.ERR_COUNT
ERR_TYPE: Final[int] = MPI.ERR_TYPE
ERR_TAG: Final[int] = MPI.ERR_TAG
ERR_COMM: Final[int] = MPI.ERR_COMM
ERR_RANK: Final[int] = MPI.ERR_RANK
ERR_ROOT: Final[int] = MPI.ERR_ROOT
ERR_OP: Final[int] = MPI.ERR_OP
ERR_TOPOLOGY: Final[int] = MPI.ERR_TOPOLOGY
ERR_REQUEST: Final[int] = MPI.ERR_REQUEST
ERR_TRUNCATE: Final[int] = MPI.ERR_TRUNCATE
ERR_IN_STATUS: Final[int] = MPI.ERR_IN_STATUS
ERR_WIN: Final[int] = MPI.ERR_WIN
ERR_ASSERT: Final[int] = MPI.ERR_ASSERT
ERR_DISP: Final[int] = MPI.ERR_DISP
ERR_RMA_RANGE: Final[int] = MPI.ERR_RMA_RANGE
ERR_RMA_SYNC: Final[int] = MPI.ERR_RMA_SYNC
ERR_OTHER: Final[int] = MPI.ERR_OTHER
ERR_INTERN: Final[int] = MPI.ERR_INTERN

# GMPI's own classes lie above every class of MPI 5.0 (all below 100) and within one byte.
GMPI_ERR_ABORTED: Final = 201  # the context was closed or aborted while the kernel waited
GMPI_ERR_NO_RESOURCE: Final = 202  # more requests outstanding than the context has slots for
GMPI_ERR_PROXY: Final = 203  # the proxy thread died
GMPI_ERR_TIMEOUT: Final = 204  # nothing moved for timeout_s

#: What compiled code freezes of the MPI library at hand: part of the key of every cache on disk,
#: because one checkout may be used with several libraries.
FROZEN: Final = " ".join(
    f"{name}={value}"
    for name, value in sorted(globals().items())
    if name.isupper() and isinstance(value, int)
)
