"""``Context.host`` and kernels in one matching space: ``ranks/host_side.py``."""

from __future__ import annotations

import launcher
import pytest

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_compiled_engine(ranks: int) -> None:
    launcher.check(ranks, "host_side")


@pytest.mark.slow
@pytest.mark.parametrize("shared, gpu", ["00", "10", "11"])
def test_many_chunks(shared: str, gpu: str) -> None:
    staging = {"GMPI_SHARED_STAGING": shared, "GMPI_GPU_STAGING": gpu}
    for engine in ("compiled", "mpi4py"):
        launcher.check(2, "host_side", "--small", GMPI_ENGINE=engine, **staging)
