"""How direct collectives with counts end where another rank does not come: scenarios of
``exchanges``."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import numpy as np
from common import RANK, SIZE, WORLD, barrier, raises
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import (
    GMPI_Allgatherv,
    GMPI_Alltoallv,
    GMPI_Barrier,
    GMPI_Neighbor_alltoallv,
    GMPI_Reduce_scatter,
)

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE


def ring() -> MPI.Distgraphcomm:
    """Two edges to the next rank and one to the rank itself."""
    return WORLD.Create_dist_graph_adjacent([PREVIOUS, RANK, PREVIOUS], [NEXT, NEXT, RANK])


ALL, NEAR, REDUCED, SWAPPED = range(4)
NAMES = "Allgatherv", "Neighbor_alltoallv", "Reduce_scatter MAX", "Alltoallv"


@cuda.jit
def one_call(ctx, a, counts, displs, comm, what, errors):
    if what == NEAR:
        errors[0] = GMPI_Neighbor_alltoallv(
            ctx, a, counts, displs, gmpi.BYTE, a, counts, displs, gmpi.BYTE, comm
        )
    elif what == SWAPPED:
        errors[0] = GMPI_Alltoallv(
            ctx, gmpi.IN_PLACE, counts, displs, gmpi.BYTE, a, counts, displs, gmpi.BYTE, comm
        )
    elif what == REDUCED:
        errors[0] = GMPI_Reduce_scatter(ctx, gmpi.IN_PLACE, a, counts, gmpi.UINT8_T, gmpi.MAX, comm)
    else:
        errors[0] = GMPI_Allgatherv(
            ctx, gmpi.IN_PLACE, 0, gmpi.BYTE, a, counts, displs, gmpi.BYTE, comm
        )
    if errors.size > 1:
        errors[1] = GMPI_Barrier(ctx, comm)


def start(g: gmpi.Context, comm: int, what: int, nbytes: int, calls: int = 1) -> Any:
    """The error classes, in device memory."""
    n = max(SIZE, 3)
    errors = cuda.to_device(np.full(calls, -1))
    a = cuda.to_device(np.zeros(n * nbytes, np.uint8))
    arrays = cuda.to_device(np.full(n, nbytes)), cuda.to_device(nbytes * np.arange(n))
    one_call[1, 32](g.device, a, *arrays, comm, what, errors)
    return errors


@cuda.jit
def something_else(ctx, comm, errors):
    if errors.size > 1:
        errors[1] = GMPI_Barrier(ctx, comm)
    errors[0] = 0


def one_does_not_come() -> None:
    """The watchdog names the call, and who does what instead, and ``timeout_s`` ends it."""
    if SIZE == 1:
        return
    for what, nbytes, others, text in (
        (SWAPPED, 9, 0, ""), (NEAR, 200000, 0, ""),
        (REDUCED, 9, 1, "but rank 1 has left its kernels"), (NEAR, 9, 2, "GMPI_Barrier"),
    ):  # fmt: skip
        g = gmpi.Context(WORLD, wildcards=False, watchdog_s=0.5, timeout_s=1, on_error="return")
        graph = ring()
        comm = g.comm(graph, wildcards=False)
        said = ""
        if RANK and others == 1:  # before rank 0 waits: compiling takes longer than its time-out
            something_else[1, 32](g.device, comm, cuda.to_device(np.zeros(1, int)))
            g.synchronize()
        barrier()
        if RANK == 0:
            errors = start(g, comm, what, nbytes)
        elif others == 2:
            something_else[1, 32](g.device, comm, cuda.to_device(np.zeros(others, int)))
        if RANK == 0 or others == 2:
            try:
                g.synchronize()
            except gmpi.GMPIError as exc:
                said = str(exc)
        if RANK == 0:
            assert errors.copy_to_host()[0] == gmpi.GMPI_ERR_TIMEOUT
            assert text in said and NAMES[what] in said and "rank 1" in said, said
        barrier()
        with contextlib.suppress(gmpi.GMPIError):
            g.close()
        graph.Free()
        barrier()


def aborted() -> None:
    """Rank 0 waits for others that never come: an abort ends its call, and the next one."""
    if SIZE == 1:
        return
    for what, nbytes in ((ALL, 9), (SWAPPED, 200000)):
        with contextlib.suppress(gmpi.AbortedError), gmpi.Context(WORLD, wildcards=False) as g:
            if RANK == 0:
                threading.Timer(0.3, g.abort).start()  # a launch in the simulator waits
                errors = start(g, gmpi.COMM_WORLD, what, nbytes, 2)
                raises(gmpi.AbortedError, "aborted", g.synchronize)
                assert (errors.copy_to_host() == gmpi.GMPI_ERR_ABORTED).all()
            barrier()
            if RANK != 0:
                g.abort()
        barrier()


ENDINGS = [one_does_not_come, aborted]
