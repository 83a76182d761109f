"""Collectives of all blocks at once, exhaustively at small bounds (``pipelines.pml``)."""

from __future__ import annotations

from pathlib import Path

import model_checker
import pytest

MODEL = Path(__file__).parent / "model" / "pipelines.pml"

#: Bounds, and the least number of states.
BOUNDS = {
    "two ranks": (["CALLS=3"], 10_000),
    "three ranks": (["RANKS=3", "CALLS=2", "TURNS=2"], 50_000),
}
#: What is taken away, and where it shows.
MUTATIONS = {
    "NO_OPENING": "two ranks",
    "NO_END_MEETING": "two ranks",
    "STORES_LATE": "two ranks",
    "RESULTS_LATE": "two ranks",
    "TAKES_LATE": "two ranks",
    "PUTS_EARLY": "two ranks",
    "ONE_SLOT": "two ranks",
    "OLD_FLAGS": "two ranks",
    "NEXT_RANK_ONLY": "three ranks",
    "OPENS_EARLY": "two ranks",
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By bounds."""
    return model_checker.programs(MODEL, BOUNDS, tmp_path_factory.mktemp("pipelines"))


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
