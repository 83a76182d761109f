"""Direct Reduce_scatter: what is reduced has a block for each rank, of a length of its own.

As Reduce_scatter_block (``block_collectives``), in rounds. All ranks know all lengths, so there are
as many rounds as the longest block takes; who has a shorter one gets nothing in the last of them.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import block_rounds
from device_lib.direct.exchange_checks import is_shared
from device_lib.direct.exchanges import NOT_OURS
from device_lib.direct.round_waits import DATA, ENTERED_ONLY
from device_lib.direct.rounds import row_of, signature_of
from device_lib.direct.scattered_collectives import make_take_placed
from device_lib.move.layouts import layout_of, pack_layout
from device_lib.platform import primitives as gpu
from device_lib.platform.context import may_collect_direct
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import device, int64
from device_lib.platform.scope import Scope
from device_lib.proxied import slots
from device_lib.proxied.counted_blocks import block
from device_lib.proxied.counted_sides import is_long, make_survey_both, sides_of
from gmpi.contract import collectives
from gmpi.contract.constants import SUCCESS
from gmpi.contract.layouts import LAYOUT_SEND
from gmpi.contract.wire import COMMUNICATORS, SCATTERED

_call_word = device(collectives.call_word)
_reduction_word = device(collectives.reduction_word)


@device
def _word_of(word0, root_op, datatype, nbytes):
    """The word of a call of so many bytes; ``collectives.NOT_OURS``: the GPU cannot reduce it."""
    what = _reduction_word(root_op >> 32, datatype)
    if what == collectives.NOT_OURS:
        return what
    amount = nbytes >> (what >> collectives.SIZE_SHIFT & 3)
    what &= ~(collectives.KIND_MASK << collectives.KIND_SHIFT)
    what |= collectives.REDUCE_SCATTER << collectives.KIND_SHIFT
    return _call_word(what, amount, word0 >> 16 & (COMMUNICATORS - 1))


@device
def _longest(out, element):
    """Bytes of the longest block."""
    most = int64(0)
    peer = 0
    while peer < out.number:
        most = max(most, block(out, peer, 0)[0])
        peer += gpu.opaque(1)
    return most * element


def make_counted_reduction(
    scope: Scope, help_others: Callable, blocks: SimpleNamespace
) -> SimpleNamespace:
    """A ``road`` of ``make_counted_calls``, for one scope, all of whose threads carry out a call.

    Args:
        blocks: what ``make_block_collectives`` returned.
    """
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    sync = scope.sync
    survey_both = make_survey_both(scope)
    take_placed = make_take_placed(scope, help_others)
    wait, take_scattered = blocks.wait, blocks.take_scattered

    @device
    def store(ctx, what, number, slot, out, element, send, begin):
        """Stores what the other ranks get in a round: of each block the bytes from ``begin`` on."""
        row = row_of(ctx, what)
        area, where = gpu.load_16(row + collectives.AREA)
        ranks = where >> collectives.RANKS_SHIFT
        packed = area + 2 * ranks * collectives.INBOX_BYTES
        layout = layout_of(ctx, slot, LAYOUT_SEND)
        at = begin
        peer = 0
        while peer < ranks:
            nbytes = block(out, peer, 0)[0] * element
            some = min(max(nbytes - begin, 0), collectives.ROOM)
            source = send + at
            if send == SCATTERED:
                source = packed
                sync()  # all have read what is there
                if some > 0:
                    pack_layout(layout, packed, at, at + some, rank(), size())
                sync()
            block_rounds.put(
                row, ranks, number, what, 1 << peer, 1 << peer, source, 0, some, rank(), size(),
                True,
            )  # fmt: skip
            at += nbytes
            peer += gpu.opaque(1)
        # A result may fall on what other threads have just read.
        sync()

    @device
    def in_rounds(ctx, what, slot, out, element, send, recv, received):
        """A whole call: the error class."""
        row = row_of(ctx, what)
        number, entered = gpu.load_pair_gpu(row + collectives.NUMBER)
        last = gpu.load_gpu(row + collectives.SIGNATURE)
        ours = signature_of(what)
        longest = _longest(out, element)
        error = SUCCESS
        if entered != number:
            error = wait(ctx, what, number - 1, last, 0, ENTERED_ONLY)
        begin = 0
        going = error == SUCCESS
        while going:
            store(ctx, what, number, slot, out, element, send, begin)
            some = min(max(received - begin, 0), collectives.ROOM)
            if recv == SCATTERED and some > 0:
                error = take_scattered(ctx, what, number, slot, begin, received, some)
            else:
                error = wait(ctx, what, number, ours, recv + begin, DATA | some << 1)
            number += 1
            begin += collectives.ROOM
            going = error == SUCCESS and begin < longest
        sync()  # all have read the row
        if leads() and gpu.lane_id() == 0:
            # After an error, what comes next goes by the proxies, which refuse it.
            gpu.store_gpu(row + collectives.SIGNATURE, ours)
            gpu.store_pair_gpu(row + collectives.NUMBER, number, number if error == SUCCESS else -1)
        return error

    # wide: MPI's arguments, as words
    @device
    def reduce_scatter(
        ctx, word0, root_op, shape, numbers, send_count, send_type, send_buffer, recv_count,
        recv_type, recv_buffer, arrays,
    ):  # fmt: skip
        """As ``open_counted``: the handle of a call that is over; NOT_OURS: it goes by the proxy,
        which refuses what is wrong."""
        if not may_collect_direct(ctx, word0):
            return NOT_OURS
        sync()
        out, back, in_place, flaw = sides_of(
            ctx, word0, shape, numbers, send_count, send_type, send_buffer, recv_count,
            recv_type, recv_buffer, arrays,
        )  # fmt: skip
        sent, received, send, recv, flaw = survey_both(ctx, out, back, shape, flaw)
        what = _word_of(word0, root_op, send_type, sent)
        if flaw != 0 or what == collectives.NOT_OURS:
            return NOT_OURS
        if is_shared(out, sent) or is_shared(back, received):
            if is_long(ctx, out, back, sent, received, send, recv):
                return NOT_OURS
        if gpu.load_pair_gpu(row_of(ctx, what) + collectives.NUMBER)[1] < 0:
            return NOT_OURS
        slot = int64(-1)
        if (sent > 0 and send == 0) or (received > 0 and recv == 0):
            slot, send, recv = take_placed(ctx, 0, out.buffer, sent, back.buffer, received)
            if slot < 0:
                return slots.error_handle(-slot)
        element = send_type >> 8 & 0xFF
        error = in_rounds(ctx, what, slot, out, element, send, recv, received)
        if slot >= 0 and leads() and gpu.lane_id() == 0:
            slots.release(ctx, slot)
        return slots.error_handle(error)

    linked = parts_of(scope.name, "gmpi_direct")("reduce_counted", 14, 1, reduce_scatter)

    @device
    def lead(ctx, words):
        return linked(ctx, *words)

    @device
    def leads_always():
        return True

    @device
    def follow(ctx):
        return NOT_OURS

    return SimpleNamespace(leads=leads_always, lead=lead, follow=follow)
