"""GMPI calls in strict mode: what they do to the buffers of requests, and what they may not.

All threads of the scope meet where the call begins. The last one to come looks at the call for all
of them; then they make it. So a call is a barrier of its scope, as it is on a GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from device_lib.platform.context import Status, status_of
from device_lib.proxied.closing import NO_ORIGIN
from device_lib.simulator.lanes import Lane, pause
from device_lib.strict import clocks, handles
from device_lib.strict.buffers import BACK, OPENING, OUT, SENDS, used
from device_lib.strict.clocks import Clock
from device_lib.strict.regions import region_of
from device_lib.strict.requests import UNKNOWN, Busy, Request
from device_lib.strict.schedule import wait
from device_lib.strict.watched import READ
from gmpi.contract.constants import ERR_TRUNCATE, PROC_NULL, SUCCESS
from gmpi.contract.wire import HANDLE_ERROR_SHIFT
from gmpi.errors import UsageError

if TYPE_CHECKING:
    from device_lib.strict.checker import Checker

_WAITS = frozenset(
    {
        "Wait", "Waitall", "Waitany", "Waitsome", "Test", "Testall", "Testany", "Testsome",
        "Request_get_status",
    }
)  # fmt: skip
_MOST_STATUSES = 1 << 20


class Call:
    """One call, all threads together.

    Attributes:
        name: without GMPI_ and the scope; ``full`` as the user wrote it.
        site: of the call. ``me`` is a lane of the scope, and ``epoch`` its last one before it met
            the others, which all of them have seen.
        request: what it opens; None: nothing.
        handles: what it waits for, before it was made; ``freed``, of Synchronize, likewise.
        extra: the statuses that strict mode has asked for.
        order, shuffled: of Waitany, in which order it looks at its requests, and their handles so.
        held: it says "not yet", and is not made; ``delay_s`` is how long it waits before.
        left: whether a thread has come out of it.
    """

    def __init__(self, name: str, full: str, site: int, me: Clock, epoch: int) -> None:
        self.name = name
        self.full = full
        self.site = site
        self.me = me
        self.epoch = epoch
        self.arguments: dict[str, Any] = {}
        self.request: Request | None = None
        self.handles: list[int] = []
        self.freed: list[Request] = []
        self.extra: np.ndarray | None = None
        self.order: list[int] = []
        self.shuffled: np.ndarray | None = None
        self.held = False
        self.delay_s = 0.0
        self.left = False


class Calls:
    """All calls of a context."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._failed = False  # a call has returned an error: requests may be given up

    def make(
        self, lane: Lane, full: str, scope: str, functions: Any, given: tuple[Any, ...]
    ) -> Any:
        """One thread's part of a call.

        Args:
            full: its name, as the user wrote it.
            functions: the call itself; and what is made instead, or None; its arguments' names.
        """
        function, late, names = functions
        assert lane.call is not None
        _, code, line = lane.call

        def together(values: list[Any]) -> Call:
            if scope != "grid" and any(not isinstance(v, str | None) for v in values):
                _mixed(f"{full} at {code.co_filename}:{line}", "a barrier")
            return self._begin(lane, full, scope, (code, line), dict(zip(names, given)))

        if scope == "grid":
            call = lane.grid.barrier.meet(lane, 0, full, together, True)
        elif scope == "block":
            call = lane.block.barrier.meet(lane, lane.thread_id, full, together, True)
        else:
            call = lane.warp.meet(lane, lane.warp.alive, full, together, True)
        if not isinstance(call, Call):
            _mixed(f"{full} at {code.co_filename}:{line}", "a barrier")
        lane.inside += 1
        try:
            if call.delay_s:
                wait(call.delay_s)
            if call.held:
                pause()
                return _not_yet(call)
            if late is not None and call.name in SENDS and given[names.index("dest")] != PROC_NULL:
                function = late
            result = self._run(call, function, given)
            if not call.left:
                call.left = True
                self._end(call, result)
            return result
        finally:
            lane.inside -= 1

    # --- all threads have come --------------------------------------------------------------------

    def _begin(self, lane: Lane, full: str, scope: str, at: Any, arguments: dict[str, Any]) -> Call:
        checker = self._checker
        lanes = checker.lanes
        if scope == "block":
            lanes = checker.block_lanes[lane.block.number]
        elif scope == "warp":
            begin = lane.thread_id & ~31
            lanes = checker.block_lanes[lane.block.number][begin : begin + 32]
        me = lane.clock
        epoch = me.epoch()
        clocks.meet(lanes)
        name = full.removeprefix("GMPI_").removesuffix("_warp").removesuffix("_grid")
        site = checker.sites.of(at[0], at[1], full)
        call = Call(name, full, site, me, epoch)
        call.arguments = arguments
        self._use_buffers(call)
        if name in handles.PARTITIONED:
            handles.begin(checker, call)
        if name == "Synchronize":
            call.freed = list(checker.requests.freed)
        if name in SENDS:
            call.delay_s = checker.schedule.delay_s()
        if name in _WAITS:
            call.handles = handles.of(call)
            self._look_at(call)
        return call

    def _use_buffers(self, call: Call) -> None:
        """The buffers of a call are MPI's from now on."""
        checker = self._checker
        opens = call.name in OPENING
        blocks = f"block {call.me.index // checker.threads}"
        request = Request(call.full, call.site, call.me.index, blocks)
        call.request = request
        for value, count, datatype, way in used(call.name, call.arguments, checker.world.members):
            region = region_of(value, count, datatype, checker.world.runs)
            if region is None:
                continue
            back = way & BACK != 0
            other = checker.requests.overlapped(region, back)
            if other is not None:
                self._overlap(call, other, back)
            if way & OUT:
                self.taken(call, region)
            busy = Busy(request, region, back)
            if back:
                self.stored(call, region)
                if opens and not way & OUT and other is None:
                    busy.poison()
            checker.requests.hold(busy)

    def taken(self, call: Call, region: Any) -> None:
        """A call reads the bytes of a region."""
        for shadow in self._checker.shadows_of(region):
            shadow.region_read(call.me, call.epoch, region, call.site)

    def stored(self, call: Call, region: Any) -> None:
        """A call may store to a region, or has stored."""
        for shadow in self._checker.shadows_of(region):
            shadow.region_write(call.me, call.epoch, region, call.site)

    def forget_stores(self, region: Any) -> None:
        """Whoever looks at a partition that may have arrived sees it: no barrier orders that."""
        for shadow in self._checker.shadows_of(region):
            shadow.region_is_nobodys(region)

    def _look_at(self, call: Call) -> None:
        """A wait or a test is about to be made."""
        checker = self._checker
        sites = checker.sites
        for handle in call.handles:
            closed = checker.requests.closed(handle)
            if closed is not None and checker.requests.find(handle) is None:
                request, before = closed
                checker.findings.add(
                    "waited twice",
                    (call.site, request.site),
                    f"{call.full} at {sites.place(call.site)} waits for the request of "
                    f"{request.name} at {sites.place(request.site)}",
                    f"which {sites.call(before)} at {sites.place(before)} has closed",
                    "wait for each request once; keep handles in an array, where Waitall and "
                    "Waitany set them to gmpi.REQUEST_NULL",
                )
        known = tuple(h for h in call.handles if checker.requests.find(h) is not None)
        if call.name.startswith(("Test", "Request_get")) and known:
            call.held = checker.schedule.holds(known)
        if call.name in ("Waitall", "Waitsome", "Testall", "Testsome"):
            count = handles.count_of(call)
            if call.arguments.get("statuses") is None and 0 < count <= _MOST_STATUSES:
                call.extra = np.zeros((count, 5), np.int64)
        if call.name == "Waitany" and known:
            call.order = checker.schedule.order(len(call.handles))
            call.shuffled = np.array([call.handles[k] for k in call.order], np.int64)

    def _run(self, call: Call, function: Any, given: tuple[Any, ...]) -> Any:
        """Makes the call."""
        if call.extra is not None:
            given = (*given[: len(call.arguments) - ("statuses" in call.arguments)], call.extra)
        if call.shuffled is None:
            return function(*given)
        index, status = function(given[0], len(call.order), call.shuffled)
        if index >= 0:
            index = call.order[index]
            handles.set_null(given[2], index)
        return index, status

    # --- a thread has come out --------------------------------------------------------------------

    def _end(self, call: Call, result: Any) -> None:
        """The first thread has come out of a call."""
        checker = self._checker
        name = call.name
        if name == "Request_get_status":
            self._seen(call, result)
            return
        if name in _WAITS:
            for handle, status in handles.completed(call, result):
                self._complete(call, handle, status)
            return
        if name in handles.PARTITIONED:
            handles.end(checker, call, result)
            return
        if name == "Synchronize":
            for freed in call.freed:
                self._ended(call, freed, checker.requests.close(freed, call.site, UNKNOWN))
                checker.requests.freed.remove(freed)
        request = call.request
        if request is None:
            return
        if name in OPENING:
            if int(result) >> HANDLE_ERROR_SHIFT == 1:
                self._failed = True
                checker.requests.close(request, call.site, 0)
            else:
                checker.requests.register(request, int(result))
            return
        error = result.error if isinstance(result, Status) else result
        self._failed |= isinstance(error, int) and error != SUCCESS
        self._ended(call, request, checker.requests.close(request, call.site, None))

    def _complete(self, call: Call, handle: int, status: Status | None) -> None:
        """A wait or a test has closed a request."""
        checker = self._checker
        request = checker.requests.find(handle)
        if request is not None:
            received = self._received(request, status)
            self._ended(call, request, checker.requests.close(request, call.site, received))

    def _seen(self, call: Call, result: tuple[bool, Status]) -> None:
        """A request is complete, and stays open: its buffers are the user's again."""
        request = self._checker.requests.find(call.handles[0])
        if request is not None and result[0]:
            ended, received = list(request.busy), self._received(request, result[1])
            for busy in ended:
                self._checker.requests.let_go(busy, received)
            self._ended(call, request, ended)

    def _received(self, request: Request, status: Status | None) -> int | None:
        """How many bytes the receive of a complete request has got; None: all."""
        if status is None:
            return None
        if status.error not in (SUCCESS, ERR_TRUNCATE):
            self._failed = True
            return 0
        receives = request.name.removeprefix("GMPI_").startswith(("Irecv", "Imrecv"))
        return status.nbytes if receives else None

    def _ended(self, call: Call, request: Request, ended: list[Busy]) -> None:
        """What a request has read and stored is known from now on to who has waited for it."""
        for busy in ended:
            if busy.back:
                self.stored(call, busy.region)
            elif not request.partitions:
                self.taken(call, busy.region)
            else:  # other blocks may have written what they have said is ready
                for shadow in self._checker.shadows_of(busy.region):
                    shadow.region_is_read(call.epoch, busy.region, call.site)

    def end(self) -> None:
        """The kernel has ended: requests that nobody has waited for."""
        checker = self._checker
        if not self._failed:
            for request in list(checker.requests.open.values()):
                checker.findings.add(
                    "never waited for",
                    (request.site,),
                    f"the request of {request.name} in {request.where} at "
                    f"{checker.sites.place(request.site)} is open, and the kernel has ended",
                    "keep what the call returns, and pass it to GMPI_Wait, or to another wait, "
                    "before the kernel returns",
                )
        self.forget()

    def forget(self) -> None:
        """The kernel has ended: its open requests are not looked at any more."""
        requests = self._checker.requests
        for request in list(requests.open.values()):
            requests.close(request, request.site, 0)
        for request in requests.freed:  # the host closes them
            requests.close(request, request.site, UNKNOWN)
        requests.freed.clear()
        self._failed = False

    # --- what is found ----------------------------------------------------------------------------

    def broken(self, me: Clock, busy: Busy, how: int, address: int, site: int) -> None:
        """A lane has touched the buffer of an open request."""
        checker = self._checker
        request = busy.request
        verb = "read" if how == READ else "write"
        opened = f"{request.name} at {checker.sites.place(request.site)}"
        then = "what is sent may be the old value or the new one"
        if busy.back and how == READ:
            then = "what it receives may not be there yet"
        elif busy.back:
            then = "what it receives may be stored before that, or after it"
        checker.findings.add(
            f"{verb} before wait",
            (site, request.site),
            f"{checker.where(me.index)} {verb}s {checker.element(address)} at "
            f"{checker.sites.place(site)}",
            f"{opened} is not complete: {then}",
            "wait for the request (GMPI_Wait, GMPI_Waitall) before that line, and let a barrier "
            "pass if another block has waited",
        )

    def _overlap(self, call: Call, other: Busy, back: bool) -> None:
        sites, request = self._checker.sites, other.request
        mine = "stores to" if back else "reads"
        its = "stores to" if other.back else "reads"
        if request is call.request:
            self._checker.findings.add(
                "buffers overlap",
                (call.site, call.site),
                f"the buffers of {call.full} at {sites.place(call.site)} overlap: it {its} one "
                f"and {mine} the other",
                "give it two buffers that have no byte in common; a reduction in place takes "
                "gmpi.IN_PLACE as sendbuf",
            )
            return
        self._checker.findings.add(
            "buffers overlap",
            (call.site, request.site),
            f"{call.full} at {sites.place(call.site)} {mine} bytes of its buffer",
            f"that {request.name} at {sites.place(request.site)}, which is not complete, {its}",
            "wait for the first request before the second call, or give each a buffer of its own",
        )


def require_barriers(met: Any, what: str) -> None:
    """Refuses a barrier at which some threads have met others that make a GMPI call."""
    if not isinstance(met, list) or any(isinstance(value, str) for value in met):
        _mixed(what, "a GMPI call")


def _mixed(one: str, other: str) -> NoReturn:
    raise UsageError(
        f"some threads of a scope are at {one} while others are in {other}; all threads of the "
        "scope make the same calls, and come to the same barriers"
    )


def _not_yet(call: Call) -> Any:
    """What a test returns that has found nothing."""
    nothing = status_of(SUCCESS, 0, NO_ORIGIN)
    return {
        "Test": (False, nothing),
        "Request_get_status": (False, nothing),
        "Testany": (-1, False, nothing),
        "Testall": (False, SUCCESS),
        "Testsome": (0, SUCCESS),
        "Parrived": False,
    }[call.name]
