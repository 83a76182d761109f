"""What the programs with one kernel for all iterations share."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from _himeno_app import Solver, together
from _himeno_kernels import grid_blocks
from _himeno_stamps import STAMPS
from _himeno_sweep import Plan
from numba import cuda

import gmpi


class Persistent(Solver):
    """One rank's part, its context and its kernel.

    Attributes:
        plan, kernel, context, messages: made by ``prepare``; the messages on the device.
        sums: float64[2, iterations]: residuals of this rank, and of all.
        stamps: int64[iterations or 1, STAMPS].
    """

    plan: Plan
    kernel: Any
    context: gmpi.Context
    messages: Any

    def open_context(self, large_slots: int) -> None:
        self.attach(gmpi.Context(self.comm, large_slots=large_slots, **self.settings))

    def attach(self, context: gmpi.Context) -> None:
        """It runs with this context from now on, which has the settings that it was made with."""
        self.context = context
        if self.settings.get("wildcards") is False:  # halos come straight from the neighbour
            for field in (self.fields.p, self.fields.q):
                self.context.register(field)

    def load(self, messages: np.ndarray) -> None:
        """Compiles the kernel; when all else has been prepared."""
        self.messages = cuda.to_device(messages if len(messages) else np.zeros((1, 13), np.int64))
        args = self.arguments(1)
        count = partial(grid_blocks, self.kernel, args, self.plan, self.sharers)
        self.blocks = together(self.comm, count)

    def board(self, iterations: int) -> np.ndarray:
        """The kernel's board before it starts."""
        raise NotImplementedError

    def more(self) -> tuple[Any, ...]:
        """Arguments of the kernel between ``messages`` and ``sums``."""
        return ()

    def arguments(self, iterations: int) -> tuple[Any, ...]:
        rows = iterations if self.breakdown else 1
        self.sums = cuda.to_device(np.zeros((2, iterations)))
        self.stamps = cuda.to_device(np.zeros((rows, STAMPS), np.int64))
        self.device_board = cuda.to_device(self.board(iterations))
        return (
            self.context.device, *(self.fields.p, self.fields.q, self.fields.coef, self.messages),
            *(*self.more(), self.sums, self.device_board, self.stamps, iterations),
        )  # fmt: skip

    def run(self, iterations: int) -> np.ndarray:
        """Residual of each iteration; the newest pressure is ``fields.p``."""
        args = self.arguments(iterations)
        launch = self.kernel[self.blocks, self.plan.threads, self.stream, self.plan.shared_bytes]
        with self.timed():
            launch(*args)
            self.finish()
        self.context.synchronize()  # raises what went wrong
        if iterations % 2:
            self.fields.swap()
        return self.sums.copy_to_host()[1]

    def close(self) -> None:
        self.context.close()
