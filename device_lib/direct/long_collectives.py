"""Long collectives: chunk by chunk, all ranks meet between the steps (``long_steps``).

Where they meet first, each says how many bytes its whole call has: a signature has the lower bits.
All threads of a scope call these. Where the scope leads a grid, all of its blocks take the steps.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.direct import rounds
from device_lib.direct.grid_commands import share, shares_of
from device_lib.direct.long_steps import REDUCE, SEND, SEND_ALL, TAKE, take_step
from device_lib.direct.rounds import NOBODY, kind_of, row_of, signature_of, turn_of
from device_lib.platform import primitives as gpu
from device_lib.platform.library import declared
from device_lib.platform.primitives import device
from device_lib.platform.scope import Scope
from gmpi.contract import collectives
from gmpi.contract.constants import ERR_OTHER, SUCCESS
from gmpi.contract.grid import COLLECT
from gmpi.contract.wire import LOW_32, OP_FAULT


@device
def is_long(ctx, what, nbytes):
    """Whether a call goes in chunks: that depends only on what is equal on all ranks."""
    return nbytes > collectives.LONG and gpu.load_gpu(row_of(ctx, what) + collectives.CHUNK) != 0


@device
def call_of(what, nbytes):
    """The signature of a call, with all bits of its amount, for the text of an error."""
    signature = signature_of(what)
    amount = nbytes
    if kind_of(what) == collectives.ALLREDUCE:
        amount = nbytes >> (what >> collectives.SIZE_SHIFT & 3)
    if (amount ^ signature >> collectives.AMOUNT_SHIFT) & collectives.AMOUNT_MASK != 0:
        return signature  # a short call, whose packets bring no amount
    return signature | amount >> collectives.AMOUNT_BITS << collectives.SIGNATURE_SHIFT


@device
def _other_call(row, number, nbytes):
    """(NOBODY, or a rank whose call has other bytes; how many), where all have entered a round."""
    area, place = gpu.load_16(row + collectives.AREA)
    ranks = place >> collectives.RANKS_SHIFT
    at = area + turn_of(number, ranks)
    other = NOBODY
    theirs = 0
    source = 0
    while source < ranks:
        low = gpu.read_packet(at + source * collectives.INBOX_BYTES)[0]
        if low != nbytes:
            other = source
            theirs = low
        source += gpu.opaque(1)
    return other, theirs


def make_collect_long(scope: Scope, wait: Callable) -> Callable:
    """For one scope.

    Args:
        wait: (ctx, what, number, signature, target, size_mode) -> error class: for a round.
    """
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    sync = scope.sync
    broadcast_3 = scope.broadcast_3
    shares = shares_of(scope)
    tell = declared(f"gmpi_direct_tell_collective_{scope.name}", 8, 1)  # make_round_waits

    @device
    def step(ctx, which, what, slot, address, begin, nbytes):
        """One step; of a grid, when all of its blocks have taken it."""
        if shares(ctx):
            share(ctx, COLLECT, what, which | slot << 2, address, begin, nbytes)
        else:
            take_step(ctx, what, which | slot << 2, address, begin, nbytes, rank(), size())

    @device
    def compare(ctx, what, number, nbytes):
        """Whether all ranks have called the same, once they have met: an error class."""
        other = NOBODY
        theirs = 0
        if leads() and gpu.lane_id() == 0:
            other, theirs = _other_call(row_of(ctx, what), number, nbytes)
        other, theirs, unused = broadcast_3(other, theirs, 0)
        sync()
        if other == NOBODY:
            return SUCCESS
        if leads():
            tell(ctx, OP_FAULT, what, other, call_of(what, nbytes), call_of(what, theirs))
        return ERR_OTHER

    @device
    def meet(ctx, what, number, nbytes):
        """All ranks see what all have stored before; an error class.

        Args:
            nbytes: of the whole call.
        """
        row = row_of(ctx, what)
        ranks = gpu.load_16(row + collectives.AREA)[1] >> collectives.RANKS_SHIFT
        sync()
        if rank() < ranks:  # those that say so
            gpu.fence_sys()
        rounds.put_entered(row, ranks, number, what, rank(), size(), nbytes)
        error = wait(ctx, what, number, signature_of(what), 0, nbytes << 1)
        if rank() < ranks:  # those that have seen it
            gpu.fence_sys()
        sync()
        return error

    @device
    def collect_long(ctx, what, slot, send, recv, nbytes, number):
        """(error class, number of the next round); all ranks have entered the one before it.

        Args:
            slot: whose layouts say where the bytes of a SCATTERED buffer lie.
        """
        row = row_of(ctx, what)
        me = gpu.load_16(row + collectives.AREA)[1] & LOW_32
        room = gpu.load_gpu(row + collectives.CHUNK)
        reduces = kind_of(what) == collectives.ALLREDUCE
        root = not reduces and me == what & collectives.ROOT_MASK
        error = SUCCESS
        begin = 0
        while begin < nbytes and error == SUCCESS:
            some = min(nbytes - begin, room)
            if reduces:
                step(ctx, SEND, what, slot, send, begin, some)
            error = meet(ctx, what, number, nbytes)
            if error == SUCCESS and begin == 0:
                error = compare(ctx, what, number, nbytes)
            number += 1
            if error == SUCCESS:
                if reduces:
                    step(ctx, REDUCE, what, slot, 0, begin, some)
                elif root:
                    step(ctx, SEND_ALL, what, slot, send, begin, some)
                error = meet(ctx, what, number, nbytes)
                number += 1
            if error == SUCCESS and not root:
                step(ctx, TAKE, what, slot, recv, begin, some)
            begin += some
        sync()
        return error, number

    return collect_long
