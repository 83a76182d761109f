"""NVTX ranges as a profiler gets them: what ``nvtx_recorder.c`` has heard, which is listening.

NVTX_INJECTION64_PATH=RECORDER.so mpiexec -n 2 python tests/ranks/nvtx_ranges.py [SCENARIO ...]
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import ctypes
import os

import numpy as np
from common import RANK, WORLD, end, run
from numba import cuda

import gmpi

PEER = 1 - RANK
RECORDER = ctypes.CDLL(os.environ["NVTX_INJECTION64_PATH"])
RECORDER.nvtx_heard.restype = ctypes.c_char_p


def heard() -> list[list[str]]:
    """(what, domain, number, message) of each event of this process."""
    return [line.split("\t") for line in RECORDER.nvtx_heard().decode().splitlines()]


class Ranges:
    """What has been heard since this was made."""

    def __init__(self) -> None:
        self._before = len(heard())

    def begun(self) -> list[str]:
        """Messages, in the order of their begin; all in our domain."""
        found = heard()[self._before :]
        assert {what for what, *_ in found} <= {"start", "end"}, found
        assert {domain for _, domain, *_ in found} <= {"gmpi"}, found
        return [message for what, _, _, message in found if what == "start"]

    def open(self) -> list[str]:
        """Of those that have not ended; each ends once."""
        running: dict[str, str] = {}
        for what, _, number, message in heard()[self._before :]:
            if what == "start":
                running[number] = message
            else:
                del running[number]
        return list(running.values())


@cuda.jit
def barriers(ctx):
    gmpi.GMPI_Barrier(ctx, 0)


def of_all_that_the_host_does() -> None:
    """Without being told to: a tool listens."""
    ranges = Ranges()
    mine, other = np.full(1, RANK), np.zeros(1, int)
    with gmpi.Context(WORLD) as g:
        assert ranges.begun() == ["open context"] and not ranges.open()
        request = g.host.Irecv(other, PEER, 60)
        g.host.Send(mine, PEER, 60)
        request.Wait()
        barriers[1, 32](g.device)
        g.synchronize()
        late = g.host.Irecv(other, PEER, 61)
        assert ranges.open() == ["Irecv"], heard()
        g.host.Ssend(mine, PEER, 61)
        late.Wait()
    assert ranges.begun()[1:] == [
        "Irecv", "Send", "launch barriers", "synchronize", "Irecv", "Ssend", "close context",
    ], heard()  # fmt: skip
    assert not ranges.open(), heard()


def off() -> None:
    ranges = Ranges()
    with gmpi.Context(WORLD, nvtx="off") as g:
        g.host.Barrier()
    assert ranges.begun() == []


run([of_all_that_the_host_does, off])
end()
