"""What the simulator has of ``numba.cuda``, and that nothing of Numba's own simulator is used."""

from __future__ import annotations

import math
import warnings
from typing import Any

import launcher
import numpy as np
import pytest
from numba import cuda, float32, int64

import gmpi

pytestmark = [
    pytest.mark.skipif(not gmpi.SIMULATOR, reason="needs the simulator"),
    pytest.mark.quick,
]

#: Asked for, the package of numba-cuda's simulator is not there.
_BLOCKED = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(("numba.cuda.simulator", "numba_cuda.numba.cuda.simulator")):
            raise ImportError(name)

sys.meta_path.insert(0, Block())
"""
_PROGRAM = """
import numpy as np
from mpi4py import MPI
from numba import cuda

@cuda.jit
def exchange(ctx, send, recv, rank):
    status = gmpi.GMPI_Sendrecv(
        ctx, send, send.size, gmpi.INT64_T, rank, 1, recv, recv.size, gmpi.INT64_T, rank, 1,
        gmpi.COMM_WORLD,
    )

with gmpi.Context(MPI.COMM_WORLD) as g:
    send, recv = cuda.to_device(np.arange(40)), cuda.device_array(40, np.int64)
    exchange[1, 32](g.device, send, recv, g.rank)
    g.synchronize()
    assert (recv.copy_to_host() == np.arange(40)).all()
"""
_NOTHING = """
import sys
loaded = [name for name in sys.modules if name.startswith("numba") and ".cuda.simulator" in name]
assert not loaded, loaded
assert cuda.implementation == "GMPI", cuda
"""


@pytest.mark.parametrize("sim", ["", "strict"])
def test_a_program_runs_without_numbas_own_simulator(sim: str) -> None:
    program = f"{_BLOCKED}import gmpi\n{_PROGRAM}{_NOTHING}"
    status, text = launcher.python("-c", program, GMPI_SIM=sim, TEST_NUMBA_FIRST="1")
    assert status == 0, text


def test_nothing_of_it_is_imported_where_it_could_be() -> None:
    program = f"import gmpi\nfrom numba import cuda\nassert gmpi.SIMULATOR\n{_NOTHING}"
    status, text = launcher.python("-c", program, TEST_NUMBA_FIRST="1")
    assert status == 0, text


def test_numba_cuda_may_be_imported_first() -> None:
    """Kernels, names and arrays of before are used on."""
    before = """
import numpy as np
from numba import cuda
from numba.cuda import jit, to_device

kept = cuda

@cuda.jit(device=True)
def twice(x):
    return 2 * x

@cuda.jit
def early(data):
    data[cuda.grid(1)] = twice(cuda.laneid)
    cuda.syncwarp()

array = to_device(np.zeros(64))
assert cuda.implementation == "NVIDIA" and not isinstance(array, np.ndarray)
import gmpi
assert gmpi.SIMULATOR and kept is cuda and cuda.implementation == "GMPI"

@jit
def late(data, out):
    out[cuda.grid(1)] = cuda.shfl_sync(0xFFFFFFFF, data[cuda.grid(1)], 5)

out = np.zeros(64)
early[2, 32](array)
late[2, 32](array, out)
assert (array.copy_to_host() == 2 * (np.arange(64) % 32)).all() and (out == 10).all()
"""
    status, text = launcher.python("-c", before + _PROGRAM, TEST_NUMBA_FIRST="1")
    assert status == 0, text


def test_a_numba_cuda_that_has_no_simulator_is_taken_over_as_well() -> None:
    """As will be: what has been imported is the one for GPUs."""
    program = """
import numpy as np
from numba import cuda

@cuda.jit
def early(data):
    data[cuda.grid(1)] = cuda.laneid

