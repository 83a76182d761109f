"""What must hold before a context opens: MPI, the memory, and that all ranks agree."""

from __future__ import annotations

import errno
import hashlib
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
from mpi4py import MPI

from device_lib.platform.primitives import SIMULATOR
from gmpi import affinity
from gmpi.contract import wire
from gmpi.contract.sizes import Layout
from gmpi.diagnose.differences import of_field
from gmpi.errors import ContextError
from gmpi.lifetime import process
from gmpi.memory.regions import Memory

SILENT_S = 10.0  # how long a step may take without a word
kernel_died = False  # in this process: its CUDA context cannot be used any more


def require_mpi() -> None:
    """MPI is initialised, as far as a context needs, and by this process."""
    if process.forked:
        raise ContextError(process.FORKED)
    if not MPI.Is_initialized():
        raise ContextError("MPI is not initialised; import mpi4py.MPI or call MPI.Init_thread()")
    if MPI.Is_finalized():
        raise ContextError("MPI has been finalised already")
    level = MPI.Query_thread()
    if level < MPI.THREAD_MULTIPLE:
        names = {MPI.THREAD_SINGLE: "SINGLE", MPI.THREAD_FUNNELED: "FUNNELED"}
        raise ContextError(
            f"MPI was initialised with THREAD_{names.get(level, 'SERIALIZED')}, but the proxy "
            "thread and the main thread both call MPI: ask for THREAD_MULTIPLE (mpi4py's default)"
        )
    require_tags(int(MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or 0))


@contextmanager
def _said_when_late(comm: MPI.Comm, what: str) -> Iterator[None]:
    """Says what a step of an opening takes long for: no watchdog runs yet.

    Ranks speak one after the other, since whichever may be the missing one.
    """
    seconds = SILENT_S * max(1, comm.rank)

    def say() -> None:
        text = f"GMPI: rank {comm.rank}: has waited for {seconds:g} s in gmpi.Context for {what}"
        print(text, file=sys.stderr, flush=True)

    timer = threading.Timer(seconds, say)
    timer.daemon = True
    try:
        timer.start()
        yield
    finally:
        timer.cancel()


def waiting_for_others(comm: MPI.Comm) -> AbstractContextManager[None]:
    """Around the first collective call of an opening."""
    return _said_when_late(
        comm,
        f"the other ranks: all {comm.size} ranks of the communicator must open it, and some have "
        "not begun, or have ended",
    )


def waiting_for_compiler(comm: MPI.Comm) -> AbstractContextManager[None]:
    """Around what one process of a node compiles, for all that begin with an empty cache."""
    return _said_when_late(
        comm,
        "the proxy's engine, which this or another process of the node compiles: half a minute of "
        "processor time, once for an installation",
    )


def require_tags(tag_ub: int) -> None:
    """There are tags for as many long messages as can be under way, each with two."""
    if tag_ub < wire.TRANSFER_TAG_UB:
        raise ContextError(
            f"MPI_TAG_UB of this MPI library is {tag_ub}, less than the {wire.TRANSFER_TAG_UB} "
            "that MPI promises and long messages need"
        )


def require_intracomm(comm: Any) -> None:
    """Whatever it is, it is a communicator that can be registered."""
    if not isinstance(comm, MPI.Intracomm) or comm == MPI.COMM_NULL:
        raise ContextError(
            f"comm is {comm!r}, allowed is an intracommunicator of mpi4py such as MPI.COMM_WORLD; "
            "an intercommunicator must be merged first"
        )


def first_ticket(contexts: int) -> int:
    """The ticket of the first record of a context, after so many others in this process.

    A handle names the context by 6 bits and by the ticket of its record. So contexts whose numbers
    have the same bits count from places that are far apart: a handle kept from an earlier one is
    refused, and what a kernel of an earlier one left in a peer's memory is not taken for new.
    """
    return contexts * _TICKET_STEP & (_TICKETS - 1)


_TICKETS = 1 << 31  # then their tags repeat
_TICKET_STEP = 0x4F1BBCDC  # _TICKETS / the golden ratio: multiples stay apart


def allocate(
    layout: Layout,
    gpu: bool,
    staging: bool,
    node: affinity.OnNode,
    first: int,
    direct: bool = False,
) -> Memory:
    """All regions, with the busy bits of slots that do not exist set.

    Args:
        staging: whether to have GPU staging, with mailboxes for the ranks of this node.
        node: its ranks.
        first: ticket of the first record.
        direct: whether to have memory for the direct road.
    """
    words = layout.slots // wire.BUSY_BITS
    initial = np.zeros(wire.DEVICE_BUSY + words * wire.BUSY_STRIDE, np.uint8)
    for counter in (wire.DEVICE_TICKET, wire.DEVICE_CONSUMED):
        initial[counter : counter + 8].view(np.int64)[0] = first
    for slot in range(layout.request_slots + layout.large_slots, layout.first_narrow):
        word = wire.DEVICE_BUSY + slot // wire.BUSY_BITS * wire.BUSY_STRIDE
        initial[word : word + 8].view(np.int64)[0] |= 1 << slot % wire.BUSY_BITS
    on_gpu = gpu and not SIMULATOR
    try:
        if on_gpu:
            affinity.take_gpu(node.rank)
        return Memory(
            layout,
            initial,
            kernels=gpu,
            gpu=on_gpu,
            staging=staging,
            processes=node.processes,
            direct=direct,
        )
    except ContextError:
        raise
    except Exception as exc:
        nbytes = layout.mapped_bytes, layout.device_bytes
        if staging:
            nbytes = nbytes[0], nbytes[1] + layout.mailbox(len(node.processes))
        raise ContextError(
            f"cannot allocate {nbytes[0]} bytes of pinned and {nbytes[1]} of GPU memory: {exc}; "
            f"{_advice(exc)}"
        ) from exc


