"""Packing on one GPU: gmpi.pack and gmpi.unpack against copies, for every layout of the papers.

    python benchmarks/pack_bench.py --json docs/measurements/packing-1gpu.json --plot packing.png

Every result is first compared with CuPy's own gather. Rates are bytes read and written. ``copy`` is
a device-to-device copy of as many bytes in the same run; the ceiling of a layout is what a copy at
that rate would take for the 32-byte sectors that it touches, its packed bytes and its tables; an
unpack has to read sectors that it writes in part (``_pack_sectors``).
``us`` are calls back to back in a stream, ``cold`` single calls after the cache was swept. Where
the GPU is done before the next call arrives, the former are times of the host; ``device_us`` are
calls that all wait in the stream before the first of them begins.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import _bench
import numpy as np
from _pack_cases import MIB, Case, all_cases, halo, vector
from _pack_columns import columns
from _pack_sectors import pack_bytes, sectors, unpack_bytes
from _pack_timing import Copies, Timer
from mpi4py import MPI
from tabulate import tabulate

import gmpi
from gmpi.packing.calls import plan_of, prepared_of
from gmpi.packing.prepare import ENGINES


def verdict(case: Case, row: dict[str, Any]) -> str:
    if case.bar is None:
        return ""
    kind, number = case.bar
    value = {
        "copy": row["copy_share"], "ceiling": row["ceiling_share"], "us": row["pack_us"],
        "TB/s": row["pack_tbs"], "memcpy": (row["memcpy_us"] or 0) / row["pack_us"],
    }[kind]  # fmt: skip
    good = value <= number if kind == "us" else value >= number
    sign = "<=" if kind == "us" else ">="
    row["bar"] = {"kind": kind, "number": number, "value": value, "met": bool(good)}
    return f"{kind} {sign} {number:g}: {'yes' if good else 'NO'}"


def unpack_verdict(case: Case, row: dict[str, Any]) -> str:
    if case.unpack is None:
        return ""
    value = row["unpack_ceiling_share"]
    good = value >= case.unpack
    row["unpack_bar"] = {"kind": "ceiling", "number": case.unpack, "value": value, "met": good}
    return f"{'yes' if good else 'NO'}"


def measure(case: Case, timer: Timer, copies: Copies) -> dict[str, Any]:
    cupy = timer.cupy
    memory = cupy.arange(-(-case.nbytes // 8), dtype=cupy.int64).view(cupy.uint8)[: case.nbytes]
    plan = plan_of(case.datatype)
    size = plan.size * case.count
    out = cupy.zeros(size, cupy.uint8)
    cupy.cuda.Device().synchronize()

    def pack() -> None:
        gmpi.pack(memory, case.datatype, case.count, out, timer.stream)

    def unpack() -> None:
        gmpi.unpack(out, case.datatype, memory, case.count, timer.stream)

    pack()
    timer.stream.synchronize()
    correct = bool((out == case.reference(memory)).all())
    kept = memory.copy()
    memory[:] = 0xA5
    cupy.cuda.Device().synchronize()
    unpack()
    timer.stream.synchronize()
    out[:] = 0
    cupy.cuda.Device().synchronize()
    pack()
    timer.stream.synchronize()
    correct &= bool((out == case.reference(kept)).all())
    touched = int((memory != 0xA5).sum())
    correct &= touched <= size
    del kept
    row: dict[str, Any] = {"name": case.name, "bytes": size, "correct": correct}
    row["pack_us"] = timer.back_to_back(pack)
    row["unpack_us"] = timer.back_to_back(unpack)
    row["cold_us"] = timer.cold(pack)
    copy_us = copies.plain(size)
    best = 2 * 256 * MIB / copies.plain(256 * MIB)
    found = sectors(plan, case.count)
    row["sectors"] = found._asdict()
    row["copy_us"] = copy_us
    row["ceiling_us"] = pack_bytes(found, size, plan.device_bytes) / best
    row["unpack_ceiling_us"] = unpack_bytes(found, size, plan.device_bytes) / best
    row["pack_tbs"] = 2 * size / row["pack_us"] / 1e6
    row["unpack_tbs"] = 2 * size / row["unpack_us"] / 1e6
    row["copy_share"] = copy_us / row["pack_us"]
    row["ceiling_share"] = row["ceiling_us"] / row["pack_us"]
    row["unpack_ceiling_share"] = row["unpack_ceiling_us"] / row["unpack_us"]
    row["memcpy_us"] = copies.memcpy(case, memory.data.ptr, out.data.ptr)
    row["by"], right = by_engine(timer, case, memory, out)
    row["correct"] &= right
    row["verdict"] = verdict(case, row)
    row["unpack_verdict"] = unpack_verdict(case, row)
    return row


def by_engine(timer: Timer, case: Case, memory: Any, out: Any) -> tuple[dict[str, float], bool]:
    """us of ``gmpi.pack`` by each engine that can do it, and as it chooses; whether all are right.

    ``gmpi`` has the best of both if ``auto`` is the less of the other two.
    """
    prepared = prepared_of(case.datatype, case.count)
    found, right = {"auto": 0.0}, True
    for engine in ENGINES:
        if engine == "copy" and prepared.shape is None:
            continue

        def pack(engine: str = engine) -> None:
            gmpi.pack(memory, case.datatype, case.count, out, timer.stream, engine)

        out[:] = 0
        timer.cupy.cuda.Device().synchronize()
        pack()
        timer.stream.synchronize()
        right &= bool((out == case.reference(memory)).all())
        found[engine] = timer.back_to_back(pack)
    return found, right


def measure_halo(timer: Timer, copies: Copies) -> dict[str, Any]:
    """All packs of a halo in one launch, against one cudaMemcpy3D for each region."""
    cupy = timer.cupy
    case, regions = halo()
    memory = cupy.zeros(case.nbytes, cupy.uint8)
    out = cupy.empty(case.datatype.Get_size(), cupy.uint8)
    calls = []
    position = 0
    for region in regions:
        calls.append(copies.memcpy_3d(region, memory.data.ptr, out.data.ptr + position))
        position += region.datatype.Get_size()

    def each() -> None:
        for call in calls:
            call()

    us = timer.back_to_back(each)
    del memory, out
    row = measure(case, timer, copies)
    row["memcpy_us"] = us
    row["verdict"] = verdict(case, row)
    return row


_BY_HAND = r"""
extern "C" __global__ void by_hand(const BLOCK* in, BLOCK* out, unsigned n, unsigned per_block,
                                   unsigned per_pitch) {
  unsigned step = gridDim.x * blockDim.x;
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += 4 * step) {
    BLOCK v[4];
    #pragma unroll
    for (unsigned u = 0; u < 4; u++) {
      unsigned w = i + u * step;
      if (w < n) v[u] = in[(w / per_block) * (size_t)per_pitch + w % per_block];
    }
    #pragma unroll
    for (unsigned u = 0; u < 4; u++) if (i + u * step < n) out[i + u * step] = v[u];
  }
}
"""


def against_by_hand(timer: Timer) -> list[dict[str, Any]]:
    """The general code against a kernel written for exactly one layout."""
    cupy = timer.cupy
    rows = []
    for block, pitch, nbytes in [(64, 128, MIB), (64, 128, 16 * MIB), (64, 128, 256 * MIB),
                                 (8, 512, MIB), (4096, 8192, 256 * MIB)]:  # fmt: skip
        case = vector(block, pitch, nbytes)
        word = 16 if block % 16 == 0 else 8
        source = _BY_HAND.replace("BLOCK", {16: "uint4", 8: "uint2"}[word])
        kernel = cupy.RawKernel(source, "by_hand")
        memory = cupy.zeros(case.nbytes, cupy.uint8)
        out = cupy.zeros(nbytes, cupy.uint8)
        n = nbytes // word
        blocks = min(-(-n // 1024), 132 * 8)
        arguments = (memory, out, np.uint32(n), np.uint32(block // word), np.uint32(pitch // word))

        def by_hand(kernel: Any = kernel, blocks: int = blocks, args: Any = arguments) -> None:
            with timer.stream:
                kernel((blocks,), (256,), args)

        def ours(memory: Any = memory, out: Any = out, case: Case = case) -> None:
            gmpi.pack(memory, case.datatype, 1, out, timer.stream)

        row = {"name": case.name, "by_hand_us": timer.back_to_back(by_hand)}
        row["gmpi_us"] = timer.back_to_back(ours)
        row["ratio"] = row["gmpi_us"] / row["by_hand_us"]
        row["by_hand_device_us"] = timer.on_device(by_hand)
        row["gmpi_device_us"] = timer.on_device(ours)
        row["device_ratio"] = row["gmpi_device_us"] / row["by_hand_device_us"]
        rows.append(row)
    return rows


def by_blocks(timer: Timer) -> list[dict[str, Any]]:
    """How many blocks are enough (paper 001 section 5.3).

    Blocks that are fewer than the tiles take them in turn; ``None``: as ``gmpi.pack`` does it.
    """
    cupy = timer.cupy
    rows = []
    for case in (
        vector(64, 128, 64 * MIB),
        vector(8, 16, 64 * MIB),
        vector(1 << 16, 1 << 17, 64 * MIB),
    ):
        memory = cupy.zeros(case.nbytes, cupy.uint8)
        out = cupy.zeros(64 * MIB, cupy.uint8)
        prepared = prepared_of(case.datatype, 1)
        for blocks in (1, 2, 4, 8, 16, 32, 66, 132, 264, 396, 528, 792, 1056, 2112, None):
            prepared.most_blocks = blocks

            def pack(case: Case = case, memory: Any = memory, out: Any = out) -> None:
                gmpi.pack(memory, case.datatype, 1, out, timer.stream)

            us = timer.back_to_back(pack, 0.02)
            rows.append({"name": case.name, "blocks": blocks, "tbs": 2 * 64 * MIB / us / 1e6})
    return rows


def on_a_busy_gpu(timer: Timer) -> list[dict[str, Any]]:
    """Packing while another kernel computes on a part of the GPU (paper 001 section 5.4).

    That kernel has two warps a scheduler, which depend on their own results: about half of the
    issue slots are left. With all of them taken by older warps, nothing else would move at all.
    """
    cupy = timer.cupy
    other = cupy.cuda.Stream(non_blocking=True)
    case = vector(64, 128, 64 * MIB)
    memory, out = cupy.zeros(case.nbytes, cupy.uint8), cupy.zeros(64 * MIB, cupy.uint8)
    multiprocessors = cupy.cuda.Device().attributes["MultiProcessorCount"]
    rows = []

    def pack() -> None:
        gmpi.pack(memory, case.datatype, 1, out, timer.stream)

    for part, name in [(0.0, "idle"), (0.25, "a quarter"), (0.5, "half"), (1.0, "all")]:
        blocks = int(part * multiprocessors)
        ended = cupy.cuda.Event()
        if blocks:
            with other:
                timer.busy((blocks,), (256,), (timer.sink, np.int64(300_000_000)))
            ended.record(other)
            time.sleep(0.005)
        us = timer.back_to_back(pack, 0.01)
        still_busy = not blocks or not ended.done
        other.synchronize()
        rows.append({"busy": name, "busy_blocks": blocks, "us": us, "throughout": still_busy})
    for row in rows:
        row["loss"] = row["us"] / rows[0]["us"] - 1
    return rows


def plot(path: str, results: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.5))
    sweep = results["sweep"]
    x = [row["block"] for row in sweep]
    for key, label in [("pack_tbs", "gmpi.pack"), ("unpack_tbs", "gmpi.unpack"),
                       ("memcpy_tbs", "cudaMemcpy2D")]:  # fmt: skip
        left.plot(x, [row[key] for row in sweep], "o-", label=label)
    left.axhline(sweep[0]["copy_tbs"], color="gray", linestyle="--", label="plain copy")
    left.set(xscale="log", xlabel="block, bytes (pitch: twice that)", ylabel="read + write, TB/s")
    left.set_title("256 MiB in blocks")
    left.legend()
    names = dict.fromkeys(row["name"] for row in results["by_blocks"])
    for name in names:
        rows = [row for row in results["by_blocks"] if row["name"] == name and row["blocks"]]
        right.plot([r["blocks"] for r in rows], [r["tbs"] for r in rows], "o-", label=name)
    right.set(xscale="log", xlabel="blocks of 256 threads", ylabel="read + write, TB/s")
    right.set_title("How many blocks are enough")
    right.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def sweep(timer: Timer, copies: Copies) -> list[dict[str, Any]]:
    rows = []
    size = 256 * MIB
    for k in range(3, 21):
        row = measure(vector(1 << k, 2 << k, size), timer, copies)
        row["block"] = 1 << k
        row["copy_tbs"] = 2 * size / row["copy_us"] / 1e6
        row["memcpy_tbs"] = 2 * size / row["memcpy_us"] / 1e6
        rows.append(row)
    return rows


def commits() -> dict[str, float]:
    """ms to understand a 3-D object."""
    took = {}
    for part in ((8, 8, 8), (64, 64, 64)):
        best = 1e9
        for _ in range(5):
            datatype = MPI.DOUBLE.Create_subarray((256,) * 3, part, (3, 3, 3))
            begin = time.perf_counter()
            plan_of(datatype)
            best = min(best, time.perf_counter() - begin)
            datatype.Free()
        took["x".join(map(str, part))] = best * 1e3
    return took


def main() -> None:
    parser = _bench.parser(__doc__ or "")
    parser.add_argument("--plot", metavar="FILE", help="two curves as an image")
    parser.add_argument("--only", metavar="WORD", help="only layouts with this word in their name")
    options = parser.parse_args()
    if gmpi.SIMULATOR:
        sys.exit("pack_bench measures a GPU: run it without NUMBA_ENABLE_CUDASIM")
    timer = Timer()
    copies = Copies(timer)
    results: dict[str, Any] = {}
    print(f"# {_bench.where(MPI.COMM_SELF)}", flush=True)
    chosen = [case for case in all_cases() if not options.only or options.only in case.name]
    rows = []
    for case in chosen:
        rows.append(measure(case, timer, copies))
        timer.cupy.get_default_memory_pool().free_all_blocks()
    if not options.only:
        rows.append(measure_halo(timer, copies))
    results["layouts"] = rows
    headers = ["name", "pack_us", "unpack_us", "cold_us", "copy_us", "memcpy_us", "pack_tbs",
               "copy_share", "ceiling_share", "verdict", "unpack_ceiling_share",
               "unpack_verdict"]  # fmt: skip
    table = [[row[c] for c in headers] for row in rows]
    print(tabulate(table, headers, floatfmt=".2f", tablefmt="simple"), flush=True)
    wrong = [row["name"] for row in rows if not row["correct"]]
    results["wrong"] = wrong
    _bench.write_json(options.json, results)
    if not options.only:
        parts: dict[str, Callable[[], Any]] = {
            "by_hand": lambda: against_by_hand(timer), "by_blocks": lambda: by_blocks(timer),
            "busy": lambda: on_a_busy_gpu(timer), "sweep": lambda: sweep(timer, copies),
            "commit_ms": commits, "in_kernel": columns,
        }  # fmt: skip
        for key, measured in parts.items():
            results[key] = measured()
            _bench.write_json(options.json, results)  # each part as soon as it is there
        print(tabulate([r.values() for r in results["by_hand"]], results["by_hand"][0].keys()))
        print(tabulate([r.values() for r in results["busy"]], results["busy"][0].keys()))
        print("commit, ms:", results["commit_ms"])
        print(tabulate([r.values() for r in results["in_kernel"]], results["in_kernel"][0].keys()))
        if options.plot:
            plot(options.plot, results)
    wrong += [row["sent"] for row in results.get("in_kernel", []) if not row["correct"]]
    _bench.write_json(options.json, results)
    if wrong:
        sys.exit(f"wrong bytes: {wrong}")


if __name__ == "__main__":
    main()
