"""NVTX ranges in a domain of their own, "gmpi", for profilers such as Nsight Systems.

They are of the package nvtx, which need not be there. Opening, closing and ``synchronize`` of a
context, each operation of the host from its call to its completion, and each launch that takes a
context. What happens inside kernels is in traces (``gmpi/trace``); a device has no ranges.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gmpi.errors import ConfigError

if TYPE_CHECKING:
    from gmpi.host.requests import HostRequest, Progress

DOMAIN = "gmpi"
#: Nsight Systems sets both, other tools that listen to NVTX the first one.
_OF_TOOLS = ("NVTX_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID")


def domain_of(wanted: str) -> Any:
    """Where ranges go; None: there are none.

    Args:
        wanted: the setting ``nvtx``: "auto", "on" or "off".

    Raises:
        ConfigError: they are wanted, and the package is not installed.
    """
    attached = any(name in os.environ for name in _OF_TOOLS)
    if wanted == "off" or (wanted == "auto" and not attached):
        return None
    try:
        import nvtx
    except ImportError:
        if wanted == "auto":
            return None
        raise ConfigError(
            "nvtx is 'on', but the package nvtx is not installed: pip install nvtx, or set it to "
            "'auto'"
        ) from None
    return nvtx.get_domain(DOMAIN)


class Ranges:
    """Those of one context. Where there are none, each call is one comparison.

    They are begun and ended, not pushed and popped: operations overlap, and end in any thread.
    """

    def __init__(self, domain: Any) -> None:
        self._domain = domain
        self._launch: Any = None
        self._operations: dict[int, Any] = {}  # by id() of requests that have not ended

    def begin(self, name: str) -> Any:
        """What ``end`` takes."""
        if self._domain is None:
            return None
        return self._domain.start_range(self._domain.get_event_attributes(message=name))

    def end(self, begun: Any) -> None:
        if begun is not None:
            self._domain.end_range(begun)

    @contextmanager
    def during(self, name: str) -> Iterator[None]:
        begun = self.begin(name)
        try:
            yield
        finally:
            self.end(begun)

    def launching(self, kernel: str) -> None:
        self.launched()  # one before that failed
        self._launch = self.begin(f"launch {kernel}")

    def launched(self) -> None:
        self.end(self._launch)
        self._launch = None

    def follow(self, progress: Progress) -> None:
        """Operations of the host get ranges."""
        if self._domain is not None:
            progress.begun.append(self._begun)
            progress.ended.append(self._ended)

    def _begun(self, request: HostRequest) -> None:
        self._operations[id(request)] = self.begin(request.operation.name)

    def _ended(self, request: HostRequest) -> None:
        self.end(self._operations.pop(id(request), None))
