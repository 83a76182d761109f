"""The mpi4py engine: the same protocol in plain mpi4py, a generator for each operation.

Slower and easier to follow: what the compiled engine hands over, debug mode, and the calls of the
host.
"""
