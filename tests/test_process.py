"""Processes that fork, that open many contexts, and that are told to end."""

from __future__ import annotations

import time

import launcher
import pytest

pytestmark = pytest.mark.mpi

BOUND_S = 30  # of a job that ends at once; most of it is starting Python

PROGRAM = """
import os, signal, sys, threading, time
import numpy as np
from mpi4py import MPI
from numba import cuda
import gmpi

RANK = MPI.COMM_WORLD.rank
gmpi.select_gpu()

@cuda.jit
def receive(ctx, buf):
    gmpi.GMPI_Recv(ctx, buf, 8, gmpi.BYTE, gmpi.ANY_SOURCE, 5, gmpi.COMM_WORLD)

def wait_for_nobody(g):
    receive[1, 32](g.device, cuda.to_device(np.zeros(8, np.uint8)))
    g.synchronize()

def terminate(when=lambda: True):
    def wait():
        while not when():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
    threading.Thread(target=wait, daemon=True).start()
"""


@pytest.mark.parametrize(
    "ranks",
    [pytest.param(1, marks=pytest.mark.openmpi), pytest.param(2, marks=pytest.mark.mpich)],
)
def test_scenarios(ranks: int) -> None:
    launcher.check(ranks, "process")


def ended(ranks: int, code: str) -> tuple[int, str]:
    """A program that must end in time, with a status that is not 0."""
    began = time.monotonic()
    status, text = launcher.mpi(ranks, "-c", PROGRAM + code, timeout=100)
    assert status != 0 and "lives on" not in text, text
    assert time.monotonic() - began < BOUND_S * launcher.TIME_FACTOR, text
    assert "Traceback" not in text or "AbortedError" in text, text
    return status, text


@pytest.mark.parametrize(
    "ranks",
    [pytest.param(1, marks=pytest.mark.mpich), pytest.param(2, marks=pytest.mark.openmpi)],
)
def test_sigterm_while_a_kernel_waits(ranks: int) -> None:
    """The kernel is released, the process ends by the signal, and the launcher ends the others."""
    _, text = ended(
        ranks,
        """
with gmpi.Context() as g:
    if RANK == 0:
        terminate(lambda: g.pending)
    wait_for_nobody(g)
print("lives on")
""",
    )
    assert "GMPI: rank 0: SIGTERM: kernels have ended" in text, text


def test_sigterm_while_the_main_thread_is_inside_mpi() -> None:
    """Where no handler in Python would ever be called."""
    _, text = ended(
        1,
        """
g = gmpi.Context()
terminate()
MPI.COMM_WORLD.Recv(np.zeros(1), 0, 77)
print("lives on")
""",
    )
    assert "GMPI: rank 0: SIGTERM: kernels have ended" in text, text


@pytest.mark.mpich
def test_a_handler_of_the_program_is_its_own() -> None:
    """It may raise: the kernel is released as by any exception."""
    status, text = ended(
        1,
        """
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
with gmpi.Context() as g:
    terminate(lambda: g.pending)
    wait_for_nobody(g)
print("lives on")
""",
    )
    assert status == 3 and "GMPI: rank" not in text, text


@pytest.mark.mpich
def test_sigterm_after_the_context() -> None:
    """As if there had been none, also where another thread has closed it."""
    by_another = "t = threading.Thread(target=g.close); t.start(); t.join()"
    for close in ("g.close()", by_another, f"{by_another}; gmpi.Context().close()"):
        _, text = ended(
            1,
            f"""
g = gmpi.Context()
{close}
terminate()
time.sleep(60)
print("lives on")
""",
        )
        assert "GMPI: rank" not in text, text
