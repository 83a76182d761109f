"""Waiting for several requests, of either road: Waitall looks at all of them in turn, and Waitany
until the first is complete. All threads of a scope call these.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from types import SimpleNamespace

from device_lib.direct.how import HELD, HOLD, HOLD_LONGER, ONE_LOOK, QUICK, WAIT
from device_lib.direct.partitioned_waits import is_inactive
from device_lib.direct.rows import is_direct_handle, is_send
from device_lib.move.message import element_at
from device_lib.platform import primitives as gpu
from device_lib.platform.context import Status, status_of, store_status
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import device, int64
from device_lib.platform.scope import Scope
from device_lib.proxied import pacing, slots
from device_lib.proxied.closing import COMPLETED, NO_ORIGIN
from device_lib.proxied.closing_all import STATUS_BYTES
from gmpi.contract.constants import SUCCESS
from gmpi.contract.wire import REQUEST_NULL

_TURNS = 6 if gpu.SIMULATOR else 64  # of steps of all requests, before the first one is waited for


@device
def _is_direct_send(request):
    return is_direct_handle(request) and is_send(request)


@device
def _is_waited_for(request):
    """Whether Waitall has negated it: a partitioned request, which stays in the array."""
    return request < 0 and slots.is_partitioned(-request)


@device
def _load_few(count, requests):
    """The handles of at most NOTES requests, REQUEST_NULL behind the last: loads that are under way
    together. Beside a sweep that fills the memory one of them takes as long as a message's step."""
    first = gpu.load_8(requests) if count > 0 else REQUEST_NULL
    second = gpu.load_8(requests + 8) if count > 1 else REQUEST_NULL
    third = gpu.load_8(requests + 16) if count > 2 else REQUEST_NULL
    fourth = gpu.load_8(requests + 24) if count > 3 else REQUEST_NULL
    return first, second, third, fourth


@device
def _one_of(i, first, second, third, fourth):
    """The i-th: an index into a tuple would put it into memory."""
    low = first if i == 0 else second
    high = third if i == 2 else fourth
    return low if i < 2 else high


