"""Contexts from opening to the end of the process, whatever happens in between."""

from __future__ import annotations

import launcher
import pytest

pytestmark = pytest.mark.mpi

PROGRAM = """
import numpy as np
from mpi4py import MPI
from numba import cuda
import gmpi

@cuda.jit
def receive(ctx, buf):
    gmpi.GMPI_Recv(ctx, buf, 8, gmpi.BYTE, 0, 5, gmpi.COMM_WORLD)

def send_to_myself(g):
    buf = np.zeros(8, np.uint8)
    request = g.host.Isend(np.arange(8, dtype=np.uint8), 0, 5)
    receive[1, 32](g.device, buf)
    request.Wait()
    assert (buf == np.arange(8)).all()
"""


def run(code: str, **environment: str) -> tuple[int, str]:
    """A program of one rank; it must not crash, whatever else it does."""
    status, text = launcher.mpi(1, "-c", PROGRAM + code, **environment)
    assert "Segmentation" not in text and "SIGSEGV" not in text, text
    assert "Fatal Python error" not in text, text
    return status, text


@pytest.mark.mpich
def test_a_context_that_nobody_closes() -> None:
    status, text = run("g = gmpi.Context(); send_to_myself(g); print('done')")
    assert status == 0 and "done" in text, text


def test_exit_inside_a_context() -> None:
    status, text = run("""
import sys
with gmpi.Context() as g:
    send_to_myself(g)
    sys.exit(3)
""")
    assert status == 3, text


@pytest.mark.openmpi
def test_an_exception_that_nobody_catches() -> None:
    status, text = run("""
with gmpi.Context() as g:
    send_to_myself(g)
    raise LookupError("of the user")
""")
    assert status == 1 and "LookupError: of the user" in text, text


@pytest.mark.mpich
def test_an_exception_outside_of_with() -> None:
    status, text = run("""
g = gmpi.Context()
send_to_myself(g)
raise LookupError("of the user")
""")
    assert status == 1 and "LookupError: of the user" in text, text


@pytest.mark.openmpi
def test_mpi_is_finalised_before_the_context_is_closed() -> None:
    status, text = run("g = gmpi.Context(); send_to_myself(g); g.close(); MPI.Finalize()")
    assert status == 0, text


@pytest.mark.parametrize("waits", [pytest.param(False, marks=pytest.mark.mpich), True])
def test_mpi_is_finalised_while_a_context_is_open(waits: bool) -> None:
    """One line says so, and nobody calls MPI afterwards; a kernel that waits is released."""
    kernel = """
thread = threading.Thread(target=lambda: receive[1, 32](g.device, np.zeros(8, np.uint8)))
thread.start()
while not g.pending:
    time.sleep(0.01)
"""
    status, text = run(f"""
import threading, time
g = gmpi.Context(timeout_s=60)
send_to_myself(g)
{kernel if waits else ""}
MPI.Finalize()
print("finalized", MPI.Is_finalized())
time.sleep(0.6)  # more than a period of the watchdog
{"thread.join()" if waits else ""}
try:
    g.host.Barrier()
except gmpi.ContextError as exc:
    print(f"refused: {{exc}}")
g.close()
""")
    assert status == 0 and "finalized True" in text, text
    assert text.count("GMPI: rank 0: MPI.Finalize() while a context is open: ") == 1, text
    assert "refused: the context was closed by MPI.Finalize()" in text, text


OPEN = """
import mpi4py
mpi4py.rc.{setting}
from mpi4py import MPI
import gmpi
{before}
try:
    gmpi.Context(MPI.COMM_WORLD)
except gmpi.ContextError as exc:
    print(f"refused: {{exc}}")
"""


@pytest.mark.parametrize(
    "setting, before, words",
    [
        pytest.param(
            "initialize = False",
            "",
            "MPI is not initialised; import mpi4py.MPI or call MPI.Init_thread()",
            marks=pytest.mark.mpich,
        ),
        pytest.param(
            "initialize = True",
            "MPI.Finalize()",
            "MPI has been finalised already",
            marks=pytest.mark.mpich,
        ),
        pytest.param(
            "thread_level = 'single'",
            "",
            "MPI was initialised with THREAD_SINGLE, but the proxy",
            marks=pytest.mark.mpich,
        ),
        pytest.param(
            "thread_level = 'funneled'",
            "",
            "MPI was initialised with THREAD_FUNNELED, but the",
            marks=pytest.mark.mpich,
        ),
        (
            "thread_level = 'serialized'",
            "",
            "MPI was initialised with THREAD_SERIALIZED, but the proxy thread and the main thread "
            "both call MPI: ask for THREAD_MULTIPLE (mpi4py's default)",
        ),
    ],
)
def test_mpi_is_not_ready(setting: str, before: str, words: str) -> None:
    code = OPEN.format(setting=setting, before=before)
    status, text = launcher.mpi(1, "-c", code)
    if "thread_level" in setting and "refused" not in text:
        pytest.skip("this MPI library gives THREAD_MULTIPLE whatever is asked for")
    assert status == 0 and f"refused: {words}" in text, text


@pytest.mark.mpich
def test_no_gpu_and_no_simulator() -> None:
    code = """
from mpi4py import MPI
import numpy as np
import gmpi
try:
    gmpi.Context(MPI.COMM_WORLD)
except gmpi.ContextError as exc:
    print(f"refused: {exc}")
with gmpi.Context(MPI.COMM_WORLD, gpu=False) as g:
    room = np.zeros(5)
    request = g.host.Irecv(room, 0, 3)
    g.host.Send(np.arange(5.0), 0, 3)
    assert request.Wait().count == 5 and (room == np.arange(5)).all()
    print("the host alone works")
"""
    status, text = launcher.mpi(1, "-c", code, NUMBA_ENABLE_CUDASIM="0", CUDA_VISIBLE_DEVICES="")
    assert status == 0, text
    assert "refused: no usable GPU: run with NUMBA_ENABLE_CUDASIM=1 for the simulator, or open" in (
        text
    )
    assert "the host alone works" in text
