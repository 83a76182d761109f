"""Requests of the direct road that are open, from device memory. Any thread, also while kernels
run, unless a function says otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from device_lib.direct import rows
from gmpi.contract import collectives as c
from gmpi.contract import wire
from gmpi.contract.channels import (
    KEY_COMM_SHIFT,
    KEY_PEER_SHIFT,
    KEY_PEERS,
    KEY_RECEIVES_SHIFT,
    KEY_TAG_MASK,
    ROW_BYTES,
)
from gmpi.contract.constants import DATATYPE_MARK
from gmpi.fault_words import call_text
from host_proxy.platform.operations import name_of

if TYPE_CHECKING:
    from gmpi.context import Context
    from gmpi.memory.regions import Memory


class OpenRequest(NamedTuple):
    """One that no kernel has waited for.

    Attributes:
        datatype: a predefined one's handle.
        number: of its message in its channel.
        finished: it lacks nothing but the wait.
    """

    operation: str
    peer: int
    tag: int
    communicator: int
    nbytes: int
    datatype: int
    number: int
    slot: int
    receives: bool
    finished: bool

    def __str__(self) -> str:
        return (
            f"{self.operation} peer {self.peer} tag {self.tag} on communicator "
            f"{self.communicator}, {self.nbytes} bytes"
        )


def direct_bits(context: Context) -> np.ndarray:
    """bool[slots]: which have an open request of the direct road."""
    slots = context.layout.slots
    memory = context._memory
    begin = memory.device + wire.DEVICE_BUSY
    raw = memory.fetch(begin, slots // wire.BUSY_BITS * wire.BUSY_STRIDE)
    words = raw.view(np.uint32)[wire.BUSY_DIRECT // 4 :: wire.BUSY_STRIDE // 4]
    bits: np.ndarray = ((words[:, None] >> np.arange(wire.BUSY_BITS)) & 1).reshape(-1)[:slots] != 0
    return bits


def word_of_call(memory: Memory, row: np.ndarray, number: int) -> int:
    """What a call that does not block is; also while kernels run.

    Args:
        row: int64 words of its communicator.
        number: of the call, which has been started and not waited for.
    """
    at = int(row[c.AREA // 8]) + c.records_at(int(row[c.PLACE // 8]) >> c.RANKS_SHIFT)
    at += number % c.PENDING * wire.PACKET_BYTES
    return int(memory.fetch(at, wire.PACKET_BYTES).view(np.int64)[1])


def open_collectives(context: Context) -> list[str]:
    """Those that do not block and that no kernel has waited for."""
    if not context._has_kernels or not context._memory.direct:
        return []
    memory = context._memory
    if int(memory.read_device(wire.DEVICE_PENDING, 8).view(np.int64)[0]) == 0:
        return []
    raw = memory.read_device(
        wire.DEVICE_COLLECTIVES, wire.COMMUNICATORS * wire.COLLECTIVE_ROW_BYTES
    )
    found = []
    for comm, row in enumerate(raw.view(np.int64).reshape(wire.COMMUNICATORS, -1)):
        if row[c.BROKEN // 8]:  # waits for them have ended
            continue
        for number in range(int(row[c.TAKEN // 8]), int(row[c.STARTED // 8])):
            what = word_of_call(memory, row, number)
            text = call_text(what >> c.SIGNATURE_SHIFT, blocks=False)
            found.append(f"{text} on communicator {comm}")
    return found


def open_requests(context: Context) -> list[OpenRequest]:
    """All of them; those of a channel in order."""
    if not context._has_kernels or not context._memory.direct:
        return []
    memory = context._memory
    found = []
    for slot in np.flatnonzero(direct_bits(context)):
        at = memory.device + wire.DEVICE_ROWS + int(slot) * wire.REQUEST_BYTES
        words = memory.fetch(at, wire.REQUEST_BYTES).view(np.int64)
        stamp, length = int(words[rows.STAMP // 8]), int(words[rows.LENGTH // 8])
        stage = int(words[rows.STAGE // 8]) & (1 << rows.INDEX_SHIFT) - 1
        at = memory.device + memory.table + (stamp >> 32 & rows.INDEX_MASK) * ROW_BYTES
        key = int(memory.fetch(at, 8).view(np.int64)[0])
        receives = bool(key >> KEY_RECEIVES_SHIFT & 1)
        op = wire.OP_IRECV if receives else wire.OP_ISEND
        found.append(
            OpenRequest(
                name_of(op, stamp >> rows.CALL_SHIFT & 0xFF),
                key >> KEY_PEER_SHIFT & (KEY_PEERS - 1),
                key & KEY_TAG_MASK,
                key >> KEY_COMM_SHIFT & (wire.COMMUNICATORS - 1),
                length & rows.LENGTH_MASK,
                DATATYPE_MARK | length >> rows.LENGTH_BITS & 0xFFFF,
                (stamp & wire.LOW_32) >> 1,
                int(slot),
                receives,
                stage == rows.FINISHED,
            )
        )
    return sorted(found, key=lambda one: (one.communicator, one.peer, one.tag, one.number))
