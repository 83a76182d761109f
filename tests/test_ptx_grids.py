"""What the blocks of a grid tell each other, compiled for sm_90 without a GPU: the order of their
stores and looks, which neither the simulator nor the model has."""

from __future__ import annotations

import pytest
from ptx_of import ptx_of

pytestmark = pytest.mark.sm90

NAMES = ["gather", "serve_next", "command", "handle", "store_straight"]
FENCE = "fence.acq_rel.gpu"
PACKET = "st.relaxed.sys.global.b128"


@pytest.fixture(scope="module")
def functions() -> dict[str, str]:
    """PTX by name."""
    found = ptx_of(*(f"gmpi_grid_{name}" for name in NAMES))
    return {name.removeprefix("gmpi_grid_"): ptx for name, ptx in found.items()}


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
