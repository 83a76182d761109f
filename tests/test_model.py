"""The ring and completion protocol, exhaustively at small bounds (``model/ring.pml``, spin).

A protocol whose checks are all needed: the model with any one of them taken away must fail.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import model_checker
import pytest

MODEL = Path(__file__).parent / "model" / "ring.pml"

#: Bounds at which every state is visited.
BOUNDS = {
    "three laps of a ring of one": ["CALLS=2", "RING=1", "REQUESTS=1"],
    "two laps of a ring of two": ["CALLS=1", "RING=2", "REQUESTS=2"],
    "more requests than ring slots": ["CALLS=1", "RING=1", "REQUESTS=2"],
    "three warps": ["PRODUCERS=3", "CALLS=1", "RING=1", "REQUESTS=1"],
    "stale handles, two waits for one request": ["CALLS=1", "RING=1", "REQUESTS=2", "STRAY_WAITS"],
    "tags that repeat, a ring of one": [
        "PRODUCERS=1", "CALLS=7", "RING=1", "REQUESTS=1", "WRAP=4"
    ],
    "tags that repeat, a ring of two": [
        "PRODUCERS=1", "CALLS=9", "RING=2", "REQUESTS=1", "WRAP=8"
    ],
    "abort at any time": ["CALLS=1", "RING=1", "REQUESTS=1", "ABORT"],
}  # fmt: skip

#: What is taken away: (at which bounds it is found, how it shows).
MUTATIONS = {
    "NO_LAP_IN_TAG": ("three laps of a ring of one", "assertion"),
    "NO_TAG_CHECK_OPERATION": ("three laps of a ring of one", "assertion"),
    "NO_TAG_CHECK_PAYLOAD": ("three laps of a ring of one", "assertion"),
    "NO_TAG_CHECK_STATUS": ("three laps of a ring of one", "assertion"),
    "NO_TAG_CHECK_DATA": ("three laps of a ring of one", "assertion"),
    "COMPLETION_TAG_FIRST": ("three laps of a ring of one", "assertion"),
    "NO_ROOM_CHECK": ("more requests than ring slots", "assertion|invalid end state"),
    "NO_REFRESH_LOCK": ("three warps", "assertion"),
    "SLOTS_RETURNED_BEFORE_READ": ("more requests than ring slots", "assertion|invalid end state"),
    "TICKET_KEPT_WITHOUT_SLOT": ("three laps of a ring of one", "invalid end state"),
    "NO_OWNER_CHECK": ("stale handles, two waits for one request", "assertion"),
    "OWNER_CLEARED_ON_RELEASE": ("three laps of a ring of one", "assertion"),
    "PAYLOAD_NEVER_FORGOTTEN": ("tags that repeat, a ring of two", "assertion"),
    "PAYLOAD_NOT_ALWAYS_READ": ("three laps of a ring of one", "assertion|invalid end state"),
}
_NONE = SimpleNamespace(params={})  # of a test that has none
#: With --full only: each is a program of its own. Of each kind of check one is among the others.
FULL_ONLY = {
    "tags that repeat, a ring of two", "NO_TAG_CHECK_OPERATION", "NO_TAG_CHECK_STATUS",
    "NO_TAG_CHECK_DATA", "SLOTS_RETURNED_BEFORE_READ", "OWNER_CLEARED_ON_RELEASE",
    "PAYLOAD_NEVER_FORGOTTEN", "PAYLOAD_NOT_ALWAYS_READ",
}  # fmt: skip


def tiers(names: Iterable[str]) -> list[Any]:
    """Parameters of a test."""
    full = dict.fromkeys(FULL_ONLY, pytest.mark.full)
    return [pytest.param(name, marks=full.get(name, ())) for name in names]


def check(defines: list[str], where: Path) -> str:
    """Visits every state of the model: what the checker has to say at its end."""
    return model_checker.search(model_checker.build(MODEL, defines, where, "-DCOLLAPSE"), where)


@pytest.fixture(scope="module")
def checked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[str]]]:
    """What the checker says, by bounds and by mutation, of those that are asked for."""
    own = [item for item in request.session.items if item.path == request.path]
    asked = {name for item in own for name in getattr(item, "callspec", _NONE).params.values()}
    wanted = dict(BOUNDS)
    wanted |= {name: [*BOUNDS[bounds], name] for name, (bounds, _) in MUTATIONS.items()}
    with model_checker.searches() as pool:
        yield {
            name: pool.submit(check, defines, tmp_path_factory.mktemp("model"))
            for name, defines in wanted.items()
            if name in asked
        }


@pytest.mark.parametrize("bounds", tiers(BOUNDS))
def test_protocol_holds(bounds: str, checked: dict[str, Future[str]]) -> None:
    model_checker.holds(checked[bounds].result(), least=10_000)


@pytest.mark.parametrize("mutation", tiers(MUTATIONS))
def test_what_is_taken_away_is_missed(mutation: str, checked: dict[str, Future[str]]) -> None:
    _bounds, shows = MUTATIONS[mutation]
    model_checker.misses(checked[mutation].result(), shows)


def test_every_mutation_of_the_model_is_tested() -> None:
    known = set(re.findall(r"#if(?:n?def) (\w+)", MODEL.read_text()))
    settings = {"PRODUCERS", "CALLS", "RING", "REQUESTS", "ABORT", "STRAY_WAITS", "WRAP"}
    assert known - settings == set(MUTATIONS)
