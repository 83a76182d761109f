"""What a call costs before MPI: a record by its number of arguments, beside launching a kernel.

The first table of the GMPI paper (004, table 3 and figure 5) asks whether handing a record over is
cheaper than ending the kernel and launching it again. A record has room for seven arguments in its
four header packets and for twelve bytes more in each further packet; one warp writes all packets
with one instruction, and a thread of the host waits for each of them before it answers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _bench import summary
from numba import cuda

import gmpi
from device_lib.platform.primitives import lane_id, load_sys, write_packet
from gmpi.contract.wire import (
    HEADER_PACKETS,
    INLINE_BYTES,
    LOW_32,
    PACKET_BYTES,
    PACKET_PAYLOAD,
    SLOT_BYTES,
)
from host_proxy.platform.native import entry, load_acquire, pause, store_release

HEADER_ARGUMENTS = 7  # operation, count, datatype, peer, tag, communicator, address
MOST_ARGUMENTS = HEADER_ARGUMENTS + INLINE_BYTES // 8
ARGUMENTS = (1, 4, HEADER_ARGUMENTS, 8, 12, 16, 20, MOST_ARGUMENTS)
_RECORDS = 64  # slots that are used in turn


def packets_of(arguments: int) -> int:
    """Packets of a record with so many arguments of 8 bytes."""
    more = max(0, arguments - HEADER_ARGUMENTS) * 8
    return HEADER_PACKETS + -(-more // PACKET_PAYLOAD)


@cuda.jit
def _hand_over(records, back, packets, iterations, cycles):
    lane = lane_id()
    for i in range(1, iterations + 1):
        begin = gmpi.clock()
        seq = ((i << 1) | 1) & LOW_32
        if lane < packets:
            at = records + (i % _RECORDS) * SLOT_BYTES + lane * PACKET_BYTES
            write_packet(at, i + lane, seq << 32 | lane)
        if lane == 0:
            while load_sys(back) != i:
                if gmpi.SIMULATOR:
                    cuda.nanosleep(0)
            cycles[i - 1] = gmpi.clock() - begin
        cuda.syncwarp()


@entry
def _take(records, back, packets, iterations, wrong):
    """Waits for each packet of each record; what is wrong in them is counted."""
    bad = 0
    for i in range(1, iterations + 1):
        seq = ((i << 1) | 1) & LOW_32
        for packet in range(packets):
            at = records + (i % _RECORDS) * SLOT_BYTES + packet * PACKET_BYTES
            word = load_acquire(at + 8)
            while (word >> 32) & LOW_32 != seq:
                pause()
                word = load_acquire(at + 8)
            if load_acquire(at) != i + packet or word & LOW_32 != packet:
                bad += 1
        store_release(wrong, bad)
        store_release(back, i)


def record_costs(rate: float, iterations: int) -> list[dict[str, Any]]:
    """Round trips in us of a record, by its number of arguments.

    Raises:
        RuntimeError: a packet had other words than those that were written.
    """
    area = _RECORDS * SLOT_BYTES
    words = cuda.mapped_array((area + 256) // 8, dtype=np.int64)
    host = np.asarray(words).ctypes.data
    mapped = host if gmpi.SIMULATOR else words.__cuda_array_interface__["data"][0]
    cycles = cuda.to_device(np.zeros(iterations, np.int64))
    rows = []
    _take(host, host + area, 0, 0, host + area + 128)  # compiles
    for arguments in ARGUMENTS:
        packets = packets_of(arguments)
        for count in (min(10, iterations), iterations):
            words[:] = 0
            task = host, host + area, packets, count, host + area + 128
            thread = threading.Thread(target=_take, args=task, daemon=True)
            thread.start()
            _hand_over[1, 32](mapped, mapped + area, packets, count, cycles)
            cuda.synchronize()
            thread.join()
            if words[(area + 128) // 8]:
                raise RuntimeError(f"records of {arguments} arguments arrived with wrong units")
        us = summary(cycles.copy_to_host() / rate)
        rows.append({"arguments": arguments, "units": packets, **us})
    return rows


@cuda.jit
def _nothing(out):
    if cuda.threadIdx.x == 0:
        out[0] += 1


def _times(step: Callable[[], None], after: Callable[[], Any], rounds: int) -> dict[str, float]:
    """us of ``step``, with the GPU idle before each."""
    took = np.zeros(rounds)
    for i in range(rounds):
        begin = time.perf_counter()
        step()
        took[i] = time.perf_counter() - begin
        after()
    return summary(took[rounds // 10 :] * 1e6)


def launch_costs(rounds: int) -> dict[str, dict[str, float]]:
    """us of a launch, and of a launch and waiting for its end, by Numba and (GPU) by CuPy.

    CuPy's launch is close to the driver's own; ``*_stream`` waits for the stream, ``*_device`` for
    the device.
    """
    out = cuda.to_device(np.zeros(1, np.int64))
    stream = cuda.stream()
    configured = _nothing[1, 32, stream]

    def numba_stream() -> None:
        configured(out)
        stream.synchronize()

    def numba_device() -> None:
        configured(out)
        cuda.synchronize()

    numba_stream()
    found = {
        "numba_launch": _times(lambda: configured(out), cuda.synchronize, rounds),
        "numba_stream": _times(numba_stream, cuda.synchronize, rounds),
        "numba_device": _times(numba_device, cuda.synchronize, rounds),
    }
    launched = 3 * rounds + 1
    if not gmpi.SIMULATOR:
        import cupy

        own = cupy.cuda.Stream(non_blocking=True)
        source = 'extern "C" __global__ void nothing(long long* p) { if (!threadIdx.x) ++*p; }'
        kernel = cupy.RawKernel(source, "nothing")
        count = cupy.asarray(out)
        wait = cupy.cuda.runtime.deviceSynchronize

        def launch() -> None:
            kernel((1,), (32,), (count,), stream=own)

        def cupy_stream() -> None:
            launch()
            own.synchronize()

        def cupy_device() -> None:
            launch()
            wait()

        cupy_stream()
        found["cupy_launch"] = _times(launch, wait, rounds)
        found["cupy_stream"] = _times(cupy_stream, wait, rounds)
        found["cupy_device"] = _times(cupy_device, wait, rounds)
        launched += 3 * rounds + 1
    cuda.synchronize()
    ran = int(out.copy_to_host()[0])
    if ran != launched:
        raise RuntimeError(f"{launched} kernels were launched, {ran} ran")
    return found
