"""Debug mode: the proxy is told of each request of the direct road before it opens, and before it
ends, and its answer is waited for (``host_proxy/reference/debug.py`` says what is looked at).

No other call has an instruction more for that. In debug mode a channel is entered in the table
under a key that the quick ways do not look for, so each call comes to ``row_requests``, where it
asks for the channel: there, and only there, debug mode branches off. Its requests are TOUCHED from
the start: so a wait claims them where it asks what is known of a request that somebody has gone on
with. The answer comes in the completion of the request's slot, which nothing else uses on this
road: a request takes no second slot.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.direct import rows, table
from device_lib.direct.one_warp import PROXIED_ROAD
from device_lib.platform import primitives as gpu
from device_lib.platform.context import completion_address
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import device
from device_lib.platform.scope import WARP, warp_lanes, warp_mask
from device_lib.proxied import pacing, ring, slots, taking
from gmpi.contract import wire
from gmpi.contract.channels import KEY_WATCHED, NUMBERS
from gmpi.contract.constants import SUCCESS

_SHARED = 1  # as ``memory_space`` says
_PAUSE_NS = 500  # between two looks for an answer
_FIELDS = -1 << 16  # of a record's first word: all but opcode and flags


@device
def _fresh_number(at):
    """An even sequence number that a completion does not have: those of requests are odd."""
    low, word = gpu.read_packet(at)
    return ((word >> 33) + 1 << 1) & wire.LOW_32


def link_watching(
    enter_channel: Callable, enter_request: Callable, take_slot: Callable
) -> tuple[Callable, Callable]:
    """Gives the library these functions, of warp scope, and returns ``open_watched`` and
    ``end_watched``; arguments are those of ``row_requests``."""
    part = parts_of(WARP.name, "gmpi_direct")
    leads = WARP.leads
    sync = WARP.sync
    broadcast = WARP.broadcast
    broadcast_3 = WARP.broadcast_3

    @device
    def ask(ctx, op, slot, word0, peer_tag, address, nbytes):
        """What debug mode says to a request that takes, or has, a slot: an error class, or 0."""
        at = completion_address(ctx, slot)
        number = 0
        if leads() and gpu.lane_id() == 0:
            number = _fresh_number(at)
            gpu.fence_sys()  # the host is going to read the buffer
        number = broadcast(number)
        sync()
        handle = number | slot << wire.HANDLE_SLOT_SHIFT
        handle |= (word0 & 0xFF) << wire.WATCHED_OP_SHIFT
        if leads():
            ring.post_about(
                ctx, gpu.lane_id(), warp_lanes(), warp_mask(), word0 & _FIELDS | op, peer_tag,
                address, handle, nbytes,
            )  # fmt: skip
        error = SUCCESS
        answered = 0
        began = 0
        while answered == 0 and error == SUCCESS:
            if leads() and gpu.lane_id() == 0:
                low, word = gpu.read_packet(at)
                if word >> 32 & wire.LOW_32 == number:
                    answered = 1
                    error = low
                else:
                    late, error, began = pacing.long_wait_at_host(ctx, began)
                    gpu.pause(_PAUSE_NS)
            answered, error, unused = broadcast_3(answered, error, 0)
            sync()
        return error

    ask_linked = part("ask_debug", 9, 1, ask)

    @device
    def open_watched(ctx, word0, peer_tag, nbytes, address, buffer, type_row):
        """``open_rest`` of a call whose number has not been drawn."""
        row = table.NOBODY
        remote = 0
        counters = 0
        if leads() and gpu.lane_id() == 0:
            key = table.key_of(word0, peer_tag) | KEY_WATCHED
            row, remote, local, counters = table.find(ctx, key)
        row, remote, counters = broadcast_3(row, remote, counters)
        sync()
        if row == table.NOBODY:
            row, remote, counters = enter_channel(ctx, word0, peer_tag, KEY_WATCHED)
            row, remote, counters = broadcast_3(row, remote, counters)
            sync()
        if row == table.REFUSED:
            return slots.error_handle(remote)
        if not table.is_direct(remote):
            return PROXIED_ROAD
        slot = take_slot(ctx, -1, taking.SMALL)
        if slot < 0:
            return slots.error_handle(-slot)
        # The host has no address for shared memory, and that of two blocks has the same one.
        known = address != wire.SCATTERED and gpu.memory_space(address) != _SHARED
        error = ask_linked(
            ctx, wire.OP_OPENS, slot, word0, peer_tag, address if known else 0, nbytes
        )
        number = 0
        if leads() and gpu.lane_id() == 0:
            if error == SUCCESS:  # else the call has not been made: the next one has this number
                number = table.next_count(counters) & NUMBERS
            else:
                slots.release(ctx, slot)
        number = broadcast(number)
        sync()
        if error != SUCCESS:
            return slots.error_handle(error)
        return enter_request(
            ctx, word0, nbytes, address, buffer, type_row, row, number, slot, False, rows.TOUCHED
        )

    @device
    def end_watched(ctx, slot, outcome):
        """The outcome of a request that is about to be closed."""
        error = ask_linked(ctx, wire.OP_ENDS, slot, 0, 0, 0, 0)
        if outcome >> wire.ERROR_SHIFT & 0xFF == SUCCESS:
            outcome |= error << wire.ERROR_SHIFT
        return outcome

    return part("open_watched", 9, 1, open_watched), end_watched
