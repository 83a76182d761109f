"""GMPI: MPI called from inside a running GPU kernel, in Python.

    from gmpi import GMPI_Isend, GMPI_Irecv, GMPI_Wait

    @cuda.jit
    def exchange(ctx, send, recv, n, peer):
        r = GMPI_Irecv(ctx, recv, n, gmpi.FLOAT, peer, 7, gmpi.COMM_WORLD)
        s = GMPI_Isend(ctx, send, n, gmpi.FLOAT, peer, 7, gmpi.COMM_WORLD)
        GMPI_Wait(ctx, s)
        status = GMPI_Wait(ctx, r)

    with gmpi.Context(MPI.COMM_WORLD) as g:
        exchange[1, 128](g.device, send, recv, n, peer)
        g.synchronize()

``GMPI_*`` are calls of the whole block, ``GMPI_*_warp`` of one warp, ``GMPI_*_grid`` of all blocks:
``help(gmpi.GMPI_Isend)``.
On the command line: ``gmpi info`` says what there is, ``gmpi info --open`` whether a context can be
opened. ``gmpi.show_versions()`` is for notebooks and reports of problems.
"""

import ast
import os
from importlib import import_module
from pathlib import Path
from typing import Any

from device_lib.platform import front_end_sim
from gmpi.cache.loading import with_room, without_collector
from gmpi.lifetime import uncaught

__version__ = "0.1.0"

# Loading a kernel at its first launch waits for kernels that run, and these may wait for that one.
# The driver reads this when it starts: with the first use of CUDA, before any context is opened.
os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
uncaught.install()
front_end_sim.install()

_NAMES = ast.parse(Path(__file__).with_suffix(".pyi").read_text())
_HOME = {
    name.name: statement.module or ""
    for statement in _NAMES.body
    if isinstance(statement, ast.ImportFrom)
    for name in statement.names
}
__all__ = sorted([*_HOME, "__version__"])  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """A name of ``__all__`` is imported when it is asked for: most need neither CUDA nor MPI."""
    if name not in _HOME:
        raise AttributeError(f"module 'gmpi' has no attribute {name!r}")
    try:
        with without_collector():
            found = getattr(with_room(import_module, _HOME[name]), name)
    except (ImportError, RuntimeError) as exc:
        from gmpi.missing import why_mpi_is_missing

        missing = why_mpi_is_missing()
        if missing is None:
            raise
        raise ImportError(f"gmpi.{name} needs MPI: {missing}") from exc
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
