"""Puts runs of ``examples/himeno.py`` beside those of the tuned and the conventional program.

    python3 tests/gpu/himeno_example.py DIRECTORY LOGS RANKS [partitioned]

LOGS has what the example printed, in files named SIZE-RUN. Writes ``himeno-example.json`` into
DIRECTORY, with the fastest run of each size, and prints the ratio to the other programs' times, as
far as ``himeno.sh compare`` has left them there. Fails where the example is slower than wanted.
With ``partitioned`` it was ``himeno_partitioned.py``; the file is ``himeno-partitioned.json``.
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
from _himeno_report import beside_example, best, read

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


def main() -> int:
    directory, logs, ranks = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    program = (*sys.argv[4:], "example")[0]
    rows = best([row_of(path, ranks) for path in sorted(logs.iterdir())])
    about = machine()
    gpus = len(about["gpu"])
    results = {
        "machine": about,
        "benchmark": "himeno",
        "program": program,
        "where": f"{min(gpus, ranks)} GPU{'s' if min(gpus, ranks) > 1 else ''}",
        "rows": list(rows.values()),
    }
    (directory / f"himeno-{program}.json").write_text(json.dumps(results, indent=1) + "\n")
    table = beside_example(read(directory), ranks)
    print(tabulate(table, headers="keys", floatfmt=".3g"))
    slow = [r["size"] for r in table if r["wanted"] and r.get("GMPI / example", 1) < r["wanted"]]
    if slow:
        print(f"too slow: {', '.join(slow)}")
    return int(bool(slow))


if __name__ == "__main__":
    sys.exit(main())
