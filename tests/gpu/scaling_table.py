"""Of scaling.sh: what its programs have written, in one file, as a table and as a picture.

python3 tests/gpu/scaling_table.py DIRECTORY RUNS

The bars are those of the project: pairs within 1.1 x of each other; Allreduce of a double within
2.5 us on 4 GPUs and 3 us on 8; weak scaling of Himeno at least 0.95.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from _bench import machine
from tabulate import tabulate

PAIRS, WEAK = 1.1, 0.95
ALLREDUCE = {4: 2.5, 8: 3.0}


def read(runs: Path, name: str) -> dict[int, dict[str, Any]]:
    """By number of ranks."""
    paths = {path: re.fullmatch(rf"{name}-(\d+)\.json", path.name) for path in runs.iterdir()}
    return {int(m[1]): json.loads(path.read_text()) for path, m in paths.items() if m}


def himeno(runs: Path) -> list[dict[str, Any]]:
    rows = []
    for path in sorted(runs.glob("himeno-*.json")):
        rows += json.loads(path.read_text())["rows"]
    keys = ("size", "decomposition", "ranks", "us", "gosa")
    return [{key: row[key] for key in keys} for row in rows]


def efficiency(rows: list[dict[str, Any]]) -> None:
    """Strong scaling: T1 / (N TN), where there is a time of one rank."""
    alone = {row["size"]: row["us"] for row in rows if row["ranks"] == 1}
    for row in rows:
        if row["size"] in alone:
            row["efficiency"] = alone[row["size"]] / row["ranks"] / row["us"]


def bars(found: dict[str, Any]) -> list[list[Any]]:
    """What, value, bar, whether it is met."""
    rows: list[list[Any]] = []
    for ranks, run in sorted(found["all_ranks"].items()):
        for road, size in sorted({(p["road"], p["size"]) for p in run["pairs"]}):
            each = [p["p50"] for p in run["pairs"] if (p["road"], p["size"]) == (road, size)]
            ratio = max(each) / min(each)
            what = f"{ranks} ranks, {size} B, {road}: slowest pair / quickest"
            rows.append([what, f"{ratio:.2f}", f"<= {PAIRS}", ratio <= PAIRS])
    for ranks, run in sorted(found["collectives"].items()):
        for row in run["rows"]:
            if (row["call"], row["size"]) == ("Allreduce", 8) and row["blocks"] == 1:
                us, bar = row["direct"]["p50"], ALLREDUCE.get(ranks)
                what = f"{ranks} ranks, Allreduce of 8 B, {row['threads']} threads, us"
                rows.append([what, f"{us:.2f}", f"<= {bar}" if bar else "", not bar or us <= bar])
    weak = found["weak"]
    for ranks in sorted(weak):
        if 1 in weak and ranks > 1:
            ratio = weak[1]["us"] / weak[ranks]["us"]
            what = f"{ranks} ranks, Himeno, weak scaling"
            rows.append([what, f"{ratio:.2f}", f">= {WEAK}", ratio >= WEAK])
    return rows


def draw(path: Path, rows: list[dict[str, Any]]) -> None:
    try:
        import matplotlib
    except ImportError:
        print("no matplotlib: no picture")
        return
    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4))
    for size in dict.fromkeys(row["size"] for row in rows):
        best: dict[int, float] = {}
        for row in rows:
            if row["size"] == size and "efficiency" in row:
                best[row["ranks"]] = max(row["efficiency"], best.get(row["ranks"], 0))
        axes.plot(sorted(best), [best[n] for n in sorted(best)], marker="o", label=size)
    axes.set(xlabel="GPUs", ylabel="T1 / (N TN)", title="Himeno, strong scaling", ylim=(0, None))
    axes.legend()
    figure.savefig(path)


def main(directory: str, runs: str) -> int:
    where, out = Path(runs), Path(directory)
    found: dict[str, Any] = {name: read(where, name) for name in ("all_ranks", "collectives")}
    found["weak"] = {n: run["rows"][0] for n, run in read(where, "weak").items()}
    found["himeno"] = himeno(where)
    efficiency(found["himeno"])
    problems = where / "problems"
    found["problems"] = problems.read_text().splitlines() if problems.exists() else []
    data = {"benchmark": "scaling", "machine": machine(), **found}
    (out / "scaling.json").write_text(json.dumps(data, indent=1) + "\n")
    print(tabulate(bars(found), ("", "measured", "bar", "met"), disable_numparse=True))
    draw(out / "scaling.svg", found["himeno"])
    return 1 if found["problems"] or not found["all_ranks"] else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
