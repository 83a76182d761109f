"""Protocols, each exhaustively at small bounds (``model/*.pml``, spin). None of their steps and
fences is there for nothing: a model with any one of them taken away must fail.

What is taken away is a number in the environment, so a model is compiled once for each of its
bounds. The ring (``test_model.py``) and copy commands (``test_model_commands.py``) are searched by
several threads, since they take longest.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import model_checker
import pytest
from model_bounds import MODELS

FOLDER = Path(__file__).parent / "model"

Programs = Callable[[str, str], Path]


@pytest.fixture(scope="module")
def program_of(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """The program that searches a model at some bounds, compiled when it is first asked for."""
    model_checker.need_tools()

    @cache
    def built(model: str, bounds: str) -> Path:
        defines, _, options, _ = MODELS[model].bounds[bounds]
        where = tmp_path_factory.mktemp(model)
        return model_checker.build(FOLDER / f"{model}.pml", defines, where, *options)

    return built


@pytest.mark.parametrize(
    ("model", "bounds"),
    [
        pytest.param(model, name, marks=[pytest.mark.full] if bounds.full else [])
        for model, (all_bounds, _) in MODELS.items()
        for name, bounds in all_bounds.items()
        if bounds.least
    ],
)
def test_protocol_holds(model: str, bounds: str, program_of: Programs, tmp_path: Path) -> None:
    found = model_checker.search(program_of(model, bounds), tmp_path)
    model_checker.holds(found, MODELS[model].bounds[bounds].least)


@pytest.mark.parametrize(
    ("model", "mutation"),
    [(model, mutation) for model, (_, mutations) in MODELS.items() for mutation in mutations],
)
def test_what_is_taken_away_is_missed(
    model: str, mutation: str, program_of: Programs, tmp_path: Path
) -> None:
    bounds, shows = MODELS[model].mutations[mutation]
    number = model_checker.mutations(FOLDER / f"{model}.pml")[mutation]
    found = model_checker.search(program_of(model, bounds), tmp_path, number)
    model_checker.misses(found, shows)


@pytest.mark.parametrize("model", MODELS)
def test_every_mutation_of_the_model_is_tested(model: str) -> None:
    known = model_checker.mutations(FOLDER / f"{model}.pml")
    assert set(known) == set(MODELS[model].mutations)


def test_every_model_is_searched() -> None:
    elsewhere = {"ring", "commands"}
    parts = {path.stem for path in FOLDER.glob("commands_*.pml")}
    assert {path.stem for path in FOLDER.glob("*.pml")} - parts == {*MODELS, *elsewhere}
