"""The direct road's quickest way: messages that fit a slot, by the leading warp alone.

Written for latency. A call is one function of the library, which calls no other. The leading warp
calls it, and the others of the scope come to its barriers from the user's kernel: a call would save
the registers of 32 warps for nothing. Of what memory is asked, everything that can be is under way
together, what does not touch the user's buffer before the first barrier; no fence is on the way:
what is read was stored in one piece, or has been there since the channel was opened. What is not as
expected (no channel yet, no credit, nobody there for a while) is left to ``requests``.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import own, rows, table
from device_lib.direct.announcing import announce_early
from device_lib.direct.telling import make_tell
from device_lib.direct.warp_messages import (
    MANY,
    ONE_EACH,
    ONE_FOR_EACH,
    draw_send,
    make_take,
    put,
    put_many,
)
from device_lib.direct.words import call_of, length_word
from device_lib.move.message import is_sound, size_of
from device_lib.platform import primitives as gpu
from device_lib.platform.context import DeviceContext, may_go_direct
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import device, int64, uint32
from device_lib.platform.scope import FULL_WARP, Scope
from device_lib.proxied import slots
from gmpi.contract import channels
from gmpi.contract.constants import SUCCESS
from gmpi.contract.wire import HANDLE_DIRECT_SHIFT, HANDLE_SENDS_SHIFT

PROXIED_ROAD = 0  # in place of a handle: the call goes by the proxy

_DIRECT = 1 << HANDLE_DIRECT_SHIFT
# Of a handle: what it is of, whether somebody has claimed it, whether it sends.
_SIDES = -1 << HANDLE_DIRECT_SHIFT | slots.CLAIMED | 1 << HANDLE_SENDS_SHIFT
_KINDS = _SIDES | rows.WIDE  # and how long it is


@device
def is_receive(handle):
    """Whether it is the handle of a receive of the direct road that nobody has claimed."""
    return handle & _SIDES == _DIRECT


def make_one_warp(scope: Scope, open_rest: Callable, send_wide: Callable) -> SimpleNamespace:
    """For one scope, all of whose threads call it together.

    Args:
        open_rest: (ctx, word0, peer_tag, length, address, row, remote, number) -> handle: goes on
            with what has been drawn.
        send_wide: of ``wide_messages``, for what is larger.
    """
    leads = scope.leads
    leading_lanes = scope.leading_lanes
    sync_full = scope.sync_full
    sync_full_or = scope.sync_full_or
    put_4 = scope.put_4
    get_4 = scope.get_4
    tell = make_tell(scope)
    part = parts_of(scope.name, "gmpi_direct")

    def make_send_quickly(put: Callable):
        """
        Args:
            put: ``put``, or ``put_many``.
        """

        @device
        def send_quickly(memory, word0, peer_tag, count, address):
            """(handle, row, where the other end is, number); handle 0: left to ``requests``.

            The leading warp calls; the others of the scope call ``follow_send``.

            Args:
                memory: of the context, on the device.
                count: of elements, together no longer than a message that ``put`` takes.
            """
            ctx = DeviceContext(0, memory, 0, 0)
            sound, found, road, draws, at, remote, local, counters, counted, known = draw_send(
                ctx, word0, peer_tag, count
            )
            number = uint32(counted & channels.NUMBERS)
            free = uint32(known)
            sync_full()  # what other threads wrote to the buffer
            ready = False
            if road != 0:
                # A channel that is not found: debug mode asks before anything reads the buffer.
                nbytes = uint32(count * size_of(word0)) if sound & found else uint32(0)
                ready = put(nbytes, address, remote, local, counters, number, free, draws)
            if sync_full_or(0 if ready else 1):  # and the buffer is the caller's again
                row = table.row_left(sound, road, draws, at, remote)
                put_4(0, row, remote, int64(number))
                sync_full()
                return get_4(0, row, remote, int64(number))
            return slots.error_handle(SUCCESS), 0, 0, 0

        return send_quickly

    @device
    def follow_send():
        """What it returns, in the other warps: in the user's kernel, where a call would save their
        registers for nothing."""
        sync_full()
        if sync_full_or(0):
            sync_full()
            return get_4(0, 0, 0, 0)
        return slots.error_handle(SUCCESS), 0, 0, 0

    @device
    def post_quickly(memory, shape, word0, peer_tag, count, address):
        """The same for a receive; the others call ``follow``.

        Args:
            memory, shape: of the context.
            count: of elements.
        """
        ctx = DeviceContext(0, memory, shape, 0)
        sound = is_sound(word0, count) & table.may_have_key(word0, peer_tag)
        key = table.key_as_it_is(word0, peer_tag)
        road = table.road_of(ctx, key)
        handle = 0
        found, at, remote, local, counters = table.glance(ctx, key)
        draws = found & sound & (gpu.lane_id() == 0)
        slot = slots.guess(ctx)
        counted, before = gpu.draw_two_if(
            counters + channels.COUNTER_NUMBER,
            slots.busy_word(ctx, slot),
            slots.busy_bit(slot),
            draws,
        )
        sync_full()  # what other threads still read from the buffer
        row = table.row_left(sound, road, draws, at, remote)
        if draws:
            counted &= channels.NUMBERS
            if slots.was_free(slot, before):
                room = count * size_of(word0)
                length = length_word(word0, room, 0)
                kind = rows.WIDE if room <= channels.WIDE_ROOM else 0
                if room <= channels.ROOM:
                    kind = rows.SMALL if room <= ONE_EACH else rows.MEDIUM
                handle = rows.direct_handle(ctx, slot, counted, kind)
                call = call_of(word0)
                rows.open_row(ctx, slot, handle, address, row, rows.BEGINS, call, length)
        put_4(handle, row, remote, counted)
        sync_full()
        return get_4(handle, row, remote, counted)

    def make_take_quickly(take: Callable):
        """
        Args:
            take: what ``make_take`` returned.
        """

        @device
        def take_quickly(ctx, handle, looks, leave):
            """(what has become of it, bytes, LENGTH, origin); the others call ``follow``."""
            sync_full()  # before the next ``tell``
            return take(ctx, handle, looks, leave)

        return take_quickly

    @device
    def follow():
        """As ``follow_send``, of ``post_quickly`` and ``take_quickly``."""
        sync_full()
        sync_full()
        return get_4(0, 0, 0, 0)

    send_linked = part("send", 5, 4, make_send_quickly(put))
    send_many_linked = part("send_many", 5, 4, make_send_quickly(put_many))
    post_linked = part("post", 6, 4, post_quickly)
    take_linked = part("take", 6, 4, make_take_quickly(make_take(ONE_FOR_EACH, tell)))
    take_many_linked = part("take_many", 6, 4, make_take_quickly(make_take(MANY, tell)))

    # wide: what has been drawn
    @device
    def open_drawn(ctx, word0, peer_tag, count, nbytes, address, row, remote, number):
        """The handle of a call that has been left to ``requests``; PROXIED_ROAD: its channel is
        none of ours."""
        if row == table.UNSOUND:
            if not is_sound(word0, count):
                return PROXIED_ROAD
            if not table.may_have_key(word0, peer_tag):
                return table.without_channel(ctx, word0, peer_tag)
            row = table.NOBODY if may_go_direct(ctx, word0) else table.NO_ROW
        if row == table.NO_ROW:
            return PROXIED_ROAD
        return open_rest(ctx, word0, peer_tag, nbytes, address, row, remote, number)

    open_drawn_linked = part("open_drawn", 11, 1, open_drawn)

    @device
    def try_send(ctx, word0, peer_tag, count, nbytes, address):
        """(handle, row, where the other end is, number) of a send in one piece; handle 0: left to
        ``requests``, with what has been drawn.

        What a call's arguments are is looked at in the library, where it costs no time: what the
        user's kernel finds out before a loop it may find out again in each turn.
        """
        handle = 0
        row = table.UNSOUND
        remote = 0
        number = 0
        full = leading_lanes() >= FULL_WARP
        short = full & (nbytes <= channels.ROOM)
        if short & leads():  # whom all wait for: behind one branch
            if nbytes <= ONE_EACH:
                handle, row, remote, number = send_linked(
                    ctx.device, word0, peer_tag, count, address
                )
            else:
                handle, row, remote, number = send_many_linked(
                    ctx.device, word0, peer_tag, count, address
                )
        elif short:
            handle, row, remote, number = follow_send()
        elif full:
            handle, row, remote, number = send_wide(ctx, word0, peer_tag, count, nbytes, address)
        return handle, row, remote, number

    @device
    def send(ctx, word0, peer_tag, count, nbytes, address):
        """The handle of a send in one piece, in a context with a direct road; PROXIED_ROAD: its
        channel is none of ours."""
        handle, row, remote, number = try_send(ctx, word0, peer_tag, count, nbytes, address)
        if handle != 0:
            return handle
        return open_drawn_linked(ctx, word0, peer_tag, count, nbytes, address, row, remote, number)

    @device
    def post(ctx, word0, peer_tag, count, room, address):
        """The same of a receive."""
        handle = 0
        row = table.UNSOUND
        remote = 0
        number = 0
        full = leading_lanes() >= FULL_WARP
        if full & leads():
            handle, row, remote, number = post_linked(
                ctx.device, ctx.shape, word0, peer_tag, count, address
            )
        elif full:
            handle, row, remote, number = follow()
        if handle != 0:
            if room > channels.ROOM and leads():
                if gpu.lane_id() == 0:
                    own.note(ctx, handle)
                if room > channels.WIDE_ROOM:
                    announce_early(ctx, handle, row, address, room)
            return handle
        return open_drawn_linked(ctx, word0, peer_tag, count, room, address, row, remote, number)

    @device
    def is_short(handle):
        """Whether a request is for ``take_short``: a receive that one warp takes, and that nobody
        has claimed."""
        kind = handle & _KINDS
        short = (kind == _DIRECT | rows.SMALL) | (kind == _DIRECT | rows.MEDIUM)
        return short & (leading_lanes() >= FULL_WARP)

    @device
    def take_short(ctx, handle, looks, leave):
        """Waits a little for a message in one piece: (state, bytes, LENGTH, origin).

        Args:
            looks: how often to look.
            leave: whether to give the claim back where it has not come.

        Returns:
            state TAKEN; NOT_YET: it has been left; CLAIMED, RESUMED or LOST: the rest is for the
            slow way.
        """
        if leads():
            if handle & rows.SMALL != 0:
                state, nbytes, length, origin = take_linked(ctx, handle, looks, leave)
            else:
                state, nbytes, length, origin = take_many_linked(ctx, handle, looks, leave)
        else:
            state, nbytes, length, origin = follow()
        return state, nbytes, length, origin

    return SimpleNamespace(
        try_send=try_send,
        send=send,
        post=post,
        is_short=is_short,
        take_short=take_short,
    )
