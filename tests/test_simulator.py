"""Greenlet lanes: kernels whose threads and blocks wait for each other."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from numba import cuda

import gmpi
from device_lib.platform import primitives_sim
from device_lib.platform.context import DeviceContext
from device_lib.simulator import kernels
from device_lib.simulator.meetings import BarrierError
from gmpi import (
    BYTE,
    GMPI_Barrier,
    GMPI_Psend_init,
    GMPI_Recv_warp,
    GMPI_Send,
    GMPI_Send_warp,
    GMPI_Synchronize,
    GridError,
    UsageError,
)
from gmpi.launch.kernels import LaunchedKernels
from gmpi.launch.launch import Launch

pytestmark = pytest.mark.skipif(not gmpi.SIMULATOR, reason="needs the simulator")


@cuda.jit
def _votes(out):  # type: ignore[no-untyped-def]
    t = cuda.threadIdx.x
    lane = cuda.laneid
    out[t, 0] = cuda.ballot_sync(0xFFFFFFFF, lane % 3 == 0)
    out[t, 1] = cuda.all_sync(0xFFFFFFFF, lane < 32)
    out[t, 2] = cuda.any_sync(0xFFFFFFFF, t == 40)
    out[t, 3] = cuda.shfl_sync(0xFFFFFFFF, t * 10, 5)
    out[t, 4] = cuda.shfl_up_sync(0xFFFFFFFF, t, 1)
    out[t, 5] = cuda.shfl_down_sync(0xFFFFFFFF, t, 2)
    out[t, 6] = cuda.shfl_xor_sync(0xFFFFFFFF, t, 3)
    out[t, 7] = cuda.syncthreads_count(t < 7)


def test_votes_and_shuffles_of_a_warp() -> None:
    out = np.zeros((64, 8), np.int64)
    _votes[1, 64](out)
    t = np.arange(64)
    lane, warp = t % 32, t // 32 * 32
    every_third = sum(1 << i for i in range(0, 32, 3))
    assert (out[:, 0] == every_third).all() and (out[:, 1] == 1).all()
    assert (out[:, 2] == (warp == 32)).all()
    assert (out[:, 3] == 10 * (warp + 5)).all()
    assert (out[:, 4] == np.where(lane == 0, t, t - 1)).all()
    assert (out[:, 5] == np.where(lane > 29, t, t + 2)).all()
    assert (out[:, 6] == warp + (lane ^ 3)).all()
    assert (out[:, 7] == 7).all()


@cuda.jit
def _relay(flags):  # type: ignore[no-untyped-def]
    """Block b waits for block b + 1: in the order of their numbers they would wait for ever."""
    b = cuda.blockIdx.x
    if cuda.threadIdx.x == 0:
        while b + 1 < cuda.gridDim.x and flags[b + 1] == 0:
            cuda.nanosleep(100)
        flags[b] = 1


def test_all_blocks_are_alive_at_once() -> None:
    flags = np.zeros(20, np.int32)
    _relay[20, 2](flags)
    assert (flags == 1).all()


@cuda.jit
def _grid_sum(data, out):  # type: ignore[no-untyped-def]
    grid = cuda.cg.this_grid()
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    data[i] = i
    grid.sync()
    if i == 0:
        for k in range(data.size):
            out[0] += data[k]


def test_grid_sync() -> None:
    data, out = np.zeros(96, np.int64), np.zeros(1, np.int64)
    _grid_sum[3, 32](data, out)
    assert out[0] == 95 * 96 // 2


@cuda.jit
def _shared_of_block(out):  # type: ignore[no-untyped-def]
    tile = cuda.shared.array(8, np.int64)
    other = cuda.shared.array(8, np.int64)
    t = cuda.threadIdx.x
    tile[t] = cuda.blockIdx.x * 100 + t
    other[t] = -1
    cuda.syncthreads()
    out[cuda.blockIdx.x, t] = tile[7 - t]


def test_shared_memory_belongs_to_one_block() -> None:
    out = np.zeros((3, 8), np.int64)
    _shared_of_block[3, 8](out)
    assert (out == 100 * np.arange(3)[:, None] + np.arange(7, -1, -1)).all()


@cuda.jit
def _indices(out):  # type: ignore[no-untyped-def]
    t = cuda.threadIdx
    b = cuda.blockIdx
    x, y, z = cuda.grid(3)
    out[x, y, z] = (b.x * 1000 + b.y * 100 + b.z * 10) + t.x + 2 * t.y + 4 * t.z


def test_indices_in_three_dimensions() -> None:
    out = np.zeros((4, 4, 4), np.int64)
    _indices[(2, 2, 2), (2, 2, 2)](out)
    x, y, z = np.indices((4, 4, 4))
    expected = (x // 2 * 1000 + y // 2 * 100 + z // 2 * 10) + x % 2 + 2 * (y % 2) + 4 * (z % 2)
    assert (out == expected).all()


@cuda.jit
def _half_at_the_barrier(passed):  # type: ignore[no-untyped-def]
    cuda.syncthreads()
    if cuda.threadIdx.x < 16:
        cuda.syncthreads()
        cuda.syncthreads()
    else:
        cuda.syncthreads()
        while True:
            cuda.syncwarp()
            break
        cuda.shfl_sync(0xFFFFFFFF, 1, 0)


def test_a_barrier_that_others_never_reach_is_an_error_and_no_hang() -> None:
    with pytest.raises(BarrierError, match="threads of the kernel wait at a barrier that the oth"):
        _half_at_the_barrier[1, 32](np.zeros(1))
    out = np.zeros((64, 8), np.int64)
    _votes[1, 64](out)  # the next kernel is not affected
    assert (out[:, 7] == 7).all()


@cuda.jit
def _half_makes_the_call(ctx):  # type: ignore[no-untyped-def]
    if cuda.threadIdx.x < 16:
        GMPI_Barrier(ctx, 0)


@pytest.mark.parametrize("between", [True, False])
def test_two_broadcasts_of_a_block_need_a_barrier_between_them(between: bool) -> None:
    """On a GPU both are stored in the same words: a warp that is late would take the second one."""

    @cuda.jit
    def kernel(out: Any) -> None:
        first = primitives_sim.broadcast_block(7)
        if between:
            primitives_sim.sync_block()
        out[cuda.threadIdx.x] = first + primitives_sim.broadcast_block_3(1, 2, 3)[2]

    out = np.zeros(64, np.int64)
    if between:
        kernel[1, 64](out)
        assert (out == 10).all()
    else:
        with pytest.raises(AssertionError, match="two broadcasts"):
            kernel[1, 64](out)


RACES = {
    (): "",
    ("stored",): "loads what another one has stored",
    ("loaded",): "stores what another one has loaded|loads what another one has stored",
    ("by two",): "two warps store",
}


@pytest.mark.parametrize("without", RACES)
def test_words_that_warps_tell_each_other_need_a_barrier_between(without: tuple[str, ...]) -> None:
    """Behind what is stored, behind what is loaded, and between what two warps store."""

    @cuda.jit
    def kernel(out: Any) -> None:
        first = cuda.threadIdx.x < 32
        if first:
            primitives_sim.put_block_row(2, 5, 6, 7)
        if "stored" not in without:
            primitives_sim.sync_block()
        out[cuda.threadIdx.x] = primitives_sim.get_block_row(2, 0, 0, 0)[1]
        if "loaded" not in without:
            primitives_sim.sync_block()
        if not first:
            primitives_sim.put_block_row(2, 8, 9, 10)
        if "by two" not in without:
            primitives_sim.sync_block()
        if first:
            primitives_sim.put_block_row(2, 1, 2, 3)

    out = np.zeros(64, np.int64)
    if not without:
        kernel[1, 64](out)
        assert (out == 6).all()
    else:
        with pytest.raises(AssertionError, match=RACES[without]):
            kernel[1, 64](out)


def test_a_call_that_some_threads_do_not_make_is_named_with_its_line() -> None:
    line = _half_makes_the_call.py_func.__code__.co_firstlineno + 3
    call = rf"GMPI_Barrier at .*test_simulator.py:{line}: threads 0, 1, 2, 3, \.\.\. of block 0"
    words = rf"some threads of its scope only.*\({call} are in it"
    with pytest.raises(BarrierError, match=words):
        _half_makes_the_call[1, 32](DeviceContext(0, 0, 0, 0))


@cuda.jit
def _wrong(ctx, case, data):  # type: ignore[no-untyped-def]
    own = cuda.local.array(8, np.uint8)
    i = cuda.threadIdx.x
    if case == "local":
        GMPI_Send(ctx, own, 8, BYTE, 0, 7, 0)
    elif case == "part of local":
        GMPI_Recv_warp(ctx, own[4:], 4, BYTE, 0, 7, 0)
    elif case == "tag":
        GMPI_Send(ctx, data, 8, BYTE, 0, i // 2, 0)
    elif case == "another buffer":
        GMPI_Send_warp(ctx, data[i:], 8, BYTE, 0, 7, 0)
    elif i < 40:
        GMPI_Barrier(ctx, 0)
    else:
        GMPI_Synchronize(ctx)


SAME = "; all threads of the {} make the same calls, with equal arguments"
#: case, threads, what is said, in how many lines behind the kernel's first one
REFUSED = [
    ("local", 32, "GMPI_Send: buf is memory of one thread (cuda.local.array), allowed is", 5),
    ("part of local", 64, "GMPI_Recv_warp: buf is memory of one thread (cuda.local.arr", 7),
    ("tag", 32, f"tag is 1 in thread 2 and 0 in thread 0 of block 0{SAME.format('block')}", 9),
    ("another buffer", 32, "GMPI_Send_warp: buf is at 0x", 11),
    ("calls", 64, "GMPI_Synchronize is called in thread 40 and GMPI_Barrier in thread 0 of bl", 15),
]


@pytest.mark.parametrize(("case", "threads", "words", "line"), REFUSED, ids=lambda v: str(v)[:9])
def test_what_a_gpu_refuses_is_refused_with_its_line(
    case: str, threads: int, words: str, line: int
) -> None:
    with pytest.raises(UsageError) as caught:
        _wrong[1, threads](DeviceContext(0, 0, 0, 0), case, np.zeros(100, np.uint8))
    text = str(caught.value)
    first = _wrong.py_func.__code__.co_firstlineno
    assert words in text and text.endswith(f"test_simulator.py:{first + line})"), text
    scope = "warp" if case == "another buffer" else "block"
    assert SAME.format(scope) in text or "one thread" in text


def test_a_block_that_no_gpu_has_is_refused() -> None:
    words = "a block of mine has 2048 threads, allowed is at most 1024 on any GPU"
    with pytest.raises(GridError, match=words):
        LaunchedKernels(allowed=True, check_grid=True).begin(Launch("mine", 1, 2048, 1024))


@pytest.mark.parametrize(
    ("blocks", "resident", "words"),
    [
        (
            0,
            0,
            "not one block of 512 threads of mine fits a multiprocessor .* 246 registers",
        ),
        (0, 132, "the grid of mine has 0 blocks, allowed is 1 or more"),
    ],
)
def test_a_grid_of_no_block_is_refused(blocks: int, resident: int, words: str) -> None:
    """CUDA calls that "invalid value"."""
    with pytest.raises(GridError, match=words):
        LaunchedKernels(allowed=True, check_grid=True).begin(
            Launch("mine", blocks, 512, resident, registers=246)
        )


@cuda.jit
def _raises_in_one_thread(data):  # type: ignore[no-untyped-def]
    if cuda.threadIdx.x == 3:
        data[1000] = 1
    cuda.syncthreads()


def test_an_exception_in_one_thread_comes_out() -> None:
    with pytest.raises(IndexError):
        _raises_in_one_thread[2, 8](np.zeros(4))


@cuda.jit
def _spins(flag, rounds):  # type: ignore[no-untyped-def]
    """Two warps hand a word to each other."""
    me = cuda.threadIdx.x // 32
    for i in range(rounds):
        while flag[0] != 2 * i + me:
            cuda.nanosleep(0)
        cuda.syncwarp()
        if cuda.laneid == 0:
            flag[0] += 1
        cuda.syncwarp()


def test_waiting_lanes_let_the_others_run() -> None:
    flag = np.zeros(1, np.int64)
    began = time.monotonic()
    _spins[1, 64](flag, 20)
    assert flag[0] == 40
    assert time.monotonic() - began < 10  # OS threads took seconds for each


@cuda.jit
def _read_packet(address, out):  # type: ignore[no-untyped-def]
    out[:] = primitives_sim.read_packet(address)


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_unit_is_read_in_one_piece(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new order must not come with the length of the one before it."""
    packet, out, looks = np.array([1, 1]), np.zeros(2, np.int64), 0
    word = primitives_sim._word

    def written_meanwhile(address: int) -> Any:
        nonlocal looks
        looks += 1
        if looks == at:
            packet[:] = 2
        return word(address)

    monkeypatch.setattr(primitives_sim, "_word", written_meanwhile)
    _read_packet[1, 1](packet.ctypes.data, out)
    assert out[0] == out[1]


@cuda.jit(device=True)
def _makes_one(ctx, buf):  # type: ignore[no-untyped-def]
    return GMPI_Psend_init(ctx, buf, 1, 1, BYTE, 0, 0, 0)


make = GMPI_Psend_init


def _by_a_device_function(ctx, buf):  # type: ignore[no-untyped-def]
    buf[0] = _makes_one(ctx, buf)


def _by_another_name(ctx, buf):  # type: ignore[no-untyped-def]
    make(ctx, buf, 1, 1, BYTE, 0, 0, 0)


def _by_the_module(ctx, buf):  # type: ignore[no-untyped-def]
    gmpi.GMPI_Psend_init(ctx, buf, 1, 1, BYTE, 0, 0, 0)


def _others_only(ctx, buf):  # type: ignore[no-untyped-def]
    GMPI_Send(ctx, buf, 1, BYTE, 0, 0, 0)


def test_a_launch_knows_what_its_kernel_calls() -> None:
    names = frozenset({"GMPI_Psend_init"})
    for function in (_by_a_device_function, _by_another_name, _by_the_module):
        assert kernels.calls(function, names) and kernels.calls(function, names)
    assert not kernels.calls(_others_only, names)
