"""Himeno's kernels compiled for sm_90, without a GPU."""

from __future__ import annotations

import json
from typing import Any

import launcher
import pytest

pytestmark = [pytest.mark.sm90, pytest.mark.full]  # two minutes of compiling
#: What each of them calls, among others.
MESSAGES = ("gmpi_open_long", "gmpi_finish_all_block", "gmpi_transact")
PROGRAMS = {
    "himeno": MESSAGES,
    "partitioned": ("gmpi_partitioned_pready_block", "gmpi_partitioned_parrived_block"),
    "two iterations together": MESSAGES,
}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    status, text = launcher.python(
        "tests/compile_himeno_for_sm90.py", timeout=120, NUMBA_ENABLE_CUDASIM="0"
    )
    assert status == 0, text
    kernels: dict[str, Any] = json.loads(text.splitlines()[-1])
    return kernels


@pytest.mark.parametrize("size", ["S", "L"])
@pytest.mark.parametrize("kind", ["launched", "persistent", "wave"])
def test_sweeps_do_not_spill(found: dict[str, Any], kind: str, size: str) -> None:
    about = found[f"{kind} {size}"]
    assert {about[n] for n in ("stack", "spill_stores", "spill_loads")} == {0}, about


@pytest.mark.parametrize("size", ["M", "XL"])
def test_the_sweep_of_the_example_does_not_spill(found: dict[str, Any], size: str) -> None:
    # With 128 registers a thread, if the compiler knows the shape of the arrays: otherwise the
    # sweep wants 160.
    about = found[f"example {size}"]
    assert {about[n] for n in ("stack", "spill_stores", "spill_loads")} == {0}, about


def test_the_example_compiles(found: dict[str, Any]) -> None:
    calls = found["example"]["calls"]
    assert "gmpi_open_scattered_block" in calls  # faces across j
    assert all(name.startswith(("gmpi_", "cudaCG")) for name in calls), calls


@pytest.mark.parametrize("size", ["S", "L"])
@pytest.mark.parametrize("kind", ["persistent", "wave"])
def test_as_many_blocks_are_resident_as_planned(
    found: dict[str, Any], kind: str, size: str
) -> None:
    # Each quarter of a multiprocessor gives registers to its own warps.
    about = found[f"{kind} {size}"]
    assert about["resident"] >= about["wanted"], about


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_compile_and_need_nothing_but_the_device_library(
    found: dict[str, Any], program: str
) -> None:
    calls = found[program]["calls"]
    assert set(PROGRAMS[program]) <= set(calls)
    assert all(name.startswith(("gmpi_", "cudaCG")) for name in calls), calls


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_leave_60_kib_to_l1(found: dict[str, Any], program: str) -> None:
    # A multiprocessor gives 196 of its 256 KiB to blocks, or 228: then L1 is too small to keep the
    # pressure, and a sweep takes a fifth to a third longer. What GMPI takes of it is tested in the
    # default tier, too (test_ptx.py).
    assert 192 << 10 <= found[program]["shared"] <= 196 << 10
