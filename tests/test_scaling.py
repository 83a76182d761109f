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

from gmpi.contract import wire
from gmpi.lifetime import opening

BENCHMARKS, GPU = launcher.ROOT / "benchmarks", launcher.ROOT / "tests" / "gpu"
sys.path[:0] = [str(BENCHMARKS), str(GPU)]

import _scaling_checks  # noqa: E402
import _scaling_loggp  # noqa: E402
import _scaling_measured as measured  # noqa: E402
import scaling  # noqa: E402
import scaling_figures  # noqa: E402
import scaling_table  # noqa: E402


def test_predictions_are_near_what_was_measured() -> None:
    assert scaling.off() == []
    found = scaling.all_checks()
    assert {check.where for check in found} >= {
        "1 GPU", "2 GPUs", "4 GPUs", "1 + 1 ranks, MPICH", "1 + 1 ranks, Open MPI",
        *(f"{n} ranks, {mpi}" for n in ("2 + 1", "2 + 2") for mpi in ("MPICH", "Open MPI")),
    }  # fmt: skip
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


def test_parameters_are_those_that_the_times_were_made_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = _scaling_loggp.LogGP(2.0, 1.0, 1.5, 3.0, 0.001, 0.0005)
    us = {}
    for n in (8, 1024, 16384):
        alone = us[f"alone {n}"] = 2 * made.one_way(n)
        us[f"in a row {n}"] = alone + 15 * made.next(n)
        us[f"pause {n}"], us[f"receive {n}"] = 2 * alone, made.receive
        us[f"apart {n}"] = alone + 15 * (made.send + 2 * alone)
    monkeypatch.setattr(_scaling_loggp, "load", lambda _: {"rows": [{"us": us}]})
    assert _scaling_loggp.Measured("mpich").long() == pytest.approx(made)
    assert made.rate(own=1.0) == pytest.approx(1 / 4.008)


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
    same = (None, wire.VERSION, {"ring_slots": 64})
    ranks = Ranks(same, same)
    assert opening.agree(ranks, None, {"ring_slots": 64}) is None  # type: ignore[arg-type]
    assert ranks.told == 0


def test_ranks_that_differ_are_told_where() -> None:
    ranks = Ranks((None, wire.VERSION, {"ring_slots": 128}))
    failure = opening.agree(ranks, None, {"ring_slots": 64})  # type: ignore[arg-type]
    assert ranks.told == 1 and "ring_slots is 64 on rank 0 and 128 on rank 1" in str(failure)
    ranks = Ranks(("ConfigError: no", wire.VERSION, {}))
    failure = opening.agree(ranks, None, {"ring_slots": 64})  # type: ignore[arg-type]
    assert "rank 1 could not open the context: ConfigError: no" in str(failure)


def write(path: Path, data: object) -> None:
    path.write_text(json.dumps(data))


def made(directory: Path) -> Path:
    """What scaling.sh's programs leave there."""
    runs = directory / "runs"
    (runs / "applications-1").mkdir(parents=True)
    (runs / "applications-4").mkdir()
    pairs = [
        {"ranks": [0, k], "road": "direct", "size": 8, "p50": us} for k, us in ((1, 2), (2, 3))
    ]
    pairs = [{**row, "turn": turn} for turn in range(2) for row in pairs]
    pairs[0]["p50"] = 9  # only in one turn
    write(
        runs / "all_ranks-4.json",
        {"pairs": pairs, "rates": [{"road": "direct", "per_second": 2e6}]},
    )
    row = {"call": "Alltoall", "size": 64 << 20, "threads": 1024, "registered": True, "gbps": 100.0}
    row |= {"blocks": 132, "direct": {"p50": 671.0}}
    write(runs / "collectives_long-4.json", {"rows": [row]})
    row = {"call": "Allreduce", "size": 8, "threads": 256, "blocks": 1, "direct": {"p50": 2.4}}
    write(runs / "collectives-4.json", {"rows": [row], "machine": {"gpu_id": "theirs"}})
    for ranks, small, large in ((1, 50.0, 100.0), (4, 20.0, 40.0)):
        row = {"decomposition": f"{ranks}x1x1", "ranks": ranks, "gosa": 1.0}
        sizes = (("4x5x6", small), ("16x5x6", large))
        rows = [{**row, "size": size, "us": us} for size, us in sizes]
        write(runs / f"himeno_tuned-{ranks}-{ranks},1,1.json", {"rows": rows})
        teps = f"scale 18 on 1 ranks, 8 trees: {ranks}e9 TEPS, right"
        (runs / f"applications-{ranks}" / "bfs,18,gmpi,0").write_text(teps)
        halo = f"messages: {100 + ranks}.0 us an exchange, 1.0 GB/s a rank: right"
        (runs / f"applications-{ranks}" / "halo26,256 messages,gmpi,0").write_text(halo)
    return runs


