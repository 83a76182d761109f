"""Collectives of the direct road, exhaustively at small bounds (``model/collective.pml``, spin)."""

from __future__ import annotations

from pathlib import Path

import model_checker
import pytest

MODEL = Path(__file__).parent / "model" / "collective.pml"
_STUCK = "invalid end state"
_OVERWRITTEN = f"assertion|{_STUCK}"  # before it was read: wrong bytes, or none ever

#: Bounds, and the least number of states. Numbers wrap after four rounds.
BOUNDS = {
    "two ranks": (["ROUNDS=5", "FEW_KINDS"], 100_000),
    "three ranks": (["RANKS=3", "ROUNDS=3", "AT_ONCE", "FEW_KINDS"], 100_000),
    "all kinds": (["ROUNDS=3"], 10_000),
    "a rank dies": (["DIES", "ROUNDS=3"], 10_000),
    "calls differ": (["DIFFERS", "ROUNDS=4", "FEW_KINDS"], 50_000),
    "calls of three ranks differ": (
        ["DIFFERS", "RANKS=3", "ROUNDS=3", "AT_ONCE", "FEW_KINDS"], 50_000
    ),
    "all kinds of three ranks": (["RANKS=3", "ROUNDS=3", "AT_ONCE"], 100_000),
    "all kinds, and numbers wrap": (["ROUNDS=5"], 100_000),
}  # fmt: skip
FULL = ("all kinds of three ranks", "all kinds, and numbers wrap")

#: What is taken away: where it shows, and how.
MUTATIONS = {
    "NO_LOOK": ("two ranks", _OVERWRITTEN),
    "LOOKS_AT_ROOT": ("three ranks", _OVERWRITTEN),
    "ONE_INBOX": ("two ranks", _OVERWRITTEN),
    "NUMBERS_OF_ONE_BIT": ("two ranks", "assertion"),
    "ALL_NUMBERS_WRAP": ("two ranks", "assertion"),
    "ENTERS_TOO_EARLY": ("two ranks", _OVERWRITTEN),
    "SILENT_IN_BCAST": ("two ranks", _STUCK),
    "BARRIER_OF_SOME": ("three ranks", "assertion"),
    "NO_SIGNATURE": ("calls differ", "assertion"),
    "NO_END_BY_ABORT": ("a rank dies", _STUCK),
    "NO_LOOK_AFTER_GATHER": ("all kinds", _OVERWRITTEN),
    "NO_LOOK_AFTER_SCAN": ("all kinds", _OVERWRITTEN),
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By bounds."""
    return model_checker.programs(MODEL, BOUNDS, tmp_path_factory.mktemp("collective"))


@pytest.mark.parametrize(
    "bounds", [pytest.param(b, marks=pytest.mark.full) if b in FULL else b for b in BOUNDS]
)
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
