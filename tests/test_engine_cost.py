"""What the proxy's thread does for a record is no more than in the first version."""

from __future__ import annotations

import platform
import sys

import launcher
import pytest

#: Instructions of the compiled engine a record, at 0afb4d3, by the same count.
FIRST_VERSION = {"null record": 44, "null request": 556, "message of 8 bytes": 932}


@pytest.mark.full
@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="instructions are counted by ptrace, whose registers are those of x86-64 Linux",
)
def test_a_record_costs_no_more_instructions_than_in_the_first_version() -> None:
    status, text = launcher.python("tests/engine_cost.py", timeout=200)
    assert status == 0, text
    found = {}
    for line in text.splitlines():
        for kind in FIRST_VERSION:
            if line.startswith(kind):
                found[kind] = float(line.removeprefix(kind).split()[0])
    assert found.keys() == FIRST_VERSION.keys(), text
    assert all(found[kind] <= FIRST_VERSION[kind] for kind in found), text
