"""The rank programs on a real GPU: two ranks, on one GPU under MPS or on two.

    tests/gpu/run.sh

sets up what these need and runs them.
"""

from __future__ import annotations

import launcher
import pytest

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    "program",
    [
        "point_to_point",
        "collectives",
        "arrays",
        "bad_input",
        "lifecycle",
        "host_side",
        "stress",
        "process",
        "direct",
        "direct_collectives",
    ],
)
def test_program(program: str) -> None:
    launcher.check(2, program, timeout=100)


def test_the_direct_road() -> None:
    launcher.check(2, "point_to_point", "--direct", "--small", timeout=100)


def test_collectives_on_the_direct_road() -> None:
    launcher.check(2, "collectives", "--direct", timeout=100)


def test_many_chunks() -> None:
    launcher.check(2, "point_to_point", "--small", timeout=100)


def test_random_programs() -> None:
    launcher.check(2, "random_programs", "--seeds=100:112", timeout=100)


def test_pingpong() -> None:
    path = str(launcher.ROOT / "benchmarks" / "pingpong.py")
    status, text = launcher.mpi(2, path, "-m", "0:1M", "-i", "20", "-x", "2", timeout=100)
    assert status == 0 and "payloads checked: all right" in text, text
    assert "simulator" not in text


def test_grids_that_fill_a_gpu_leave_room_for_the_other_rank() -> None:
    path = str(launcher.ROOT / "examples" / "himeno.py")
    status, text = launcher.mpi(2, path, "--size", "S", "--verify", timeout=100)
    assert status == 0 and "right" in text, text


@pytest.mark.parametrize("threads", [512, 1024])
def test_large_blocks(threads: int) -> None:
    """Registers: such blocks were refused."""
    path = str(launcher.ROOT / "benchmarks" / "pingpong.py")
    options = ["-m", "0:1M", "-i", "20", "-x", "2", "--no-conventional", "--threads", str(threads)]
    status, text = launcher.mpi(2, path, *options, timeout=100)
    assert status == 0 and "payloads checked: all right" in text, text
