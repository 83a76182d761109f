"""Closing many requests at once: the halo exchange of a step.

The leading warp polls up to 32 requests in the same read (``batch``). Payloads in staging are then
moved by all warps of the scope, small ones a warp each.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.move.blocks import unpack_any
from device_lib.move.copy import copy_from_staging
from device_lib.move.layouts import layout_of
from device_lib.platform import primitives as gpu
from device_lib.platform.context import our_mailboxes, status_of, store_status
from device_lib.platform.primitives import device
from device_lib.platform.scope import Scope, warp_lanes, warp_mask
from device_lib.proxied import commands, completion, slots
from device_lib.proxied.batch import UNLIMITED, ask, await_batch
from device_lib.proxied.closing import NO_ORIGIN
from device_lib.proxied.executing import make_execute, make_tell_event
from device_lib.proxied.ring import post
from gmpi.contract.constants import ERR_REQUEST, SUCCESS
from gmpi.contract.layouts import LAYOUT_RECV
from gmpi.contract.wire import BYTES_MASK, ERROR_SHIFT, OP_FAULT, OP_WAIT, REQUEST_NULL, SCATTERED

STATUS_BYTES = 40  # error, source, tag, count, nbytes as int64: gmpi.STATUS_DTYPE
_WHOLE_SCOPE_BYTES = 4096  # staged payloads from here on are moved by all warps together


def make_finish_all(scope: Scope) -> Callable:
    """The function behind Waitall for one scope; all its threads call it together."""
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    sync = scope.sync
    broadcast = scope.broadcast
    put_row = scope.put_row
    get_row = scope.get_row
    execute = make_execute(scope)
    tell_event = make_tell_event(scope)

    @device
    def unpack_batch(ctx, staged, recv, slot, nbytes):
        """Moves the staged payloads of a batch; ``staged`` has a bit for each lane that has one."""
        warp = rank() >> 5
        warps = (size() + 31) >> 5
        turn = 0  # whose turn it is to take a small one
        while staged != 0:
            chosen = gpu.first_bit(staged)
            staged &= staged - 1
            target, source, length = get_row(chosen, recv, slot, nbytes)
            staging = commands.small_staging(ctx, source)
            if target == SCATTERED:
                layout = layout_of(ctx, source, LAYOUT_RECV)
                unpack_any(layout, staging, 0, length, rank(), size())
            elif length >= _WHOLE_SCOPE_BYTES:
                copy_from_staging(target, staging, length, rank(), size())
            else:
                if turn == warp:
                    lanes = min(32, size() - (warp << 5))
                    copy_from_staging(target, staging, length, rank() & 31, lanes)
                turn += 1
                if turn == warps:
                    turn = 0

    @device
    def finish_all(ctx, count, requests, statuses):
        """Waits for ``count`` requests whose handles are at address ``requests``.

        Sets the handles to REQUEST_NULL and, where ``statuses`` is not 0, stores a status for
        each there.

        Returns:
            The first error class that is not SUCCESS, in order of the requests.
        """
        sync()
        result = SUCCESS
        width = min(32, size())  # lanes of the leading warp
        first = 0
        while first < count:
            error = finish_batch(ctx, min(width, count - first), first, requests, statuses)
            if result == SUCCESS:
                result = error
            first += gpu.opaque(width)
        i = 0
        while i < count:
            # Every thread: the array may be private to each.
            gpu.store_8(requests + i * 8, REQUEST_NULL)
            i += gpu.opaque(1)
        sync()
        return result

    # wide: what a lane knows of its request
    @device
    def close(ctx, count, first, handle, claimed, foreign, low, word, origin, statuses):
        """Statuses, slots, and the first error class of the batch; the leading warp."""
        lane = gpu.lane_id()
        mask = warp_mask()
        if lane < count:
            if statuses != 0:
                store_status(statuses + (first + lane) * STATUS_BYTES, status_of(low, word, origin))
            if claimed:
                slots.release_after(ctx, handle, low >> ERROR_SHIFT & 0xFF)
        error = low >> ERROR_SHIFT & 0xFF
        bad = gpu.ballot(mask, error != SUCCESS and lane < count)
        # Handles that are no request of ours: the proxy cannot know.
        strangers = gpu.ballot(mask, foreign)
        while strangers != 0:
            stranger = gpu.shuffle(mask, handle, gpu.first_bit(strangers))
            strangers &= strangers - 1
            word0 = OP_FAULT | OP_WAIT << 8
            post(ctx, lane, warp_lanes(), mask, word0, stranger, 0, ERR_REQUEST)
        if bad == 0:
            return SUCCESS
        return gpu.shuffle(mask, error, gpu.first_bit(bad))

    @device
    def finish_batch(ctx, count, first, requests, statuses):
        handle = REQUEST_NULL
        lane = gpu.lane_id()
        wanted = leads() and lane < count
        if wanted:
            handle = gpu.load_8(requests + (first + lane) * 8)
        asked, waiting, low, foreign = ask(ctx, handle, wanted)
        recv = asked.recv
        word = 0
        origin = NO_ORIGIN
        places = our_mailboxes(ctx)
        claimed = False
        kind = completion.COMMAND
        command = 0
        length = 0
        while kind == completion.COMMAND or kind == completion.LAST:
            place = 0
            buffers = 0
            own = 0
            target = 0
            if leads():
                event, waiting, low, word, origin = await_batch(
                    ctx, asked, UNLIMITED, waiting, low, word, origin
                )
                kind, place, command, length, buffers, own, target = event
                if kind == completion.DONE or kind == completion.ABORTED:
                    claimed = handle != REQUEST_NULL and asked.owner == handle
                    foreign = foreign and not claimed
                    if kind == completion.ABORTED and waiting:
                        claimed = False
                        low = (command & 0xFF) << ERROR_SHIFT
                    # Payloads in staging: every thread learns which, as ``command``. Mostly there
                    # are none; then the batch closes here, and ``length`` is its error class.
                    nbytes = low & BYTES_MASK
                    has_payload = claimed and recv != 0 and nbytes > 0
                    has_payload = has_payload and completion.is_staged(ctx, handle, nbytes)
                    command = gpu.ballot(warp_mask(), has_payload)
                    put_row(lane, recv, slots.slot_of(handle), nbytes)
                    if command == 0:
                        length = close(
                            ctx, count, first, handle, claimed, foreign, low, word, origin, statuses
                        )
            kind, place, command, length, buffers, target = tell_event(
                kind, place, command, length, buffers, target
            )
            if kind == completion.COMMAND or kind == completion.LAST:
                aborted = execute(ctx, place, command, length, buffers, places, own, target)
                if aborted != 0 and own != 0 and own == handle:
                    low = (aborted & 0xFF) << ERROR_SHIFT
        error = length
        if command != 0:  # all warps share the work
            unpack_batch(ctx, command, recv, slots.slot_of(handle), low & BYTES_MASK)
            sync()
            if leads():
                error = close(
                    ctx, count, first, handle, claimed, foreign, low, word, origin, statuses
                )
            error = broadcast(error)
            sync()
        return error

    return finish_all
