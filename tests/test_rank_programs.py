"""The programs in ``ranks`` that end well: in the simulator, on 1 to 4 ranks, with both engines.

Those on as many ranks share one start of MPI: ``series.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from series import Program, Series

OPERATIONS = ["send", "recv", "wait", "allreduce"]
FAULTS = [
    "proxy_killed", "mpi_error", "mpi_error_later", "testsome_fails", "kernel_exits_early",
    "interrupted", "slots_exhausted", "staging_exhausted", "ring_full", "slow_peer",
]  # fmt: skip
# One operation for each fault: together all of both. Another one with each MPI library.
SOME_FAULTS = [f"{fault}.{OPERATIONS[i % 4]}" for i, fault in enumerate(FAULTS)]
OTHER_FAULTS = [f"{fault}.{OPERATIONS[(i + 2) % 4]}" for i, fault in enumerate(FAULTS)]
SOME_FAULTS += ["mpi_error_later.send", "mpi_error.wait"]
PYTHON_FAULTS = ["proxy_killed", "mpi_error", "mpi_error_later", "slots_exhausted"]
FAR_FAULTS = [
    "proxy_killed.recv", "mpi_error.send", "mpi_error_later.recv", "kernel_exits_early.wait",
    "slow_peer.send",
]  # fmt: skip
SOME_HANGS = "hangs wrong_tag_of_a_long_message left_a_collective different_lengths"

#: Run with both MPI libraries, by number of ranks: settings of GMPI, program, its arguments.
#: TEST_NODES says on which nodes the ranks believe to be (gmpi/memory/node.py).
PROGRAMS = {
    1: [
        "bad_input", "collectives", "datatypes", "host_side", "lifecycle", "opening",
        "point_to_point",
    ],
    2: [
        "bad_input", "collectives", "datatypes --small", "host_side", "landing", "each_call",
        "late",
        "lifecycle", "narrow", "no_any_tag --small", "opening",
        "SPIN_MS=50 YIELD_MS=50 point_to_point --some", "point_to_point --small",
        "random_programs --seeds=0:5",
        "SPIN_MS=50 YIELD_MS=50 stress", "waits",
    ],
    3: [
        "collectives", "hangs", "host_side", "lifecycle", "ENGINE=mpi4py no_any_tag --small",
        "point_to_point", "random_programs --seeds=10:13",
    ],
    4: ["TEST_NODES=ab random_programs --seeds=40:43"],
}  # fmt: skip
#: With one of them only: what the library does in these is in those above as well. As many with
#: either as makes both take as long.
MPICH_ONLY = {
    1: ["no_any_tag", "random_programs --seeds=0:3"],
    2: [
        "ENGINE=mpi4py collectives --some", "collectives --small",
        f"faults {' '.join(OTHER_FAULTS)}", "datatypes",
        f"TEST_NODES=ab faults {' '.join(FAR_FAULTS)}",
        "TEST_NODES=ab datatypes --small --some",
        "point_to_point", "GPU_STAGING=0 point_to_point --small", "waits --small",
        "SHARED_STAGING=0 ENGINE=mpi4py point_to_point --small --some",
        "GPU_STAGING=0 narrow --many", "SHARED_STAGING=0 narrow",
    ],
    3: [f"TEST_NODES=aba {SOME_HANGS}"],
    4: [
        "collectives", "random_programs --seeds=18:21",
        "TEST_NODES=abbb random_programs --seeds=43:46", "TEST_NODES=aabb collectives",
    ],
}  # fmt: skip
OPEN_MPI_ONLY = {
    1: ["arrays", "debug"],
    2: [
        "arrays", "debug", "ENGINE=mpi4py bad_input", "ENGINE=mpi4py late",
        "ENGINE=mpi4py datatypes --some", "ENGINE=mpi4py waits --small",
        "GPU_STAGING=0 datatypes --small --some",
        "ENGINE=mpi4py point_to_point --small --some", "SHARED_STAGING=0 point_to_point --small",
        "TEST_NODES=ab point_to_point --small --some", "ENGINE=mpi4py narrow", "DEBUG=1 narrow",
        *(f"DEBUG=1 {p} --some" for p in ("point_to_point", "collectives", "datatypes", "arrays")),
        *(
            f"SHARED_STAGING={shared} GPU_STAGING={gpu} ENGINE={engine} host_side --small"
            for shared, gpu in ("00", "10", "11") for engine in ("compiled", "mpi4py")
        ),
        f"faults {' '.join(SOME_FAULTS)}", f"ENGINE=mpi4py faults {' '.join(PYTHON_FAULTS)}",
    ],
    3: ["datatypes", "TEST_NODES=aab host_side"],
    4: [
        "point_to_point", "TEST_NODES=ab point_to_point",
        "TEST_NODES=aabb random_programs --seeds=46:49",
    ],
}  # fmt: skip
#: With --full only, with both.
FULL_ONLY = {
    2: [
        "ENGINE=mpi4py collectives --small --some", "ENGINE=mpi4py datatypes --small --some",
        "SHARED_STAGING=0 datatypes --small --some", "ENGINE=mpi4py point_to_point --some",
        "GPU_STAGING=0 ENGINE=mpi4py point_to_point --small --some",
        "narrow --many", "ENGINE=mpi4py narrow --many", "SHARED_STAGING=0 narrow --many",
        "SHARED_STAGING=0 ENGINE=mpi4py narrow",
        "random_programs --seeds=1000:1100", "TEST_NODES=ab random_programs --seeds=1100:1150",
        *(f"faults {op}" for op in OPERATIONS),
    ],
    3: ["TEST_NODES=abb hangs", "TEST_NODES=abb collectives"],
    4: [
        f"TEST_NODES={nodes} random_programs --seeds={seed}:{seed + 30}"
        for seed, nodes in ((1200, "ab"), (1230, "aabb"), (1260, "abbb"))
    ],
}  # fmt: skip
#: Of these, what --quick runs: messages of all kinds, collectives, datatypes, several contexts.
QUICK = {
    2: [
        "SPIN_MS=50 YIELD_MS=50 point_to_point --some", "datatypes --small", "landing",
        "lifecycle", "random_programs --seeds=0:5",
    ],
}  # fmt: skip


def parameters() -> Iterator[object]:
    for ranks in (1, 2, 3, 4):
        for table, common in (
            (PROGRAMS, []), (MPICH_ONLY, [pytest.mark.mpich]),
            (OPEN_MPI_ONLY, [pytest.mark.openmpi]), (FULL_ONLY, [pytest.mark.full]),
        ):  # fmt: skip
            for line in table.get(ranks, []):
                marks = common
                settings = [word for word in line.split() if word[0].isupper()]
                name, *arguments = line.split()[len(settings) :]
                pairs = (f"GMPI_{word}".split("=") for word in settings)
                environment = tuple((key, value) for key, value in pairs)
                program = Program(ranks, name, tuple(arguments), environment)
                if table is FULL_ONLY:
                    program = program._replace(limit_s=1000)
                    marks = [*marks, pytest.mark.timeout(1.1 * program.seconds)]
                if line in QUICK.get(ranks, []):
                    marks = [*marks, pytest.mark.quick]
                yield pytest.param(program, id=f"{ranks} ranks, {line}", marks=marks)


@pytest.fixture(scope="module")
def series(request: pytest.FixtureRequest) -> Iterator[Series]:
    """All programs that are going to run."""
    own = [item for item in request.session.items if item.path == request.path]
    with Series(item.callspec.params["program"] for item in own) as found:  # type: ignore[attr-defined]
        yield found


@pytest.mark.mpi
@pytest.mark.parametrize("program", list(parameters()))
def test_program(program: Program, series: Series) -> None:
    series.check(program)
