"""Calls of traced kernels: the same calls, with time stamps around them.

A context that is opened with ``trace_file`` gives kernels a ``TracedContext``. That is another
type, so such kernels are compiled apart, with the calls that are made here; all others have nothing
of it. The first thread of the scope stores one event a call, after it (``gmpi/contract/trace.py``).
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


_LEADS = {"block": _first_of_block, "warp": _first_of_warp, "grid": _first_of_grid}


@device
def new_event(ctx):
    """The address of the next event of the calling warp; 0: its launch is not traced."""
    if ctx.rows == 0:
        return 0
    warps = (int64(gpu.block_threads()) + 31) >> 5
    warp = int64(gpu.block_id()) * warps + (int64(gpu.thread_rank()) >> 5)
    ring = ctx.trace + warp * (ctx.rows + 1) * trace.EVENT_BYTES
    number = gpu.load_8(ring)
    gpu.store_8(ring, number + 1)
    return ring + (1 + (number & (ctx.rows - 1))) * trace.EVENT_BYTES


@device
def put_call(at, begin, what, request, comm, datatype, peer, tag, count):  # wide: an event
    """The first half of an event: what the call was given."""
    gpu.store_8(at + 8 * trace.EVENT_BEGIN, begin)
    gpu.store_8(at + 8 * trace.EVENT_WHAT, what | int64(gpu.block_id()) << trace.BLOCK_SHIFT)
    gpu.store_8(at + 8 * trace.EVENT_REQUEST, int64(request))
    gpu.store_8(at + 8 * trace.EVENT_TYPE, (int64(comm) & LOW_32) | int64(datatype) << 32)
    gpu.store_8(at + 8 * trace.EVENT_PEER, (int64(peer) & LOW_32) | int64(tag) << 32)
    gpu.store_8(at + 8 * trace.EVENT_COUNT, int64(count))
    gpu.store_8(at + 8 * trace.EVENT_WARP, int64(gpu.thread_rank()) >> 5)


@device
def put_result(at, end, error, source, tag, nbytes):
    """The second half: what it returned, and when."""
    gpu.store_8(at + 8 * trace.EVENT_END, end)
    gpu.store_8(at + 8 * trace.EVENT_ERROR, int64(error))
    gpu.store_8(at + 8 * trace.EVENT_ORIGIN, (int64(source) & LOW_32) | int64(tag) << 32)
    gpu.store_8(at + 8 * trace.EVENT_NBYTES, int64(nbytes))


@device
def put_started(ctx, begin, end, what, count, requests):
    """An event for each request that a Startall has started."""
    address, room, strided = gpu.buffer_of(requests)
    i = 0
    while i < count:
        at = new_event(ctx)
        if at != 0:
            put_call(at, begin, what, gpu.load_8(address + i * 8), -1, -1, -1, -1, -1)
            put_result(at, end, 0, -1, -1, -1)
        i += gpu.opaque(1)


_OF_ONE = ("fetch_and_op", "compare_and_swap")  # element
_STATUS = "{0}.error{1}, {0}.source, {0}.tag, {0}.nbytes"
_NO_STATUS = "-1, -1, -1"
_SOURCE = """
def {name}({parameters}):
    begin = timer_ns()
    result = function({arguments})
    end = timer_ns()
    if leads():
        at = new_event(ctx)
        if at != 0:
            put_call(at, begin, {what}, {request}, {comm}, {datatype}, {peer}, {tag}, {count})
            put_result(at, end, {result}){more}
    return result
"""
_STARTED = """
        put_started(ctx, begin, end, {what}, count, requests)"""


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
    request = "request" if "request" in names else "0"
    if _is_request(declared.return_annotation, name):
        request = "result"
    peer = _first(names, "dest", "source", "root", "peer", "target_rank", "rank")
    shifted = trace.SCOPES.index(scope) << trace.SCOPE_SHIFT
    part = _STARTED.format(what=CALLS.index(trace.PART_OF_STARTALL) | shifted)
    source = _SOURCE.format(
        name=name,
        parameters=", ".join(
            n if p.default is p.empty else f"{n}={p.default!r}" for n, p in own.parameters.items()
        ),
        arguments=", ".join(["untraced(ctx)", *names[1:]]),
        what=CALLS.index(name) | shifted,
        more=part if name == "startall" else "",
        request=request,
        comm=_first(names, "comm", "win"),
        datatype=_first(names, "datatype", "sendtype", "origin_datatype"),
        peer=peer,
        tag=_first(names, "tag", "sendtag", "partition"),
        count="1" if name in _OF_ONE else _first(names, "count", "sendcount", "origin_count"),
        result=_result(declared.return_annotation, name),
    )
    space = {
        "function": function, "untraced": untraced, "leads": _LEADS[scope],
        "timer_ns": gpu.timer_ns, "new_event": new_event, "put_call": put_call,
        "put_result": put_result, "put_started": put_started,
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
