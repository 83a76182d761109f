"""Soak: every kind of message from many blocks for minutes, every payload checked on the device.

    mpirun -n 2 python3 tests/gpu/soak.py [--seconds 480] [--blocks 64] [--json FILE]
                                          [--kind 3] [--bytes 8192] [--direct] [--keep-going]

Each block exchanges messages with the next and the previous rank: bytes of all sizes and
alignments, doubles, strided slices, derived datatypes, wildcards, by Isend, Irecv, Wait, Waitall,
Test, Send, Recv and Sendrecv; two blocks call collectives in between. A line is printed every few
seconds; memory of the process must not grow. Ends with 0 when everything was right.

The first wrong message of each rank is kept and taken apart (``wrong_message``); ``--kind`` and
``--bytes`` narrow a failure down.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import wrong_message
from _bench import write_json

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
KINDS = 8
GROWTH_MIB = 16
# What the kernel counts: wrong statuses, bytes and numbers, messages of each kind; operations;
# whether a wrong message has been kept, and which.
WRONG_STATUS, WRONG_DATA, OPERATIONS, KEPT = range(4)
WRONG_OF_KIND = KEPT + 1 + len(wrong_message.Kept._fields)
COUNTS = WRONG_OF_KIND + KINDS


@cuda.jit(device=True)
def byte_of(k, i, block, rank):  # type: ignore[no-untyped-def]
    return (k * 7 + (k >> 8) * 3 + i * 13 + block * 5 + rank * 101) & 0xFF


@cuda.jit
def soak(  # type: ignore[no-untyped-def]
    ctx, first, rounds, sizes, short, out, room, doubles, back, derived, own, sums, to, source,
    requests, kinds, counts, kept,
):  # fmt: skip
    """``own``: communicators of blocks 0 (reductions), 1 (broadcasts) and 2 (ANY_TAG). ``kept``:
    a wrong message, as it was found and as it was a millisecond later."""
    b = cuda.blockIdx.x
    t = cuda.threadIdx.x
    step = cuda.blockDim.x
    me = gmpi.GMPI_Comm_rank(ctx, gmpi.COMM_WORLD)
    size = gmpi.GMPI_Comm_size(ctx, gmpi.COMM_WORLD)
    done = 0
    bad = 0
    for i in range(first, first + rounds):
        kind = kinds[(i + b) % kinds.size]
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
        if bytes_came:
            for k in range(t, n, step):
                if r[k] != byte_of(k, i, b, source):
                    bad += 1
        if cuda.syncthreads_or(bad):
            cuda.atomic.add(counts, WRONG_DATA, bad)
            bad = 0
            if t == 0:
                cuda.atomic.add(counts, WRONG_OF_KIND + kind, 1)
                if bytes_came and cuda.atomic.cas(counts, KEPT, 0, 1) == 0:
                    counts[KEPT + 1] = b
                    counts[KEPT + 2] = i
                    counts[KEPT + 3] = kind
                    counts[KEPT + 4] = n
                    counts[KEPT + 5] = skew
                    counts[KEPT] = 2 + b
            cuda.syncthreads()
            if counts[KEPT] == 2 + b and counts[KEPT + 2] == i:
                for look in range(2):
                    for k in range(t, n, step):
                        kept[look, k] = r[k]
                    if not gmpi.SIMULATOR:
                        cuda.nanosleep(1000000)
                    cuda.threadfence_system()
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


def sizes_of(chosen: tuple[int, ...], blocks: int) -> tuple[tuple[int, ...], int]:
    """The message sizes, those of at most ``EAGER`` bytes first, and how many those are."""
    if not chosen:
        return (*SHORT, *LONG), len(SHORT)
    sizes = tuple(sorted(chosen))
    short = sum(n <= EAGER for n in sizes)
    if sizes[0] < 1 or (short == 0 and blocks > LONG_BLOCKS):
        raise click.BadParameter(
            f"--bytes {sizes}: at least 1 each; blocks from number {LONG_BLOCKS} on send no more "
            f"than {EAGER}: add such a size, or take --blocks {LONG_BLOCKS}"
        )
    return sizes, short


def wrong_one(counts: np.ndarray, kept: np.ndarray, room: np.ndarray) -> dict[str, Any] | None:
    """What is known of this rank's first wrong message, if there was one."""
    if counts[KEPT] == 0:
        return None
    one = wrong_message.Kept(*(int(c) for c in counts[KEPT + 1 : WRONG_OF_KIND]))
    k = np.arange(one.nbytes)
    expected = byte_of.py_func(k, one.round, one.block, PREVIOUS).astype(np.uint8)
    address = 0
    if not gmpi.SIMULATOR:
        row = room.__cuda_array_interface__["data"][0] + one.block * room.shape[1]
        address = row + 7 - one.skew
    looks = kept[:, : one.nbytes].copy_to_host()
    return {"rank": RANK, **wrong_message.describe(one, looks, expected, address)}


