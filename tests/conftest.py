"""Tests run in the simulator unless NUMBA_ENABLE_CUDASIM=0 is set on a machine with a GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import warnings

import cpu_time
import launcher
import outcomes
import pytest
import start.sitecustomize  # noqa: F401
from hypothesis import HealthCheck, settings

os.environ.setdefault("NUMBA_ENABLE_CUDASIM", "1")  # before anything imports numba
# Machines are shared, so how long one example takes says nothing.
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")
_LIMIT_S = 300  # of one test, longer than that of any program it starts
os.environ.setdefault("PYTEST_TIMEOUT", str(_LIMIT_S * launcher.TIME_FACTOR))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-times", metavar="FILE", help="write each test's processor time, JSON")
    parser.addoption("--outcomes", metavar="FILE", help="write what became of each test, JSON")
    parser.addoption("--rest", action="store_true", help="only what has not passed in that file")


def pytest_configure(config: pytest.Config) -> None:
    if path := config.getoption("--outcomes"):
        plugin = outcomes.Outcomes(path, config.getoption("--rest"))
        config.pluginmanager.register(plugin, "outcomes")
    config.pluginmanager.register(cpu_time.CpuTime(config.getoption("--cpu-times")))


def _has_gpu() -> bool:
    if os.environ["NUMBA_ENABLE_CUDASIM"] != "0" or not shutil.which("nvidia-smi"):
        return False
    return subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=False).returncode == 0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # They compile the engine, for those that follow as well, and what they try with it.
    items.sort(key=lambda item: item.path.name != "test_record_fuzz.py")
    if any("gpu" in item.keywords for item in items) and not _has_gpu():
        skip = pytest.mark.skip(reason="needs a GPU and NUMBA_ENABLE_CUDASIM=0")
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(skip)


def pytest_runtest_setup(item: pytest.Item) -> None:
    launcher.ranks_allowed = any(item.get_closest_marker(name) for name in ("mpi", "gpu"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Compiles the engine before any test that needs it: half a minute on a cold machine.

    The first programs would do so otherwise, all ranks at once, each against its time limit; one
    that is ended before the compiler is done leaves nothing in the cache for the next.
    """
    if session.config.option.collectonly or not any(
        item.get_closest_marker("mpi") for item in session.items
    ):
        return
    try:
        launcher.mpi(1, "-c", "import gmpi; gmpi.Context(gpu=False).close()", timeout=300)
    except pytest.fail.Exception as late:  # the tests will say what is wrong
        warnings.warn(str(late), stacklevel=1)
