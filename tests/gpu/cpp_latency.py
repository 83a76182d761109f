"""One way between two kernels: Numba's, CuPy's and nvcc's, in turns, on both roads (cpp.sh)."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "examples" / "cpp"), str(ROOT / "benchmarks"), str(ROOT / "examples")]
import cupy_kernels  # noqa: E402
import nvcc_kernels  # noqa: E402

BAR = 1.05
SIZES = {8: 2000, 1024: 2000, 65536: 1000, 1 << 20: 300}
WAYS = ("numba", "cupy", "nvcc")


def numba_launch(g: Any, name: str, blocks: int, threads: int, buf: Any, *rest: Any) -> None:
    _, rounds, nanoseconds = rest
    KERNEL[blocks, threads](g.device, buf, g.rank, rounds, nanoseconds)


def load_numba() -> Any:
    """The kernel of examples/pingpong.py, not of the benchmark of the same name."""
    import runpy

    return runpy.run_path(str(ROOT / "examples" / "pingpong.py"))["pingpong"]


KERNEL = load_numba()


def once(g: Any, launch: Any, size: int, rounds: int) -> tuple[float, bool]:
    """(us one way, whether the bytes are right)."""
    sent = np.arange(size, dtype=np.uint8)
    buf = cuda.to_device(sent if g.rank == 0 else np.zeros_like(sent))
    nanoseconds = cuda.to_device(np.zeros(1, np.int64))
    for n in (1, rounds):
        MPI.COMM_WORLD.Barrier()
        launch(g, "pingpong", 1, 32 if size <= 64 else 256, buf, size, n, nanoseconds)
        g.synchronize()
    took = float(nanoseconds.copy_to_host()[0]) / 2000 / rounds
    return took, bool(np.array_equal(buf.copy_to_host(), sent))


def measure(wildcards: bool, launches: dict[str, Any], runs: int) -> tuple[list[dict], bool]:
    rows, right = [], True
    with gmpi.Context(wildcards=wildcards) as g:
        for size, rounds in SIZES.items():
            took: dict[str, list[float]] = {way: [] for way in WAYS}
            for run in range(runs):
                for way in WAYS if run % 2 else WAYS[::-1]:
                    us, good = once(g, launches[way], size, rounds)
                    took[way].append(us)
                    right = right and good
            row: dict[str, Any] = {"road": "proxied" if wildcards else "direct", "size": size}
            for way in WAYS:
                ratios = [a / b for a, b in zip(took[way], took["numba"])]
                row[way] = {"us": took[way], "p50": median(took[way]), "ratio": median(ratios)}
            rows.append(row)
    return rows, right


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    gmpi.select_gpu(comm)
    launches = {
        "numba": numba_launch,
        "cupy": cupy_kernels.launch,
        "nvcc": nvcc_kernels.Library(args.library).launch,
    }
    rows, right = [], True
    for wildcards in (True, False):
        found, good = measure(wildcards, launches, args.runs)
        rows += found
        right = right and good
    right = bool(comm.allreduce(int(right), MPI.MIN))
    if comm.rank:
        return 0 if right else 1
    worst = max(row[way]["ratio"] for row in rows for way in WAYS)
    print(f"# {'road':<9}{'bytes':>9}" + "".join(f"{way:>18}" for way in WAYS))
    for row in rows:
        cells = "".join(f"{row[w]['p50']:>10.2f} ({row[w]['ratio']:.3f})" for w in WAYS)
        print(f"  {row['road']:<9}{row['size']:>9}{cells}")
    print(f"payloads checked: {'all right' if right else 'WRONG'}; worst ratio {worst:.3f}")
    from _bench import machine  # of benchmarks

    facts = {"benchmark": "cpp", "machine": machine(), "turns": args.runs, "bar": BAR, "rows": rows,
             "payloads_right": right, "worst_ratio": worst}  # fmt: skip
    args.json.write_text(json.dumps(facts, indent=1))
    return 0 if right and worst <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
