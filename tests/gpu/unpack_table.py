"""The table of ``unpack.sh``: unpack_table.py NEW.json [FORMER.json] [NCU.csv]

A line for each layout: how long a former tree takes, this one and the best that was tried, as
shares of the layout's ceiling, and what the profiler saw moved. Exit status 1 where bytes are wrong
or a layout is below the bar.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import himeno_ncu
from tabulate import tabulate

BAR = 0.85


def times(rows: list[dict[str, Any]], variant: str) -> dict[str, dict[str, Any]]:
    return {row["case"]: row for row in rows if row["variant"] == variant}


def cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    share = "" if row["share"] is None else f" ({row['share']:.2f})"
    return f"{row['us']:.1f}{share}"


def moved(paths: list[Path], cases: list[str]) -> dict[str, str]:
    """Bytes read and written, as the profiler counted them, in MB."""
    found: dict[str, str] = {}
    for path in paths:
        try:
            kernels = himeno_ncu.kernels(path.read_text())
        except himeno_ncu.NcuError as exc:
            print(f"# {path}: {exc}")
            continue
        for case, counted in zip(cases, kernels):
            read, written = (counted.get(f"dram__bytes_{w}.sum", 0) for w in ("read", "write"))
            found[case] = f"{read / 1e6:.0f} + {written / 1e6:.0f}"
    return found


def main() -> int:
    paths = [Path(word) for word in sys.argv[1:]]
    tables = [json.loads(path.read_text()) for path in paths if path.suffix == ".json"]
    new = tables[0]["rows"]
    former = tables[1]["rows"] if len(tables) > 1 else []
    now, before, packs = times(new, "as it is"), times(former, "as it is"), times(new, "pack")
    stores = times(new, "stores alone")
    counted = moved([path for path in paths if path.suffix == ".csv"], list(now))
    lines, below = [], []
    for case, row in now.items():
        tried = [r for r in new if r["case"] == case and r["variant"].startswith(("T", "along"))]
        best = sorted(tried, key=lambda r: r["us"])[:3]
        names = [f"{r['variant']} {cell(r)}" for r in best]
        sides = [packs.get(case), stores.get(case), before.get(case), row]
        lines.append([case, *map(cell, sides), *names[:3], *[""] * (3 - len(names))])
        lines[-1].append(counted.get(case, ""))
        if row["share"] < BAR:
            below.append(f"{case} {row['share']:.2f}")
    print(
        tabulate([[r["case"], r["variant"], cell(r)] for r in new if "L2 fetches" in r["variant"]])
    )
    headers = ["us (share of its ceiling)", "pack", "stores alone", "former", "as it is",
               "best tried", "second", "third", "MB read + written"]  # fmt: skip
    print(tabulate(lines, headers, tablefmt="simple", disable_numparse=True))
    wrong = [f"{r['case']}: {r['variant']}" for r in [*new, *former] if not r["right"]]
    print(
        f"# copy {tables[0]['copy_us']:.1f} us; below {BAR}: {', '.join(below) or 'none'}; ", end=""
    )
    print(f"wrong: {', '.join(wrong) or 'none'}", flush=True)
    return 1 if below or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
