"""Tests run in the simulator unless NUMBA_ENABLE_CUDASIM=0 is set on a machine with a GPU."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

os.environ.setdefault("NUMBA_ENABLE_CUDASIM", "1")  # before anything imports numba


def _has_gpu() -> bool:
    if os.environ["NUMBA_ENABLE_CUDASIM"] != "0" or not shutil.which("nvidia-smi"):
        return False
    return subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=False).returncode == 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if any("gpu" in item.keywords for item in items) and not _has_gpu():
        skip = pytest.mark.skip(reason="needs a GPU and NUMBA_ENABLE_CUDASIM=0")
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(skip)
