"""The mpi4py engine's and the host's protocol, with an MPI that fails at each step in turn."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from machine import SMALL, Machine
from mpi4py import MPI

from gmpi.contract.wire import MESSAGE_HEADER, NOT_SHARED, P2P
from host_proxy.platform.state import P_STAGING
from host_proxy.reference.failure import Failure, RequestFailure, error_class
from host_proxy.reference.protocol import Outcome, receive_message, send_message

pytestmark = pytest.mark.mpi

EAGER, CHUNK = SMALL.eager_bytes, SMALL.chunk_bytes
STATE = Machine()  # what a header is checked against
STATE.state.peers[0, P_STAGING] = 1
TAG, NUMBER = 7, 3
TRANSFERS = [  # (message, room)
    (100, 100), (CHUNK, CHUNK), (CHUNK + 8, CHUNK + 8), (9 * CHUNK - 3, 9 * CHUNK),
    (5 * CHUNK, CHUNK + 1), (2 * CHUNK, 0),
]  # fmt: skip


class Request:
    def __init__(self) -> None:
        self.over = False
        self.source = self.tag = self.nbytes = 0

    def Get_count(self, _: MPI.Datatype) -> int:
        return self.nbytes

    def Get_source(self) -> int:
        return self.source

    def Get_tag(self) -> int:
        return self.tag

    def end(self, source: int, tag: int, nbytes: int) -> None:
        self.over, self.source, self.tag, self.nbytes = True, source, tag, nbytes


class Rank:
    """What counts an end's steps, and fails one."""

    def __init__(self) -> None:
        self.fail_at = 0
        self.steps: list[str] = []

    def step(self, name: str) -> None:
        self.steps.append(name)
        if len(self.steps) == self.fail_at:
            raise MPI.Exception(MPI.ERR_OTHER)


class Comm:
    """One duplicate of a communicator of two ranks."""

    def __init__(self, ranks: list[Rank], eager: int) -> None:
        self.ranks, self.eager = ranks, eager
        self.messages: list[tuple[int, int, bytes, Request]] = []
        self.receives: list[tuple[int, int, np.ndarray, Request]] = []

    def of(self, rank: int) -> Any:
        def isend(buffer: list[Any], dest: int, tag: int) -> Any:
            self.ranks[rank].step("Isend")
            data = buffer[0].tobytes()
            request = Request()
            if len(data) <= self.eager:
                request.end(0, 0, 0)
            self.messages.append((rank, tag, data, request))
            self.match()
            request.Free = lambda: self.ranks[rank].step("Free")  # type: ignore[attr-defined]
            return request

        def irecv(buffer: list[Any], source: int, tag: int) -> Any:
            self.ranks[rank].step("Irecv")
            request = Request()
            self.receives.append((source, tag, buffer[0], request))
            self.match()
            return request

        def receive(buffer: np.ndarray, source: int, tag: int) -> Any:  # nobody probes here
            return irecv([buffer], source, tag)

        return SimpleNamespace(Isend=isend, Irecv=irecv, receive=receive)

    def match(self) -> None:
        for posted in list(self.receives):
            source, tag, memory, request = posted
            for message in self.messages:
                if message[:2] == (source, tag):
                    data = message[2]
                    assert len(data) <= len(memory)
                    memory[: len(data)] = np.frombuffer(data, np.uint8)
                    request.end(source, tag, len(data))
                    message[3].over = True
                    self.messages.remove(message)
                    self.receives.remove(posted)
                    break


class Port:
    """An array behind the protocol; with ``theirs``, the receiver reads the sender's."""

    def __init__(self, data: np.ndarray, theirs: Port | None, slot: int) -> None:
        self.data, self.theirs, self.slot = data, theirs, slot
        self.memory = np.zeros(MESSAGE_HEADER + EAGER, np.uint8)
        self.chunks: dict[int, np.ndarray] = {}

    def message(self, nbytes: int) -> np.ndarray:
        if nbytes < EAGER and len(self.data):
            content = self.data[:nbytes]
            self.memory[MESSAGE_HEADER : MESSAGE_HEADER + len(content)] = content
        return self.memory[: MESSAGE_HEADER + nbytes]

    def deliver(self, nbytes: int) -> None:
        self.data[:nbytes] = self.memory[MESSAGE_HEADER : MESSAGE_HEADER + nbytes]

    def shared(self, comm: Any, dest: int) -> tuple[int, int, int]:
        return (NOT_SHARED, 0, 0) if self.slot == NOT_SHARED else (self.slot, P2P, 1)

    def use_buffers_of(self, *_: Any) -> Any:
        return
        yield

    def pack(self, k: int, position: int, length: int) -> Any:
        return self.data[position : position + length]
        yield

    def free(self, k: int) -> np.ndarray:
        return self.chunks.setdefault(k, np.zeros(CHUNK, np.uint8))

    def unpack(self, k: int, position: int, length: int) -> Any:
        if length > 0:
            source = self.theirs.data[position:] if self.theirs else self.free(k)
            self.data[position : position + length] = source[:length]
        return
        yield


