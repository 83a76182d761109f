"""What becomes of Himeno's results: scaling, tables, figures, the page. No rank is started."""

from __future__ import annotations

import json
import re
from pathlib import Path

import launcher
import pytest

HIMENO = launcher.ROOT / "benchmarks" / "himeno"

MACHINE = {
    "gpu": ["GPU, 1"], "cpu": "CPU", "cores": 2, "mpi": "MPI", "python": "3", "versions": {},
    "commit": "none",
}  # fmt: skip


def write_rows(path: Path, program: str, *rows: dict[str, object]) -> None:
    about = {"machine": MACHINE, "benchmark": "himeno", "program": program, "where": "1 GPU, X"}
    path.write_text(json.dumps({**about, "rows": rows}))


def measured(name: str, cut: str, us: float, **more: object) -> dict[str, object]:
    grid = {"M": "128x128x256"}.get(name, name.replace(",", "x"))
    ranks = int(cut[0])
    return {"name": name, "size": grid, "decomposition": cut, "ranks": ranks, "us": us, **more}


def page(tmp_path: Path) -> str:
    """The page with tables from the files in ``tmp_path``."""
    copy = tmp_path / "himeno.md"
    copy.write_text((HIMENO / "README.md").read_text())
    table = launcher.ROOT / "docs" / "measurements" / "himeno_table.py"
    options = ["--page", str(copy), "--directory", str(tmp_path)]
    status, text = launcher.python(str(table), *options)
    assert status == 0, text
    return copy.read_text()


def test_scaling_is_against_one_rank_with_the_same_grid_or_the_same_part(tmp_path: Path) -> None:
    write_rows(tmp_path / "scaling-1.json", "GMPI", measured("M", "1x1x1", 60.0))
    strong, weak = measured("M", "2x1x1", 40.0), measured("256,128,256", "2x1x1", 75.0)
    write_rows(tmp_path / "scaling-2.json", "GMPI", strong, weak)
    status, text = launcher.python(str(HIMENO / "_himeno_report.py"), str(tmp_path))
    assert status == 0, text
    assert re.search(r"strong +GMPI +M +2 +40.000 +0.750", text), text
    assert re.search(r"weak +GMPI +M +2 +75.000 +0.800", text), text
    assert (tmp_path / "himeno-scaling.png").read_bytes().startswith(b"\x89PNG")
    assert re.search(r"\| weak +\| M +\| GMPI +\| 2 +\| 1 GPU +\| 75.0 +\| 0.80 ", page(tmp_path))


def test_times_and_stamps_of_a_number_of_messages_are_one_row(tmp_path: Path) -> None:
    row = measured("S", "2x1x1", 20.5, communicating=2, messages=4)
    write_rows(tmp_path / "messages.json", "GMPI", row)
    stamps = {"boundary": 1.5, "halo": 15.0, "exposed": 18.0}
    stamped = {**row, "us": 22.5, "breakdown": stamps}  # the stamps cost time
    write_rows(tmp_path / "messages-breakdown.json", "GMPI", stamped)
    found = re.search(r"\| S +\| 2 +\| 2 +\| 4 +\| (.*) \|", page(tmp_path))
    assert found and re.split(r"[ |]+", found[1].strip()) == ["20.5", "1.5", "15.0", "18.0"]


NCU = """==PROF== Connected to process 1
==PROF== Profiling "launched": 0%....100% - 2 passes
"ID","Process ID","Kernel Name","Metric Name","Metric Packet","Metric Value"
"""


