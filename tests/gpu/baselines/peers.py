"""Collects what ``peers.sh`` printed: peers.py FILE.json OUTPUT...

Lines "PEER SIZE p1 p50 p90 p99 min max n" become one JSON file; other lines are passed over.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

PEERS = ("device_pointers", "nvshmem")
_FIELDS = ("p1", "p50", "p90", "p99", "min", "max", "n")


def collect(text: str) -> list[dict[str, Any]]:
    """Rows by size: ``{"size": 8, "nvshmem": {"p50": ...}, ...}``, of each peer what it printed."""
    rows: dict[int, dict[str, Any]] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) != 2 + len(_FIELDS) or words[0] not in PEERS:
            continue
        times = dict(zip(_FIELDS, map(float, words[2:])))
        row = rows.setdefault(int(words[1]), {"size": int(words[1])})
        row[words[0]] = {**times, "n": int(times["n"])}
    return [rows[size] for size in sorted(rows)]


def main() -> int:
    sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))
    from _bench import write_json

    target, *sources = sys.argv[1:]
    rows = collect("\n".join(Path(source).read_text(errors="replace") for source in sources))
    missing = [peer for peer in PEERS if not any(peer in row for row in rows)]
    for peer in missing:
        print(f"nothing of {peer}: see what it printed", file=sys.stderr)
    if rows:
        write_json(target, {"benchmark": "peers", "rows": rows})
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
