"""How many sectors of memory a layout touches, whole and in part: the floor of packing figures."""

from __future__ import annotations

import sys

import launcher
import numpy as np
import pytest
from mpi4py import MPI

sys.path.append(str(launcher.ROOT / "benchmarks"))

from _pack_sectors import Sectors, count_sectors, pack_bytes, sectors, unpack_bytes

from gmpi.datatypes import plan


@pytest.mark.parametrize(
    ("atom", "pitch", "touched", "partial"),
    [
        (32, 64, 1.0, 0.0),
        (64, 128, 2.0, 0.0),
        (8, 16, 0.5, 0.5),
        (24, 40, 1.25, 1.25),
        (17, 24, 0.75, 0.75),
        (96, 128, 3.0, 0.0),
        (40, 64, 2.0, 1.0),
    ],
)
def test_sectors_of_a_vector(atom: int, pitch: int, touched: float, partial: float) -> None:
    for count in (3200, 1 << 22):  # counted, and from a sample
        found = sectors(plan(MPI.BYTE.Create_hvector(count, atom, pitch)), 1)
        assert found.touched == pytest.approx(touched * count, rel=1e-3)
        assert found.partial == pytest.approx(partial * count, rel=1e-3)


def test_runs_in_any_order_that_meet_in_a_sector() -> None:
    rng = np.random.default_rng(1)
    lengths = rng.integers(1, 90, 300)
    gaps = rng.integers(0, 40, 300)
    at = np.cumsum(lengths + gaps) - lengths
    bytes_ = np.concatenate([np.arange(a, a + n) for a, n in zip(at, lengths)])
    numbers, counts = np.unique(bytes_ // 32, return_counts=True)
    order = rng.permutation(300)
    expected = Sectors(len(numbers), int((counts < 32).sum()))
    assert count_sectors(at[order], lengths[order]) == expected


def test_an_unpack_reads_what_it_writes_in_part() -> None:
    found = Sectors(10, 3)
    assert pack_bytes(found, 100, 7) == 320 + 100 + 7
    assert unpack_bytes(found, 100, 7) == 320 + 96 + 100 + 7