def test_ncu_output_becomes_a_table(tmp_path: Path) -> None:
    lines = NCU
    for number, ns in enumerate(("9,000", "1,000", "20,000")):
        values = {
            "launch__registers_per_thread": "64",
            "gpu__time_duration.sum": ns,
            "dram__bytes_read.sum": "3,000,000",
            "dram__bytes_write.sum": "1,000,000",
            "lts__t_sector_hit_rate.pct": "n/a",
        }
        for name, value in values.items():
            lines += f'"{number}","1","k","{name}","u","{value}"\n'
    (tmp_path / "ncu").mkdir()
    profile = tmp_path / "ncu" / "ncu.csv"
    profile.write_text(lines + "==PROF== Disconnected\n")
    about = {"size": "S", "points": 1000, "plan": "2x256"}
    runs = [
        {**about, "kind": "launched", "iterations": 1},
        {**about, "kind": "launched", "iterations": 1},
        {**about, "kind": "persistent", "iterations": 20},
    ]
    known = {"copy_bytes_per_s": 4e12, "latency_ns": 800.0, "multiprocessors": 100}
    path = tmp_path / "ncu" / "runs.json"
    path.write_text(json.dumps({"machine": MACHINE, **known, "rows": runs}))
    reader = str(launcher.ROOT / "tests" / "gpu" / "himeno_ncu.py")
    status, text = launcher.python(reader, str(tmp_path))
    assert status == 0, text
    launched, persistent = json.loads((tmp_path / "himeno-ncu.json").read_text())["rows"]
    assert launched["us"] == persistent["us"] == 1.0  # of the second launch; of one iteration
    assert launched["TB_per_s"] == pytest.approx(4.0) and launched["of_copy"] == pytest.approx(1.0)
    assert persistent["bytes_per_point"] == 200.0
    assert launched["in_flight_KiB"] == pytest.approx(4e12 * 800e-9 / 100 / 1024)
    assert "l2_hit_percent" not in launched
    assert "### The sweep in ncu" in page(tmp_path)

    path.write_text(json.dumps({"machine": MACHINE, **known, "rows": runs[1:]}))
    status, text = launcher.python(reader, str(tmp_path))
    assert status != 0 and "ncu has measured 3 kernels, of 2 that ran" in text
    profile.write_text("==ERROR== ERR_NVGPUCTRPERM\n")
    status, text = launcher.python(reader, str(tmp_path))
    assert status != 0 and "measured nothing; it says: ==ERROR== ERR_NVGPUCTRPERM" in text


def test_page_shows_the_figures_of_the_files(tmp_path: Path) -> None:
    table = launcher.ROOT / "docs" / "measurements" / "himeno_table.py"
    page = HIMENO / "README.md"
    status, text = launcher.python(str(table), "--check")
    assert status == 0, text
    stale = tmp_path / "himeno.md"
    stale.write_text(page.read_text().replace("same gosa", "same"))
    status, text = launcher.python(str(table), "--check", "--page", str(stale))
    assert status != 0 and "is out of date" in text


def test_the_example_stands_beside_the_other_programs(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    words = "cpu : {} sec.\nLoop executed for 100 times\nGosa : 2.0e-03\nMFLOPS measured : 5.0\n"
    for name, seconds in (("M-1", 0.0040), ("M-2", 0.0031), ("L-1", 0.0400)):
        (logs / name).write_text(words.format(seconds))
    rows = [measured(size, "2x1x1", us, gosa=2e-3) for size, us in (("M", 27.9), ("L", 240.0))]
    write_rows(tmp_path / "himeno-gmpi.json", "GMPI", *rows)
    program = [str(launcher.ROOT / "tests" / "gpu" / "himeno_example.py"), str(tmp_path), str(logs)]
    status, text = launcher.python(*program, "2")
    assert status == 1 and text.splitlines()[-1] == "too slow: L", text
    found = json.loads((tmp_path / "himeno-example.json").read_text())["rows"]
    assert {row["name"]: row["us"] for row in found} == pytest.approx({"M": 31.0, "L": 400.0})
    rows = [measured(size, "2x1x1", us, gosa=2e-3) for size, us in (("M", 27.9), ("L", 320.0))]
    write_rows(tmp_path / "himeno-gmpi.json", "GMPI", *rows)
    assert launcher.python(*program, "2")[0] == 0
    status, text = launcher.python(str(HIMENO / "_himeno_report.py"), str(tmp_path))
    assert status == 0, text
    assert "himeno/himeno-example.json" in page(tmp_path)
    (logs / "S-1").write_text("killed\n")
    status, text = launcher.python(*program, "2")
    assert status != 0 and "S-1: no result" in text, text
