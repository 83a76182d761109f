"""The row of a communicator in device memory that says what topology it has (MPI 4.1 chapter 8).

The host writes it when the communicator is registered: zeros where there is none.
"""

from __future__ import annotations

from gmpi.contract.wire import TOPOLOGY_BYTES

# Of a Cartesian one, how many dimensions it has | a bit for each that is periodic << PERIODS_SHIFT;
# then their lengths.
CART_DIMS = 8
PERIODS_SHIFT = 8
# How many neighbours blocks come from | go to << 32.
DEGREES = 8 + 8 * CART_DIMS
# A bit for each neighbour on a Cartesian one that is PROC_NULL.
MISSING = DEGREES + 8
assert MISSING + 8 <= TOPOLOGY_BYTES
