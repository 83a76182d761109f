"""Soak: every kind of message from many blocks for minutes, every payload checked on the device.

    mpirun -n 2 python3 tests/gpu/soak.py [--seconds 480] [--blocks 64] [--json FILE]

Each block exchanges messages with the next and the previous rank: bytes of all sizes and
alignments, doubles, strided slices, derived datatypes, wildcards, by Isend, Irecv, Wait, Waitall,
Test, Send, Recv and Sendrecv; two blocks call collectives in between. A line is printed every few
seconds; memory of the process must not grow. Ends with 0 when everything was right.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import click
import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size
NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE

# The simulator takes a microsecond for what a GPU does in a cycle: the same ways, shorter.
EAGER = 256 if gmpi.SIMULATOR else 8192
CHUNK = 512 if gmpi.SIMULATOR else 524_288
SHORT = (1, 8, 100, 143, 144, 145, EAGER // 8, EAGER // 2, EAGER - 1, EAGER)
LONG = (EAGER + 1, 4 * EAGER, 8 * EAGER + 1) + (() if gmpi.SIMULATOR else (300_001, 1_234_567))
LONG_BLOCKS = 24  # blocks that send long messages: two large slots each, of 64
DERIVED = 40 if gmpi.SIMULATOR else 500  # doubles of the derived datatype, every third one
WRONG_STATUS, WRONG_DATA, OPERATIONS, FIRST_ROUND, FIRST_KIND = range(5)
KINDS = 8
GROWTH_MIB = 16


@cuda.jit(device=True)
def byte_of(k, i, block, rank):  # type: ignore[no-untyped-def]
    return (k * 7 + (k >> 8) * 3 + i * 13 + block * 5 + rank * 101) & 0xFF


@cuda.jit
def soak(  # type: ignore[no-untyped-def]
    ctx, first, rounds, sizes, short, out, room, doubles, back, derived, own, sums, to, source,
    requests, counts,
):  # fmt: skip
    """``own``: communicators of blocks 0 (reductions), 1 (broadcasts) and 2 (ANY_TAG)."""
    b = cuda.blockIdx.x
    t = cuda.threadIdx.x
    step = cuda.blockDim.x
    me = gmpi.GMPI_Comm_rank(ctx, gmpi.COMM_WORLD)
    size = gmpi.GMPI_Comm_size(ctx, gmpi.COMM_WORLD)
    done = 0
    bad = 0
    for i in range(first, first + rounds):
        kind = (i + b) % KINDS
        most = sizes.size if b < LONG_BLOCKS else short
        n = sizes[(i * 5 + b) % most]
        skew = (i >> 3) & 7
        s = out[b, skew : skew + n]
        r = room[b, 7 - skew : 7 - skew + n]
        for k in range(t, n, step):
            s[k] = byte_of(k, i, b, me)
            r[k] = 0
        for k in range(t, 3 * DERIVED, step):
            doubles[b, k] = 1000.0 * me + b + i + k
            back[b, k] = 0.0
        status = gmpi.GMPI_Wait(ctx, gmpi.REQUEST_NULL)
        error = 0
        bytes_came = True
        if kind == 0:
            q = gmpi.GMPI_Irecv(ctx, r, n, gmpi.BYTE, source, b, gmpi.COMM_WORLD)
            p = gmpi.GMPI_Isend(ctx, s, n, gmpi.BYTE, to, b, gmpi.COMM_WORLD)
            error = gmpi.GMPI_Waitall(ctx, 2, (q, p))
        elif kind == 1:
            status = gmpi.GMPI_Sendrecv(
                ctx, s, n, gmpi.BYTE, to, b, r, n, gmpi.BYTE, source, b, gmpi.COMM_WORLD
            )
        elif kind == 2:  # from whomever
            q = gmpi.GMPI_Irecv(ctx, r, n, gmpi.BYTE, gmpi.ANY_SOURCE, b, gmpi.COMM_WORLD)
            p = gmpi.GMPI_Isend(ctx, s, n, gmpi.BYTE, to, b, gmpi.COMM_WORLD)
            error = gmpi.GMPI_Wait(ctx, p).error
            status = gmpi.GMPI_Wait(ctx, q)
            if status.tag != b or status.source != source or status.nbytes != n:
                error = 1
        elif kind == 3:  # tested for, with any tag where the communicator is the block's own
            comm = gmpi.COMM_WORLD
            tag = b
            wanted = b
            if b == 2:
                comm = own[2]
                tag = i & 0x3FFF
                wanted = gmpi.ANY_TAG
            q = gmpi.GMPI_Irecv(ctx, r, n, gmpi.BYTE, source, wanted, comm)
            p = gmpi.GMPI_Isend(ctx, s, n, gmpi.BYTE, to, tag, comm)
            came = False
            while not came:
                came, status = gmpi.GMPI_Test(ctx, q)
            if status.tag != tag:
                error = 1
            if gmpi.GMPI_Wait(ctx, p).error != 0:
                error = 1
        elif kind == 4:  # several at once
            bytes_came = False
            part = 3 * DERIVED // 4
            for j in range(4):
                piece = back[b, j * part : (j + 1) * part]
                h = gmpi.GMPI_Irecv(ctx, piece, part, gmpi.DOUBLE, source, b, gmpi.COMM_WORLD)
                if t == 0:
                    requests[b, j] = h
            for j in range(4):
                piece = doubles[b, j * part : (j + 1) * part]
                h = gmpi.GMPI_Isend(ctx, piece, part, gmpi.DOUBLE, to, b, gmpi.COMM_WORLD)
                if t == 0:
                    requests[b, 4 + j] = h
            cuda.syncthreads()
            error = gmpi.GMPI_Waitall(ctx, 8, requests[b])
            for k in range(t, 4 * part, step):
                if back[b, k] != 1000.0 * source + b + i + k:
                    bad += 1
            done += 6
        elif kind == 5:  # every third double out of a derived datatype, into a strided slice
            bytes_came = False
            q = gmpi.GMPI_Irecv(
                ctx, back[b, 0 : 3 * DERIVED : 3], DERIVED, gmpi.DOUBLE, source, b, gmpi.COMM_WORLD
            )
            p = gmpi.GMPI_Isend(ctx, doubles[b], 1, derived, to, b, gmpi.COMM_WORLD)
            error = gmpi.GMPI_Waitall(ctx, 2, (p, q))
            for k in range(t, 3 * DERIVED, step):
                expected = 1000.0 * source + b + i + k if k % 3 == 0 else 0.0
                if back[b, k] != expected:
                    bad += 1
        elif kind == 6 and b == 0:
            bytes_came = False
            error = gmpi.GMPI_Allreduce(
                ctx, doubles[b], back[b], 5 + i % DERIVED, gmpi.DOUBLE, gmpi.SUM, own[0]
            )
            for k in range(t, 5 + i % DERIVED, step):
                if back[b, k] != 500.0 * size * (size - 1) + size * float(b + i + k):
                    bad += 1
        elif kind == 6 and b == 1:
            bytes_came = False
            root = i % size
            error = gmpi.GMPI_Bcast(ctx, s, n, gmpi.BYTE, root, own[1])
            for k in range(t, n, step):
                if s[k] != byte_of(k, i, b, root):
                    bad += 1
            if gmpi.GMPI_Barrier(ctx, own[1]) != 0:
                error = 1
        elif (me % 2 == 0 and me + 1 < size) or size == 1:  # blocking, even ranks first
            q = gmpi.GMPI_Irecv(ctx, r, n, gmpi.BYTE, source, b, gmpi.COMM_WORLD)
            error = gmpi.GMPI_Send(ctx, s, n, gmpi.BYTE, to, b, gmpi.COMM_WORLD).error
            status = gmpi.GMPI_Wait(ctx, q)
        else:
            p = gmpi.GMPI_Isend(ctx, s, n, gmpi.BYTE, to, b, gmpi.COMM_WORLD)
            status = gmpi.GMPI_Recv(ctx, r, n, gmpi.BYTE, source, b, gmpi.COMM_WORLD)
            error = gmpi.GMPI_Wait(ctx, p).error
        done += 2
        if t == 0 and (error != 0 or status.error != 0):
            cuda.atomic.add(counts, WRONG_STATUS, 1)
            cuda.atomic.max(counts, FIRST_ROUND, i)
            cuda.atomic.max(counts, FIRST_KIND, kind)
        if bytes_came:
            for k in range(t, n, step):
                if r[k] != byte_of(k, i, b, source):
                    bad += 1
        if bad != 0:
            cuda.atomic.add(counts, WRONG_DATA, bad)
            cuda.atomic.max(counts, FIRST_ROUND, i)
            cuda.atomic.max(counts, FIRST_KIND, kind)
            bad = 0
        cuda.syncthreads()
    if t == 0:
        cuda.atomic.add(counts, OPERATIONS, done)


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def gpu_mib() -> float:
    if gmpi.SIMULATOR:
        return 0.0
    free, total = cuda.current_context().get_memory_info()
    return (total - free) / 2**20


@click.command()
@click.option("--seconds", default=480.0, show_default=True)
@click.option("--blocks", default=64, show_default=True)
@click.option("--threads", default=128, show_default=True)
@click.option("--slice", "slice_s", default=5.0, show_default=True, help="seconds of one kernel")
@click.option("--json", "path", type=click.Path(), help="where rank 0 writes what it has counted")
def main(seconds: float, blocks: int, threads: int, slice_s: float, path: str | None) -> None:
    if not gmpi.SIMULATOR:
        gmpi.select_gpu(WORLD)
    sizes = (*SHORT, *LONG)
    with gmpi.Context(WORLD, large_slots=64, eager_bytes=EAGER, chunk_bytes=CHUNK) as g:
        own = np.array([g.comm(WORLD) for _ in range(3)], np.int64)
        vector = MPI.DOUBLE.Create_vector(DERIVED, 1, 3)
        derived = g.commit(vector)
        arrays = [
            cuda.to_device(np.array(sizes, np.int64)), len(SHORT),
            *(cuda.to_device(np.zeros((blocks, max(sizes) + 16), np.uint8)) for _ in range(2)),
            *(cuda.to_device(np.zeros((blocks, 3 * DERIVED))) for _ in range(2)),
            derived, cuda.to_device(own), cuda.to_device(np.zeros(8)), NEXT, PREVIOUS,
            cuda.to_device(np.zeros((blocks, 8), np.int64)),
        ]  # fmt: skip
        zeros = np.zeros(5, np.int64)
        counts = cuda.to_device(zeros)
        began = time.monotonic()
        rounds, first, operations = KINDS, 0, 0
        log: list[dict[str, float]] = []
        wrong = np.zeros(2, np.int64)
        while True:
            counts.copy_to_device(zeros)
            slice_began = time.monotonic()
            soak[blocks, threads](g.device, first, rounds, *arrays, counts)
            g.synchronize()
            took = time.monotonic() - slice_began
            found = counts.copy_to_host()
            wrong += WORLD.allreduce(found[:2])
            operations += int(WORLD.allreduce(int(found[OPERATIONS])))
            first += rounds
            elapsed = WORLD.bcast(time.monotonic() - began)
            entry = {
                "seconds": round(elapsed, 1), "operations": operations, "wrong": int(wrong.sum()),
                "rss_mib": round(WORLD.allreduce(resident_mib(), MPI.MAX), 1),
                "gpu_mib": round(WORLD.allreduce(gpu_mib(), MPI.MAX), 1),
            }  # fmt: skip
            log.append(entry)
            if RANK == 0:
                print(
                    f"{entry['seconds']:8.1f} s {operations / 1e6:9.3f} M operations, "
                    f"{entry['wrong']} wrong, {entry['rss_mib']:.1f} MiB in the process, "
                    f"{entry['gpu_mib']:.0f} MiB on the GPU",
                    flush=True,
                )
            if wrong.any() or elapsed >= seconds:
                break
            # As many rounds as fit a slice; the first kernel is compiled, the second one tells.
            if len(log) > 1:
                rounds = int(rounds * min(8.0, max(0.25, slice_s / max(took, 1e-3))))
                rounds = WORLD.bcast(max(KINDS, rounds // KINDS * KINDS))
        g.free(derived)
        vector.Free()
        errors = [str(fault) for fault in g.errors[:3]]
    settled = log[len(log) // 4 :]
    growth = max(e["rss_mib"] for e in settled) - settled[0]["rss_mib"]
    flat = growth < GROWTH_MIB
    passed = not wrong.any() and flat and not errors
    if RANK == 0:
        if wrong.any():
            print(
                f"{wrong[0]} wrong statuses, {wrong[1]} wrong bytes or numbers, the last in round "
                f"{found[FIRST_ROUND]}, kind {found[FIRST_KIND]}: {errors}"
            )
        if not flat:
            print(f"memory grew by {growth:.1f} MiB")
        report = {
            "program": "soak", "ranks": SIZE, "blocks": blocks, "threads": threads,
            "simulator": gmpi.SIMULATOR, "mpi": MPI.Get_library_version().splitlines()[0],
            "seconds": log[-1]["seconds"], "operations": operations,
            "wrong": [int(w) for w in wrong], "growth_mib": round(growth, 1), "passed": passed,
            "over_time": log,
        }  # fmt: skip
        if path:
            Path(path).write_text(json.dumps(report, indent=1) + "\n")
        print("passed" if passed else "FAILED", flush=True)
    sys.exit(not passed)


if __name__ == "__main__":
    main()
