"""Calls of traced kernels: the same calls, with time stamps around them.

A context that is opened with ``trace_file`` gives kernels a ``TracedContext``. That is another
type, so such kernels are compiled apart, with the calls that are made here; all others have nothing
of it. The first thread of the scope stores one event a call (``gmpi/contract/trace.py``): after a
call that tells somebody something, and of a call that waits as much as possible before it. So no
message is late for more than a look at the clock and two stores. Where its warp is in its ring, and
when to look at the GPU's timer again, is noted in shared memory.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_args

from device_lib.platform import primitives as gpu
from device_lib.platform.context import DeviceContext, Status, TracedContext
from device_lib.platform.primitives import device, int64
from gmpi.contract import trace
from gmpi.contract.wire import LOW_32

#: The calls by their numbers in events, as they were bound in this process.
CALLS: list[str] = [trace.PART_OF_STARTALL]


@device
def untraced(ctx):
    return DeviceContext(ctx.mapped, ctx.device, ctx.shape, ctx.identity)


@device
def _first_of_block():
    return gpu.thread_rank() == 0


@device
def _first_of_warp():
    return gpu.lane_id() == 0


@device
def _first_of_grid():
    return gpu.thread_rank() == 0 and gpu.block_id() == 0


@device
def _row_of_block():
    return 0


@device
def _row_of_warp():
    return (int64(gpu.thread_rank()) >> 5) * trace.NOTE_WORDS


_LEADS = {"block": _first_of_block, "warp": _first_of_warp, "grid": _first_of_grid}
_ROWS = {"block": _row_of_block, "warp": _row_of_warp, "grid": _row_of_block}


@device
def _take_pair(ctx, notes, is_new):
    """Reads the GPU's timer beside the clock, for the first event of a warp or because it is time.

    Returns:
        (address of the ring, the warp's progress, cycles, ns)
    """
    block = int64(gpu.block_id())
    if is_new:
        warps = (int64(gpu.block_threads()) + 31) >> 5
        warp = block * warps + (int64(gpu.thread_rank()) >> 5)
        ring = ctx.trace + warp * (ctx.rows + 1) * trace.EVENT_BYTES
        progress = int64(0)
        gpu.put_trace_note(notes + trace.NOTE_LAUNCH, ctx.launch)
        gpu.put_trace_note(notes + trace.NOTE_RING, ring)
    else:
        ring = gpu.get_trace_note(notes + trace.NOTE_RING)
        progress = gpu.get_trace_note(notes + trace.NOTE_PROGRESS)
    pairs = progress >> 32 & LOW_32
    ns = gpu.timer_ns()
    cycles = gpu.clock()
    due = cycles + (1 << min(trace.FIRST_PERIOD_SHIFT + pairs, trace.PERIOD_SHIFT))
    gpu.put_trace_note(notes + trace.NOTE_DUE, (due & LOW_32) | block << 32)
    gpu.store_pair_gpu(ring + (pairs & (trace.HEADER_PAIRS - 1)) * 16, cycles, ns)
    return ring, progress + (1 << 32), cycles, ns


@device
def new_event(ctx, notes, now):
    """The next event of the calling warp, by its leading thread.

    Args:
        notes: the index of the warp's notes.
        now: the clock.

    Returns:
        (its address, or 0: its launch is not traced; its number; the clock; the GPU's timer at that
        moment, or 0)
    """
    if ctx.rows == 0:
        return 0, 0, now, 0
    due = gpu.get_trace_note(notes + trace.NOTE_DUE)
    ring = gpu.get_trace_note(notes + trace.NOTE_RING)
    progress = gpu.get_trace_note(notes + trace.NOTE_PROGRESS)
    launch = gpu.get_trace_note(notes + trace.NOTE_LAUNCH)
    is_new = (launch != ctx.launch) | (due >> 32 != int64(gpu.block_id()))
    ns = int64(0)
    if is_new or (due - now & LOW_32) > 1 << trace.PERIOD_SHIFT:
        ring, progress, now, ns = _take_pair(ctx, notes, is_new)
    gpu.put_trace_note(notes + trace.NOTE_PROGRESS, progress + 1)
    at = ring + (1 + (progress & (ctx.rows - 1))) * trace.EVENT_BYTES
    return at, progress, now, ns


@device
def put_call(at, begin, ns, what, request, comm, datatype, peer, tag, count, end_ns):  # wide: event
    """What the call was given."""
    gpu.store_pair_gpu(at + 8 * trace.EVENT_BEGIN, begin, ns)
    gpu.store_pair_gpu(at + 8 * trace.EVENT_WHAT, what, int64(request))
    of_type = (int64(comm) & LOW_32) | int64(datatype) << 32
    of_peer = (int64(peer) & LOW_32) | int64(tag) << 32
    gpu.store_pair_gpu(at + 8 * trace.EVENT_TYPE, of_type, of_peer)
    gpu.store_pair_gpu(at + 8 * trace.EVENT_COUNT, int64(count), end_ns)


@device
def put_result(at, end, error, source, tag, nbytes):
    """What it returned, and when."""
    gpu.store_pair_gpu(at + 8 * trace.EVENT_END, end, int64(error))
    origin = (int64(source) & LOW_32) | int64(tag) << 32
    gpu.store_pair_gpu(at + 8 * trace.EVENT_ORIGIN, origin, int64(nbytes))


@device
def end_of_wait(at, begin):
    """When a call ends that began at ``begin``; long ones have a pair there."""
    end = gpu.clock()
    if end - begin > trace.LONG_WAIT:
        gpu.store_8(at + 8 * trace.EVENT_END_NS, gpu.timer_ns())
        end = gpu.clock()
    return end


@device
def put_started(ctx, notes, begin, end, what, count, requests):
    """An event for each request that a Startall has started."""
    address, room, strided = gpu.buffer_of(requests)
    i = 0
    while i < count:
        at, number, now, ns = new_event(ctx, notes, end)
        if at != 0:
            request = gpu.load_8(address + i * 8)
            what_of = what | number << trace.NUMBER_SHIFT
            put_call(at, begin, 0, what_of, request, -1, -1, -1, -1, -1, 0)
            put_result(at, end, 0, -1, -1, -1)
        i += gpu.opaque(1)


_OF_ONE = ("fetch_and_op", "compare_and_swap")  # element
_STATUS = "{0}.error{1}, {0}.source, {0}.tag, {0}.nbytes"
_NO_STATUS = "-1, -1, -1"
_CALL = """{what} | number << SHIFT, {request},
                {comm}, {datatype}, {peer}, {tag}, {count}"""
#: Of a call that returns as soon as it has told somebody: nothing but the clock is read before it.
_AT_ONCE = """
def {name}({parameters}):
    begin = gpu.clock()
    result = function({arguments})
    end = gpu.clock()
    if leads():
        notes = row()
        at, number, end, ns = new_event(ctx, notes, end)
        if at != 0:
            put_call(at, begin, 0, {call}, ns)
            put_result(at, end, {result}){more}
    return result
"""
#: Of one that waits: as much as can be is done before, while what it waits for is on its way.
_WAITING = """
def {name}({parameters}):
    begin = gpu.clock()
    at = int64(0)
    if leads():
        at, number, begin, ns = new_event(ctx, row(), begin)
        if at != 0:
            put_call(at, begin, ns, {call}, 0)
    result = function({arguments})
    if at != 0:
        put_result(at, end_of_wait(at, begin), {result})
    return result
"""
_STARTED = """
            put_started(ctx, notes, begin, end, {what}, count, requests)"""
_SENDS = ("send", "bsend", "rsend", "ssend")
_TELLS = ("start", "pready", "put", "accumulate", "request_free")  # what their names begin with


def _first(names: list[str], *wanted: str) -> str:
    return next((name for name in wanted if name in names), "-1")


def _is_request(returns: Any, name: str) -> bool:
    """Whether that is what the call returns."""
    return returns is int and (
        name.startswith(("i", "rput", "rget", "raccumulate")) or name.endswith("_init")
    )


def _result(returns: Any, name: str) -> str:
    """What ``put_result`` gets of what the call returns."""
    if returns is Status:
        return _STATUS.format("result", "")
    parts = get_args(returns)
    if len(parts) == 2 and parts[1] is Status:  # (whether, or which; its status)
        incomplete = "not result[0]" if parts[0] is bool else "result[0] < 0"
        return _STATUS.format("result[1]", f" | ({incomplete}) * {trace.NOT_COMPLETE}")
    if returns is int and not _is_request(returns, name):
        return f"result, {_NO_STATUS}"
    return f"0, {_NO_STATUS}"


def make_traced(function: Any, name: str, declared: inspect.Signature, scope: str) -> Any:
    """A device function that makes the call ``function`` and stores an event.

    Args:
        name: of the call, as ``CALLS`` has it.
        declared: how users call it.
    """
    own = inspect.signature(getattr(function, "py_func", function))
    names = list(own.parameters)
    returns_request = _is_request(declared.return_annotation, name)
    request = "request" if "request" in names else "0"
    if returns_request:
        request = "result"
    at_once = returns_request or name in _SENDS or name.startswith(_TELLS)
    shifted = trace.SCOPES.index(scope) << trace.SCOPE_SHIFT
    part = _STARTED.format(what=CALLS.index(trace.PART_OF_STARTALL) | shifted)
    call = _CALL.format(
        what=CALLS.index(name) | shifted,
        request=request,
        comm=_first(names, "comm", "win"),
        datatype=_first(names, "datatype", "sendtype", "origin_datatype"),
        peer=_first(names, "dest", "source", "root", "peer", "target_rank", "rank"),
        tag=_first(names, "tag", "sendtag", "partition"),
        count="1" if name in _OF_ONE else _first(names, "count", "sendcount", "origin_count"),
    )
    source = (_AT_ONCE if at_once else _WAITING).format(
        name=name,
        parameters=", ".join(
            n if p.default is p.empty else f"{n}={p.default!r}" for n, p in own.parameters.items()
        ),
        arguments=", ".join(["untraced(ctx)", *names[1:]]),
        call=call,
        more=part if name == "startall" else "",
        result=_result(declared.return_annotation, name),
    )
    space = {
        "function": function, "untraced": untraced, "leads": _LEADS[scope], "row": _ROWS[scope],
        "gpu": gpu, "int64": int64, "SHIFT": trace.NUMBER_SHIFT, "new_event": new_event,
        "put_call": put_call, "put_result": put_result, "end_of_wait": end_of_wait,
        "put_started": put_started,
    }  # fmt: skip
    exec(compile(source, f"<traced {name}>", "exec"), space)
    return device(space[name])


def with_twin(function: Any, name: str, declared: inspect.Signature, scope: str) -> Any:
    """``function``, which is another one where a kernel's context is traced.

    The other one is made when it is asked for first.
    """
    if name not in CALLS:
        CALLS.append(name)
    made: list[Any] = []

    def twin() -> Any:
        if not made:
            made.append(make_traced(function, name, declared, scope))
        return made[0]

    return _by_value(function, twin) if gpu.SIMULATOR else _by_type(function, twin)


def _by_value(function: Callable[..., Any], twin: Callable[[], Any]) -> Callable[..., Any]:
    def call(ctx: Any, *arguments: Any) -> Any:
        chosen = twin() if type(ctx) is TracedContext else function
        return chosen(ctx, *arguments)

    call.__name__ = function.__name__
    call.__doc__ = function.__doc__
    return call


def _by_type(function: Any, twin: Callable[[], Any]) -> Any:
    """Numba asks a device function twice: how a call is typed, and for its compiled code."""
    template, overload = function.get_call_template, function.get_overload

    def get_call_template(args: Any, kws: Any) -> Any:
        given = [*args, *kws.values()]
        if any(_is_traced(argument) for argument in given):
            return twin().get_call_template(args, kws)
        return template(args, kws)

    def get_overload(sig: Any) -> Any:
        arguments = getattr(sig, "args", sig)
        if any(_is_traced(argument) for argument in arguments):
            return twin().get_overload(sig)
        return overload(sig)

    function.get_call_template = get_call_template
    function.get_overload = get_overload
    return function


def _is_traced(given: Any) -> bool:
    return getattr(given, "instance_class", None) is TracedContext
