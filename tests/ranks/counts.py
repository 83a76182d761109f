"""Collectives with counts for each rank: wrong arguments, views, calls that differ.

mpiexec -n 2 python3 tests/ranks/counts.py [--direct] [SCENARIO ...]
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import numpy as np
from common import RANK, SIZE, WORLD, address_of, barrier, end, raises, run, same
from counts_kernel import KERNELS, ROWS
from mpi4py import MPI
from numba import cuda, int32

import gmpi
from gmpi import GMPI_Allgatherv, GMPI_Alltoallv, GMPI_Reduce_scatter

#: Without them the calls of kernels that block go from GPU to GPU, where nothing is wrong.
WILDCARDS = "--direct" not in sys.argv
BY_NAME = {row.name: op for op, row in ROWS.items()}
LAST = SIZE - 1
INT = gmpi.INT32_T


def each(value: int, other: int | None = None) -> list[int]:
    """One value for each rank; for the last one another."""
    return [value] * LAST + [value if other is None else other]


def arrays_of(**what: list[int]) -> list[int]:
    """The six arrays of blocks of two elements, one after the other, but for ``what``."""
    row = list(range(0, 2 * SIZE, 2))
    values = {"sc": each(2), "sd": row, "st": each(INT), "rc": each(2), "rd": row, "rt": each(INT)}
    return [n for array in {**values, **what}.values() for n in array]


WIDE = [4 * n for n in range(0, 2 * SIZE, 2)]  # displacements of Alltoallw
WRONG: list[tuple[str, dict[str, list[int]], int, str]] = [
    (
        "Alltoallv", {"sc": each(2, -1)}, gmpi.ERR_COUNT,
        f"GMPI_Alltoallv in block 0: sendcounts[{LAST}] is -1, allowed is 0..",
    ),
    (
        "Alltoallv", {"rd": each(0)}, gmpi.ERR_BUFFER,
        "GMPI_Alltoallv in block 0: rdispls is blocks 0 and 1 overlap in recvbuf, allowed is "
        "blocks that have no byte in common",
    ),
    (
        "Alltoallv", {"sd": each(0, 99)}, gmpi.ERR_BUFFER,
        f"GMPI_Alltoallv in block 0: sdispls[{LAST}] is 99, allowed is blocks within the "
        f"{8 * SIZE} bytes of sendbuf; a larger array",
    ),
    (
        "Alltoallv", {"rd": each(0, -1)}, gmpi.ERR_BUFFER,
        f"GMPI_Alltoallv in block 0: rdispls[{LAST}] is -1, allowed is blocks within",
    ),
    (
        "Alltoallv", {"rc": [1] * SIZE}, gmpi.ERR_COUNT,
        f"GMPI_Alltoallv in block 0: what sendcounts[{RANK}] says is 8 bytes, allowed is 4 bytes, "
        f"as recvcounts[{RANK}] does",
    ),
    (
        "Allgatherv", {"rc": each(2, 1 << 29)}, gmpi.ERR_BUFFER,
        f"GMPI_Allgatherv in block 0: displs[{LAST}] is {2 * LAST}, allowed is blocks within",
    ),
    (
        "Alltoallw", {"st": each(INT, 8), "sd": WIDE, "rd": WIDE}, gmpi.ERR_TYPE,
        f"GMPI_Alltoallw in block 0: sendtypes[{LAST}] is 0x8, allowed is a predefined datatype",
    ),
    (
        "Reduce_scatter", {"rc": each(2, -4)}, gmpi.ERR_COUNT,
        f"GMPI_Reduce_scatter in block 0: recvcounts[{LAST}] is -4, allowed is 0..",
    ),
]  # fmt: skip


def wrong_arguments(g: gmpi.Context) -> None:
    """Refused on all ranks, with a class and a text; what comes next is right."""
    room = 8 * SIZE
    for name, what, error, text in WRONG:
        op, integers = BY_NAME[name], arrays_of(**what)
        typed = {"sd": WIDE, "rd": WIDE} if name == "Alltoallw" else {}
        line = [op, 64, room, 2, INT, 256, room, 2, INT, 0, 0, 0]
        program = [[*line, 0, SIZE, 0], [*line, len(integers), SIZE, 0]]
        integers += arrays_of(**typed)
        errors, before = cuda.to_device(np.zeros(2, int)), len(g.errors)
        heap = cuda.to_device(np.zeros(512, np.uint8))
        KERNELS["block", False, True][1, 32](
            g.device, cuda.to_device(np.array(program, np.int64)), heap, address_of(heap),
            cuda.to_device(np.array(integers, np.int32)), cuda.to_device(np.zeros(2, int)), errors,
        )  # fmt: skip
        with contextlib.suppress(gmpi.ArgumentError):
            g.synchronize()
            raise AssertionError(f"{name}: nothing was raised for {what}")
        assert tuple(errors.copy_to_host()) == (error, gmpi.SUCCESS), (name, what)
        assert g.errors[before].text.startswith(text), g.errors[before].text


@cuda.jit
def short_of_counts(ctx, a, b, counts, displs, errors):
    errors[0] = GMPI_Alltoallv(
        ctx, a, counts[:-1], displs, gmpi.INT32_T, b, counts, displs, gmpi.INT32_T, gmpi.COMM_WORLD
    )
    errors[1] = GMPI_Alltoallv(
        ctx, a, counts, displs, gmpi.INT32_T, 0, counts, displs, gmpi.INT32_T, gmpi.COMM_WORLD
    )
    errors[2] = GMPI_Reduce_scatter(
        ctx, gmpi.IN_PLACE, a, counts, gmpi.INT32_T, 99, gmpi.COMM_WORLD
    )
    errors[3] = GMPI_Alltoallv(
        ctx, a, counts, displs, gmpi.INT32_T, b, counts, displs, gmpi.INT32_T, 77
    )


def other_wrong_arguments(g: gmpi.Context) -> None:
    a = cuda.to_device(np.arange(2 * SIZE, dtype=np.int32))
    counts, displs = cuda.to_device(np.full(SIZE, 2)), cuda.to_device(np.arange(0, 2 * SIZE, 2))
    errors, before = cuda.to_device(np.zeros(4, int)), len(g.errors)
    short_of_counts[1, 32](g.device, a, a, counts, displs, errors)
    with contextlib.suppress(gmpi.ArgumentError):
        g.synchronize()
    found = tuple(errors.copy_to_host())
    assert found == (gmpi.ERR_ARG, gmpi.ERR_BUFFER, gmpi.ERR_OP, gmpi.ERR_COMM), found
    texts = [
        f"length of sendcounts and the arrays beside it is {LAST}, allowed is one for each of "
        f"{SIZE} blocks",
        "recvbuf is null, allowed is", "op is 99", "communicator is 77",
    ]  # fmt: skip
    for error, text in zip(g.errors[before:], texts, strict=True):
        assert text in error.text, error.text


@cuda.jit
def not_integers(ctx, a, b, counts, displs):
    GMPI_Allgatherv(ctx, a, 1, gmpi.INT32_T, b, counts, displs, gmpi.INT32_T, gmpi.COMM_WORLD)


def wrong_types(g: gmpi.Context) -> None:
    """Refused before anything is launched, or in the simulator when it is called."""
    a, b = (cuda.to_device(np.zeros(SIZE, np.int32)) for _ in range(2))
    displs, floats = cuda.to_device(np.arange(SIZE)), cuda.to_device(np.ones(SIZE))
    # A call that is right says nothing of what is in the arrays of the next one.
    not_integers[1, 1](g.device, a, b, cuda.to_device(np.ones(SIZE, int)), displs)
    g.synchronize()
    text = "recvcounts is an array of float64, allowed is an array of int32 or int64"
    raises(gmpi.UsageError, text, lambda: not_integers[1, 1](g.device, a, b, floats, displs))


def wrong_arguments_of_the_host(g: gmpi.Context) -> None:
    """Refused before MPI sees them: nobody else has to call."""
    h, a, b = g.host, np.zeros(2 * SIZE, np.int32), np.zeros(2 * SIZE, np.int32)
    two, at = [2] * SIZE, list(range(0, 2 * SIZE, 2))
    wrong: list[tuple[str, Any, Any]] = [
        (f"sendcounts[{LAST}] is -1, allowed is 0..", [a, each(2, -1)], b),
        (f"sendcounts has {SIZE + 1} elements, allowed is {SIZE}", [a, [*two, 1]], b),
        (f"sdispls[{LAST}] is 99, allowed is blocks within", [a, (two, each(0, 99))], b),
        ("blocks 0 and 1 overlap in recvbuf", a, [b, (two, each(0))]),
        ("what sendcounts[", [a, [1] * SIZE], [b, (two, at)]),
        ("recvbuf is a sequence of 5", a, [b, 1, 2, 3, 4]),
    ]
    for text, send, recv in wrong:
        raises(gmpi.ArgumentError, text, lambda send=send, recv=recv: h.Alltoallv(send, recv))
    text = "sendcounts is 'x', allowed is an integer"
    raises(gmpi.ArgumentTypeError, text, lambda: h.Alltoallv([a, "x", "i"], b))
    raises(gmpi.ArgumentError, "root is", lambda: h.Gatherv(a, b, SIZE))
    raises(gmpi.ArgumentError, "recvbuf is IN_PLACE", lambda: h.Allgatherv(a, gmpi.IN_PLACE))
    raises(gmpi.ArgumentError, "recvcounts is None", lambda: h.Reduce_scatter(a, b, None))
    raises(gmpi.ArgumentError, "sendbuf has no datatypes", lambda: h.Alltoallw(a, b))
    small = np.zeros(1, np.int32)
    raises(gmpi.ArgumentError, "recvbuf has 4 bytes", lambda: h.Reduce_scatter(a, small, two))
    h.Alltoallv([a, (two, at)], [b, (two, at), MPI.INT32_T])


@cuda.jit
def views(ctx, wide, result, counts, displs, errors):
    """Every second element, to every second place of another array, by warp and from shared."""
    errors[0] = GMPI_Alltoallv(
        ctx, wide[1, ::2], counts, displs, gmpi.INT32_T, result[0, ::2], counts, displs,
        gmpi.INT32_T, gmpi.COMM_WORLD,
    )  # fmt: skip
    errors[1] = GMPI_Reduce_scatter(
        ctx, wide[1, ::2], result[1, ::2], counts, gmpi.INT32_T, gmpi.SUM, gmpi.COMM_WORLD
    )
    block = cuda.shared.array(2, int32)
    ones = cuda.shared.array(8, int32)
    if cuda.threadIdx.x < 8:
        block[cuda.threadIdx.x & 1] = wide[0, cuda.threadIdx.x & 1]
        ones[cuda.threadIdx.x] = 2
    cuda.syncthreads()
    errors[2] = GMPI_Allgatherv(
        ctx, block, 2, gmpi.INT32_T, result[2], ones, displs, gmpi.INT32_T, gmpi.COMM_WORLD
    )


def views_and_shared_memory(g: gmpi.Context) -> None:
    for n in (2, g.layout.eager_bytes // 4):
        k = np.arange(4 * (n + 1) * SIZE, dtype=np.int32).reshape(2, -1)
        counts, displs = np.full(SIZE, n), np.arange(SIZE) * (n + 1)
        result = cuda.to_device(np.full((3, k.shape[1]), -1, np.int32))
        errors = cuda.to_device(np.full(3, -1))
        arrays = cuda.to_device(counts), cuda.to_device(displs)
        views[1, 32](g.device, cuda.to_device(k + 1000 * RANK), result, *arrays, errors)
        g.synchronize()
        same(errors.copy_to_host(), [0, 0, 0], "error classes")
        found, want = result.copy_to_host(), np.full((3, k.shape[1]), -1, np.int32)
        row = k[1, ::2]
        for r in range(SIZE):
            block = row[RANK * (n + 1) : RANK * (n + 1) + n] + 1000 * r
            want[0, ::2][r * (n + 1) : r * (n + 1) + n] = block
            want[2, r * (n + 1) : r * (n + 1) + 2] = k[0, :2] + 1000 * r
        total = SIZE * row[RANK * n : RANK * n + n] + 1000 * sum(range(SIZE))
        want[1, ::2][:n] = total
        same(found, want, f"{n} of a view")


@cuda.jit
def exchange(ctx, a, b, sent, received, displs, errors):
    errors[0] = GMPI_Alltoallv(
        ctx, a, sent, displs, gmpi.BYTE, b, received, displs, gmpi.BYTE, gmpi.COMM_WORLD
    )


def counts_that_differ() -> None:
    """Debug mode says who sends what to whom; none of them begins."""
    if SIZE == 1:
        return
    g = gmpi.Context(WORLD, debug=True)
    sent = np.full(SIZE, 4)
    if RANK == 0:
        sent[1] = 7
    a, b = (cuda.to_device(np.zeros(16 * SIZE, np.uint8)) for _ in range(2))
    displs, errors = cuda.to_device(16 * np.arange(SIZE)), cuda.to_device(np.zeros(1, int))
    barrier()
    exchange[1, 32](
        g.device, a, b, cuda.to_device(sent), cuda.to_device(np.full(SIZE, 4)), displs, errors
    )
    text = ""
    try:
        g.synchronize()
    except gmpi.GMPIError as exc:
        text = str(exc)
    assert "rank 0 sends 7 bytes to rank 1, which receives 4" in text, text
    barrier()
    host = np.zeros(SIZE, np.int32)
    counts = [1] * SIZE if RANK else [1] * LAST + [2]
    if RANK == 0:
        host = np.zeros(SIZE + 1, np.int32)
    text = "bytes of each rank is "
    raises(
        gmpi.DebugError, text, lambda: g.host.Reduce_scatter(host, np.zeros(2, np.int32), counts)
    )
    barrier()
    with contextlib.suppress(gmpi.GMPIError):
        g.close()
    barrier()


def main() -> None:
    with gmpi.Context(WORLD, eager_bytes=256, chunk_bytes=512, wildcards=WILDCARDS) as g:
        scenarios = [wrong_arguments, other_wrong_arguments, wrong_arguments_of_the_host]
        run([*scenarios, wrong_types, views_and_shared_memory], g)
    run([counts_that_differ])
    end()


main()
