"""What rank programs share: a failure on one rank ends all of them, with its traceback."""

from __future__ import annotations

import faulthandler
import gc
import os
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi
from device_lib.simulator import lanes
from gmpi.contract.wire import BUSY_BITS, BUSY_STRIDE, DEVICE_BUSY
from gmpi.memory.exported import place_of
from host_proxy.platform import pages

WORLD = MPI.COMM_WORLD
RANK, SIZE = WORLD.rank, WORLD.size


def _end_all_ranks(
    kind: type[BaseException], value: BaseException, where: TracebackType | None
) -> None:
    text = "".join(traceback.format_exception(kind, value, where))
    print(f"rank {RANK} of {SIZE} failed:\n{text}", file=sys.stderr, flush=True)
    WORLD.Abort(1)


sys.excepthook = _end_all_ranks
pages.guarded = True  # who touches staging that was given back is seen at once
#: For machines that are slow or busy, as in ``launcher.py``.
TIME_FACTOR = float(os.environ.get("TEST_TIME_FACTOR", "1"))
#: Of a rank for another one that still compiles its kernel: on a GPU that takes minutes.
PATIENCE_S = 6 * TIME_FACTOR if gmpi.SIMULATOR else 150
faulthandler.enable()
#: Of the whole program: what starts it says it, or it has as long as is usual.
LIMIT_S = float(os.environ.pop("TEST_LIMIT_S", 60 * TIME_FACTOR))
# Before that, so that every rank says where it is.
faulthandler.dump_traceback_later(max(5.0, LIMIT_S - 5.0), exit=True)
if gmpi.SIMULATOR:
    # A kernel that waits looks ever less often: waiting for a peer was a third of what kernels of
    # the direct road took, and what waits for a time-out took half of a core.
    lanes._LONGER, lanes._LONGEST_NAP_S = 1.2, 10e-3
    gc.freeze()  # of Numba's half a million objects none will be garbage
else:
    cuda.select_device(RANK % len(cuda.gpus))


def barrier() -> None:
    """Until all ranks are here, asleep: MPI's own would spin on a core that the others need."""
    request = WORLD.Ibarrier()
    began = time.monotonic()
    while not request.Test():
        time.sleep(min(0.001 + (time.monotonic() - began) / 20, 0.01))


def every_shape() -> bool:
    """Whether to try every shape of a block, every view of an array and every number of chunks.

    The simulator takes long for each, and to what they go through it makes no difference how many
    ranks there are, nor which engine serves them: with any number but two, and with ``--some``, it
    tries some.
    """
    return not gmpi.SIMULATOR or (SIZE == 2 and "--some" not in sys.argv)


def run(scenarios: list[Callable[..., None]], *arguments: object) -> None:
    """Runs scenarios one after the other; the names on the command line select some."""
    wanted = [name for name in sys.argv[1:] if not name.startswith("-")]
    unknown = set(wanted) - {s.__name__ for s in scenarios}
    assert not unknown, f"no scenarios {unknown}"
    for scenario in scenarios:
        if not wanted or scenario.__name__ in wanted:
            began = time.monotonic()
            scenario(*arguments)
            barrier()
            if RANK == 0:
                print(f"ok {scenario.__name__} {time.monotonic() - began:.1f} s", flush=True)


def with_fault(fault: Callable[[Any], None], what: Any, name: str) -> Callable[[], None]:
    """The scenario ``FAULT.NAME``: a fault while a rank does something."""

    def scenario() -> None:
        fault(what)

    scenario.__name__ = f"{fault.__name__}.{name}"
    return scenario


def run_faults(scenarios: list[Callable[[], None]], wanted: list[str]) -> None:
    """Runs those of ``with_fault`` that are wanted, by their names or a part of them; else all."""
    if wanted:
        scenarios = [s for s in scenarios if {s.__name__, *s.__name__.split(".")} & set(wanted)]
        assert scenarios, f"nothing is called {wanted}"
    run(scenarios)


def take_large_slots(g: gmpi.Context) -> None:
    """All long requests of this rank will be narrow ones. No kernel has run yet."""
    for word in range(g.layout.request_slots // BUSY_BITS, g.layout.first_narrow // BUSY_BITS):
        taken = np.array([(1 << BUSY_BITS) - 1])
        g._memory.write_device(DEVICE_BUSY + word * BUSY_STRIDE, taken)


def end() -> None:
    """The last line of a rank program."""
    print("all passed", flush=True)
    if not gmpi.SIMULATOR:  # hangs in MPI_Finalize, or in the driver's end, have been seen there
        watcher = Path(__file__).parents[1] / "native_stacks.py"
        subprocess.Popen([sys.executable, str(watcher), "--late", "20", str(os.getpid())])


_PIECE = 1 << 14  # numbers


def pattern(nbytes: int, seed: int) -> np.ndarray:
    """Bytes in which every shift, swap or loss shows."""
    made = np.empty(nbytes, np.uint8)
    numbers = np.arange(min(nbytes, _PIECE), dtype=np.uint32)
    for begin in range(0, nbytes, _PIECE):  # what fits a cache
        piece = made[begin : begin + _PIECE]
        mixed = numbers[: piece.size] + np.uint32((begin + seed * 7919 + 1) & 0xFFFFFFFF)
        mixed *= np.uint32(0x9E3779B9)
        mixed >>= np.uint32(24)
        piece[:] = mixed
    return made


def raises(kind: type[BaseException], text: str, call: Callable[[], Any]) -> Any:
    """The exception that the call must raise, whose message must contain the text."""
    try:
        call()
    except kind as exc:
        assert type(exc) is kind, f"{type(exc).__name__} is not exactly {kind.__name__}"
        assert text in str(exc), f"{exc!s}\ndoes not say\n{text}"
        return exc
    raise AssertionError(f"{kind.__name__} was not raised")


def in_thread(work: Callable[[], None], meanwhile: Callable[[], Any]) -> None:
    """Runs ``work`` in a thread of its own; what it raises is raised here."""
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as exc:
            failures.append(exc)

    thread = threading.Thread(target=guarded)
    thread.start()
    meanwhile()
    thread.join()
    if failures:
        raise failures[0]


def on_device(array: np.ndarray) -> object:
    return cuda.to_device(array)


def address_of(array: object) -> int:
    """Of an array in GPU memory."""
    return place_of(array)[0]


def same(found: object, expected: object, what: str) -> None:
    """Fails with the first place where two arrays differ."""
    a = np.asarray(found.copy_to_host() if hasattr(found, "copy_to_host") else found)
    b = np.asarray(expected)
    assert a.shape == b.shape, f"{what}: shape {a.shape}, expected {b.shape}"
    if not np.array_equal(a, b):
        wrong = np.flatnonzero((a != b).reshape(-1))
        at = wrong[0]
        raise AssertionError(
            f"{what}: {len(wrong)} of {a.size} differ, first at {at}: "
            f"{a.reshape(-1)[at]!r} instead of {b.reshape(-1)[at]!r}"
        )


def ends_and_is_refused(g: gmpi.Context, errors: Any, *what: object) -> str:
    """A call that differs from other ranks', and the next one on its communicator, whose error
    classes are in ``errors``: the first ends with an error, the next one is refused. Its text."""
    said = ""
    try:
        g.synchronize()
    except gmpi.GMPIError as exc:
        said = str(exc)
    call, later = errors.copy_to_host()
    # Who was not waiting any more may have ended well.
    right = (gmpi.ERR_OTHER, gmpi.ERR_COMM), (gmpi.SUCCESS, gmpi.ERR_OTHER)
    assert (call, later) in right, (*what, call, later, said)
    return said
