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
    "wide slot, wrap": (
        ["WIDE_SLOT", "SENDERS=1", "RECEIVERS=1", "DEPTH=1", "MESSAGES=6"],
        100_000,
    ),
    "wide slot, two receivers": (
        ["WIDE_SLOT", "SENDERS=1", "RECEIVERS=2", "DEPTH=2", "MESSAGES=3"],
        1_000_000,
    ),
    "two of both": (["SENDERS=2", "RECEIVERS=2", "DEPTH=1", "MESSAGES=3"], 5_000_000),
}
#: Optimised, the long searches take half as long, and there are few programs to compile.
OPTIONS = ("-O1",)
SMALLER = ("-DCOLLAPSE", "-O1")  # for more states than fit into memory otherwise
QUICK = ("two senders, wrap", "wide slot, wrap")
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
    "NO_WAIT_FOR_ALL": _STUCK,
    "NO_WIDE_REFRESH": "assertion",
    "NO_FENCE_AFTER_FIRST": "assertion",
    "ANY_PART": "assertion",
}
#: In which program it shows, if not in the quickest. Two receivers free slots in any order.
WHERE = {
    "COUNT_OF_CREDITS": "two slots",
    "ANNOUNCED_TOO_EARLY": "two slots",
    "NO_WAIT_FOR_ALL": "wide slot, two receivers",
    "NO_WIDE_REFRESH": "wide slot, wrap",
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """By bounds."""
    model_checker.need_tools()
    wanted = {name: BOUNDS[name][0] for name in (*QUICK, "wide slot, two receivers")}
    yield {
        name: model_checker.build(MODEL, bounds, tmp_path_factory.mktemp("channel"), *OPTIONS)
        for name, bounds in {**wanted, "two slots": TWO_SLOTS}.items()
    }


@pytest.mark.parametrize("bounds", QUICK)
def test_protocol_holds(bounds: str, programs: dict[str, Path], tmp_path: Path) -> None:
    model_checker.holds(model_checker.search(programs[bounds], tmp_path), BOUNDS[bounds][1])


@pytest.mark.full
@pytest.mark.parametrize("bounds", [name for name in BOUNDS if name not in QUICK])
def test_protocol_holds_in_more_states(bounds: str, tmp_path: Path) -> None:
    model_checker.need_tools()
    defines, least = BOUNDS[bounds]
    program = model_checker.build(MODEL, defines, tmp_path, *SMALLER)
    model_checker.holds(model_checker.search(program, tmp_path), least)


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_what_is_taken_away_is_missed(
    mutation: str, programs: dict[str, Path], tmp_path: Path
) -> None:
    program = programs[WHERE.get(mutation, QUICK[0])]
    text = model_checker.search(program, tmp_path, model_checker.mutations(MODEL)[mutation])
    model_checker.misses(text, MUTATIONS[mutation])


def test_every_mutation_of_the_model_is_tested() -> None:
    assert set(model_checker.mutations(MODEL)) == set(MUTATIONS)
