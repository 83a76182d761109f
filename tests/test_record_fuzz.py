"""No record and no header, whatever is in it, crashes the proxy or is relied on unchecked."""

from __future__ import annotations

import re
import sys

import launcher
import pytest

SOME = 100_000, 33_000, 1  # records, headers, seed
MANY = pytest.param(
    (200_000, 2_000_000, 2), marks=[pytest.mark.full, pytest.mark.timeout(6000)], id="many"
)


@pytest.fixture(scope="module", params=[pytest.param(SOME, id="some"), MANY])
def served(request: pytest.FixtureRequest) -> tuple[int, str]:
    """How many records, and what the fuzzers said: of both, for most of it is to compile."""
    records, headers, seed = request.param
    program = str(launcher.ROOT / "tests" / "header_fuzz.py")
    command = [sys.executable, program, str(headers), str(seed), str(records)]
    status, text = launcher.start(command, 280 * max(1, records / 100_000))
    assert status == 0, text
    return records, text


def test_random_and_mutated_records(served: tuple[int, str]) -> None:
    records, text = served
    assert "0 harmful" in text, text
    numbers = {name: int(text.split(f" {name}")[0].split()[-1]) for name in ("sends", "receives")}
    assert min(numbers.values()) > records / 40, f"hardly any record gets as far as MPI: {text}"


def test_random_and_mutated_headers(served: tuple[int, str]) -> None:
    text = served[1]
    assert "0 wrong" in text, text
    found = re.findall(r"(\d+) refused, (\d+) received, (\d+) truncated, (\d+) long", text)
    assert found, text
    for counts in found:
        total = sum(map(int, counts))
        assert min(map(int, counts)) > total // 100, f"hardly any header gets as far: {text}"
