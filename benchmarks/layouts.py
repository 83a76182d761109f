"""What the papers measure of layouts between two ranks: shapes by size, blocks, pipelines.

    mpiexec -n 2 python benchmarks/layouts.py [--only PART ...] [--json FILE]

* ``matrices``: parts of a matrix (V, T, stair, C, transpose), by its size, on both roads, by grid
  scope;
* ``blocks``: the largest sub-matrix by the number of blocks of the grid: how many are enough;
* ``pitched``: 1 KiB, 1 MiB and 4 MiB of short blocks at a pitch of 512 bytes, by one block;
* ``pipelines``: a long message by the size of its chunks, through GPU staging and through host
  memory;
* ``gaps``, only if it is named: short blocks at a pitch of 1024 bytes on the direct road, by one
  block of 32, 256 and 1024 threads.

One way times, half a round trip; all elements are checked.
"""

from __future__ import annotations

import sys
from typing import Any

import _grid_types
import numpy as np
import roads
from _bench import fail, parser, summary, two_ranks, write_json
from _floor import cycles_per_us
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import GMPI_Irecv, GMPI_Isend, GMPI_Wait

SIZES = (8, 16) if gmpi.SIMULATOR else (256, 512, 1024, 2048, 4096)
PITCH = 512
WIDE_PITCH = 1024
GAPS = ((1024, 8), (4096, 512), (32768, 8), (32768, 512), (131072, 512))  # bytes, of a block
STRIDED = (1024, 4096) if gmpi.SIMULATOR else (1024, 1 << 20, 4 << 20)
BLOCKS = (8, 64, 512)
LONG = 40_000 if gmpi.SIMULATOR else 16 << 20
PARTS = ("matrices", "blocks", "pitched", "pipelines", "gaps")
CHUNKS = (4096, 16384) if gmpi.SIMULATOR else tuple(1 << k for k in range(16, 23))


# wide: a kernel
@cuda.jit
def exchange(ctx, out, back, datatype, me, rounds, skip, cycles, comm):
    """One element of a datatype there and back, by one block."""
    peer = 1 - me
    for i in range(rounds):
        begin = gmpi.clock()
        receive = GMPI_Irecv(ctx, back, 1, datatype, peer, 1, comm)
        if me == 1:
            GMPI_Wait(ctx, receive)
        send = GMPI_Isend(ctx, out, 1, datatype, peer, 1, comm)
        GMPI_Wait(ctx, send)
        if me == 0:
            GMPI_Wait(ctx, receive)
        if cuda.threadIdx.x == 0 and i >= skip:
            cycles[i - skip] = gmpi.clock() - begin


def strided(
    g: gmpi.Context,
    comm: MPI.Comm,
    nbytes: int,
    block: int,
    threads: int,
    road: int,
    pitch: int = PITCH,
) -> dict[str, float]:
    """One way of blocks at a pitch."""
    rows = nbytes // block
    datatype = MPI.BYTE.Create_hvector(rows, block, pitch)
    handle = g.commit(datatype)
    rounds, skip = (3, 1) if gmpi.SIMULATOR else (100, 10)
    given = np.random.default_rng(comm.rank).integers(0, 256, rows * pitch).astype(np.uint8)
    out, back = cuda.to_device(given), cuda.to_device(np.zeros(rows * pitch, np.uint8))
    cycles = cuda.to_device(np.zeros(rounds, np.int64))
    comm.Barrier()
    arguments = (comm.rank, rounds + skip, skip, cycles, road)
    exchange[1, threads](g.device, out, back, handle, *arguments)
    g.synchronize()
    other = np.random.default_rng(1 - comm.rank).integers(0, 256, rows * pitch).astype(np.uint8)
    wanted = np.where(np.arange(rows * pitch) % pitch < block, other, 0)
    if comm.allreduce(int((back.copy_to_host() != wanted).sum())):
        fail(f"{nbytes} bytes in blocks of {block}: wrong bytes")
    g.free(handle)
    return summary(cycles.copy_to_host() / cycles_per_us() / 2)


