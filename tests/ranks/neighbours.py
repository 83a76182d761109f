"""Collectives among neighbours: a halo exchange, wrong arguments, calls that differ.

mpiexec -n 3 python3 tests/ranks/neighbours.py [--direct] [SCENARIO ...]
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import numpy as np
from common import RANK, SIZE, WORLD, barrier, end, raises, run, same
from mpi4py import MPI
from numba import cuda, int32
from topologies import ring, told

import gmpi
from gmpi import (
    GMPI_Ineighbor_alltoallw_warp,
    GMPI_Neighbor_allgather,
    GMPI_Neighbor_alltoall,
    GMPI_Neighbor_alltoallv,
    GMPI_Neighbor_alltoallw,
    GMPI_Wait_warp,
)

INT = gmpi.INT32_T
#: Without them the calls of kernels that block go from GPU to GPU, where nothing is wrong.
WILDCARDS = "--direct" not in sys.argv


@cuda.jit
def halo(ctx, field, counts, at, types, comm, errors):
    """A row and a column each way, in place, from inside of the field to its border."""
    request = GMPI_Ineighbor_alltoallw_warp(
        ctx, field, counts, at[0], types, field, counts, at[1], types, comm
    )
    errors[0] = GMPI_Wait_warp(ctx, request).error


@cuda.jit
def blocking_halo(ctx, field, counts, at, types, comm, errors):
    errors[0] = GMPI_Neighbor_alltoallw(
        ctx, field, counts, at[0], types, field, counts, at[1], types, comm
    )


def a_halo(g: gmpi.Context) -> None:
    """Displacements say where; what is beyond the end of the grid stays as it is."""
    cart = WORLD.Create_cart(MPI.Compute_dims(SIZE, 2), [True, False])
    column = MPI.INT32_T.Create_vector(4, 1, 5).Commit()  # of 4 by 5
    handle, kind = g.comm(cart, wildcards=WILDCARDS), g.commit(column)
    field = np.full((4, 5), RANK, np.int32)
    own, border = [5, 10, 1, 3], [0, 15, 0, 4]  # first elements
    at = cuda.to_device(np.array([own, border]) * 4)
    counts = cuda.to_device(np.array([5, 5, 1, 1]))
    types = cuda.to_device(np.array([INT, INT, kind, kind]))
    want = field.copy()
    specs = [
        [want, ([5, 5, 1, 1], [4 * n for n in places]), [MPI.INT32_T] * 2 + [column] * 2]
        for places in (own, border)
    ]
    specs[0][0] = field
    cart.Neighbor_alltoallw(*specs)
    for kernel in (halo, blocking_halo):
        there, errors = cuda.to_device(field), cuda.to_device(np.full(1, -1))
        kernel[1, 32](g.device, there, counts, at, types, handle, errors)
        g.synchronize()
        same(errors, [0], "error class")
        same(there, want, "the field")
    found = field.copy()
    specs[0][0], specs[1][0] = field, found
    g.host.Neighbor_alltoallw(*specs, comm=handle)
    same(found, want, "the field of the host")
    g.free(kind)
    g.free(handle)
    column.Free()
    cart.Free()


@cuda.jit
def wrong(ctx, a, b, counts, displs, comm, other, errors):
    errors[0] = GMPI_Neighbor_alltoall(ctx, a, 1, gmpi.INT32_T, b, 1, gmpi.INT32_T, other)
    errors[1] = GMPI_Neighbor_alltoall(
        ctx, gmpi.IN_PLACE, 1, gmpi.INT32_T, b, 1, gmpi.INT32_T, comm
    )
    errors[2] = GMPI_Neighbor_alltoall(ctx, a, -1, gmpi.INT32_T, b, 1, gmpi.INT32_T, comm)
    errors[3] = GMPI_Neighbor_alltoall(ctx, a, 1, gmpi.INT32_T, b[:1], 1, gmpi.INT32_T, comm)
    errors[4] = GMPI_Neighbor_alltoallv(
        ctx, a, counts[:1], displs, gmpi.INT32_T, b, counts, displs, gmpi.INT32_T, comm
    )
    errors[5] = GMPI_Neighbor_allgather(ctx, a, 1, gmpi.INT32_T, b, 1, gmpi.INT32_T, 99)
    shared = cuda.shared.array(4, int32)
    shared[cuda.threadIdx.x & 3] = 7
    errors[6] = GMPI_Neighbor_allgather(ctx, shared, 1, gmpi.INT32_T, b, 1, gmpi.INT32_T, comm)


WORDS = [
    (gmpi.ERR_TOPOLOGY, "communicator is {}, which has no neighbours, allowed is a Cartesian, a "
     "distributed-graph or a symmetric graph communicator; give"),
    (gmpi.ERR_BUFFER, "sendbuf is null, allowed is"),
    (gmpi.ERR_COUNT, "sendcount is -1, allowed is 0.."),
    (gmpi.ERR_BUFFER, "recvcount is 1, allowed is blocks within the 4 bytes of recvbuf; a larger"),
    (gmpi.ERR_ARG, "length of sendcounts and the arrays beside it is 1, allowed is one for each of "
     "2 blocks"),
    (gmpi.ERR_COMM, "communicator is 99"),
]  # fmt: skip


def wrong_arguments(g: gmpi.Context) -> None:
    """Refused on all ranks; what comes next is right. So it is on a graph that is not symmetric."""
    cart = WORLD.Create_cart([SIZE], [True])
    lopsided = WORLD.Create_graph([1] * SIZE, [SIZE - 1]) if SIZE > 1 else WORLD
    for plain in (WORLD, lopsided):
        handle, other = g.comm(cart, wildcards=WILDCARDS), g.comm(plain, wildcards=WILDCARDS)
        a, b = cuda.to_device(np.arange(2, dtype=np.int32)), cuda.to_device(np.zeros(2, np.int32))
        counts, displs = cuda.to_device(np.ones(2, int)), cuda.to_device(np.arange(2))
        errors, before = cuda.to_device(np.full(7, -1)), len(g.errors)
        wrong[1, 32](g.device, a, b, counts, displs, handle, other, errors)
        with contextlib.suppress(gmpi.GMPIError):
            g.synchronize()
        same(errors, [*(error for error, _ in WORDS), 0], "error classes")
        same(b, [7, 7], "what came after the mistakes")
        for error, (_, text) in zip(g.errors[before:], WORDS, strict=True):
            assert text.format(other) in error.text, error.text
        refused_by_the_host(g, handle, other)
        g.free(handle)
        g.free(other)
    cart.Free()


def refused_by_the_host(g: gmpi.Context, handle: int, other: int) -> None:
    h, a, b = g.host, np.arange(2, dtype=np.int32), np.zeros(2, np.int32)
    cases: list[tuple[str, Any]] = [
        (f"communicator is {other}, which has no", lambda: h.Neighbor_alltoall(a, b, other)),
        ("sendbuf is IN_PLACE", lambda: h.Neighbor_alltoall(gmpi.IN_PLACE, b, handle)),
        ("recvbuf is IN_PLACE", lambda: h.Neighbor_allgather(a, gmpi.IN_PLACE, handle)),
        ("sendcount is -1, allowed is 0..", lambda: h.Neighbor_alltoall([a, -1], b, handle)),
        ("recvcount is 2, allowed is blocks within the 8 bytes of recvbuf",
         lambda: h.Neighbor_alltoall(a, [b, 2, MPI.INT32_T], handle)),
        ("sendcounts has 1 elements, allowed is 2",
         lambda: h.Neighbor_alltoallv([a, [1]], b, handle)),
    ]  # fmt: skip
    for text, call in cases:
        raises(gmpi.ArgumentError, text, call)
    h.Neighbor_alltoall(a, b, handle)


@cuda.jit
def exchange(ctx, a, b, sent, received, displs, comm, errors):
    errors[0] = GMPI_Neighbor_alltoallv(
        ctx, a, sent, displs, gmpi.BYTE, b, received, displs, gmpi.BYTE, comm
    )


def counts_that_differ() -> None:
    """Debug mode says who sends what to whom; none of them begins."""
    graph = told(ring())
    with contextlib.suppress(gmpi.GMPIError), gmpi.Context(WORLD, debug=True) as g:
        handle, number = g.comm(graph.comm), len(graph.sources)
        displs, four = 16 * np.arange(number), np.full(number, 4)
        sent = four.copy()
        if RANK == 0:
            sent[-1] = 7  # to itself
        a, b = (cuda.to_device(np.zeros(64, np.uint8)) for _ in range(2))
        errors = cuda.to_device(np.zeros(1, int))
        arrays = (cuda.to_device(array) for array in (sent, four, displs))
        exchange[1, 32](g.device, a, b, *arrays, handle, errors)
        raised = raised_by(g)
        assert "rank 0 sends 7 bytes to rank 0, which receives 4" in raised, raised
        barrier()


def raised_by(g: gmpi.Context) -> str:
    try:
        g.synchronize()
    except gmpi.GMPIError as exc:
        return str(exc)
    return ""


def main() -> None:
    with gmpi.Context(WORLD, eager_bytes=256, chunk_bytes=512, wildcards=WILDCARDS) as g:
        run([a_halo, wrong_arguments], g)
    run([counts_that_differ])
    end()


main()
