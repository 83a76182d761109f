"""Memory that other processes store to, and which context may have it next; without a GPU."""

from __future__ import annotations

from itertools import count

import pytest

from gmpi.memory import gpu_staging


def test_only_a_context_of_the_same_processes_gets_the_memory_of_an_earlier_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of ranks 0 and 1 the other one may still be at work when rank 0 opens a context with 2."""
    fresh = count(1)
    monkeypatch.setattr(gpu_staging, "_exported", {})
    monkeypatch.setattr(gpu_staging, "_export", lambda nbytes: (next(fresh), b"handle"))
    first = gpu_staging.GpuStaging(64, True, (10, 11))
    first.give_back()
    with_another = gpu_staging.GpuStaging(64, True, (10, 12))
    larger = gpu_staging.GpuStaging(128, True, (10, 11))
    again = gpu_staging.GpuStaging(64, True, (10, 11))
    beside_it = gpu_staging.GpuStaging(64, True, (10, 11))
    found = [one.address for one in (first, with_another, larger, again, beside_it)]
    assert found == [1, 2, 3, 1, 4]
