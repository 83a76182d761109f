"""Halos as partitioned requests: of each face, blocks send the shares that they are given.

Nothing is matched in an iteration, and no receive is posted: the requests are made once, for each
array and face, and one block starts those of the next iteration.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from _himeno_faces import COUNT, PEER, RECV, RECV_TAG, SEND, SEND_TAG, table
from _himeno_grid import Part
from _himeno_stamps import BEGIN, HALO, REDUCED, SENT
from _himeno_sweep import Plan
from _himeno_vector import device
from numba import cuda

import gmpi
from gmpi import GMPI_Parrived, GMPI_Pready, GMPI_Start, GMPI_Wait

_SENDS, _RECEIVES = 0, 1
_VECTOR = 4  # elements: a partition has whole ones


def partitions_of(elements: int, most: int) -> int:
    """Into how many equal partitions of whole vectors a face is cut."""
    fitting = (n for n in range(most, 1, -1) if elements % (n * _VECTOR) == 0)
    return next(fitting, 1)


class Partitions:
    """What a rank exchanges in an iteration. All faces are as long: the grid is cut along i alone.

    Attributes:
        table: of ``_himeno_faces``, a row for each face.
        count: partitions of all faces to receive, and as many to send.
        requests: int64[2, 2, faces] on the device: of the kernel's first and second array, sends
            and receives.
    """

    def __init__(self, part: Part, plan: Plan) -> None:
        self.table = table(part)
        elements = int(self.table[0, COUNT]) if len(self.table) else 0
        self.partitions = partitions_of(elements, plan.pieces[0])
        self.count = len(self.table) * self.partitions

    def open(self, context: gmpi.Context, part: Part, fields: Any) -> None:
        made = []
        for field in (fields.p, fields.q):
            for make, first, tag in (
                (context.Psend_init, SEND, SEND_TAG),
                (context.Precv_init, RECV, RECV_TAG),
            ):
                for row in self.table:
                    face = field[row[first] : row[first] + row[COUNT]]
                    each = int(row[COUNT]) // self.partitions
                    made.append(
                        make(face, self.partitions, each, gmpi.FLOAT, int(row[PEER]), int(row[tag]))
                    )
        shape = 2, 2, max(1, len(self.table))
        self._made, self._first = made, fields.p
        self._handles = np.resize(np.array(made or [gmpi.REQUEST_NULL], np.int64), shape)
        self.requests = cuda.device_array(shape, np.int64)

    def reset(self, fields: Any) -> None:
        """Before a run, which may begin with either array."""
        handles = self._handles if fields.p is self._first else self._handles[::-1].copy()
        self.requests.copy_to_device(handles)

    def close(self, context: gmpi.Context) -> None:
        for request in self._made:
            context.Request_free(request)

    def functions(
        self, plan: Plan, await_outer: Callable, stamp: Callable, reduce: Callable
    ) -> SimpleNamespace:
        """What blocks that communicate do: as ``_himeno_messages``."""
        return make_functions(len(self.table), self.partitions, await_outer, stamp, reduce)


def make_functions(
    faces: int, partitions: int, await_outer: Callable, stamp: Callable, reduce: Callable
) -> SimpleNamespace:
    """Each block sends some partitions and takes the neighbours' of the same numbers; one more
    block, if there is one, starts requests, another one sums the residuals."""
    count = faces * partitions

    @device
    def starts(me, everyone):
        return me == min(count, everyone - 1)

    @device
    def reduces(me, everyone):
        return me == min(count + 1, everyone - 1)

    @device
    def start(ctx, requests, array, way):
        """Starts what goes from an array, or comes to it; the highest error class of the last
        time."""
        error = gmpi.SUCCESS
        for face in range(faces):
            request = requests[array, way, face]
            error = max(error, GMPI_Wait(ctx, request).error)
            error = max(error, GMPI_Start(ctx, request))
        return error

    @device
    def request_of(requests, array, way, m):
        """That of partition ``m`` of all faces; for a block that has none, of the last one."""
        return requests[array, way, min(m, max(count, 1) - 1) // partitions]

    @device
    def begin(ctx, requests, me, everyone):
        """Starts those of the first iteration, before a barrier of the grid."""
        if starts(me, everyone):
            start(ctx, requests, 1, _SENDS)
            start(ctx, requests, 1, _RECEIVES)

    # wide: as that of ``_himeno_messages``
    @device
    def communicate(ctx, old, new, messages, requests, sums, board, stamps, n, last, me, everyone):
        """The part of block ``me`` of ``everyone`` that communicates; the highest error class."""
        error = gmpi.SUCCESS
        array = (n + 1) % 2  # the new one
        stamp(stamps, n, BEGIN)
        # Read before there is anything to send.
        send = request_of(requests, array, _SENDS, me)
        receive = request_of(requests, array, _RECEIVES, me)
        begins = not last and starts(me, everyone)
        if begins:
            error = start(ctx, requests, 1 - array, _SENDS)
        if begins or me < count:
            await_outer(board, n)
        m = me
        if m < count:
            stamp(stamps, n, SENT)
        while m < count:
            error = max(error, GMPI_Pready(ctx, m % partitions, send))
            m += everyone
            send = request_of(requests, array, _SENDS, m)
        if begins:
            # The outer tiles have read the halo that is written next.
            error = max(error, start(ctx, requests, 1 - array, _RECEIVES))
        if n > 0 and reduces(me, everyone):
            error = max(error, reduce(ctx, sums, n - 1))
            stamp(stamps, n, REDUCED)
        m = me
        while m < count:
            while not GMPI_Parrived(ctx, receive, m % partitions):
                pass
            m += everyone
            receive = request_of(requests, array, _RECEIVES, m)
        if me < count:
            stamp(stamps, n, HALO)
        return error

    @device
    def end(ctx, requests, n, me, everyone):
        """After the last iteration: requests are to be inactive."""
        if starts(me, everyone):
            for array in range(2):
                for face in range(faces):
                    for way in range(2):
                        GMPI_Wait(ctx, requests[array, way, face])

    return SimpleNamespace(begin=begin, communicate=communicate, end=end, reduces=reduces)
