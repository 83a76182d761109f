"""The copy commands of long messages, exhaustively at small bounds (``model/commands.pml``, spin).

A protocol whose steps and fences are all needed: with any one of them taken away, the model must
fail. What is taken away is a number in the environment, so a model is compiled once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import model_checker
import pytest

MODEL = Path(__file__).parent / "model" / "commands.pml"
_ONE_BUFFER = ["CHUNKS=2", "BUFFERS=1", "DELAYS"]  # each buffer is used again

#: Bounds at which every state is visited.
BOUNDS = {
    "one chunk, two blocks that receive": ["RECEIVE", "CHUNKS=1"],
    "two blocks in Waitall": ["RECEIVE", "CHUNKS=2", "WAYS=4"],
    "a receive and a helper": ["RECEIVE", "HELPERS=1", "WAYS=2", *_ONE_BUFFER],
    "a send, a receive and a helper": [
        "TURNS", "ROUNDS=2", "HELPERS=1", "RECEIVED=1", "WAYS=1", *_ONE_BUFFER
    ],
    "two receives, one of which fails, and a helper": [
        "RECEIVE", "FAILS", "ROUNDS=2", "HELPERS=1", "CHUNKS=2", "BUFFERS=1", "WAYS=1"
    ],
    "a receive whose block computes, and a helper": [
        "RECEIVE", "HELPERS=1", "WAYS=9", "ROUNDS=2", *_ONE_BUFFER
    ],
    "from the sender's buffers": ["SHARED", "SLOTS=2", "CHUNKS=1", "WAYS=1", "DELAYS"],
}  # fmt: skip

#: With --full only, for it takes twice as long as the others: what is taken away is looked for in
#: these bounds, too.
FULL = "one chunk, two blocks that receive"
_STUCK = "invalid end state"

#: What is taken away: (at which bounds it is found, how it shows).
MUTATIONS = {
    "CLAIM_WITHOUT_SWAP": ("two blocks in Waitall", "assertion"),
    "NO_OWNER_CHECK": ("a send, a receive and a helper", "assertion"),
    "NO_BASE_TAG": ("from the sender's buffers", "assertion"),
    "UNIT_TAG_FIRST": ("two blocks in Waitall", "assertion"),
    "UNIT_NOT_CLEARED": ("a receive and a helper", "assertion"),
    "COUNTED_BEFORE_COPY": ("a receive and a helper", "assertion"),
    "DONE_WITHOUT_COUNT": ("two blocks in Waitall", "assertion"),
    "COUNT_NOT_RESET": ("two blocks in Waitall", "assertion"),
    "ANSWERED_BEFORE_COPY": ("a receive and a helper", f"assertion|{_STUCK}"),
    "FREED_BEFORE_ANSWER": ("one chunk, two blocks that receive", "assertion"),
    "LAST_OF_MANY": ("two blocks in Waitall", "assertion"),
    "NO_READY_WORD": ("from the sender's buffers", "assertion"),
    "READY_BEFORE_COPY": ("from the sender's buffers", "assertion"),
    "BUFFER_FREE_TOO_SOON": ("a receive and a helper", "assertion"),
    "WAITALL_HELPS_NOBODY": ("two blocks in Waitall", _STUCK),
    "TICKET_LONG_BEFORE_SLOT": ("one chunk, two blocks that receive", "assertion"),
    "NO_RELEASE_BEFORE_ROW": ("a receive and a helper", f"assertion|{_STUCK}"),
    "NO_RELEASE_OF_CHUNK": ("a receive and a helper", "assertion"),
    "NO_RELEASE_BEFORE_READY": ("from the sender's buffers", "assertion"),
    "NO_ACQUIRE_OF_ORDER": ("a send, a receive and a helper", "assertion"),
    "NO_ACQUIRE_AT_END": ("a receive and a helper", "assertion"),
    "COUNTED_BEFORE_TICKET": ("two receives, one of which fails, and a helper", "assertion"),
    "COUNTED_AFTER_ANSWER": ("two receives, one of which fails, and a helper", "assertion"),
    "NEVER_OVERDUE": ("a receive whose block computes, and a helper", _STUCK),
    "SEND_ADDRESS_AFTER_RELEASE": ("a send, a receive and a helper", f"assertion|{_STUCK}"),
}


@pytest.fixture(scope="module")
def searched(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[str]]]:
    """What the checker says, by bounds and by mutation."""
    known = model_checker.mutations(MODEL)
    own = {item.name for item in request.session.items if item.path == request.path}
    wanted = [bounds for bounds in BOUNDS if f"test_protocol_holds[{bounds}]" in own]

    def search(bounds: str, mutation: int) -> str:
        where = tmp_path_factory.mktemp("trail")
        return model_checker.search(built[bounds].result(), where, mutation)

    with model_checker.searches() as pool:
        built = {
            bounds: pool.submit(
                model_checker.build, MODEL, defines, tmp_path_factory.mktemp("commands")
            )
            for bounds, defines in BOUNDS.items()
        }
        found = {b: pool.submit(search, b, 0) for b in wanted}
        for name, (bounds, _) in MUTATIONS.items():
            found[name] = pool.submit(search, bounds, known[name])
        yield found


@pytest.mark.parametrize(
    "bounds", [pytest.param(b, marks=pytest.mark.full) if b == FULL else b for b in BOUNDS]
)
def test_protocol_holds(bounds: str, searched: dict[str, Future[str]]) -> None:
    model_checker.holds(searched[bounds].result(), least=100_000)


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_what_is_taken_away_is_missed(mutation: str, searched: dict[str, Future[str]]) -> None:
    _bounds, shows = MUTATIONS[mutation]
    model_checker.misses(searched[mutation].result(), shows)


def test_every_mutation_of_the_model_is_tested() -> None:
    known = model_checker.mutations(MODEL)
    assert set(known) == set(MUTATIONS)
    assert sorted(known.values()) == list(range(1, len(known) + 1))
    used = "".join(part.read_text() for part in MODEL.parent.glob("commands_*.pml"))
    assert set(re.findall(r"IF\((\w+)\)", used)) == set(MUTATIONS)
