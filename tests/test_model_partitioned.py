"""Partitioned requests, exhaustively at small bounds (``model/partitioned.pml``, spin)."""

from __future__ import annotations

from pathlib import Path

import model_checker
import pytest

MODEL = Path(__file__).parent / "model" / "partitioned.pml"
_STUCK = "invalid end state"

#: Bounds, and the least number of states. Numbers wrap after four rounds.
BOUNDS = {
    "packets": (["ROUNDS=5"], 100_000),
    "packets one way": (["ONE_WAY", "ROUNDS=6"], 1_000),
    "stores": (["STORES", "ROUNDS=5"], 100_000),
    "a rank dies": (["DIES", "ROUNDS=5"], 100_000),
}

#: What is taken away: where it shows, and how.
MUTATIONS = {
    "NO_CREDIT": ("packets one way", f"assertion|{_STUCK}"),
    "CREDIT_TOO_LARGE": ("stores", "assertion"),
    "ONE_INBOX": ("packets", "assertion"),
    "NUMBERS_OF_ONE_BIT": ("packets", "assertion"),
    "NEVER_LATE": ("stores", _STUCK),
    "LATE_FOR_EVER": ("packets", _STUCK),
    "NO_FENCE_BEFORE_FLAG": ("stores", "assertion"),
    "NO_SECOND_LOOK": ("stores", _STUCK),
    "NO_LOOK_OF_HOST": ("stores", _STUCK),
    "NO_END_BY_ABORT": ("a rank dies", _STUCK),
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By bounds."""
    return model_checker.programs(MODEL, BOUNDS, tmp_path_factory.mktemp("partitioned"))


@pytest.mark.parametrize("bounds", BOUNDS)
def test_protocol_holds(bounds: str, programs: dict[str, Path], tmp_path: Path) -> None:
    model_checker.holds(model_checker.search(programs[bounds], tmp_path), BOUNDS[bounds][1])


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_what_is_taken_away_is_missed(
    mutation: str, programs: dict[str, Path], tmp_path: Path
) -> None:
    bounds, shows = MUTATIONS[mutation]
    number = model_checker.mutations(MODEL)[mutation]
    model_checker.misses(model_checker.search(programs[bounds], tmp_path, number), shows)


def test_every_mutation_of_the_model_is_tested() -> None:
    assert set(model_checker.mutations(MODEL)) == set(MUTATIONS)
