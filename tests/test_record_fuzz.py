"""No record and no header, whatever is in it, crashes the proxy or is relied on unchecked."""

from __future__ import annotations

import re
import sys

import launcher
import pytest


def fuzz(name: str, number: int, seed: int, timeout: float) -> str:
    program = str(launcher.ROOT / "tests" / name)
    status, text = launcher.start([sys.executable, program, str(number), str(seed)], timeout)
    assert status == 0, text
    return text


@pytest.mark.parametrize(
    ("records", "seed"),
    [(7_000, 1), pytest.param(200_000, 2, marks=[pytest.mark.full, pytest.mark.timeout(6000)])],
)
def test_random_and_mutated_records(records: int, seed: int) -> None:
    text = fuzz("record_fuzz.py", records, seed, 280 * max(1, records / 100_000))
    assert "0 harmful" in text, text
    numbers = {name: int(text.split(f" {name}")[0].split()[-1]) for name in ("sends", "receives")}
    assert min(numbers.values()) > records / 40, f"hardly any record gets as far as MPI: {text}"


@pytest.mark.parametrize(
    ("headers", "seed"),
    [(33_000, 1), pytest.param(2_000_000, 2, marks=[pytest.mark.full, pytest.mark.timeout(6000)])],
)
def test_random_and_mutated_headers(headers: int, seed: int) -> None:
    text = fuzz("header_fuzz.py", headers, seed, 280)
    assert "0 wrong" in text, text
    for counts in re.findall(r"(\d+) refused, (\d+) received, (\d+) truncated, (\d+) long", text):
        total = sum(map(int, counts))
        assert min(map(int, counts)) > total // 100, f"hardly any header gets as far: {text}"
