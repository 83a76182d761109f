"""Windows of one-sided communication: made and freed by all ranks of a communicator together.

Each rank tells the others where its memory is, and maps theirs. Then it writes the rows that
kernels read (``gmpi/contract/windows.py``). A window has a communicator of its own, for the barrier
of GMPI_Win_fence, which so meets no other call.

All ranks must reach the memory of all others. MPI could take the place of loads and stores only for
memory that the MPI library can address; a proxy must not touch GPU memory while kernels run, and
what one side updates by the processor and the other by the GPU is not atomic together. So a window
that some rank cannot reach is refused, with the ranks and the reason.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gmpi.contract import windows as w
from gmpi.contract.wire import DEVICE_WINDOWS, WINDOW_ROW_BYTES, WINDOW_ROWS
from gmpi.errors import ContextError
from gmpi.memory.exported import place_of
from gmpi.memory.gpu_staging import Token
from gmpi.memory.native_atomics import are_native
from host_proxy.platform.communicator import Communicator
from host_proxy.platform.state import P_DIRECT

if TYPE_CHECKING:
    from gmpi.context import Context


MOST_UNIT = 1 << 30


class Offer(NamedTuple):
    """What a rank says of its part of a window.

    Attributes:
        problem: why there can be no window; empty: nothing is wrong.
        nbytes: of its memory.
        unit: of displacements, in bytes.
        token: of the allocation that the memory lies in; None: it cannot be mapped.
        offset: in that.
        gpu: which one it is on; None: on none.
    """

    problem: str
    nbytes: int
    unit: int
    token: Token | None
    offset: int
    gpu: str | None


class Window(NamedTuple):
    """One that there is.

    Attributes:
        row: its number.
        comm: handle of its communicator.
        array: this rank's memory, or None.
        targets: where the target rows are in the arena; -1: this rank has no kernels.
        counters: address of this rank's counters of notifications, and how many there are.
    """

    row: int
    comm: int
    array: Any
    targets: int
    counters: tuple[int, int]


class Windows:
    """Those of one context."""

    def __init__(self, context: Context) -> None:
        self._context: Context = weakref.proxy(context)  # whose part we are
        self._memory = context._memory
        self._made = 0
        self._known: dict[int, Window] = {}  # by handle
        # Counters of notifications: a row for each window, as soon as one has any.
        self._counters: Any = None

    def make(self, array: Any, comm: int, unit: int, num_notify: int = 0) -> int:
        """A window's handle; collective over a communicator.

        Args:
            array: in GPU memory, in one piece; None: this rank has no memory in it.
            unit: bytes of a displacement.
            num_notify: counters of notifications in this rank.
        """
        context = self._context
        communicator = context._state.communicators[comm]
        taken = {one.row for one in self._known.values()}
        index = next((i for i in range(WINDOW_ROWS) if i not in taken), 0)
        offer, address = self._offer(lambda: self._checked(array, unit))
        counters, place = Offer("", 0, 8, None, 0, None), 0
        if not offer.problem:
            counters, place = self._offer(lambda: self._checked_counters(index, num_notify))
        said: list[tuple[Offer, Offer]] = communicator.chunks.allgather((offer, counters))
        offers, notified = [one for one, _ in said], [other for _, other in said]
        self._raise_first("make the window", [a.problem or b.problem for a, b in said])
        self._memory.use_here()
        bases = self._map(communicator, offers, address)
        places = self._map(communicator, notified, place)
        lacks = self._out_of_reach(communicator, offers, bases)
        lacks = lacks or self._out_of_reach(communicator, notified, places)
        room = self._memory.pieces.take(len(offers) * w.TARGET_BYTES) if self._has_kernels else -1
        try:
            if room is None:
                lacks = "no memory is left for it; free windows or partitioned requests"
            self._raise_first("make the window", communicator.chunks.allgather(lacks))
            own = context._register_window(communicator.messages)
        except BaseException:
            if room is not None and room >= 0:
                self._memory.pieces.give_back(room)
            raise
        assert room is not None
        for part, begin in ((offer, address), (counters, place)):
            if part.token is not None:
                region = context._partitioned.exported.find(begin, part.nbytes)
                assert region is not None
                context._partitioned.exported.tell(region)
        self._made = self._made % (w.GENERATIONS - 1) + 1
        handle = w.MARK | self._made << w.GENERATION_SHIFT | index
        window = Window(index, own, array, room, (place, counters.nbytes // 8))
        if room >= 0:
            self._write(window, handle, list(zip(offers, bases)), list(zip(notified, places)))
        self._known[handle] = window
        if context._recorder is not None:
            context._recorder.window_made(handle, own)
        return handle

    def free(self, handle: int) -> None:
        """Forgets a window; collective over its communicator."""
        self.comm_of(handle)
        window = self._known[handle]
        context = self._context
        problem = "a kernel is running" if context.kernels_running else ""
        communicator = context._state.communicators[window.comm]
        self._raise_first("free the window", communicator.chunks.allgather(problem))
        if window.targets >= 0:
            nobody = np.zeros(WINDOW_ROW_BYTES // 8, np.int64)
            self._memory.write_device(DEVICE_WINDOWS + window.row * WINDOW_ROW_BYTES, nobody)
            self._memory.pieces.give_back(window.targets)
        del self._known[handle]
        context._give_back(window.comm)
        context._state.communicators[window.comm].control = None  # no channel was ever on it

    def comm_of(self, handle: Any) -> int:
        """The handle of a window's communicator."""
        if not isinstance(handle, (int, np.integer)) or handle not in self._known:
            shown = hex(handle) if isinstance(handle, int) else repr(handle)
            raise ContextError(
                f"window is {shown}, allowed is a handle of Context.win() of this context; it was "
                "freed before, or is no such handle"
            )
        return self._known[int(handle)].comm

    def notify_value(self, handle: Any, index: Any) -> int:
        """A counter of notifications in this rank; kernels may be running."""
        self.comm_of(handle)
        place, number = self._known[int(handle)].counters
        if not isinstance(index, (int, np.integer)) or not 0 <= index < number:
            allowed = f"0..{number - 1}" if number else "none"
            raise ContextError(
                f"notification_idx is {index!r}, allowed is {allowed}; Context.win makes as many "
                "counters as num_notify says"
            )
        return int(self._memory.fetch(place + 8 * int(index), 8).view(np.int64)[0])

    def users_of(self, address: int, nbytes: int) -> int:
        """How many windows lie in a piece of memory."""
        places = [place_of(one.array)[0] for one in self._known.values() if one.array is not None]
        return sum(address <= place < address + max(nbytes, 1) for place in places)

    def never_freed(self) -> list[str]:
        """Those that the user still has, in words."""
        return [f"{handle:#x}" for handle in self._known]

    # --- what each rank has, and reaches ----------------------------------------------------------

    @property
    def _has_kernels(self) -> bool:
        return self._context._has_kernels

    def _offer(self, checked: Callable[[], tuple[Offer, int]]) -> tuple[Offer, int]:
        """What this rank says, and the address of its memory."""
        try:
            return checked()
        except ContextError as exc:
            return Offer(str(exc), 0, 1, None, 0, None), 0

    def _checked(self, array: Any, unit: int) -> tuple[Offer, int]:
        context = self._context
        if not isinstance(unit, (int, np.integer)) or not 1 <= unit <= MOST_UNIT:
            raise ContextError(f"disp_unit is {unit!r}, allowed is 1..{MOST_UNIT} bytes")
        if context.kernels_running:
            raise ContextError(
                "a kernel is running, and what maps memory waits for it; call Context.synchronize "
                "first"
            )
        if len(self._known) >= WINDOW_ROWS:
            raise ContextError(
                f"there are {WINDOW_ROWS} windows, as many as there can be; free those that are "
                "not used any more (Context.win_free)"
            )
        gpu = self._memory.gpu_name
        if array is None:
            return Offer("", 0, unit, None, 0, gpu), 0
        if not self._has_kernels:
            raise ContextError(
                "it was opened with gpu=False and has no GPU memory for a window; pass None"
            )
        exported = context._partitioned.exported
        try:
            address, nbytes = place_of(array)
        except (TypeError, ValueError):
            address, nbytes = 0, 0
            exported.register(array)  # it says what is wrong
        region = exported.find(address, nbytes) if nbytes else None
        if nbytes and region is None:
            exported.register(array)
            region = exported.find(address, nbytes)
        if region is None:
            return Offer("", 0, unit, None, 0, gpu), 0
        return Offer("", nbytes, unit, region.token, region.offset + address - region.address,
                     gpu), address  # fmt: skip

    def _checked_counters(self, row: int, count: Any) -> tuple[Offer, int]:
        """The same of a window's counters."""
        if not isinstance(count, (int, np.integer)) or not 0 <= count <= w.MOST_COUNTERS:
            raise ContextError(f"num_notify is {count!r}, allowed is 0..{w.MOST_COUNTERS}")
        gpu = self._memory.gpu_name
        if count == 0:
            return Offer("", 0, 8, None, 0, gpu), 0
        if not self._has_kernels:
            raise ContextError("it was opened with gpu=False and has no counters; num_notify is 0")
        exported = self._context._partitioned.exported
        if self._counters is None:
            self._counters = exported.allocate((WINDOW_ROWS, w.MOST_COUNTERS), np.int64, True)
        begin, _ = place_of(self._counters)
        address, nbytes = begin + row * w.MOST_COUNTERS * 8, int(count) * 8
        self._memory.write(address, np.zeros(int(count), np.int64))
        region = exported.find(address, nbytes)
        assert region is not None
        offset = region.offset + address - region.address
        return Offer("", nbytes, 8, region.token, offset, gpu), address

    def _map(self, communicator: Communicator, offers: list[Offer], address: int) -> list[int]:
        """Where the memory of each rank is for kernels here; 0: nowhere."""
        bases = [0] * len(offers)
        if not self._has_kernels:
            return bases
        exported = self._context._partitioned.exported
        for rank, offer in enumerate(offers):
            if rank == communicator.rank:
                bases[rank] = address
            elif offer.nbytes and offer.token is not None and self._is_direct(communicator, rank):
                base = exported.map(offer.token)
                bases[rank] = base + offer.offset if base else 0
        return bases

    def _is_direct(self, communicator: Communicator, rank: int) -> bool:
        peer = communicator.peers[rank]
        return bool(peer >= 0 and self._context._peers.table[peer, P_DIRECT] != 0)

    def _out_of_reach(
        self, communicator: Communicator, offers: list[Offer], bases: list[int]
    ) -> str:
        """Whose memory kernels here cannot reach, in words; empty: they reach all."""
        if not self._has_kernels:
            return ""
        for rank, (offer, base) in enumerate(zip(offers, bases)):
            if not offer.nbytes or base:
                continue
            if communicator.peers[rank] < 0:
                why = "it is on another node"
            elif offer.token is None:
                why = "its array cannot be mapped by others; make it with Context.zeros"
            elif not self._is_direct(communicator, rank):
                why = (
                    "there is no direct road between the two: both must have it (road is 'direct', "
                    "gpu_staging), and GPUs that map each other's memory"
                )
            else:
                why = "its GPU's memory cannot be mapped here"
            return f"its kernels cannot reach the memory of rank {rank}: {why}"
        return ""

    def _raise_first(self, what: str, problems: list[str]) -> None:
        """On all ranks alike."""
        for rank, problem in enumerate(problems):
            if problem:
                raise ContextError(f"rank {rank} of the communicator cannot {what}: {problem}")

    # --- what kernels read ------------------------------------------------------------------------

    def _write(
        self,
        window: Window,
        handle: int,
        memories: list[tuple[Offer, int]],
        counters: list[tuple[Offer, int]],
    ) -> None:
        """The rows of a window: of all ranks what they offer, and where it is mapped here."""
        memory = self._memory
        mine = memory.gpu_name
        targets = np.zeros((len(memories), w.TARGET_BYTES // 8), np.int64)
        for row, (offer, base), (notified, place) in zip(targets, memories, counters):
            row[w.BASE // 8] = base
            row[w.SIZE // 8] = offer.nbytes
            row[w.UNIT // 8] = offer.unit
            row[w.MOST // 8] = offer.nbytes // offer.unit
            if mine is not None and offer.gpu is not None and not are_native(mine, offer.gpu):
                row[w.MOST // 8] |= w.NO_ATOMICS
            row[w.COUNTERS // 8] = place
            row[w.COUNTER_COUNT // 8] = notified.nbytes // 8
        memory.write(memory.arena + window.targets, targets)
        words = np.zeros(WINDOW_ROW_BYTES // 8, np.int64)
        words[w.HANDLE // 8] = handle
        words[w.RANKS // 8] = len(targets) | window.comm << w.COMM_SHIFT
        words[w.TARGETS // 8] = memory.arena + window.targets
        words[w.OWN_COUNTERS // 8], words[w.OWN_COUNTER_COUNT // 8] = window.counters
        near = targets[: w.NEAR_RANKS].reshape(-1)
        words[w.NEAR // 8 : w.NEAR // 8 + len(near)] = near
        memory.write_device(DEVICE_WINDOWS + window.row * WINDOW_ROW_BYTES, words)
