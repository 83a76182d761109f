"""Debug mode finds what it says it finds, and nothing in programs that are right."""

from __future__ import annotations

import launcher
import pytest

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("ranks", [1, 2])
def test_checks(ranks: int) -> None:
    launcher.check(ranks, "debug")


@pytest.mark.slow
@pytest.mark.parametrize("program", ["point_to_point", "collectives", "datatypes", "arrays"])
def test_nothing_is_found_in_correct_programs(program: str) -> None:
    launcher.check(2, program, timeout=280, GMPI_DEBUG="1")
