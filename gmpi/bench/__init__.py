"""What ``gmpi bench`` measures, one subject a file, in the layout of OSU's micro-benchmarks.

Each subject has kernels, and ``measure``, which checks the payload first and then times so many
rounds by the GPU's timer. ``figures`` makes a row of what all ranks have found.
"""
