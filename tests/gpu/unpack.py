"""Unpacking short blocks on one GPU: as it is, and kernels that deal words out in other ways.

    python3 tests/gpu/unpack.py TREE --json FILE               # gmpi.pack and gmpi.unpack of a tree
    python3 tests/gpu/unpack.py TREE --json FILE --variants    # and what is tried
    python3 tests/gpu/unpack.py TREE --json FILE --odd         # blocks of no whole words only
    python3 tests/gpu/unpack.py TREE --once                    # each unpack once, for a profiler

Every result is compared, gaps too. A share is of the layout's own ceiling: what a copy in the same
run would take for the sectors written, those that are written in part twice, and the packed bytes.
``unpack.sh`` puts a former tree beside this one.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ARGUMENTS = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
ARGUMENTS.add_argument("tree", type=Path)
ARGUMENTS.add_argument("--json", metavar="FILE")
ARGUMENTS.add_argument("--variants", action="store_true")
ARGUMENTS.add_argument("--odd", action="store_true")
ARGUMENTS.add_argument("--once", action="store_true")

ODD = [(17, 24), (33, 40), (100, 105), (1, 2), (2, 4), (3, 4), (5, 8)]
TRIED = [(8, 16), (32, 64), (64, 128), (128, 256), (12, 20), (24, 40), (48, 80)]
CASES = [*TRIED[:1], (16, 32), *TRIED[1:], *ODD]
PACKED = 256 << 20
_STORES = r"""
extern "C" __global__ void stores(WORD* to, unsigned n, unsigned block, unsigned pitch) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  WORD v;
  v.x = v.y = i;
  if (i < n) to[(i / block) * (size_t)pitch + i % block] = v;
}
"""


class Variant(NamedTuple):
    """A way to unpack: its name, the kernel's body, and (words) -> blocks and arguments."""

    name: str
    body: Callable
    arguments: list[int]
    blocks: int
    threads: int


