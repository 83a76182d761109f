"""Communicators on which no receive uses ANY_TAG: ``ranks/no_any_tag.py``, both engines."""

from __future__ import annotations

import launcher
import pytest

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("engine, ranks", [("compiled", 2), ("mpi4py", 3)])
def test_messages_arrive_and_any_tag_is_refused(engine: str, ranks: int) -> None:
    launcher.check(ranks, "no_any_tag", "--small", GMPI_ENGINE=engine)


@pytest.mark.slow
def test_on_a_single_rank() -> None:
    launcher.check(1, "no_any_tag")
