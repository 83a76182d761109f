"""The mpi4py engine's end of a kernel's request."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from machine import SMALL, Machine

from gmpi.contract.wire import MAILED, NOT_SHARED, OP_ALLREDUCE, P2P, PACK
from host_proxy.compiled.headers import Header
from host_proxy.platform.state import S_BYTES, S_OP
from host_proxy.records import completion
from host_proxy.reference.kernel_port import KernelPort

pytestmark = pytest.mark.mpi

SLOT, NBYTES = SMALL.request_slots, 3 * SMALL.chunk_bytes
PEER = 1  # a rank of the communicator; on this node it is peer 0


def send(p2p: int) -> Callable[[Machine, KernelPort], None]:
    def play(m: Machine, port: KernelPort) -> None:
        comm = m.state.communicators[0]
        comm.p2p[PEER] = p2p
        comm.peers[PEER] = 0 if p2p else -1
        assert (port.shared(comm, PEER)[0] == NOT_SHARED) == (not p2p)

    return play


def receive(way: int, shared: int = SLOT) -> Callable[[Machine, KernelPort], None]:
    def play(m: Machine, port: KernelPort) -> None:
        if shared != NOT_SHARED:
            header = Header(NBYTES, SMALL.chunk_bytes, 0, shared, way, 77)
            assert list(port.use_buffers_of(0, header)) == []
        for k in range(3 if shared == NOT_SHARED else 0):
            port.free(k)
        next(port.unpack(0, 0, 8))

    return play


def reduce(m: Machine, port: KernelPort) -> None:
    m.python.port = lambda engine, slot: port  # type: ignore[assignment]
    m.state.slots[SLOT, [S_BYTES, S_OP]] = NBYTES, OP_ALLREDUCE
    steps = m.python.by_chunks(SLOT, np.copy, packs=True, unpacks=True)
    assert isinstance(next(steps), np.ndarray)  # the first chunk, which the call has packed


USES = {
    "sent by MPI": send(0), "sent p2p": send(P2P), "sent, mailbox": send(P2P | MAILED),
    "received by MPI": receive(0, NOT_SHARED), "received near": receive(P2P),
    "received, mailbox": receive(P2P | MAILED), "reduced": reduce,
}  # fmt: skip


@pytest.mark.parametrize("use", USES)
def test_where_the_buffers_are_is_said_once(use: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A thread that waits could take what was said first together with an order of later.
    m = Machine()
    said: list[int] = []
    monkeypatch.setattr(completion, "set_base", lambda g, row, base, ready: said.append(base))
    port = KernelPort(m.python, SLOT)
    USES[use](m, port)
    for k in range(2):
        port.command(k, 0, 8, PACK)
    assert len(said) == 1
