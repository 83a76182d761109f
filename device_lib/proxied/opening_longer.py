"""Sends and receives that are no longer inline, by the functions that are tuned for staging.

The leading warp and the others each have a function of their own, with the same barriers. So the
others save registers for no more than they do, and that while the leading warp opens the request.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.move.copy import copy_to_staging
from device_lib.platform.context import eager_bytes, has_p2p
from device_lib.platform.library import linked, parts_of
from device_lib.platform.primitives import device
from device_lib.platform.scope import Scope
from device_lib.proxied.opening import UNFINISHED
from device_lib.proxied.opening_long import open_long
from device_lib.proxied.opening_staged import begin_staged, publish_staged
from gmpi.contract import wire

_open_long = linked("gmpi_open_long", 8, 2, open_long)
_begin_staged = linked("gmpi_begin_staged", 3, 2, begin_staged)
_publish_staged = linked("gmpi_publish_staged", 8, 1, publish_staged)


@device
def _is_staged_send(ctx, word0, nbytes, unfinished):
    """Whether the functions of ``opening_staged`` can do it."""
    short = wire.INLINE_BYTES < nbytes and nbytes <= eager_bytes(ctx)
    sends = word0 & 0xFF == wire.OP_ISEND and unfinished & wire.LOW_32 == 0
    return short and sends


def _make_body(scope: Scope, send_bytes: Callable, leading: bool) -> Callable:
    """
    Args:
        leading: for the leading warp, or for the others.
    """
    rank = scope.rank
    size = scope.size
    sync_full = scope.sync_full
    share_full = scope.share_full
    share_4_full = scope.share_4_full

    @device
    def open_longer(ctx, word0, peer_tag, count, nbytes, send, recv, unfinished):
        """The handle of a request, or UNFINISHED for ``open_any``."""
        handle = unfinished
        if _is_staged_send(ctx, word0, nbytes, unfinished):
            sync_full()
            slot = 0
            staging = 0
            if leading:
                slot, staging = _begin_staged(ctx)
            slot, staging, send, nbytes = share_4_full(slot, staging, send, nbytes)
            if slot >= 0:
                copy_to_staging(staging, send, nbytes, rank(), size())
                sync_full()
                if leading:
                    handle = _publish_staged(ctx, word0, count, send, peer_tag, slot)
                handle = share_full(handle)
                if handle & UNFINISHED == 0:
                    return handle
        sends = word0 & 0xFF == wire.OP_ISEND and has_p2p(ctx)
        at_once = sends or word0 & 0xFF == wire.OP_IRECV
        if at_once and nbytes > eager_bytes(ctx):
            goes_to = 0
            sync_full()
            if leading:
                handle, goes_to = _open_long(ctx, word0, count, send, peer_tag, recv)
            handle, goes_to, send, nbytes = share_4_full(handle, goes_to, send, nbytes)
            if handle & UNFINISHED == 0 and sends:
                send_bytes(ctx, handle, goes_to, send, nbytes, 0)
        return handle

    return open_longer  # type: ignore[no-any-return]


def make_open_longer(scope: Scope, send_bytes: Callable) -> SimpleNamespace:
    """For one scope, each of whose warps is full.

    Args:
        send_bytes: ``outgoing.make_send_bytes``.

    Returns:
        lead: (ctx, word0, peer_tag, count, nbytes, send, recv, unfinished), called by the leading
            warp; follow: (ctx, word0, nbytes, unfinished), by the others. Both return the handle,
            or ``UNFINISHED`` for ``open_any``.
    """
    part = parts_of(scope.name)
    open_with_others = _make_body(scope, send_bytes, False)

    @device
    def follow(ctx, word0, nbytes, unfinished):
        return open_with_others(ctx, word0, 0, 0, nbytes, 0, 0, unfinished)

    return SimpleNamespace(
        lead=part("open_longer", 10, 1, _make_body(scope, send_bytes, True)),
        follow=part("follow_longer", 6, 1, follow),
    )
