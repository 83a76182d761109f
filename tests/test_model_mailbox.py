"""A mailbox, exhaustively at small bounds (``model/mailbox.pml``, spin)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import model_checker
import pytest

MODEL = Path(__file__).parent / "model" / "mailbox.pml"
_STUCK = "invalid end state"

#: What is taken away, and how it shows.
MUTATIONS = {
    "ONLY_WANTED_UNITS": _STUCK,
    "NO_FENCE_AFTER_REFUSAL": _STUCK,
    "SAME_TAG": "assertion",
    "TORN_UNIT": "assertion",
    "ANSWERED_BEFORE_TAKEN": f"assertion|{_STUCK}",
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    model_checker.need_tools()
    yield model_checker.build(MODEL, [], tmp_path_factory.mktemp("mailbox"))


def test_protocol_holds(program: Path, tmp_path: Path) -> None:
    model_checker.holds(model_checker.search(program, tmp_path), least=100_000)


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_what_is_taken_away_is_missed(mutation: str, program: Path, tmp_path: Path) -> None:
    text = model_checker.search(program, tmp_path, model_checker.mutations(MODEL)[mutation])
    model_checker.misses(text, MUTATIONS[mutation])


def test_every_mutation_of_the_model_is_tested() -> None:
    assert set(model_checker.mutations(MODEL)) == set(MUTATIONS)
