"""The bytes of one buffer of a call, in the order in which MPI moves them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from device_lib.move.message import is_derived, message_bytes
from device_lib.platform.primitives_sim import elements_of

#: NaN as float64 and as float32; as integers 2147334877 and 9222731104347372253.
POISON = np.frombuffer(bytes.fromhex("ddbafd7f"), np.uint8)
MOST_BYTES = 1 << 28  # of one buffer; longer ones are not looked at

#: (datatype, count) -> displacements and lengths of its runs, in packed order; None: not committed.
Runs = Callable[[int, int], "tuple[np.ndarray, np.ndarray] | None"]


class Region:
    """Bytes in memory, in the order of the message.

    Attributes:
        low, high: addresses of the first byte, and behind the last one.
        places: int64, where each byte is, from ``low``; None: they lie in one piece.
    """

    def __init__(self, low: int, high: int, places: np.ndarray | None = None) -> None:
        self.low = low
        self.high = high
        self.places = places
        self.size = high - low if places is None else len(places)

    @cached_property
    def sorted_places(self) -> np.ndarray:
        assert self.places is not None
        return np.sort(self.places)

    @cached_property
    def _memory(self) -> np.ndarray:
        raw = (ctypes.c_uint8 * (self.high - self.low)).from_address(self.low)
        return np.ctypeslib.as_array(raw)

    def touches(self, first: int, end: int) -> bool:
        """Whether one of its bytes is in ``first..end - 1``."""
        if end <= self.low or first >= self.high:
            return False
        if self.places is None:
            return True
        k = int(np.searchsorted(self.sorted_places, first - self.low))
        return k < self.size and int(self.sorted_places[k]) < end - self.low

    def overlaps(self, other: Region) -> bool:
        if self.high <= other.low or other.high <= self.low:
            return False
        if self.places is None:
            return other.touches(self.low, self.high)
        if other.places is None:
            return self.touches(other.low, other.high)
        mine, its = self.places + self.low, other.places + other.low
        return bool(np.isin(mine, its).any())

    def part(self, number: int, parts: int) -> Region:
        """One of so many parts of equal length, in the order of the message."""
        size = self.size // parts
        begin = number * size
        if self.places is None:
            return Region(self.low + begin, self.low + begin + size)
        return _scattered(self.low, self.places[begin : begin + size])

    def read(self) -> np.ndarray:
        """A copy of its bytes."""
        return (self._memory if self.places is None else self._memory[self.places]).copy()

    def write(self, data: np.ndarray, begin: int = 0) -> None:
        """Stores bytes in it, from byte ``begin`` of the message on."""
        if self.places is None:
            self._memory[begin : begin + len(data)] = data
        else:
            self._memory[self.places[begin : begin + len(data)]] = data

    def poison(self) -> None:
        self.write(np.resize(POISON, self.size))


def _scattered(low: int, places: np.ndarray) -> Region:
    """Of bytes at ``low + places``."""
    if not len(places):
        return Region(low, low)
    first, end = int(places.min()), int(places.max()) + 1
    return Region(low + first, low + end, places - first)


def array_of(buffer: Any) -> np.ndarray | None:
    """The NumPy array behind what a kernel calls an array; None: it is an address."""
    array = elements_of(buffer)
    return array if isinstance(array, np.ndarray) else None


def address_of(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def region_of(buffer: Any, count: int, datatype: int, runs: Runs) -> Region | None:
    """The bytes of ``count`` elements; None: there are none, or the call will be refused."""
    array = array_of(buffer)
    base = int(buffer) if array is None else address_of(array)
    if count <= 0:
        return None
    if is_derived(datatype):
        found = runs(datatype, count)
        if found is None or int(found[1].sum()) > MOST_BYTES:
            return None
        at, lengths = found
        begins = np.cumsum(lengths) - lengths
        places = np.repeat(at - begins, lengths) + np.arange(int(lengths.sum()))
        return _scattered(base, places) if len(places) else None
    nbytes = message_bytes(count, datatype)
    if base == 0 or nbytes == 0 or nbytes > MOST_BYTES:
        return None
    if array is None:
        return Region(base, base + nbytes)
    if nbytes > array.nbytes:
        return None  # too short: refused
    if array.flags.c_contiguous or array.flags.f_contiguous:
        return Region(base, base + nbytes)
    return _scattered(base, byte_places(array)[:nbytes])


def byte_places(array: np.ndarray) -> np.ndarray:
    """Where each byte of an array is, from its first element, in the order of its indices."""
    places = np.zeros(1, np.int64)
    for extent, stride in zip(array.shape, array.strides):
        places = (places[:, None] + np.arange(extent) * stride).ravel()
    return (places[:, None] + np.arange(array.itemsize)).ravel()
