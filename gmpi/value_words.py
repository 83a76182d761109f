"""Values of arguments as users know them: ranks, tags and datatypes by their names."""

from __future__ import annotations

from gmpi.contract.constants import (
    ANY_SOURCE,
    ANY_TAG,
    DATATYPE_MARK,
    DATATYPE_NAMES,
    DATATYPES,
    PROC_NULL,
)
from gmpi.contract.layouts import DERIVED_MARK, DERIVED_MASK
from gmpi.contract.wire import DATATYPE_UNFIT


def rank_text(rank: int) -> str:
    """A rank, or the name of what stands for one."""
    names = {PROC_NULL: "PROC_NULL", ANY_SOURCE: "ANY_SOURCE"}
    return names.get(rank, str(rank))


def tag_text(tag: int) -> str:
    """A tag, or its name."""
    return "ANY_TAG" if tag == ANY_TAG else str(tag)


def datatype_text(handle: int) -> str:
    """The name of a datatype handle."""
    if handle & ~DERIVED_MASK == DERIVED_MARK:
        return f"derived datatype {handle:#x}"
    if (found := unfit(handle)) is not None:
        handle = found[0]
    return DATATYPE_NAMES.get(handle, hex(handle))


def unfit(handle: int) -> tuple[int, int] | None:
    """(datatype, bytes of an element of the array) of what a record says where they differ."""
    number = handle & 0xFF & ~DATATYPE_UNFIT
    if handle & ~0xFFFF != DATATYPE_MARK or not handle & DATATYPE_UNFIT or number >= len(DATATYPES):
        return None
    size = DATATYPES[number][2].itemsize
    return DATATYPE_MARK | size << 8 | number, handle >> 8 & 0xFF


def unfit_words(datatype: int, itemsize: int) -> tuple[str, str, str]:
    """(value, what is allowed, what to do) for a datatype of another size than the elements."""
    fits = [f"gmpi.{n}" for n in ("FLOAT", "DOUBLE", "INT16_T") if _size_of(n) == itemsize]
    return (
        f"{DATATYPE_NAMES[datatype]}, of {datatype >> 8 & 0xFF} bytes, for an array whose elements "
        f"have {itemsize}",
        f"a datatype of {itemsize} bytes{f' such as {fits[0]}' if fits else ''}",
        "gmpi.datatype_of(array.dtype) says which on the host; to move bytes whatever they are, "
        "pass gmpi.BYTE and their number, or a view of bytes",
    )


def _size_of(name: str) -> int:
    return next(dtype.itemsize for known, _, dtype in DATATYPES if known == name)
