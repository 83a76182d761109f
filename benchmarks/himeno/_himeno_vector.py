"""Four points at a time: 16-byte accesses, and products that are never fused.

What the sweep needs of the GPU that Numba has no name for, each with a twin for the simulator.
Offsets count elements of a flat float32 array and are multiples of 4 where 4 points are moved.
"""

from __future__ import annotations

from gmpi import SIMULATOR

if SIMULATOR:
    import _himeno_vector_sim as _twin
else:
    import _himeno_vector_cuda as _twin  # type: ignore[no-redef]

device = _twin.device

multiprocessor = _twin.multiprocessor
take = _twin.take
arrive = _twin.arrive
peek = _twin.peek
acquire = _twin.acquire
poke = _twin.poke
release = _twin.release

product = _twin.product
load1 = _twin.load1
load4 = _twin.load4
load4_once = _twin.load4_once
load4_shared = _twin.load4_shared
store4 = _twin.store4
store4_shared = _twin.store4_shared
