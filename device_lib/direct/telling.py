"""What the leading warp of a scope has done alone, told to the others."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.platform.primitives import device
from device_lib.platform.scope import Scope
from gmpi.contract.constants import SUCCESS


def make_tell(scope: Scope) -> Callable:
    """Four values, which all lanes of the leading warp have, for the others: these come to the same
    barrier and get them (``scope.get_4``)."""
    put_4_same = scope.put_4_same
    sync_full = scope.sync_full

    @device
    def tell(a, b, c, d):
        put_4_same(a, b, c, d)
        sync_full()

    return tell


def make_telling(scope: Scope) -> tuple[Callable, Callable]:
    """(what the leading warp, a full one, calls at the end; what all others call), both of which
    return what has become of the call: two barriers where all is well. The leading warp begins with
    ``scope.sync_full``."""
    sync_full = scope.sync_full
    sync_full_or = scope.sync_full_or
    get_4 = scope.get_4
    tell = make_tell(scope)

    @device
    def told(state):
        """What has become of a call, which the leading warp tells the others."""
        if not sync_full_or(1 if state != SUCCESS else 0):
            return SUCCESS
        tell(state, 0, 0, 0)
        return state

    @device
    def follow():
        """What it is, in the other warps."""
        sync_full()
        if not sync_full_or(0):
            return SUCCESS
        sync_full()
        state, _, _, _ = get_4(0, 0, 0, 0)
        return state

    return told, follow
