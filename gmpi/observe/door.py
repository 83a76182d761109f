"""Where others can ask a process about its open context, while its main thread waits for a kernel:
a socket of the user's, and a thread that sleeps until somebody comes.

Only processes of the same user are answered. Where no socket can be made there is none: a job must
not fail for that.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from gmpi.observe.asking import REPORT, STATE, folder, is_safe
from host_proxy.platform.state import G_CLOSED, G_SERIAL, OPEN, S_STATE

if TYPE_CHECKING:
    from gmpi.context import Context

_ASK_S = 2.0  # who has come has so long to say what for
_CREDENTIALS = "3i"  # pid, uid, gid: struct ucred


class Door:
    """Of one context, which is open."""

    def __init__(self, context: Context) -> None:
        self._context: Context = weakref.proxy(context)  # whose part we are
        self._opened = time.monotonic()
        self._path = folder() / f"{os.getpid()}.sock"
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._main, name="gmpi-door", daemon=True)

    def start(self) -> None:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            if not is_safe(self._path.parent):
                raise PermissionError(f"{self._path.parent} is not ours alone")
            self._path.unlink(missing_ok=True)
            listening.bind(str(self._path))
            listening.listen()
        except OSError:
            listening.close()
            return
        self._socket = listening
        self._thread.start()

    def stop(self) -> None:
        """Nobody is answered any more."""
        if self._socket is None:
            return
        with contextlib.suppress(OSError):
            self._path.unlink()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        if threading.current_thread() is not self._thread:
            self._thread.join(_ASK_S)
        self._socket.close()
        self._socket = None

    def fork(self) -> None:
        """In a child, which has no thread: the socket is its parent's."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _main(self) -> None:
        listening = self._socket
        assert listening is not None
        while True:
            try:
                line, _ = listening.accept()
            except OSError:
                return
            with line, contextlib.suppress(OSError, ReferenceError):
                line.settimeout(_ASK_S)
                if _uid_of(line) == os.geteuid():
                    line.sendall(self._answer(line.recv(64).decode(errors="replace").strip()))

    def _answer(self, what: str) -> bytes:
        try:
            if what == REPORT:
                report = self._context.report()
                return json.dumps({"text": report.text, **json.loads(report.json())}).encode()
            if what == STATE:
                return json.dumps(state_of(self._context, self._opened)).encode()
            return json.dumps({"error": f"{what!r} can not be asked for"}).encode()
        except Exception as exc:  # it is being closed
            return json.dumps({"error": f"{type(exc).__name__}: {exc}"}).encode()


def _uid_of(line: socket.socket) -> int:
    room = struct.calcsize(_CREDENTIALS)
    found = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, room)
    return int(struct.unpack(_CREDENTIALS, found)[1])


def state_of(context: Context, opened: float) -> dict[str, Any]:
    """One context as it is now, from what the host can read at any time: asks no other rank."""
    state = context._state
    g = state.globals
    open_rows = int((state.slots[:, S_STATE] == OPEN).sum())
    now = time.monotonic()
    ages = context._watchdog.ages(now)
    return {
        "pid": os.getpid(),
        "rank": context.rank,
        "size": context.size,
        "program": os.path.basename(sys.argv[0]) or "python",
        "engine": context._proxy.engine,
        "kernels": context._kernels.state,
        "records": state.taken,
        "requests": int(g[G_SERIAL]),
        "completed": int(g[G_CLOSED]),
        "pending": open_rows + len(context._host_progress.open),
        "oldest_s": round(max(ages, default=0.0), 3),
        "errors": len(context.errors),
        "paths": context.paths,
        "proxy": "runs" if context._proxy.alive else "dead",
        "proxy_cpu_s": round(context.proxy_cpu_seconds, 3) if context._proxy.alive else None,
        "aborted": bool(context._waits.aborted),
        "open_s": round(now - opened, 3),
        "now": now,
    }
