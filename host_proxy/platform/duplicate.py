"""A duplicate of a user's communicator: nothing else matches what travels on it."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from mpi4py import MPI

from gmpi.contract.wire import MESSAGE_HEADER

_PRUNED_AT = 64  # requests


class Found:
    """A message that a probe has taken out of MPI's matching: the next receive that fits gets it.

    Attributes:
        content: of a header, what is in it.
    """

    def __init__(self, message: MPI.Message, source: int, tag: int, nbytes: int) -> None:
        self.message = message
        self.source = source
        self.tag = tag
        self.nbytes = nbytes
        self.content: np.ndarray | None = None

    def fits(self, source: int, tag: int) -> bool:
        return source in (self.source, MPI.ANY_SOURCE) and tag in (self.tag, MPI.ANY_TAG)

    def length(self) -> int:
        """Bytes of the message; a long one, or an empty one, is a header."""
        if self.nbytes != MESSAGE_HEADER:
            return max(self.nbytes - MESSAGE_HEADER, 0)
        if self.content is None:
            self.content = np.zeros(MESSAGE_HEADER, np.uint8)
            self.message.Recv([self.content, MPI.BYTE])
        return int(self.content.view(np.int64)[0])

    def receive(self, duplicate: Duplicate, buf: np.ndarray) -> Any:
        """Receives it: its request, or what is tested like one."""
        duplicate.taken.pop(self, None)
        if self.content is None:
            return duplicate.started(self.message.Irecv([buf, MPI.BYTE]), "receive")
        buf[:MESSAGE_HEADER] = self.content
        return self

    def drop(self) -> None:
        """Nobody will receive it: MPI's own copy goes."""
        if self.content is None:
            self.message.Recv([np.empty(self.nbytes, np.uint8), MPI.BYTE])

    # What is received from it, tested like an MPI request.
    def Test(self, status: MPI.Status) -> bool:
        status.Set_source(self.source)
        status.Set_tag(self.tag)
        status.Set_elements(MPI.BYTE, self.nbytes)
        return True

    def Cancel(self) -> None:
        """Too late."""


class Duplicate(MPI.Intracomm):
    """A duplicate that knows what Python code has started on it, whoever else has dropped it.

    MPI uses the memory of a request until it is complete, and mpi4py's request keeps the array.
    Barriers have none.
    """

    def __init__(self, comm: MPI.Comm) -> None:
        self._lock = threading.Lock()  # the proxy's thread and the host's
        self._requests: list[tuple[MPI.Request, str]] = []
        self._prune_at = _PRUNED_AT
        self._probing = threading.Lock()
        self.found: list[Found] = []
        self.taken: dict[Found, None] = {}  # by matched probes; not received yet

    def unfinished(self) -> list[tuple[MPI.Request, str]]:
        """Requests that nobody has seen complete, and their kinds: ``send``, ``receive`` or
        ``collective``."""
        with self._lock:
            self._requests = [entry for entry in self._requests if entry[0]]
            return list(self._requests)

    def started(self, request: MPI.Request, kind: str) -> MPI.Request:
        with self._lock:
            self._requests.append((request, kind))
            if len(self._requests) > self._prune_at:
                self._requests = [entry for entry in self._requests if entry[0]]
                self._prune_at = max(_PRUNED_AT, 2 * len(self._requests))
        return request

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> MPI.Request:
        return self.started(super().Isend(buf, dest, tag), "send")

    def Issend(self, buf: Any, dest: int, tag: int = 0) -> MPI.Request:
        return self.started(super().Issend(buf, dest, tag), "send")

    def Irecv(self, buf: Any, source: int = MPI.ANY_SOURCE, tag: int = MPI.ANY_TAG) -> MPI.Request:
        return self.started(super().Irecv(buf, source, tag), "receive")

    @property
    def probed(self) -> int:
        """How many messages probes have taken and nobody has received."""
        return len(self.found)

    def look(self, source: int, tag: int) -> tuple[int, int, int] | None:
        """(source, tag, bytes) of the first message that has come and fits; the proxy's thread.

        MPI tells the length of what travels with its header. A header alone has to be read, which
        takes it out of MPI's matching, and with it what its source has sent before: receives must
        find these in their order.
        """
        with self._probing:
            for one in self.found:
                if one.fits(source, tag):
                    return one.source, one.tag, one.length()
            status = MPI.Status()
            if not self.Iprobe(source, tag, status):
                return None
            source, tag, nbytes = _about(status)
            if nbytes != MESSAGE_HEADER:
                return source, tag, max(nbytes - MESSAGE_HEADER, 0)
            while (message := self.Improbe(source, MPI.ANY_TAG, status)) is not None:
                one = Found(message, *_about(status))
                self.found.append(one)
                if one.tag == tag:
                    return source, tag, one.length()
            return None

    def take(self, source: int, tag: int) -> Found | None:
        """The first message that has come and fits, for whoever asks (MPI 4.1 section 3.8.2); the
        proxy's thread."""
        with self._probing:
            for place, one in enumerate(self.found):
                if one.fits(source, tag):
                    self.taken[one] = None
                    return self.found.pop(place)
            status = MPI.Status()
            message = self.Improbe(source, tag, status)
            if message is None:
                return None
            one = Found(message, *_about(status))
            self.taken[one] = None
            return one

    def receive(self, buf: np.ndarray, source: int, tag: int) -> Any:
        """Receives a first message: its request, or what is tested like one."""
        with self._probing:
            for place, one in enumerate(self.found):
                if one.fits(source, tag):
                    del self.found[place]
                    return one.receive(self, buf)
            return self.Irecv([buf, MPI.BYTE], source, tag)

    def Ibcast(self, buf: Any, root: int = 0) -> MPI.Request:
        return self.started(super().Ibcast(buf, root), "collective")

    def Iallreduce(self, sendbuf: Any, recvbuf: Any, op: MPI.Op = MPI.SUM) -> MPI.Request:
        return self.started(super().Iallreduce(sendbuf, recvbuf, op), "collective")

    def Iallgather(self, sendbuf: Any, recvbuf: Any) -> MPI.Request:
        return self.started(super().Iallgather(sendbuf, recvbuf), "collective")


def _about(status: MPI.Status) -> tuple[int, int, int]:
    return status.Get_source(), status.Get_tag(), status.Get_count(MPI.BYTE)
