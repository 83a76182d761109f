"""The Himeno benchmark on one CPU core, as the original C program: the independent reference."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import numpy as np
from _himeno_fields import PRESSURE, initial
from _himeno_grid import COEFFICIENTS, Triple
from numba import njit

_initial = njit(initial, cache=True)


@njit(cache=True)
def _fill(arrays, varied):
    for m in range(arrays.shape[0]):
        for i in range(arrays.shape[1]):
            for j in range(arrays.shape[2]):
                for k in range(arrays.shape[3]):
                    arrays[m, i, j, k] = _initial(m, i, j, k, arrays.shape[1], varied)


@njit(cache=True)
def _jacobi(arrays, p, iterations):
    a0, a1, a2, a3 = arrays[0], arrays[1], arrays[2], arrays[3]
    b0, b1, b2 = arrays[4], arrays[5], arrays[6]
    c0, c1, c2 = arrays[7], arrays[8], arrays[9]
    bnd, wrk1 = arrays[10], arrays[11]
    omega = np.float32(0.8)
    wrk2 = p.copy()
    gosa = np.zeros(iterations)
    for n in range(iterations):
        total = 0.0
        for i in range(1, p.shape[0] - 1):
            for j in range(1, p.shape[1] - 1):
                for k in range(1, p.shape[2] - 1):
                    s0 = (
                        a0[i, j, k] * p[i + 1, j, k]
                        + a1[i, j, k] * p[i, j + 1, k]
                        + a2[i, j, k] * p[i, j, k + 1]
                        + b0[i, j, k]
                        * (
                            p[i + 1, j + 1, k]
                            - p[i + 1, j - 1, k]
                            - p[i - 1, j + 1, k]
                            + p[i - 1, j - 1, k]
                        )
                        + b1[i, j, k]
                        * (
                            p[i, j + 1, k + 1]
                            - p[i, j - 1, k + 1]
                            - p[i, j + 1, k - 1]
                            + p[i, j - 1, k - 1]
                        )
                        + b2[i, j, k]
                        * (
                            p[i + 1, j, k + 1]
                            - p[i - 1, j, k + 1]
                            - p[i + 1, j, k - 1]
                            + p[i - 1, j, k - 1]
                        )
                        + c0[i, j, k] * p[i - 1, j, k]
                        + c1[i, j, k] * p[i, j - 1, k]
                        + c2[i, j, k] * p[i, j, k - 1]
                        + wrk1[i, j, k]
                    )
                    ss = (s0 * a3[i, j, k] - p[i, j, k]) * bnd[i, j, k]
                    total += np.float64(ss) * np.float64(ss)
                    wrk2[i, j, k] = p[i, j, k] + omega * ss
        p[1:-1, 1:-1, 1:-1] = wrk2[1:-1, 1:-1, 1:-1]
        gosa[n] = total
    return gosa


def reference(size: Triple, iterations: int, varied: bool) -> tuple[np.ndarray, np.ndarray]:
    """(pressure float32[size], gosa float64[iterations]) after so many iterations."""
    arrays = np.empty((len(COEFFICIENTS) + 1, *size), np.float32)
    _fill(arrays, varied)
    p = arrays[PRESSURE].copy()
    return p, _jacobi(arrays, p, iterations)