assert cuda.implementation == "NVIDIA"
cuda.config.ENABLE_CUDASIM = 1
import gmpi
assert gmpi.SIMULATOR and cuda.implementation == "GMPI"
data = cuda.to_device(np.zeros(64))
early[2, 32](data)
assert (data.copy_to_host() == np.arange(64) % 32).all()
"""
    environment = {"NUMBA_ENABLE_CUDASIM": "0", "TEST_NUMBA_FIRST": "1"}
    status, text = launcher.python("-c", program, **environment)
    assert status == 0, text


def test_without_numbas_setting_numba_cuda_is_its_own() -> None:
    program = "import gmpi\nfrom numba import cuda\nprint(cuda.implementation, gmpi.SIMULATOR)"
    status, text = launcher.python("-c", program, NUMBA_ENABLE_CUDASIM="0")
    assert status == 0 and text.split()[-2:] == ["NVIDIA", "False"], text


def test_random_numbers_of_numba_cuda_work() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Numba's, of object mode
        from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_uniform_float32

        states = create_xoroshiro128p_states(8, seed=1)
        out = np.zeros(8, np.float32)

        @cuda.jit
        def draw(states, out):  # type: ignore[no-untyped-def]
            out[cuda.grid(1)] = xoroshiro128p_uniform_float32(states, cuda.grid(1))

        draw[1, 8](states, out)
    assert len(set(out.tolist())) == 8 and (out >= 0).all() and (out < 1).all()


# --- arrays ---------------------------------------------------------------------------------------


def test_arrays_of_the_device() -> None:
    host = np.arange(24, dtype=np.float32).reshape(4, 6)
    there = cuda.to_device(host)
    host[:] = 0
    assert there.shape == (4, 6) and there.dtype == np.float32 and there.nbytes == 96
    assert there.strides == (24, 4) and there.size == len(there) * 6 and there.ndim == 2
    assert there.is_c_contiguous() and not there.is_f_contiguous() and there.alloc_size == 96
    assert there[1, 2] == 8 and (there[1].copy_to_host() == np.arange(6, 12)).all()
    there[3] = 7
    there[2, 1:3] = there[0, :2]
    into = np.empty((4, 6), np.float32)
    assert there.copy_to_host(into) is into
    assert (into[3] == 7).all() and into[2].tolist() == [12, 0, 1, 15, 16, 17]
    assert (there.reshape(24)[18:].copy_to_host() == 7).all()
    assert there.ravel().shape == (24,) and there.view(np.int32).dtype == np.int32
    assert (there.T.copy_to_host() == into.T).all() and (np.asarray(there) == into).all()
    assert [part.size for part in there.ravel().split(10)] == [10, 10, 4]
    described = there[:, 1:].__cuda_array_interface__
    assert described["shape"] == (4, 5) and described["strides"] == (24, 4)
    assert described["data"][0] == there.__cuda_array_interface__["data"][0] + 4
    assert (cuda.as_cuda_array(there[:, 1:]).copy_to_host() == into[:, 1:]).all()
    like = cuda.device_array_like(there)
    like.copy_to_device(there)
    assert (like.copy_to_host() == into).all() and cuda.is_cuda_array(like)


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda a: a.copy_to_device(np.zeros(4)), ValueError, r"shape \(4,\), allowed is \(8,\)"),
        (lambda a: a.copy_to_device(np.zeros(8, np.int8)), TypeError, "int8, allowed is float64"),
        (lambda a: a[::2].view(np.int8), ValueError, "contiguous"),
        (lambda a: a.reshape(2, 4)[:, 1:].ravel(), NotImplementedError, "would copy"),
        (lambda a: cuda.to_device(np.zeros((4, 4))[:, ::2]), ValueError, "contiguous"),
        (lambda a: cuda.device_array(4, "nothing"), TypeError, "dtype is 'nothing', allowed is"),
        (lambda a: np.asarray(a, copy=False), ValueError, "copy=False"),
        (lambda a: cuda.select_device(1), ValueError, "device_id is 1, allowed is 0"),
    ],
)
def test_what_arrays_refuse(call: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        call(cuda.to_device(np.zeros(8)))


@cuda.jit
def _plus_one(data):  # type: ignore[no-untyped-def]
    i = cuda.grid(1)
    if i < data.size:
        data[i] += 1


def test_which_memory_a_kernel_changes() -> None:
    host, pinned = np.zeros(40), cuda.pinned_array(40)
    pinned[:] = 0
    mapped, managed = cuda.mapped_array(40), cuda.managed_array(40)
    mapped[:] = managed[:] = 0
    for array in (host, pinned, mapped, managed, cuda.InOut(host)):
        _plus_one[2, 32](array)
    _plus_one[2, 32](cuda.In(host))
    assert (host == 2).all() and (pinned == mapped).all() and (mapped == managed).all()
    out = np.full(40, 9.0)
    _plus_one.forall(40)(cuda.Out(out))
    assert (out != 9).any() or (out == 10).all()
    with cuda.mapped(host) as same, cuda.pinned(pinned):
        _plus_one[2, 32](same)
    assert (host == 3).all()


def test_records() -> None:
    kind = np.dtype([("count", np.int32), ("at", np.float64, 3)])
    data = cuda.to_device(np.zeros(4, kind))

    @cuda.jit
    def fill(data, one):  # type: ignore[no-untyped-def]
        i = cuda.threadIdx.x
        own = cuda.local.array(2, kind)
        own[1].count = i + one.count
        data[i].count = own[1].count
        data[i]["at"][2] = data.count[i]
        data.at[i, 0] = 5

    fill[1, 4](data, np.array([(7, (0, 0, 0))], kind)[0])
    found = data.copy_to_host()
    assert found["count"].tolist() == [7, 8, 9, 10] == found["at"][:, 2].tolist()
    assert (found["at"][:, 0] == 5).all() and data[1].copy_to_host()["count"] == 8


# --- kernels --------------------------------------------------------------------------------------


def test_options_and_signatures_of_jit() -> None:
    def body(out):  # type: ignore[no-untyped-def]
        out[0] += 1

    out = np.zeros(1, np.int64)
    signature = [(int64[:],)]
    made = [
        cuda.jit(body), cuda.jit("void(int64[:])")(body), cuda.jit(signature)(body),
        cuda.jit(max_registers=32, fastmath=True, cache=True, lineinfo=True)(body),
        cuda.jit((int64[:],), launch_bounds=(128, 2))(body),
    ]  # fmt: skip
    for kernel in made:
        kernel[1, 1](out)
        kernel[1, (1, 1, 1), cuda.stream()](out)
        assert kernel.py_func is body and kernel.overloads[signature[0]]
    assert out[0] == 2 * len(made)
    assert made[0].overloads[()].max_cooperative_grid_blocks(32) == 1024


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: cuda.jit(max_register=1), TypeError, "no option max_register, allowed is .*max_"),
        (lambda: cuda.jit(link=["a.ptx"]), NotImplementedError, "compiles and links nothing"),
        (lambda: _plus_one[1], ValueError, r"configured by 1, allowed is \[blocks, threads\]"),
        (lambda: _plus_one[0, 1], ValueError, "blocks is 0, allowed is one to three integers, 1"),
        (lambda: _plus_one[1, 1.5], ValueError, r"threads is 1\.5, allowed"),
        (lambda: _plus_one(np.zeros(1)), ValueError, r"_plus_one\[blocks, threads\]"),
        (lambda: _plus_one.forall(-1), ValueError, "ntasks is -1"),
        (lambda: _plus_one.inspect_asm, AttributeError, "compiles nothing"),
        (lambda: cuda.threadIdx.x, RuntimeError, "cuda.threadIdx.x is known in a kernel only"),
        (lambda: cuda.laneid, AttributeError, "laneid is known in a kernel only"),
        (lambda: cuda.nothing, AttributeError, "no attribute 'nothing'"),
        (lambda: cuda.compile_ptx(abs, ()), NotImplementedError, "cuda.compile_ptx needs a GPU"),
        (cuda.declare_device("f", "int32()"), NotImplementedError, "cuda.f needs a GPU"),
    ],
)
def test_what_is_refused(call: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        call()


def test_extents_and_dynamic_shared_memory() -> None:
    out = np.zeros((2, 12), np.int64)

    @cuda.jit
    def kernel(out):  # type: ignore[no-untyped-def]
        whole = cuda.shared.array(0, int64)
        a, b = cuda.shared.array(6, float32), cuda.shared.array(6, float32)
        x, y = cuda.grid(2)
        i = cuda.threadIdx.y * cuda.blockDim.x + cuda.threadIdx.x
        a[i], b[i], whole[i] = 1, 2, i
        cuda.syncthreads()
        if i == 0:
            numbers = cuda.gridDim.x, cuda.gridDim.y, cuda.gridDim.z, whole.size
            for k, number in enumerate((*numbers, *cuda.gridsize(2), whole[5], a[3], b[3])):
                out[cuda.blockIdx.x, k] = number
        cuda.atomic.add(out, (cuda.blockIdx.x, 11), x * 100 + y)

    kernel[(2, 1), (3, 2), 0, 48](out)
    assert out[0, :9].tolist() == [2, 1, 1, 6, 6, 2, 5, 1, 2]
    assert out[:, 11].tolist() == [2 * 100 * (0 + 1 + 2) + 3, 2 * 100 * (3 + 4 + 5) + 3]


def test_atomics() -> None:
    data = np.array([5, 5, 5, 5, 5, 5, 7, 9, 3, 3], np.uint32)
    real, old = np.array([np.nan, np.nan, 2.0]), np.zeros(14)

    @cuda.jit
    def kernel(data, real, old):  # type: ignore[no-untyped-def]
        a = cuda.atomic
        old[0] = a.add(data, 0, 2)
        old[1] = a.sub(data, 1, 2)
        old[2] = a.and_(data, 2, 4)
        old[3] = a.or_(data, 3, 2)
        old[4] = a.xor(data, 4, 1)
        old[5] = a.exch(data, 5, 40)
        old[6] = a.inc(data, 6, 7)
        old[7] = a.dec(data, 7, 8)
        old[8] = a.cas(data, 8, 3, 1)
        old[9] = a.cas(data, 9, 4, 1)
        a.nanmax(real, 0, 1.0)
        a.nanmin(real, 1, 1.0)
        a.max(real, 2, 3.0)
        a.min(real, 2, 2.5)
        old[10] = a.compare_and_swap(data[:1], 7, 70)

    kernel[1, 1](data, real, old)
    assert data.tolist() == [70, 3, 4, 7, 4, 40, 0, 8, 1, 3] and real.tolist() == [1, 1, 2.5]
    assert old[:11].tolist() == [5, 5, 5, 5, 5, 5, 7, 9, 3, 3, 7]


def test_numbers() -> None:
    found: list[Any] = []

    @cuda.jit
    def kernel(word, whole):  # type: ignore[no-untyped-def]
        found.extend([cuda.popc(word), cuda.clz(word), cuda.ffs(word), cuda.ffs(0)])
        found.extend([cuda.brev(word), cuda.clz(whole), cuda.popc(-1), cuda.selp(True, 1, 2)])
        found.extend([cuda.fma(2.0, 3.0, 1.0), float(cuda.cbrt(27.0)), cuda.fp16.hadd(1, 2)])
        found.extend([cuda.ldcg([5], 0), int64(3), cuda.fp16.hlt(1, 2)])

    kernel[1, 1](np.int32(0b1010), 1)
    assert found[:4] == [2, 28, 2, 0] and found[4] == 0x50000000 and found[5:8] == [63, 64, 1]
    assert found[8] == 7 and math.isclose(found[9], 3) and found[10:] == [3, 5, 3, True]
    assert cuda.float32 is cuda.types.float32 and str(cuda.types.int64) == "int64"
    vector = cuda.float32x4(cuda.float2(1, 2), 3, 4)
    assert list(vector) == [1, 2, 3, 4] and type(vector.w) is np.float32
    assert cuda.float4 is cuda.float32x4


def test_meetings_that_numba_has_and_nothing_here_needs() -> None:
    out = np.zeros((40, 8), np.int64)

    @cuda.jit
    def kernel(out):  # type: ignore[no-untyped-def]
        t = cuda.grid(1)
        all_lanes = cuda.activemask()
        out[t, 0] = cuda.syncthreads_and(t < 39)
        out[t, 1] = cuda.syncthreads_or(t == 39)
        out[t, 2] = cuda.match_any_sync(all_lanes, t % 2)
        out[t, 3], out[t, 4] = cuda.match_all_sync(all_lanes, t // 32)
        out[t, 5] = cuda.eq_sync(all_lanes, t == 0)
        out[t, 6] = cuda.lanemask_lt()
        out[t, 7] = cuda.warpsize + cuda.const.array_like(np.arange(3))[2]

    kernel[1, 40](out)
    assert (out[:, 0] == 0).all() and (out[:, 1] == 1).all() and (out[:, 7] == 34).all()
    assert out[0, 2] == 0x55555555 and out[1, 2] == 0xAAAAAAAA and out[33, 2] == 0b10101010
    assert (out[:32, 3] == 0xFFFFFFFF).all() and (out[32:, 3] == 0xFF).all()
    assert (out[:, 4] == 1).all() and out[0, 5] == 0 and (out[32:, 5] == 1).all()
    assert out[5, 6] == 31 and out[33, 6] == 1


def test_what_the_host_asks() -> None:
    stream, first, last = cuda.stream(), cuda.event(), cuda.event()
    first.record(stream)
    with stream.auto_synchronize():
        _plus_one[1, 1, stream](np.zeros(1))
    last.record(stream)
    last.synchronize()
    assert last.query() and cuda.event_elapsed_time(first, last) > 0
    with pytest.raises(ValueError, match="timing=False"):
        first.elapsed_time(cuda.event(timing=False))
    assert cuda.is_available() and cuda.cuda_error() is None and len(cuda.gpus) == 1
    assert cuda.get_current_device() is cuda.list_devices()[0] is cuda.gpus.current
    assert cuda.current_context().device.compute_capability >= (7, 5)
    assert cuda.current_context().get_memory_info().free > 0
    cuda.select_device(0)
    cuda.synchronize()

    @cuda.reduce
    def total(a, b):  # type: ignore[no-untyped-def]
        return a + b

    assert total(cuda.to_device(np.arange(10)), init=1) == 46 == 36 + total(np.arange(5))
