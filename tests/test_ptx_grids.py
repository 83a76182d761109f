"""What the blocks of a grid tell each other, compiled for sm_90 without a GPU: the order of their
stores and looks, which neither the simulator nor the model has."""

from __future__ import annotations

import re

import launcher
import pytest

pytestmark = pytest.mark.sm90

NAMES = ["gather", "serve_next", "command", "handle", "store_straight"]
COMPILE = """
import sys
from gmpi.launch import precompile
precompile.compile_without_gpu((9, 0))
from device_lib.platform import library
for name in sys.argv[1:]:
    print("// function", name)
    print(library.compile_ptx("gmpi_grid_" + name, (9, 0)))
"""
FENCE = "fence.acq_rel.gpu"
PACKET = "st.relaxed.sys.global.b128"


@pytest.fixture(scope="module")
def functions() -> dict[str, str]:
    """PTX by name."""
    options = {"NUMBA_ENABLE_CUDASIM": "0"}
    status, text = launcher.python("-c", COMPILE, *NAMES, timeout=200, **options)
    assert status == 0, text
    parts = re.split(r"^// function (\w+)$", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_who_arrives_has_a_fence_before_it_says_so(functions: dict[str, str]) -> None:
    ptx = functions["serve_next"]
    said = ptx.index("red.relaxed.gpu.global.add.u64")
    assert FENCE in ptx[:said] and FENCE not in ptx[said:]
    # What a command is about is read behind it.
    assert ptx.index("ld.acquire.gpu.global.b128") > said


def test_the_leader_looks_with_an_acquire(functions: dict[str, str]) -> None:
    for name in ("gather", "store_straight"):
        ptx = functions[name]
        assert "ld.acquire.gpu.global.u64" in ptx and FENCE not in ptx, name
    # It has come before it looks, whoever gives up meanwhile.
    ptx = functions["gather"]
    assert ptx.index("atom.relaxed.gpu.global.max.u64") < ptx.index("ld.acquire.gpu.global.u64")


def test_a_command_comes_behind_a_fence(functions: dict[str, str]) -> None:
    ptx = functions["command"]
    assert ptx.index(FENCE) < ptx.index(PACKET)
    # These are of calls that have had one at their beginning.
    for name in ("handle", "store_straight"):
        assert PACKET in functions[name] and FENCE not in functions[name], name
