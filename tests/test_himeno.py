"""Both Himeno programs in the simulator: every way to cut a grid, the procedure, wrong input."""

from __future__ import annotations

import json
import re
from pathlib import Path

import launcher
import pytest

HIMENO = launcher.ROOT / "benchmarks" / "himeno"
PROGRAMS = ("himeno_tuned.py", "himeno_cuda_mpi.py")
pytestmark = pytest.mark.mpi

# The rank that ends in the middle does so while the others wait for its messages.
DIES = """
import sys, time
sys.path.insert(0, {programs!r})
import {module} as program
from _himeno_app import main
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 1:
    run = program.{solver}.run
    def fails(self, iterations):
        if iterations > 3:
            self.comm.Barrier()
            time.sleep(0.5)
            raise RuntimeError("out of luck")
        return run(self, iterations)
    program.{solver}.run = fails
sys.argv[1:] = "--size 16,6,8 --iterations 4000".split()
sys.exit(main(program.{solver}, "x"))
"""

TRUNCATED = "rank 1: TruncationError: GMPI_Irecv in block"
UNEQUAL = "rank 1: ArgumentError: Precv_init in host: message is 176 bytes"
# Rank 1 expects less than rank 0 sends it: an error inside the kernel, on one rank or both.
TOO_SHORT = """
import sys
sys.path.insert(0, {programs!r})
import {halos} as halos
import {module} as program
from _himeno_app import main
from mpi4py import MPI
table = halos.table
def shorter(*arguments):
    messages = table(*arguments)
    if MPI.COMM_WORLD.rank == 1:
        messages[:, halos.COUNT] -= 4
    return messages
halos.table = shorter
sys.argv[1:] = "--size 16,6,8 --iterations 400 --road {road}".split()
sys.exit(main(program.{solver}, "x"))
"""


def run(ranks: int, name: str, *arguments: str) -> str:
    status, text = launcher.mpi(ranks, str(HIMENO / name), *arguments)
    assert status == 0, text
    return text


# Those that verify run with MPICH: the first rank compiles the serial program for seconds, and Open
# MPI's others spin while they wait for it.
@pytest.mark.parametrize(
    ("name", "ranks", "size", "cuts"),
    [
        # nothing to exchange; rows that are no whole number of groups
        pytest.param("himeno_tuned.py", 1, "4,3,7", ["1x1x1"], marks=pytest.mark.mpich),
        pytest.param("himeno_tuned.py", 3, "6,5,5", ["3x1x1"], marks=pytest.mark.full),
        # faces along each direction and edges between them
        pytest.param("himeno_tuned.py", 4, "4,4,8", ["1x2x2"], marks=pytest.mark.mpich),
        pytest.param(
            *("himeno_tuned.py", 4, "4,4,8", ["1x2x2", "2x1x2", "2x2x1"]),
            marks=pytest.mark.full,
        ),
        pytest.param(
            *("himeno_tuned.py", 4, "4,4,16", ["1x1x4", "1x2x2", "2x1x2", "2x2x1"]),
            marks=pytest.mark.full,
        ),
        pytest.param(
            *("himeno_cuda_mpi.py", 4, "4,4,8", ["1x2x2", "2x1x2", "2x2x1"]),
            marks=pytest.mark.full,
        ),
    ],
)
def test_every_decomposition_gives_the_bits_of_the_serial_program(
    name: str, ranks: int, size: str, cuts: list[str]
) -> None:
    which = cuts[0].replace("x", ",") if len(cuts) == 1 else "all"
    text = run(ranks, name, "--size", size, "--decompose", which, "--verify")
    grid = size.replace(",", "x")
    assert re.findall(rf"{grid} on (\S+) ranks, 5 iterations: right", text) == cuts, text


@pytest.mark.full
def test_faces_travel_in_any_number_of_messages_by_any_number_of_blocks() -> None:
    # More blocks than messages, more messages than blocks, and more than a face has rows.
    options = ["--messages", "1", "3", "5", "--communicating", "1", "4"]
    text = run(2, "himeno_tuned.py", "--size", "6,4,8", "--road", "proxied", *options, "--verify")
    assert text.count("6x4x8 on 2x1x1 ranks, 5 iterations: right") == 6, text


