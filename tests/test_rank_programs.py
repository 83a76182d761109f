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
PYTHON_FAULTS = [
    "proxy_killed.recv", "mpi_error.send", "mpi_error_later.wait", "slots_exhausted.allreduce",
]  # fmt: skip
FAR_FAULTS = [
    "proxy_killed.recv", "mpi_error.send", "mpi_error_later.recv", "kernel_exits_early.wait",
    "slow_peer.send",
]  # fmt: skip
SOME_HANGS = "hangs wrong_tag_of_a_long_message left_a_collective different_lengths"

#: Run with both MPI libraries, by number of ranks: settings of GMPI, program, its arguments.
#: TEST_NODES says on which nodes the ranks believe to be (gmpi/memory/node.py).
PROGRAMS = {
    2: ["SPIN_MS=50 YIELD_MS=50 stress", "debug --direct", "debug_direct"],
}  # fmt: skip
#: With one of them only: each path, engine and kind of fault is among those of both, but not each
#: with each. As many with either as makes both take as long.
MPICH_ONLY = {
    1: [
        "bad_input", "collectives", "lifecycle", "opening", "no_any_tag",
        "point_to_point --direct --small", "onesided", "bad_handles", "bad_arguments",
    ],
    2: [
        "host_side", "onesided --some", "partitioned", "partitioned_made", "partitioned_quick",
        "partitioned_refused", "partitioned_lists", "onesided_refused",
        "ENGINE=mpi4py collectives --some", "datatypes --small",
        "TEST_NODES=ab datatypes --small --some", "each_call near messages --some",
        "ENGINE=mpi4py collective_errors",
        f"faults {' '.join(OTHER_FAULTS)}", f"TEST_NODES=ab faults {' '.join(FAR_FAULTS)}",
        "direct_faults", "others_move", "mailbox", "late", "lifecycle", "no_any_tag --small",
        "traced", "traced_requests", "opening", "SPIN_MS=50 YIELD_MS=50 point_to_point --some",
        "GPU_STAGING=0 point_to_point --small --some",
        "random_programs --seeds=0:4", "waits --small", "several", "several --direct",
        "looked_at", "looked_at --direct",
        "combined", "combined --direct", "looking", "looking --direct",
        "persistent --some", "persistent --direct --some", "host_persistent", "freed --direct",
        "DEBUG=1 freed --direct", "DEBUG=1 random_programs --seeds=6:7",
        "blocks", "random_blocks --seeds=0:4",
        "ENGINE=mpi4py random_blocks --seeds=8:10", "random_blocks --narrow --seeds=24:26",
        "counts", "neighbours", "random_counts --seeds=0:3", "random_counts --narrow --seeds=4:6",
        "exchanges --some", "counts --direct", "direct_blocks short_reduces", "interleaved",
        "random_blocks --direct --seeds=102:104",
        "random_requests --seeds=5:7", "DEBUG=1 random_requests --seeds=20:22",
        "planted", "direct --some", "unreceived", "gaps --some", "each_size --some",
        "datatypes --direct --small --some",
        "ROAD=proxied partitioned --some",
        "collectives --direct --some", "grid --direct --some",
    ],
    3: [
        "hangs --half=0", f"TEST_NODES=aba {SOME_HANGS}",
        "random_programs --seeds=10:11", "partitioned_refused",
        "direct_collectives", "direct_blocks", "direct_pending", "blocks --direct",
        "random_blocks --direct --seeds=12:14",
        "exchanges no_record_for_a_call counts_that_differ communicators_that_come_and_go "
        "swaps_of_all_lengths",
        "neighbours --direct", "random_counts --direct --seeds=17:21",
        "hangs --direct --half=0",
    ],
    4: [
        "TEST_NODES=aabb collectives", "random_blocks --seeds=20:22",
        "random_counts --seeds=12:14", "random_counts --direct --seeds=21:23",
        "cart",
    ],
}  # fmt: skip
OPEN_MPI_ONLY = {
    1: [
        "point_to_point", "arrays", "datatypes", "host_side", "host_persistent",
        "random_counts --seeds=14:17", "bad_handles --direct",
        "bad_arguments --direct",
    ],
    2: [
        "collective_errors", "arrays", "ENGINE=mpi4py bad_input",
        "ENGINE=mpi4py datatypes --some", "debug",
        *(f"DEBUG=1 {p} --some" for p in ("arrays", "collectives")),
        "each_call to_host --some",
        f"faults {' '.join(SOME_FAULTS)}", f"ENGINE=mpi4py faults {' '.join(PYTHON_FAULTS)}",
        "ENGINE=mpi4py direct_faults left_open_by_an_aborted_kernel long_send",
        "GPU_STAGING=0 host_side --small", "ENGINE=mpi4py host_side --small",
        "ENGINE=mpi4py late allreduce_aborted long_allreduce send_interrupted",
        "narrow --some", "ENGINE=mpi4py point_to_point --small --some",
        "TEST_NODES=ab point_to_point --small --some",
        "random_programs --seeds=5:6", "random_requests --seeds=8:9",
        "ENGINE=mpi4py waits --small", "ENGINE=mpi4py combined", "ENGINE=mpi4py looked_at",
        "ENGINE=mpi4py looking", "freed", "ENGINE=mpi4py unreceived",
        "ENGINE=mpi4py persistent buffered_by_nobody scattered of_collectives wrong_use",
        "ENGINE=mpi4py direct no_record_for_a_message more_than_an_inbox_holds the_host_is_refused",
        "point_to_point --direct --small --some", "gaps --some",
        "grid --some", "random_blocks --direct --long --seeds=0:2",
        "random_counts --direct --long --seeds=24:25",
        "DEBUG=1 point_to_point --direct --some", "DEBUG=1 bad_handles --direct",
        "DEBUG=1 random_blocks --seeds=4:6", "DEBUG=1 random_counts --seeds=9:11",
        "ROAD=proxied partitioned_made", "TEST_NODES=ab ENGINE=mpi4py traced --some",
    ],
    3: [
        "random_blocks --seeds=12:14", "random_counts --seeds=6:8", "neighbours",
        "collectives", "hangs --half=1", "hangs --direct --half=1", "TEST_NODES=aab host_side",
        "lifecycle one_after_the_other communicators abort_releases_kernels the_proxy_dies",
        "TEST_NODES=aab partitioned", "onesided_refused",
        "ENGINE=mpi4py onesided random_epochs counters again_and_again notified",
    ],
    4: [
        "TEST_NODES=aabb random_programs --seeds=46:47",
    ],
}  # fmt: skip
#: With --full only, with both.
FULL_ONLY = {
    1: ["debug", "debug --direct", "debug_direct", "lifecycle", "random_programs --seeds=0:3"],
    2: [
        "DEBUG=1 point_to_point --some", "DEBUG=1 point_to_point --direct",
        "DEBUG=1 grid --direct", "DEBUG=1 persistent --direct", "DEBUG=1 onesided --some",
        "DEBUG=1 datatypes --direct --small --some", "DEBUG=1 random_programs --seeds=20:40",
        "DEBUG=1 random_requests --seeds=20:52",
        "point_to_point --small", "onesided --many", "bad_input",
        "bad_handles", "bad_handles --direct", "ENGINE=mpi4py bad_handles",
        "each_call", "lifecycle",
        "collectives", "collectives --small", "ENGINE=mpi4py collectives --small --some",
        "collectives --direct", "direct_collectives", "ENGINE=mpi4py direct_collectives",
        "direct_pending", "ENGINE=mpi4py direct_pending",
        "ENGINE=mpi4py direct_blocks", "random_blocks --direct --seeds=100:200",
        "random_blocks --direct --long --seeds=200:240", "exchanges", "ENGINE=mpi4py exchanges",
        # Open MPI's own calls among neighbours fail with other seeds.
        "random_counts --direct --seeds=160:165", "random_counts --direct --seeds=175:180",
        "direct_faults", "ENGINE=mpi4py direct_faults",
        "datatypes", "DEBUG=1 datatypes --some", "ENGINE=mpi4py datatypes --small --some",
        "GPU_STAGING=0 datatypes --small --some", "direct", "ENGINE=mpi4py direct",
        "late", "ENGINE=mpi4py late", "waits", "freed", "ENGINE=mpi4py freed", "freed --direct",
        "TEST_NODES=ab freed", "GPU_STAGING=0 freed",
        *(
            f"GPU_STAGING={gpu} ENGINE={engine} host_side --small"
            for gpu in (0, 1) for engine in ("compiled", "mpi4py")
        ),
        "narrow --many", "ENGINE=mpi4py narrow --many", "GPU_STAGING=0 narrow --many",
        "GPU_STAGING=0 ENGINE=mpi4py narrow", "DEBUG=1 narrow",
        "point_to_point", "ENGINE=mpi4py point_to_point --some",
        "GPU_STAGING=0 point_to_point --small",
        "GPU_STAGING=0 ENGINE=mpi4py point_to_point --small --some",
        "persistent", "persistent --direct", "ENGINE=mpi4py persistent",
        "random_requests --seeds=400:430", "random_blocks --seeds=24:40",
        "random_programs --seeds=1000:1100", "TEST_NODES=ab random_programs --seeds=1100:1150",
        "grid", "grid --direct", "ENGINE=mpi4py grid", "ROAD=proxied grid --direct",
        "TEST_NODES=ab grid",
        *(f"faults {op}" for op in OPERATIONS),
        *(
            f"{way} {program}"
            for way in ("TEST_NODES=ab", "DEBUG=1", "GPU_STAGING=0", "ROAD=proxied ENGINE=mpi4py")
            for program in (
                "partitioned", "partitioned_made", "partitioned_quick", "partitioned_refused"
            )
        ),
    ],
    3: [
        "unreceived", "point_to_point", "partitioned", "collectives --direct", "hangs --direct",
        "ENGINE=mpi4py hangs --direct",
        "exchanges", "grid --direct",
        "random_blocks --direct --seeds=240:300", "random_blocks --direct --long --seeds=300:320",
        "datatypes", "hangs", "host_side", "TEST_NODES=abb hangs", "TEST_NODES=abb collectives",
        "lifecycle", "ENGINE=mpi4py no_any_tag --small", "ENGINE=mpi4py onesided",
        "TEST_NODES=aab partitioned_refused",
        "random_programs --seeds=10:20", "random_requests --seeds=430:450",
    ],
    4: [
        "collectives", "point_to_point", "TEST_NODES=ab point_to_point", "onesided",
        "random_programs --seeds=18:19", "random_requests --seeds=450:470",
        *(
            f"TEST_NODES={nodes} random_programs --seeds={seed}:{seed + 30}"
            for seed, nodes in ((1200, "ab"), (1230, "aabb"), (1260, "abbb"))
        ),
    ],
    6: ["direct_collectives", "direct_pending", "random_counts --many --seeds=100:120"],
    9: ["onesided --some"],  # more than have rows beside the windows'
    18: ["many", "exchanges no_record_for_a_call"],  # which has two turns for so many blocks
    66: ["many"],
}  # fmt: skip
#: Of these, what --quick runs: messages of all kinds, collectives, datatypes, several contexts.
QUICK = {
    2: [
        "SPIN_MS=50 YIELD_MS=50 point_to_point --some", "datatypes --small", "mailbox",
        "lifecycle", "random_programs --seeds=0:4",
    ],
}  # fmt: skip


def parameters() -> Iterator[object]:
    for ranks in (1, 2, 3, 4, 6, 9, 18, 66):
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
