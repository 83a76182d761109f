"""What Himeno's faces are cut into, and what is said of grids that a GPU has no room for. No rank
is started."""

from __future__ import annotations

import sys

import launcher
import pytest

sys.path.insert(0, str(launcher.ROOT / "benchmarks" / "himeno"))

from _himeno_fields import check_free
from _himeno_grid import GridError, parse_size, part_of
from _himeno_kernels import multiprocessors, resident_blocks
from _himeno_partitions import partitions_of
from _himeno_sweep import Plan

GIB = 1 << 30


def test_arrays_must_fit_what_is_free() -> None:
    part = part_of(0, parse_size("XL"), (2, 1, 1))
    check_free(part, 1, 8 * GIB, 140 * GIB)
    with pytest.raises(
        GridError, match=r"need 7\.\d GiB on each of 1 rank\(s\) of this GPU, which has 7\.0 of 140"
    ):
        check_free(part, 1, 7 * GIB, 140 * GIB)
    with pytest.raises(GridError, match="on each of 2 rank"):
        check_free(part, 2, 8 * GIB, 140 * GIB)


def test_a_grid_must_have_blocks_that_sweep() -> None:
    plan = Plan(blocks=2, communicating=2)
    enough = 2 * multiprocessors()
    assert resident_blocks(enough, plan, 1) == enough
    assert resident_blocks(10 * enough, plan, 1) == enough
    assert resident_blocks(5, plan, 1) == 5
    for most, sharers in ((4, 1), (0, 1), (9, 2), (enough, 3)):
        with pytest.raises(GridError, match=f"holds {most} blocks .* none would be left to sweep"):
            resident_blocks(most, plan, sharers)


@pytest.mark.parametrize(
    ("elements", "most", "cut"),
    [
        (7936, 8, 8),
        (32256, 2, 2),
        (104, 8, 2),
        (4 * 13, 8, 1),
        (4 * 13, 13, 13),
        (6, 8, 1),
        (0, 8, 8),
    ],
)
def test_a_face_is_cut_into_equal_partitions_of_whole_vectors(
    elements: int, most: int, cut: int
) -> None:
    found = partitions_of(elements, most)
    assert found == cut
    assert elements % found == 0 and (found == 1 or elements // found % 4 == 0)
