"""What a context says of a call of grid scope: the leading block calls the code of the block scope
with such a one."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.platform.context import DeviceContext
from device_lib.platform.primitives import device
from gmpi.contract.sizes import SHAPE_GRID_SHIFT, SHAPE_OPENS_SHIFT


@device
def leads_grid(ctx):
    """Whether the caller's block leads a call of grid scope, whose other blocks wait for jobs."""
    return ctx.shape >> SHAPE_GRID_SHIFT & 1


@device
def as_leader(ctx):
    """The same context, for the block that leads a call of grid scope."""
    return DeviceContext(ctx.mapped, ctx.device, ctx.shape | 1 << SHAPE_GRID_SHIFT, ctx.identity)


@device
def as_opener(ctx):
    """The same, where the other blocks do not wait."""
    shape = ctx.shape | 1 << SHAPE_GRID_SHIFT | 1 << SHAPE_OPENS_SHIFT
    return DeviceContext(ctx.mapped, ctx.device, shape, ctx.identity)


@device
def only_opens(ctx):
    """Whether the caller's block opens a request for its grid, whose long messages are left to a
    wait: then all blocks can move them."""
    return ctx.shape >> SHAPE_OPENS_SHIFT & 1


@device
def shares_jobs(ctx):
    """Whether the other blocks of the caller's grid wait for jobs."""
    return leads_grid(ctx) & ~only_opens(ctx)
