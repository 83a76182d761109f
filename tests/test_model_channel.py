"""A channel of the direct road, exhaustively at small bounds (``model/channel.pml``, spin)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import model_checker
import pytest

MODEL = Path(__file__).parent / "model" / "channel.pml"
_STUCK = "invalid end state"

#: Bounds, and the least number of states. The numbers wrap after four messages a slot.
BOUNDS = {
    "two senders, wrap": (["SENDERS=2", "RECEIVERS=1", "DEPTH=1", "MESSAGES=5"], 1_000_000),
    "two senders, two slots": (["SENDERS=2", "RECEIVERS=1", "DEPTH=2", "MESSAGES=3"], 1_000_000),
    "two receivers": (["SENDERS=1", "RECEIVERS=2", "DEPTH=1", "MESSAGES=4"], 1_000_000),
    "two receivers, wrap": (["SENDERS=1", "RECEIVERS=2", "DEPTH=1", "MESSAGES=5"], 5_000_000),
    "two of both": (["SENDERS=2", "RECEIVERS=2", "DEPTH=1", "MESSAGES=3"], 5_000_000),
}
QUICKEST = "two senders, wrap"
TWO_SLOTS = ["SENDERS=1", "RECEIVERS=2", "DEPTH=2", "MESSAGES=3"]

#: What is taken away, and how it shows.
MUTATIONS = {
    "NO_CREDIT": "assertion",
    "COUNT_OF_CREDITS": _STUCK,
    "CREDIT_BEFORE_TAKEN": _STUCK,
    "ONLY_WANTED_PACKETS": _STUCK,
    "NO_FENCE_AFTER_PUSH": "assertion",
    "NO_FENCE_BEFORE_CREDIT": f"assertion|{_STUCK}",
    "ANNOUNCED_TOO_EARLY": _STUCK,
    "ANY_ANNOUNCEMENT": "assertion",
    "NO_LATE_ANNOUNCEMENT": _STUCK,
    "TORN_PACKET": "assertion",
    "NO_REFRESH": "assertion",
}
#: They need two receivers that free slots in any order.
OF_TWO_SLOTS = ("COUNT_OF_CREDITS", "ANNOUNCED_TOO_EARLY")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """With the quickest bounds, and with two slots."""
    model_checker.need_tools()
    made = [
        model_checker.build(MODEL, defines, tmp_path_factory.mktemp("channel"), "-DCOLLAPSE")
        for defines in (BOUNDS[QUICKEST][0], TWO_SLOTS)
    ]
    yield made[0], made[1]


def test_protocol_holds(programs: tuple[Path, Path], tmp_path: Path) -> None:
    model_checker.holds(model_checker.search(programs[0], tmp_path), BOUNDS[QUICKEST][1])


@pytest.mark.full
@pytest.mark.parametrize("bounds", [name for name in BOUNDS if name != QUICKEST])
def test_protocol_holds_in_more_states(bounds: str, tmp_path: Path) -> None:
    model_checker.need_tools()
    defines, least = BOUNDS[bounds]
    program = model_checker.build(MODEL, defines, tmp_path, "-DCOLLAPSE")
    model_checker.holds(model_checker.search(program, tmp_path), least)


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_what_is_taken_away_is_missed(
    mutation: str, programs: tuple[Path, Path], tmp_path: Path
) -> None:
    program = programs[mutation in OF_TWO_SLOTS]
    text = model_checker.search(program, tmp_path, model_checker.mutations(MODEL)[mutation])
    model_checker.misses(text, MUTATIONS[mutation])


def test_every_mutation_of_the_model_is_tested() -> None:
    assert set(model_checker.mutations(MODEL)) == set(MUTATIONS)
