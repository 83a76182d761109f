"""Himeno's kernel that sweeps two iterations together (``_himeno_wave.py``), and its messages.

No barrier holds anybody up. Each message has a block of its own, which begins it when its plane is
done and tells the sweeping blocks when the halo has come; one more block sums up the residuals. For
grids that are cut along i.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from _himeno_app import together
from _himeno_faces import COUNT, EXTENT, PEER, RECV, RECV_TAG, SEND, SEND_TAG, table
from _himeno_grid import Part
from _himeno_kernels import take_role
from _himeno_persistent import Persistent
from _himeno_signals import ARRIVED, ARRIVED_RIGHT, STALLED, UPDATED, UPDATED_RIGHT
from _himeno_stamps import BEGIN, HALO, REDUCED, SENT, wave_breakdown
from _himeno_strips import wave_plan
from _himeno_sweep import FAILED, Plan
from _himeno_vector import device, peek
from _himeno_wave import make_wave
from numba import cuda, int64

import gmpi
from device_lib.platform.primitives import fence_gpu, sync_block, thread_rank
from gmpi import GMPI_Allreduce, GMPI_Irecv, GMPI_Isend, GMPI_Waitall


def make_kernel(part: Part, plan: Plan, messages: np.ndarray, stamped: bool) -> SimpleNamespace:
    """``kernel`` ``(ctx, p, q, coef, messages, sums, board, stamps, iterations)``, cooperative, and
    ``fresh``, which makes a board for so many iterations."""
    count = len(messages)
    rank = part.place[0]
    to_left = int((messages[:, PEER] < rank).sum()) if count else 0  # these come first
    each = to_left or count
    made = make_wave(part, plan._replace(messages=each))
    sweep, summed_at = made.sweep, made.summed_at
    of_plane, in_round = made.of_plane, made.in_round
    communicating = plan.communicating

    @device
    def stamp(stamps, n, which, wanted):
        if stamped and wanted and thread_rank() == 0:
            cuda.atomic.max(stamps, (n, which), gmpi.timer_ns())

    @device
    def await_word(board, word, least, slot):
        """Waits until a word of the board is ``least``; whether it is, and nobody has failed."""
        if thread_rank() == 0:
            failed = int64(0)
            while failed == 0 and peek(board, word) < least:
                cuda.nanosleep(50)
                failed = peek(board, FAILED)
            slot[0] = failed
            fence_gpu()
        sync_block()
        going = slot[0] == 0
        sync_block()
        return going

    @device
    def fail(board, n):
        if thread_rank() == 0:
            cuda.atomic.max(board, FAILED, n + 1)

    @device
    def tell(board, word):
        """Adds one, behind all that this block has received."""
        sync_block()
        if thread_rank() == 0:
            fence_gpu()
            cuda.atomic.add(board, word, 1)

    @device
    def receive(ctx, field, row):
        halo = field[row[RECV] : row[RECV] + row[EXTENT]]
        return GMPI_Irecv(ctx, halo, row[COUNT], gmpi.FLOAT, row[PEER], row[RECV_TAG], 0)

    @device
    def send(ctx, field, row):
        face = field[row[SEND] : row[SEND] + row[EXTENT]]
        return GMPI_Isend(ctx, face, row[COUNT], gmpi.FLOAT, row[PEER], row[SEND_TAG], 0)

    @device
    def ended(ctx, coming, going, me, board, stamps, n):
        """Waits for the halo of iteration ``n`` and the send before; whether both are right."""
        error = GMPI_Waitall(ctx, 2, (coming, going))
        stamp(stamps, n, HALO, me < each)
        if error != gmpi.SUCCESS:
            fail(board, n)
        return error == gmpi.SUCCESS

    # wide: the kernel's arguments, and the block's place
    @device
    def exchange(ctx, p, q, row, me, board, slot, stamps, iterations):
        """One message each way an iteration; a block. The receive of the next one is posted when
        the tiles that read the halo before are done, and a send ends with the next one."""
        updated, arrived = (UPDATED, ARRIVED) if me < to_left else (UPDATED_RIGHT, ARRIVED_RIGHT)
        nothing = int64(gmpi.REQUEST_NULL)
        coming = receive(ctx, q, row)
        going = nothing
        for n in range(iterations):
            old, new = (p, q) if n & 1 == 0 else (q, p)
            # Of two iterations the halo of one comes half a round before our own plane is done: it
            # is waited for at once, else after our own has been sent.
            early = (n & 1 == 1) == (me < to_left)
            if early and not ended(ctx, coming, going, me, board, stamps, n):
                return
            if not await_word(board, updated, (n + 1) * of_plane, slot):
                return
            if early:
                tell(board, arrived)  # not before: another piece of the halo before may be missing
            stamp(stamps, n, SENT, me < each)
            begun = send(ctx, new, row)
            ahead = nothing
            if n + 1 < iterations:
                ahead = receive(ctx, old, row)
            if not early:
                if not ended(ctx, coming, going, me, board, stamps, n):
                    return
                tell(board, arrived)
            coming, going = ahead, begun
        if GMPI_Waitall(ctx, 1, (going,)) != gmpi.SUCCESS:
            fail(board, iterations)

    @device
    def reduce(ctx, sums, board, slot, stamps, iterations):
        """The sum over all ranks of every iteration; a block."""
        for n in range(iterations):
            if not await_word(board, summed_at(n), in_round, slot):
                return
            stamp(stamps, n, BEGIN, True)
            residual, total = sums[0, n : n + 1], sums[1, n : n + 1]
            error = GMPI_Allreduce(ctx, residual, total, 1, gmpi.DOUBLE, gmpi.SUM, 0)
            stamp(stamps, n, REDUCED, True)
            if error != gmpi.SUCCESS:
                fail(board, n)
                return

    # wide: a kernel: its arrays
    @cuda.jit(max_registers=plan.registers)
    def himeno(ctx, p, q, coef, messages, sums, board, stamps, iterations):
        slot = cuda.shared.array(2, int64)
        worker, _, me, _ = take_role(board, slot, communicating)
        if worker >= 0:
            sweep(p, q, coef, sums, board, worker, iterations)
        elif me < count:
            exchange(ctx, p, q, messages[me], me, board, slot, stamps, iterations)
        elif me == count:
            reduce(ctx, sums, board, slot, stamps, iterations)

    return SimpleNamespace(kernel=himeno, fresh=made.fresh, warps=of_plane)


class Wave(Persistent):
    """One rank's part, its context and its kernel."""

    name = "GMPI"
    together = 2
    direct_points = 1 << 25  # measured: README.md

    def prepare(self) -> None:
        part = self.part
        make_plan = partial(wave_plan, part, self.sharers, **self.chosen)
        self.plan = together(self.comm, make_plan)
        messages = table(part, *self.plan.pieces)
        make = partial(make_kernel, part, self.plan, messages, self.breakdown)
        made = together(self.comm, make)
        self.kernel, self.fresh, self.warps = made.kernel, made.fresh, made.warps
        slots = max(32, 8 * self.plan.messages)  # two sides, two iterations' sends and receives
        self.open_context(slots)
        self.load(messages)

    def board(self, iterations: int) -> np.ndarray:
        board: np.ndarray = self.fresh(iterations)
        return board

    def parts(self) -> dict[str, Any]:
        stamps, board = self.stamps.copy_to_host(), self.device_board.copy_to_host()
        stalled = board[STALLED : STALLED + 2].max() / self.warps / len(stamps)
        return wave_breakdown(stamps, stalled)
