"""Calls of traced kernels: the same calls, with time stamps around them.

A context that is opened with ``trace_file`` gives kernels a ``TracedContext``. That is another
type, so such kernels are compiled apart, with the calls that are made here; all others have nothing
of it. The first thread of the scope stores one event a call (``gmpi/contract/trace.py``): after a
call that tells somebody something, and of a call that waits as much as possible before it. So no
message is late for more than a look at the clock and two stores. Where its warp is in its ring, and
when to look at the GPU's timer again, is noted in shared memory.

Each instruction counts, and a warp whose lanes part loses many: all lanes of the leading warp work
an event out alike, and what they store has a condition, not a branch. Who and where they are is
worked out once for all calls (``tracing.thread_rank``).
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_args

from device_lib.platform import primitives as gpu
from device_lib.platform.context import DeviceContext, Status, TracedContext
from device_lib.platform.library import linked
from device_lib.platform.primitives import SIMULATOR, device, int64, uint32
from gmpi.contract import trace
from gmpi.contract.wire import LOW_32

if SIMULATOR:
    from device_lib.platform import tracing_sim as tracing
else:
    from device_lib.platform import tracing_cuda as tracing  # type: ignore[no-redef]

#: The calls by their numbers in events, as they were bound in this process.
CALLS: list[str] = [trace.PART_OF_STARTALL]

# The threads of these ranks work an event out alike: the leading warp. In the simulator each lane
# takes time.
TOGETHER = 1 if SIMULATOR else 32
LEADS = 15  # in the address of an event, in its low bits: this thread stores it


@device
def untraced(ctx):
    return DeviceContext(ctx.mapped, ctx.device, ctx.shape, ctx.identity)


@device
def _thread_of_grid():
    return tracing.thread_rank() | tracing.block_id() << 10


@device
def _notes_of_block():
    return tracing.address_of(0)


@device
def _notes_of_warp():
    return tracing.address_of((int64(tracing.thread_rank()) >> 5) * trace.NOTE_WORDS)


_THREADS = {"block": tracing.thread_rank, "warp": tracing.lane_id, "grid": _thread_of_grid}
_NOTES = {"block": _notes_of_block, "warp": _notes_of_warp, "grid": _notes_of_block}


@device
def _take_pair(notes, key, rings, rows, leads):
    """Reads the GPU's timer beside the clock, for the first event of a warp or because it is time:
    (events so far, where the next one's place is).

    Args:
        rings: those of the launch.
        rows: of each.
    """
    first = tracing.get(notes + 8 * trace.NOTE_FIRST)
    number = tracing.get(notes + 8 * trace.NOTE_PROGRESS) >> 32 & LOW_32
    pairs = tracing.get(notes + 8 * trace.NOTE_PAIRS)
    if tracing.get(notes + 8 * trace.NOTE_KEY) != key:
        warps = (int64(gpu.block_threads()) + 31) >> 5
        warp = int64(gpu.block_id()) * warps + (int64(gpu.thread_rank()) >> 5)
        first = rings + (warp * (rows + 1) + 1) * trace.EVENT_BYTES
        number = int64(0)
        pairs = int64(0)
    at = first + (number & (rows - 1)) * trace.EVENT_BYTES
    ns = gpu.timer_ns()
    cycles = gpu.clock()
    if leads != 0:
        due = cycles + (1 << min(trace.FIRST_PERIOD_SHIFT + pairs, trace.PERIOD_SHIFT))
        tracing.put(notes + 8 * trace.NOTE_KEY, key)
        tracing.put(notes + 8 * trace.NOTE_PROGRESS, (due & LOW_32) | number << 32)
        tracing.put(notes + 8 * trace.NOTE_FIRST, first)
        tracing.put(notes + 8 * trace.NOTE_PAIRS, pairs + 1)
        header = first - trace.EVENT_BYTES
        gpu.store_pair_gpu(header + (pairs & (trace.HEADER_PAIRS - 1)) * 16, cycles, ns)
        gpu.store_pair_gpu(at + 8 * trace.EVENT_PAIRS, cycles, ns)
    return number, at


# In the library, since it is rarely called. Inline, its constants were worked out before loops: a
# ping-pong took 120 registers in place of 72, and found none for numbers that all lanes have in
# common. So it loaded them from constant memory in each call, and waited.
_pair_linked = linked("gmpi_trace_pair", 5, 2, _take_pair)


@device
def new_event(ctx, notes, now, leads):
    """(the address of the next event of the calling warp, | LEADS where the thread leads; its
    number).

    Args:
        notes: of the warp.
        now: the clock.
        leads: whether it is the thread that stores.
    """
    key = ctx.launch ^ int64(tracing.block_id())
    known, number, at = tracing.look(notes, key, now, ctx.rows)
    if known == 0:
        number, at = _pair_linked(notes, key, ctx.trace, ctx.rows, 1 if leads else 0)
    at = at | (LEADS if leads else 0)
    tracing.count_if(notes, number + 1, at)
    return at, number


@device
def _put(at, word, low, high):
    """Stores two words of an event, if the thread leads.

    Each pair of words has a bit of its own that says so: where several stores have a condition in
    common, the assembler makes a branch of it, at which the warp parts.
    """
    tracing.store_pair_if(at - LEADS + 8 * word, low, high, at, 1 << (word >> 1 & 3))


@device
def put_call(at, begin, what, request, comm, datatype, peer, tag, count):  # wide: event
    """What the call was given."""
    _put(at, trace.EVENT_BEGIN, begin, what)
    of_type = (int64(comm) & LOW_32) | int64(datatype) << 32
    _put(at, trace.EVENT_REQUEST, int64(request), of_type)
    of_peer = (int64(peer) & LOW_32) | int64(tag) << 32
    _put(at, trace.EVENT_PEER, of_peer, int64(count))


@device
def put_end(at, end, error):
    """When it returned."""
    _put(at, trace.EVENT_END, end, int64(error))


@device
def put_status(at, source, tag, nbytes):
    """And what."""
    origin = (int64(source) & LOW_32) | int64(tag) << 32
    _put(at, trace.EVENT_ORIGIN, origin, int64(nbytes))


@device
def put_long(at, begin, end):
    """And a pair, where it has waited for long. Last: at the branch nothing waits any more."""
    if tracing.low_difference(end, begin) > trace.LONG_WAIT:
        cycles = gpu.clock()
        _put(at, trace.EVENT_PAIRS + 2, cycles, gpu.timer_ns())


@device
def put_started(ctx, notes, begin, end, what, count, requests, leads):
    """An event for each request that a Startall has started."""
    address, room, strided = gpu.buffer_of(requests)
    i = 0
    while i < count:
        at, number = new_event(ctx, notes, end, leads)
        request = gpu.load_8(address + i * 8)
        put_call(at, begin, what | number << trace.NUMBER_SHIFT, request, -1, -1, -1, -1, -1)
        put_end(at, end, 0)
        i += gpu.opaque(1)


_OF_ONE = ("fetch_and_op", "compare_and_swap")  # element
_CALL = """{what} | number << SHIFT, {request},
                {comm}, {datatype}, {peer}, {tag}, {count}"""
#: Of a call that returns as soon as it has told somebody: nothing but the clock is read before it.
_AT_ONCE = """
def {name}({parameters}):
    begin = gpu.clock()
    result = function({arguments})
    end = gpu.clock()
    thread = thread_of()
    if thread < TOGETHER and uint32(ctx.rows) != 0:
        notes, leads = notes_of(), thread == 0
        at, number = new_event(ctx, notes, end, leads)
        put_call(at, begin, {call})
        put_end(at, end, {error}){more}
    return result
"""
#: Of one that waits: as much as can be is done before, while what it waits for is on its way.
_WAITING = """
def {name}({parameters}):
    begin = gpu.clock()
    at = int64(0)
    thread = thread_of()
    if thread < TOGETHER and uint32(ctx.rows) != 0:
        notes, leads = notes_of(), thread == 0
        at, number = new_event(ctx, notes, begin, leads)
        put_call(at, begin, {call})
    result = function({arguments})
    end = gpu.clock()
    put_end(at, end, {error}){more}
    put_long(at, begin, end)
    return result
"""
_STATUS = """
    put_status(at, {0}.source, {0}.tag, {0}.nbytes)"""
_STARTED = """
        put_started(ctx, notes, begin, end, {what}, count, requests, leads)"""
LOCALS = ("begin", "end", "thread", "notes", "leads", "at", "number", "result")
_SENDS = ("send", "bsend", "rsend", "ssend")
_TELLS = ("start", "pready", "put", "accumulate", "request_free")  # what their names begin with


def _first(names: list[str], *wanted: str) -> str:
    return next((name for name in wanted if name in names), "-1")


def _is_request(returns: Any, name: str) -> bool:
    """Whether that is what the call returns."""
    return returns is int and (
        name.startswith(("i", "rput", "rget", "raccumulate")) or name.endswith("_init")
    )


def _result(returns: Any, name: str) -> tuple[str, str]:
    """(The error of what the call returns, its status or nothing), as code."""
    if returns is Status:
        return "result.error", "result"
    parts = get_args(returns)
    if len(parts) == 2 and parts[1] is Status:  # (whether, or which; its status)
        incomplete = "not result[0]" if parts[0] is bool else "result[0] < 0"
        return f"result[1].error | ({incomplete}) * {trace.NOT_COMPLETE}", "result[1]"
    return "result" if returns is int and not _is_request(returns, name) else "0", ""


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
    error, status = _result(declared.return_annotation, name)
    shifted = trace.SCOPES.index(scope) << trace.SCOPE_SHIFT
    more = ""
    if status and not at_once:  # of a send it says nothing but the error
        more = _STATUS.format(status)
    else:
        shifted |= trace.NO_STATUS
    if name == "startall":
        more = _STARTED.format(what=CALLS.index(trace.PART_OF_STARTALL) | shifted)
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
        more=more,
        error=error,
    )
    space = {
        "function": function, "untraced": untraced, "thread_of": _THREADS[scope],
        "notes_of": _NOTES[scope], "gpu": gpu, "int64": int64, "uint32": uint32,
        "TOGETHER": TOGETHER, "SHIFT": trace.NUMBER_SHIFT, "new_event": new_event,
        "put_call": put_call, "put_end": put_end, "put_status": put_status,
        "put_long": put_long, "put_started": put_started,
    }  # fmt: skip
    assert not space.keys() & set(names) and not set(LOCALS) & set(names), names
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

    return _by_value(function, twin) if SIMULATOR else _by_type(function, twin)


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
