"""How a context ends: what it says was left behind, and how it ends a whole job."""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI

from gmpi.contract import wire
from gmpi.contract.constants import PROC_NULL
from gmpi.errors import (
    AbortedError,
    CallError,
    GMPIError,
    KernelError,
    PeerError,
    PendingError,
    ProxyError,
    RequestTimeoutError,
)
from gmpi.lifetime.unreceived import unreceived
from gmpi.observe import direct
from gmpi.observe.messages import with_arrival
from gmpi.observe.pending import PendingRequest
from gmpi.observe.report import duplicates
from host_proxy.platform.state import COMPLETE, OPEN, S_BLOCK, S_COMM, S_HANDLE, S_STATE

if TYPE_CHECKING:
    from gmpi.context import Context

LISTED = 5
_MESSAGES = 10_000  # looked at, at most, when a context closes

#: What ``on_error="abort"`` ends a job for; other errors are misuse of the context by the host.
FATAL = (
    CallError, PendingError, AbortedError, PeerError, RequestTimeoutError, KernelError, ProxyError,
)  # fmt: skip


def is_failure(value: BaseException) -> bool:
    """Whether an exception that leaves the ``with`` block is to end the job."""
    if isinstance(value, SystemExit):
        return value.code not in (None, 0)
    return not isinstance(value, GeneratorExit)


def abort_job(context: Context, why: BaseException) -> None:
    """Prints the error and the report of all ranks, then ends them all (MPI 4.1 section 9.7)."""
    text = f"GMPI: rank {context.rank}: {type(why).__name__}: {why}"
    if why.__traceback__ is not None and not isinstance(why, GMPIError):  # the user's own
        text = "".join(traceback.format_exception(why)) + text
    if not isinstance(why, (RequestTimeoutError, PeerError)):  # their texts have the report
        try:
            text += f"\n{context._watchdog.report('on_error is abort').text}"
        except Exception as exc:
            text += f"\n(no report: {exc!r})"
    print(f"\n{text}\n\nGMPI: on_error is abort: MPI_Abort\n", file=sys.stderr, flush=True)
    context._state.communicators[0].messages.Abort(1)
    os._exit(1)  # where MPI_Abort returns


def listed(found: Sequence[object]) -> str:
    """The first of them, in words."""
    return "; ".join(map(str, found[:LISTED])) + ("; ..." if found[LISTED:] else "")


def leaks(context: Context) -> str:
    """What was left behind, as the text of a warning; empty when nothing was.

    Called when no kernel runs and nothing is pending, before the proxy ends.
    """
    found = []
    requests = never_waited_for(context)
    if requests:
        found.append(
            f"{len(requests)} requests completed but were never waited for: {listed(requests)}"
        )
    if opened := direct.open_requests(context):
        listing = listed(with_arrival(context, opened))
        found.append(f"{len(opened)} requests of the direct road were never waited for: {listing}")
    if started := direct.open_collectives(context):
        found.append(f"{len(started)} collectives were never waited for: {listed(started)}")
    if kept := context._partitioned.never_freed():
        found.append(f"{len(kept)} partitioned requests were never freed: {listed(kept)}")
    if kept := context._windows.never_freed():
        listing = ", ".join(kept[:LISTED]) + (", ..." if kept[LISTED:] else "")
        found.append(f"{len(kept)} windows were never freed: {listing}")
    if persistent := never_freed(context):
        found.append(f"{persistent} persistent requests were never freed (GMPI_Request_free)")
    datatypes = context._datatypes.plans
    if datatypes:
        some = ", ".join(f"{handle:#x}" for handle in list(datatypes)[:LISTED])
        found.append(
            f"{len(datatypes)} datatypes were committed but never freed: {some}"
            f"{', ...' if len(datatypes) > LISTED else ''}"
        )
    messages = never_received(context)
    if messages:
        number = sum(messages.values())
        some = "; ".join(
            f"{text}" + (f" ({count} times)" if count > 1 else "")
            for text, count in list(messages.items())[:LISTED]
        )
        found.append(
            f"{number} messages came but were never received: {some}"
            f"{'; ...' if len(messages) > LISTED else ''}"
        )
    if unmatched := unreceived(context, opened):
        found.append(
            f"{sum(unmatched.values())} messages of the direct road were never received: "
            f"{listed(list(unmatched))}"
        )
    return "\n".join(found)


