"""The one context that is open in this process, and what launches have to do with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from device_lib.context import DeviceContext
from gmpi.errors import ContextError
from gmpi.launch import Launch
from host_proxy.debug import DebugEngine

if TYPE_CHECKING:
    from gmpi.context import Context

open_context: Context | None = None


def require_none() -> None:
    """Raises ContextError while a context is open."""
    if open_context is not None:
        raise ContextError(
            "a context is already open in this process; close it first, or pass it around"
        )


def opened(context: Context) -> None:
    """From now on kernels may be launched with it."""
    global open_context
    open_context = context


def closed(context: Context) -> None:
    """From now on they may not."""
    global open_context
    if open_context is context:
        open_context = None


def before_launch(ctx: DeviceContext, what: Launch) -> None:
    """A kernel that takes a context is about to be launched.

    Raises:
        ContextError: the context is not the one that is open.
        GridError: not all of its blocks can be resident at once.
    """
    context = open_context
    if context is None or context._closed or ctx != context._device:
        raise ContextError(f"kernel {what.name} was launched with a context that is closed")
    context._kernels.begin(what)
    engine = context._proxy.python
    if isinstance(engine, DebugEngine):
        engine.blocks = max(engine.blocks, what.blocks)


def after_launch(ctx: DeviceContext, stream: Any) -> None:
    """It has been launched, on ``stream``."""
    if open_context is not None:
        open_context._kernels.follow(stream)
