"""How the blocks of a grid meet in calls of grid scope, exhaustively (``model/grid.pml``)."""

from __future__ import annotations

from pathlib import Path

import model_checker
import pytest

MODEL = Path(__file__).parent / "model" / "grid.pml"
_STUCK = "invalid end state"
_EITHER = f"assertion|{_STUCK}"

BOUNDS = {
    "calls": (["CALLS=2"], 1_000_000),
    "short": (["CALLS=3", "KIND=ENDS"], 1_000_000),
    "launches": (["CALLS=1", "LAUNCHES", "KIND=GATHERS"], 100_000),
}
MUTATIONS = {
    "NO_MEETING": ("calls", "assertion"),
    "NO_END_OF_JOB": ("calls", "assertion"),
    "ONE_PACKET": ("calls", "assertion"),
    "NO_ROOM": ("short", _EITHER),
    "LEAVES_ALONE": ("calls", _EITHER),
    "LEAVES_THE_LEADER": ("calls", _EITHER),
    "SILENT_LEADER": ("calls", _EITHER),
    "NO_LAST_LOOK": ("calls", "assertion"),
    "OVERTAKES": ("calls", "assertion"),
    "JOBS_AT_ONCE": ("calls", _STUCK),
    "KEEPS_WORDS": ("launches", _EITHER),
    "COMES_FIRST": ("launches", _EITHER),
    "FORGETS_TO_MEET": ("launches", _EITHER),
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return model_checker.programs(MODEL, BOUNDS, tmp_path_factory.mktemp("grid"))


@pytest.mark.parametrize("bounds", BOUNDS)
def test_protocol_holds(bounds: str, programs: dict[str, Path], tmp_path: Path) -> None:
    model_checker.holds(model_checker.search(programs[bounds], tmp_path), BOUNDS[bounds][1])


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_what_is_taken_away_is_missed(
    mutation: str, programs: dict[str, Path], tmp_path: Path
) -> None:
    bounds, missed = MUTATIONS[mutation]
    number = model_checker.mutations(MODEL)[mutation]
    model_checker.misses(model_checker.search(programs[bounds], tmp_path, number), missed)


def test_every_mutation_of_the_model_is_tested() -> None:
    assert set(model_checker.mutations(MODEL)) == set(MUTATIONS)
