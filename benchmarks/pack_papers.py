"""What the papers measure of packing besides ``pack_bench.py``: more layouts, what a first use
costs, packing into memory of the host, and beside other work. One GPU, one process.

    python benchmarks/pack_papers.py [--json FILE]

Times are by the host's clock: calls in a row and a wait for all of them, best of several batches.
Every packed byte is checked against NumPy. In the simulator they mean nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _bench import fail, parser, write_json
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi.packing.calls import prepared_of
from gmpi.packing.prepare import ENGINES

SIM = gmpi.SIMULATOR
CALLS, BATCHES = (2, 1) if SIM else (50, 5)
D = MPI.DOUBLE
RADIUS = 3


def us_of(call: Callable[[], object], wait: Callable[[], object] = cuda.synchronize) -> float:
    """us of a call, many in a row; the best batch, the first of which only warms up."""
    found = []
    for _ in range(BATCHES + 1):
        begin = time.perf_counter()
        for _ in range(CALLS):
            call()
        wait()
        found.append((time.perf_counter() - begin) / CALLS * 1e6)
    return min(found[1:])


def box(sizes: list[int], part: list[int], start: list[int]) -> tuple[MPI.Datatype, np.ndarray]:
    """A box of doubles, and which bytes it has, in packed order."""
    where = np.arange(np.prod(sizes)).reshape(sizes)
    where = where[tuple(slice(s, s + n) for s, n in zip(start, part))].reshape(-1)
    return D.Create_subarray(sizes, part, start), where


def layouts() -> dict[str, tuple[MPI.Datatype, np.ndarray]]:
    """By name: a datatype of doubles, and the elements that it has."""
    found = {}
    rows = 8 if SIM else 1 << 13
    pitched = (np.arange(rows)[:, None] * 64 + np.arange(16)).reshape(-1)
    found[f"128 B every 512 B, {rows} rows"] = D.Create_vector(rows, 16, 64), pitched
    whole = 6 if SIM else 64
    for n in (2, 3) if SIM else (4, 8, 16, 32, 48):  # chapter 4 of "derived datatypes"
        found[f"4-D cube {n}^4 of {whole}^4"] = box([whole] * 4, [n] * 4, [1] * 4)
    at = np.sort(np.random.default_rng(1).permutation(4 * rows)[:rows]).astype(np.int32) * 4
    elements = (at[:, None] + np.arange(4)).reshape(-1)
    found[f"indexed_block, {rows} blocks of 32 B"] = D.Create_indexed_block(4, at), elements
    for n in (8,) if SIM else (64, 128, 256, 512):
        for axis, name in enumerate("ijk"):
            part = [n] * 3
            part[axis] = RADIUS
            found[f"face {name} of {n}^3, radius {RADIUS}"] = box([n] * 3, part, [0, 0, 0])
    return found


class Bench:
    """Buffers for all layouts."""

    def __init__(self) -> None:
        self.layouts = layouts()
        most = max(int(e.max()) + 1 for _, e in self.layouts.values())
        self.host = np.random.default_rng(0).random(most)
        self.user = cuda.to_device(self.host)
        packed = max(len(e) for _, e in self.layouts.values())
        self.packed = cuda.to_device(np.zeros(packed))

    def right(self, name: str, packed: np.ndarray) -> None:
        elements = self.layouts[name][1]
        if not np.array_equal(packed.reshape(-1)[: len(elements)], self.host[elements]):
            fail(f"{name}: wrong bytes")

    def by_engine(self, name: str) -> dict[str, Any]:
        """us a call of pack and unpack by each engine that can do it."""
        datatype, elements = self.layouts[name]
        row: dict[str, Any] = {"name": name, "bytes": 8 * len(elements)}
        for engine in ENGINES:
            if engine == "copy" and prepared_of(datatype, 1).shape is None:
                continue
            self.packed[:] = cuda.to_device(np.zeros(self.packed.size))
            gmpi.pack(self.user, datatype, 1, self.packed, None, engine)
            cuda.synchronize()
            self.right(name, self.packed.copy_to_host())
            row[f"pack_{engine}_us"] = us_of(
                lambda e=engine: gmpi.pack(self.user, datatype, 1, self.packed, None, e)  # type: ignore[misc]
            )
            row[f"unpack_{engine}_us"] = us_of(
                lambda e=engine: gmpi.unpack(self.packed, datatype, self.user, 1, None, e)  # type: ignore[misc]
            )
        return row

    def components(self, name: str) -> dict[str, Any]:
        """Where the time of a first use goes: understanding the datatype, preparing, launching."""
        datatype, elements = self.layouts[name]
        fresh = datatype.Dup()  # knows nothing of the other's plan
        times = [time.perf_counter()]
        gmpi.datatypes.plan(fresh)
        times.append(time.perf_counter())
        prepared_of(fresh, 1)  # decodes once more: it keeps its own
        times.append(time.perf_counter())
        for _ in range(2):
            gmpi.pack(self.user, fresh, 1, self.packed, None, "kernel")
            cuda.synchronize()
            times.append(time.perf_counter())
        fresh.Free()
        decode, prepare, first, again = (np.diff(times) * 1e6).tolist()
        return {
            "name": name, "bytes": 8 * len(elements), "decode_us": decode,
            "decode_and_prepare_us": prepare, "first_call_us": first, "second_call_us": again,
        }  # fmt: skip

    def to_host(self, name: str) -> dict[str, Any]:
        """Until the bytes are in host memory: packed there at once, or packed and copied."""
        datatype, elements = self.layouts[name]
        n = len(elements)
        mapped, pinned = cuda.mapped_array(n), cuda.pinned_array(n)
        part = self.packed[:n]

        def zero_copy() -> None:
            gmpi.pack(self.user, datatype, 1, mapped, None, "kernel")
            cuda.synchronize()

        def staged() -> None:
            gmpi.pack(self.user, datatype, 1, part)
            part.copy_to_host(pinned)

        row = {"name": name, "bytes": 8 * n}
        for key, call, where in (("mapped", zero_copy, mapped), ("copied", staged, pinned)):
            call()
            self.right(name, np.asarray(where))
            row[f"{key}_us"] = us_of(call)
        return row


@cuda.jit
def busy(sink, turns):
    """A kernel of the user's: arithmetic alone."""
    a = float(cuda.threadIdx.x)
    for _ in range(turns):
        a = a * 1.0001 + 0.5
    if a == 12345.0:
        sink[0] = a


