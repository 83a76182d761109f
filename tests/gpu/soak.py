"""Soak: every kind of message from many blocks for minutes, every payload checked on the device.

    mpirun -n 2 python3 tests/gpu/soak.py [--seconds 480] [--messages N] [--blocks 64] [--direct]
                                          [--flood] [--json FILE] [--kind 3] [--bytes 8192]
                                          [--keep-going]

Each block exchanges messages with the next and the previous rank: bytes of all sizes and
alignments, doubles, strided slices, derived datatypes, wildcards, partitioned requests and messages
of single warps, by Isend, Irecv, Wait, Waitall, Test, Send, Recv and Sendrecv, every other 16
rounds into memory that peers can write; two blocks call collectives in between. ``--direct``:
all on communicators without wildcards, but for what is received from ANY_SOURCE or with ANY_TAG.
``--flood``: other blocks store to memory of the host meanwhile, so that stores come late.
A line is printed every few seconds; memory of the process must not grow. Ends with 0 when
everything was right.

The first wrong message of each rank is kept and taken apart (``wrong_message``); ``--kind`` and
``--bytes`` narrow a failure down.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi

sys.path.insert(0, str(Path(__file__).parent))
import soak_loop
import wrong_message
from soak_kernel import (
    ALIGNED,
    CHUNK,
    COUNTS,
    DERIVED,
    EAGER,
    KEPT,
    KINDS,
    LONG,
    LONG_BLOCKS,
    PART_BYTES,
    PARTS,
    ROOM,
    SHORT,
    WARP_BYTES,
    WRONG_OF_KIND,
    byte_of,
    in_landing,
    soak,
)
from soak_loop import RANK, WORLD

SIZE = WORLD.size
NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE


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


def partitioned_requests(g: gmpi.Context, blocks: int) -> tuple[np.ndarray, Any, Any]:
    """(send, receive) of each block, and the arrays that they send from and receive into."""
    shape = blocks, PARTS * max(PART_BYTES)
    ready, arrived = cuda.to_device(np.zeros(shape, np.uint8)), g.zeros(shape, np.uint8)
    pairs = np.empty((blocks, 2), np.int64)
    for b in range(blocks):
        part = PART_BYTES[b % len(PART_BYTES)]
        out, into = ready[b, : PARTS * part], arrived[b, : PARTS * part]
        pairs[b, 0] = g.Psend_init(out, PARTS, part, gmpi.BYTE, NEXT, b)
        pairs[b, 1] = g.Precv_init(into, PARTS, part, gmpi.BYTE, PREVIOUS, b)
    return pairs, ready, arrived


def wrong_one(counts: np.ndarray, kept: np.ndarray, rooms: list[Any]) -> dict[str, Any] | None:
    """What is known of this rank's first wrong message, if there was one."""
    if counts[KEPT] == 0:
        return None
    one = wrong_message.Kept(*(int(c) for c in counts[KEPT + 1 : WRONG_OF_KIND]))
    k = np.arange(one.nbytes)
    expected = byte_of.py_func(k, one.round, one.block, PREVIOUS).astype(np.uint8)
    address = 0
    if not gmpi.SIMULATOR:
        room = rooms[in_landing.py_func(one.round)]
        row = room.__cuda_array_interface__["data"][0] + one.block * room.shape[1]
        address = row + one.at
    looks = kept[:, : one.nbytes].copy_to_host()
    return {"rank": RANK, **wrong_message.describe(one, looks, expected, address)}


@click.command()
@soak_loop.options(seconds=480.0, blocks=64, threads=128)
@click.option("--messages", "enough", default=0, help="ends when so many have come")
@click.option(
    "--kind", "kinds", multiple=True, type=click.IntRange(0, KINDS - 1), help="only these"
)
@click.option("--bytes", "chosen", multiple=True, type=int, help="only messages of these sizes")
@click.option("--direct", is_flag=True, help="from GPU to GPU without the proxies")
@click.option("--flood", is_flag=True, help="as many blocks again store to memory of the host")
@click.option("--keep-going", is_flag=True, help="after something was wrong, too")
def main(
    seconds: float,
    enough: int,
    blocks: int,
    threads: int,
    slice_s: float,
    kinds: tuple[int, ...],
    chosen: tuple[int, ...],
    direct: bool,
    flood: bool,
    keep_going: bool,
    path: str | None,
) -> None:
    sizes, short = sizes_of(chosen, blocks)
    if not gmpi.SIMULATOR:
        gmpi.select_gpu(WORLD)
    kinds = kinds or tuple(range(KINDS))
    wildcards = (not direct, not direct, True, True)
    with gmpi.Context(
        WORLD, wildcards=not direct, large_slots=64, eager_bytes=EAGER, chunk_bytes=CHUNK
    ) as g:
        own = np.array([g.comm(WORLD, wildcards=some) for some in wildcards], np.int64)
        vector = MPI.DOUBLE.Create_vector(DERIVED, 1, 3)
        derived = g.commit(vector)
        most = max(*sizes, threads // 32 * WARP_BYTES) + ROOM
        shape = blocks, (most + ALIGNED - 1) // ALIGNED * ALIGNED
        rooms = [cuda.to_device(np.zeros(shape, np.uint8)), g.zeros(shape, np.uint8)]
        pairs, ready, arrived = partitioned_requests(g, blocks)
        kept = cuda.to_device(np.zeros((2, max(sizes)), np.uint8))
        counts = cuda.to_device(np.zeros(COUNTS, np.int64))
        grid, for_flood = soak_loop.beside(blocks, flood)
        arrays = [
            cuda.to_device(np.array(sizes, np.int64)), short,
            cuda.to_device(np.zeros(shape, np.uint8)), *rooms,
            *(cuda.to_device(np.zeros((blocks, 3 * DERIVED))) for _ in range(2)),
            derived, cuda.to_device(own), NEXT, PREVIOUS,
            cuda.to_device(np.zeros((blocks, 8), np.int64)), cuda.to_device(pairs), ready, arrived,
            cuda.to_device(np.array(kinds, np.int64)), counts, kept,
            *for_flood,
        ]  # fmt: skip

        def launch(first: int, rounds: int, before: int) -> None:
            soak[grid, threads](g.device, first, rounds, *arrays, blocks * (before + 1))

        limits = soak_loop.Limits(seconds, enough, slice_s, keep_going)
        counted = soak_loop.run(g, launch, counts, KINDS, limits)
        for request in pairs.flat:
            g.Request_free(int(request))
        g.free(derived)
        vector.Free()
    ones = [one for one in WORLD.allgather(wrong_one(counted.found, kept, rooms)) if one]
    if RANK == 0:
        for one in ones:
            print(json.dumps(one))
    passed = soak_loop.report(
        "soak", counted, WRONG_OF_KIND, g, path, blocks=blocks, threads=threads, direct=direct,
        flood=flood, wrong_messages=ones,
    )  # fmt: skip
    sys.exit(not passed)


if __name__ == "__main__":
    main()
