"""Long collectives of the direct road, exhaustively at small bounds (``long_collective.pml``)."""

from __future__ import annotations

from pathlib import Path

import model_checker
import pytest

MODEL = Path(__file__).parent / "model" / "long_collective.pml"

#: Bounds, and the least number of states.
BOUNDS = {
    "two ranks": (["CALLS=4"], 5_000),
    "three ranks": (["RANKS=3", "CALLS=2"], 50_000),
}
#: What is taken away, and where it shows.
MUTATIONS = {
    "NO_FIRST_MEETING": "two ranks",
    "NO_SECOND_MEETING": "two ranks",
    "BCAST_TO_INBOX": "two ranks",
    "STORES_LATE": "two ranks",
    "RESULTS_LATE": "two ranks",
    "TAKES_LATE": "two ranks",
    "NEXT_RANK_ONLY": "three ranks",
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By bounds."""
    return model_checker.programs(MODEL, BOUNDS, tmp_path_factory.mktemp("long_collective"))


@pytest.mark.parametrize("bounds", BOUNDS)
def test_protocol_holds(bounds: str, programs: dict[str, Path], tmp_path: Path) -> None:
    model_checker.holds(model_checker.search(programs[bounds], tmp_path), BOUNDS[bounds][1])


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_what_is_taken_away_is_missed(
    mutation: str, programs: dict[str, Path], tmp_path: Path
) -> None:
    number = model_checker.mutations(MODEL)[mutation]
    found = model_checker.search(programs[MUTATIONS[mutation]], tmp_path, number)
    model_checker.misses(found, "assertion")


def test_every_mutation_of_the_model_is_tested() -> None:
    assert set(model_checker.mutations(MODEL)) == set(MUTATIONS)
