"""Long collectives: chunk by chunk, all ranks meet between the steps (``long_steps``).

All threads of a scope call these. Where the scope leads a grid, all of its blocks take the steps.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.direct import rounds
from device_lib.direct.grid_team import share, shares_of
from device_lib.direct.long_steps import REDUCE, SEND, SEND_ALL, TAKE, take_step
from device_lib.direct.rounds import kind_of, row_of, signature_of
from device_lib.platform.primitives import device, fence_sys, load_16, load_gpu
from device_lib.platform.scope import Scope
from gmpi.contract.collectives import (
    ALLREDUCE,
    AREA,
    CHUNK,
    LONG,
    RANKS_SHIFT,
    ROOT_MASK,
)
from gmpi.contract.constants import SUCCESS
from gmpi.contract.grid import COLLECT
from gmpi.contract.wire import LOW_32


@device
def is_long(ctx, what, nbytes):
    """Whether a call goes in chunks: that depends only on what is equal on all ranks."""
    return nbytes > LONG and load_gpu(row_of(ctx, what) + CHUNK) != 0


def make_collect_long(scope: Scope, wait: Callable) -> Callable:
    """For one scope.

    Args:
        wait: (ctx, what, number, signature, target, size_mode) -> error class: for a round.
    """
    rank = scope.rank
    size = scope.size
    sync = scope.sync
    shares = shares_of(scope)

    @device
    def step(ctx, which, what, slot, address, begin, nbytes):
        """One step; of a grid, when all of its blocks have taken it."""
        if shares(ctx):
            share(ctx, COLLECT, what, which | slot << 2, address, begin, nbytes)
        else:
            take_step(ctx, what, which | slot << 2, address, begin, nbytes, rank(), size())

    @device
    def meet(ctx, what, number, nbytes):
        """All ranks see what all have stored before; an error class."""
        row = row_of(ctx, what)
        ranks = load_16(row + AREA)[1] >> RANKS_SHIFT
        sync()
        if rank() < ranks:  # those that say so
            fence_sys()
        rounds.put_entered(row, ranks, number, what, rank(), size())
        error = wait(ctx, what, number, signature_of(what), 0, nbytes << 1)
        if rank() < ranks:  # those that have seen it
            fence_sys()
        sync()
        return error

    @device
    def collect_long(ctx, what, slot, send, recv, nbytes, number):
        """(error class, number of the next round); all ranks have entered the one before it.

        Args:
            slot: whose layouts say where the bytes of a SCATTERED buffer lie.
        """
        row = row_of(ctx, what)
        me = load_16(row + AREA)[1] & LOW_32
        room = load_gpu(row + CHUNK)
        reduces = kind_of(what) == ALLREDUCE
        root = not reduces and me == what & ROOT_MASK
        error = SUCCESS
        begin = 0
        while begin < nbytes and error == SUCCESS:
            some = min(nbytes - begin, room)
            if reduces:
                step(ctx, SEND, what, slot, send, begin, some)
            error = meet(ctx, what, number, some)
            number += 1
            if error == SUCCESS:
                if reduces:
                    step(ctx, REDUCE, what, slot, 0, begin, some)
                elif root:
                    step(ctx, SEND_ALL, what, slot, send, begin, some)
                error = meet(ctx, what, number, some)
                number += 1
            if error == SUCCESS and not root:
                step(ctx, TAKE, what, slot, recv, begin, some)
            begin += some
        sync()
        return error, number

    return collect_long
