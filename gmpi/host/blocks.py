"""Buffers of the host's collectives whose blocks have counts of their own: mpi4py's vectors.

``[buf, counts]``, ``[buf, (counts, displs)]``, ``[buf, counts, displs, datatype]``, and so on:
counts are integers, one for all blocks or one for each, or None, for as many as fit; displacements
are in extents of the datatype, None for one block after the other. Of Alltoallw there is a datatype
for each block, and displacements are in bytes.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from gmpi.datatypes import interpret
from gmpi.datatypes.plans import Plan
from gmpi.errors import ArgumentError
from gmpi.host.arguments import Argument
from gmpi.host.buffer import Plans, absolute, contiguous_array, datatype_of_host
from host_proxy.reference.counts import (
    Block,
    Names,
    Wrong,
    outside,
    overlapping,
    wrong_count,
    wrong_overlap,
)

_FORMS = (
    "buf, [buf, counts], [buf, datatype], [buf, (counts, displs)], [buf, counts, datatype], "
    "[buf, (counts, displs), datatype], or [buf, counts, displs, datatype]"
)
_FORMS_W = "[buf, (counts, displs), datatypes] or [buf, counts, displs, datatypes]"


class _Spec(NamedTuple):
    """The parts of a buffer specification."""

    buf: Any
    counts: Any
    displs: Any
    datatype: Any


def as_error(call: str, wrong: Wrong) -> ArgumentError:
    """The exception that says what is wrong with an argument."""
    text = f"{wrong.field} is {wrong.value}, allowed is {wrong.allowed}"
    if wrong.advice:
        text += f"; {wrong.advice}"
    return Argument(call, wrong.field).refused(text, wrong.value, wrong.allowed, wrong.error_class)


class HostBlocks:
    """The buffer of one way of a call.

    Args:
        spec: what the user has passed.
        call: its name.
        names: of the arguments.
        writable: blocks are to come in.
        number: how many blocks.
        missing: a bit for each of them that stays as it is, whatever its count.
        typed: each has a datatype of its own.

    Attributes:
        blocks: in order.
        data: uint8[], packed, one right behind the other.
    """

    def __init__(
        self,
        spec: Any,
        call: str,
        names: Names,
        writable: bool,
        number: int,
        typed: bool,
        plans: Plans,
        missing: int = 0,
    ) -> None:
        self._call, self._names = call, names
        name = Argument(call, names.buffer)
        parts = _parts(spec, name, typed)
        datatypes = self._datatypes(parts.datatype, name, number, typed, plans)
        self._memory, item = np.empty(0, np.uint8), 1
        bottom = isinstance(parts.buf, MPI.BottomType)
        if not bottom:
            array = contiguous_array(parts.buf, name, writable)
            self._memory, item = array.view(np.uint8), array.itemsize
        kinds = [(item, None) if plan is None else _kind(plan) for plan in datatypes]
        counts = self._counts(parts.counts, number, kinds)
        displs = self._displs(parts.displs, counts)
        self.blocks: list[Block] = []
        for i, ((size, plan), given, displ) in enumerate(zip(kinds, counts, displs)):
            if given < 0:
                raise as_error(call, wrong_count(names.count_of(i), given, size))
            step = 1 if typed else size if plan is None else plan.extent
            count = 0 if missing >> i & 1 else given
            self.blocks.append(Block(count, displ * step, count * size, 0, plan))
        self._origin = 0  # index in the memory of the address that displacements count from
        if bottom:
            reaches = [_reach(block) for block in self.blocks if block.nbytes] or [(0, 0)]
            low, high = min(r[0] for r in reaches), max(r[1] for r in reaches)
            self._memory, self._origin = absolute(low, high), -low
        self._require_inside(displs)
        if writable and (pair := overlapping(self.blocks)) is not None:
            raise as_error(call, wrong_overlap(names, *pair))
        self.nbytes = sum(block.nbytes for block in self.blocks)
        begin = self._run()
        self._is_run = begin is not None
        if begin is not None:
            self.data = self._memory[begin : begin + self.nbytes]
        elif writable:
            self.data = np.empty(self.nbytes, np.uint8)
        else:
            self.data = self.packed()

    def packed(self) -> np.ndarray:
        """A copy of what the blocks have."""
        found = [self._pack(block) for block in self.blocks if block.nbytes]
        return np.concatenate(found) if found else np.empty(0, np.uint8)

    def unpack(self) -> None:
        """Moves what has come in ``data`` to where the user wants it."""
        if self._is_run:
            return
        position = 0
        for block in self.blocks:
            piece = self.data[position : position + block.nbytes]
            position += block.nbytes
            at = self._origin + block.at
            if block.plan is None:
                self._memory[at : at + block.nbytes] = piece
            elif block.nbytes:
                interpret.unpack(block.plan, piece, self._memory, block.count, at)

    def _pack(self, block: Block) -> np.ndarray:
        at = self._origin + block.at
        if block.plan is None:
            return self._memory[at : at + block.nbytes]
        return interpret.pack(block.plan, self._memory, block.count, at)

    def _run(self) -> int | None:
        """Where in memory all blocks begin, if they are one run."""
        begin = end = None
        for block in self.blocks:
            if block.nbytes == 0:
                continue
            if block.plan is not None or (end is not None and block.at != end):
                return None
            begin = block.at if begin is None else begin
            end = block.at + block.nbytes
        return 0 if begin is None else self._origin + begin

    def _require_inside(self, displs: list[int]) -> None:
        for i, block in enumerate(self.blocks):
            low, high = _reach(block)
            if block.nbytes and (
                self._origin + low < 0 or self._origin + high > self._memory.nbytes
            ):
                wrong = outside(self._names, i, block.count, displs[i], self._memory.nbytes)
                raise as_error(self._call, wrong)

    def _datatypes(
        self, given: Any, name: Argument, number: int, typed: bool, plans: Plans
    ) -> list[Plan | None]:
        """The plan of each block's datatype; None: that of the array."""
        if not typed:
            return [datatype_of_host(given, name, plans)[1]] * number
        found = [datatype_of_host(one, name, plans)[1] for one in given]
        self._require_number(self._names.types, found, number)
        return found

    def _counts(self, given: Any, number: int, kinds: list[tuple[int, Plan | None]]) -> list[int]:
        if given is None:
            if not number:
                return []
            size, plan = kinds[0]
            extent = size if plan is None else plan.extent
            whole = self._memory.nbytes // extent if extent > 0 else 0
            if extent <= 0 or self._memory.nbytes % extent or whole % number:
                allowed = f"a multiple of {number} elements, or counts beside it"
                text = f"{self._names.buffer} has {self._memory.nbytes} bytes, allowed is {allowed}"
                name = Argument(self._call, self._names.buffer)
                raise name.refused(text, whole, allowed, MPI.ERR_COUNT)
            return [whole // number] * number
        return self._integers(self._names.counts, given, number)

    def _displs(self, given: Any, counts: list[int]) -> list[int]:
        if given is None:
            begins: list[int] = np.cumsum([0, *counts[:-1]]).tolist()
            return begins[: len(counts)]
        return self._integers(self._names.displs, given, len(counts))

    def _integers(self, field: str, given: Any, number: int) -> list[int]:
        allowed = "an integer, or one for each block"
        try:
            if hasattr(given, "__index__") and not getattr(given, "ndim", 0):
                return [operator.index(given)] * number
            found = [operator.index(one) for one in given]
        except TypeError:
            text = f"{field} is {given!r}, allowed is {allowed}"
            raise Argument(self._call, field).has_wrong_type(
                text, given, allowed, MPI.ERR_COUNT
            ) from None
        self._require_number(field, found, number)
        return found

    def _require_number(self, field: str, found: list[Any], number: int) -> None:
        if len(found) != number:
            allowed = f"{number}, one for each block"
            text = f"{field} has {len(found)} elements, allowed is {allowed}"
            raise Argument(self._call, field).refused(text, len(found), allowed, MPI.ERR_COUNT)


def _kind(plan: Plan) -> tuple[int, Plan | None]:
    """(packed bytes of an element, its plan; None for bytes in one run)."""
    return plan.size, None if plan.is_contiguous and plan.bounds[0] == 0 else plan


def _reach(block: Block) -> tuple[int, int]:
    """(first, last + 1) byte that a block touches, relative to the buffer."""
    low, high = (0, block.nbytes) if block.plan is None else block.plan.reach(block.count)
    return block.at + low, block.at + high


def _parts(spec: Any, name: Argument, typed: bool) -> _Spec:
    forms = _FORMS_W if typed else _FORMS
    if not isinstance(spec, (list, tuple)):
        if typed:
            raise name.refused(f"{name} has no datatypes, allowed is {forms}", spec, forms)
        return _Spec(spec, None, None, None)
    parts = list(spec)
    if not (3 if typed else 1) <= len(parts) <= 4:
        raise name.refused(f"{name} is a sequence of {len(parts)}, allowed is {forms}", spec, forms)
    buf, rest = parts[0], parts[1:]
    datatype = None
    if len(rest) >= 2 or (rest and isinstance(rest[0], (MPI.Datatype, str))):
        datatype = rest.pop()
    counts = rest.pop(0) if rest else None
    displs = rest.pop(0) if rest else None
    if displs is None and isinstance(counts, tuple):
        if len(counts) != 2:
            allowed = "(counts, displs)"
            text = f"the counts of {name} are {counts!r}, allowed is {allowed}, or a list"
            raise name.refused(text, counts, allowed, MPI.ERR_COUNT)
        counts, displs = counts
    return _Spec(buf, counts, displs, datatype)