def make_waiting(
    scope: Scope, requests: SimpleNamespace, direct: SimpleNamespace, finishing: SimpleNamespace
) -> SimpleNamespace:
    """For one scope.

    Args:
        requests: of the proxied road (``proxied.requests``).
        direct: of the direct one (``direct.requests``).
        finishing: what ``make_finishing`` has returned.
    """
    close = requests.close
    finish_direct, go_on, put_back = direct.finish, direct.go_on, direct.put_back
    finish, finish_either = finishing.finish, finishing.finish_either
    leads = scope.leads
    sync = scope.sync

    part = parts_of(scope.name)

    @device
    def step(ctx, at, request, how, turn):
        """(completed, Status) of a request in the array of Waitall, as ``finish_either``.

        A request of the direct road that takes several steps is held from the first one on, with
        CLAIMED in its handle: to claim it and put it back each time would take longer than a step.
        """
        # What nobody has held yet, and says so, is no request: it is refused there.
        unknown = turn == 0 and request & slots.CLAIMED != 0
        if unknown or not is_direct_handle(request):
            return finish_either(ctx, request, how if how == WAIT else QUICK)
        outcome, count, origin = finish_direct(ctx, request, how)
        if outcome == HELD and request & slots.CLAIMED == 0:
            sync()
            gpu.store_8(at, request | slots.CLAIMED)
            sync()
        return outcome & COMPLETED != 0, close(ctx, request, outcome, count, origin)

    @device
    def put_back_all(ctx, count, requests):
        """Lets others go on with what is held."""
        i = 0
        while i < count:
            request = gpu.load_8(requests + i * 8)
            if is_direct_handle(request) and request & slots.CLAIMED != 0:
                put_back(ctx, request)
                sync()
                gpu.store_8(requests + i * 8, request & ~slots.CLAIMED)
                sync()
            i += gpu.opaque(1)

    @device
    def finish_all(ctx, count, requests, statuses):
        """As ``proxied.closing_all``: the error class of the first request that failed."""
        sync()
        result = SUCCESS
        first = count  # request that has failed
        turn = 0
        left = count
        while left > 0:
            how = HOLD_LONGER if left == 1 else HOLD
            if turn == _TURNS:
                put_back_all(ctx, count, requests)
            if turn >= _TURNS:
                how = WAIT
            left = 0
            i = 0
            while i < count:
                request = gpu.load_8(requests + i * 8)
                if (request != REQUEST_NULL or turn == 0) and not _is_waited_for(request):
                    completed, status = step(ctx, requests + i * 8, request, how, turn)
                    if completed:
                        if status.error != SUCCESS and i < first:
                            first = i
                            result = status.error
                        if statuses != 0 and leads() and gpu.lane_id() == 0:
                            store_status(statuses + i * STATUS_BYTES, status)
                        sync()
                        # Every thread: the array may be private to each.
                        done = -request if slots.is_partitioned(request) else REQUEST_NULL
                        gpu.store_8(requests + i * 8, done)
                        sync()
                    else:
                        left += 1
                i += gpu.opaque(1)
            if left > 0 and turn >= pacing.PATIENCE:
                go_on(ctx, slots.guess(ctx))
            turn += 1
        sync()
        i = 0
        while i < count:
            request = gpu.load_8(requests + i * 8)
            sync()
            if _is_waited_for(request):
                gpu.store_8(requests + i * 8, -request)
            i += gpu.opaque(1)
        sync()
        return result

    @device
    def finish_one(ctx, count, requests, stride):
        """(index, error, source, tag, count, bytes) of the first to be found complete; index -1 if
        all are null."""
        sync()
        turn = 0
        pending = 1
        while pending != 0:
            pending = 0
            i = 0
            while i < count:
                request = gpu.load_8(requests + i * stride)
                if request != REQUEST_NULL and not is_inactive(ctx, request):
                    pending += 1
                    how = ONE_LOOK if turn >= _TURNS else QUICK
                    completed, status = finish_either(ctx, request, how)
                    if completed:
                        sync()
                        if not slots.is_partitioned(request):
                            gpu.store_8(requests + i * stride, REQUEST_NULL)
                        sync()
                        return (
                            i,
                            status.error,
                            status.source,
                            status.tag,
                            status.count,
                            status.nbytes,
                        )
                i += gpu.opaque(1)
            turn += 1
        s = status_of(SUCCESS, 0, NO_ORIGIN)
        return -1, s.error, s.source, s.tag, s.count, s.nbytes

    @device
    def wait_for_each(ctx, count, requests, statuses):
        """Waitall where handles, or statuses, do not lie in one piece.

        One after the other, which is slower: the library has no such code, the kernel has it only
        where the type of an array does not say that it is contiguous.

        Args:
            requests, statuses: what ``describe`` has returned; 0: no statuses.
        """
        result = SUCCESS
        i = 0
        while i < count:
            at = element_at(requests, i, 8)
            request = gpu.load_8(at)
            completed, status = finish(ctx, request, False)
            if not slots.is_partitioned(request):
                gpu.store_8(at, REQUEST_NULL)  # every thread: the array may be private to each
            if statuses != 0:
                store_status(element_at(statuses, i, STATUS_BYTES), status)
            if result == SUCCESS:
                result = status.error
            i += 1
        return result

    @device
    def wait_for_few(ctx, count, requests, statuses):
        """Waitall of at most NOTES requests: one after the other, in the user's kernel; sends last.

        A wait goes on with so many others of its block in any case (``direct.own``), and no thread
        saves registers for a function of the library that has all of this.
        """
        count = int64(count)
        result = SUCCESS
        first = count  # request that has failed
        few = _load_few(count, requests)
        k = 0  # twice over all: sends come last, which may wait until the other rank has received
        while k < 2 * count:
            i = k if k < count else k - count
            k += gpu.opaque(1)
            request = _one_of(i, *few)
            if _is_direct_send(request) != (k > count):
                continue
            if request == REQUEST_NULL and statuses == 0:
                continue
            completed, status = finish_either(ctx, request, WAIT)
            if statuses != 0 and leads() and gpu.lane_id() == 0:
                store_status(statuses + i * STATUS_BYTES, status)
            sync()  # all have read the handle
            if not slots.is_partitioned(request):
                gpu.store_8(requests + i * 8, REQUEST_NULL)  # the array may be private to each
            if status.error != SUCCESS and i < first:
                first = i
                result = status.error
        return result

    finish_all_linked = part("finish_all_beside", 6, 1, finish_all)

    @device
    def finish_several(ctx, count, requests, statuses):
        """Waitall in a context with a direct road."""
        if count <= gpu.NOTES:
            return wait_for_few(ctx, count, requests, statuses)
        return finish_all_linked(ctx, count, requests, statuses)

    finish_one_linked = part("finish_one_beside", 6, 6, finish_one)

    @device
    def finish_one_status(ctx, count, requests, stride):
        """(index, Status), as ``finish_one``."""
        index, error, source, tag, elements, nbytes = finish_one_linked(
            ctx, count, requests, stride
        )
        return index, Status(error, source, tag, elements, nbytes)

    return SimpleNamespace(
        finish_several=finish_several,
        wait_for_each=wait_for_each,
        finish_one=finish_one_status,
    )
