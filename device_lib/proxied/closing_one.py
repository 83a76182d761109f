"""Closing the first of many requests to be complete.

The leading warp polls up to 32 requests in the same read, as Waitall does (``batch``); more are
polled in turns. While it polls a request, it has claimed it: two waits for one request cannot both
win. What came of requests that it does not close is left for the next call.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.platform import primitives as gpu
from device_lib.platform.context import our_mailboxes
from device_lib.platform.primitives import device
from device_lib.platform.scope import Scope, warp_mask
from device_lib.proxied import completion, slots
from device_lib.proxied.batch import Turn, ask, await_batch
from device_lib.proxied.closing import COMPLETED, FAULT, NO_ORIGIN, STAGED
from device_lib.proxied.executing import make_execute, make_tell_event
from gmpi.contract.wire import BYTES_MASK, ERROR_SHIFT, REQUEST_NULL

_NULL = -1  # no request of the batch is open
_LATER = -2  # none is complete


def make_finish_one(scope: Scope) -> Callable:
    """The function behind Waitany for one scope; all its threads call it together."""
    size = scope.size
    leads = scope.leads
    sync = scope.sync
    broadcast_5 = scope.broadcast_5
    execute = make_execute(scope)
    tell_event = make_tell_event(scope)

    @device
    def settle(ctx, kind, chosen, asked, foreign, low):
        """Closes the request of lane ``chosen``, gives back those of the other lanes; the leading
        warp. The outcome, as ``finish_small`` returns it."""
        handle = asked.handle
        outcome = COMPLETED | low & (COMPLETED - 1)
        if handle != REQUEST_NULL and asked.owner == handle:
            nbytes = low & BYTES_MASK
            if gpu.lane_id() != chosen:
                slots.unclaim(ctx, handle)
            elif kind != completion.ABORTED:
                has_payload = asked.recv != 0 and nbytes > 0 and kind != completion.LAST
                if has_payload and completion.is_staged(ctx, handle, nbytes):
                    outcome ^= COMPLETED | STAGED
                else:
                    slots.release_after(ctx, handle, low >> ERROR_SHIFT & 0xFF)
        elif foreign:
            outcome |= FAULT
        return gpu.shuffle(warp_mask(), outcome, max(chosen, 0))

    # long: one loop: each turn ends with a barrier
    @device
    def try_batch(ctx, count, requests, stride, polls, limit):
        """Polls up to 32 requests, until one is complete or ``limit`` polls have been made.

        Returns:
            (which one, its handle, and as ``finish_small``: outcome, count, origin).
        """
        lane = gpu.lane_id()
        handle = REQUEST_NULL
        wanted = leads() and lane < count
        if wanted:
            handle = gpu.load_8(requests + lane * stride)
        asked, waiting, low, foreign = ask(ctx, handle, wanted)
        word = 0
        origin = NO_ORIGIN
        places = our_mailboxes(ctx)
        kind = completion.COMMAND
        command = 0
        length = 0
        own = 0
        while kind == completion.COMMAND:
            place = 0
            buffers = 0
            target = 0
            if leads():
                waits = gpu.ballot(warp_mask(), waiting)
                kind = completion.NOTHING
                if gpu.ballot(warp_mask(), handle != REQUEST_NULL) != waits:
                    kind = completion.DONE  # it is known already what comes of one
                elif waits != 0:
                    event, waiting, low, word, origin = await_batch(
                        ctx, asked, Turn(waits, polls, limit), waiting, low, word, origin
                    )
                    kind, place, command, length, buffers, own, target = event
            kind, place, command, length, buffers, target = tell_event(
                kind, place, command, length, buffers, target
            )
            if kind == completion.COMMAND or kind == completion.LAST:
                aborted = execute(ctx, place, command, length, buffers, places, own, target)
                if aborted != 0 and own != 0 and own == handle:
                    low = (aborted & 0xFF) << ERROR_SHIFT
        chosen = _NULL
        outcome = COMPLETED
        if leads():
            mask = warp_mask()
            there = gpu.ballot(mask, handle != REQUEST_NULL)
            if there != 0:
                candidates = gpu.ballot(mask, handle != REQUEST_NULL and not waiting)
                if kind == completion.LAST:  # that one and no other: its command is not counted
                    candidates = gpu.ballot(mask, own == handle)
                elif kind == completion.ABORTED:
                    candidates = there
                    low = (command & 0xFF) << ERROR_SHIFT
                chosen = _LATER
                if candidates != 0:
                    chosen = gpu.first_bit(candidates)
                outcome = settle(ctx, kind, chosen, asked, foreign, low)
            handle = gpu.shuffle(mask, handle, max(chosen, 0))
            word = gpu.shuffle(mask, word, max(chosen, 0))
            origin = gpu.shuffle(mask, origin, max(chosen, 0))
        chosen, handle, outcome, word, origin = broadcast_5(chosen, handle, outcome, word, origin)
        sync()
        return chosen, handle, outcome, word, origin

    @device
    def finish_one(ctx, count, requests, stride):
        """Waits for one of ``count`` requests whose handles are ``stride`` bytes apart.

        Sets the handle of that one to REQUEST_NULL.

        Returns:
            (its index, -1 when all are null; its handle; and as ``finish_small``: outcome, count,
            origin).
        """
        sync()
        width = min(32, size())  # lanes of the leading warp
        first = 0
        polls = 0
        index = _NULL
        request = REQUEST_NULL
        outcome = COMPLETED
        word = 0
        origin = NO_ORIGIN
        nulls = 0  # requests in a row that are null
        while index < 0 and nulls < count:
            limit = 0 if count <= width else polls + 1
            here = min(width, count - first)
            index, request, outcome, word, origin = try_batch(
                ctx, here, requests + first * stride, stride, polls, limit
            )
            nulls = nulls + here if index == _NULL else 0
            if index >= 0:
                index += first
            first += here
            if first >= count:
                first = 0
                polls += gpu.opaque(1)
        if index < 0:
            return _NULL, REQUEST_NULL, COMPLETED, 0, NO_ORIGIN
        # Every thread: the array may be private to each.
        gpu.store_8(requests + index * stride, REQUEST_NULL)
        sync()
        return index, request, outcome, word, origin

    return finish_one
