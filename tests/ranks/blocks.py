"""Collectives that move blocks: wrong arguments, views and shared memory, calls that differ.

    mpiexec -n 2 python3 tests/ranks/blocks.py [--direct] [SCENARIO ...]

With ``--direct`` kernels call them on the direct road, which leaves what is wrong to the proxies.
"""

from __future__ import annotations

import contextlib
import sys

import numpy as np
from blocks_kernel import KERNELS, ROWS
from common import RANK, SIZE, WORLD, address_of, barrier, end, pattern, raises, run, same
from mpi4py import MPI
from numba import cuda, int32

import gmpi
from gmpi import GMPI_Allgather, GMPI_Gather, GMPI_Wait

LAST = SIZE - 1
TEXTS = {
    (
        "Gather",
        "root",
    ): f"GMPI_Gather in block 0: root is {SIZE}, allowed is 0..{LAST}; communicator "
    f"0 has {SIZE} ranks [peer {SIZE}, tag 0, communicator 0, count 2 of INT32_T]",
    ("Scan", "op"): "GMPI_Scan in block 0: op is 99, allowed is one of gmpi.SUM",
    ("Alltoall", "count"): "GMPI_Alltoall in block 0: count is -1, allowed is 0..",
    ("Allgather", "block of sendbuf"): "GMPI_Allgather in block 0: block of sendbuf is 8 bytes, "
    "allowed is 4 bytes, as of a block of recvbuf",
    ("Exscan", "datatype"): "GMPI_Exscan in block 0: datatype is 0x8, allowed is a predefined",
    ("Reduce", "communicator"): "GMPI_Reduce in block 0: communicator is 77, allowed is 0..0; "
    "register it with Context.comm() first",
    ("Alltoall", "buffer"): "GMPI_Alltoall in block 0: buffer is null, allowed is",
}


def wrong_arguments(g: gmpi.Context) -> None:
    """Refused on all ranks, with a class and a text; what comes next is right."""
    derived = MPI.INT32_T.Create_vector(2, 1, 2).Commit()
    handle = g.commit(derived)
    wrong: list[tuple[str, dict[str, int], int]] = [
        ("count", {"n": -1, "m": -1}, gmpi.ERR_COUNT),
        ("datatype", {"t": 8, "u": 8}, gmpi.ERR_TYPE),
        ("communicator", {"comm": 77}, gmpi.ERR_COMM),
        ("root", {"root": SIZE}, gmpi.ERR_ROOT),
        ("op", {"op": 99}, gmpi.ERR_OP),
        ("datatype", {"t": handle, "u": handle, "reduces": 1}, gmpi.ERR_TYPE),
        ("block of sendbuf", {"m": 1}, gmpi.ERR_COUNT),
        ("buffer", {"a": 4}, gmpi.ERR_BUFFER),
        ("buffer", {"b": 4}, gmpi.ERR_BUFFER),
        ("buffer", {"b": -1}, gmpi.ERR_BUFFER),
        ("buffer", {"a": -1, "b": -1}, gmpi.ERR_BUFFER),
    ]
    room = 8 * SIZE
    for op, row in ROWS.items():
        for field, what, error in wrong:
            if field == "root" and not row.rooted:
                continue
            if (field == "op" or "reduces" in what) and not row.reduces:
                continue
            if field == "block of sendbuf" and (row.reduces or row.rooted):
                continue  # where only the root has both, or there is one count
            if field == "buffer" and row.rooted:
                continue  # where some ranks have none
            if "b" in what and "a" not in what and row.name == "Exscan":
                continue  # of rank 0 nothing comes back
            values = {"n": 2, "t": gmpi.INT32_T, "m": 2, "u": gmpi.INT32_T, "op": 0, "root": 0}
            values |= {"comm": 0, "a": room, "b": room} | what
            v = values
            line = [op, 64, v["a"], v["n"], v["t"], 256, v["b"], v["m"], v["u"], v["op"]]
            right = [op, 64, room, 2, gmpi.INT32_T, 256, room, 2, gmpi.INT32_T, 0, 0, 0]
            program = cuda.to_device(np.array([[*line, v["root"], v["comm"]], right], np.int64))
            heap, errors = cuda.to_device(np.zeros(512, np.uint8)), cuda.to_device(np.zeros(2, int))
            before = len(g.errors)
            KERNELS["block", -1 not in (v["a"], v["b"])][1, 32](
                g.device, program, heap, address_of(heap), cuda.to_device(np.zeros(2, int)), errors
            )
            with contextlib.suppress(gmpi.ArgumentError):
                g.synchronize()
                raise AssertionError(f"{row.name}: nothing was raised for {what}")
            found = errors.copy_to_host()
            assert tuple(found) == (error, gmpi.SUCCESS), (row.name, what, found)
            text = g.errors[before].text
            assert text.startswith(f"GMPI_{row.name} in block 0: {field} is "), text
            if (row.name, field) in TEXTS and 4 not in what.values() and "reduces" not in what:
                assert text.startswith(TEXTS[row.name, field]), text
    g.free(handle)
    derived.Free()


