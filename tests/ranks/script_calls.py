"""The calls of a script (``script.py``), as rows of what its kernel reads."""

from __future__ import annotations

from typing import Any

import script_kernel
from script_kernel import (
    ALLREDUCE,
    BARRIER,
    BCAST,
    CANCEL,
    COLUMNS,
    COMM_RANK,
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
    OP,
    PAUSE,
    PROBE,
    RECV,
    REPLACE,
    SEND,
    SENDRECV,
    SYNCHRONIZE,
    TEST,
    TEST_UNTIL,
    WAIT,
    WAITALL,
    WAITANY,
)

from gmpi import Status


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

    def pause(self, ns: int, until_released: bool = False) -> Call:
        """Computes for so long, or until the waits of this rank are over (``timeout_s``, abort)."""
        return self._add(PAUSE, int(until_released), COUNT=ns)
