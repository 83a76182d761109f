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
from _himeno_faces import COUNT, EXTENT, PEER, RECV, RECV_TAG, SEND, SEND_TAG, TYPE, table, types
from _himeno_kernels import (
    DIRECT_TASKS,
    TASKS,
    block_sum,
    default_communicating,
    persistent_plan,
    take_role,
)
from _himeno_persistent import Persistent
from _himeno_stamps import BEGIN, HALO, REDUCED, SENT, SWEPT, breakdown
from _himeno_strips import wave_pays
from _himeno_sweep import BOARD, FAILED, make_sweep
from _himeno_together import Wave
from _himeno_vector import device
from mpi4py import MPI
from numba import cuda, float32, float64, int64

import gmpi
from gmpi import GMPI_Allreduce, GMPI_Irecv, GMPI_Isend, GMPI_Wait, GMPI_Waitall


def make_kernel(part, plan, count, stamped):
    """``count`` messages to receive and as many to send."""
    sweeping = make_sweep(part, plan)
    begin, sweep, await_outer = sweeping.begin, sweeping.sweep, sweeping.await_outer
    communicating, warps = plan.communicating, plan.threads // 32
    # With multiprocessors enough, each of them has one task: for each message one sends, one waits
    # for what comes, one posts the next receive and sees to it that the send before has ended; and
    # one sums up.
    apart = 3 * count < communicating
    sums_up = 3 * count if apart else count

    @device
    def receive(ctx, new, messages, requests, m, step):
        while m < count:
            peer, tag, n = messages[m, PEER], messages[m, RECV_TAG], messages[m, COUNT]
            halo = new[messages[m, RECV] : messages[m, RECV] + messages[m, EXTENT]]
            requests[m] = GMPI_Irecv(ctx, halo, n, messages[m, TYPE], peer, tag, 0)
            m += step  # range() would divide

    @device
    def outgoing(messages, m):
        """What a send needs of the table; for a block without a message, of the last one."""
        row = messages[min(m, max(count, 1) - 1)]
        return row[PEER], row[SEND_TAG], row[COUNT], row[TYPE], row[SEND], row[SEND] + row[EXTENT]

    @device
    def send(ctx, new, messages, requests, m, step, first):
        """``first`` was read before there was anything to send."""
        peer, tag, n, datatype, begin, end = first
        while m < count:
            requests[count + m] = GMPI_Isend(ctx, new[begin:end], n, datatype, peer, tag, 0)
            m += step
            if m < count:
                peer, tag, n, datatype, begin, end = outgoing(messages, m)

    @device
    def wait(ctx, requests, m):
        error = GMPI_Wait(ctx, requests[m]).error
        requests[m] = gmpi.REQUEST_NULL
        return error

    @device
    def stamp(stamps, n, which):
        if stamped and cuda.threadIdx.x == 0:
            cuda.atomic.max(stamps, (n, which), gmpi.timer_ns())

    @device
    def reduces(me, everyone):
        """Whether a block sums the residuals: the first without messages, if there is one, since
        those behind share a multiprocessor with one that has some; else who has the fewest."""
        return me == min(sums_up, everyone - 1)

    @device
    def reduce(ctx, sums, n):
        """Sum over all ranks of what the blocks have added up in iteration ``n``."""
        residual, total = sums[0, n : n + 1], sums[1, n : n + 1]
        return GMPI_Allreduce(ctx, residual, total, 1, gmpi.DOUBLE, gmpi.SUM, 0)

    # wide: the kernel's arrays, and the block's place
    @device
    def communicate(ctx, old, new, messages, requests, sums, board, stamps, n, last, me, everyone):
        """The part of block ``me`` of ``everyone`` that communicates; the highest error class.

        An iteration begins its sends and the receives of the next one, whose halo goes into
        ``old``: the outer tiles are all that read that halo. Both end with the next iteration, so
        that nothing but the message itself is between sending and the arrival of the halo. For the
        same reason another block posts the receives.
        """
        error = gmpi.SUCCESS
        begun, ending = requests[(n + 1) % 2], requests[n % 2]  # a row for each block that sends
        spread = apart and n > 0  # at first who sends does it all: handles are just being made
        waits = me - count if spread else me
        posts = me - 2 * count if spread else (me + everyone // 2 * min(n, 1)) % everyone
        stamp(stamps, n, BEGIN)
        first = outgoing(messages, me)
        if me < count or 0 <= posts < count:
            await_outer(board, n)
        if me < count:
            stamp(stamps, n, SENT)
            send(ctx, new, messages, begun[me], me, everyone, first)
        # At first those of this iteration as well, and all by who sends: in MPI's order.
        for ahead in range(min(n, 1), 2 - last):
            field = old if ahead else new
            if 0 <= posts < count:
                row = requests[(n + ahead) % 2, posts]
                receive(ctx, field, messages, row, posts, everyone)
        if n > 0 and reduces(me, everyone):
            error = reduce(ctx, sums, n - 1)
            stamp(stamps, n, REDUCED)
        if 0 <= waits < count:
            if spread:
                error = wait(ctx, ending[waits], waits)
            else:
                error = max(error, GMPI_Waitall(ctx, 2 * count, ending[waits]))
            stamp(stamps, n, HALO)
        elif spread and 0 <= posts < count:
            error = wait(ctx, ending[posts], count + posts)
        return error

    # wide: a kernel: its arrays
    @cuda.jit(max_registers=plan.registers)
    def himeno(ctx, p, q, coef, messages, requests, sums, board, stamps, iterations):
        held = cuda.shared.array(0, float32, alignment=128)
        scratch = cuda.shared.array(warps, float64)
        slot = cuda.shared.array(2, int64)
        grid = cuda.cg.this_grid()
        worker, workers, me, everyone = take_role(board, slot, communicating)
        direct, mine = begin(coef, held, worker, workers)
        failed = board[FAILED]
        for n in range(iterations):
            # A failure before this iteration: so all blocks have seen it.
            last = n + 1 == iterations or 0 < failed <= n
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
            p, q = q, p
            grid.sync()
            failed = board[FAILED]
            if last:
                break
        if me >= 0:
            if me < count:
                GMPI_Waitall(ctx, 2 * count, requests[(n + 1) % 2, me])
            if failed == 0 and reduces(me, everyone):
                reduce(ctx, sums, iterations - 1)

    return himeno


class Himeno(Persistent):
    """One rank's part, its context and its kernel."""

    name = "GMPI"
    choices = ("communicating", "messages", "together")
    direct_points = 1 << 22  # measured: README.md

    @classmethod
    def fitting(cls, comm, part, chosen):
        pays = wave_pays(part, sharers_of_gpu(comm))
        return Wave if chosen.pop("together", 1 + comm.allreduce(pays, MPI.LAND)) == 2 else cls

    def prepare(self) -> None:
        part = self.part
        few = self.comm.allreduce(default_communicating(part, self.sharers), MPI.MAX)
        if few == TASKS and self.settings.get("wildcards") is False:
            few, pieces = DIRECT_TASKS
            # Fewer where there are more neighbours: one task for each multiprocessor.
            while pieces > 1:
                tasks = 3 * self.comm.allreduce(len(table(part, pieces, 1)), MPI.MAX)
                if tasks < few:
                    break
                pieces -= 1
            self.chosen.setdefault("messages", pieces)
        self.chosen.setdefault("communicating", few)
        make_plan = partial(persistent_plan, part, self.sharers, **self.chosen)
        plan = together(self.comm, make_plan)
        # As much shared memory on all ranks: on a GPU that they share, a multiprocessor that has
        # been divided for blocks of one rank has no place for others until it is empty.
        held = self.comm.allgather(plan.held)
        self.plan = plan = plan._replace(held=max(held) if all(held) else 0)
        messages = table(part, *plan.pieces)
        most = self.comm.allreduce(len(messages), MPI.MAX)
        slots = min(64, max(32, 4 * most))  # two iterations' sends and receives
        self.open_context(slots)
        for row, datatype in zip(messages, types(part, messages)):
            if datatype is not None:
                row[TYPE], row[COUNT] = self.context.commit(datatype), 1
                self.committed.append(int(row[TYPE]))
        # Of odd iterations, of even ones; of each block: receives, then sends.
        count = max(1, len(messages))
        self.requests = cuda.device_array((2, count, 2 * count), np.int64)
        self.kernel = make_kernel(part, plan, len(messages), self.breakdown)
        self.load(messages)

    def board(self, iterations: int) -> np.ndarray:
        return np.zeros(BOARD, np.int64)

    def more(self) -> tuple[Any, ...]:
        self.requests.copy_to_device(np.full(self.requests.shape, gmpi.REQUEST_NULL))
        return (self.requests,)

    def parts(self) -> dict[str, Any]:
        return breakdown(self.stamps.copy_to_host())


if __name__ == "__main__":
    sys.exit(main(Himeno, __doc__ or ""))