def wrong_arguments_of_the_host(g: gmpi.Context) -> None:
    """Refused before MPI sees them: nobody else has to call."""
    h, a, b = g.host, np.zeros(2 * SIZE, np.int32), np.zeros(2 * SIZE, np.int32)
    raises(gmpi.ArgumentError, f"Gather in host: root is {SIZE}", lambda: h.Gather(a, b, SIZE))
    raises(gmpi.ArgumentError, "Scan in host: op is 99", lambda: h.Scan(a, b, 99))
    text = "a block of sendbuf has 16 bytes, allowed is 8 bytes, as of recvbuf"
    if SIZE == 2:
        raises(gmpi.ArgumentError, text, lambda: h.Allgather(a, b))
        text = "sendbuf has 3 elements, allowed is a multiple of 2, one block for each rank"
        raises(gmpi.ArgumentError, text, lambda: h.Reduce_scatter_block(a[:3], b))
        text = "recvbuf has 5 bytes, allowed is a multiple of 2, one block for each rank"
        raises(gmpi.ArgumentError, text, lambda: h.Alltoall(a, np.zeros(5, np.uint8)))
    text = "recvbuf is IN_PLACE, allowed is a buffer on this rank"
    raises(gmpi.ArgumentError, text, lambda: h.Alltoall(a, gmpi.IN_PLACE))
    if SIZE > 1:
        other = (RANK + 1) % SIZE
        text = "Gather in host: sendbuf is IN_PLACE"
        raises(gmpi.ArgumentError, text, lambda: h.Gather(gmpi.IN_PLACE, None, other))
    raises(gmpi.ContextError, "communicator handle is 9", lambda: h.Alltoall(a, b, 9))
    h.Alltoall(a, b)


@cuda.jit
def views(ctx, wide, result, n, chunk):
    """A row of every second element, and a block in shared memory, to all ranks."""
    request = gmpi.GMPI_Iallgather(
        ctx, wide[1, ::2], n, gmpi.INT32_T, result[0], n, gmpi.INT32_T, gmpi.COMM_WORLD
    )
    status = GMPI_Wait(ctx, request)
    block = cuda.shared.array(4, int32)
    if cuda.threadIdx.x < 4:
        block[cuda.threadIdx.x] = wide[0, cuda.threadIdx.x]
    cuda.syncthreads()
    error = GMPI_Allgather(ctx, block, 4, gmpi.INT32_T, result[1], 4, gmpi.INT32_T, gmpi.COMM_WORLD)
    result[2, 0] = status.error
    result[2, 1] = error


def views_and_shared_memory(g: gmpi.Context) -> None:
    for n in (3, g.layout.eager_bytes // 4 + 9):
        k = np.arange(4 * n, dtype=np.int32).reshape(2, 2 * n)
        mine, room = k + 1000 * RANK, np.zeros((3, max(n, 4) * SIZE), np.int32)
        result = cuda.to_device(room)
        views[1, 32](g.device, cuda.to_device(mine), result, n, 0)
        g.synchronize()
        found = result.copy_to_host()
        same(found[2, :2], [0, 0], "error classes")
        rows = [k[1, ::2] + 1000 * r for r in range(SIZE)]
        same(found[0, : n * SIZE], np.concatenate(rows), f"{n} of a view")
        heads = [k[0, :4] + 1000 * r for r in range(SIZE)]
        same(found[1, : 4 * SIZE], np.concatenate(heads), "shared memory")


@cuda.jit
def gather_at(ctx, mine, room, n, root, errors):
    errors[0] = GMPI_Gather(ctx, mine, n, gmpi.BYTE, room, n, gmpi.BYTE, root, gmpi.COMM_WORLD)


def calls_that_differ() -> None:
    """The watchdog says where: roots."""
    if SIZE == 1:
        return
    g = gmpi.Context(WORLD, watchdog_s=0.5, timeout_s=1, on_error="return")
    errors = cuda.to_device(np.zeros(1, int))
    room = cuda.to_device(np.zeros(8 * SIZE, np.uint8))
    mine = cuda.to_device(pattern(8, RANK))
    barrier()
    # Each is the root of its own: nobody gets what it waits for.
    gather_at[1, 32](g.device, mine, room, 8, RANK, errors)
    text = ""
    try:
        g.synchronize()
    except gmpi.GMPIError as exc:
        text = str(exc)
    assert "root is 0 on rank 0 and 1 on rank 1" in text, text
    barrier()
    with contextlib.suppress(gmpi.GMPIError):
        g.close()
    barrier()


def main() -> None:
    if "--direct" in sys.argv:
        with gmpi.Context(WORLD, eager_bytes=256, chunk_bytes=512, wildcards=False) as g:
            run([wrong_arguments, views_and_shared_memory], g)
    else:
        with gmpi.Context(WORLD, eager_bytes=256, chunk_bytes=512) as g:
            run([wrong_arguments, wrong_arguments_of_the_host, views_and_shared_memory], g)
        run([calls_that_differ])
    end()


main()
