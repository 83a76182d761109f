"""How the leading block has all blocks of its grid do a job in a call that they wait in."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.direct import grid_steps as steps
from device_lib.direct.grid_jobs import execute, transfer
from device_lib.platform.grid_scope import shares_jobs
from device_lib.platform.library import linked
from device_lib.platform.primitives import (
    broadcast_block,
    device,
    load_gpu,
    sync_block,
    sync_block_or,
    thread_rank,
)
from device_lib.platform.scope import Scope
from gmpi.contract.grid import FAILED


@device
def _never(ctx):
    return 0


def shares_of(scope: Scope) -> Callable:
    """(context) -> whether a scope's long messages are moved by all blocks of its grid: by a leader
    only, which is a block."""
    return shares_jobs if scope.name == "block" else _never


def _make_share(name: str, execute: Callable) -> Callable:
    @device
    def share(ctx, kind, a, b, c, d, e):
        """Has all blocks do a job, its own part included; the leader. 1 where it was aborted, else
        0.

        When it returns, all is done, and the calling block may say so to others.
        """
        sync_block()
        if thread_rank() == 0:
            steps.command(ctx, kind, a, b, c, d, e, 0)  # there is room: all have come to the call
        failed = sync_block_or(execute(ctx, kind, a, b, c, d, e))
        step = steps.own_step(ctx) + 1
        while sync_block_or(steps.missing(ctx, step, steps.LOOKS)):
            pass
        aborted = 0
        if thread_rank() == 0:
            steps.all_know(ctx, step)
            aborted = load_gpu(steps.row_of_grid(ctx) + FAILED)
        aborted = broadcast_block(aborted)
        sync_block()
        return 1 if failed or aborted != 0 else 0

    return linked(name, 9, 1, share)  # type: ignore[no-any-return]


share = _make_share("gmpi_grid_share", execute)
share_transfer = _make_share("gmpi_grid_share_transfer", transfer)
