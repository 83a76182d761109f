"""Halos as messages: each block that communicates sends, receives and waits for its share of them.

Receives are posted one iteration ahead, and sends are waited for one iteration later.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from _himeno_faces import COUNT, EXTENT, PEER, RECV, RECV_TAG, SEND, SEND_TAG, TYPE, table, types
from _himeno_grid import Part
from _himeno_stamps import BEGIN, HALO, REDUCED, SENT
from _himeno_sweep import Plan
from _himeno_vector import device
from numba import cuda

import gmpi
from gmpi import GMPI_Irecv, GMPI_Isend, GMPI_Wait, GMPI_Waitall


class Messages:
    """What a rank exchanges in an iteration, and the requests of two.

    Attributes:
        table: of ``_himeno_faces``.
        count: messages to receive, and as many to send.
        requests: int64[2, count, 2 * count] on the device: of odd iterations, of even ones; of each
            block: receives, then sends.
    """

    def __init__(self, part: Part, plan: Plan) -> None:
        self.table = table(part, *plan.pieces)
        self.count = len(self.table)
        self._committed: list[int] = []

    def open(self, context: gmpi.Context, part: Part, fields: Any) -> None:
        for row, datatype in zip(self.table, types(part, self.table)):
            if datatype is not None:
                row[TYPE], row[COUNT] = context.commit(datatype), 1
                self._committed.append(int(row[TYPE]))
        count = max(1, self.count)
        self.requests = cuda.device_array((2, count, 2 * count), np.int64)

    def reset(self, fields: Any) -> None:
        """Before a run."""
        self.requests.copy_to_device(np.full(self.requests.shape, gmpi.REQUEST_NULL))

    def close(self, context: gmpi.Context) -> None:
        for handle in self._committed:
            context.free(handle)

    def functions(
        self, plan: Plan, await_outer: Callable, stamp: Callable, reduce: Callable
    ) -> SimpleNamespace:
        """What blocks that communicate do."""
        return make_functions(self.count, plan, await_outer, stamp, reduce)


def make_functions(
    count: int, plan: Plan, await_outer: Callable, stamp: Callable, reduce: Callable
) -> SimpleNamespace:
    """``begin`` before the first iteration and a barrier of the grid, ``communicate`` in each,
    ``end`` after the last; ``reduces`` says who sums the residuals."""
    communicating = plan.communicating
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
    def begin(ctx, requests, me, everyone):
        """Nothing: the first iteration posts its own receives."""

    @device
    def reduces(me, everyone):
        """Whether a block sums the residuals: the first without messages, if there is one, since
        those behind share a multiprocessor with one that has some; else who has the fewest."""
        return me == min(sums_up, everyone - 1)

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

    @device
    def end(ctx, requests, n, me, everyone):
        """After iteration ``n``, the last one."""
        if me < count:
            GMPI_Waitall(ctx, 2 * count, requests[(n + 1) % 2, me])

    return SimpleNamespace(begin=begin, communicate=communicate, end=end, reduces=reduces)
