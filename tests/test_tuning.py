"""``gmpi tune``: how timings become choices, how they are kept, who reads them. No GPU needed."""

from __future__ import annotations

import json
import timeit
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import launcher
import pytest
from click.testing import CliRunner

from gmpi import config
from gmpi.__main__ import main
from gmpi.commands import tune, tune_packing
from gmpi.packing.copies import Shape, is_quicker
from gmpi.tuning import choices, kept

KEY = kept.Key("NVIDIA X", "13.0", "0.1.0")
DECISION_US = 0.3


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("GMPI_CACHE_DIR", str(tmp_path))
    kept.read.cache_clear()
    yield tmp_path
    kept.read.cache_clear()


def kernel_us(nbytes: int, rows: int) -> float:
    return 7.4 + nbytes / 2e6


def copy_us(nbytes: int, rows: int) -> float:
    return 3.9 + 0.0005 * rows + nbytes / 1.5e6


TIMINGS = {case: (kernel_us(*case), copy_us(*case)) for case in tune_packing.cases()}


def test_a_copy_is_taken_where_it_was_quicker() -> None:
    limits = choices.copy_rows(TIMINGS)
    assert choices.takes_copy(limits, 1 << 16, 1)
    assert choices.takes_copy(limits, 1 << 16, 4096)
    assert not choices.takes_copy(limits, 1 << 18, 1 << 15)
    assert not choices.takes_copy(limits, 1 << 26, 1), "its bytes take longer"
    assert not choices.takes_copy(limits, 1 << 40, 1), "larger than what was measured"
    assert choices.good_share(TIMINGS, limits) >= 0.95


