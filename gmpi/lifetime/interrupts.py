"""Ctrl-C while a context opens or closes: it waits until nothing is half done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any


class Held:
    """Keeps Ctrl-C back while a ``with`` runs; it comes at the end, or where ``deliver`` is called.

    In threads other than the main one, where Python raises no KeyboardInterrupt, and where nothing
    in Python handles SIGINT, it does nothing.
    """

    def __init__(self) -> None:
        self._handler: Any = None  # the program's
        self._came: tuple[Any, ...] | None = None

    def __enter__(self) -> Held:
        if threading.current_thread() is threading.main_thread():
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler):
                signal.signal(signal.SIGINT, self._note)
                self._handler = handler
        return self

    def __exit__(self, *_: object) -> None:
        if self._handler is not None:
            self._let()
            self.deliver()

    def deliver(self) -> None:
        """Has the program's handler take what has come: it raises KeyboardInterrupt, usually."""
        came, self._came = self._came, None
        if came is not None:
            self._handler(*came)

    def let_through(self, do: Callable[[], object]) -> None:
        """Does what takes long and leaves nothing half done: Ctrl-C comes at once."""
        if self._handler is None:
            do()
            return
        self._let()
        try:
            self.deliver()
            do()
        finally:  # no generator's, which could be reached after the end of the ``with``
            signal.signal(signal.SIGINT, self._note)

    def _let(self) -> None:
        if signal.getsignal(signal.SIGINT) == self._note:  # else somebody has set another since
            signal.signal(signal.SIGINT, self._handler)

    def _note(self, *arguments: Any) -> None:
        self._came = arguments