@pytest.mark.full
def test_faces_go_from_gpu_to_gpu() -> None:
    # Along k they do not lie in one piece.
    options = ["--size", "6,4,16", "--decompose", "1,1,2", "--road", "direct", "--verify"]
    text = run(2, "himeno_tuned.py", *options)
    assert "6x4x16 on 1x1x2 ranks, 5 iterations: right" in text, text


@pytest.mark.full
def test_one_task_a_block_comes_to_the_same() -> None:
    # With four there is a block for each task; handles are used again from the fourth iteration on.
    options = ["--size", "6,4,8", "--iterations", "7", "--communicating", "1", "4"]
    found = re.findall(r"^Gosa : (\S+)$", run(2, "himeno_tuned.py", *options), re.M)
    assert len(found) == 2 and found[0] == found[1]


@pytest.mark.mpich
@pytest.mark.parametrize("size", ["15,6,12", pytest.param("24,3,8", marks=pytest.mark.full)])
def test_two_iterations_together_give_the_bits_of_the_serial_program(size: str) -> None:
    # The rank in the middle has neighbours on both sides.
    options = ["--decompose", "3,1,1", "--together", "2", "--road", "proxied", "--verify"]
    text = run(3, "himeno_tuned.py", "--size", size, *options)
    assert text.count("on 3x1x1 ranks, 5 iterations: right") == 1, text


@pytest.mark.full
def test_warps_of_two_iterations_wait_for_those_that_they_touch() -> None:
    # Two warps a row, two rows a block.
    text = run(1, "himeno_tuned.py", "--size", "6,8,256", "--together", "2", "--verify")
    assert "6x8x256 on 1x1x1 ranks, 5 iterations: right" in text, text


@pytest.mark.full
def test_two_iterations_together_go_on_and_on(tmp_path: Path) -> None:
    # Two messages for a face, or one; an odd number of iterations, and twice; from GPU to GPU.
    path = tmp_path / "wave.json"
    common = ["--size", "16,3,8", "--decompose", "2,1,1", "--iterations", "5"]
    wave = ["--messages", "1", "2", "--repeat", "2", "--breakdown", "--json", str(path)]
    expected = re.search(r"^Gosa : (\S+)$", run(2, "himeno_tuned.py", *common), re.M)
    text = run(2, "himeno_tuned.py", *common, "--together", "2", "--road", "direct", *wave)
    found = re.findall(r"^Gosa : (\S+)$", text, re.M)
    assert expected and found == [expected[1]] * 2
    assert text.count(", two iterations together") == 2, text
    for row in json.loads(path.read_text())["rows"]:
        assert row["together"] == 2
        parts = row["breakdown"]
        assert parts["exposed"] > 0 and parts["compute"] <= parts["iteration"], parts


@pytest.mark.openmpi
def test_both_programs_print_the_same_gosa_in_the_official_words(tmp_path: Path) -> None:
    found = []
    for name in PROGRAMS:
        path = tmp_path / f"himeno-{name}.json"
        options = ["--size", "6,6,8", "--iterations", "3", "--breakdown", "--json", str(path)]
        text = run(2, name, *options)
        for words in (r"Loop executed for 3 times", r"MFLOPS measured : \d", r"Score based on"):
            assert re.search(words, text), text
        found.append(re.search(r"^Gosa : (\S+)$", text, re.M)[1])  # type: ignore[index]
        (row,) = json.loads(path.read_text())["rows"]
        assert row["iterations"] == 3 and row["us"] > 0
        assert {"compute", "halo", "convergence"} <= set(row["breakdown"])
    assert found[0] == found[1]
    status, text = launcher.python(str(HIMENO / "_himeno_report.py"), str(tmp_path))
    assert status == 0, text
    assert json.loads((tmp_path / "himeno.json").read_text())["ratios"][0]["ratio"] > 0
    assert (tmp_path / "himeno-timeline.png").read_bytes().startswith(b"\x89PNG")


