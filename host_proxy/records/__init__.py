"""What crosses between a kernel and its proxy: records taken from the ring and checked, completions
and commands written back.

Both engines use it; it knows nothing of MPI.
"""
