"""What reports say of partitioned requests: which partitions lack, and whom a kernel asks for them.

Read from the rows in device memory, which the host can do while kernels run; only where there are
such requests.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gmpi.contract import partitions as p
from gmpi.contract.constants import PROC_NULL
from gmpi.contract.wire import PARTITIONED_ROW_BYTES
from gmpi.diagnose.tables import Ended, Pending
from gmpi.observe.asked import Asked
from host_proxy.platform import operations as ops
from host_proxy.platform.state import S_BLOCK, S_CALL, S_COMMANDS, S_OP, S_SERIAL

if TYPE_CHECKING:
    from gmpi.context import Context
    from gmpi.host.partitioned_rows import End


class PartitionedLook:
    """Looks at the partitioned requests of one context again and again."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.moved = 0  # changes when one of those that somebody waits for gets on
        self._asked = Asked()  # by handle
        self._polled: list[End] = []

    def note(self, now: float, waits: np.ndarray) -> bool:
        """Whether a kernel asks in vain for partitions (GMPI_Parrived), or tests a request.

        Args:
            waits: open rows of the slots table.
        """
        known = self.context._partitioned
        ends = [end for end in known.in_use() if end.shape.peer != PROC_NULL]
        if not ends:
            return False
        try:
            return self._look(now, ends, known.of_rows(waits))
        except RuntimeError:  # a kernel has died: others say so
            return False

    def _look(self, now: float, ends: list[End], waited: dict[int, End]) -> bool:
        self._polled, self.moved = [], 0
        rows = {end.handle: self._row(end) for end in ends}
        asked = self._asked.of({n: int(row[p.ASKED // 8]) for n, row in rows.items()}, now)
        for end in ends:
            row = rows[end.handle]
            polled = end.handle in asked and bool(row[p.STATE // 8] & p.ACTIVE)
            if polled:
                self._polled.append(end)
            if polled or end.number in waited:
                self.moved += int(row[p.STATE // 8]) - len(self._missing(end, row))
        return bool(self._polled)

    def pending(self, rows: np.ndarray, ages: list[float]) -> tuple[list[Pending], set[int]]:
        """Of each request that somebody waits for, once; and which of the rows are about them.

        Args:
            rows: open ones of the slots table.
        """
        known = self.context._partitioned
        found: dict[int, Pending] = {}
        theirs = set()
        for i, row in enumerate(rows):
            if (end := known.of_row(row, set(found))) is None:
                continue
            theirs.add(i)
            former = found.get(end.number)
            commands = int(row[S_COMMANDS]) + (former.commands if former else 0)
            name = ops.name_of(int(row[S_OP]), int(row[S_CALL]))
            block, serial = int(row[S_BLOCK]), int(row[S_SERIAL])
            found[end.number] = self._words(end, name, (block, serial), commands, ages[i])
        for end in self._polled:
            asked = int(self._row(end)[p.ASKED_BLOCK // 8])
            block = asked & ~p.BY_TEST
            former = found.get(end.number)  # the messages of its groups
            request = former or self._words(end, "", (block, 0), 0, 0.0)
            name = "GMPI_Test" if asked & p.BY_TEST else "GMPI_Parrived"
            found[end.number] = replace(request, operation=name, block=block)
        return list(found.values()), theirs

    def ends(self) -> list[Ended]:
        """All of them, for the other rank to compare."""
        groups = self.context._communicators.groups
        found = []
        for end in self.context._partitioned.in_use():
            shape, row = end.shape, self._row(end)
            if shape.peer == PROC_NULL:
                continue
            state = int(row[p.STATE // 8])
            missing = self._missing(end, row) if state & p.ACTIVE else []
            found.append(
                Ended(
                    end.number, end.other, shape.sends, end.world, shape.tag,
                    groups[shape.comm].identity, shape.partitions, state >> p.ROUND_SHIFT,
                    len(missing), _ranges(missing),
                )
            )  # fmt: skip
        return found

    # --- one end ----------------------------------------------------------------------------------

    def _words(
        self, end: End, name: str, where: tuple[int, int], commands: int, age_s: float
    ) -> Pending:
        shape, row = end.shape, self._row(end)
        missing = self._missing(end, row)
        lacks = f"all {shape.partitions} partitions are "
        lacks += "ready" if shape.sends else "in the buffer"
        if missing:
            one = len(missing) == 1
            lacks = f"partition{'' if one else 's'} {_ranges(missing)} of {shape.partitions} "
            lacks += ("is" if one else "are") + " not " + ("ready" if shape.sends else "there")
        return Pending(
            name, "send" if shape.sends else "receive", end.world, shape.tag,
            self.context._communicators.groups[shape.comm].identity, "", 0, shape.total,
            *where, commands=commands, age_s=age_s, lacks=lacks, end=end.number,
        )  # fmt: skip

    def _row(self, end: End) -> np.ndarray:
        at = self.context._partitioned.address_of(end)
        words: np.ndarray = self.context._memory.fetch(at, PARTITIONED_ROW_BYTES).view(np.int64)
        return words

    def _missing(self, end: End, row: np.ndarray) -> list[int]:
        """Which partitions are not ready, or not in the buffer as far as anybody has looked."""
        shape, memory = end.shape, self.context._memory
        number = int(row[p.STATE // 8]) >> p.ROUND_SHIFT
        mode = int(row[p.SHAPE // 8]) >> p.MODE_SHIFT & p.MODE_MASK
        if mode == p.PROXIED and not shape.sends:
            records = memory.fetch(end.groups, p.GROUPS * p.GROUP_BYTES).view(np.int64)
            states = records[p.GROUP_STATE // 8 :: p.GROUP_BYTES // 8]
            group = np.arange(shape.partitions) // int(row[p.GROUP_PARTITIONS // 8])
            there = states[group] == number << p.GROUP_SHIFT | p.DONE
        else:
            marks = memory.fetch(int(row[p.MARKS // 8]), shape.partitions * p.MARK_BYTES)
            words = marks.view(np.int64)
            there = words >> p.MARK_SHIFT == number
            if not shape.sends:
                there &= words & 3 == p.TAKEN
        return [int(k) for k in np.flatnonzero(~there)]


def _ranges(numbers: list[int]) -> str:
    """``0, 3-7``; a long list is cut."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    text = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs[:4])
    return text + (", ..." if len(runs) > 4 else "")