WRONG = {
    "--size 7,7,8 --decompose 2,1,1": "7 points in direction i cannot be divided among 2",
    "--size 9,9,9": "no decomposition of 9x9x9 points for 2 ranks",
    "--size 2,2,2": "needs 3 points in each direction",
    "--size huge": "size must be XS, S, M, L, XL or three integers I,J,K, got 'huge'",
    "--size 8,8,8 --decompose 3,1,1": "is for 3 ranks, but there are 2",
    "--size 8,8,12 --decompose 1,1,2": "must leave a multiple of 4",
    "--size 3,3,8 --decompose two": "decomposition must be three integers",
    "--iterations 0": "--iterations must be at least 1, got 0",
    "--size 8,8,8 --communicating 6": "--communicating must be from 1 to 5, got 6",
    "--size 8,8,8 --messages 2 0": "--messages must be at least 1, got 0",
    "--size 8,8,8 --together 3": "--together must be 1 or 2, got 3",
    "--size 8,8,8 --decompose 1,2,1 --together 2": "--decompose 2,1,1 does that",
    "--size 6,6,8 --decompose 2,1,1 --together 2": "2 planes that change cannot be swept",
}
# One start of MPI for all of them.
REFUSED = """
import sys
sys.path.insert(0, {programs!r})
import himeno_tuned as himeno
from mpi4py import MPI
for options in {options!r}:
    sys.argv[1:] = options.split()
    status = himeno.main(himeno.Himeno, "x")
    if MPI.COMM_WORLD.gather(status) == [2, 2]:
        print(f"refused {{options}}\\n", end="", flush=True)  # one write
"""


@pytest.mark.mpich
def test_wrong_input_is_refused_once(tmp_path: Path) -> None:
    script = tmp_path / "refused.py"
    script.write_text(REFUSED.format(programs=str(HIMENO), options=list(WRONG)))
    status, text = launcher.mpi(2, str(script))
    assert status == 0, text
    for options, message in WRONG.items():
        assert text.count(message) == 1, text
        assert f"refused {options}\n" in text


@pytest.mark.mpich
def test_refusal_is_the_exit_status() -> None:
    status, text = launcher.mpi(2, str(HIMENO / "himeno_tuned.py"), "--size", "9,9,9")
    assert status != 0
    assert text.count("no decomposition of 9x9x9 points") == 1, text


@pytest.mark.parametrize(
    ("module", "solver"),
    [
        pytest.param("himeno_tuned", "Himeno", marks=pytest.mark.openmpi),
        pytest.param("himeno_cuda_mpi", "Conventional", marks=pytest.mark.mpich),
        pytest.param("_himeno_together", "Wave", marks=pytest.mark.full),
    ],
)
def test_a_rank_that_fails_ends_all(module: str, solver: str, tmp_path: Path) -> None:
    script = tmp_path / "dies.py"
    script.write_text(DIES.format(programs=str(HIMENO), module=module, solver=solver))
    status, text = launcher.mpi(2, str(script))
    assert status != 0
    assert text.count("rank 1: RuntimeError: out of luck") == 1, text


@pytest.mark.mpich
@pytest.mark.parametrize(
    ("module", "solver", "halos", "road", "problem"),
    [
        ("himeno_tuned", "Himeno", "_himeno_messages", "proxied", TRUNCATED),
        ("himeno_tuned", "Himeno", "_himeno_partitions", "direct", UNEQUAL),
        pytest.param(
            *("_himeno_together", "Wave", "_himeno_together", "proxied", TRUNCATED),
            marks=pytest.mark.full,
        ),
    ],
)
def test_a_halo_that_fails_ends_all(
    module: str, solver: str, halos: str, road: str, problem: str, tmp_path: Path
) -> None:
    # The kernel leaves its loop and must not wait for receives that it has posted ahead.
    script = tmp_path / "too_short.py"
    names = {"module": module, "solver": solver, "halos": halos, "road": road}
    script.write_text(TOO_SHORT.format(programs=str(HIMENO), **names))
    status, text = launcher.mpi(2, str(script))
    assert status != 0
    assert problem in text, text
    assert "Loop executed" not in text
