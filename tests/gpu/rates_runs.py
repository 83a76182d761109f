"""Puts single runs of ``benchmarks/rates.py`` together: rates_runs.py TARGET.json FILE.json...

TARGET keeps the runs that it has, of other machines for example; a run that it has already is not
added twice. FILE may be such a TARGET.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def rates_of(run: dict[str, Any]) -> dict[str, float]:
    """What is measured a second, by name."""
    found = {f"records_{row['blocks']}": row["per_s"] for row in run.get("records", [])}
    for name in ("requests", "messages", "messages_no_any_tag"):
        if name in run:
            found[name] = run[name]["per_s"]
    return found


def main() -> int:
    target, *sources = map(Path, sys.argv[1:])
    runs = json.loads(target.read_text())["runs"] if target.exists() else []
    for source in sources:
        found = json.loads(source.read_text())
        more = found.get("runs")  # a file of such runs, or else what rates.py wrote
        if more is None:
            rates = rates_of(found)
            more = [{"machine": found["machine"], "engine": found["engine"], "per_s": rates}]
        runs += [run for run in more if run not in runs]
    target.write_text(json.dumps({"benchmark": "rates_runs", "runs": runs}, indent=1) + "\n")
    machines = {run["machine"].get("gpu_id") for run in runs}
    print(f"# {target}: {len(runs)} runs on {len(machines)} machines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
