"""Which GPU a context takes, and where its proxy may run."""

from __future__ import annotations

import errno
import os
import re
from types import SimpleNamespace

import pytest
from numba import cuda

import gmpi
from gmpi import affinity
from gmpi.contract.sizes import Layout
from gmpi.lifetime import opening

pytestmark = pytest.mark.quick

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
    assert affinity.cores(f"{first},60000", gpu=False) == {first}


def test_crowded_means_fewer_than_two_cores_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    assert not affinity.crowded(1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert affinity.crowded(1)


# --- which GPU ------------------------------------------------------------------------------------


class Gpus:
    """Stands in for CUDA: ``current`` is the GPU whose context is current in this thread."""

    def __init__(self, count: int, current: int | None, used: tuple[int, ...]) -> None:
        self.current = current
        self.gpus = [
            SimpleNamespace(id=i, primary_context=i if i in used else None) for i in range(count)
        ]
        self.looked = False

    def is_available(self) -> bool:
        return bool(self.gpus)

    def select_device(self, number: int) -> None:
        assert self.gpus[number].id == number
        self.current = number

    def current_context(self) -> None:
        assert self.current is not None  # Numba would take GPU 0
        self.looked = True


def install(monkeypatch: pytest.MonkeyPatch, gpus: Gpus) -> None:
    for name in ("is_available", "select_device", "current_context", "gpus"):
        monkeypatch.setattr(cuda, name, getattr(gpus, name))
    monkeypatch.setattr(affinity, "_has_current_context", lambda: gpus.current is not None)
    monkeypatch.setattr(affinity, "SIMULATOR", False)


@pytest.mark.parametrize(
    "count, current, used, rank, taken",
    [
        pytest.param(2, None, (), 0, 0, id="nothing has used CUDA, rank 0"),
        pytest.param(2, None, (), 1, 1, id="nothing has used CUDA, rank 1"),
        pytest.param(2, None, (), 5, 1, id="more ranks than GPUs"),
        pytest.param(1, None, (), 3, 0, id="one GPU is shown"),
        pytest.param(2, 1, (), 0, 1, id="a library has made one current"),
        pytest.param(2, 0, (0, 1), 1, 0, id="Numba has used both, one is current"),
        pytest.param(2, None, (1,), 0, 1, id="Numba has used one in another thread"),
        pytest.param(2, None, (0, 1), 1, 1, id="Numba has used both in other threads"),
    ],
)
def test_the_gpu_of_a_context(
    count: int,
    current: int | None,
    used: tuple[int, ...],
    rank: int,
    taken: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpus = Gpus(count, current, used)
    install(monkeypatch, gpus)
    affinity.take_gpu(rank)
    assert gpus.current == taken and gpus.looked


def test_no_gpu_for_a_context(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Gpus(0, None, ()))
    with pytest.raises(gmpi.ContextError, match="no usable GPU"):
        affinity.take_gpu(0)


# --- what is said when memory cannot be had -------------------------------------------------------

SIZES = Layout(64, 64, 4, 256, 512)


@pytest.mark.parametrize(
    "exception, words",
    [
        (RuntimeError("the CUDA driver answered CUDA_ERROR_OUT_OF_MEMORY"), "lower request_slots"),
        (MemoryError("Unable to allocate"), "lower request_slots"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "lower request_slots"),
        (OSError(errno.EPERM, "Operation not permitted"), "memory is not what is lacking"),
        (RuntimeError("CUDA_ERROR_INVALID_CONTEXT"), "memory is not what is lacking"),
    ],
)
def test_sizes_are_blamed_only_where_memory_is_lacking(
    exception: Exception, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = []

    def fails(*_: object, gpu: bool, **__: object) -> None:
        assert gpu and taken == [1]  # a GPU is current before its memory is asked for
        raise exception

    monkeypatch.setattr(opening, "SIMULATOR", False)
    monkeypatch.setattr(affinity, "take_gpu", taken.append)
    monkeypatch.setattr(opening, "Memory", fails)
    with pytest.raises(
        gmpi.ContextError, match=f"cannot allocate .*{re.escape(str(exception))}; {words}"
    ):
        opening.allocate(SIZES, gpu=True, staging=True, node=affinity.OnNode(1, (7, 8)), first=0)
