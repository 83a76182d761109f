"""The commands of ``gmpi``, one file each; ``gmpi/__main__.py`` puts them together.

A command imports what it works with when it runs: ``--help`` needs neither MPI nor CUDA.
"""