def test_the_table_of_a_run_says_what_meets_its_bar(tmp_path: Path) -> None:
    runs = made(tmp_path)
    assert scaling_table.main(str(tmp_path), str(runs)) == 0
    found = json.loads((tmp_path / "scaling.json").read_text())
    assert found["machine"] == {"gpu_id": "theirs"}  # not the one that makes the table
    by_size = {(row["size"], row["ranks"]): row for row in found["himeno"]}
    assert by_size["16x5x6", 4]["strong"] == 100 / 4 / 40
    assert by_size["16x5x6", 4]["weak"] == 50 / 40 and "weak" not in by_size["4x5x6", 4]
    by_name = {row["name"]: row for row in found["applications"] if row["ranks"] == 4}
    assert by_name["bfs"]["efficiency"] == 1.0 and by_name["halo26"]["efficiency"] == 101 / 104
    for name in scaling_table.MEASURED:
        found[name] = {int(n): run for n, run in found[name].items()}
    rows = {row[0]: row[1:] for row in scaling_table.bars(found)}
    assert rows["4 ranks, 8 B, direct: slowest pair / quickest"] == ["1.50", "<= 1.1", False]
    assert rows["4 ranks, Allreduce of 8 B, 256 threads, us"] == ["2.40", "<= 2.5", True]
    assert rows["4 ranks, Himeno 16x5x6 cut 4x1x1, weak"] == ["1.25", ">= 0.95", True]
    link = "4 ranks, Alltoall of 64 MiB, 1024 threads, registered: of the link"
    assert rows[link] == ["0.67", ">= 0.8", False]
    (runs / "problems").write_text("verify on 8: failed\n")
    assert scaling_table.main(str(tmp_path), str(runs)) == 1


def test_each_measurement_has_a_picture(tmp_path: Path) -> None:
    scaling_table.main(str(tmp_path), str(made(tmp_path)))
    assert scaling_figures.main(str(tmp_path / "scaling.json"), str(tmp_path)) == 0
    names = {path.stem.removeprefix("scaling-") for path in tmp_path.glob("*.svg")}
    assert names == PICTURES
    assert "bfs, 18" in (tmp_path / "scaling-applications.svg").read_text()


def test_figures_of_a_later_run_replace_others_and_are_marked() -> None:
    def run(**p50: float) -> dict[str, Any]:
        rows = [
            {"call": call, "size": 8, "threads": 256, "blocks": 1, "direct": {"p50": us}}
            for call, us in p50.items()
        ]
        pair = {"ranks": [0, 1], "road": "direct", "size": 8, "p50": p50["Bcast"]}
        return {
            "all_ranks": {"4": {"pairs": [pair], "rates": []}},
            "collectives": {"4": {"rows": rows}},
        }

    files = [run(Allreduce=2.6, Bcast=3.0), run(Bcast=4.0)]
    cells = [[c.strip() for c in line.split("|")] for line in measured.four(files).splitlines()]
    shown = {row[1]: row[4:7] for row in cells[2:]}
    assert shown["Allreduce of 8 B, a block of 256 threads, direct, us"] == [
        "2.60",
        "≤ 2.5",
        "**no**",
    ]
    assert shown["Bcast of 8 B, a block of 256 threads, direct, us"][0] == "4.00²"
    assert [row[4] for row in cells if "one way" in row[1]] == ["3.00", "4.00²"]

    machine = {"gpu": ["H200"] * 4, "cores": 64, "mpi": "MPI", "commit": "abc"}
    text = measured.sources(
        [{"name": f"{n}.json", "machine": {**machine, "gpu_id": n}} for n in ("one", "two")]
    )
    first, second, _ = text.splitlines()
    assert first.startswith("* [`one.json`]") and second.startswith("* Marked ²: [`two.json`]")
    assert [line.endswith("another machine") for line in (first, second)] == [False, True]

    row = {"program": "himeno_tuned", "gosa": 1.0}
    one = {**row, "size": "64x64x128", "decomposition": "1x1x1", "ranks": 1, "us": 10.0}
    two = {**row, "size": "64x64x128", "decomposition": "2x1x1", "ranks": 2}
    found = measured.himeno(
        [{"himeno": [one, {**two, "us": 9.0}]}, {"himeno": [{**two, "us": 5.0}]}]
    )
    assert [(r["strong"], r["file"]) for r in found] == [(1.0, 0), (1.0, 1)]


