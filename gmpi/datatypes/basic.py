"""The basic elements that a datatype is made of, as MPI_Get_elements counts them."""

from __future__ import annotations

from mpi4py import MPI


def basic_size(datatype: MPI.Datatype) -> int:
    """Bytes of each basic element of a datatype; 0: they differ, or there are none.

    Those of MPI's pair types (MPI.DOUBLE_INT) differ.
    """
    sizes = _sizes(datatype)
    return sizes.pop() if len(sizes) == 1 else 0


def _sizes(datatype: MPI.Datatype) -> set[int]:
    if datatype.is_predefined:
        status = MPI.Status()
        nbytes = datatype.Get_size()
        status.Set_elements(MPI.BYTE, nbytes)
        elements = status.Get_elements(datatype) if nbytes else 0
        return {nbytes} if elements == 1 else {0} if elements else set()
    base, _, params = datatype.decode()
    children = params.get("datatypes") or [base]
    try:
        return {size for child in children for size in _sizes(child)}
    finally:
        for child in children:
            if not child.is_predefined:
                child.Free()