@click.command()
@click.option("--seconds", default=480.0, show_default=True)
@click.option("--blocks", default=64, show_default=True)
@click.option("--threads", default=128, show_default=True)
@click.option("--slice", "slice_s", default=5.0, show_default=True, help="seconds of one kernel")
@click.option(
    "--kind", "kinds", multiple=True, type=click.IntRange(0, KINDS - 1), help="only these"
)
@click.option("--bytes", "chosen", multiple=True, type=int, help="only messages of these sizes")
@click.option("--direct", is_flag=True, help="collectives from GPU to GPU")
@click.option("--keep-going", is_flag=True, help="after something was wrong, too")
@click.option("--json", "path", type=click.Path(), help="where rank 0 writes what it has counted")
def main(
    seconds: float,
    blocks: int,
    threads: int,
    slice_s: float,
    kinds: tuple[int, ...],
    chosen: tuple[int, ...],
    direct: bool,
    keep_going: bool,
    path: str | None,
) -> None:
    sizes, short = sizes_of(chosen, blocks)
    if not gmpi.SIMULATOR:
        gmpi.select_gpu(WORLD)
    kinds = kinds or tuple(range(KINDS))
    with gmpi.Context(WORLD, large_slots=64, eager_bytes=EAGER, chunk_bytes=CHUNK) as g:
        wildcards = (not direct, not direct, True)
        own = np.array([g.comm(WORLD, wildcards=some) for some in wildcards], np.int64)
        vector = MPI.DOUBLE.Create_vector(DERIVED, 1, 3)
        derived = g.commit(vector)
        room = cuda.to_device(np.zeros((blocks, max(sizes) + 16), np.uint8))
        kept = cuda.to_device(np.zeros((2, max(sizes)), np.uint8))
        counts = cuda.to_device(np.zeros(COUNTS, np.int64))
        arrays = [
            cuda.to_device(np.array(sizes, np.int64)), short,
            cuda.to_device(np.zeros((blocks, max(sizes) + 16), np.uint8)), room,
            *(cuda.to_device(np.zeros((blocks, 3 * DERIVED))) for _ in range(2)),
            derived, cuda.to_device(own), cuda.to_device(np.zeros(8)), NEXT, PREVIOUS,
            cuda.to_device(np.zeros((blocks, 8), np.int64)),
            cuda.to_device(np.array(kinds, np.int64)), counts, kept,
        ]  # fmt: skip
        began = time.monotonic()
        rounds, first, operations = KINDS, 0, 0
        log: list[dict[str, float]] = []
        while True:
            slice_began = time.monotonic()
            soak[blocks, threads](g.device, first, rounds, *arrays)
            g.synchronize()
            took = time.monotonic() - slice_began
            found = counts.copy_to_host()
            total = WORLD.allreduce(found)
            wrong = total[:2]
            operations = int(total[OPERATIONS])
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
            if (wrong.any() and not keep_going) or (elapsed >= seconds and len(log) > 1):
                break
            # As many rounds as fit a slice; the first kernel is compiled, the second one tells.
            if len(log) > 1:
                rounds = int(rounds * min(8.0, max(0.25, slice_s / max(took, 1e-3))))
                rounds = WORLD.bcast(max(KINDS, rounds // KINDS * KINDS))
        paths = g.paths
        g.free(derived)
        vector.Free()
        errors = [str(fault) for fault in g.errors[:3]]
    ones = [one for one in WORLD.allgather(wrong_one(found, kept, room)) if one]
    settled = log[len(log) // 4 :]
    growth = max(e["rss_mib"] for e in settled) - settled[0]["rss_mib"]
    flat = growth < GROWTH_MIB
    passed = not wrong.any() and flat and not errors
    if RANK == 0:
        of_kind = [int(n) for n in total[WRONG_OF_KIND:]]
        if wrong.any():
            print(f"{wrong[0]} wrong statuses, {wrong[1]} wrong bytes or numbers: {errors}")
            print(f"wrong messages of each kind: {of_kind}")
            for one in ones:
                print(json.dumps(one))
        if not flat:
            print(f"memory grew by {growth:.1f} MiB")
        report = {
            "program": "soak", "ranks": SIZE, "blocks": blocks, "threads": threads,
            "simulator": gmpi.SIMULATOR,
            "paths": {way: list(ranks) for way, ranks in paths.items()},
            "seconds": log[-1]["seconds"], "operations": operations,
            "wrong": [int(w) for w in wrong], "wrong_of_kind": of_kind, "wrong_messages": ones,
            "growth_mib": round(growth, 1), "passed": passed, "over_time": log,
        }  # fmt: skip
        write_json(path, report)
        print("passed" if passed else "FAILED", flush=True)
    sys.exit(not passed)


if __name__ == "__main__":
    main()
