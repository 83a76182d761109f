"""What becomes of measurements: two trees beside each other (``tests/gpu/compare.sh``), what users
would pick instead (``peers.sh``), and rates that were measured several times."""

from __future__ import annotations

import json
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import launcher
import pytest

GPU = launcher.ROOT / "tests" / "gpu"
sys.path.append(str(GPU))

from compare_turns import Over, Turns  # noqa: E402


def run_of(us: float, rate: float, gosa: float = 1e-3) -> dict[str, Any]:
    names = ("records", "requests", "messages", "messages_no_any_tag")
    return {
        "machine": {"commit": "abc"},
        "where": "2 GPUs, X",
        "one_way_us": {"8": us, "65536": 10 * us},
        "allreduce_us": 2 * us,
        "rates": {name: [rate, 2 * rate, rate] for name in names},
        "himeno": {"S": {"us": 5 * us, "gosa": gosa}},
    }


def table(directory: Path, former: list[Any], new: list[Any]) -> tuple[int, str]:
    for path in directory.glob("*.json"):
        path.unlink()
    for name, runs in (("former", former), ("new", new)):
        for number, run in enumerate(runs):
            (directory / f"{name}-{number}.json").write_text(json.dumps(run))
    written = ["--json", str(directory / "compare.json")]
    return launcher.python(str(GPU / "compare_table.py"), str(directory), *written)


def test_himeno_on_the_direct_road_stands_beside_the_former_one(tmp_path: Path) -> None:
    former = [run_of(4.0, 1e6)] * 5
    new = [run_of(4.0, 1e6) | {"himeno_direct": {"S": {"us": 16.0, "gosa": 1e-3}}}] * 5
    status, text = table(tmp_path, former, new)
    assert status == 0 and re.search(r"S, an iteration by the direct road .* 1[.]250", text), text
    wrong = [run_of(4.0, 1e6) | {"himeno_direct": {"S": {"us": 16.0, "gosa": 2e-3}}}] * 5
    status, text = table(tmp_path, former, wrong)
    assert status == 1 and "Himeno S: gosa 0.002 and 0.001" in text, text


def test_a_tree_is_slower_when_times_grow_or_rates_fall(tmp_path: Path) -> None:
    same = [run_of(4.0 + 0.1 * k, 1e6) for k in range(5)]
    status, text = table(tmp_path, same, same)
    assert status == 0 and "all at least 0.97" in text, text
    assert re.search(r"8 B one way +us +4.20 \(4.00 to 4.40\) +4.20 \(4.00 to 4.40\) +1.000", text)
    found = json.loads((tmp_path / "compare.json").read_text())
    assert [row["ratio"] for row in found["figures"]] == [1.0] * 8 and not found["problems"]

    status, text = table(tmp_path, same, [run_of(1.05 * (4.0 + 0.1 * k), 1e6) for k in range(5)])
    assert status == 1 and re.search(r"64 KiB one way .* 0.952 +SLOWER", text), text
    assert re.search(r"messages +M/s .* 1.000 *\n", text), text

    status, text = table(tmp_path, same, [run_of(4.0 + 0.1 * k, 0.9e6) for k in range(5)])
    assert status == 1 and re.search(r"messages no any tag +M/s .* 0.900 +SLOWER", text), text
    assert re.search(r"Himeno S, an iteration +us .* 1.000 *\n", text), text


def test_too_few_runs_and_other_residuals_are_said(tmp_path: Path) -> None:
    same = [run_of(4.0, 1e6)] * 5
    status, text = table(tmp_path, same, same[:4])
    assert status == 1 and "4 runs of the new tree, not 5" in text, text
    status, text = table(tmp_path, same, [*same[:4], run_of(4.0, 1e6, 1.01e-3)])
    assert status == 1 and "Himeno S: gosa 0.00101 and 0.001" in text, text


PRINTED = """nvshmem 65536 3.5 3.65 3.7 4.0 3.4 9.0 450
WARN: nvshmem 8 is a line of its library
nvshmem 8 2.1 2.22 2.3 2.5 2.0 7.0 4500
"""


def test_what_peers_printed_becomes_rows_by_size(tmp_path: Path) -> None:
    first, second, target = (tmp_path / name for name in ("a.txt", "b.txt", "peers-2gpu.json"))
    first.write_text(PRINTED)
    second.write_text("device_pointers 8 30 33.5 34 40 29 90 1000\n")
    program = str(GPU / "baselines" / "peers.py")
    status, text = launcher.python(program, str(target), str(first), str(second))
    assert status == 0, text
    rows = json.loads(target.read_text())["rows"]
    assert [row["size"] for row in rows] == [8, 65536]
    assert rows[0]["nvshmem"]["p50"] == 2.22 and rows[0]["device_pointers"]["n"] == 1000
    assert set(rows[1]) == {"size", "nvshmem"}
    status, text = launcher.python(program, str(target), str(first))
    assert status == 1 and "nothing of device_pointers" in text


def test_runs_of_several_machines_are_put_together(tmp_path: Path) -> None:
    for k in range(3):
        rates = {"messages": {"per_s": 1e6 + k}, "records": [{"blocks": 16, "per_s": 1e8}]}
        about = {"machine": {"gpu_id": f"m{k % 2}"}, "engine": "compiled"}
        (tmp_path / f"rates-run-{k}.json").write_text(json.dumps({**about, **rates}))
    program = str(GPU / "rates_runs.py")
    one, both = str(tmp_path / "one.json"), str(tmp_path / "both.json")
    sources = [str(tmp_path / f"rates-run-{k}.json") for k in range(3)]
    status, text = launcher.python(program, one, *sources[:1])
    assert status == 0 and "1 runs on 1 machines" in text, text
    for _ in range(2):  # nothing twice
        status, text = launcher.python(program, both, one, *sources)
        assert status == 0 and "3 runs on 2 machines" in text, text
    runs = json.loads(Path(both).read_text())["runs"]
    assert runs[0]["per_s"] == {"messages": 1e6, "records_16": 1e8}


