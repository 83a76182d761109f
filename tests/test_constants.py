"""Constants agree with the MPI library that mpi4py has loaded."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

import gmpi
from gmpi.contract import constants

pytestmark = [pytest.mark.mpi, pytest.mark.quick]

#: Names in mpi4py that are no C datatypes: markers and packed data.
NOT_C = {"PACKED", "DATATYPE_NULL", "LB", "UB"}
#: Not in the MPI standard; MPICH has them.
EXTENSIONS = {"FLOAT16_T", "FLOAT32_T", "FLOAT64_T"}


def c_datatypes() -> dict[str, MPI.Datatype]:
    """Every predefined datatype for C and C++ that mpi4py names, but the pairs of MINLOC."""
    fortran = ("F_", "CHARACTER", "LOGICAL", "INTEGER", "REAL", "DOUBLE_PRECISION", "COMPLEX")
    pairs = ("TWOINT", "_INT")
    found = {}
    for name in dir(MPI):
        value = getattr(MPI, name)
        if not isinstance(value, MPI.Datatype) or name in NOT_C | EXTENSIONS:
            continue
        if name.startswith(fortran):
            continue
        if name == "DOUBLE_COMPLEX" or (name.endswith(pairs) and "SIGNED" not in name):
            continue
        if value == MPI.DATATYPE_NULL:
            continue  # this library does not have it
        found[name] = value
    return found


def test_every_predefined_c_type_of_mpi4py_has_a_handle() -> None:
    missing = [name for name in c_datatypes() if not hasattr(gmpi, name)]
    assert missing == []
    assert len(c_datatypes()) > 35


@pytest.mark.parametrize("name", sorted(c_datatypes()))
def test_a_handle_stands_for_the_type_of_that_name(name: str) -> None:
    handle = getattr(gmpi, name)
    registered = constants.DATATYPES[handle & 0xFF][1]
    wanted = getattr(MPI, name)
    assert handle & ~0xFFFF == constants.DATATYPE_MARK
    assert handle >> 8 & 0xFF == wanted.Get_size()
    assert registered.Get_size() == wanted.Get_size()
    assert registered.tocode() == wanted.tocode()
    if name != "WCHAR":  # NumPy's U is a string of any length
        dtype = constants.DATATYPES[handle & 0xFF][2]
        assert (dtype.kind, dtype.itemsize) == (np.dtype(wanted.tocode()).kind, wanted.Get_size())


PAIRS = [name for name, _, _ in constants.DATATYPES[constants.FIRST_PAIR :]]


@pytest.mark.parametrize("name", [*PAIRS, "INT_INT"])
def test_a_pair_is_laid_out_as_the_library_has_it(name: str) -> None:
    handle, wanted = getattr(gmpi, name), getattr(MPI, name)
    number = handle & 0xFF
    registered, dtype = constants.DATATYPES[number][1:]
    assert registered == wanted and number >= constants.FIRST_PAIR
    assert handle >> 8 & 0xFF == dtype.itemsize == wanted.extent
    assert (number >= constants.FIRST_WITH_GAPS) == (wanted.Get_size() < wanted.extent)
    other_names = np.dtype([("x", dtype["value"]), ("rank", dtype["index"])], align=True)
    assert constants.datatype_of(other_names) == handle


def test_handles_are_different_and_no_small_numbers() -> None:
    handles = list(constants.DATATYPE_NAMES)
    assert len(set(handles)) == len(constants.DATATYPES)
    assert min(handles) > 1 << 16


def test_special_values_are_those_of_the_library() -> None:
    for name in ("PROC_NULL", "ANY_SOURCE", "ANY_TAG", "UNDEFINED", "SUCCESS", "ERR_TRUNCATE"):
        assert getattr(gmpi, name) == getattr(MPI, name), name
    classes = [name for name in dir(gmpi) if name.startswith("ERR_")]
    assert all(getattr(gmpi, name) == getattr(MPI, name) for name in classes)


def test_reductions_are_in_the_order_of_their_handles() -> None:
    for handle, (name, op) in enumerate(constants.OPERATIONS_REDUCE):
        assert getattr(gmpi, name) == handle
        assert op == getattr(MPI, name)


@pytest.mark.parametrize(
    "dtype, name",
    [
        ("i1", "SIGNED_CHAR"),
        ("u1", "UNSIGNED_CHAR"),
        ("i4", "INT"),
        ("f4", "FLOAT"),
        ("f8", "DOUBLE"),
        ("c8", "C_FLOAT_COMPLEX"),
        ("c16", "C_DOUBLE_COMPLEX"),
        ("?", "C_BOOL"),
    ],
)
def test_datatype_of_a_dtype(dtype: str, name: str) -> None:
    assert gmpi.datatype_of(dtype) == getattr(gmpi, name)


def test_datatype_of_something_without_one() -> None:
    with pytest.raises(TypeError, match="no predefined MPI datatype .* float16; use gmpi.BYTE"):
        gmpi.datatype_of(np.float16)


def test_status_dtype_has_the_fields_of_status() -> None:
    assert gmpi.STATUS_DTYPE.names == gmpi.Status._fields
    assert gmpi.STATUS_DTYPE.itemsize == 40


def test_frozen_values_tell_mpi_libraries_apart() -> None:
    # Compiled code of one library was once loaded from the cache under another: ANY_SOURCE of the
    # one is PROC_NULL of the other.
    for name in ("PROC_NULL", "ANY_SOURCE", "ERR_TRUNCATE", "UNDEFINED", "WCHAR"):
        assert f"{name}={getattr(constants, name)}" in constants.FROZEN.split()


def test_the_library_reduces_what_mpi_defines_and_hardly_more() -> None:
    """``UNFIT`` keeps from MPI what would break a communicator. Open MPI also adds bytes."""
    for op, (name, operation) in enumerate(constants.OPERATIONS_REDUCE):
        for number, (datatype, handle, _) in enumerate(constants.DATATYPES):
            one, result = np.zeros(64, np.uint8), np.zeros(64, np.uint8)
            try:
                MPI.COMM_SELF.Allreduce([one, 1, handle], [result, 1, handle], operation)
                taken = True
            except MPI.Exception:
                taken = False
            fits = not constants.UNFIT[op] >> number & 1
            assert taken == fits or (datatype == "BYTE" and not fits), (name, datatype, taken)
