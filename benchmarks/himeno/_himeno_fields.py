"""The 14 arrays of the Himeno benchmark in device memory, and their initial values."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any

import numpy as np
from _himeno_grid import COEFFICIENTS, GridError, Part
from _himeno_sweep import Layout
from numba import cuda

from gmpi import SIMULATOR

_N = len(COEFFICIENTS)
_MARGIN = 32  # elements: a line of the caches
_BND = COEFFICIENTS.index("bnd")
PRESSURE = _N  # as an array number, behind the coefficients


def initial(m, i, j, k, planes, varied):
    """Initial value of array ``m`` at a point of the whole grid of so many planes.

    The benchmark's own values leave nine of the nineteen points without weight; ``varied`` ones,
    for verification, give each array and each point a value of its own.
    """
    if not varied:
        if m == PRESSURE:
            return np.float32(i * i) / np.float32((planes - 1) * (planes - 1))
        if m == 3:
            return np.float32(1.0) / np.float32(6.0)
        if m < 3 or 7 <= m < 11:
            return np.float32(1.0)
        return np.float32(0.0)
    mixed = (i * 73856093) ^ (j * 19349663) ^ (k * 83492791) ^ (m * 40503)
    r = np.float32((mixed & 0xFFFF) - 32768) * np.float32(2.0**-16)
    if m == PRESSURE:
        return np.float32(i * i) / np.float32((planes - 1) * (planes - 1)) + r
    if m == 3:
        return np.float32(0.15) + r * np.float32(0.03125)
    if m < 3 or 7 <= m < 10:
        return np.float32(1.0) + r * np.float32(0.25)
    if m == _BND:
        return np.float32(1.0) - (r + np.float32(0.5)) * np.float32(0.125)
    return r * np.float32(0.125)


def _make_fill(part: Part):
    value = cuda.jit(device=True)(initial) if not SIMULATOR else initial
    pitch, rows = part.pitch, part.rows
    i0, j0, k0 = (f - h for f, h in zip(part.first, (part.halo[0], part.halo[1], part.lead)))
    own_k, lead, halo = part.shape[2], part.lead, part.halo[2]
    size_i, size_j, size_k = part.size
    layout = Layout(part)
    row_step, array_step = layout.row, layout.array

    @cuda.jit
    def fill(p, q, coef, varied):
        """Every element of this part's arrays, halos included. One row a block, in turn."""
        for row in range(cuda.blockIdx.x, p.size // pitch, cuda.gridDim.x):
            i = row // rows
            j = row - i * rows
            for k in range(cuda.threadIdx.x, pitch, cuda.blockDim.x):
                gi, gj, gk = i + i0, j + j0, k + k0
                inside = lead - halo <= k < lead + own_k + halo
                changes = (
                    lead <= k < lead + own_k
                    and 0 < gi < size_i - 1
                    and 0 < gj < size_j - 1
                    and 0 < gk < size_k - 1
                )
                for m in range(_N):
                    v = np.float32(0.0)
                    if inside and (changes or m != _BND):
                        v = value(m, gi, gj, gk, size_i, varied)
                    coef[np.int64(row) * row_step + m * array_step + k] = v
                v = np.float32(0.0)
                if inside:
                    v = value(PRESSURE, gi, gj, gk, size_i, varied)
                p[np.int64(row) * pitch + k] = v
                q[np.int64(row) * pitch + k] = v

    return fill


def pressure(elements: int) -> Any:
    """float32[elements] in device memory, whose neighbours on both sides may be read."""
    return cuda.device_array(elements + 2 * _MARGIN, np.float32)[_MARGIN:-_MARGIN]


class Fields:
    """Pressure, its successor and the coefficients of one part, in device memory.

    Attributes:
        p, q: flat float32[part.elements].
        coef: flat float32, ``COEFFICIENTS`` as ``Layout`` says.
    """

    def __init__(self, part: Part) -> None:
        self.part = part
        self.p, self.q = (pressure(part.elements) for _ in "pq")
        self.coef = cuda.device_array(_N * part.elements, np.float32)
        self._fill = _make_fill(part)

    def fill(self, varied: bool = False) -> None:
        blocks, threads = (2, 32) if SIMULATOR else (1024, 256)
        self._fill[blocks, threads](self.p, self.q, self.coef, varied)
        cuda.synchronize()

    def swap(self) -> None:
        """After an odd number of iterations: ``p`` is the newest pressure again."""
        self.p, self.q = self.q, self.p

    def own(self, pressure: Any) -> np.ndarray:
        """The own points of ``p`` or ``q`` on the host, float32[shape]."""
        part = self.part
        whole = pressure.copy_to_host().reshape(part.planes, part.rows, part.pitch)
        return np.ascontiguousarray(whole[part.own])


def check_memory(part: Part, sharers: int = 1) -> None:
    """Raises GridError when this part, on each of ``sharers`` ranks, does not fit the GPU."""
    if not SIMULATOR:
        check_free(part, sharers, *cuda.current_context().get_memory_info())


def check_free(part: Part, sharers: int, free: int, total: int) -> None:
    """``check_memory`` for a GPU of so many bytes."""
    if part.nbytes * sharers > free * 0.98:
        raise GridError(
            f"the 14 arrays need {part.nbytes / 2**30:.1f} GiB on each of {sharers} rank(s) of "
            f"this GPU, which has {free / 2**30:.1f} of {total / 2**30:.1f} GiB free; take more "
            "GPUs or a smaller size"
        )
