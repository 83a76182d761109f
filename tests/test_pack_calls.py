"""What a call of ``gmpi.pack`` finds of earlier ones."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

import gmpi
from gmpi.packing import calls
from gmpi.packing.compiled_calls import call_of, job

pytestmark = pytest.mark.quick

simulated = pytest.mark.skipif(not gmpi.SIMULATOR, reason="packs NumPy arrays")


@simulated
def test_a_freed_datatype_leaves_nothing_to_the_next_one_of_its_handle() -> None:
    source = np.arange(64, dtype=np.uint8)
    handles = set()
    for k in range(1, 9):
        datatype = MPI.BYTE.Create_vector(8, 1, k)
        for count in (1, 2) if k < 4 else (1,):
            places = [e * (7 * k + 1) + k * i for e in range(count) for i in range(8)]
            for _ in range(2):  # the second call finds what the first one has prepared
                packed = gmpi.pack(source, datatype, count)
                assert packed.tolist() == places
        handles.add(datatype.handle)
        handle = datatype.handle
        assert handle in calls._plans
        datatype.Free()
        assert handle not in calls._plans
    assert len(handles) < 8, "no handle came twice: this test has tested nothing"


def test_cupy_has_the_calls_of_the_driver() -> None:
    cupy = pytest.importorskip("cupy")
    assert callable(cupy.cuda.driver.ctxGetDevice)
    assert {"_c_contiguous", "_f_contiguous"} <= set(dir(cupy.ndarray))


class Driver:
    """A function of C that notes what it is called with, and answers ``error``."""

    def __init__(self, arguments: int, error: int = 0) -> None:
        self.seen: list[tuple[int, ...]] = []
        kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * arguments)
        self._function = kind(lambda *given: self.seen.append(given) or error)

    @property
    def address(self) -> int:
        return ctypes.cast(self._function, ctypes.c_void_p).value or 0


def test_a_launch_passes_what_the_driver_takes() -> None:
    driver, words = Driver(11), np.zeros(3, np.int64)
    where = words.ctypes.data
    ready = job(
        call=driver.address, function=77, blocks=5, threads=256, pointers=99,
        user_at=where, packed_at=where + 16, offset=-8,
    )  # fmt: skip
    high = 1 << 47
    assert call_of("launch")(ready.ctypes.data, high, 2000, 7) == 0
    assert words.tolist() == [high - 8, 0, 2000]
    assert driver.seen == [(77, 5, 1, 1, 256, 1, 1, 0, 7, 99, 0)]


def test_an_error_of_the_driver_comes_back() -> None:
    driver = Driver(4, error=700)
    ready = job(call=driver.address, bytes=64, user_at=1)
    assert call_of("line")(ready.ctypes.data, 1, 2, 3) == 700


def test_other_threads_run_while_the_driver_waits() -> None:
    """As a proxy in Python must, for which a kernel waits that is before the launch."""
    sleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p).value or 0
    ready = job(call=sleep, user_at=1)
    carry_out = call_of("line")
    began = time.monotonic()
    ran: list[float] = []
    other = threading.Timer(0.05, lambda: ran.append(time.monotonic() - began))
    other.start()
    assert carry_out(ready.ctypes.data, 0, 900_000, 0) == 0
    took = time.monotonic() - began
    other.join()
    assert took >= 0.9 and ran[0] < 0.8


@pytest.mark.parametrize("unpacks", [False, True])
def test_a_copy_goes_the_right_way(unpacks: bool) -> None:
    driver = Driver(4)
    ready = job(call=driver.address, bytes=64, user_at=0 if unpacks else 1, offset=5)
    call_of("line")(ready.ctypes.data, 1000, 2000, 3)
    assert driver.seen == [(1005, 2000, 64, 3) if unpacks else (2000, 1005, 64, 3)]


@pytest.mark.parametrize("unpacks", [False, True])
@pytest.mark.parametrize("depth", [1, 3])
def test_a_copy_of_rows_says_where_both_sides_are(
    monkeypatch: pytest.MonkeyPatch, unpacks: bool, depth: int
) -> None:
    from gmpi.packing import copies

    driver = Driver(2)
    monkeypatch.setattr(copies, "SIMULATOR", False)
    monkeypatch.setattr(copies, "driver_call", lambda name: driver.address)
    copy = copies.Copy(copies.Shape(4, 8, 32, 6, 320, depth), unpacks)
    copy(1 << 40, 1 << 41, 9)
    words: Any = copy._words
    ((pointer, stream),) = driver.seen
    assert (pointer, stream) == (ctypes.addressof(words), 9)
    user, packed = ("target", "source") if unpacks else ("source", "target")
    assert getattr(words, f"{user}_device") == (1 << 40) + 4
    assert getattr(words, f"{packed}_device") == 1 << 41
    assert (words.width, words.rows) == (8, 6)
    assert getattr(words, f"{user}_pitch") == 32 and getattr(words, f"{packed}_pitch") == 8
    if depth > 1:
        heights = getattr(words, f"{user}_height"), getattr(words, f"{packed}_height")
        assert (words.depth, *heights) == (3, 10, 6)
