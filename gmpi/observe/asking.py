"""Asking processes in which a context is open, from outside: ``gmpi hang`` and ``gmpi top``.

Each such process has a socket in a folder that only its user can enter (``gmpi/observe/door.py``).
Neither MPI nor CUDA is needed here.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
from pathlib import Path
from typing import Any

REPORT, STATE = "report", "state"  # what can be asked for
ANSWER_S = 10.0  # a report asks the other ranks, which have a second to answer


class NoAnswerError(Exception):
    """A process has no open context, or does not answer."""


def folder() -> Path:
    """Where the sockets of this user are."""
    return Path(f"/tmp/gmpi-{os.geteuid()}")


def is_safe(path: Path) -> bool:
    """Whether the folder is the user's, and nobody else can enter it."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    return private and found.st_uid == os.geteuid()


def processes() -> list[int]:
    """Processes of this user on this node in which a context is open. Takes away sockets of those
    that have gone."""
    if not is_safe(folder()):
        return []
    found = []
    for path in folder().glob("*.sock"):
        if not path.stem.isdecimal():
            continue
        if Path(f"/proc/{path.stem}").exists():
            found.append(int(path.stem))
        else:
            with contextlib.suppress(OSError):
                path.unlink()
    return sorted(found)


def below(pid: int) -> list[int]:
    """Of ``processes``, ``pid`` and those that it or its children have started."""
    found = []
    for process in processes():
        ancestor = process
        while ancestor > 1 and ancestor != pid:
            ancestor = _parent(ancestor)
        if ancestor == pid:
            found.append(process)
    return found


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def ask(pid: int, what: str, timeout_s: float = ANSWER_S) -> Any:
    """What a process says.

    Raises:
        NoAnswerError: it has no context, or does not answer in time.
    """
    path = folder() / f"{pid}.sock"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(timeout_s)
            line.connect(str(path))
            line.sendall(f"{what}\n".encode())
            parts = []
            while part := line.recv(1 << 16):
                parts.append(part)
        return json.loads(b"".join(parts))
    except TimeoutError:
        raise NoAnswerError(
            f"process {pid} does not answer within {timeout_s:.0f} s: one of its threads keeps "
            "Python's lock, or it is stopped"
        ) from None
    except (OSError, ValueError):
        raise NoAnswerError(f"no context is open in process {pid}") from None
