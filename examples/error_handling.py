"""What a failed call looks like: in the kernel it is a value, on the host an exception.

    mpiexec -n 2 python examples/error_handling.py

Rank 0 sends 8 numbers three times. Rank 1 has room for 8, for 4 and for 16 of them.
"""

import sys

import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import GMPI_Recv, GMPI_Send

ROOM = (8, 4, 16)


@cuda.jit
def send(ctx, numbers, times):
    for n in range(times):
        GMPI_Send(ctx, numbers, numbers.size, gmpi.DOUBLE, 1, n, gmpi.COMM_WORLD)


@cuda.jit
def receive(ctx, numbers, room, errors, counts):
    for n in range(room.size):
        status = GMPI_Recv(ctx, numbers, room[n], gmpi.DOUBLE, 0, n, gmpi.COMM_WORLD)
        if cuda.threadIdx.x == 0:
            errors[n] = status.error  # an error class of MPI; the kernel decides what to do
            counts[n] = status.count  # how many have come


def main() -> int:
    comm = MPI.COMM_WORLD
    if comm.size != 2:
        sys.exit(f"error_handling needs 2 ranks, got {comm.size}")
    gmpi.select_gpu(comm)
    numbers = cuda.to_device(np.arange(16.0) if comm.rank == 0 else np.zeros(16))
    room = cuda.to_device(np.array(ROOM, np.int64))
    errors, counts = (cuda.to_device(np.zeros(3, np.int64)) for _ in range(2))
    raised = None
    with gmpi.Context(comm) as g:
        if comm.rank == 0:
            send[1, 32](g.device, numbers[:8], len(ROOM))
        else:
            receive[1, 32](g.device, numbers, room, errors, counts)
        try:
            g.synchronize()  # raises the first call that has failed
        except gmpi.TruncationError as exc:
            raised = exc
    if comm.rank == 0:
        return 0

    found = errors.copy_to_host().tolist()
    for n, error in enumerate(found):
        words = "right" if error == gmpi.SUCCESS else gmpi.error_string(error)
        print(f"room for {ROOM[n]}: {words}, {counts.copy_to_host()[n]} numbers")
    print(f"the host was told: {raised}", flush=True)
    expected = [gmpi.SUCCESS, gmpi.ERR_TRUNCATE, gmpi.SUCCESS]
    right = found == expected and raised is not None and raised.operation == "GMPI_Recv"
    return 0 if right and counts.copy_to_host()[2] == 8 else 1


if __name__ == "__main__":
    sys.exit(main())
