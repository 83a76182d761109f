"""Runs rank programs side by side until a given time: ``tests/gpu/ranks.sh`` says how."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1]))
import launcher
import test_gpu

#: The first part of names: of ``test_gpu.PROGRAMS``, what runs when no program is named.
USUAL = (
    "direct", "point_to_point", "grid", "random_", "onesided", "persistent", "partitioned",
)  # fmt: skip
#: To end a program and what it has started takes so long; less time than that is too little.
ENDING_S = 6
#: Of the output of a program that failed: how it failed, as far as it says so.
FAILED = re.compile(r"^(rank \d+ of \d+ failed:|Timeout \()")
BEFORE, BEHIND, SHOWN = 30, 60, 16


def usual() -> list[str]:
    return [line for line in test_gpu.PROGRAMS if test_gpu.parts_of(line)[1].startswith(USUAL)]


def carry_out(
    command: list[str], ranks: int, limit_s: float, environment: dict[str, str]
) -> dict[str, Any]:
    """Runs a command that starts ranks: its outcome, seconds, and what it printed last if it has
    not passed."""
    began = time.monotonic()
    with launcher.Job(command, limit_s, environment) as job:
        status = job.wait(limit_s)
    found: dict[str, Any] = {"outcome": "late", "seconds": round(time.monotonic() - began, 1)}
    text = job.text()
    if status is not None:
        passed = status == 0 and text.count("all passed") == ranks
        own = re.search(r"^Timeout \(", text, re.M)  # the limit in tests/ranks/common.py
        found["outcome"] = "passed" if passed else "late" if own else "failed"
        found["status"] = status
    if found["outcome"] != "passed":
        lines = text.splitlines()
        at = next((n for n, line in enumerate(lines) if FAILED.match(line)), len(lines))
        found["before"] = lines[max(0, at - BEFORE) : at]
        found["output"] = lines[at : at + BEHIND]
    return found


def check(line: str, until: float, each_s: float) -> dict[str, Any]:
    """Runs a program if there is time for it; just before its end all ranks say where they are."""
    limit_s = min(each_s, until - time.time() - ENDING_S)
    if limit_s < ENDING_S:
        return {"outcome": "not begun", "seconds": 0.0}
    ranks, name, arguments, environment = test_gpu.parts_of(line)
    command = launcher.mpi_command(ranks, str(launcher.RANKS / f"{name}.py"), *arguments)
    return carry_out(command, ranks, limit_s, environment)


def machine() -> dict[str, Any]:
    """In a process of its own: MPI starts there."""
    code = "import json, _bench; print(json.dumps(_bench.machine()))"
    path = os.pathsep.join(
        [str(launcher.ROOT), str(launcher.ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")]
    )
    status, text = launcher.python("-c", code, timeout=60, PYTHONPATH=path)
    found: dict[str, Any] = json.loads(text.splitlines()[-1]) if status == 0 else {"error": text}
    return found


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("lines", nargs="*", metavar="LINE")
    parser.add_argument("--until", type=float, required=True, help="seconds since 1970")
    parser.add_argument("--each", type=float, default=200, help="seconds of one program")
    parser.add_argument("--jobs", type=int, default=test_gpu.TOGETHER, help="programs at once")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args(words)
    lines = options.lines or usual()
    results: dict[str, Any] = {"machine": machine(), "jobs": options.jobs, "programs": {}}
    writing = threading.Lock()

    def one(line: str) -> str:
        try:
            found = check(line, options.until, options.each)
        except Exception as exc:  # one that cannot be started is no reason not to try the others
            found = {"outcome": "failed", "seconds": 0.0, "output": [f"{exc!r}"]}
        with writing:  # after each: whatever ends this, the rest is on disk
            print(f"{line:<52} {found['outcome']:<9} {found['seconds']:6.1f} s", flush=True)
            results["programs"][line] = found
            results["counts"] = Counter(p["outcome"] for p in results["programs"].values())
            results["passed"] = set(results["counts"]) == {"passed"}
            options.json.write_text(json.dumps(results, indent=1) + "\n")
        return str(found["outcome"])

    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = list(pool.map(one, lines))
    for line, found in results["programs"].items():
        for text in (found.get("output") or found.get("before", []))[:SHOWN]:
            print(f"{line}: {text}")
    print(", ".join(f"{count} {outcome}" for outcome, count in results["counts"].items()))
    return int(set(outcomes) != {"passed"})


if __name__ == "__main__":
    sys.exit(main())
