"""Finishing one request of either road: by Wait, by Test, or by a call that blocks.

MPI promises progress to all requests while a process waits for any. Those of the proxied road are
the proxy's; those of the direct road are carried on by threads that wait. So in a context with a
direct road a wait for the proxy does not only wait. The user's kernel has only what takes little
time, since it has it once for each call: a kernel of a few kilobytes runs from the nearest
instruction cache. Everything else is one function of the library. All threads of a scope call
these.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from types import SimpleNamespace

from device_lib.direct.claims import LOST, NOT_YET
from device_lib.direct.how import KEEP, ONE_LOOK, WAIT
from device_lib.direct.partitioned_checks import KEEP as KEEP_ACTIVE
from device_lib.direct.persistent_rows import make_rounds
from device_lib.direct.rows import is_direct_handle
from device_lib.platform import primitives as gpu
from device_lib.platform.context import Status, has_direct, status_of
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import device, int64
from device_lib.platform.scope import Scope
from device_lib.proxied import slots
from device_lib.proxied.closing import COMPLETED, NO_ORIGIN
from gmpi.contract.constants import SUCCESS
from gmpi.contract.wire import HANDLE_ERROR_SHIFT, REQUEST_NULL

_LONGEST_PAUSE_NS = 4096  # between two looks at host memory


@device
def failed_status(error):
    """Of a call that has received nothing: an error class."""
    return Status(int64(error), -1, -1, 0, 0)


@device
def as_it_is(ctx, request):
    """What a call returns that does not wait."""
    return request


def make_finishing(
    scope: Scope, requests: SimpleNamespace, direct: SimpleNamespace, partitioned: SimpleNamespace
) -> SimpleNamespace:
    """For one scope.

    Args:
        requests: of the proxied road (``proxied.requests``).
        direct: of the direct one (``direct.requests``).
        partitioned: ``direct.partitioned_waits``.
    """
    finish_partitioned = partitioned.finish
    rounds = make_rounds(scope, requests.report)
    inner, end_round = rounds.inner, rounds.end
    complete, close, open_request = requests.complete, requests.close, requests.open_request
    perform_proxied, look_at = requests.perform, requests.look_at
    go_on, keep_direct = direct.go_on, direct.finish
    take_at_once, finish_rest = direct.take_at_once, direct.finish_rest
    part = parts_of(scope.name)

    @device
    def wait_beside(ctx, request):
        """Waits for a request of the proxied road: the fields of its Status.

        As long as requests of the direct road are open, they are gone on with. What other threads
        open there while nobody looks, they wait for themselves.
        """
        nanoseconds = 64
        completed = False
        status = status_of(SUCCESS, 0, NO_ORIGIN)
        while not completed:
            others = go_on(ctx, slots.guess(ctx))
            completed, status = complete(ctx, request, others)
            if not completed:
                gpu.pause(nanoseconds)
                nanoseconds = min(2 * nanoseconds, _LONGEST_PAUSE_NS)
        return status.error, status.source, status.tag, status.count, status.nbytes

    wait_linked = part("wait_beside", 4, 5, wait_beside)

    @device
    def wait_for_proxy(ctx, request):
        """The Status of a request of the proxied road."""
        error, source, tag, count, nbytes = wait_linked(ctx, request)
        return Status(error, source, tag, count, nbytes)

    @device
    def finish_opened(ctx, request, how, outcome, count, origin):
        """``finish_either`` of what is not persistent.

        Args:
            outcome, count, origin: what ``take_at_once`` has returned.
        """
        if outcome == NOT_YET:
            return False, status_of(0, 0, NO_ORIGIN)
        if outcome & COMPLETED == 0:
            if is_direct_handle(request):
                outcome, count, origin = finish_rest(ctx, request, how, outcome)
            elif slots.is_partitioned(request):
                once = 0 if how == WAIT else 1
                outcome, count, origin = finish_partitioned(ctx, request, once)
            elif how == WAIT and slots.is_proxied(request):
                return True, wait_for_proxy(ctx, request)
            else:
                completed, status = complete(ctx, request, how != WAIT)
                if how == ONE_LOOK and not completed:
                    go_on(ctx, slots.guess(ctx))
                return completed, status
        return outcome & COMPLETED != 0, close(ctx, request, outcome, count, origin)

    @device
    def finish_otherwise(ctx, request, how, outcome):
        """(whether it is complete, the fields of its Status) of a request that is not over at once.

        Args:
            outcome: what ``take_at_once`` has returned.
        """
        opened = request
        count = 0
        origin = NO_ORIGIN
        persistent = slots.is_persistent(request)
        if persistent:
            opened = inner(ctx, request)
            outcome, count, origin = take_at_once(ctx, opened, how)
        completed, s = finish_opened(ctx, opened, how, outcome, count, origin)
        if persistent and completed:
            end_round(ctx, request)
        return 1 if completed else 0, s.error, s.source, s.tag, s.count, s.nbytes

    otherwise_linked = part("finish_otherwise", 6, 6, finish_otherwise)

    @device
    def finish_later(ctx, request, how, outcome):
        """(completed, Status), as ``finish_otherwise``."""
        if how == WAIT and slots.is_proxied(request):  # the commonest of all, by a short function
            return True, wait_for_proxy(ctx, request)
        if how == WAIT and is_direct_handle(request):  # by the leading warp
            outcome, count, origin = finish_rest(ctx, request, how, outcome)
            return True, close(ctx, request, outcome, count, origin)
        flag, error, source, tag, count, nbytes = otherwise_linked(ctx, request, how, outcome)
        return flag != 0, Status(error, source, tag, count, nbytes)

    @device
    def finish_either(ctx, request, how):
        """(completed, Status) of a request in a context with a direct road, or whose kernels make
        requests that stay.

        Args:
            how: WAIT; ONE_LOOK; or QUICK: without going on with anything else.
        """
        request = int64(request)
        outcome, count, origin = take_at_once(ctx, request, how)
        if outcome & COMPLETED != 0:
            return True, status_of(outcome, count, origin)
        if outcome == NOT_YET:
            return False, status_of(0, 0, NO_ORIGIN)
        return finish_later(ctx, request, how, outcome)

    @device
    def finish(ctx, request, once):
        """(completed, Status) of a request; ``once``: looks, and does not wait."""
        if not has_direct(ctx):
            return complete(ctx, request, once)
        return finish_either(ctx, request, ONE_LOOK if once else WAIT)

    @device
    def look(ctx, request):
        """What a test would find, of a request that stays open: whether it is complete, and the
        fields of its Status."""
        opened = request
        if slots.is_persistent(request):
            opened = inner(ctx, request)
        if opened == REQUEST_NULL or opened >> HANDLE_ERROR_SHIFT == 1:
            completed, s = complete(ctx, opened, True)
            return 1, s.error, s.source, s.tag, s.count, s.nbytes
        if is_direct_handle(opened):
            outcome, count, origin = keep_direct(ctx, opened, KEEP)
        elif slots.is_partitioned(opened):
            outcome, count, origin = finish_partitioned(ctx, opened, KEEP_ACTIVE)
        else:
            outcome, count, origin = look_at(ctx, opened, 1)
            if outcome == 0 and has_direct(ctx):
                go_on(ctx, slots.guess(ctx))
        s = close(ctx, opened, outcome, count, origin)
        flag = 1 if outcome & COMPLETED != 0 else 0
        return flag, s.error, s.source, s.tag, s.count, s.nbytes

    look_linked = part("look", 4, 6, look)

    @device
    def request_get_status(ctx, request):
        flag, error, source, tag, count, nbytes = look_linked(ctx, int64(request))
        return flag != 0, Status(error, source, tag, count, nbytes)

    @device
    def wait(ctx, request):
        """The Status of a request that is waited for."""
        completed, status = finish(ctx, request, False)
        return status

    @device
    def error_of(ctx, request):
        """The error class of a collective that is waited for: no message that may have come."""
        if request == slots.error_handle(SUCCESS):  # it went by the direct road, and is over
            return SUCCESS
        if has_direct(ctx):
            completed, status = finish_later(ctx, request, WAIT, LOST)
            return status.error
        completed, status = complete(ctx, request, False)
        return status.error

    @device
    def perform(ctx, word0, peer_tag, count, nbytes, send, recv):
        """Opens a request of the proxied road and waits for it: its Status."""
        if has_direct(ctx):
            handle = open_request(ctx, word0, peer_tag, count, nbytes, send, recv)
            completed, status = finish_later(ctx, handle, WAIT, LOST)
            return status
        return perform_proxied(ctx, word0, peer_tag, count, nbytes, send, recv)

    return SimpleNamespace(
        finish=finish,
        finish_either=finish_either,
        wait=wait,
        error_of=error_of,
        request_get_status=request_get_status,
        perform=perform,
    )
