"""An MPI call that fails, at every step of a transfer: both ends learn of it, and go on.

Guards against a request that waits for ever for a rank that has given up; against messages and
receives that are left in MPI and meet those of the next transfer; against a row that is closed
twice, or touched when another request has it.
"""

from __future__ import annotations

from random import Random

import pytest
from machine import SMALL
from pair import CODE, Pair

import gmpi

pytestmark = [pytest.mark.mpi, pytest.mark.mpich]

LARGE = SMALL.request_slots
EAGER, CHUNK = SMALL.eager_bytes, SMALL.chunk_bytes
#: (message, room): chunks, and what becomes of them
TRANSFERS = [
    (EAGER + 8, EAGER + 8),  # one chunk
    (CHUNK + 8, CHUNK + 8),  # the last one is as long as last words
    (9 * CHUNK - 3, 9 * CHUNK),
    (5 * CHUNK, CHUNK + 1),  # truncated in its second chunk
]  # fmt: skip


def steps_of(shared: bool, nbytes: int, room: int, eager: int) -> list[int]:
    """How many steps each end of the transfer has, if nothing fails."""
    pair = Pair(shared)
    pair.wire.eager = eager
    errors = pair.transfer(nbytes, room, (LARGE, LARGE), 1)
    assert errors == [gmpi.SUCCESS, gmpi.ERR_TRUNCATE if nbytes > room else gmpi.SUCCESS]
    pair.check_idle()
    pair.close()
    return [len(m.steps) for m in pair.ranks]


@pytest.mark.parametrize("eager", [0, 1 << 20], ids=["rendezvous", "eager"])
@pytest.mark.parametrize("shared", [False, True], ids=["chunks by MPI", "GPU staging"])
@pytest.mark.parametrize(("nbytes", "room"), TRANSFERS)
def test_each_step(nbytes: int, room: int, shared: bool, eager: int) -> None:
    steps = steps_of(shared, nbytes, room, eager)
    pair = Pair(shared)
    pair.wire.eager = eager
    for rank in (0, 1):
        for n in range(1, steps[rank] + 1):
            machine = pair.ranks[rank]
            machine.steps.clear()
            machine.fail_at = n
            errors = pair.transfer(nbytes, room, (LARGE, LARGE), 100 * n + rank)
            name = f"{n}: {machine.steps[n - 1]} on rank {rank}: {errors}"
            machine.fail_at = 0
            if name.startswith("1: MPI_Irecv messages"):
                # A receive that was never posted has matched nothing: the next one gets it.
                assert errors == [-1, CODE], name
                errors = pair.receive(room, LARGE)
                assert errors[0] == gmpi.SUCCESS and errors[1] != CODE, name
            assert errors[rank] in (CODE, gmpi.SUCCESS, gmpi.ERR_TRUNCATE), name
            assert errors[1 - rank] != -1, name
            pair.check_idle()
            # Later messages work, in the same slots and in others.
            for again in (0, 1):
                after = pair.transfer(nbytes, room, (LARGE + again, LARGE + again), 7 * n + again)
                assert after[0] == gmpi.SUCCESS, (name, after)
                assert after[1] in (gmpi.SUCCESS, gmpi.ERR_TRUNCATE), (name, after)
                pair.check_idle()
    pair.close()


@pytest.mark.parametrize("shared", [False, True], ids=["chunks by MPI", "GPU staging"])
def test_both_fail_at_once(shared: bool) -> None:
    """Whatever the steps are at which each end fails, and the slots that are used again."""
    random = Random(5)
    pair = Pair(shared)
    for seed in range(300):
        nbytes, room = random.choice(TRANSFERS)
        pair.wire.eager = random.choice([0, 1 << 20])
        for machine in pair.ranks:
            machine.steps.clear()
            machine.fail_at = random.randint(2, 14)
        errors = pair.transfer(nbytes, room, (LARGE + seed % 2, LARGE), seed)
        failed = [m.steps[m.fail_at - 1 : m.fail_at] for m in pair.ranks]
        for machine in pair.ranks:
            machine.fail_at = 0
        assert -1 not in errors, (seed, nbytes, room, failed, errors)
        pair.check_idle()
        after = pair.transfer(nbytes, room, (LARGE + seed % 2, LARGE), seed + 1)
        assert after[0] == gmpi.SUCCESS and after[1] != CODE, (failed, errors, after)
        pair.check_idle()
    pair.close()
