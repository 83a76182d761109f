"""Calls of grid scope: what the blocks of a grid do together, and how they meet.

``team`` is how the leading block and the others tell each other what to do, ``jobs`` what that can
be. What crosses is described in ``gmpi/contract/grid.py``; the calls are in ``api/grid.py``.
"""
