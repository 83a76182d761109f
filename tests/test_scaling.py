"""The model of docs/scaling.md holds, and what goes with it: agreeing by digests, scaling.sh."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import launcher
import numpy as np
import pytest
from mpi4py import MPI

from gmpi.lifetime import opening

BENCHMARKS, GPU = launcher.ROOT / "benchmarks", launcher.ROOT / "tests" / "gpu"
sys.path[:0] = [str(BENCHMARKS), str(GPU)]

import _scaling_checks  # noqa: E402
import scaling  # noqa: E402
import scaling_table  # noqa: E402


def test_predictions_are_near_what_was_measured() -> None:
    assert scaling.off() == []
    found = _scaling_checks.checks()
    assert {check.where for check in found} >= {"1 GPU", "2 GPUs", "2 + 2 ranks"}
    held = [check for check in found if not check.missed]
    assert len(held) > 0.8 * len(found)


def test_a_prediction_that_is_off_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    load = _scaling_checks.load

    def changed(name: str) -> dict[str, Any]:
        found = load(name)
        if name == "pingpong-2gpu":
            found["null_request"]["p50"] *= 2
        return found

    monkeypatch.setattr(_scaling_checks, "load", changed)
    assert any("2 GPUs: proxied, 8 B: 6.2" in line for line in scaling.off())


def test_the_page_is_up_to_date() -> None:
    status, text = launcher.python(str(BENCHMARKS / "scaling.py"), "--check")
    assert status == 0, text


def test_several_rings_are_bounded_by_the_lock() -> None:
    proxy = scaling.Proxy(message=1.0, hinted=0.5, own=0.25)
    assert proxy.per_us(1, locked=True) == 1.0
    assert proxy.per_us(4, locked=True) == pytest.approx(4 / 3)
    assert proxy.per_us(4, locked=False) == 4.0


class Ranks:
    """A communicator whose other ranks say what they are told to."""

    def __init__(self, *others: object) -> None:
        self.others, self.told = others, 0

    def Allreduce(self, _: object, words: np.ndarray, op: MPI.Op) -> None:
        assert op == MPI.MAX
        for other in self.others:
            words[:] = np.maximum(words, opening._digest(other))

    def allgather(self, mine: object) -> list[object]:
        self.told += 1
        return [mine, *self.others]


def test_ranks_that_agree_do_not_tell_each_other_their_settings() -> None:
    same = (None, opening.VERSION, {"ring_slots": 64})
    ranks = Ranks(same, same)
    assert opening.agree(ranks, None, {"ring_slots": 64}) is None  # type: ignore[arg-type]
    assert ranks.told == 0


def test_ranks_that_differ_are_told_where() -> None:
    ranks = Ranks((None, opening.VERSION, {"ring_slots": 128}))
    failure = opening.agree(ranks, None, {"ring_slots": 64})  # type: ignore[arg-type]
    assert ranks.told == 1 and "ring_slots is 64 on rank 0 and 128 on rank 1" in str(failure)
    ranks = Ranks(("ConfigError: no", opening.VERSION, {}))
    failure = opening.agree(ranks, None, {"ring_slots": 64})  # type: ignore[arg-type]
    assert "rank 1 could not open the context: ConfigError: no" in str(failure)


def write(path: Path, data: object) -> None:
    path.write_text(json.dumps(data))


def test_the_table_of_a_run_says_what_meets_its_bar(tmp_path: Path) -> None:
    runs, out = tmp_path / "runs", tmp_path / "out"
    runs.mkdir()
    out.mkdir()
    pairs = [
        {"ranks": [0, k], "road": "direct", "size": 8, "p50": us} for k, us in ((1, 2), (2, 3))
    ]
    write(runs / "all_ranks-4.json", {"pairs": pairs, "rates": []})
    row = {"call": "Allreduce", "size": 8, "threads": 256, "blocks": 1, "direct": {"p50": 2.4}}
    write(runs / "collectives-4.json", {"rows": [row]})
    for ranks, us in ((1, 100.0), (4, 40.0)):
        row = {"size": "M", "decomposition": "x", "ranks": ranks, "us": us, "gosa": 1.0}
        write(runs / f"himeno-{ranks}-{ranks},1,1.json", {"rows": [row]})
        write(runs / f"weak-{ranks}.json", {"rows": [{**row, "us": 99.0 + ranks}]})
    assert scaling_table.main(str(out), str(runs)) == 0
    found = json.loads((out / "scaling.json").read_text())
    assert [row["efficiency"] for row in found["himeno"]] == [1.0, 0.625]
    names = ("all_ranks", "collectives", "weak")
    by_ranks = {name: {int(n): run for n, run in found[name].items()} for name in names}
    by_name = {row[0]: row[1:] for row in scaling_table.bars(by_ranks)}
    assert by_name["4 ranks, 8 B, direct: slowest pair / quickest"] == ["1.50", "<= 1.1", False]
    assert by_name["4 ranks, Allreduce of 8 B, 256 threads, us"] == ["2.40", "<= 2.5", True]
    assert by_name["4 ranks, Himeno, weak scaling"] == ["0.97", ">= 0.95", True]
    (runs / "problems").write_text("verify on 8: failed\n")
    assert scaling_table.main(str(out), str(runs)) == 1


@pytest.mark.full
@pytest.mark.mpi
def test_all_pairs_of_three_ranks(tmp_path: Path) -> None:
    results = tmp_path / "all_ranks.json"
    status, text = launcher.mpi(3, str(BENCHMARKS / "all_ranks.py"), "--json", str(results))
    assert status == 0 and "payloads checked: all right" in text, text
    found = json.loads(results.read_text())
    assert len(found["pairs"]) == 3 * 2 * 2 and len(found["rates"]) == 2
    assert all(row["p50"] > 0 for row in [*found["pairs"], *found["collectives"]])


@pytest.mark.full
@pytest.mark.mpi
@pytest.mark.mpich
def test_scaling_sh_in_the_simulator(tmp_path: Path) -> None:
    """One rank takes every step of the script."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "SIMULATOR": "1", "LIMIT": "200"}
    command = [str(GPU / "scaling.sh"), str(tmp_path), "1", "2"]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "scaling.json").read_text())
    assert found["problems"] == [] and set(found["all_ranks"]) == {"1", "2"}
    assert found["all_ranks"]["2"]["pairs"] and found["weak"]["1"]["us"] > 0
