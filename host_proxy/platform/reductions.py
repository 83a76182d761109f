"""The operations that a reduction may name: MPI's predefined ones, and those of ``Context.op``."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from gmpi.contract.constants import OPERATIONS, OPERATIONS_REDUCE
from gmpi.errors import ContextError
from host_proxy.platform import mpi_library


class Reductions:
    """Numbers of operations, as kernels pass them, and what MPI knows them by.

    Attributes:
        table: int64[OPERATIONS], MPI's handles, for compiled code; 0 where there is none.
        known: mpi4py's objects.
    """

    def __init__(self) -> None:
        self.table = np.zeros(OPERATIONS, np.int64)
        self.known: list[MPI.Op] = []
        for _, op in OPERATIONS_REDUCE:
            self._append(op)

    def _append(self, op: MPI.Op) -> int:
        number = len(self.known)
        self.table[number] = mpi_library.handle(op)
        self.known.append(op)
        return number

    def number_of(self, op: MPI.Op) -> int | None:
        """None: it has none."""
        return next((number for number, known in enumerate(self.known) if known == op), None)

    def add(self, op: MPI.Op) -> int:
        """The number of an operation; the same for the same one.

        Raises:
            ContextError: there are too many.
        """
        if (number := self.number_of(op)) is not None:
            return number
        if len(self.known) == OPERATIONS:
            own = OPERATIONS - len(OPERATIONS_REDUCE)
            raise ContextError(
                f"{own} operations are registered, allowed are {own}; they stay until the context "
                "closes, so register each once"
            )
        return self._append(op)
