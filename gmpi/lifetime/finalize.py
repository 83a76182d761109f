"""``MPI.Finalize()`` while a context is open: its threads end before MPI does.

A proxy or a watchdog that calls MPI afterwards ends the job, and with MPICH one that is inside MPI
when MPI_Finalize begins is too late already. So mpi4py's ``MPI.Finalize`` is wrapped. Where others
call MPI_Finalize, it begins by deleting the attributes of MPI_COMM_SELF (MPI 4.1 section 11.2.4),
when MPI can still be called.
"""

from __future__ import annotations

import functools
import sys

from mpi4py import MPI

from gmpi.lifetime import process, shutdown, unfinished

FINALIZED = "the context was closed by MPI.Finalize(); close contexts before"

_watching = False


def watch() -> None:
    """From now on; MPI is initialised."""
    global _watching
    if _watching:
        return
    _watching = True
    original = MPI.Finalize

    @functools.wraps(original)
    def finalize() -> None:
        _before()
        original()

    MPI.Finalize = finalize
    keyval = MPI.Comm.Create_keyval(delete_fn=lambda *_: _before())
    MPI.COMM_SELF.Set_attr(keyval, True)


def _before() -> None:
    """MPI is about to be finalised. Nothing that is raised here may keep it from that."""
    if process.forked or MPI.Is_finalized():
        return
    context = process.open_context
    if context is not None:
        print(
            f"GMPI: rank {context.rank}: MPI.Finalize() while a context is open: its kernels are "
            "released and its threads ended; close the context before",
            file=sys.stderr,
            flush=True,
        )
        try:
            shutdown.release(context, FINALIZED)
        except Exception as exc:
            print(f"GMPI: rank {context.rank}: {exc}", file=sys.stderr, flush=True)
    unfinished.let_go()
