"""Of applications.sh: what the programs have printed, as JSON and as a table.

python3 tests/gpu/applications_table.py FILE RANKS DIRECTORY
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import _bench
from tabulate import tabulate

#: By application: the figure in its output, the unit, whether more is better.
FIGURES = {
    "mg": (r"([\d.]+) Mop/s", "Mop/s", True),
    "particles": (r"(?s).*\s([\d.e+]+) million a second", "million particle steps/s", True),
    "bfs": (r"([\d.e+]+) TEPS", "TEPS", True),
    "heat": (r"([\d.]+) us each", "us a step", False),
    "stencil9": (r"([\d.]+) us ", "us an iteration", False),
    "halo26": (r"([\d.]+) us an exchange", "us an exchange", False),
    "reshape": (r"([\d.]+) GB/s a rank", "GB/s a rank", True),
    "hacc": (r"([\d.]+) us a hop", "us a hop", False),
    "spin_glass": (r"([\d.]+) spins/ns", "spins/ns", True),
    "cg": (r"([\d.]+) Mop/s", "Mop/s", True),
    "workers": (r"([\d.]+) s altogether", "s", False),
}


def figures(directory: Path) -> dict[tuple[str, str], dict[str, list[float]]]:
    """By application and case: each way's figures; of a run that was not right there is none."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for path in sorted(directory.iterdir()):
        name, case, way, _ = path.name.split(",")
        text = path.read_text()
        match = re.search(FIGURES[name][0], text)
        if match and "right" in text and "WRONG" not in text:
            found.setdefault((name, case), {}).setdefault(way, []).append(float(match[1]))
        else:
            print(f"{path.name}: no figure in\n{text}")
    return found


def row(name: str, case: str, ways: dict[str, list[float]]) -> dict[str, Any]:
    _, unit, more = FIGURES[name]
    made: dict[str, Any] = {"name": name, "case": case, "unit": unit, "runs": ways}
    for way, values in ways.items():
        made[way] = statistics.median(values)
    if made.get("gmpi") and made.get("cuda_mpi"):  # of tiny cases they are 0
        ratio = made["cuda_mpi"] / made["gmpi"]
        made["speedup"] = 1 / ratio if more else ratio
    return made


def main(path: str, ranks: str, directory: str) -> int:
    rows = [row(*key, ways) for key, ways in figures(Path(directory)).items()]
    data = {"benchmark": "applications", "ranks": int(ranks), "machine": _bench.machine()}
    Path(path).write_text(json.dumps({**data, "rows": rows}, indent=1) + "\n")
    shown = ("name", "case", "unit", "gmpi", "cuda_mpi", "speedup")
    print(tabulate([[r.get(key, "") for key in shown] for r in rows], shown, floatfmt=".2f"))
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
