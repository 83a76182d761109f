"""A list of GMPI calls that a kernel (``script_kernel.py``) carries out.

Compiling a kernel for a GPU takes seconds, and a test wants many different sequences of calls. So
there is one kernel for each scope, which reads its calls from an array:

    s = Script()
    data, room = s.data(pattern(100, 1)), s.room(100)
    r = s.irecv(room, 100, gmpi.BYTE, peer, 7)
    s.isend(data, 100, gmpi.BYTE, peer, 7)
    done = s.wait(r)
    s.run(g)
    assert done.status.nbytes == 100
    s.expect(room, pattern(100, 1))

A script has one or more callers: blocks, or warps of one block. Each thread stores the status it
got, and all threads of the scope must have got the same. Buffers lie in one array, with space
between them that must stay as it was.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import same
from numba import cuda
from script_calls import Buffer as Buffer
from script_calls import Call as Call
from script_calls import Caller as Caller
from script_kernel import (
    ALLREDUCE,
    AT,
    AT2,
    BCAST,
    COLUMNS,
    COUNT,
    FIELDS,
    IALLREDUCE,
    IN_PLACE,
    IRECV,
    IRECV_STRIDED,
    ISEND,
    ISEND_STRIDED,
    ISENDRECV,
    KERNELS,
    OP,
    RECV,
    REPLACE,
    RESULT,
    ROOM,
    ROOM2,
    SEND,
    SENDRECV,
    WAITALL,
)

import gmpi
from gmpi import Status

_GUARD = 64
_PLACES = AT, ROOM, AT2, ROOM2
#: What a call does with its first buffer; the second one is always received into.
_SEND_FROM_FIRST = ISEND, SEND, SENDRECV, ISENDRECV, ISEND_STRIDED, IALLREDUCE, ALLREDUCE
_RECEIVE_INTO_FIRST = IRECV, RECV, REPLACE, IRECV_STRIDED, IN_PLACE, BCAST
_UNTOUCHED = 0xA5


class _Table(dict[tuple[int, ...], Any]):
    """In the simulator, an array of integers whose elements, or rows, are quick to get at.

    There every access to an array takes longer than what a call does with its value, and gives a
    NumPy integer, with which all that follows takes longer as well.
    """

    def __init__(self, array: np.ndarray, rows: bool = False) -> None:
        kept = array.ndim - rows
        shape = array.shape[:kept]
        flat = array.reshape(-1, array.shape[-1]) if rows else array.reshape(-1)
        super().__init__(
            zip(np.ndindex(shape), map(tuple, flat.tolist()) if rows else flat.tolist())
        )
        self.shape = array.shape

    def copy_to_host(self) -> np.ndarray:
        return np.array(list(self.values()), np.int64).reshape(self.shape)


def _table(array: np.ndarray, rows: bool = False) -> Any:
    return _Table(array, rows) if gmpi.SIMULATOR else cuda.to_device(array)


class Script(Caller):
    """The calls of one launch, with the buffers they use; itself the first caller."""

    def __init__(
        self, scope: str = "block", threads: int = 32, callers: int = 1, blocks: int = 1
    ) -> None:
        """``threads`` of a block; with scope warp there is a caller for each warp of it, with scope
        grid one for all ``blocks``."""
        super().__init__()
        self.scope = scope
        self.threads = threads
        self.blocks = blocks
        if scope == "warp":
            callers = -(-threads // 32)
        self.callers: list[Caller] = [self, *(Caller() for _ in range(callers - 1))]
        self._memory = bytearray(b"\xa5" * _GUARD)
        self._buffers: list[Buffer] = []
        self._after = np.empty(0, np.uint8)
        self._planted: dict[int, int] = {}

    # --- buffers ----------------------------------------------------------------------------------

    def room(self, nbytes: int, skew: int = 0) -> Buffer:
        """Memory to receive into, ``skew`` bytes past an address that is a multiple of 64."""
        self._memory += b"\xa5" * (-len(self._memory) % 64 + skew)
        found = Buffer(len(self._memory), nbytes)
        self._memory += b"\xa5" * (nbytes + _GUARD)
        self._buffers.append(found)
        return found

    def data(self, content: np.ndarray, skew: int = 0) -> Buffer:
        """Memory to send from."""
        raw = np.ascontiguousarray(content).reshape(-1).view(np.uint8)
        found = self.room(raw.size, skew)
        self.fill(found, raw)
        return found

    def read(self, b: Buffer, dtype: object = np.uint8) -> np.ndarray:
        """What the buffer holds after the run."""
        part = self._after[b.offset : b.offset + b.nbytes]
        return np.frombuffer(part.tobytes(), dtype)  # type: ignore[call-overload,no-any-return]

    def fill(self, b: Buffer, content: np.ndarray) -> None:
        """What is in a buffer before the run."""
        raw = np.ascontiguousarray(content).reshape(-1).view(np.uint8)
        self._memory[b.offset : b.offset + raw.size] = raw.tobytes()

    def expect(self, b: Buffer, content: np.ndarray, what: str = "") -> None:
        """The buffer must begin with these bytes; what follows must be untouched."""
        raw = np.ascontiguousarray(content).reshape(-1).view(np.uint8)
        found = self.read(b)
        same(found[: raw.size], raw, f"{what} content")
        same(found[raw.size :], np.full(b.nbytes - raw.size, _UNTOUCHED, np.uint8), f"{what} rest")

    # --- the run ----------------------------------------------------------------------------------

    def launch(self, g: gmpi.Context) -> None:
        """Starts the kernel; ``collect`` waits for it."""
        steps = max(len(c.calls) for c in self.callers)
        most = max([1, *(c.handles for c in self.callers)])
        program = np.zeros((len(self.callers), steps, COLUMNS), np.int64)
        for number, caller in enumerate(self.callers):
            for i, call in enumerate(caller.calls):
                program[number, i] = call.row
        width = 32 if self.scope == "warp" else self.threads * self.blocks
        shape = (len(self.callers), steps, width, RESULT)
        self._results = _table(np.full(shape, -99, np.int64))
        statuses = np.zeros((len(self.callers), most), gmpi.STATUS_DTYPE)
        self._statuses = cuda.to_device(statuses)
        self._heap = cuda.to_device(np.frombuffer(bytes(self._memory), np.uint8).copy())
        handles = np.zeros((len(self.callers), most), np.int64)
        for at, value in self._planted.items():
            handles[0, at] = value
        self._handles = cuda.to_device(handles)
        # Kept: freeing memory of the GPU waits for the kernel.
        self._program = _table(program, rows=True)
        grid = 1 if self.scope == "warp" else len(self.callers) * self.blocks
        KERNELS[self.scope][grid, self.threads](
            g.device, self._program, self._heap, self._handles, self._statuses,
            self._results,
        )  # fmt: skip

    def collect(self, g: gmpi.Context) -> None:
        """Waits for the kernel and reads what it left."""
        g.synchronize()
        self.read_back()

    def read_heap(self) -> None:
        """Reads the buffers only: a kernel that was killed has left no results."""
        self._after = self._heap.copy_to_host()

    def read_back(self) -> None:
        """Reads what the kernel left; it has ended."""
        self.read_heap()
        results = self._results.copy_to_host()
        statuses = self._statuses.copy_to_host()
        for number, caller in enumerate(self.callers):
            lanes = self.threads * self.blocks
            if self.scope == "warp":
                lanes = min(32, self.threads - 32 * number)
            for i, call in enumerate(caller.calls):
                rows = results[number, i, :lanes]
                same(rows, np.broadcast_to(rows[0], rows.shape), f"call {i}: all threads' results")
                call.status = Status(*(int(v) for v in rows[0, :FIELDS]))
                call.flag = int(rows[0, FIELDS])
                if call.row[OP] == WAITALL:
                    part = statuses[number, call.handle : call.handle + call.row[COUNT]]
                    call.statuses = [Status(*(int(v) for v in row)) for row in part]
        self._check_guards()
        self._check_sent()

    def run(self, g: gmpi.Context) -> Script:
        self.launch(g)
        self.collect(g)
        return self

    def handle(self, call: Call) -> int:
        """The handle that a call returned (it stays in the array after GMPI_Wait)."""
        return int(self._handles.copy_to_host()[0, call.handle])

    def plant(self, value: int) -> Call:
        """A handle of the test's choice, where that of a call would be."""
        call = Call([], self._new())
        self._planted[call.handle] = value
        return call

    def _check_sent(self) -> None:
        """What was sent from, and not received into, must be as it was."""
        sent = np.zeros(self._after.size, bool)
        written = np.zeros(self._after.size, bool)
        for caller in self.callers:
            for call in caller.calls:
                op, (at, room, at2, room2) = call.row[OP], (call.row[c] for c in _PLACES)
                if op in _SEND_FROM_FIRST:
                    sent[at : at + room] = True
                elif op in _RECEIVE_INTO_FIRST:
                    written[at : at + room] = True
                written[at2 : at2 + room2] = True
        before = np.frombuffer(bytes(self._memory), np.uint8)
        kept = sent & ~written
        same(self._after[kept], before[kept], "buffers that were sent from")

    def _check_guards(self) -> None:
        outside = np.ones(self._after.size, bool)
        for b in self._buffers:
            outside[b.offset : b.offset + b.nbytes] = False
        found = self._after[outside]
        same(found, np.full(found.size, _UNTOUCHED, np.uint8), "memory outside all buffers")
