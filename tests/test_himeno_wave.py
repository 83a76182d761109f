"""Two Himeno iterations in one pass: the order of their steps. No rank is started."""

from __future__ import annotations

import sys

import launcher
import pytest

sys.path.insert(0, str(launcher.ROOT / "examples"))

from _himeno_grid import GridError, part_of
from _himeno_wave import steps, wave_plan

Done = set[tuple[int, int]]


def in_order(planes: int, left: bool, distance: int, iterations: int) -> list[tuple[int, int]]:
    """(iteration, plane) of all rounds."""
    order = steps(planes, left, distance)
    assert len(order) == 2 * planes
    rounds = range(iterations // 2 + 1)
    found = [(2 * r + offset, plane) for r in rounds for offset, plane in order]
    return [(n, plane) for n, plane in found if 0 <= n < iterations]


def missing(done: Done, n: int, plane: int, planes: int) -> Done:
    """What a step needs of its own rank, and is not done."""
    around = range(max(0, plane - 1), min(planes, plane + 2))
    return {(n - 1, i) for i in around if n > 0} - done


@pytest.mark.parametrize("iterations", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize(
    ("planes", "distance"), [(1, 1), (3, 2), (6, 1), (7, 2), (16, 3), (64, 12)]
)
def test_each_plane_once_behind_those_that_it_needs(
    planes: int, distance: int, left: bool, iterations: int
) -> None:
    if left and planes < distance + 5:
        with pytest.raises(GridError, match=f"{distance + 5} could"):
            steps(planes, left, distance)
        return
    done: Done = set()
    for n, plane in in_order(planes, left, distance, iterations):
        assert (n, plane) not in done
        assert not missing(done, n, plane, planes), (n, plane)
        done.add((n, plane))
    assert done == {(n, plane) for n in range(iterations) for plane in range(planes)}


@pytest.mark.parametrize("planes", [6, 9, 32])
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_ranks_do_not_wait_for_each_other_in_a_circle(ranks: int, planes: int) -> None:
    iterations = 7
    waiting = [in_order(planes, rank > 0, 1, iterations) for rank in range(ranks)]
    done: list[Done] = [set() for _ in range(ranks)]
    moved = True
    while moved:
        moved = False
        for rank, left in enumerate(waiting):
            while left:
                n, plane = left[0]
                halo = rank > 0 and plane == 0 and n > 0
                if halo and (n - 1, planes - 1) not in done[rank - 1]:
                    break
                halo = rank < ranks - 1 and plane == planes - 1 and n > 0
                if halo and (n - 1, 0) not in done[rank + 1]:
                    break
                done[rank].add((n, plane))
                del left[0]
                moved = True
    assert not any(waiting)


@pytest.mark.parametrize("left", [False, True])
def test_what_comes_from_a_neighbour_has_half_a_round_to_come(left: bool) -> None:
    """All ranks go through their rounds at the same pace: how far apart sending and use are."""
    planes, iterations = 64, 12
    mine = in_order(planes, True, 3, iterations)  # has a left neighbour
    theirs = in_order(planes, False, 3, iterations)  # is it
    users, makers = (mine, theirs) if left else (theirs, mine)
    used, made = (0, planes - 1) if left else (planes - 1, 0)
    for n in range(1, iterations - 2):  # the last round has few steps
        assert users.index((n, used)) - makers.index((n - 1, made)) > planes // 2, n


def test_what_cannot_be_swept_so_is_refused() -> None:
    with pytest.raises(GridError, match="i only, not into 1x2x1 parts; --decompose 2,1,1 does"):
        wave_plan(part_of(0, (8, 8, 8), (1, 2, 1)))
    with pytest.raises(GridError, match="--communicating 1 gives 1 blocks"):
        wave_plan(part_of(0, (8, 8, 8), (2, 1, 1)), communicating=1)
    with pytest.raises(GridError, match="not one for each message and one for the sum; take more"):
        wave_plan(part_of(0, (8, 8, 8), (2, 1, 1)), messages=3)
