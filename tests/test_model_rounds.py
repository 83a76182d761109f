"""The rounds of long messages on the direct road, exhaustively (``model/rounds.pml``)."""

from __future__ import annotations

from pathlib import Path

import model_checker
import pytest

MODEL = Path(__file__).parent / "model" / "rounds.pml"
_STUCK = "invalid end state"

BOUNDS = {"rounds": (["ROUNDS=5"], 1_000)}
MUTATIONS = {
    "ANNOUNCED_AT_ONCE": _STUCK,
    "NOT_EMPTIED": "assertion",
    "NO_FENCE": "assertion",
    "ANY_ROUND": "assertion",
    "ONE_HALF": "assertion",
    "NEVER_AGAIN": _STUCK,
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = model_checker.programs(MODEL, BOUNDS, tmp_path_factory.mktemp("rounds"))
    return found["rounds"]


def test_protocol_holds(program: Path, tmp_path: Path) -> None:
    model_checker.holds(model_checker.search(program, tmp_path), BOUNDS["rounds"][1])


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_what_is_taken_away_is_missed(mutation: str, program: Path, tmp_path: Path) -> None:
    number = model_checker.mutations(MODEL)[mutation]
    model_checker.misses(model_checker.search(program, tmp_path, number), MUTATIONS[mutation])


def test_every_mutation_of_the_model_is_tested() -> None:
    assert set(model_checker.mutations(MODEL)) == set(MUTATIONS)
