"""Buffers as users have them: typed arrays, slices, rows, planes, shared and local memory."""

from __future__ import annotations

import numpy as np
from common import RANK, SIZE, WORLD, end, run, same
from numba import complex128, cuda, float32, int64

import gmpi

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE
CELLS = 40


@cuda.jit
def halo(ctx, u, to, source, statuses):  # type: ignore[no-untyped-def]
    """The exchange of the README: slices of a float32 array, requests as a tuple."""
    n = u.size
    r0 = gmpi.GMPI_Irecv(ctx, u[:1], 1, gmpi.FLOAT, source, 1, gmpi.COMM_WORLD)
    r1 = gmpi.GMPI_Irecv(ctx, u[n - 1 :], 1, gmpi.FLOAT, to, 2, gmpi.COMM_WORLD)
    s0 = gmpi.GMPI_Isend(ctx, u[n - 2 : n - 1], 1, gmpi.FLOAT, to, 1, gmpi.COMM_WORLD)
    s1 = gmpi.GMPI_Isend(ctx, u[1:2], 1, gmpi.FLOAT, source, 2, gmpi.COMM_WORLD)
    gmpi.GMPI_Waitall(ctx, 4, (r0, r1, s0, s1), statuses)


def slices(g: gmpi.Context) -> None:
    u = np.arange(CELLS, dtype=np.float32) + 100 * RANK
    on_device = cuda.to_device(u)
    statuses = cuda.to_device(np.zeros(4, gmpi.STATUS_DTYPE))
    halo[1, 64](g.device, on_device, NEXT, PREVIOUS, statuses)
    g.synchronize()
    u[0] = CELLS - 2 + 100 * PREVIOUS
    u[-1] = 1 + 100 * NEXT
    same(on_device, u, "halo")
    found = statuses.copy_to_host()
    assert found["error"].tolist() == [gmpi.SUCCESS] * 4
    assert found["source"].tolist()[:2] == [PREVIOUS, NEXT]
    assert found["tag"].tolist()[:2] == [1, 2] and found["count"].tolist()[:2] == [1, 1]


@cuda.jit
def planes(ctx, a, b, f, column, to, source, errors):  # type: ignore[no-untyped-def]
    """Rows and planes of arrays of several dimensions, and columns, which are not contiguous."""
    n = a.shape[1] * a.shape[2]
    r0 = gmpi.GMPI_Irecv(ctx, a[0], n, gmpi.DOUBLE, source, 1, 0)
    r1 = gmpi.GMPI_Irecv(ctx, b[1, 2], b.shape[2], gmpi.C_DOUBLE_COMPLEX, source, 2, 0)
    r2 = gmpi.GMPI_Irecv(ctx, f[:, 0], f.shape[0], gmpi.DOUBLE, source, 3, 0)
    s0 = gmpi.GMPI_Isend(ctx, a[1], n, gmpi.DOUBLE, to, 1, 0)
    s1 = gmpi.GMPI_Isend(ctx, b[0, 1], b.shape[2], gmpi.C_DOUBLE_COMPLEX, to, 2, 0)
    s2 = gmpi.GMPI_Isend(ctx, f[:, 1], f.shape[0], gmpi.DOUBLE, to, 3, 0)
    r3 = gmpi.GMPI_Irecv(ctx, column[:, 0], column.shape[0], gmpi.DOUBLE, source, 4, 0)
    s3 = gmpi.GMPI_Isend(ctx, column[:, 1], column.shape[0], gmpi.DOUBLE, to, 4, 0)
    requests = cuda.local.array(8, int64)
    requests[0] = r0
    requests[1] = r1
    requests[2] = r2
    requests[3] = s0
    requests[4] = s1
    requests[5] = s2
    requests[6] = r3
    requests[7] = s3
    error = gmpi.GMPI_Waitall(ctx, 8, requests)
    if cuda.threadIdx.x == 0:
        errors[0] = error


