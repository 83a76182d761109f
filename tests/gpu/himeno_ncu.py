"""Reads what ncu has measured of the Himeno sweep.

    python tests/gpu/himeno_ncu.py DIRECTORY

``himeno_ncu.sh`` leaves ``ncu/ncu.csv`` (the profiler's words, a line for each kernel and metric)
and ``ncu/runs.json`` (which kernels these are) there; this writes ``himeno-ncu.json`` and a table.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import click
from tabulate import tabulate

#: What a row is called here -> the profiler's metric.
METRICS = {
    "registers": "launch__registers_per_thread",
    "threads": "launch__block_size",
    "blocks": "launch__grid_size",
    "ns": "gpu__time_duration.sum",
    "read_bytes": "dram__bytes_read.sum",
    "written_bytes": "dram__bytes_write.sum",
    "dram_percent": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "occupancy_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "warps": "sm__warps_active.avg.per_cycle_active",
    "l1_hit_percent": "l1tex__t_sector_hit_rate.pct",
    "l2_hit_percent": "lts__t_sector_hit_rate.pct",
    "stalled_on_memory": "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
}
NEEDED = ("registers", "ns", "read_bytes", "written_bytes")
COLUMNS = ("size", "kind", "registers", "us", "TB_per_s", "in_flight_KiB", "bytes_per_point")


class NcuError(click.ClickException):
    """The profiler's output is not what it should be."""


def kernels(text: str) -> list[dict[str, float]]:
    """Metrics of each kernel, by the profiler's names, in the order in which they ran."""
    lines = text.splitlines()
    begin = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        said = [line for line in lines if line.startswith("==") and "PROF" not in line]
        raise NcuError("ncu has measured nothing; it says: " + " ".join(said[-3:] or lines[-3:]))
    found: dict[int, dict[str, float]] = {}
    for row in csv.DictReader(lines[begin:]):
        if not (row["ID"] or "").isdigit():
            continue  # the profiler's own words, between the kernels
        value = (row["Metric Value"] or "").replace(",", "")
        try:
            found.setdefault(int(row["ID"]), {})[row["Metric Name"]] = float(value)
        except ValueError:
            continue  # "n/a": this GPU does not count that
    return [found[number] for number in sorted(found)]


def derive(run: dict[str, Any], measured: dict[str, float], runs: dict[str, Any]) -> dict[str, Any]:
    """A row: what was measured, and what follows from it.

    Bytes in flight are by Little's law: bandwidth times the latency of a lone read. Under load a
    read takes longer, so they are a lower bound.
    """
    row = {name: measured[metric] for name, metric in METRICS.items() if metric in measured}
    missing = [METRICS[name] for name in NEEDED if name not in row]
    if missing:
        raise NcuError(f"ncu did not report {', '.join(missing)} for {run['kind']} {run['size']}")
    moved = row["read_bytes"] + row["written_bytes"]
    bandwidth = moved / (row["ns"] * 1e-9)
    flight = bandwidth * runs["latency_ns"] * 1e-9
    return {
        **run,
        **row,
        "us": row["ns"] / 1e3 / run["iterations"],
        "TB_per_s": bandwidth / 1e12,
        "of_copy": bandwidth / runs["copy_bytes_per_s"],
        "bytes_per_point": moved / run["iterations"] / run["points"],
        "in_flight_KiB": flight / runs["multiprocessors"] / 1024,
    }


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
def main(directory: Path) -> None:
    try:
        text, runs = ((directory / "ncu" / f).read_text() for f in ("ncu.csv", "runs.json"))
    except OSError as exc:
        raise NcuError(f"{exc}; run tests/gpu/himeno_ncu.sh {directory}") from exc
    about = json.loads(runs)
    measured = kernels(text)
    if len(measured) != len(about["rows"]):
        raise NcuError(
            f"ncu has measured {len(measured)} kernels, of {len(about['rows'])} that ran"
        )
    rows = [derive(run, each, about) for run, each in zip(about["rows"], measured)]
    # Of two launches the second: the first finds the caches as the fill left them.
    kept = {(row["size"], row["kind"]): row for row in rows}
    results = {**about, "benchmark": "himeno sweep in ncu", "rows": list(kept.values())}
    (directory / "himeno-ncu.json").write_text(json.dumps(results, indent=1) + "\n")
    print(f"# a lone read takes {about['latency_ns']:.0f} ns; in flight: KiB per multiprocessor")
    print(tabulate([[row[c] for c in COLUMNS] for row in kept.values()], COLUMNS, floatfmt=".2f"))


if __name__ == "__main__":
    sys.exit(main())