NCU = """==PROF== Connected
"ID","Kernel Name","Metric Name","Metric Packet","Metric Value"
"0","kernel","dram__bytes_read.sum","byte","805,000,000"
"0","kernel","dram__bytes_write.sum","byte","537,000,000"
"""


def test_unpacks_below_their_bar_and_wrong_bytes_are_said(tmp_path: Path) -> None:
    def rows(share: float, right: bool = True) -> dict[str, Any]:
        about = {"case": "8 B every 16 B", "right": True}
        found = [
            {**about, "variant": "as it is", "us": 300.0, "share": share},
            {**about, "variant": "T128 U1", "us": 280.0, "share": 1.1, "right": right},
            {**about, "variant": "pack", "us": 186.0, "share": None},
        ]
        return {"copy_us": 128.4, "rows": found}

    new, former, ncu = (tmp_path / name for name in ("new.json", "former.json", "ncu.csv"))
    ncu.write_text(NCU)
    program = [str(GPU / "unpack_table.py"), *map(str, (new, former, ncu))]
    new.write_text(json.dumps(rows(0.9)))
    former.write_text(json.dumps(rows(0.6)))
    status, text = launcher.python(*program)
    assert status == 0 and "below 0.85: none; wrong: none" in text, text
    assert re.search(r"300.0 \(0.60\) +300.0 \(0.90\) +T128 U1 280.0 \(1.10\) +805 \+ 537", text)
    assert json.loads(new.read_text())["rows"][0]["moved_mb"] == "805 + 537"
    new.write_text(json.dumps(rows(0.84, False)))
    status, text = launcher.python(*program)
    assert status == 1 and "below 0.85: 8 B every 16 B 0.84; wrong: 8 B every 16 B: T128 U1" in text


def take_turns(turns: Turns, rounds: int, took: list[str]) -> str:
    """Why there are no more turns, "" when there were all."""
    try:
        for number in range(rounds):
            turns.wait(number)
            took.append(f"{turns.name} {number}")
            turns.done()
    except Over as exc:
        return f"{exc.failed} {exc}"
    return ""


def test_jobs_take_turns_and_each_begins_as_often(tmp_path: Path) -> None:
    took: list[str] = []
    jobs = [Turns(tmp_path, name, ["a", "b"], float("inf")) for name in ("b", "a")]
    with ThreadPoolExecutor() as pool:
        ends = list(pool.map(lambda turns: take_turns(turns, 4, took), jobs))
    assert ends == ["", ""]
    assert took == ["a 0", "b 0", "a 1", "b 1", "b 2", "a 2", "a 3", "b 3"]


def test_no_job_waits_for_one_that_ended_or_hangs(tmp_path: Path) -> None:
    names, took = ["a", "b"], list[str]()
    b = Turns(tmp_path, "b", names, float("inf"), limit_s=0.2)
    (tmp_path / "turn").write_text("2")
    with pytest.raises(Over, match="turn 2 takes more than 0.2 s") as hangs:
        b.wait(1)
    assert hangs.value.failed
    (tmp_path / "ended-a").touch()
    assert take_turns(b, 1, took) == "True the job of a has ended before its last turn"
    (tmp_path / "turn").write_text("3")  # passed on before the end
    b.wait(1)


def test_no_turn_begins_without_time_for_it(tmp_path: Path) -> None:
    names, took = ["a", "b"], list[str]()
    a = Turns(tmp_path, "a", names, time.time() + 60)
    a.longest = 61
    (tmp_path / "turn").write_text("2")
    with pytest.raises(Over, match="no time for run 1 of a"):
        a.wait(1)
    b = Turns(tmp_path, "b", names, float("inf"))
    assert take_turns(b, 1, took) == "False no time for run 1 of a" and not took


@pytest.mark.full
@pytest.mark.mpich
@pytest.mark.mpi
def test_one_tree_is_checked_and_measured(tmp_path: Path) -> None:
    program, root = str(GPU / "compare_run.py"), str(launcher.ROOT)
    asked = ["--sizes", "8", "--repeat", "1", "--runs", "2", "--himeno"]
    status, text = launcher.mpi(2, program, root, str(tmp_path), *asked)
    assert status == 0 and "payloads" in text, text
    for run in range(2):
        found = json.loads((tmp_path / f"new-{run}.json").read_text())
        assert found["one_way_us"]["8"] > 0 and found["allreduce_us"] > 0
        assert {len(values) for values in found["rates"].values()} == {1}
        assert all(values[0] > 0 for values in found["rates"].values())
    assert (tmp_path / "turn").read_text() == "3"


@pytest.mark.mpich
@pytest.mark.mpi
def test_a_library_of_another_tree_is_not_measured(tmp_path: Path) -> None:
    (tmp_path / "benchmarks").symlink_to(launcher.ROOT / "benchmarks")
    places = [str(tmp_path), str(tmp_path)]
    status, text = launcher.mpi(2, str(GPU / "compare_run.py"), *places, "--himeno")
    assert status != 0 and f", not of {tmp_path}" in text, text
