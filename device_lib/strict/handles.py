"""Handles of requests in the arguments and results of calls, and partitioned requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from device_lib.platform.context import Status
from device_lib.strict.regions import array_of, region_of
from device_lib.strict.requests import Busy, Request
from gmpi.contract.constants import PROC_NULL, SUCCESS
from gmpi.contract.wire import HANDLE_ERROR_SHIFT, HANDLE_PARTITIONED_SHIFT, REQUEST_NULL

if TYPE_CHECKING:
    from device_lib.strict.calls import Call
    from device_lib.strict.checker import Checker

PARTITIONED = frozenset(
    {
        "Psend_init", "Precv_init", "Request_free", "Start", "Startall", "Pready", "Pready_range",
        "Pready_list", "Parrived",
    }
)  # fmt: skip


def _values(requests: Any, count: int) -> list[int]:
    """The handles in an array or a tuple."""
    if isinstance(requests, tuple):
        return [int(handle) for handle in requests[:count]]
    array = array_of(requests)
    assert array is not None
    return [int(handle) for handle in array.reshape(-1)[:count]]


def of(call: Call) -> list[int]:
    """What a wait or a test waits for."""
    if "request" in call.arguments:
        return [int(call.arguments["request"])]
    return _values(call.arguments["requests"], count_of(call))


def count_of(call: Call) -> int:
    """How many requests a call on several of them is given."""
    arguments = call.arguments
    return int(arguments["incount"] if "incount" in arguments else arguments["count"])


def set_null(requests: Any, index: int) -> None:
    """What Waitany does with the handle of the request that it has closed."""
    if isinstance(requests, tuple):
        return
    array = array_of(requests)
    assert array is not None
    place = np.unravel_index(index, array.shape)
    if int(array[place]) >> HANDLE_PARTITIONED_SHIFT != 1:
        array[place] = REQUEST_NULL


def completed(call: Call, result: Any) -> Iterator[tuple[int, Status | None]]:
    """The requests that a wait or a test has closed, each with its status if that is known."""
    name, handles = call.name, call.handles
    if name == "Wait":
        yield handles[0], result
    elif name == "Test":
        if result[0]:
            yield handles[0], result[1]
    elif name in ("Waitany", "Testany"):
        if result[0] >= 0:
            yield handles[result[0]], result[-1]
    elif name in ("Waitall", "Testall"):
        if name == "Waitall" or result[0]:
            for k, handle in enumerate(handles):
                yield handle, _status(call, k)
        else:
            yield from _changed(call)
    else:
        indices = array_of(call.arguments["indices"])
        assert indices is not None
        for k in range(max(0, int(result[0]))):
            yield handles[int(indices.reshape(-1)[k])], _status(call, k)


def _changed(call: Call) -> Iterator[tuple[int, Status | None]]:
    """What a Testall that has not found all has found complete (it puts another handle there)."""
    after = _values(call.arguments["requests"], len(call.handles))
    for k, (handle, now) in enumerate(zip(call.handles, after)):
        if handle != now:
            yield handle, _status(call, k)


def _status(call: Call, k: int) -> Status | None:
    """One of the statuses of a call on several requests."""
    given = call.extra if call.extra is not None else array_of(call.arguments["statuses"])
    if given is None:
        return None
    rows = np.frombuffer(np.ascontiguousarray(given).tobytes(), np.int64).reshape(-1, 5)
    return Status(*(int(value) for value in rows[k])) if k < len(rows) else None


# --- partitioned requests ---------------------------------------------------------------------


def begin(checker: Checker, call: Call) -> None:
    """A call on a partitioned request is about to be made."""
    name, arguments = call.name, call.arguments
    requests = checker.requests
    if name == "Parrived":
        key = int(arguments["request"]), int(arguments["partition"])
        call.held = key[0] in requests.partitioned and checker.schedule.holds(key)
    if name in ("Psend_init", "Precv_init", "Parrived", "Request_free"):
        return
    if name in ("Start", "Startall"):
        for handle in _started(call):
            request = requests.partitioned.get(handle)
            if request is None or request.active:
                continue
            request.active = True
            if request.back:
                for region in request.partitions:
                    checker.calls.stored(call, region)
                    checker.calls.forget_stores(region)
                    busy = Busy(request, region, True)
                    busy.poison()
                    requests.hold(busy)
        return
    request = requests.partitioned.get(int(arguments["request"]))
    if request is None or not request.active:
        return
    first = last = int(arguments.get("partition", 0))
    if name == "Pready_range":
        first, last = int(arguments["partition_low"]), int(arguments["partition_high"])
    wanted = list(range(max(0, first), min(last + 1, len(request.partitions))))
    if name == "Pready_list":
        numbers = _values(arguments["array_of_partitions"], int(arguments["length"]))
        wanted = [k for k in numbers if 0 <= k < len(request.partitions)]
    for region in (request.partitions[k] for k in wanted):
        checker.calls.taken(call, region)
        requests.hold(Busy(request, region, False))


def _started(call: Call) -> list[int]:
    if call.name == "Start":
        return [int(call.arguments["request"])]
    return _values(call.arguments["requests"], int(call.arguments["count"]))


def end(checker: Checker, call: Call, result: Any) -> None:
    """A call on a partitioned request has been made."""
    name, arguments = call.name, call.arguments
    requests = checker.requests
    if name in ("Psend_init", "Precv_init"):
        _made(checker, call, int(result))
    elif name == "Request_free" and result == SUCCESS:
        handle = int(arguments["request"])
        request = requests.partitioned.pop(handle, None)
        if request is not None:
            requests.close(request, call.site, None)
        else:
            requests.free(handle, call.site)
    elif name == "Parrived" and result:
        request = requests.partitioned.get(int(arguments["request"]))
        number = int(arguments["partition"])
        if request is None or not 0 <= number < len(request.partitions):
            return
        region = request.partitions[number]
        for busy in [busy for busy in request.busy if busy.region is region]:
            requests.let_go(busy, None)


def _made(checker: Checker, call: Call, handle: int) -> None:
    """A partitioned request has been made."""
    arguments = call.arguments
    sends = call.name == "Psend_init"
    if handle >> HANDLE_ERROR_SHIFT == 1 or arguments["dest" if sends else "source"] == PROC_NULL:
        return
    parts = int(arguments["partitions"])
    count, datatype = int(arguments["count"]) * parts, int(arguments["datatype"])
    region = region_of(arguments["buf"], count, datatype, checker.world.runs)
    if region is None:
        return
    block = f"block {call.me.index // checker.threads}"
    request = Request(call.full, call.site, call.me.index, block)
    request.back = not sends
    request.handle = handle
    request.partitions = [region.part(k, parts) for k in range(parts)]
    checker.requests.partitioned[handle] = request
