"""Strict simulation: finds mistakes of kernels while they run in the simulator (docs/strict.md).

``checker`` is told by the simulator of every launch and every ``GMPI_*`` call. ``watched`` arrays
tell it of every access, ``shadow`` memory keeps who made the last ones, and ``clocks`` say which of
two came first. ``requests`` knows the buffers of open requests (``buffers``, ``regions``), and
``schedule`` makes lanes and completions come in an odd order. ``findings`` words what was found.

The idea of late delivery, poison, and races by vector clocks in an interpreter of kernels is that
of JAX Pallas' TPU interpreter; epochs instead of whole clocks are those of FastTrack (Flanagan and
Freund, PLDI 2009).

Nothing in it runs, and nothing imports it, unless a context is opened with ``sim="strict"``. It
imports ``proxied``, ``move`` and ``platform``; of the calls (``api``) it knows what their arguments
are called.
"""

from __future__ import annotations

from typing import Any


def start(world: Any) -> None:
    """Kernels are checked from now on.

    Args:
        world: ``checker.World``: what the host knows of the context.
    """
    from device_lib.simulator import kernels
    from device_lib.strict.checker import Checker
    from device_lib.strict.watched import told

    checker = Checker(world)
    kernels.check_with(checker, told(checker))
