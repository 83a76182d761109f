"""The derived datatypes of a context: rows of a table that its kernels and its proxy read.

A row is written before its handle is known to anybody, and a handle names the generation of its
row, so a kernel that still has the handle of a freed datatype is told so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from gmpi.contract import layouts
from gmpi.contract.constants import DATATYPE_MARK, DATATYPE_NAMES, DATATYPES, FIRST_WITH_GAPS
from gmpi.contract.sizes import Layout
from gmpi.datatypes.basic import basic_size
from gmpi.datatypes.descriptor import Tables, alignment_of, describe, table_arrays
from gmpi.datatypes.overlap import distinct_elements
from gmpi.datatypes.plans import Plan
from gmpi.errors import ContextError, DatatypeError
from gmpi.memory.regions import Memory
from gmpi.packing.calls import plan_of
from gmpi.packing.driver import upload
from host_proxy.platform.state import D_HANDLE, D_SIZE, OPEN, S_DATATYPE, S_STATE, State

_GENERATIONS = (layouts.DERIVED_MASK + 1) >> layouts.DERIVED_GENERATION_SHIFT


class _Row(NamedTuple):
    handle: int
    plan: Plan
    keep: list[Any]  # the tables in device memory


class Datatypes:
    """What ``Context.commit`` and ``Context.free`` do."""

    def __init__(self, layout: Layout, memory: Memory, state: State, kernels: bool) -> None:
        self._base = layout.datatypes
        self._memory = memory
        self._state = state
        self._kernels = kernels
        self._rows: list[_Row | None] = [None] * layouts.DERIVED_ROWS
        self._generation = 0
        self.users: Callable[[int], int] = lambda handle: 0  # partitioned requests of a datatype

    @property
    def plans(self) -> dict[int, Plan]:
        """Handle -> plan of what is committed."""
        return {row.handle: row.plan for row in self._rows if row is not None}

    def commit(self, datatype: MPI.Datatype, running: bool) -> int:
        """The handle of a datatype; ``running``: a kernel may be waiting for something."""
        if datatype != MPI.DATATYPE_NULL and datatype.is_predefined:
            for handle in DATATYPE_NAMES:
                number = handle & 0xFF
                if DATATYPES[number][1] == datatype and number < FIRST_WITH_GAPS:
                    return handle
        plan = plan_of(datatype)
        if running and (plan.device_bytes or len(plan.parts) > 1):
            raise DatatypeError(
                "this datatype takes tables in device memory, and to allocate them would wait for "
                "the kernel that is running; commit it before the launch"
            )
        if None not in self._rows:
            raise ContextError(f"{layouts.DERIVED_ROWS} datatypes are committed; free some first")
        index = self._rows.index(None)
        self._generation = (self._generation + 1) % _GENERATIONS
        handle = layouts.DERIVED_MARK | self._generation << layouts.DERIVED_GENERATION_SHIFT | index
        keep: list[Any] = []
        if self._kernels:
            inside = self._address(index) + layouts.TYPE_HEADER
            words = _row_words(plan, basic_size(datatype), handle, inside, keep)
            self._memory.write_device(self._base + index * layouts.TYPE_BYTES, words)
        self._rows[index] = _Row(handle, plan, keep)
        self._state.plans[handle] = plan
        self._state.derived[index, D_SIZE] = plan.size
        self._state.derived[index, D_HANDLE] = handle
        return handle

    def free(self, handle: int, running: bool) -> None:
        """Forgets a datatype. Its MPI datatype is the caller's."""
        name = f"{int(handle):#x}"
        if handle & ~0xFFFF == DATATYPE_MARK:
            known = DATATYPE_NAMES.get(handle, name)
            raise DatatypeError(f"gmpi.{known} is predefined and cannot be freed")
        index = handle & (layouts.DERIVED_ROWS - 1)
        row = self._rows[index] if handle & ~layouts.DERIVED_MASK == layouts.DERIVED_MARK else None
        if row is None or row.handle != handle:
            raise DatatypeError(
                f"{name} is no committed datatype: it was freed before, or did not come from "
                "Context.commit() of this context"
            )
        if running:
            raise DatatypeError(
                f"the datatype {name} cannot be freed while a kernel of this context is running, "
                "which may use it; synchronize first"
            )
        if requests := self.users(handle):
            raise DatatypeError(
                f"the datatype {name} cannot be freed: {requests} partitioned requests use it; "
                "free them first (Context.Request_free)"
            )
        slots = self._state.slots
        users = int(((slots[:, S_STATE] == OPEN) & (slots[:, S_DATATYPE] == handle)).sum())
        for blocks in list(self._state.blocks.values()):
            users += any(block.datatype == handle for block in [*blocks.out, *blocks.back])
        if users:
            raise DatatypeError(
                f"the datatype {name} cannot be freed: {users} open requests use it; complete "
                "them first (see Context.pending)"
            )
        self._state.derived[index, D_HANDLE] = 0
        self._state.plans.pop(handle, None)
        if self._kernels:
            nobody = np.zeros(layouts.TYPE_BYTES // 8, np.int64)
            self._memory.write_device(self._base + index * layouts.TYPE_BYTES, nobody)
        self._rows[index] = None

    def row_address(self, handle: int) -> int:
        """Where kernels find a committed datatype."""
        return self._address(handle & (layouts.DERIVED_ROWS - 1))

    def _address(self, index: int) -> int:
        return self._memory.device + self._base + index * layouts.TYPE_BYTES


def _row_words(plan: Plan, basic: int, handle: int, inside: int, keep: list[Any]) -> np.ndarray:
    """A row of the table.

    Args:
        basic: ``basic_size`` of the datatype.
        inside: address of its own descriptor.
    """
    words = np.zeros(layouts.TYPE_BYTES // 8, np.int64)
    # One part repeats by itself; several are taken element by element.
    single = len(plan.parts) == 1
    descriptors = []
    for part in plan.parts:
        alignment = alignment_of(part, plan.extent) if single else part.alignment
        tables = upload(table_arrays(part, alignment), keep)
        descriptors.append(describe(part, Tables(**tables), plan.extent, alignment))
    where = inside
    if single:
        words[layouts.TYPE_HEADER // 8 :][: len(descriptors[0])] = descriptors[0]
    elif descriptors:
        where = upload({"descriptors": np.concatenate(descriptors)}, keep)["descriptors"]
    words[layouts.TYPE_HANDLE // 8] = handle
    words[layouts.TYPE_SIZE // 8] = plan.size
    words[layouts.TYPE_EXTENT // 8] = plan.extent
    words[layouts.TYPE_LOW // 8], words[layouts.TYPE_HIGH // 8] = plan.reach(1)
    most = min(distinct_elements(plan), layouts.DISTINCT_MASK)
    words[layouts.TYPE_DISTINCT // 8] = most | basic << layouts.TYPE_BASIC_SHIFT
    words[layouts.TYPE_PARTS // 8] = len(plan.parts)
    words[layouts.TYPE_DESCRIPTORS // 8] = where
    return words
