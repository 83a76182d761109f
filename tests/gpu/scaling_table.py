"""Of scaling.sh: what its programs have written, in one file, and as a table.

python3 tests/gpu/scaling_table.py DIRECTORY RUNS

The bars are those of the project: pairs within 1.1 x of each other; Allreduce of a double within
2.5 us on 4 GPUs and 3 us on 8; weak scaling of Himeno at least 0.95; an Alltoall of 64 MiB a rank
at 0.8 of the link at least. Of the turns of a pair the quickest counts.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import _scaling_measured as measured
import applications_table
from _bench import machine
from tabulate import tabulate

MEASURED = ("all_ranks", "collectives", "collectives_long")
Found = dict[str, Any]


def read(runs: Path, name: str) -> dict[int, Found]:
    """By number of ranks."""
    paths = {path: re.fullmatch(rf"{name}-(\d+)\.json", path.name) for path in runs.iterdir()}
    return {int(m[1]): json.loads(path.read_text()) for path, m in paths.items() if m}


def machine_of(runs: Path) -> Found:
    """The machine that the programs ran on, as their files say; else this one."""
    for path in sorted(runs.glob("*.json")):
        run: Found = json.loads(path.read_text())
        if "machine" in run:
            return dict(run["machine"])
    return machine()


def himeno(runs: Path) -> list[Found]:
    """Each grid in each cut, with its efficiency."""
    rows: list[Found] = []
    keys = ("size", "decomposition", "ranks", "us", "gosa")
    for path in sorted(runs.glob("himeno_*.json")):
        run = json.loads(path.read_text())
        program = path.name.split("-")[0]
        rows += [{"program": program} | {key: row[key] for key in keys} for row in run["rows"]]
    measured.with_efficiency(rows)
    return rows


def applications(runs: Path) -> list[Found]:
    """Each case on each number of ranks, with its efficiency."""
    rows: list[Found] = []
    for directory in sorted(runs.glob("applications-*")):
        ranks = int(directory.name.split("-")[1])
        for (name, case), ways in applications_table.figures(directory).items():
            _, unit, more = applications_table.FIGURES[name]
            row = {"name": name, "case": case, "ranks": ranks, "unit": unit, "more": more}
            rows.append({**row, "value": ways["gmpi"][0]})
    measured.with_gain(rows)
    return rows


def bars(found: Found) -> list[list[Any]]:
    """What, value, bar, whether it is met; bar and met are empty where there is none."""
    rows: list[list[Any]] = []

    def add(what: str, value: float, bar: float | None, less: bool) -> None:
        met = "" if bar is None else (value <= bar if less else value >= bar)
        sign = "" if bar is None else f"{'<=' if less else '>='} {bar}"
        rows.append([what, f"{value:.2f}", sign, met])

    for ranks, run in sorted(found["all_ranks"].items()):
        for road, size in sorted({(p["road"], p["size"]) for p in run["pairs"]}):
            each = measured.of_pairs(run["pairs"], road, size).values()
            what = f"{ranks} ranks, {size} B, {road}: slowest pair / quickest"
            add(what, max(each) / min(each), measured.PAIRS, True)
    for ranks, run in sorted(found["collectives_long"].items()):
        for row in run["rows"]:
            if (row["call"], row["size"]) == ("Alltoall", measured.LONG):
                memory = "registered" if row["registered"] else "any memory"
                what = f"{ranks} ranks, Alltoall of 64 MiB, {row['threads']} threads, {memory}"
                share = row["gbps"] * (ranks - 1) / measured.LINK
                add(f"{what}: of the link", share, measured.ALLTOALL, False)
    for ranks, run in sorted(found["collectives"].items()):
        for row in run["rows"]:
            if (row["call"], row["size"]) == ("Allreduce", 8) and row["blocks"] == 1:
                what = f"{ranks} ranks, Allreduce of 8 B, {row['threads']} threads, us"
                add(what, row["direct"]["p50"], measured.ALLREDUCE.get(ranks), True)
    for row in found["himeno"]:
        if row["ranks"] > 1 and row["program"] == "himeno_tuned" and "weak" in row:
            what = f"{row['ranks']} ranks, Himeno {row['size']} cut {row['decomposition']}, weak"
            add(what, row["weak"], measured.WEAK, False)
    for row in found["applications"]:
        if row["ranks"] > 1 and "efficiency" in row:
            what = f"{row['ranks']} ranks, {row['name']} {row['case']}: efficiency"
            add(what, row["efficiency"], None, False)
    return rows


def main(directory: str, runs: str) -> int:
    where, out = Path(runs), Path(directory)
    found: Found = {name: read(where, name) for name in MEASURED}
    found["himeno"], found["applications"] = himeno(where), applications(where)
    problems = where / "problems"
    found["problems"] = problems.read_text().splitlines() if problems.exists() else []
    data = {"benchmark": "scaling", "machine": machine_of(where), **found}
    (out / "scaling.json").write_text(json.dumps(data, indent=1) + "\n")
    print(tabulate(bars(found), ("", "measured", "bar", "met"), disable_numparse=True))
    some = any(found[key] for key in ("all_ranks", "himeno", "applications"))
    return 1 if found["problems"] or not some else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
