"""The rank programs on a real GPU: two ranks, on one GPU under MPS or on two.

    tests/gpu/run.sh

sets up what these need and runs them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import launcher
import pytest

pytestmark = pytest.mark.gpu

#: Rank programs, as in ``test_rank_programs.py``: settings of GMPI, and RANKS where they are not
#: two; program, its arguments. What compiles longest comes first.
PROGRAMS = [
    "direct_collectives", "datatypes --small --some", "datatypes --direct --small --some",
    "RANKS=4 random_blocks --direct --seeds=30:34", "RANKS=3 random_programs --seeds=200:206",
    "random_counts --seeds=0:4", "random_blocks --seeds=0:8", "random_programs --seeds=100:112",
    "point_to_point", "point_to_point --small", "point_to_point --direct --small",
    "collectives --some", "collectives --direct", "onesided", "onesided_refused",
    "counts", "exchanges", "counts --direct", "neighbours --direct",
    "random_counts --direct --seeds=17:21", "blocks", "several", "several --direct",
    "combined", "combined --direct",
    "looked_at", "looked_at --direct",
    "looking", "looking --direct", "ENGINE=mpi4py looking", "persistent", "persistent --direct",
    "ENGINE=mpi4py persistent", "partitioned --some", "partitioned_made", "partitioned_quick",
    "partitioned_refused", "partitioned_lists", "ROAD=proxied partitioned --some", "grid",
    "grid --direct", "waits --small", "narrow --some", "no_any_tag --small", "arrays", "bad_input",
    "bad_handles", "bad_handles --direct", "host_side", "stress", "direct", "gaps", "each_size",
    "direct_blocks", "interleaved", "direct_pending", "cart",
    "random_blocks --direct --seeds=12:16", "freed", "freed --direct", "traced_requests",
    "debug --direct", "debug_direct", "direct_faults", "others_move", "unreceived",
    "registered_cupy",
]  # fmt: skip
#: They end processes or kernels, which all clients of an MPS server may notice; ``traced`` looks at
#: clocks, and other programs on the GPU hold its warps up.
ALONE = ["traced", "lifecycle", "process"]
#: Programs that run side by side: nearly all of their time is that of the compiler, on one core.
TOGETHER = max(1, (os.cpu_count() or 2) // 2)
LIMIT_S = 240


def parts_of(line: str) -> tuple[int, str, list[str], dict[str, str]]:
    """Of a line of ``PROGRAMS``: how many ranks, the program, its arguments, the environment."""
    words = line.split()
    settings = dict(word.split("=") for word in words if word[0].isupper())
    name, *arguments = words[len(settings) :]
    ranks = int(settings.pop("RANKS", "2"))
    return ranks, name, arguments, {f"GMPI_{word}": value for word, value in settings.items()}


def _check(line: str) -> None:
    ranks, name, arguments, environment = parts_of(line)
    launcher.check(ranks, name, *arguments, timeout=LIMIT_S, **environment)


@pytest.fixture(scope="module")
def outcome_of(request: pytest.FixtureRequest) -> Iterator[Callable[[str], None]]:
    """Waits for a program's end. All that have been selected run, ``TOGETHER`` at a time.

    A kernel that faults under MPS ends those of the programs beside it as well: what fails with it
    is looked at alone (``-k``).
    """
    tests = {
        item.callspec.params["program"]: item.nodeid  # type: ignore[attr-defined]
        for item in request.session.items
        if item.path == request.path and getattr(item, "originalname", "") == "test_program"
    }
    with ThreadPoolExecutor(TOGETHER) as pool:
        futures = {line: pool.submit(_check, line) for line in PROGRAMS if line in tests}
        yield lambda line: futures[line].result()
        pool.shutdown(cancel_futures=True)
    # The session's time may be over before pytest has come to all that have ended.
    if outcomes := request.config.pluginmanager.get_plugin("outcomes"):
        for line, future in futures.items():
            if not future.cancelled():
                outcomes.add(tests[line], future.exception())


# What takes longest is waited for last: where time is limited, all others have been told of.
@pytest.mark.parametrize("program", PROGRAMS[::-1])
def test_program(program: str, outcome_of: Callable[[str], None]) -> None:
    outcome_of(program)


def test_pingpong() -> None:
    path = str(launcher.ROOT / "benchmarks" / "pingpong.py")
    status, text = launcher.mpi(2, path, "-m", "0:1M", "-i", "20", "-x", "2", timeout=100)
    assert status == 0 and "payloads checked: all right" in text, text
    assert "simulator" not in text


def test_many_warps_that_help_each_other() -> None:
    """A helper stored before what the opener had stored earlier: 1 value of a million was old."""
    path = str(launcher.ROOT / "tests" / "gpu" / "many_warps.py")
    status, text = launcher.mpi(2, path, "--seconds", "20", timeout=120)
    assert status == 0 and "payloads checked: all right" in text, text


@pytest.mark.parametrize("line", ["soak.py --direct", "soak_collectives.py", "soak_grid.py"])
def test_soak_of_the_direct_road(line: str) -> None:
    """Of short strided messages of some kernels one in 100,000 brought bytes of another one."""
    program, *options = line.split()
    path = str(launcher.ROOT / "tests" / "gpu" / program)
    options += ["--seconds", "45", "--slice", "2"]  # 30 of them are the compiler's
    status, text = launcher.mpi(2, path, *options, timeout=150)
    assert status == 0 and "passed" in text, text


def test_hangs_are_named_on_the_direct_road() -> None:
    launcher.check(3, "hangs", "--direct", timeout=LIMIT_S)


def test_grids_that_fill_a_gpu_leave_room_for_the_other_rank() -> None:
    path = str(launcher.ROOT / "examples" / "himeno.py")
    status, text = launcher.mpi(2, path, "--size", "S", "--verify", timeout=100)
    assert status == 0 and "right" in text, text


def test_more_blocks_by_the_lean_build_than_by_others(tmp_path: Path) -> None:
    path, found = str(launcher.ROOT / "benchmarks" / "streaming.py"), tmp_path / "streaming.json"
    status, text = launcher.mpi(2, path, "--threads", "256", "--json", str(found), timeout=120)
    assert status == 0 and "elements, messages and sums checked: all right" in text, text
    (row,) = json.loads(found.read_text())["rows"]
    lean, usual = row["linked"], row["usual"]
    assert lean["registers"] <= 40 < usual["registers"] and lean["blocks"] > usual["blocks"], row


@pytest.mark.parametrize("threads", [512, 1024])
def test_large_blocks(threads: int) -> None:
    """Registers: such blocks were refused."""
    path = str(launcher.ROOT / "benchmarks" / "pingpong.py")
    options = ["-m", "0:1M", "-i", "20", "-x", "2", "--no-conventional", "--threads", str(threads)]
    status, text = launcher.mpi(2, path, *options, timeout=100)
    assert status == 0 and "payloads checked: all right" in text, text


# Last, where time is limited: what they try is the host's, which CI tries too.
@pytest.mark.parametrize("program", ALONE)
def test_program_alone(program: str) -> None:
    _check(program)
