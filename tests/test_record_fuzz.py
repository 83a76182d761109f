"""No record, whatever is in it, crashes the proxy or reaches MPI unchecked."""

from __future__ import annotations

import sys

import launcher


def fuzz(records: int, seed: int, timeout: float) -> str:
    program = str(launcher.ROOT / "tests" / "record_fuzz.py")
    status, text = launcher.start([sys.executable, program, str(records), str(seed)], timeout)
    assert status == 0 and "0 harmful" in text, text
    return text


def test_random_and_mutated_records() -> None:
    text = fuzz(100_000, 1, 280)
    numbers = {name: int(text.split(f" {name}")[0].split()[-1]) for name in ("sends", "receives")}
    assert min(numbers.values()) > 2_500, f"hardly any record gets as far as MPI: {text}"