def gaps(g: gmpi.Context, comm: MPI.Comm) -> list[dict[str, Any]]:
    """Short blocks at WIDE_PITCH on the direct road, by threads."""
    cases = GAPS[:1] if gmpi.SIMULATOR else GAPS
    return [
        {"threads": threads, "size": n, "block": block, "pitch": WIDE_PITCH}
        | strided(g, comm, n, block, threads, gmpi.COMM_WORLD, WIDE_PITCH)
        for threads in ((32,) if gmpi.SIMULATOR else (32, 256, 1024))
        for n, block in cases
    ]


def matrices(g: gmpi.Context, comm: MPI.Comm, ways: dict[str, int], args: Any) -> list[Any]:
    most = roads.most_blocks(g, comm, args.threads)
    return [
        {
            "road": road,
            "n": n,
            "threads": args.threads,
            **_grid_types.row(g, comm, name, args.threads, most, n, handle),
        }
        for road, handle in ways.items()
        for n in args.sizes
        for name in _grid_types.cases(n)
    ]


def blocks(g: gmpi.Context, comm: MPI.Comm, ways: dict[str, int], args: Any) -> list[Any]:
    most = roads.most_blocks(g, comm, args.threads)
    counts = [1 << k for k in range(most.bit_length()) if 1 << k < most] + [most]
    n = args.sizes[-1]
    return [
        {"n": n, **_grid_types.row(g, comm, "sub-matrix", args.threads, count, n)}
        for count in counts
    ]


def pitched(g: gmpi.Context, comm: MPI.Comm, ways: dict[str, int], args: Any) -> list[Any]:
    return [
        {
            "road": road,
            "size": n,
            "block": block,
            **strided(g, comm, n, block, args.threads, handle),
        }
        for road, handle in ways.items()
        for n in STRIDED
        for block in BLOCKS
    ]


def pipelines(comm: MPI.Comm, threads: int) -> list[dict[str, Any]]:
    """A long message on the proxied road, by chunk size: a context for each."""
    rows = []
    for staging in (True, False):
        for chunk in CHUNKS:
            with gmpi.Context(comm, gpu_staging=staging, chunk_bytes=chunk) as g:
                found = roads.latency(g, comm, gmpi.COMM_WORLD, LONG, threads)
            way = "GPU staging" if staging else "host memory"
            rows.append({"staging": way, "chunk_bytes": chunk, "size": LONG, **found})
            if comm.rank == 0:
                print(f"# {way}, chunks of {chunk}: {found['p50']:.1f} us", flush=True)
    return rows


def main() -> int:
    args_parser = parser(__doc__ or "")
    args_parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS[:-1])
    args_parser.add_argument("--threads", type=int, default=32 if gmpi.SIMULATOR else 256)
    args_parser.add_argument("--roads", nargs="+", default=["direct", "proxied"])
    args_parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="of the matrices")
    args = args_parser.parse_args()
    comm, place, _ = two_ranks(None)
    found: dict[str, Any] = {"benchmark": "layouts", "where": place}

    def keep(key: str, rows: list[dict[str, Any]]) -> None:  # each as soon as it is there
        found[key] = rows
        if comm.rank == 0:
            write_json(args.json, found)

    with gmpi.Context(comm, wildcards=False) as g:
        other = comm.Dup()
        ways = {"direct": gmpi.COMM_WORLD, "proxied": g.comm(other)}
        ways = {road: ways[road] for road in args.roads}
        for key, measure in (("matrices", matrices), ("blocks", blocks), ("pitched", pitched)):
            if key in args.only:
                keep(key, measure(g, comm, ways, args))
        if "gaps" in args.only:
            keep("gaps", gaps(g, comm))
        other.Free()
    if "pipelines" in args.only:
        keep("pipelines", pipelines(comm, args.threads))
    if comm.rank == 0:
        print("# all elements checked: all right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