def _advice(exc: Exception) -> str:
    """What to do where memory could not be had."""
    if kernel_died:
        return (
            "a kernel of this process has died, and CUDA with it: open contexts in a new process, "
            "or with gpu=False"
        )
    lacks = isinstance(exc, MemoryError) or "OUT_OF_MEMORY" in str(exc)
    if lacks or (isinstance(exc, OSError) and exc.errno in (errno.ENOMEM, errno.ENOSPC)):
        return "lower request_slots, large_slots, eager_bytes or chunk_bytes"
    return "memory is not what is lacking: gmpi info says what there is"


def agree(
    comm: MPI.Comm, problem: BaseException | None, shared: Mapping[str, object]
) -> BaseException | None:
    """Whether all ranks have opened the context so far: what to raise if not; collective.

    Args:
        problem: why this rank has not, if so; it gets that back, the others are told.
        shared: settings of this rank that must be the same on all.
    """
    mine = None if problem is None else f"{type(problem).__name__}: {problem}", wire.VERSION, shared
    if _all_say(comm, mine):
        return problem
    everyone = comm.allgather(mine)
    if problem is not None:
        return problem
    for rank, (text, version, _) in enumerate(everyone):
        if text is not None:
            return ContextError(f"rank {rank} could not open the context: {text}")
        if version != wire.VERSION:
            return ContextError(
                f"rank {rank} speaks version {version} of the protocol, this one {wire.VERSION}; "
                "install the same GMPI everywhere"
            )
    for name in shared:
        values = {rank: theirs[name] for rank, (_, _, theirs) in enumerate(everyone)}
        if different := of_field(name, values):
            return ContextError(
                f"{different}; it must be the same on all ranks: pass {name}= to Context, or set "
                f"GMPI_{name.upper()} for all of them"
            )
    return None


def _all_say(comm: MPI.Comm, mine: object) -> bool:
    """Whether all ranks say the same; collective.

    By a digest: what each of 100 000 ranks has to say would be more than 10 MiB on every one of
    them, after each step of an opening (docs/scaling.md).
    """
    extremes = _digest(mine)
    comm.Allreduce(MPI.IN_PLACE, extremes, op=MPI.MAX)
    return bool(extremes[0] == -extremes[1])


def _digest(said: object) -> np.ndarray:
    """int64[2]: a digest, and its negative, whose maximum tells the least digest."""
    word = int.from_bytes(hashlib.blake2b(repr(said).encode(), digest_size=7).digest(), "little")
    return np.array([word, -word], np.int64)


#: The standard's hints (MPI 4.1 section 7.4.4). An MPI library that has no use for one drops it.
NO_ANY_TAG = "mpi_assert_no_any_tag"
NO_ANY_SOURCE = "mpi_assert_no_any_source"


def _asserted(comm: MPI.Comm, *hints: str) -> bool:
    """Whether a communicator's info says so."""
    info = comm.Get_info()
    said = all((info.Get(hint) or "").lower() == "true" for hint in hints)
    info.Free()
    return said


def _agreed(comm: MPI.Comm, name: str, mine: bool) -> bool:
    """What all ranks of a communicator say; collective."""
    if _all_say(comm, mine):
        return mine
    if different := of_field(name, dict(enumerate(comm.allgather(mine)))):
        raise ContextError(f"{different}; it must be the same on all ranks of the communicator")
    return mine


def agree_on_tags(comm: MPI.Comm, no_any_tag: bool | None) -> bool:
    """Whether no receive on a communicator uses ANY_TAG: all ranks say so, or none; collective.

    Args:
        no_any_tag: what the user said; None: what the communicator's info says.
    """
    mine = _asserted(comm, NO_ANY_TAG) if no_any_tag is None else bool(no_any_tag)
    return _agreed(comm, f"no_any_tag, or {NO_ANY_TAG} in the communicator's info,", mine)


def agree_on_wildcards(comm: MPI.Comm, wildcards: bool | None) -> bool:
    """Whether receives on a communicator may use wildcards, likewise."""
    if wildcards is None:
        wildcards = not _asserted(comm, NO_ANY_TAG, NO_ANY_SOURCE)
    hints = f"{NO_ANY_SOURCE} and {NO_ANY_TAG}"
    return _agreed(comm, f"wildcards, or {hints} in the communicator's info,", bool(wildcards))
