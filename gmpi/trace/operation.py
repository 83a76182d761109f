"""What a trace knows of one operation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Operation:
    """One message, at one of its ends, one collective, or one access to another rank's memory.

    Times are ns of the host's clock, 0 where they are not known.

    Attributes:
        kind: ``send``, ``receive``, ``collective`` or ``access``.
        comm: what all ranks call the communicator.
        peer: rank of the context: the other end, as far as it is known.
        channel: what else keeps messages of one tag apart; empty: nothing.
        road: ``direct``, ``proxied`` or ``host``.
        track: where it began, and ``end_track`` where it was completed.
        begin, returned: of the call that started it.
        waited, end: of the call that completed it; of a blocking call both are its own.
        ready, ready_track: when and where the last partition was made ready.
        picked_up, called, arrived, completed: by the proxy (``host_proxy/platform/trace.py``).
    """

    name: str
    kind: str
    comm: str
    peer: int | None
    tag: int | None
    nbytes: int
    road: str
    track: int
    begin: int = 0
    returned: int = 0
    waited: int = 0
    end: int = 0
    end_track: int = 0
    picked_up: int = 0
    called: int = 0
    arrived: int = 0
    completed: int = 0
    error: int = 0
    block: int = -1
    launch: int = 0
    channel: str = ""
    ready: int = 0
    ready_track: int = 0

    @property
    def left(self) -> tuple[int, int]:
        """When and on which track a message left its sender's hands."""
        return (self.ready, self.ready_track) if self.ready else (self.begin, self.track)
