"""What an exchange does before its first message: it looks at its arguments, and takes slots."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct.exchange_blocks import place_of_block
from device_lib.direct.exchange_checks import are_wrong
from device_lib.move.layouts import BUFFER_ADDRESS, BUFFER_DIMS
from device_lib.platform import primitives as gpu
from device_lib.platform.library import linked
from device_lib.platform.primitives import device, int64
from device_lib.platform.scope import WARP, broadcast_warp_8, warp_mask
from device_lib.proxied import slots, taking
from device_lib.proxied.counted_sides import SHAPE_ME_SHIFT, sides_of


@device
def _own_block(ctx, out, back, me):
    """(where this rank's block for itself is, where it goes, its bytes; -1: it goes as a message);
    the leading warp."""
    nbytes, begin, row = place_of_block(ctx, out, min(me, out.number - 1))
    others, at, other_row = place_of_block(ctx, back, min(me, back.number - 1))
    pieces = row | other_row | gpu.load_8(out.buffer + BUFFER_DIMS)
    if pieces | gpu.load_8(back.buffer + BUFFER_DIMS) != 0:
        nbytes = -1
    source = gpu.load_8(out.buffer + BUFFER_ADDRESS) + begin
    return source, gpu.load_8(back.buffer + BUFFER_ADDRESS) + at, nbytes


def make_preparing(help_others: Callable) -> SimpleNamespace:
    """For a warp, all of whose lanes call these together.

    Args:
        help_others: executes commands of the proxied road.
    """
    leads = WARP.leads
    sync = WARP.sync
    take_slot = taking.make_take_slot(WARP, help_others)

    @device
    def take_two(ctx, one, two):
        """Two slots; both minus the error class where they are not free for long.

        Args:
            one, two: those that are taken already, or negative.
        """
        if one < 0:
            one = take_slot(ctx, -1, taking.SMALL)
            sync()
        if one >= 0 and two < 0:
            two = take_slot(ctx, -1, taking.SMALL)
            sync()
        if one >= 0 and two >= 0:
            return one, two
        give_back(ctx, max(one, two))
        return min(one, two), min(one, two)

    @device
    def give_back(ctx, slot):
        if slot >= 0 and leads() and gpu.lane_id() == 0:
            slots.release(ctx, slot)

    # wide: MPI's arguments, as words
    @device
    def prepare(
        ctx, word0, shape, numbers, send_count, send_type, send_buffer, recv_count, recv_type,
        recv_buffer, arrays, has_own,
    ):  # fmt: skip
        """(whether the arguments are wrong, two slots or minus the error class, what ``_own_block``
        returns).

        Args:
            has_own: 1: this rank may have a block for itself.
        """
        out, back, in_place, flaw = sides_of(
            ctx, word0, shape, numbers, send_count, send_type, send_buffer, recv_count,
            recv_type, recv_buffer, arrays,
        )  # fmt: skip
        wrong = 0
        one = int64(-1)
        two = int64(-1)
        source = int64(0)
        target = int64(0)
        own = int64(-1)
        if leads():
            me = shape >> SHAPE_ME_SHIFT
            wrong = 1 if are_wrong(ctx, out, back, shape, me, in_place) else 0
            if wrong == 0:
                lane = gpu.lane_id()
                one, deadline = taking.acquire(ctx, lane, warp_mask(), taking.SMALL, 0)
                two, deadline = taking.acquire(ctx, lane, warp_mask(), taking.SMALL, 0)
                if has_own != 0:
                    source, target, own = _own_block(ctx, out, back, me)
        wrong, one, two, source, target, own, unused, ignored = broadcast_warp_8(
            wrong, one, two, source, target, own, 0, 0
        )
        sync()
        if wrong == 0:
            one, two = take_two(ctx, one, two)
        return wrong, one, two, source, target, own

    prepare_linked = linked("gmpi_direct_exchange_prepare", 14, 6, prepare)
    return SimpleNamespace(prepare=prepare_linked, give_back=give_back)
