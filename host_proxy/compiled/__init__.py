"""The compiled engine: a loop without the GIL that takes records, calls MPI and tests what is
pending.

``loop`` calls ``dispatch`` and ``progress``; messages are in ``sending``, ``receiving`` and
``streams``.
"""
