"""What a call of ``gmpi.pack`` takes beside the same from C and by CuPy, on one GPU.

    nvcc -O2 -arch=sm_90 tests/gpu/baselines/launch.cu -o launch
    python tests/gpu/launch_cost.py ./launch [--json FILE]

In us, as ``launch.cu`` says. Of a ``gmpi.pack`` also what carries it out, a launch or a copy whose
arguments are ready: the rest is what Python finds out before.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from mpi4py import MPI
from tabulate import tabulate

import gmpi
from gmpi.packing import calls

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from _bench import write_json

ALONE, MANY, TIMES = 2000, 200, 15


def measure(cupy: Any, stream: Any, call: Callable[[], Any]) -> dict[str, float]:
    for _ in range(100):
        call()
    stream.synchronize()
    host = []
    for _ in range(ALONE):
        before = time.perf_counter_ns()
        call()
        host.append((time.perf_counter_ns() - before) / 1e3)
        stream.synchronize()
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    best = float("inf")
    for _ in range(TIMES):
        call()
        begin.record(stream)
        for _ in range(MANY):
            call()
        end.record(stream)
        end.synchronize()
        best = min(best, cupy.cuda.get_elapsed_time(begin, end) * 1e3 / MANY)
    return {"host": float(np.median(host)), "back_to_back": best}


def layouts(nbytes: int) -> dict[str, MPI.Datatype]:
    return {
        "in one piece": MPI.BYTE.Create_contiguous(nbytes),
        "in rows of 1 KiB": MPI.BYTE.Create_vector(nbytes // 1024, 1024, 2048),
        "in runs of 64 bytes": MPI.BYTE.Create_vector(nbytes // 64, 64, 128),
    }


@click.command(help=__doc__)
@click.argument("launch", type=click.Path(exists=True))
@click.option("--json", "path", type=click.Path())
def main(launch: str, path: str | None) -> None:
    import cupy

    text = subprocess.run([launch], check=True, capture_output=True, text=True).stdout
    rows: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    stream = cupy.cuda.Stream(non_blocking=True)
    source, out = cupy.arange(4 << 20, dtype=cupy.uint8), cupy.zeros(1 << 20, cupy.uint8)

    def note(name: str, call: Callable[[], Any]) -> None:
        rows.append({"what": name, **measure(cupy, stream, call)})

    copy = cupy.cuda.runtime.memcpyAsync
    for nbytes in (65536, 1 << 20):
        note(
            f"CuPy: copy of {nbytes} bytes",
            lambda nbytes=nbytes: copy(out.data.ptr, source.data.ptr, nbytes, 3, stream.ptr),
        )
        for name, datatype in layouts(nbytes).items():
            for engine in ("auto", "kernel", "copy"):
                note(
                    f"gmpi.pack of {nbytes} bytes {name}, {engine}",
                    lambda t=datatype, e=engine: gmpi.pack(
                        source, t, out=out, stream=stream, engine=e
                    ),
                )
            (way,) = calls.prepared_of(datatype, 1)._ways[0].values()
            note(
                f"its {type(way).__name__.lower()}",
                lambda way=way: way(source.data.ptr, out.data.ptr, stream),
            )
            datatype.Free()
    print(tabulate([row.values() for row in rows], ["us", "host", "back to back"], floatfmt=".2f"))
    write_json(path, {"benchmark": "launch_cost", "rows": rows})


if __name__ == "__main__":
    main()
