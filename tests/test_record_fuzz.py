"""No record, whatever is in it, crashes the proxy or reaches MPI unchecked."""

from __future__ import annotations

import sys

import launcher
import pytest


def fuzz(records: int, seed: int, timeout: float) -> str:
    program = str(launcher.ROOT / "tests" / "record_fuzz.py")
    status, text = launcher.start([sys.executable, program, str(records), str(seed)], timeout)
    assert status == 0 and "0 harmful" in text, text
    return text


@pytest.mark.parametrize(
    ("records", "seed"),
    [(20_000, 1), pytest.param(200_000, 2, marks=[pytest.mark.full, pytest.mark.timeout(6000)])],
)
def test_random_and_mutated_records(records: int, seed: int) -> None:
    text = fuzz(records, seed, 280 * max(1, records / 100_000))
    numbers = {name: int(text.split(f" {name}")[0].split()[-1]) for name in ("sends", "receives")}
    assert min(numbers.values()) > records / 40, f"hardly any record gets as far as MPI: {text}"
