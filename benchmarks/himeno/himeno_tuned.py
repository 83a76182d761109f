"""The Himeno benchmark as one kernel per rank that never exits: computing, messages, convergence.

    mpiexec -n 2 python benchmarks/himeno/himeno_tuned.py [--size S|M|L|XL|I,J,K]
        [--decompose I,J,K] [--iterations N] [--verify] [--breakdown] [--json FILE]

A few blocks communicate while the others compute. In an iteration the points that neighbours wait
for come first; as soon as they are there, they are sent, and what arrives goes into the halo of the
array that the next iteration reads. The sum of squared residuals of the iteration before travels at
the same time. One barrier of the grid separates iterations. Large parts that are cut along i have
another kernel, which sweeps two iterations together (``_himeno_together.py``).
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np
from _himeno_app import main, sharers_of_gpu, together
from _himeno_barrier import failed_in, meet
from _himeno_faces import TOGETHER, table
from _himeno_kernels import (
    DIRECT_TASKS,
    TASKS,
    block_sum,
    default_communicating,
    partitioned_tasks,
    persistent_plan,
    take_role,
)
from _himeno_messages import Messages
from _himeno_partitions import Partitions
from _himeno_persistent import Persistent
from _himeno_stamps import SWEPT, breakdown
from _himeno_strips import wave_pays
from _himeno_sweep import BOARD, FAILED, make_sweep
from _himeno_together import Wave
from _himeno_vector import device
from mpi4py import MPI
from numba import cuda, float32, float64, int64

import gmpi
from gmpi import GMPI_Allreduce


def make_kernel(part, plan, halos, stamped):
    """``halos``: Messages, or Partitions."""
    sweeping = make_sweep(part, plan)
    begin, sweep = sweeping.begin, sweeping.sweep
    communicating, warps = plan.communicating, plan.threads // 32

    @device
    def stamp(stamps, n, which):
        if stamped and cuda.threadIdx.x == 0:
            cuda.atomic.max(stamps, (n, which), gmpi.timer_ns())

    @device
    def reduce(ctx, sums, n):
        """Sum over all ranks of what the blocks have added up in iteration ``n``."""
        residual, total = sums[0, n : n + 1], sums[1, n : n + 1]
        return GMPI_Allreduce(ctx, residual, total, 1, gmpi.DOUBLE, gmpi.SUM, 0)

    exchange = halos.functions(plan, sweeping.await_outer, stamp, reduce)
    begin_exchange, end_exchange = exchange.begin, exchange.end
    communicate, reduces = exchange.communicate, exchange.reduces

    # wide: a kernel: its arrays
    @cuda.jit(max_registers=plan.registers)
    def himeno(ctx, p, q, coef, messages, requests, sums, board, stamps, iterations):
        held = cuda.shared.array(0, float32, alignment=128)
        scratch = cuda.shared.array(warps, float64)
        slot = cuda.shared.array(2, int64)
        grid = cuda.cg.this_grid()
        worker, workers, me, everyone = take_role(board, slot, communicating)
        direct, mine = begin(coef, held, worker, workers)
        if me >= 0:
            begin_exchange(ctx, requests, me, everyone)
        grid.sync()
        stops = False
        for n in range(iterations):
            last = n + 1 == iterations or stops
            failed = failed_in(board)
            if worker >= 0:
                share = sweep(p, q, coef, held, board, slot, n, worker, workers, direct, mine)
                residual = block_sum(share, scratch)
                stamp(stamps, n, SWEPT)
                if cuda.threadIdx.x == 0:
                    cuda.atomic.add(sums, (0, n), residual)
            else:
                error = communicate(
                    ctx, p, q, messages, requests, sums, board, stamps, n, last, me, everyone
                )
                if error != gmpi.SUCCESS and failed == 0 and cuda.threadIdx.x == 0:
                    board[FAILED] = n + 1
            # A failure before this iteration: so all blocks have seen it.
            stops = 0 < failed <= n
            p, q = q, p
            meet(board, n)
            if last:
                break
        if me >= 0:
            end_exchange(ctx, requests, n, me, everyone)
            if failed_in(board) == 0 and reduces(me, everyone):
                reduce(ctx, sums, iterations - 1)

    return himeno


class Himeno(Persistent):
    """One rank's part, its context and its kernel."""

    name = "GMPI"
    choices = ("communicating", "messages", "together")
    halos: Messages | Partitions
    direct_points = 1 << 22  # measured: README.md

    @classmethod
    def fitting(cls, comm, part, chosen):
        pays = wave_pays(part, sharers_of_gpu(comm))
        return Wave if chosen.pop("together", 1 + comm.allreduce(pays, MPI.LAND)) == 2 else cls

    def prepare(self) -> None:
        part = self.part
        few = self.comm.allreduce(default_communicating(part, self.sharers), MPI.MAX)
        kind = self.kind_of_halos(few)
        make_plan = partial(persistent_plan, part, self.sharers, **self.chosen)
        plan = together(self.comm, make_plan)
        # As much shared memory on all ranks: on a GPU that they share, a multiprocessor that has
        # been divided for blocks of one rank has no place for others until it is empty.
        held = self.comm.allgather(plan.held)
        self.plan = plan = plan._replace(held=max(held) if all(held) else 0)
        self.halos = kind(part, plan)
        most = self.comm.allreduce(self.halos.count, MPI.MAX)
        self.open_context(min(64, max(32, 4 * most)))  # two iterations' sends and receives
        self.halos.open(self.context, part, self.fields)
        self.kernel = make_kernel(part, plan, self.halos, self.breakdown)
        self.load(self.halos.table)

    def kind_of_halos(self, few: int) -> type[Messages] | type[Partitions]:
        """How halos travel: as partitions on the direct road, if each face lies in one piece, else
        as messages. Chooses what the plan needs for it.

        Args:
            few: multiprocessors that communicate, unless something else is chosen.
        """
        faces = table(self.part)
        direct = self.settings.get("wildcards") is False
        most = self.comm.allreduce(len(faces), MPI.MAX)
        kind: type[Messages] | type[Partitions] = Messages
        if direct and self.comm.allreduce(bool(faces[:, TOGETHER].all()), MPI.LAND):
            kind, (few, pieces) = Partitions, partitioned_tasks(few, most)
            self.chosen.setdefault("messages", pieces)
        elif direct and few == TASKS:
            few, pieces = DIRECT_TASKS
            # Fewer where there are more neighbours: one task for each multiprocessor.
            while pieces > 1:
                tasks = 3 * self.comm.allreduce(len(table(self.part, pieces, 1)), MPI.MAX)
                if tasks < few:
                    break
                pieces -= 1
            self.chosen.setdefault("messages", pieces)
        self.chosen.setdefault("communicating", few)
        return kind

    def board(self, iterations: int) -> np.ndarray:
        return np.zeros(BOARD, np.int64)

    def more(self) -> tuple[Any, ...]:
        self.halos.reset(self.fields)
        return (self.halos.requests,)

    def close(self) -> None:
        self.halos.close(self.context)
        super().close()

    def parts(self) -> dict[str, Any]:
        return breakdown(self.stamps.copy_to_host())


if __name__ == "__main__":
    sys.exit(main(Himeno, __doc__ or ""))
