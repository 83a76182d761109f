"""What the benchmarks share: percentiles, OSU's table layout, machine and versions, JSON."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi.bench.sizes import size as size
from gmpi.bench.sizes import size_range as size_range
from gmpi.bench.sizes import sizes_between as sizes_between


def p50(values: np.ndarray) -> float:
    return float(np.percentile(values, 50))


def summary(values: np.ndarray) -> dict[str, float]:
    """Percentiles of a sample, and its size."""
    points = {f"p{p}": float(np.percentile(values, p)) for p in (1, 50, 90, 99)}
    return {**points, "min": float(values.min()), "max": float(values.max()), "n": len(values)}


def parser(description: str) -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=description.split("\n")[0])
    found.add_argument("--json", metavar="FILE", help="write all figures, machine and versions")
    found.add_argument("--engine", default=None, help="compiled or mpi4py (default: compiled)")
    return found


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"


def _command(*words: str) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def machine() -> dict[str, Any]:
    """What a figure depends on."""
    cpu = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    info: dict[str, Any] = {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "mpi": MPI.Get_library_version().split(",")[0].split("\n")[0].strip("\0 "),
        "versions": {
            name: _version(name)
            for name in ("numba", "numba-cuda", "llvmlite", "mpi4py", "numpy", "cupy-cuda13x")
        },
        "gmpi": gmpi.__version__,
        "commit": os.environ.get("GMPI_COMMIT")  # where the checkout is not a repository
        or _command("git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD")
        or "unknown",
        "run": os.environ.get("GMPI_RUN", ""),  # the same in all files of one run
    }
    if gmpi.SIMULATOR:
        info["gpu"] = "none: simulator"
    else:
        query = _command("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
        info["gpu"] = query.splitlines()
        # Tells machines apart that are otherwise the same.
        uuids = _command("nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader")
        info["gpu_id"] = hashlib.sha256(uuids.encode()).hexdigest()[:8]
        info["mps"] = "CUDA_MPS_PIPE_DIRECTORY" in os.environ
    return info


def where(comm: MPI.Comm) -> str:
    if gmpi.SIMULATOR:
        return "simulator (no GPU used)"
    gpus = len(set(comm.allgather(cuda.get_current_device().id)))
    name = cuda.get_current_device().name
    name = name.decode() if isinstance(name, bytes) else name
    return f"{gpus} GPU{'s' if gpus > 1 else ''}, {name}"


def write_json(path: str | None, results: dict[str, Any]) -> None:
    if path:
        Path(path).write_text(json.dumps({"machine": machine(), **results}, indent=1) + "\n")


def conclude(comm: MPI.Comm, path: str | None, name: str, place: str, rows: list[Any]) -> int:
    """The end of a program that has checked every payload: its exit status."""
    if comm.rank == 0:
        print("# payloads checked: all right")
        write_json(path, {"benchmark": name, "where": place, "rows": rows})
    return 0


def fail(message: str) -> None:
    """Ends all ranks."""
    print(message, file=sys.stderr, flush=True)
    time.sleep(0.5)  # what is written just before MPI_Abort may be lost with the job
    MPI.COMM_WORLD.Abort(1)


def two_ranks(engine: str | None) -> tuple[MPI.Comm, str, dict[str, str]]:
    """What a program of two ranks begins with, on the GPU of each: (their communicator, where they
    run, settings of the context); ends if there are more or fewer."""
    comm = MPI.COMM_WORLD
    if comm.size != 2:
        fail(f"needs 2 ranks, got {comm.size}: mpiexec -n 2 python {sys.argv[0]}")
    gmpi.select_gpu(comm)
    return comm, where(comm), {"engine": engine} if engine else {}
