"""An exception that nobody catches ends the whole job, as a rank that dies does.

Without that, the process of the rank goes on to MPI_Finalize, and waits there for the others, who
wait for it. Python's hook is used, so that a program's own (such as that of ``python -m mpi4py``)
and interactive sessions keep theirs; ``GMPI_ON_ERROR=return`` does without.
"""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType
from typing import Any

GRACE_S = 1.0  # for the others, who have been told, to say what they waited for

_before: Any = None


def install() -> None:
    """Where no program has a hook of its own; harmless to call again."""
    global _before
    if sys.excepthook is sys.__excepthook__:
        _before = sys.excepthook
        sys.excepthook = _end_all_ranks


def _end_all_ranks(
    kind: type[BaseException], value: BaseException, trace: TracebackType | None
) -> None:
    _before(kind, value, trace)
    interactive = hasattr(sys, "ps1") or sys.flags.interactive
    if interactive or os.environ.get("GMPI_ON_ERROR") == "return":
        return
    MPI = getattr(sys.modules.get("mpi4py"), "MPI", None)  # not imported for this
    if MPI is None or not MPI.Is_initialized() or MPI.Is_finalized():
        return
    if MPI.COMM_WORLD.size == 1:
        return
    sys.stdout.flush()
    rank = MPI.COMM_WORLD.rank
    text = f"GMPI: rank {rank}: nobody caught this {kind.__name__}: MPI_Abort ends all ranks"
    # Before the pause: what is written just before MPI_Abort may be lost with the job.
    print(text, file=sys.stderr, flush=True)
    time.sleep(GRACE_S)
    MPI.COMM_WORLD.Abort(1)
