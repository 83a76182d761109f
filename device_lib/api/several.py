"""Tests of several requests, and Waitsome (MPI 4.1 section 3.7.5), for each scope.

They look at one request after the other by the scope's ``finish``, on whichever road it is; each
look makes progress and ends with the context's waits.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.api.finishing import failed_status
from device_lib.api.lists import WORD, call_of, elements_of, statuses_of
from device_lib.direct.partitioned_waits import is_inactive
from device_lib.platform import primitives as gpu
from device_lib.platform.context import Status, status_of, store_status
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import device, int64
from device_lib.platform.scope import Scope
from device_lib.proxied import slots
from device_lib.proxied.closing import NO_ORIGIN
from device_lib.proxied.closing_all import STATUS_BYTES
from device_lib.proxied.slots import error_handle
from gmpi.contract.constants import ERR_COUNT, SUCCESS, UNDEFINED
from gmpi.contract.wire import HANDLE_ERROR_SHIFT, REQUEST_NULL

_TESTANY, _TESTALL = call_of("Testany"), call_of("Testall")
_TESTSOME, _WAITSOME = call_of("Testsome"), call_of("Waitsome")
#: In the array of Testall, where not all are complete yet: this one is, and its status is stored.
_SEEN = 1 << (HANDLE_ERROR_SHIFT - 1)


@device
def _is_seen(request):
    return request >> HANDLE_ERROR_SHIFT == 1 and request & _SEEN != 0


def make_several(scope: Scope, finish: Callable, refuse: Callable) -> SimpleNamespace:
    """The calls of one scope.

    Args:
        finish: ``finishing.finish``.
        refuse: of ``lists``.
    """
    leads = scope.leads
    sync = scope.sync
    part = parts_of(scope.name)

    @device
    def take_out(at, request, instead):
        """A request is complete; every thread, because the array may be private to each."""
        sync()
        if not slots.is_partitioned(request):
            gpu.store_8(at, instead)
        sync()

    @device
    def test_any(ctx, count, requests, stride):
        """(index, whether one is complete or all are null, the fields of its Status)."""
        sync()
        s = status_of(SUCCESS, 0, NO_ORIGIN)
        active = 0
        i = 0
        while i < count:
            request = gpu.load_8(requests + i * stride)
            if request != REQUEST_NULL and not is_inactive(ctx, request):
                active += 1
                completed, status = finish(ctx, request, True)
                if completed:
                    take_out(requests + i * stride, request, REQUEST_NULL)
                    return (
                        i, 1, status.error, status.source, status.tag, status.count, status.nbytes,
                    )  # fmt: skip
            i += gpu.opaque(1)
        return -1, 1 if active == 0 else 0, s.error, s.source, s.tag, s.count, s.nbytes

    @device
    def test_some(ctx, count, requests, indices, statuses, waits):
        """(how many are complete, UNDEFINED if none is active; the first error class)."""
        sync()
        found = 0
        error = SUCCESS
        going = True
        while going:
            active = 0
            i = 0
            while i < count:
                request = gpu.load_8(requests + i * 8)
                if request != REQUEST_NULL and not is_inactive(ctx, request):
                    active += 1
                    completed, status = finish(ctx, request, True)
                    if completed:
                        gpu.store_8(indices + found * 8, i)
                        if statuses != 0 and leads() and gpu.lane_id() == 0:
                            store_status(statuses + found * STATUS_BYTES, status)
                        if error == SUCCESS:
                            error = status.error
                        found += 1
                        take_out(requests + i * 8, request, REQUEST_NULL)
                i += gpu.opaque(1)
            if active == 0:
                found = UNDEFINED
            going = waits != 0 and found == 0
        sync()
        return found, error

    @device
    def test_all(ctx, count, requests, statuses):
        """(whether all are complete, the first error class; where not all are, of those that this
        call has found complete and that stay in the array)."""
        sync()
        left = 0
        error = SUCCESS
        first = count  # request that has failed
        i = 0
        while i < count:
            request = gpu.load_8(requests + i * 8)
            null = request == REQUEST_NULL or is_inactive(ctx, request)
            if not null and not _is_seen(request):
                completed, status = finish(ctx, request, True)
                if completed:
                    if statuses != 0 and leads() and gpu.lane_id() == 0:
                        store_status(statuses + i * STATUS_BYTES, status)
                    take_out(requests + i * 8, request, error_handle(status.error) | _SEEN)
                    if slots.is_partitioned(request) and status.error != SUCCESS and i < first:
                        error = status.error
                        first = i
                else:
                    left += 1
            i += gpu.opaque(1)
        if left > 0:
            return 0, error
        i = 0
        while i < count:
            request = gpu.load_8(requests + i * 8)
            if request == REQUEST_NULL and statuses != 0 and leads() and gpu.lane_id() == 0:
                store_status(statuses + i * STATUS_BYTES, status_of(SUCCESS, 0, NO_ORIGIN))
            elif _is_seen(request) and request & 0xFF != SUCCESS and i < first:
                error = request & 0xFF
                first = i
            take_out(requests + i * 8, request, REQUEST_NULL)
            i += gpu.opaque(1)
        return 1, error

    test_any_linked = part("test_any", 6, 7, test_any)
    test_some_linked = part("test_some", 8, 2, test_some)
    test_all_linked = part("test_all", 6, 2, test_all)

    @device
    def address_of(array):
        address, room, strided = gpu.buffer_of(array)
        return address

    @device
    def most_of(requests, indices, statuses):
        most = min(elements_of(requests, WORD), elements_of(indices, WORD))
        return min(most, statuses_of(statuses))

    @device
    def testany(ctx, count, requests):
        if refuse(ctx, _TESTANY, count, elements_of(requests, WORD)):
            return -1, True, failed_status(ERR_COUNT)
        index, flag, error, source, tag, elements, nbytes = test_any_linked(
            ctx, int64(count), address_of(requests), int64(requests.strides[0])
        )
        return index, flag != 0, Status(error, source, tag, elements, nbytes)

    @device
    def testall(ctx, count, requests, statuses=None):
        at = 0 if statuses is None else address_of(statuses)
        most = min(elements_of(requests, WORD), statuses_of(statuses))
        if refuse(ctx, _TESTALL, count, most):
            return True, int64(ERR_COUNT)
        flag, error = test_all_linked(ctx, int64(count), address_of(requests), at)
        return flag != 0, error

    @device
    def testsome(ctx, incount, requests, indices, statuses=None):
        at = 0 if statuses is None else address_of(statuses)
        if refuse(ctx, _TESTSOME, incount, most_of(requests, indices, statuses)):
            return int64(UNDEFINED), int64(ERR_COUNT)
        return test_some_linked(
            ctx, int64(incount), address_of(requests), address_of(indices), at, 0
        )

    @device
    def waitsome(ctx, incount, requests, indices, statuses=None):
        at = 0 if statuses is None else address_of(statuses)
        if refuse(ctx, _WAITSOME, incount, most_of(requests, indices, statuses)):
            return int64(UNDEFINED), int64(ERR_COUNT)
        return test_some_linked(
            ctx, int64(incount), address_of(requests), address_of(indices), at, 1
        )

    return SimpleNamespace(testany=testany, testall=testall, testsome=testsome, waitsome=waitsome)