PICTURES = {
    "pairs", "rates", "collectives", "himeno-strong", "himeno-weak", "applications",
}  # fmt: skip


def test_scaling_sh_runs_all_that_is_to_be_measured(tmp_path: Path) -> None:
    env = {**os.environ, "LIST": "1", "GPUS": "8"}
    command = [str(GPU / "scaling.sh"), str(tmp_path / "out")]
    text = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    lines = [line.split(" ", 3) for line in text.splitlines()]
    programs: dict[str, set[int]] = {}
    for _, ranks, program, _ in lines:
        path = launcher.ROOT / program
        assert path.exists(), program
        name = path.stem if path.stem != "cases" else ""
        programs.setdefault(name, set()).add(int(ranks))
    wanted = {"random_programs", "himeno", "all_ranks", "collectives", "himeno_tuned"}
    assert set(programs) == wanted | {"himeno_cuda_mpi", ""}
    assert all(ranks == {1, 2, 4, 8} for ranks in programs.values())
    assert [int(ranks) for key, ranks, *_ in lines if key == "collectives_long"] == [2, 4, 8]
    for name in ("halo26", "bfs", "spin_glass"):
        of = [int(ranks) for key, ranks, *_ in lines if key == name]
        assert of == [1, 2, 4, 8] and f" {name},gmpi examples/{name}.py " in text, name
    for cut in ("8,1,1", "4,2,1", "2,2,2"):
        for program in ("himeno_tuned", "himeno_cuda_mpi"):
            assert f"{program},{cut} 8 " in text
    assert "512,512,1024 128,64,128 " in text  # XL strong; then each rank has S
    assert not (tmp_path / "out").exists()


@pytest.mark.full
@pytest.mark.mpi
def test_all_pairs_of_three_ranks(tmp_path: Path) -> None:
    results = tmp_path / "all_ranks.json"
    status, text = launcher.mpi(3, str(BENCHMARKS / "all_ranks.py"), "--json", str(results))
    assert status == 0 and "payloads checked: all right" in text, text
    found = json.loads(results.read_text())
    assert len(found["pairs"]) == 2 * 3 * 2 * 2 and len(found["rates"]) == 2
    assert all(row["p50"] > 0 for row in found["pairs"])


@pytest.mark.full
@pytest.mark.mpi
@pytest.mark.mpich
def test_scaling_sh_in_the_simulator(tmp_path: Path) -> None:
    """One rank takes every step of the script."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {**os.environ, "PATH": path, "SIMULATOR": "1", "LIMIT": "200", "BUDGET": "900"}
    command = [str(GPU / "scaling.sh"), str(tmp_path), "1", "2"]
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "scaling.json").read_text())
    assert found["problems"] == [] and set(found["all_ranks"]) == {"1", "2"}
    assert found["all_ranks"]["2"]["pairs"] and found["collectives_long"]["2"]["rows"]
    assert {row["name"] for row in found["applications"] if row["ranks"] == 2} == {
        "halo26", "bfs", "spin_glass",
    }  # fmt: skip
    assert any("weak" in row for row in found["himeno"] if row["ranks"] == 2)
    assert {path.stem.removeprefix("scaling-") for path in tmp_path.glob("*.svg")} == PICTURES
