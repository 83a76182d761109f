"""Where the rows of slots and communicators are, by what a record names."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.contract.wire import (
    HANDLE_LARGE_SHIFT,
    HANDLE_SLOT_MASK,
    HANDLE_SLOT_SHIFT,
)
from host_proxy.platform.native import get, jit
from host_proxy.platform.state import (
    C_COUNT,
    C_DIRECT,
    C_LAST,
    G_COMMUNICATORS,
    G_SLOT_TABLE,
    S_ROW_BYTES,
)


@jit
def slot_of(handle):
    return (handle >> HANDLE_SLOT_SHIFT) & HANDLE_SLOT_MASK


@jit
def is_large(handle):
    return (handle >> HANDLE_LARGE_SHIFT) & 1


@jit
def row_of(g, slot):
    """Address of the slot's row."""
    return get(g, G_SLOT_TABLE) + slot * S_ROW_BYTES


@jit
def communicator(g, comm):
    """Address of the communicator's row."""
    return get(g, G_COMMUNICATORS) + comm * (C_COUNT * 8)


@jit
def refuses_any_tag(g, comm):
    """Whether the user has said that no receive on the communicator uses ANY_TAG."""
    return get(communicator(g, comm), C_LAST) != 0


@jit
def refuses_any_source(g, comm):
    """The same of ANY_SOURCE."""
    return get(communicator(g, comm), C_DIRECT) != 0
