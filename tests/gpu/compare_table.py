"""Two trees beside each other: the runs of ``compare.sh`` become one table and one JSON file.

    python3 tests/gpu/compare_table.py DIRECTORY --json FILE [--bar 0.97]

Reads ``former-N.json`` and ``new-N.json`` in DIRECTORY. A ratio of 1 means as fast,
more means that the new tree is faster: of times the former median by the new one, of rates the
other way round. Exit status 1 when a ratio is below the bar or there are fewer than 5 runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

from tabulate import tabulate

FEWEST_RUNS = 5
#: The sum of residuals in another order differs by rounding only.
GOSA_TOLERANCE = 1e-6
_ITERATION, _DIRECT = ", an iteration", ", an iteration by the direct road"

Runs = list[dict[str, Any]]


def figures(runs: Runs) -> dict[tuple[str, str], list[float]]:
    """By name and unit, a value of each run."""
    found: dict[tuple[str, str], list[float]] = {}

    def add(name: str, unit: str, value: float) -> None:
        found.setdefault((name, unit), []).append(value)

    for run in runs:
        for size, us in run["one_way_us"].items():
            add(f"{_size(int(size))} one way", "us", us)
        add("Allreduce, one double", "us", run["allreduce_us"])
        for name, values in run["rates"].items():
            add(name.replace("_", " "), "M/s", median(values) / 1e6)
        for size, row in run["himeno"].items():
            add(f"Himeno {size}{_ITERATION}", "us", row["us"])
        for size, row in run.get("himeno_direct", {}).items():
            add(f"Himeno {size}{_DIRECT}", "us", row["us"])
    return found


def _size(nbytes: int) -> str:
    for unit, shift in (("MiB", 20), ("KiB", 10)):
        if nbytes >= 1 << shift:
            return f"{nbytes >> shift} {unit}"
    return f"{nbytes} B"


def summary(values: list[float]) -> dict[str, float]:
    return {
        "median": median(values),
        "min": min(values),
        "max": max(values),
        "n": len(values),
    }


def compare(former: Runs, new: Runs) -> list[dict[str, Any]]:
    """A row for each figure that both trees have. Himeno on the direct road stands beside the
    former one on its own, if it has one, else on the proxied road."""
    before, after = figures(former), figures(new)
    rows = []
    for (name, unit), values in after.items():
        known = before.get((name, unit)) or before.get((name.replace(_DIRECT, _ITERATION), unit))
        if known is None:
            continue
        old, now = summary(known), summary(values)
        ratio = old["median"] / now["median"]
        ratio = ratio if unit == "us" else 1 / ratio
        rows.append({"name": name, "unit": unit, "former": old, "new": now, "ratio": ratio})
    return rows


def wrong_residuals(former: Runs, new: Runs) -> list[str]:
    """Sizes of Himeno whose residual is not that of the first run."""
    wrong = []
    for size, first in former[0]["himeno"].items() if former else ():
        rows = [run.get(key, {}) for run in [*former, *new] for key in ("himeno", "himeno_direct")]
        for row in rows:
            found = row.get(size, first)["gosa"]
            if abs(found - first["gosa"]) > GOSA_TOLERANCE * abs(first["gosa"]):
                wrong.append(f"Himeno {size}: gosa {found} and {first['gosa']}")
                break
    return wrong


def show(rows: list[dict[str, Any]], bar: float) -> str:
    table = []
    for row in rows:
        sides = []
        for side in (row["former"], row["new"]):
            sides.append(f"{side['median']:.2f} ({side['min']:.2f} to {side['max']:.2f})")
        verdict = "" if row["ratio"] >= bar else "SLOWER"
        table.append([row["name"], row["unit"], *sides, f"{row['ratio']:.3f}", verdict])
    headers = ["figure", "unit", "former, median (range)", "new, median (range)", "ratio", ""]
    return str(tabulate(table, headers, tablefmt="simple", disable_numparse=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--bar", type=float, default=0.97)
    args = parser.parse_args()
    trees: dict[str, Runs] = {}
    for name in ("former", "new"):
        paths = sorted(args.directory.glob(f"{name}-*.json"))
        trees[name] = [json.loads(path.read_text()) for path in paths]
    former, new = trees["former"], trees["new"]
    rows = compare(former, new)
    problems = wrong_residuals(former, new)
    for name, runs in trees.items():
        if len(runs) < FEWEST_RUNS:
            problems.append(f"{len(runs)} runs of the {name} tree, not {FEWEST_RUNS}")
    problems += [f"{row['name']}: {row['ratio']:.3f}" for row in rows if row["ratio"] < args.bar]
    results = {
        "benchmark": "compare",
        "bar": args.bar,
        "machine": {name: runs[0]["machine"] for name, runs in trees.items() if runs},
        "where": new[0]["where"] if new else "nowhere",
        "figures": rows,
        "problems": problems,
        "runs": trees,
    }
    args.json.write_text(json.dumps(results, indent=1) + "\n")
    commits = [machine["commit"] for machine in results["machine"].values()]
    print(f"# {' and '.join(commits)} on {results['where']}; ratio 1: as fast, more: new is faster")
    print(show(rows, args.bar))
    print("# " + ("; ".join(problems) or f"all at least {args.bar}"), flush=True)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
