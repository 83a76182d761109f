"""Compiled device code on disk: where it is and what is there. Imports nothing that needs MPI."""

from __future__ import annotations

import os
from pathlib import Path


def cache_directory() -> Path:
    """Where compiled device code is kept: ``GMPI_CACHE_DIR``, else the user's cache directory."""
    chosen = os.environ.get("GMPI_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "gmpi"


def kept() -> list[Path]:
    """Every file that ``device_lib.library`` has made there, of this and of other versions."""
    return sorted(cache_directory().glob("gmpi_*-sm*-*.ptx"))
