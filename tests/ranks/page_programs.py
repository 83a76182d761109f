"""Runs programs of the documentation's pages, one after the other, in one start of MPI.

mpiexec -n 2 python tests/ranks/page_programs.py FILE ...
"""

import runpy
import sys

from mpi4py import MPI

for path in sys.argv[1:]:
    runpy.run_path(path, run_name="__main__")
    MPI.COMM_WORLD.Barrier()
    if MPI.COMM_WORLD.rank == 0:
        print(f"{path} passed", flush=True)
