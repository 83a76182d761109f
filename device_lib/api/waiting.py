"""Waiting for requests of both roads: whoever waits for one goes on with the other.

MPI promises progress to all requests while a process waits for any. Those of the proxied road are
the proxy's; those of the direct road are carried on by threads that wait. So in a context with a
direct road a wait for the proxy does not only wait, and Waitall looks at all requests in turn.
All threads of a scope call these.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from types import SimpleNamespace

from device_lib.direct.claims import NOT_YET
from device_lib.direct.partitioned_waits import KEEP as KEEP_ACTIVE
from device_lib.direct.partitioned_waits import is_inactive
from device_lib.direct.persistent_rows import make_rounds
from device_lib.direct.requests import HELD, HOLD, HOLD_LONGER, KEEP, ONE_LOOK, QUICK, WAIT
from device_lib.direct.rows import is_direct_handle, is_send
from device_lib.direct.warp_messages import LOOKS, TAKEN
from device_lib.direct.words import elements_of
from device_lib.move.message import element_at
from device_lib.platform import primitives as gpu
from device_lib.platform.context import Status, has_direct, status_of, store_status
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import device, int64
from device_lib.platform.scope import Scope
from device_lib.proxied import pacing, slots
from device_lib.proxied.closing import COMPLETED, NO_ORIGIN
from device_lib.proxied.closing_all import STATUS_BYTES
from gmpi.contract.constants import SUCCESS
from gmpi.contract.wire import HANDLE_ERROR_SHIFT, REQUEST_NULL

_TURNS = 6 if gpu.SIMULATOR else 64  # of steps of all requests, before the first one is waited for
_LONGEST_PAUSE_NS = 4096  # between two looks at host memory


@device
def as_it_is(ctx, request):
    """What a call returns that does not wait."""
    return request


@device
def _is_direct_send(request):
    return is_direct_handle(request) and is_send(request)


@device
def _is_waited_for(request):
    """Whether Waitall has negated it: a partitioned request, which stays in the array."""
    return request < 0 and slots.is_partitioned(-request)


def make_waiting(
    scope: Scope, requests: SimpleNamespace, direct: SimpleNamespace, partitioned: SimpleNamespace
):
    """Waits of one scope.

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
    finish_direct, go_on, put_back = direct.finish, direct.go_on, direct.put_back
    is_short, take_short = direct.is_short, direct.take_short
    finish_longer, finish_rest = direct.finish_longer, direct.finish_rest
    leads = scope.leads
    sync = scope.sync

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
    def finish_opened(ctx, request, how):
        """``finish_either`` of what is not persistent. First what takes least time."""
        if is_short(request):
            looks = LOOKS if how == WAIT else 1
            state, nbytes, length, origin = take_short(ctx, request, looks, how == QUICK)
            if state == TAKEN:
                return True, status_of(COMPLETED | nbytes, elements_of(length, nbytes), origin)
            if state == NOT_YET:
                return False, status_of(0, 0, NO_ORIGIN)
            outcome, count, origin = finish_rest(ctx, request, how, state)
        elif request == slots.error_handle(SUCCESS):  # a short send of the direct road
            return True, status_of(COMPLETED, 0, NO_ORIGIN)
        elif is_direct_handle(request):
            outcome, count, origin = finish_longer(ctx, request, how)
        elif slots.is_partitioned(request):
            outcome, count, origin = finish_partitioned(ctx, request, 0 if how == WAIT else 1)
        elif how == WAIT and request > 0 and request >> HANDLE_ERROR_SHIFT == 0:
            error, source, tag, count, nbytes = wait_linked(ctx, request)
            return True, Status(error, source, tag, count, nbytes)
        else:
            completed, status = complete(ctx, request, how != WAIT)
            if how == ONE_LOOK and not completed:
                go_on(ctx, slots.guess(ctx))
            return completed, status
        return outcome & COMPLETED != 0, close(ctx, request, outcome, count, origin)

    @device
    def finish_either(ctx, request, how):
        """(completed, Status) of a request in a context with a direct road, or whose kernels make
        requests that stay.

        Args:
            how: WAIT; ONE_LOOK; or QUICK: without going on with anything else.
        """
        request = int64(request)
        opened = request
        persistent = False
        if not is_short(request) and slots.is_persistent(request):
            persistent = True
            opened = inner(ctx, request)
        completed, status = finish_opened(ctx, opened, how)
        if persistent and completed:
            end_round(ctx, request)
        return completed, status

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
            outcome, count, origin = finish_direct(ctx, opened, KEEP)
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
        """Its error class."""
        return wait(ctx, request).error

    @device
    def perform(ctx, word0, peer_tag, count, nbytes, send, recv):
        """Opens a request of the proxied road and waits for it: its Status."""
        if has_direct(ctx):
            handle = open_request(ctx, word0, peer_tag, count, nbytes, send, recv)
            completed, status = finish_either(ctx, handle, WAIT)
            return status
        return perform_proxied(ctx, word0, peer_tag, count, nbytes, send, recv)

    @device
    def step(ctx, at, request, how):
        """(completed, Status) of a request in the array of Waitall, as ``finish_either``.

        A request of the direct road that takes several steps is held from the first one on, with
        CLAIMED in its handle: to claim it and put it back each time would take longer than a step.
        """
        if not is_direct_handle(request):
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
                    completed, status = step(ctx, requests + i * 8, request, how)
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
        k = 0  # twice over all: sends come last, which may wait until the other rank has received
        while k < 2 * count:
            i = k if k < count else k - count
            k += gpu.opaque(1)
            request = gpu.load_8(requests + i * 8)
            if _is_direct_send(request) != (k > count):
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
        finish=finish,
        wait=wait,
        error_of=error_of,
        request_get_status=request_get_status,
        perform=perform,
        finish_several=finish_several,
        wait_for_each=wait_for_each,
        finish_one=finish_one_status,
    )