def several_dimensions(g: gmpi.Context) -> None:
    a = np.arange(3 * 4 * 5, dtype=np.float64).reshape(3, 4, 5) + 1000 * RANK
    b = (np.arange(2 * 3 * 7).reshape(2, 3, 7) * (1 + 2j) + RANK).astype(np.complex128)
    f = np.asfortranarray(np.arange(18, dtype=np.float64).reshape(6, 3) + 100 * RANK)
    column = np.arange(24, dtype=np.float64).reshape(6, 4) + 50 * RANK
    parts = [cuda.to_device(x) for x in (a, b, f, column)]
    errors = cuda.to_device(np.full(1, -1, np.int64))
    planes[1, 48](g.device, *parts, NEXT, PREVIOUS, errors)
    g.synchronize()
    assert errors.copy_to_host().tolist() == [gmpi.SUCCESS]
    a[0] = a[1] - 1000 * RANK + 1000 * PREVIOUS
    b[1, 2] = b[0, 1] - RANK + PREVIOUS
    f[:, 0] = f[:, 1] - 100 * RANK + 100 * PREVIOUS
    column[:, 0] = column[:, 1] - 50 * RANK + 50 * PREVIOUS
    names = ("plane", "row", "Fortran column", "column")
    for found, expected, name in zip(parts, (a, b, f, column), names):
        same(found, expected, name)


@cuda.jit
def in_shared(ctx, out, to, source, errors):  # type: ignore[no-untyped-def]
    """Small messages from and to the shared memory of the block."""
    tile = cuda.shared.array(64, float32)
    room = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    tile[t] = t + 0.5 * ctx.identity
    room[t] = -1
    r = gmpi.GMPI_Irecv(ctx, room, 64, gmpi.FLOAT, source, 4, 0)
    s = gmpi.GMPI_Isend(ctx, tile, 64, gmpi.FLOAT, to, 4, 0)
    gmpi.GMPI_Wait(ctx, s)
    status = gmpi.GMPI_Wait(ctx, r)
    total = cuda.shared.array(1, complex128)
    if t == 0:
        total[0] = 1 + 2j
    error = gmpi.GMPI_Allreduce(
        ctx, gmpi.IN_PLACE, total, 1, gmpi.C_DOUBLE_COMPLEX, gmpi.SUM, gmpi.COMM_WORLD
    )
    out[t] = room[t]
    if t == 0:
        errors[0] = status.error
        errors[1] = error
        errors[2] = int64(total[0].real)
        errors[3] = int64(total[0].imag)


def shared_memory(g: gmpi.Context) -> None:
    out = cuda.to_device(np.zeros(64, np.float32))
    errors = cuda.to_device(np.zeros(4, np.int64))
    in_shared[1, 64](g.device, out, NEXT, PREVIOUS, errors)
    g.synchronize()
    identity = PREVIOUS | SIZE << 32
    same(out, (np.arange(64) + 0.5 * identity).astype(np.float32), "shared memory")
    assert errors.copy_to_host().tolist() == [gmpi.SUCCESS, gmpi.SUCCESS, SIZE, 2 * SIZE]


@cuda.jit
def small_integers(ctx, data, room, n, peer, tag, out):  # type: ignore[no-untyped-def]
    """Arguments of integer types other than int64, and from an array."""
    status = gmpi.GMPI_Sendrecv(
        ctx, data, n, gmpi.UINT8_T, peer[0], tag, room, n, gmpi.UINT8_T, peer[1], tag, 0
    )
    if cuda.threadIdx.x == 0:
        out[0] = status.error
        out[1] = status.count
        out[2] = status.tag


def arguments_of_other_types(g: gmpi.Context) -> None:
    data = cuda.to_device(np.arange(200, dtype=np.uint8))
    room = cuda.to_device(np.zeros(200, np.uint8))
    peers = cuda.to_device(np.array([NEXT, PREVIOUS], np.uint16))
    out = cuda.to_device(np.zeros(3, np.int64))
    small_integers[1, 32](g.device, data, room, np.uint32(200), peers, np.int16(77), out)
    g.synchronize()
    same(room, np.arange(200, dtype=np.uint8), "uint8")
    assert out.copy_to_host().tolist() == [gmpi.SUCCESS, 200, 77]


with gmpi.Context(WORLD) as context:
    run([slices, several_dimensions, shared_memory, arguments_of_other_types], context)
end()
