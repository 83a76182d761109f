"""Direct collectives among many neighbours: scenarios of ``exchanges``."""

from __future__ import annotations

import numpy as np
from common import RANK, SIZE, WORLD, barrier, pattern, raises, same
from numba import cuda

import gmpi
from gmpi import GMPI_Neighbor_alltoallv, GMPI_Neighbor_alltoallv_warp
from gmpi.contract import channels, exchanges
from gmpi.contract.wire import DEVICE_P2P, NEIGHBOURS_DIRECT, P2P_BYTES, P2P_DIRECT

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE


def roads(g: gmpi.Context, handle: int) -> int:
    row = g._memory.read_device(DEVICE_P2P + handle * P2P_BYTES + P2P_DIRECT, 8)
    return int(row.view(np.int64)[0])


@cuda.jit
def along_edges(ctx, a, b, counts, displs, comm, errors):
    for k in range(errors.size):
        errors[k] = GMPI_Neighbor_alltoallv(
            ctx, a, counts[k], displs, gmpi.BYTE, b[k], counts[k], displs, gmpi.BYTE, comm
        )


@cuda.jit
def onto_each_other(ctx, a, b, counts, displs, at, comm, errors):
    errors[0] = GMPI_Neighbor_alltoallv(
        ctx, a, counts, displs, gmpi.BYTE, b, counts, at, gmpi.BYTE, comm
    )


def many_edges_of_one_channel(g: gmpi.Context) -> None:
    """Of more blocks than a channel has slots, those behind go as credits come back."""
    n, room = 26, 2 * channels.ROOM
    graph = WORLD.Create_dist_graph_adjacent([PREVIOUS] * n, [NEXT] * n)
    comm = g.comm(graph, wildcards=False)
    rng = np.random.default_rng(5)
    short = rng.integers(0, 400, (2, n))
    mixed = rng.choice([0, 8, 700, channels.ROOM, channels.ROOM + 16, room], (1, n))
    counts = np.concatenate([np.full((1, n), 8), short, mixed])
    for threads in (32, 100):
        a = cuda.to_device(np.concatenate([pattern(room, 40 * RANK + k) for k in range(n)]))
        b = (g.zeros if threads == 100 else cuda.device_array)((len(counts), n * room), np.uint8)
        b.copy_to_device(np.zeros((len(counts), n * room), np.uint8))
        errors, displs = cuda.to_device(np.full(len(counts), -1)), room * np.arange(n)
        there = cuda.to_device(counts), cuda.to_device(displs)
        along_edges[1, threads](g.device, a, b, *there, comm, errors)
        g.synchronize()
        same(errors, [0] * len(counts), "error classes")
        for row, lengths in zip(b.copy_to_host().reshape(len(counts), n, room), counts):
            for k, (block, nbytes) in enumerate(zip(row, lengths)):
                same(
                    block[:nbytes], pattern(nbytes, 40 * PREVIOUS + k), f"{nbytes} bytes, edge {k}"
                )
                assert not block[nbytes:].any(), (threads, nbytes, k)
        barrier()
        if threads == 100:
            g.unregister(b)
    for one, other in ((2, 5), (2, 20), (18, 25)):
        at = displs.copy()
        at[other] = at[one] + 7
        there = (cuda.to_device(array) for array in (counts[0], displs, at))
        onto_each_other[1, 32](g.device, a, b[0], *there, comm, errors)
        text = f"blocks {one} and {other} overlap in recvbuf"
        raises(gmpi.ArgumentError, text, g.synchronize)
        same(errors.copy_to_host()[:1], [gmpi.ERR_BUFFER], text)
    g.free(comm)
    graph.Free()


@cuda.jit
def along_many_edges(ctx, a, b, counts, displs, comm, errors):
    if cuda.threadIdx.x < 32:
        errors[0] = GMPI_Neighbor_alltoallv_warp(
            ctx, a, counts, displs, gmpi.INT32_T, b, counts, displs, gmpi.INT32_T, comm
        )


def more_edges_than_slots() -> None:
    """Then fewer are under way at once. With more edges than a row has room for, on whichever
    rank, all calls go by the proxies."""
    most = exchanges.MOST_EDGES
    with gmpi.Context(WORLD, wildcards=False, request_slots=32, eager_bytes=16384) as g:
        for own in (40, most if RANK == 0 else 0, most + 1 if RANK == 0 else 0):
            to = [NEXT] * own
            number = own if own == 40 else max(WORLD.allgather(own)) * (RANK == 1 % SIZE)
            graph = WORLD.Create_dist_graph_adjacent([PREVIOUS] * number, to)
            comm = g.comm(graph, wildcards=False)
            too_many = max(WORLD.allgather(own)) > most
            assert bool(roads(g, comm) & NEIGHBOURS_DIRECT) != too_many
            n, length = max(own, number, 1), 3 if own == 40 else 1
            counts, displs = np.full(n, length), length * np.arange(n)[::-1]
            a = cuda.to_device(np.arange(n * length, dtype=np.int32) + 1000 * RANK)
            b = cuda.to_device(np.full(n * length, -1, np.int32))
            errors = cuda.to_device(np.full(1, -1))
            there = cuda.to_device(counts), cuda.to_device(displs)
            along_many_edges[1, 40](g.device, a, b, *there, comm, errors)
            g.synchronize()
            same(errors, [0], "error class")
            want = np.full(n * length, -1, np.int32)
            want[: number * length] = np.arange(number * length) + 1000 * PREVIOUS
            same(b, want, f"{number} edges")
            g.free(comm)
            graph.Free()