def never_freed(context: Context) -> int:
    """How many persistent requests kernels have made and not freed."""
    if not context._has_kernels:
        return 0
    nbytes = wire.PERSISTENT_ROWS * wire.PERSISTENT_ROW_BYTES
    rows = context._memory.read_device(wire.DEVICE_PERSISTENT, nbytes).view(np.int64)
    return int(np.count_nonzero(rows[:: wire.PERSISTENT_ROW_BYTES // 8]))


def never_waited_for(context: Context) -> list[PendingRequest]:
    """Requests that are complete but whose slot the kernel never freed."""
    if not context._has_kernels:
        return []
    layout = context.layout
    raw = context._memory.read_device(
        wire.DEVICE_BUSY, layout.slots // wire.BUSY_BITS * wire.BUSY_STRIDE
    )
    busy = raw.view(np.int64)[:: wire.BUSY_STRIDE // 8]
    bits = (busy[:, None] >> np.arange(wire.BUSY_BITS)) & 1
    held = np.flatnonzero(bits.reshape(-1)[: layout.slots])
    rows = context._state.slots[held]
    rows = rows[~direct.direct_bits(context)[held]]  # those are not the proxy's
    users = rows[:, S_COMM] != wire.PRIVATE_COMMUNICATOR  # others stand for partitioned requests
    return [PendingRequest(row) for row in rows[(rows[:, S_STATE] == COMPLETE) & users]]


def set_patience(context: Context, seconds: float) -> None:
    """How long a call waits for a free request slot, from now on."""
    patience = int(seconds * 1e9).to_bytes(8, "little")
    ctypes.memmove(context._memory.host + wire.CONTROL_RESOURCE_NS, patience, 8)


def held_for_nothing(context: Context) -> str:
    """Where a call found no free slot: that all are held by requests that are complete, in words.

    From the proxy's table, while kernels run; empty when one is open, which may yet free its slot.
    """
    layout, table = context.layout, context._state.slots
    small, large = layout.request_slots, layout.request_slots + layout.large_slots
    for rows in (table[:small], np.concatenate((table[small:large], table[layout.first_narrow :]))):
        if (rows[:, S_STATE] == OPEN).any() or (rows[:, S_HANDLE] == 0).any():
            continue
        (block, most), *others = Counter(rows[:, S_BLOCK].tolist()).most_common()
        where = f"block {block}" + (f" ({most} of them) and other blocks" if others else "")
        return (
            f"{len(rows)} requests are complete but were never waited for, and hold all slots of "
            f"their size, opened by {where}, such as {PendingRequest(rows[0])}: calls that need "
            "one fail; wait for every request (GMPI_Wait, GMPI_Waitall)"
        )
    return ""


def never_taken(context: Context) -> list[PendingRequest]:
    """Of the same, those whose data have come and are in no buffer."""
    return [
        request
        for request in never_waited_for(context)
        if request.takes_data and request.nbytes > 0 and request.peer != PROC_NULL
    ]


def never_received(context: Context) -> Counter[str]:
    """Messages that have come and nobody has asked for, in words; they are taken.

    Not those that are still on their way: only ranks that meet before they close see all.
    """
    found: Counter[str] = Counter()
    status = MPI.Status()
    room = np.empty(wire.MESSAGE_HEADER + context.layout.eager_bytes, np.uint8)
    for duplicate, (identity, members) in duplicates(context._state, context._communicators.groups):
        for one in duplicate.found:  # a probe has
            text = f"{one.length()} bytes from {members[one.source]} tag {one.tag} on {identity}"
            found[text] += 1
        duplicate.found.clear()
        for one in duplicate.taken:
            text = f"{one.length()} bytes from {members[one.source]} tag {one.tag} on {identity}"
            found[f"{text}, which a matched probe has taken"] += 1
            one.drop()
        duplicate.taken.clear()
        for _ in range(_MESSAGES):
            message = duplicate.Improbe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
            if message is None:
                break
            source, tag, nbytes = status.Get_source(), status.Get_tag(), status.Get_count(MPI.BYTE)
            if not wire.MESSAGE_HEADER <= nbytes <= room.size:
                room = np.empty(max(nbytes, room.size), np.uint8)
            message.Recv([room, nbytes, MPI.BYTE])
            (length,) = struct.unpack_from("<q", room.data)
            text = f"{length} bytes from {members[source]} tag {tag} on {identity}"
            found[text] += 1
    return found
