"""Puts runs of ``examples/himeno.py`` beside those of the tuned and the conventional program.

    python3 tests/gpu/himeno_example.py DIRECTORY LOGS RANKS

LOGS has what the example printed, in files named SIZE-RUN. Writes ``himeno-example.json`` into
DIRECTORY, with the fastest run of each size, and prints the ratio to the other programs' times, as
far as ``himeno.sh compare`` has left them there. Fails where the ratio is below ``WANTED``.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from tabulate import tabulate

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "himeno"))

from _bench import machine
from _himeno_report import read

#: Time of the tuned program / time of the example.
WANTED = {"M": 0.75, "L": 0.75, "XL": 0.75}
_PATTERN = r"cpu : (\S+) sec.\nLoop executed for (\d+) times\nGosa : (\S+)\nMFLOPS measured : (\S+)"


class NoResult(ValueError):
    """A log without what the program prints at its end."""


def row_of(path: Path, ranks: int) -> dict[str, Any]:
    found = re.search(_PATTERN, path.read_text())
    if found is None:
        raise NoResult(f"{path.name}: no result")
    seconds, count, gosa, mflops = map(float, found.groups())
    return {
        "name": path.name.partition("-")[0],
        "ranks": ranks,
        "iterations": int(count),
        "us": seconds / count * 1e6,
        "gosa": gosa,
        "mflops": mflops,
    }


def best(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The fastest row of each size."""
    found: dict[str, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: float(row["us"])):
        found.setdefault(row["name"], row)
    return found


def compared(measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each size of the example: times of the three programs, ratios, gosa."""
    programs = {
        name: best([row for row in measured if row["program"] == name and "breakdown" not in row])
        for name in ("example", "GMPI")
    }
    programs["CUDA+MPI"] = best([row for row in measured if row["program"] == "CUDA+MPI"])
    table = []
    for size in sorted(programs["example"], key=["XS", "S", "M", "L", "XL"].index):
        rows = {name: found[size] for name, found in programs.items() if size in found}
        ours = rows["example"]
        row: dict[str, Any] = {"size": size, "ranks": ours["ranks"]}
        for name, other in rows.items():
            if other["ranks"] == ours["ranks"]:
                row[name] = other["us"]
                row[f"{name} / example"] = other["us"] / ours["us"]
                row[f"gosa of {name}"] = other["gosa"] / ours["gosa"] - 1
        row["wanted"] = WANTED.get(size)
        table.append(row)
    return table


def main() -> int:
    directory, logs, ranks = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    rows = best([row_of(path, ranks) for path in sorted(logs.iterdir())])
    about = machine()
    gpus = len(about["gpu"])
    results = {
        "machine": about,
        "benchmark": "himeno",
        "program": "example",
        "where": f"{min(gpus, ranks)} GPU{'s' if min(gpus, ranks) > 1 else ''}",
        "rows": list(rows.values()),
    }
    (directory / "himeno-example.json").write_text(json.dumps(results, indent=1) + "\n")
    table = compared(read(directory))
    print(tabulate(table, headers="keys", floatfmt=".3g"))
    slow = [r["size"] for r in table if r["wanted"] and r.get("GMPI / example", 1) < r["wanted"]]
    if slow:
        print(f"too slow: {', '.join(slow)}")
    return int(bool(slow))


if __name__ == "__main__":
    sys.exit(main())
