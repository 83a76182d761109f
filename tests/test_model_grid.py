"""How the blocks of a grid meet in a call of grid scope, exhaustively (``model/grid.pml``)."""

from __future__ import annotations

from pathlib import Path

import model_checker
import pytest

MODEL = Path(__file__).parent / "model" / "grid.pml"
_STUCK = "invalid end state"
_EITHER = f"assertion|{_STUCK}"

BOUNDS = {"two others": ([], 10_000)}
MUTATIONS = {
    "NO_MEETING": _EITHER,
    "NO_END_OF_JOB": "assertion",
    "ONE_PACKET": "assertion",
    "RESET_LATE": _EITHER,
    "LEAVES_ALONE": _EITHER,
    "LEAVES_THE_LEADER": _EITHER,
    "SILENT_LEADER": _EITHER,
    "NO_LAST_LOOK": "assertion",
    "SAYS_TOO_EARLY": "assertion",
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_checker.programs(MODEL, BOUNDS, tmp_path_factory.mktemp("grid"))["two others"]


def test_protocol_holds(program: Path, tmp_path: Path) -> None:
    model_checker.holds(model_checker.search(program, tmp_path), BOUNDS["two others"][1])


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_what_is_taken_away_is_missed(mutation: str, program: Path, tmp_path: Path) -> None:
    number = model_checker.mutations(MODEL)[mutation]
    model_checker.misses(model_checker.search(program, tmp_path, number), MUTATIONS[mutation])


def test_every_mutation_of_the_model_is_tested() -> None:
    assert set(model_checker.mutations(MODEL)) == set(MUTATIONS)
