"""The table of ``unpack.sh``: unpack_table.py NEW.json [FORMER.json] [NCU.csv]

    python3 tests/gpu/unpack_table.py --docs docs/measurements/unpack-1gpu.json

writes the one in docs/datatypes.md. What the profiler counted is kept in NEW.json.

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

from docs.pages import fill

BAR = 0.85
PAGE = Path(__file__).resolve().parents[2] / "docs" / "datatypes.md"
PROGRAM = "tests/gpu/unpack_table.py"
TRIED = ("T", "along", "bytes")  # how names of kernels that are compared begin


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


def write_docs(path: Path, page: Path) -> None:
    """The table of a page, between its two marks."""
    measured = json.loads(path.read_text())
    rows = measured["rows"]
    packs, stores = times(rows, "pack"), times(rows, "stores alone")
    lines = [
        [case, cell(packs.get(case)), cell(row), cell(stores.get(case)), row.get("moved_mb", "")]
        for case, row in times(rows, "as it is").items()
    ]
    headers = ["256 MiB in blocks of", "pack, us", "unpack, us (share of its ceiling)",
               "stores alone, us", "MB read + written"]  # fmt: skip
    table = tabulate(lines, headers, tablefmt="github", disable_numparse=True)
    text = f"{table}\n\n{measured['machine']['gpu'][0]}; copy {measured['copy_us']:.1f} us."
    page.write_text(fill(page.read_text(), PROGRAM, "unpack", text))


def main() -> int:
    if sys.argv[1] == "--docs":
        write_docs(Path(sys.argv[2]), PAGE)
        return 0
    paths = [Path(word) for word in sys.argv[1:]]
    tables = [json.loads(path.read_text()) for path in paths if path.suffix == ".json"]
    new = tables[0]["rows"]
    former = tables[1]["rows"] if len(tables) > 1 else []
    now, before, packs = times(new, "as it is"), times(former, "as it is"), times(new, "pack")
    stores = times(new, "stores alone")
    counted = moved([path for path in paths if path.suffix == ".csv"], list(now))
    if counted:
        for case, row in now.items():
            row["moved_mb"] = counted.get(case, "")
        paths[0].write_text(json.dumps(tables[0], indent=1))
    lines, below = [], []
    for case, row in now.items():
        tried = [r for r in new if r["case"] == case and r["variant"].startswith(TRIED)]
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
