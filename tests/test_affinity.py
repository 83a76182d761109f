"""Where the proxy may run."""

from __future__ import annotations

import os

import pytest

from gmpi import affinity

MINE = frozenset(os.sched_getaffinity(0))


def test_without_a_gpu_or_a_wish_it_runs_anywhere() -> None:
    assert affinity.cores("any", gpu=False) == frozenset()
    assert affinity.cores("auto", gpu=False) == frozenset()


def test_near_the_gpu_within_what_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    first = min(MINE)
    monkeypatch.setattr(affinity, "cores_near_gpu", lambda: frozenset({first, 100_000}))
    expected = {first} if len(MINE) > 1 else set()
    assert affinity.cores("auto", gpu=True) == expected


def test_all_cores_near_the_gpu_are_no_restriction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affinity, "cores_near_gpu", lambda: MINE)
    assert affinity.cores("auto", gpu=True) == frozenset()


def test_a_list_is_cut_to_what_the_process_may_use() -> None:
    first = min(MINE)
    assert affinity.cores(f"{first},100000", gpu=False) == {first}


def test_crowded_means_fewer_than_two_cores_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    assert not affinity.crowded(1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert affinity.crowded(1)
