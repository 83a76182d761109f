"""Plain MPI: a receive from any source whose message has come before it is posted.

    MPIR_CVAR_NOLOCAL=1 mpiexec -n 2 python tests/ranks/any_source.py

With MPICH over UCX its bytes arrive, the message is gone from the queue, and the receive never
completes. No GMPI here: this shows whose fault it is (docs/troubleshooting.md).
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np
from mpi4py import MPI

WORLD = MPI.COMM_WORLD
LIMIT_S = 2.0
PATIENCE_S = 5.0  # of the sender, for the word that all is well


def completes(request: MPI.Request, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not (completed := request.Test()) and time.monotonic() < until:
        pass
    return completed


if WORLD.rank == 1:
    WORLD.Send(np.arange(8, dtype=np.uint8), 0, 7)
WORLD.Barrier()
if WORLD.rank == 0:
    room = np.zeros(8, np.uint8)
    completed = completes(WORLD.Irecv(room, MPI.ANY_SOURCE, 7), LIMIT_S)
    there = WORLD.Iprobe(1, 7)
    print(f"completed: {completed}; bytes: {room.tolist()}; still there: {there}", flush=True)
    if not completed:
        os._exit(3)  # MPI would wait for it
# Each rank ends by itself: mpiexec does not always end the one that waits for the other.
if not completes(WORLD.Ibarrier(), PATIENCE_S):
    os._exit(3)
sys.exit(0)
