"""What is allowed in place of an argument of a one-sided call that a kernel has refused.

The numbers are those of a row of the error log, as ``gmpi/contract/windows.py`` says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gmpi.contract import windows as w
from gmpi.contract.constants import DATATYPE_NAMES, NO_OP, OPERATIONS_REDUCE, REPLACE
from gmpi.contract.wire import FLAG_STRIDED_BUFFER, FLAWS, LOW_32, POSITION_MASK
from gmpi.fault_words import buffer_words
from host_proxy.platform import operations as ops

if TYPE_CHECKING:
    from gmpi.faults import Entry

_NAMES = {number: name for number, (name, _) in enumerate(OPERATIONS_REDUCE)}
_NAMES |= {REPLACE: "REPLACE", NO_OP: "NO_OP"}
_UPDATES = [name for name in _NAMES.values() if "LOC" not in name]


def words_of(entry: Entry, datatype: str) -> tuple[Any, str, str]:
    """(value, what is allowed, what to do).

    Args:
        datatype: its name.
    """
    wrong, disp, high = entry.field - ops.WINDOW, entry.value, entry.high
    size = entry.datatype >> 8 & 0xFF
    known = _known(wrong, entry, datatype, size)
    if known is not None:
        return known
    if wrong == w.WRONG_WINDOW:
        advice = "it was freed before, or was never made"
        return f"{entry.tag & LOW_32:#x}", "a handle of Context.win() of this context", advice
    if wrong == w.WRONG_EPOCH:
        advice = "GMPI_Win_fence opens one, or GMPI_Win_lock_all until GMPI_Win_unlock_all"
        return "none", "one that is open in this rank", advice
    if wrong == w.WRONG_RANK:
        return entry.peer, f"0..{high - 1}, or PROC_NULL", f"the window has {high} ranks"
    if wrong == w.WRONG_RANGE:
        window = f"the window of rank {entry.peer}, which has {high} bytes"
        return disp, f"so much that all elements lie in {window}", "it counts displacement units"
    if wrong == w.WRONG_NOTIFICATION:
        allowed = f"0..{high - 1}" if high else "none"
        return disp, allowed, "Context.win makes as many counters as num_notify says"
    if wrong == w.WRONG_DISPLACEMENT:
        return disp, "0 or more", f"the window of rank {entry.peer} has {high} bytes"
    if wrong == w.WRONG_ALIGNMENT:
        allowed = f"a place at a multiple of {high} bytes in the memory of rank {entry.peer}"
        return disp, allowed, "elements that are updated as a whole must be aligned"
    if wrong == w.WRONG_GPU:
        advice = "use GMPI_Put and GMPI_Get, or GPUs that NVLink connects"
        return entry.peer, "a rank whose GPU has atomic operations for this one", advice
    return disp, "what MPI allows", "the record is corrupt"


def _known(wrong: int, entry: Entry, datatype: str, size: int) -> tuple[Any, str, str] | None:
    """Of what is wrong with the elements."""
    high = entry.high
    if wrong == w.WRONG_COUNT:
        return entry.elements, f"0..{POSITION_MASK // 32}", "move them by several calls"
    if wrong == w.WRONG_DATATYPE:
        allowed = "a predefined datatype such as gmpi.FLOAT, of elements as large as the array's"
        advice = "GMPI_Compare_and_swap takes integers, logical ones and bytes of up to 8 bytes"
        return datatype, allowed, advice
    if wrong == w.WRONG_KIND:
        return DATATYPE_NAMES.get(high, hex(high)), f"one like {datatype}", "types must be alike"
    if wrong == w.WRONG_LENGTH:
        moved = f"{entry.elements * size} bytes"
        advice = "the counts and datatypes at both sides must have equally many bytes"
        return f"one of {moved}", f"one of {high} bytes, as at the other side", advice
    if wrong == w.WRONG_BUFFER:
        flaw = buffer_words(high, 0, False)[0] if high & FLAWS else "not usable"
        if high & FLAG_STRIDED_BUFFER:
            flaw = "a strided view"
        return flaw, *_buffer(entry, size)
    if wrong == w.WRONG_OP:
        allowed = f"an operation that the GPU has for {datatype}, on each element as a whole"
        names = ", ".join(f"gmpi.{name}" for name in _UPDATES)
        return (
            _NAMES.get(high, high),
            allowed,
            f"there are {names}; of complex numbers only SUM in Accumulate",
        )
    if wrong == w.WRONG_ASSERTION:
        return high, "0, or gmpi.MODE_* that the call knows, added", "MPI 4.1 section 12.5.5"
    return None


def _buffer(entry: Entry, size: int) -> tuple[str, str]:
    allowed = f"an array in one piece of at least {entry.elements * size} bytes"
    return allowed, "in device memory, or in shared memory where a block or a warp calls"


def where(entry: Entry, target: str) -> str:
    """Which call it was."""
    if entry.field - ops.WINDOW == w.WRONG_NOTIFICATION:
        return f" [target_rank {target}, window {entry.tag & LOW_32:#x}]"
    return (
        f" [target_rank {target}, target_disp {entry.value}, window {entry.tag & LOW_32:#x}, "
        f"count {entry.elements}]"
    )