class End:
    """A generator, and what it waits for."""

    def __init__(self, rank: Rank, operation: Any) -> None:
        self.rank, self.operation = rank, operation
        self.result: Outcome | Exception | None = None
        self.waits_for: Any = None
        self.go_on(None)

    def go_on(self, value: Any) -> None:
        try:
            if isinstance(value, Failure):
                self.waits_for = self.operation.throw(value)
            else:
                self.waits_for = self.operation.send(value)
        except StopIteration as stop:
            self.result = stop.value
        except (MPI.Exception, Failure) as exc:
            self.result = exc

    def advance(self) -> bool:
        if self.result is not None:
            return False
        request = self.waits_for
        if request == MPI.REQUEST_NULL:
            request = Request()
            request.over = True
        if not request.over:
            return False
        try:
            self.rank.step("completion")
        except MPI.Exception as exc:
            self.go_on(RequestFailure(exc, request))
        else:
            self.go_on(request)
        return True

    @property
    def error(self) -> int:
        """-1: still open."""
        if self.result is None:
            return -1
        return self.result.error if isinstance(self.result, Outcome) else error_class(self.result)


def transfer(
    nbytes: int, room: int, shared: bool, eager: int, fail_at: tuple[int, int]
) -> tuple[list[Rank], list[int]]:
    """One message from rank 0 to rank 1: what the ends did, and how they ended."""
    ranks = [Rank(), Rank()]
    messages, chunks = Comm(ranks, eager), Comm(ranks, eager)
    comms: Any = [
        SimpleNamespace(
            messages_of=lambda tag, rank=rank: messages.of(rank), chunks=chunks.of(rank),
            peers=[0, 0], size=2,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    for rank, n in zip(ranks, fail_at):
        rank.fail_at = n
    data = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    user = np.zeros(room, np.uint8)
    out = Port(data, None, SMALL.request_slots if shared else NOT_SHARED)
    into = Port(user, out if shared else None, 0)
    send = send_message(out, comms[0], 1, TAG, nbytes, (EAGER, CHUNK), NUMBER)
    receive = receive_message(STATE.g, into, comms[1], 0, TAG, room, EAGER)
    ends = [End(ranks[0], send), End(ranks[1], receive)]
    while any([end.advance() for end in ends]):  # noqa: C419 (both)
        pass
    errors = [end.error for end in ends]
    if -1 not in errors and fail_at[1] != 1:
        assert messages.messages + messages.receives + chunks.messages + chunks.receives == []
    if errors[1] in (MPI.SUCCESS, MPI.ERR_TRUNCATE):
        assert (user[:nbytes] == data[:room]).all()
    return ranks, errors


@pytest.mark.parametrize("eager", [0, 1 << 20], ids=["rendezvous", "eager"])
@pytest.mark.parametrize("shared", [False, True], ids=["chunks by MPI", "GPU staging"])
@pytest.mark.parametrize(("nbytes", "room"), TRANSFERS)
def test_each_step(nbytes: int, room: int, shared: bool, eager: int) -> None:
    """Both ends end, nothing is left in MPI, and who has a success has all bytes."""
    ranks, well = transfer(nbytes, room, shared, eager, (0, 0))
    assert well == [MPI.SUCCESS, MPI.ERR_TRUNCATE if nbytes > room else MPI.SUCCESS]
    for rank in (0, 1):
        for n in range(1, len(ranks[rank].steps) + 1):
            at = (n, 0) if rank == 0 else (0, n)
            done, errors = transfer(nbytes, room, shared, eager, at)
            name = f"{n}: {done[rank].steps[n - 1]} on rank {rank}: {errors}"
            assert errors[rank] == MPI.ERR_OTHER, name
            if rank == 1 and n == 1:  # the receive was not posted: no message is lost
                assert errors[0] == (MPI.SUCCESS if nbytes <= EAGER and eager else -1), name
            else:
                assert errors[1 - rank] in (MPI.ERR_OTHER, well[1 - rank]), name


@pytest.mark.parametrize("shared", [False, True], ids=["chunks by MPI", "GPU staging"])
def test_both_fail_at_once(shared: bool) -> None:
    random = Random(3)
    for _ in range(400):
        nbytes, room = random.choice(TRANSFERS[1:])
        at = random.randint(2, 20), random.randint(2, 20)
        eager = random.choice([0, 1 << 20])
        _, errors = transfer(nbytes, room, shared, eager, at)
        assert -1 not in errors, (nbytes, room, eager, at, errors)