def test_choices_are_near_the_best_between_the_sizes_that_were_measured_too() -> None:
    limits = choices.copy_rows(TIMINGS)
    between = [(3 * n // 2, 3 * rows) for n, rows in tune_packing.cases() if 24 * rows < n]
    timings = {case: (kernel_us(*case), copy_us(*case)) for case in between}
    assert len(timings) > 30 and choices.good_share(timings, limits) >= 0.95


def test_where_kernels_always_win_none_is_taken() -> None:
    limits = choices.copy_rows(dict.fromkeys(TIMINGS, (1.0, 2.0)))
    assert not any(choices.takes_copy(limits, *case) for case in TIMINGS)
    assert choices.copy_rows({}) == []
    shape = Shape(0, 1024, 2048, 16, 32768, 1)
    assert is_quicker(shape) and not is_quicker(shape, limits)


def test_a_decision_takes_no_time() -> None:
    limits = choices.copy_rows(TIMINGS)
    best = min(
        timeit.repeat(lambda: choices.takes_copy(limits, 65536, 64), number=10_000, repeat=9)
    )
    assert best / 10_000 * 1e6 <= DECISION_US * launcher.TIME_FACTOR


def test_a_setting_changes_only_where_it_is_worth_it() -> None:
    times = {4096: {8: 1.0, 64: 2.0}, 8192: {8: 1.01, 64: 2.02}}
    assert choices.best(times, 8192) == 8192
    assert choices.best({**times, 4096: {8: 0.5, 64: 2.0}}, 8192) == 4096
    assert choices.best({4096: {8: 0.5}}, 8192) == 8192, "the default was not measured"
    assert choices.best({}, 8192) == 8192


def fake_run(trials: list[tune.Trial]) -> list[tune.Times]:
    """Chunks of 1 MiB are best, and the direct road is no good."""
    found = []
    for settings, sizes, roads in trials:
        slow = abs(settings.get("chunk_bytes", 524288).bit_length() - 21) + 1
        us = {"proxied": 1.0 * slow, "direct": 9.0}
        found.append({road: dict.fromkeys(sizes, us[road]) for road in roads})
    return found


def test_what_is_chosen_from_runs_of_two_ranks() -> None:
    settings, measured = tune.chosen(fake_run)
    assert settings == {"chunk_bytes": 1 << 20, "road": "proxied"}
    assert set(measured) == {"eager_bytes", "chunk_bytes", "road"}
    assert set(settings) <= set(kept.TUNABLE)
    assert {name: getattr(config.Config(), name) for name in tune.DEFAULTS} == tune.DEFAULTS
    for name, (values, _) in tune.TRIED.items():
        for value in values:
            config.load(**{name: value})


def test_what_is_kept_is_found_again() -> None:
    tuned = kept.Tuned({"chunk_bytes": 1 << 20}, (1, 2, 4))
    assert kept.read(KEY) == kept.NOTHING
    path = kept.write(KEY, tuned, {"good_share": 1.0})
    assert kept.read(KEY) == tuned
    for other in (KEY._replace(gpu="Y"), KEY._replace(driver="12"), KEY._replace(gmpi="2")):
        assert kept.read(other) == kept.NOTHING
    kept.read.cache_clear()
    path.chmod(0o666)
    with pytest.warns(RuntimeWarning, match="is not used: others may write it"):
        assert kept.read(KEY) == kept.NOTHING


@pytest.mark.parametrize(
    "change", [{"format": 0}, {"gpu": "Y"}, {"settings": {"engine": "mpi4py"}}, {"copy_rows": "x"}]
)
def test_a_damaged_file_is_not_used(change: dict[str, Any]) -> None:
    path = kept.write(KEY, kept.NOTHING, {})
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.warns(RuntimeWarning, match="is not used: it is damaged .* makes it again"):
        assert kept.read(KEY) == kept.NOTHING
    kept.read.cache_clear()
    path.write_text("{")
    with pytest.warns(RuntimeWarning, match="is not used: it is damaged"):
        assert kept.read(KEY) == kept.NOTHING


def test_what_the_user_says_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned = {"chunk_bytes": 1 << 20, "eager_bytes": 4096, "road": "proxied"}
    monkeypatch.setenv("GMPI_EAGER_BYTES", "512")
    found = config.load(tuned, road="direct")
    assert (found.chunk_bytes, found.eager_bytes, found.road) == (1 << 20, 512, "direct")
    origins = config.origins(found, tuned, road="direct")
    names = ("chunk_bytes", "eager_bytes", "road", "ring_slots")
    assert [origins[n] for n in names] == ["gmpi tune", "environment", "argument", "default"]


class Ranks:
    def __init__(self, rank: int, told: dict[str, Any] | None = None) -> None:
        self.rank, self.told = rank, told

    def Get_rank(self) -> int:
        return self.rank

    def bcast(self, mine: dict[str, Any], root: int) -> dict[str, Any]:
        assert root == 0
        return mine if self.rank == 0 else self.told or {}


def test_rank_0_decides_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    kept.write(KEY, kept.Tuned({"chunk_bytes": 1 << 20}, ()), {})
    monkeypatch.setattr(kept, "here", lambda: KEY)
    assert kept.settings_of_rank_0(Ranks(0), gpu=True) == {"chunk_bytes": 1 << 20}
    assert kept.settings_of_rank_0(Ranks(0), gpu=False) == {}
    told = {"chunk_bytes": 1 << 18}
    assert kept.settings_of_rank_0(Ranks(1, told), gpu=True) == told


def test_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = CliRunner()
    done = runner.invoke(main, ["tune"])
    assert done.exit_code == 1 and "needs a GPU: the simulator's times mean nothing" in done.output
    monkeypatch.setattr(kept, "here", lambda: KEY)
    done = runner.invoke(main, ["tune", "--show"])
    assert done.exit_code == 0 and "nothing is kept for NVIDIA X" in done.output
    monkeypatch.setattr(tune, "two_ranks", lambda _, trials: fake_run(trials))
    monkeypatch.setattr(tune_packing, "timings", lambda: iter(TIMINGS.items()))
    done = runner.invoke(main, ["tune", "--json"])
    found = json.loads(done.stdout)
    assert done.exit_code == 0 and found["kept"]
    assert found["settings"] == {"chunk_bytes": 1 << 20, "road": "proxied"}
    assert found["measured"]["good_share"] >= 0.95 and len(found["copy_rows"]) > 20
    text = runner.invoke(main, ["tune", "--show"]).output
    assert "chunk_bytes" in text and "of cases" in text
    assert runner.invoke(main, ["tune", "--forget"]).exit_code == 0
    assert kept.path_of(KEY).exists() is False


@pytest.mark.parametrize("printed", ["{}", "\\033[0m{}\\n\\033[0m\\033[0m\\n", "a warning\\n{}\\n"])
def test_codes_for_terminals_do_not_hide_the_figures(tmp_path: Path, printed: str) -> None:
    """Those of Numba's warnings came behind them on a GPU machine."""
    figures = [{"direct": {"8": 1.7}, "proxied": {"8": 4.0}}]
    mpiexec = tmp_path / "mpiexec"
    text = printed.format(json.dumps(figures))
    mpiexec.write_text(f"#!/bin/sh\nprintf '%b' '{text}'\n")
    mpiexec.chmod(0o755)
    trial = tune.Trial({}, (8,), ("direct", "proxied"))
    assert tune.two_ranks(str(mpiexec), [trial]) == [{"direct": {8: 1.7}, "proxied": {8: 4.0}}]


@pytest.mark.mpi
@pytest.mark.mpich
def test_two_ranks_measure() -> None:
    """In the simulator the figures mean nothing, and all is right."""
    trials = [
        tune.Trial({"chunk_bytes": 16384}, (8, 40_000)),
        tune.Trial({"eager_bytes": 2048}, (4096,), ("proxied", "direct")),
    ]
    first, second = tune.two_ranks(None, trials)
    assert set(first) == {"proxied"} and set(first["proxied"]) == {8, 40_000}
    assert set(second) == {"proxied", "direct"} and set(second["direct"]) == {4096}
    times = [us for each in (first, second) for by_size in each.values() for us in by_size.values()]
    assert all(us > 0 for us in times)
