"""Copies into shared memory that no thread waits for.

What ``_himeno_wave`` needs of the GPU that Numba has no name for, each with a twin for the
simulator. Needs compute capability 9.0: there a thread starts a copy of many KiB and goes on.

A *slot* is a part of shared memory that is filled again and again. ``full`` (int64[slots], in
shared memory) has a barrier for each of them, whose phase ends when a copy is complete, ``freed``
(int32[slots]) counts the warps that need it no more.
"""

from __future__ import annotations

from gmpi import SIMULATOR

if SIMULATOR:
    import _himeno_fetch_sim as _twin
else:
    import _himeno_fetch_cuda as _twin  # type: ignore[no-redef]

prepare = _twin.prepare
expect = _twin.expect
fetch = _twin.fetch
await_full = _twin.await_full
prefetch = _twin.prefetch

leave = _twin.leave
spin = _twin.spin