def bytes_of(block: int, pitch: int) -> int:
    """Read and written at least by an unpack of so many bytes; both ends are at sectors."""
    import numpy as np

    # The blocks of a whole number of sectors.
    count = 32
    covered = np.zeros(count * pitch, bool).reshape(count, pitch)
    covered[:, :block] = True
    of_sector = covered.reshape(-1, 32).sum(1)
    sectors = int((of_sector > 0).sum()) + int(((of_sector > 0) & (of_sector < 32)).sum())
    return round(32 * sectors / count * (PACKED // block)) + PACKED // block * block


def hints() -> dict[str, tuple[Any, Any]]:
    """Loads and stores of 16 bytes with hints to the caches; ``None``: as they are."""
    from numba.cuda import types

    from device_lib.platform.ptx import ptx

    def store(how: str, policy: str = "") -> Any:
        make = f".reg .b64 c; createpolicy.fractional.L2::{policy}.b64 c, 1.0; " if policy else ""
        at = ", c" if policy else ""
        text = "{ .reg .pred p; %ssetp.ne.u64 p, $3, 0; @p st.global%s.v2.u64 [$0], {$1, $2}%s; }"
        return ptx(text % (make, how, at), "l,l,l,l", types.void, 4)

    def load(how: str, policy: str = "") -> Any:
        make = f".reg .b64 c; createpolicy.fractional.L2::{policy}.b64 c, 1.0; " if policy else ""
        at = ", c" if policy else ""
        text = "{ .reg .pred p; %ssetp.ne.u64 p, $3, 0; @p ld.global%s.v2.u64 {$0, $1}, [$2]%s; }"
        pair = types.UniTuple(types.int64, 2)
        return ptx(text % (make, how, at), "=l,=l,l,l", pair, 2)

    hinted = ".L2::cache_hint"
    first = load(f".nc{hinted}", "evict_first")
    return {
        "st.cs": (None, store(".cs")),
        "st evict_first": (None, store(hinted, "evict_first")),
        "st evict_last": (None, store(hinted, "evict_last")),
        "st.wt": (None, store(".wt")),
        "ld evict_first": (first, None),
        "ld evict_first, st evict_last": (first, store(hinted, "evict_last")),
        "ld.cs": (load(".cs"), None),
        "ld 256B": (load(".nc.L2::256B"), None),
    }


def variants(block: int, pitch: int) -> Iterator[Variant]:
    """What is tried for blocks of words."""
    from gmpi.packing import kernels_along, kernels_strided
    from gmpi.packing.kernels_strided import Shape

    width = next(w for w in (16, 8, 4) if block % w == 0 and pitch % w == 0)
    count = PACKED // block
    numbers = kernels_strided.numbers_of(width, block, [(count, pitch)])
    assert numbers is not None
    aligned = not kernels_along.splits_sectors(width, block, pitch)
    shapes = [(f"T{t} U1", Shape(t, 1)) for t in (64, 128, 256, 512, 1024)]
    for words in (2, 4):
        shapes += [(f"T{t} U{words}", Shape(t, words)) for t in (128, 256)]
        shapes += [(f"T{t} U{words} near", Shape(t, words, True)) for t in (64, 128, 256)]
    if width == 16:
        for name, (load, store) in hints().items():
            shapes += [(f"T{t} U1 {name}", Shape(t, 1, False, load, store)) for t in (128, 256)]
    for name, shape in shapes if aligned else shapes[:8]:
        body = kernels_strided.strided_body(width, 1, True, shape)
        blocks = -(-numbers[0] // (shape.threads * shape.words))
        yield Variant(name, body, [0, 0, *numbers], blocks, shape.threads)
    for threads, words in () if aligned else ((128, 1), (128, 2), (256, 1), (256, 2), (256, 4)):
        for near in (False, True)[: 1 + (words > 1)]:
            shape = Shape(threads, words, near)
            found = kernels_along.along(width, block, [(count, pitch)], shape)
            assert found is not None
            body = kernels_along.along_body(width, 0, shape)
            name = f"along T{threads} U{words}{' near' if near else ''}"
            yield Variant(name, body, found.arguments, found.blocks, threads)


def odd_variants(block: int, pitch: int) -> Iterator[Variant]:
    """What is tried for blocks of no whole number of words."""
    from gmpi.packing import kernels_bytes
    from gmpi.packing.kernels_strided import Shape

    width = kernels_bytes.width_of(block)
    for threads, words in ((256, 1), (128, 2), (256, 2), (512, 2), (128, 4), (256, 4), (128, 8)):
        for near in (False, True)[: 1 + (words > 1)]:
            shape = Shape(threads, words, near)
            found = kernels_bytes.bytes_along(block, [(PACKED // block, pitch)], shape)
            assert found is not None
            body = kernels_bytes.bytes_body(width, 0, shape)
            name = f"bytes T{threads} U{words}{' near' if near else ''}"
            yield Variant(name, body, found.arguments, found.blocks, threads)


class Bench:
    """Memory for the largest case, and what is timed on it."""

    def __init__(self) -> None:
        import cupy
        from _pack_timing import Copies, Timer

        self.cupy = cupy
        self.timer = Timer()
        self.memory = cupy.empty(PACKED // 8 * 16 + 4096, cupy.uint8)
        self.packed = cupy.random.randint(0, 256, PACKED, dtype=cupy.uint8)
        self.copy_us = Copies(self.timer).plain(PACKED)
        self.rate = 2 * PACKED / self.copy_us

    def right(self, block: int, pitch: int, call: Callable[[], None]) -> bool:
        """Whether a call unpacks every byte, and writes no other one."""
        n = PACKED // block
        self.memory[:] = 0xA5
        self.cupy.cuda.Device().synchronize()
        call()
        self.timer.stream.synchronize()
        rows = self.memory[: n * pitch].reshape(n, pitch)
        good = (rows[:, :block] == self.packed[: n * block].reshape(n, block)).all()
        return bool(good) and bool((rows[:, block:] == 0xA5).all())

    def row(self, block: int, pitch: int, name: str, call: Callable[[], None]) -> dict[str, Any]:
        right = self.right(block, pitch, call)
        us = self.timer.back_to_back(call, 0.02)
        share = bytes_of(block, pitch) / self.rate / us
        case = f"{block} B every {pitch} B"
        return {"case": case, "variant": name, "us": us, "share": share, "right": right}

    def as_it_is(self, block: int, pitch: int) -> list[dict[str, Any]]:
        from mpi4py import MPI

        import gmpi

        datatype = MPI.BYTE.Create_hvector(PACKED // block, block, pitch)

        def unpack() -> None:
            gmpi.unpack(self.packed, datatype, self.memory, 1, self.timer.stream)

        def pack() -> None:
            gmpi.pack(self.memory, datatype, 1, self.packed, self.timer.stream)

        found = [self.row(block, pitch, "as it is", unpack)]
        us = self.timer.back_to_back(pack, 0.02)
        found.append({**found[0], "variant": "pack", "us": us, "share": None})
        return found

    def tried(self, block: int, pitch: int) -> Iterator[dict[str, Any]]:
        from gmpi.packing import kernels_bytes, kernels_strided
        from gmpi.packing.driver import Launch, device_number, kernel

        words = block % 4 == 0 and pitch % 4 == 0
        for one in (variants if words else odd_variants)(block, pitch):
            registers = kernels_strided.REGISTERS if words else kernels_bytes.REGISTERS
            code = kernel(device_number(), one.body, len(one.arguments), registers)
            launch = Launch(code, one.arguments, one.blocks, 0, one.threads)

            def call(launch: Any = launch) -> None:
                launch(self.memory.data.ptr, self.packed.data.ptr, self.timer.stream)

            yield self.row(block, pitch, one.name, call)

    def stores_alone(self, block: int, pitch: int) -> dict[str, Any]:
        """us of the same stores with nothing to load: what is left of the time is reading."""
        import numpy as np

        width = 16 if block % 16 == 0 else 8
        source = _STORES.replace("WORD", {16: "uint4", 8: "uint2"}[width])
        source = source.replace(
            "v.x = v.y", "v.x = v.y = v.z = v.w" if width == 16 else "v.x = v.y"
        )
        code = self.cupy.RawKernel(source, "stores")
        n = PACKED // width
        numbers = np.uint32(n), np.uint32(block // width), np.uint32(pitch // width)

        def call() -> None:
            code((-(-n // 256),), (256,), (self.memory, *numbers), stream=self.timer.stream)

        us = self.timer.back_to_back(call, 0.02)
        case = f"{block} B every {pitch} B"
        return {"case": case, "variant": "stores alone", "us": us, "share": None, "right": True}

    def by_granularity(self) -> Iterator[dict[str, Any]]:
        """Whether it matters how much the L2 cache fetches at once, a limit of the CUDA context."""
        from cuda.bindings import driver

        limit = driver.CUlimit.CU_LIMIT_MAX_L2_FETCH_GRANULARITY
        error, before = driver.cuCtxGetLimit(limit)
        for nbytes in (32, 64, 128):
            (error,) = driver.cuCtxSetLimit(limit, nbytes)
            for block, pitch in ((8, 16), (32, 64), (64, 128)):
                for row in self.as_it_is(block, pitch):
                    name = f"{row['variant']}, L2 fetches {nbytes} ({error.name})"
                    yield {**row, "variant": name}
        driver.cuCtxSetLimit(limit, before)


def main() -> int:
    args = ARGUMENTS.parse_args()
    tree = args.tree.resolve()
    sys.path[:0] = [str(tree), str(tree / "benchmarks"), str(tree / "examples")]
    from _bench import machine, write_json

    import gmpi

    if tree not in Path(gmpi.__file__).resolve().parents:
        sys.exit(f"gmpi is {gmpi.__file__}, not of {tree}")
    if gmpi.SIMULATOR:
        sys.exit("unpack.py measures a GPU: run it without NUMBA_ENABLE_CUDASIM")
    bench = Bench()
    if args.once:
        return once(bench)
    rows: list[dict[str, Any]] = []
    for case in ODD if args.odd else CASES:
        rows += bench.as_it_is(*case)
    if args.variants:
        for case in ODD if args.odd else [*TRIED, *ODD]:
            if case[0] % 8 == 0:
                rows.append(bench.stores_alone(*case))
            rows += bench.tried(*case)
        if not args.odd:
            rows += bench.by_granularity()
    write_json(args.json, {"benchmark": "unpack", "copy_us": bench.copy_us, "rows": rows})
    wrong = [f"{row['case']}: {row['variant']}" for row in rows if not row["right"]]
    if wrong:
        print(json.dumps({"wrong": wrong, "machine": machine()["commit"]}))
    return 1 if wrong else 0


def once(bench: Bench) -> int:
    """Every unpack once while a profiler looks; the order is that of ``CASES``."""
    from mpi4py import MPI

    import gmpi

    for block, pitch in CASES:
        datatype = MPI.BYTE.Create_hvector(PACKED // block, block, pitch)
        for profiled in (False, True):
            bench.timer.stream.synchronize()
            if profiled:
                bench.cupy.cuda.profiler.start()
            gmpi.unpack(bench.packed, datatype, bench.memory, 1, bench.timer.stream)
            bench.timer.stream.synchronize()
            if profiled:
                bench.cupy.cuda.profiler.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
