"""Open requests and their buffers: what nobody may touch until they are complete.

The buffer of a receive may not be read or written until its wait, that of a send may not be
written (MPI 4.1 section 3.7.2). Of partitioned requests each partition counts alone: of a send from
its Pready, of a receive until its Parrived (section 4.2).
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from device_lib.strict.regions import POISON, Region

UNKNOWN = -1
_CLOSED = 4096  # requests remembered after their wait


class Busy:
    """A buffer of an open request.

    Attributes:
        back: whether the request stores there.
        saved: the bytes before they were poisoned; None: they are not.
    """

    __slots__ = ("back", "region", "request", "saved")

    def __init__(self, request: Request, region: Region, back: bool) -> None:
        self.request = request
        self.region = region
        self.back = back
        self.saved: np.ndarray | None = None

    def poison(self) -> None:
        self.saved = self.region.read()
        self.region.poison()

    def settle(self, received: int | None) -> None:
        """The request is complete: bytes that have not come are what they were before.

        Args:
            received: how many bytes have come; None: all; UNKNOWN: those before the last poison.
        """
        if self.saved is not None and received == UNKNOWN:
            poison = np.resize(POISON, self.region.size)
            changed = np.flatnonzero(self.region.read() != poison)
            received = int(changed[-1]) + 1 if len(changed) else 0
        if self.saved is not None and received is not None and received < self.region.size:
            self.region.write(self.saved[received:], received)
        self.saved = None


class Request:
    """What one call has opened.

    Attributes:
        site: of the call; ``name`` is its name.
        lane: that has made it, of the launch; ``where`` says its block in words.
        busy: its buffers.
        returns: whether the call returns before it is complete.
        partitions: of a partitioned request, their regions; ``active`` since its Start.
    """

    def __init__(self, name: str, site: int, lane: int, where: str) -> None:
        self.name = name
        self.site = site
        self.lane = lane
        self.where = where
        self.returns = name.removeprefix("GMPI_")[0] in "IP"
        self.handle = 0
        self.busy: list[Busy] = []
        self.partitions: list[Region] = []
        self.back = False
        self.active = False


class Requests:
    """All open ones of this process, and the last ones that were closed."""

    def __init__(self) -> None:
        self.busy: list[Busy] = []
        self.open: dict[int, Request] = {}  # by handle
        self.partitioned: dict[int, Request] = {}  # by handle
        self.freed: list[Request] = []
        self._closed: OrderedDict[int, tuple[Request, int]] = OrderedDict()  # handle: wait's site

    def hold(self, busy: Busy) -> None:
        busy.request.busy.append(busy)
        self.busy.append(busy)

    def register(self, request: Request, handle: int) -> None:
        request.handle = handle
        self._closed.pop(handle, None)
        self.open[handle] = request

    def let_go(self, busy: Busy, received: int | None) -> None:
        busy.settle(received)
        busy.request.busy.remove(busy)
        self.busy.remove(busy)

    def close(self, request: Request, site: int, received: int | None) -> list[Busy]:
        """Ends a request; its buffers are the user's again.

        Args:
            site: of the wait.
            received: how many bytes its receive has got; None: all.
        """
        ended = list(request.busy)
        for busy in ended:
            self.let_go(busy, received)
        request.active = False
        if self.open.pop(request.handle, None) is not None:
            self._closed[request.handle] = request, site
            if len(self._closed) > _CLOSED:
                self._closed.popitem(last=False)
        return ended

    def free(self, handle: int, site: int) -> None:
        """GMPI_Request_free of an open request: nobody waits for it, its buffers stay in use."""
        request = self.open.pop(handle, None)
        if request is not None:
            self._closed[handle] = request, site
            self.freed.append(request)

    def closed(self, handle: int) -> tuple[Request, int] | None:
        """The request, and the line where it was waited for."""
        return self._closed.get(handle)

    def find(self, handle: int) -> Request | None:
        return self.open.get(handle) or self.partitioned.get(handle)

    def touched(self, first: int, end: int, writes: bool) -> Busy | None:
        """The open buffer that an access breaks into."""
        for busy in self.busy:
            if (writes or busy.back) and busy.region.touches(first, end):
                return busy
        return None

    def overlapped(self, region: Region, back: bool) -> Busy | None:
        """The open buffer that another call's buffer must not overlap."""
        for busy in self.busy:
            if (back or busy.back) and busy.region.overlaps(region):
                return busy
        return None
