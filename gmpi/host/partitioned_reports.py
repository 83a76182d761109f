"""What reports, and calls that give memory back, want to know of partitioned requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gmpi.contract import partitions as p
from gmpi.contract.constants import ANY_SOURCE
from gmpi.contract.wire import CALL_SHIFT, OP_ISEND, PARTITIONED, PRIVATE_COMMUNICATOR
from host_proxy.platform.state import S_CALL, S_COMM, S_OP, S_PEER, S_SOURCE, S_TAG

if TYPE_CHECKING:
    from gmpi.host.partitioned_rows import End, Rows


class Known:
    """A part of ``Partitioned``, which see."""

    _rows: Rows
    _ends: dict[int, End]
    _handles: dict[int, End]

    def users_of(self, address: int, nbytes: int) -> int:
        """How many requests have their buffer in a piece of memory."""
        inside = range(address, address + max(nbytes, 1))
        return sum(end.shape.address in inside for end in self.in_use())

    def users_of_type(self, datatype: int) -> int:
        """How many requests use a derived datatype."""
        return sum(end.shape.datatype == datatype for end in self.in_use())

    def never_freed(self) -> list[str]:
        """Those that the user still has, in words."""
        return [str(end.shape) for end in self._handles.values()]

    def in_use(self) -> list[End]:
        """Those that the user still has; any thread."""
        return list(self._handles.values())

    def address_of(self, end: End) -> int:
        """Of its row."""
        return self._rows.row(end.index)

    def of_row(self, row: np.ndarray, listed: set[int]) -> End | None:
        """Which end a row of the slots table is about; None: no partitioned request.

        Args:
            listed: numbers of ends; where several would do for a wait, it is another one.
        """
        if row[S_COMM] == PRIVATE_COMMUNICATOR:
            return self._of_group(row)
        if row[S_CALL] != PARTITIONED >> CALL_SHIFT:
            return None
        at = bool(row[S_OP] == OP_ISEND), int(row[S_COMM]), int(row[S_PEER]), int(row[S_TAG])
        fitting = [end for end in self.in_use() if end.shape[:4] == at]
        others = [end for end in fitting if end.number not in listed]
        return next(iter(others + fitting), None)

    def of_rows(self, rows: np.ndarray) -> dict[int, End]:
        """By number, the ends that rows are about."""
        found: dict[int, End] = {}
        for row in rows:
            if (end := self.of_row(row, set(found))) is not None:
                found[end.number] = end
        return found

    def _of_group(self, row: np.ndarray) -> End | None:
        at = bool(row[S_OP] == OP_ISEND), int(row[S_PEER])
        for end in list(self._ends.values()):
            group = int(row[S_TAG]) - end.tag
            if end.tag and 0 <= group < p.GROUPS and (end.shape.sends, end.world) == at:
                return end
        return None

    def as_users(self, row: np.ndarray) -> np.ndarray:
        """A row of the slots table, with what the user calls a group's peer and tag; any thread."""
        if row[S_COMM] != PRIVATE_COMMUNICATOR or (end := self._of_group(row)) is None:
            return row
        row = row.copy()
        row[S_COMM], row[S_PEER], row[S_TAG] = end.shape.comm, end.shape.peer, end.shape.tag
        if row[S_SOURCE] != ANY_SOURCE:
            row[S_SOURCE] = end.shape.peer
        return row
