"""Costs of the pieces that a GMPI call is made of, in cycles: one GPU, one rank.

    python tests/gpu/micro.py

Not a test: what to look at before changing the device library.
"""

import numpy as np
from numba import cuda

import gmpi
from device_lib.api.binding import block_calls, warp_calls
from device_lib.platform.primitives import (
    add_gpu,
    cas_gpu,
    fence_sys,
    lane_id,
    load_gpu,
    load_sys,
    read_packet,
    shuffle,
    write_packet,
)
from device_lib.proxied import slots
from gmpi.contract.wire import DEVICE_ABORT, MAPPED_COMMUNICATORS, OP_PING

ping = warp_calls.ping
ping_block = block_calls.ping
N = 400


def kernel(body):
    """A kernel that stores the cycles of N runs of body(ctx, i)."""
    body = cuda.jit(device=True)(body)

    @cuda.jit
    def timed(ctx, cycles, sink):
        total = 0
        for i in range(N):
            cuda.syncthreads()
            begin = gmpi.clock()
            total += body(ctx, i)
            end = gmpi.clock()
            if cuda.threadIdx.x == 0:
                cycles[i] = end - begin
        sink[0] = total

    return timed


def empty(ctx, i):
    return 0


def timer(ctx, i):
    return gmpi.timer_ns()


def l2_load(ctx, i):
    return load_gpu(ctx.device + DEVICE_ABORT)


def l2_add(ctx, i):
    if lane_id() == 0:
        return add_gpu(ctx.device + DEVICE_ABORT, 0)
    return 0


def l2_cas(ctx, i):
    if lane_id() == 0:
        return cas_gpu(ctx.device + DEVICE_ABORT, 1, 1)
    return 0


def host_load(ctx, i):
    if lane_id() == 0:
        return load_sys(ctx.mapped + MAPPED_COMMUNICATORS + 1024)
    return 0


def host_unit_all_same(ctx, i):
    low, word = read_packet(ctx.mapped + MAPPED_COMMUNICATORS + 1024)
    return low + word


def fence_clean(ctx, i):
    fence_sys()
    return 0


def store_then_fence(ctx, i):
    write_packet(ctx.mapped + MAPPED_COMMUNICATORS + 1024 + lane_id() * 16, i, i)
    fence_sys()
    return 0


def store_only(ctx, i):
    write_packet(ctx.mapped + MAPPED_COMMUNICATORS + 1024 + lane_id() * 16, i, i)
    return 0


def guess(ctx, i):
    return slots.guess(ctx)


def shuffle_once(ctx, i):
    return shuffle(0xFFFFFFFF, i, 0)


def whole_ping(ctx, i):
    return ping(ctx).error


def whole_ping_block(ctx, i):
    return ping_block(ctx).error


_open = warp_calls.open_request
_finish = warp_calls.complete


@cuda.jit
def halves(ctx, opened, finished, late):
    """Opening alone; finishing what is complete already; finishing right after opening."""
    lane = cuda.threadIdx.x
    for i in range(N):
        begin = gmpi.clock()
        handle = _open(ctx, OP_PING, 0, 0, 0, 0, 0)
        middle = gmpi.clock()
        if i & 1:
            start = gmpi.clock()
            while gmpi.clock() - start < 20000:
                pass
        again = gmpi.clock()
        _done, _status = _finish(ctx, handle, 0)
        end = gmpi.clock()
        if lane == 0:
            opened[i] = middle - begin
            if i & 1:
                late[i >> 1] = end - again
            else:
                finished[i >> 1] = end - again


def main():
    with gmpi.Context() as g:
        sink = cuda.to_device(np.zeros(1, np.int64))
        rows = []
        for body in (
            empty, timer, l2_load, l2_add, l2_cas, host_load, host_unit_all_same, fence_clean,
            store_only, store_then_fence, guess, shuffle_once, whole_ping, whole_ping_block,
        ):  # fmt: skip
            cycles = cuda.to_device(np.zeros(N, np.int64))
            k = kernel(body)
            for _ in range(2):
                k[1, 32](g.device, cycles, sink)
                g.synchronize()
            c = cycles.copy_to_host()[50:]
            rows.append((body.__name__, np.percentile(c, 50), np.percentile(c, 99)))
        a, b, c = (cuda.to_device(np.zeros(N, np.int64)) for _ in range(3))
        for _ in range(2):
            halves[1, 32](g.device, a, b, c)
            g.synchronize()
        for name, values, n in (("open", a, N), ("finish", b, N // 2), ("finish late", c, N // 2)):
            v = values.copy_to_host()[20:n]
            rows.append((name, np.percentile(v, 50), np.percentile(v, 99)))
        for name, p50, p99 in rows:
            print(f"{name:<22}{p50:10.0f}{p99:10.0f} cycles{p50 / 1980:9.3f} us")


main()
