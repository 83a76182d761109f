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
import script_kernel
from common import same
from numba import cuda
from script_kernel import (
    ALLREDUCE,
    AT,
    AT2,
    BARRIER,
    BCAST,
    CANCEL,
    COLUMNS,
    COMM_RANK,
    COUNT,
    FIELDS,
    HANDLE,
    IALLREDUCE,
    IN_PLACE,
    IRECV,
    IRECV_AT,
    IRECV_STRIDED,
    ISEND,
    ISEND_AT,
    ISEND_STRIDED,
    ISENDRECV,
    KERNELS,
    OP,
    PAUSE,
    PROBE,
    RECV,
    REPLACE,
    RESULT,
    ROOM,
    ROOM2,
    SEND,
    SENDRECV,
    SYNCHRONIZE,
    TEST,
    TEST_UNTIL,
    WAIT,
    WAITALL,
    WAITANY,
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


class Buffer:
    """A piece of the script's memory."""

    def __init__(self, offset: int, nbytes: int) -> None:
        self.offset = offset
        self.nbytes = nbytes


class Call:
    """One call of a script; after the run, what it returned."""

    def __init__(self, row: list[int], handle: int = -1) -> None:
        self.row = row
        self.handle = handle
        self.status = Status(-1, -1, -1, -1, -1)
        self.flag = -1
        self.statuses: list[Status] = []  # of Waitall

    @property
    def error(self) -> int:
        return self.status.error


class Caller:
    """The calls of one block or warp, in order."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.handles = 0

    def _add(self, op: int, handle: int = -1, **fields: int) -> Call:
        row = [0] * COLUMNS
        row[OP] = op
        row[HANDLE] = max(handle, 0)
        for name, value in fields.items():
            row[getattr(script_kernel, name)] = value
        call = Call(row, handle)
        self.calls.append(call)
        return call

    def _new(self) -> int:
        self.handles += 1
        return self.handles - 1

    def _message(
        self, op: int, handle: int, b: Any, n: int, datatype: int, peer: int, tag: int, comm: int
    ) -> Call:
        at, room = (b.offset, b.nbytes) if isinstance(b, Buffer) else (b, 0)
        return self._add(
            op, handle, AT=at, ROOM=room, COUNT=n, TYPE=datatype, PEER=peer, TAG=tag, COMM=comm
        )

    # wide: as MPI's
    def isend(
        self, b: Any, n: int, datatype: int, dest: int, tag: int, comm: int = 0, mode: int = 0
    ) -> Call:
        """``b`` is a buffer, or an address; ``mode`` BUFFERED, READY or SYNCHRONOUS."""
        op = ISEND if isinstance(b, Buffer) else ISEND_AT
        call = self._message(op, self._new(), b, n, datatype, dest, tag, comm)
        call.row[script_kernel.COUNT2] = mode
        return call

    def irecv(self, b: Any, n: int, datatype: int, source: int, tag: int, comm: int = 0) -> Call:
        op = IRECV if isinstance(b, Buffer) else IRECV_AT
        return self._message(op, self._new(), b, n, datatype, source, tag, comm)

    def isend_strided(self, b: Buffer, n: int, datatype: int, dest: int, tag: int) -> Call:
        return self._message(ISEND_STRIDED, self._new(), b, n, datatype, dest, tag, 0)

    def irecv_strided(self, b: Buffer, n: int, datatype: int, source: int, tag: int) -> Call:
        return self._message(IRECV_STRIDED, self._new(), b, n, datatype, source, tag, 0)

    # wide: as MPI's
    def send(
        self, b: Buffer, n: int, datatype: int, dest: int, tag: int, comm: int = 0, mode: int = 0
    ) -> Call:
        call = self._message(SEND, -1, b, n, datatype, dest, tag, comm)
        call.row[script_kernel.COUNT2] = mode
        return call

    def recv(self, b: Buffer, n: int, datatype: int, source: int, tag: int, comm: int = 0) -> Call:
        return self._message(RECV, -1, b, n, datatype, source, tag, comm)

    def sendrecv(
        self, out: Buffer, n: int, datatype: int, dest: int, tag: int, room: Buffer, m: int,
        source: int, recvtag: int, comm: int = 0,
    ) -> Call:  # fmt: skip
        return self._add(
            SENDRECV, AT=out.offset, ROOM=out.nbytes, COUNT=n, TYPE=datatype, PEER=dest, TAG=tag,
            COMM=comm, AT2=room.offset, ROOM2=room.nbytes, COUNT2=m, PEER2=source, TAG2=recvtag,
        )  # fmt: skip

    # wide: as MPI's
    def replace(
        self, b: Buffer, n: int, datatype: int, dest: int, tag: int, source: int, comm: int,
        nonblocking: int,
    ) -> Call:  # fmt: skip
        """Sendrecv_replace, or Isendrecv_replace and Wait, with one tag."""
        return self._add(
            REPLACE, AT=b.offset, ROOM=b.nbytes, COUNT=n, TYPE=datatype, PEER=dest, TAG=tag,
            COMM=comm, COUNT2=nonblocking, PEER2=source, TAG2=tag,
        )  # fmt: skip

    # wide: as MPI's
    def isendrecv(
        self, out: Buffer, room: Buffer, n: int, datatype: int, dest: int, tag: int, source: int,
        comm: int,
    ) -> Call:  # fmt: skip
        """Isendrecv with one tag, and as many bytes each way."""
        return self._add(
            ISENDRECV, self._new(), AT=out.offset, ROOM=out.nbytes, COUNT=n, TYPE=datatype,
            PEER=dest, TAG=tag, COMM=comm, AT2=room.offset, ROOM2=room.nbytes, PEER2=source,
            TAG2=tag,
        )  # fmt: skip

    def probe(self, source: int, tag: int, comm: int = 0) -> Call:
        return self._add(PROBE, PEER=source, TAG=tag, COMM=comm)

    def cancel(self, request: Call) -> Call:
        return self._add(CANCEL, request.handle)

    def wait(self, request: Call) -> Call:
        return self._add(WAIT, request.handle)

    def test(self, request: Call) -> Call:
        """Its flag is 1 when the request was complete."""
        return self._add(TEST, request.handle)

    def test_until(self, request: Call) -> Call:
        """Tests until the request is complete; its flag is how often."""
        return self._add(TEST_UNTIL, request.handle)

    def waitall(self, requests: list[Call]) -> Call:
        """Requests must have been opened one after the other."""
        assert [r.handle for r in requests] == list(
            range(requests[0].handle, requests[0].handle + len(requests))
        )
        return self._add(WAITALL, requests[0].handle, COUNT=len(requests))

    def waitany(self, first: Call, count: int) -> Call:
        """Its flag is the index among ``count`` requests from ``first`` on."""
        return self._add(WAITANY, first.handle, COUNT=count)

    def iallreduce(
        self, out: Buffer, room: Buffer, n: int, datatype: int, op: int, comm: int = 0
    ) -> Call:
        return self._reduce(IALLREDUCE, self._new(), out, room, n, datatype, op, comm)

    def allreduce(
        self, out: Buffer, room: Buffer, n: int, datatype: int, op: int, comm: int = 0
    ) -> Call:
        return self._reduce(ALLREDUCE, -1, out, room, n, datatype, op, comm)

    def _reduce(
        self, which: int, handle: int, out: Buffer, room: Buffer, n: int, datatype: int, op: int,
        comm: int,
    ) -> Call:  # fmt: skip
        return self._add(
            which, handle, AT=out.offset, ROOM=out.nbytes, COUNT=n, TYPE=datatype, TAG=op,
            COMM=comm, AT2=room.offset, ROOM2=room.nbytes,
        )  # fmt: skip

    def in_place(self, b: Buffer, n: int, datatype: int, op: int, comm: int = 0) -> Call:
        """Allreduce with IN_PLACE."""
        return self._message(IN_PLACE, -1, b, n, datatype, 0, op, comm)

    def bcast(self, b: Buffer, n: int, datatype: int, root: int, comm: int = 0) -> Call:
        return self._message(BCAST, -1, b, n, datatype, root, 0, comm)

    def barrier(self, comm: int = 0) -> Call:
        return self._add(BARRIER, COMM=comm)

    def synchronize(self) -> Call:
        return self._add(SYNCHRONIZE)

    def comm_rank(self, comm: int = 0) -> Call:
        """Its error is the rank, its flag the size."""
        return self._add(COMM_RANK, COMM=comm)

    def pause(self, ns: int) -> Call:
        return self._add(PAUSE, COUNT=ns)


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
