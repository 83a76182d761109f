"""Measures ranks on two nodes that one machine plays, for the model in docs/scaling.md.

    python tests/between_nodes.py FILE.json             # as root; four minutes
    python tests/between_nodes.py FILE.json --loggp     # two ranks, LogGP's parameters; one minute

With the MPI library of this Python, MPICH or Open MPI.
The nodes are namespaces (``nodes.py``); all messages take TCP, also those between ranks of one
node. Ranks are held on cores, and run with real-time priority while they measure: nothing else of
the machine comes between, and a yield hands the core to the next rank on it. So the times are those
of a quiet machine whose cores are shared in turns.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from nodes import TwoNodes

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

RUNS = 5
#: Ranks on each node, and the cores of each rank.
LAYOUTS = [
    ((1, 0), "0"),
    ((1, 0), "0+1"),
    ((1, 1), "0,1"),
    ((1, 1), "0,0"),
    ((2, 1), "0,1,0"),
    ((1, 2), "0,1,0"),
    ((2, 2), "0,1,0,1"),
]
PROGRAMS = ROOT / "tests" / "ranks"
#: All messages by TCP, by family of the MPI library.
SETTINGS = {
    "mpich": {"MPIR_CVAR_NOLOCAL": "1"},
    "openmpi": {
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "self,tcp",
        "OMPI_MCA_mpi_yield_when_idle": "1",
    },
}


def once(
    nodes: TwoNodes, family: str, program: str, ranks: tuple[int, int], cores: str
) -> dict[str, float]:
    """One run: microseconds by name."""
    path = str(PROGRAMS / program)
    status, text = nodes.run(family, ranks, path, cores, timeout=60, **SETTINGS[family])
    if status != 0:
        raise SystemExit(text)
    return json.loads(text[text.index("{") : text.index("}") + 1])  # type: ignore[no-any-return]


def main(path: str, *options: str) -> int:
    from _bench import machine
    from mpi4py import MPI

    family = "mpich" if "MPICH" in MPI.Get_library_version() else "openmpi"
    program, layouts = "between_nodes.py", LAYOUTS
    if options == ("--loggp",):
        program, layouts = "loggp.py", [((1, 1), "0,1")]
    elif options:
        raise SystemExit(f"unknown: {' '.join(options)}; there is --loggp")
    rows: list[dict[str, Any]] = []
    with TwoNodes() as nodes:
        for run in range(RUNS):
            for ranks, cores in layouts:
                found = once(nodes, family, program, ranks, cores)
                print(run, ranks, cores, found, flush=True)
                key = {"ranks": sum(ranks), "nodes": list(ranks), "cores": cores}
                row = next(
                    (r for r in rows if r["cores"] == cores and r["nodes"] == key["nodes"]), None
                )
                if row is None:
                    row = {**key, "runs": []}
                    rows.append(row)
                row["runs"].append(found)
    for row in rows:
        row["us"] = {
            name: round(statistics.median(run[name] for run in row["runs"]), 3)
            for name in row["runs"][0]
        }
    where = "two network namespaces of one machine, MPI over TCP, real-time priority"
    data = {
        "benchmark": program.removesuffix(".py"),
        "where": where,
        "machine": machine(),
        "rows": rows,
    }
    Path(path).write_text(json.dumps(data, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