def beside(bench: Bench, name: str) -> list[dict[str, Any]]:
    """Packing beside a user's kernel on part of the GPU, and beside copies over PCIe; what it
    costs each of them."""
    datatype, _ = bench.layouts[name]
    ours, theirs = cuda.stream(), cuda.stream()
    multiprocessors = 1 if SIM else cuda.get_current_device().MULTIPROCESSOR_COUNT
    turns = 10 if SIM else 2_000_000
    sink = cuda.to_device(np.zeros(1))
    chunk = cuda.pinned_array(1024 if SIM else 8 << 20, np.uint8)
    there = cuda.to_device(np.zeros(chunk.size, np.uint8))

    def pack() -> None:
        gmpi.pack(bench.user, datatype, 1, bench.packed, ours, "kernel")

    others: dict[str, Callable[[], object]] = {
        f"a kernel on {blocks} multiprocessors": lambda b=blocks: busy[b, 256, theirs](sink, turns)  # type: ignore[misc]
        for blocks in sorted({max(1, multiprocessors // k) for k in (4, 2, 1)})
    }
    others["copies to the GPU"] = lambda: [there.copy_to_device(chunk, theirs) for _ in range(20)]
    others["copies from the GPU"] = lambda: [there.copy_to_host(chunk, theirs) for _ in range(20)]
    alone = us_of(pack, ours.synchronize)
    rows = []
    for what, start in others.items():
        start()
        theirs.synchronize()
        begin = time.perf_counter()
        start()
        theirs.synchronize()
        other_alone = time.perf_counter() - begin
        begin, count = time.perf_counter(), 0
        start()
        while count < CALLS or (not SIM and time.perf_counter() - begin < 0.5 * other_alone):
            pack()
            count += 1
        ours.synchronize()
        packing = time.perf_counter() - begin
        theirs.synchronize()
        other = time.perf_counter() - begin
        rows.append(
            {
                "name": name,
                "beside": what,
                "pack_alone_us": alone,
                "pack_us": packing / count * 1e6,
                "calls": count,
                "other_alone_us": other_alone * 1e6,
                "other_us": other * 1e6,
            }
        )
    return rows


def main() -> int:
    args = parser(__doc__ or "").parse_args()
    bench = Bench()
    names = list(bench.layouts)
    parts: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "layouts": lambda: [bench.by_engine(name) for name in names],
        "components": lambda: [bench.components(name) for name in names],
        "to_host": lambda: [bench.to_host(name) for name in names],
        "beside": lambda: beside(bench, names[-1]) + beside(bench, names[0]),
    }
    where = "simulator (no GPU used)" if SIM else cuda.get_current_device().name
    found: dict[str, Any] = {"benchmark": "pack_papers", "where": str(where)}
    for key, measure in parts.items():
        print(f"# {key}")
        found[key] = measure()
        for row in found[key]:
            print("  ".join(f"{v:.2f}" if isinstance(v, float) else str(v) for v in row.values()))
        write_json(args.json, found)  # each part as soon as it is there
    print("# packed bytes checked: all right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
