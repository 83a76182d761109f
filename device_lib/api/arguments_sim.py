"""The simulator twin: the values that a call is given are what is looked at.

As a GPU refuses them, or takes one thread's word for all: memory of one thread, and arguments that
differ between the threads of a scope. Calls of a scope are told apart by their number, since all of
its threads make the same ones.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from greenlet import getcurrent

from device_lib.api.arguments import (
    COUNTS,
    OTHER,
    check,
    is_buffer,
    kind_of_value,
    numbered,
    wants_one_piece,
)
from device_lib.platform.primitives_sim import buffer_of
from device_lib.simulator.memory import ThreadMemory
from gmpi.errors import UsageError

_PER_THREAD = "requests", "indices", "statuses", "array_of_partitions", *COUNTS  # of each its own


def checked(
    function: Callable[..., Any],
    signature: inspect.Signature,
    scope: str = "",
    late: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """The function, whose arguments are looked at.

    Args:
        late: what strict mode calls instead: the same, as late as MPI allows.
        scope: "grid", "block" or "warp", whose threads all make the call; empty: any thread may.
    """
    known: set[tuple[Any, ...]] = set()
    names = list(signature.parameters)
    integers = [k for k, name in enumerate(names) if name in (*COUNTS, "array_of_partitions")]

    def call(*given: Any, **named: Any) -> Any:
        caller = sys._getframe(1)
        lane = getcurrent()
        lane.call = call.__name__, caller.f_code, caller.f_lineno  # for BarrierError
        try:
            types: tuple[Any, ...] = tuple(map(type, given))
            if integers:  # of arrays the class does not say what is in them
                types += tuple(getattr(given[k], "dtype", None) for k in integers if k < len(given))
            if named or types not in known:
                check(call.__name__, signature, given, named, kind_of_value)
                _no_memory_of_a_thread(call.__name__, {**dict(zip(names, given)), **named})
                if scope == "grid":
                    _no_memory_of_a_block(call.__name__, {**dict(zip(names, given)), **named})
                objects = map(kind_of_value, (*given, *named.values()))
                if any(kind.use == OTHER for kind in objects):  # which stand for numbers
                    given, named = numbered(signature, given, named, kind_of_value, int)
                elif not wants_one_piece(call.__name__):  # that says their values, not their types
                    known.add(types)
            if named:
                given = signature.bind(*given, **named).args
            if scope:
                _compare(lane, scope, call.__name__, given, names)
        except UsageError as exc:
            raise UsageError(f"{exc}{_where(caller)}") from None
        checker = lane.grid.checker
        if scope and checker is not None:
            functions = function, late, names
            return checker.call(call.__name__, scope, functions, given)
        return function(*given)

    return call


def _where(caller: FrameType) -> str:
    return f" ({caller.f_code.co_filename}:{caller.f_lineno})"


def _no_memory_of_a_thread(call: str, arguments: dict[str, Any]) -> None:
    for name, value in arguments.items():
        if is_buffer(name) and isinstance(value, ThreadMemory):
            raise UsageError(
                f"{call}: {name} is memory of one thread (cuda.local.array), allowed is device "
                "memory, or shared memory of at most eager_bytes"
            )


def _no_memory_of_a_block(call: str, arguments: dict[str, Any]) -> None:
    shared = getcurrent().block.shared
    for name, value in arguments.items():
        if is_buffer(name) and hasattr(value, "strides"):
            if shared.holds(buffer_of(value)[0]):
                raise UsageError(
                    f"{call}: {name} is shared memory of a block, allowed is device memory: all "
                    "blocks of the grid move it"
                )


def _compare(lane: Any, scope: str, call: str, given: tuple[Any, ...], names: list[str]) -> None:
    """Compares a call with what the first thread of the scope has said of it."""
    of = {"grid": lane.grid, "block": lane.block, "warp": lane.warp}[scope]
    number = lane.made.get(scope, 0)
    lane.made[scope] = number + 1
    said = of.said.get(number)
    if said is None:
        of.said[number] = [call, given, lane.thread_id, 1]
        return
    first_call, first, thread, made = said
    said[3] = made + 1
    if made + 1 == of.threads:
        del of.said[number]
    what, there = "", ""
    if call != first_call:
        what, there = f"{call} is called", first_call
    for name, mine, other in zip(names, given, first) if not what else ():
        if mine is not other and name not in _PER_THREAD and not _equal(mine, other):
            what, there = f"{call}: {name} is {_shown(mine)}", _shown(other)
            break
    if what:
        thread_there = f"in thread {thread} of block {lane.block.number}"
        where = f"thread {lane.thread_id}"
        if scope == "grid":
            where += f" of block {lane.block.number}"
            thread_there = "in another one"
        raise UsageError(
            f"{what} in {where} and {there} {thread_there}; all threads of the {scope} make the "
            "same calls, with equal arguments"
        )


def _equal(mine: Any, other: Any) -> bool:
    if hasattr(mine, "strides") or hasattr(other, "strides"):
        return bool(buffer_of(mine) == buffer_of(other))
    return bool(mine == other)


def _shown(value: Any) -> str:
    return f"at {buffer_of(value)[0]:#x}" if hasattr(value, "strides") else str(value)
