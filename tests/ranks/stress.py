"""Many warps and blocks at once, each with traffic of its own; every byte is checked on the device.

On a GPU this is the real thing: lanes run together, packets of a record arrive in any order, the
ring is full. In the simulator it is a short run of the same code.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from common import RANK, SIZE, WORLD, end, in_thread, run
from numba import cuda

import gmpi
from device_lib.api.binding import warp_calls
from host_proxy.platform.state import G_NULL_SUM, G_NULLS

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE
_post_null = warp_calls.post_null
_ping = warp_calls.ping


@cuda.jit
def nulls(ctx, each):  # type: ignore[no-untyped-def]
    warp = (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) // 32
    for i in range(each):
        _post_null(ctx, warp * each + i + 1)


@cuda.jit
def pings(ctx, each, wrong):  # type: ignore[no-untyped-def]
    for _ in range(each):
        status = _ping(ctx)
        if status.error != gmpi.SUCCESS:
            cuda.atomic.add(wrong, 0, 1)


@cuda.jit
def warps(ctx, sizes, send, recv, rounds, to, source, wrong):  # type: ignore[no-untyped-def]
    """Each warp exchanges messages of all sizes, its tag is its number."""
    warp = (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x) // 32
    lane = cuda.threadIdx.x % 32
    out = send[warp]
    room = recv[warp]
    for i in range(rounds):
        n = sizes[(i + warp) % sizes.size]
        for k in range(lane, n, 32):
            out[k] = (k * 7 + i * 13 + warp) & 0xFF
            room[k] = 0
        r = gmpi.GMPI_Irecv_warp(ctx, room, n, gmpi.BYTE, source, warp, 0)
        s = gmpi.GMPI_Isend_warp(ctx, out, n, gmpi.BYTE, to, warp, 0)
        if i % 3 == 0:
            error = gmpi.GMPI_Waitall_warp(ctx, 2, (r, s))
            if error != gmpi.SUCCESS:
                cuda.atomic.add(wrong, 0, 1)
        else:
            gmpi.GMPI_Wait_warp(ctx, s)
            status = gmpi.GMPI_Wait_warp(ctx, r)
            if status.error != gmpi.SUCCESS or status.nbytes != n or status.tag != warp:
                cuda.atomic.add(wrong, 0, 1)
        for k in range(lane, n, 32):
            if room[k] != (k * 7 + i * 13 + warp) & 0xFF:
                cuda.atomic.add(wrong, 1, 1)
        cuda.syncwarp()


@cuda.jit
def blocks(ctx, sizes, send, recv, rounds, to, source, wrong):  # type: ignore[no-untyped-def]
    """Each block sends by the blocking calls, even ranks first, and reduces in between."""
    block = cuda.blockIdx.x
    first = cuda.threadIdx.x
    step = cuda.blockDim.x
    out = send[block]
    room = recv[block]
    for i in range(rounds):
        n = sizes[(i + block) % sizes.size]
        for k in range(first, n, step):
            out[k] = (k * 5 + i * 11 + block) & 0xFF
            room[k] = 0
        status = gmpi.GMPI_Sendrecv(
            ctx, out, n, gmpi.BYTE, to, block, room, n, gmpi.BYTE, source, block, 0
        )
        if status.error != gmpi.SUCCESS or status.nbytes != n:
            cuda.atomic.add(wrong, 0, 1)
        for k in range(first, n, step):
            if room[k] != (k * 5 + i * 11 + block) & 0xFF:
                cuda.atomic.add(wrong, 1, 1)
        cuda.syncthreads()


def null_records(g: gmpi.Context) -> None:
    """None lost, none twice, whatever the number of producers; the ring wraps many times."""
    for grid, each in ((1, 30), (2, 20)) if gmpi.SIMULATOR else ((16, 20000), (132, 5000)):
        state = g._state.globals
        before, total = int(state[G_NULLS]), int(state[G_NULL_SUM])
        nulls[grid, 128](g.device, each)
        g.synchronize()
        posted = grid * 4 * each
        assert int(state[G_NULLS]) - before == posted
        assert int(state[G_NULL_SUM]) - total == posted * (posted + 1) // 2


def null_requests(g: gmpi.Context) -> None:
    """More warps than slots of one word; every slot is used many times."""
    wrong = cuda.to_device(np.zeros(2, np.int32))
    grid, each = (2, 5) if gmpi.SIMULATOR else (64, 3000)
    pings[grid, 128](g.device, each, wrong)
    g.synchronize()
    assert wrong.copy_to_host().tolist() == [0, 0]


def _exchange(g, kernel, grid, threads, senders, sizes, rounds):  # type: ignore[no-untyped-def]
    wrong = cuda.to_device(np.zeros(2, np.int32))
    most = max(1, *sizes)
    send = cuda.to_device(np.zeros((senders, most), np.uint8))
    recv = cuda.to_device(np.zeros((senders, most), np.uint8))
    lengths = cuda.to_device(np.array(sizes, np.int64))
    kernel[grid, threads](g.device, lengths, send, recv, rounds, NEXT, PREVIOUS, wrong)
    g.synchronize()
    calls, bytes_ = wrong.copy_to_host()
    assert calls == 0 and bytes_ == 0, f"{calls} wrong statuses, {bytes_} wrong bytes"


def messages_of_warps(g: gmpi.Context) -> None:
    small = [0, 1, 8, 12, 13, 100, 143, 144, 145, 1000, 8192, 8193]
    if gmpi.SIMULATOR:
        _exchange(g, warps, 2, 64, 4, small, 3)
    else:
        _exchange(g, warps, 16, 256, 128, small[:-1], 60)
        _exchange(g, warps, 2, 256, 16, [*small, 40000, 300_000], 30)  # 32 large requests


def messages_of_blocks(g: gmpi.Context) -> None:
    sizes = [8, 145, 8192, 8193, 40000]
    if gmpi.SIMULATOR:
        _exchange(g, blocks, 2, 64, 2, sizes, 3)
    else:
        _exchange(g, blocks, 8, 256, 8, [*sizes, 1 << 20, (1 << 20) + 1, 3_000_001], 40)


@cuda.jit
def receive(ctx, room, tag):  # type: ignore[no-untyped-def]
    gmpi.GMPI_Recv(ctx, room, room.size, gmpi.BYTE, RANK, tag, 0)


def arrays_dropped_at_launches(g: gmpi.Context) -> None:
    """By the thread whose message the kernel waits for; CUDA frees memory when kernels end."""
    room = cuda.to_device(np.zeros(8, np.uint8))
    for k in range(2 if gmpi.SIMULATOR else 200):
        dropped = [cuda.to_device(np.zeros(1000)) for _ in range(40)]
        begun = threading.Event()

        def host(k: int = k, dropped: list[object] = dropped, begun: Any = begun) -> None:
            begun.set()
            dropped.clear()
            g.host.Send(np.full(8, k, np.uint8), RANK, k)

        def launch(k: int = k, begun: Any = begun) -> None:
            begun.wait()
            receive[1, 32](g.device, room, k)

        in_thread(host, launch)
        g.synchronize()
        assert (room.copy_to_host() == k).all()


def main() -> None:
    with gmpi.Context(WORLD) as g:
        run([
            null_records, null_requests, messages_of_warps, messages_of_blocks,
            arrays_dropped_at_launches,
        ], g)  # fmt: skip
        assert g.pending == [] and g.errors == []
    end()


main()
