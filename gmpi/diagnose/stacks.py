"""Where the program is: Python stacks, of which only the user's own lines are shown."""

from __future__ import annotations

import importlib.util
import linecache
import os
import re
import sys
import sysconfig
import threading
import traceback
from types import FrameType

_DEEPEST = 12  # lines of a stack

_PACKAGES = ("gmpi", "device_lib", "host_proxy", "numba", "numba_cuda", "mpi4py", "greenlet")


def _others() -> tuple[str, ...]:
    """Folders of what is not the user's: Python's own, these packages, what pip has installed."""
    paths = sysconfig.get_paths()
    found = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        found.update(spec.submodule_search_locations or [] if spec else [])
    return tuple(os.path.join(os.path.abspath(path), "") for path in found)


_folders: tuple[str, ...] = ()


def _is_users(frame: FrameType) -> bool:
    global _folders
    _folders = _folders or _others()
    name = frame.f_code.co_filename
    return not name.startswith("<frozen") and not os.path.abspath(name).startswith(_folders)


def _frames(frame: FrameType | None) -> list[FrameType]:
    """The user's, the outermost first."""
    found = []
    while frame is not None:
        if _is_users(frame):
            found.append(frame)
        frame = frame.f_back
    return found[::-1]


def stacks() -> str:
    """The user's lines in each thread of this process; nothing of a thread that has none."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    text = []
    for ident, innermost in sys._current_frames().items():
        frames = _frames(innermost)
        if not frames or names.get(ident, "").startswith("gmpi-"):
            continue
        text.append(f"thread {names.get(ident, ident)}:")
        for frame in frames[-_DEEPEST:]:
            (line,) = traceback.format_stack(frame, 1)
            text.append(line.rstrip())
    return "\n".join(text)


def host_line() -> str:
    """What the user's main thread is doing: a line of the program, and where it is; or nothing."""
    innermost = sys._current_frames().get(threading.main_thread().ident or 0)
    frames = _frames(innermost)
    if not frames:
        return ""
    code, number = frames[-1].f_code, frames[-1].f_lineno
    line = linecache.getline(code.co_filename, number, frames[-1].f_globals).strip()
    return f"{line} ({os.path.basename(code.co_filename)}:{number})" if line else ""


_RECEIVES = re.compile(
    r"(?<!host)\.\s*(recv|Recv|irecv|Irecv|mprobe|Mprobe|probe|Probe|Sendrecv)\("
)


def receives_by_mpi4py(line: str) -> bool:
    """Whether a line of the host receives by mpi4py, where messages of kernels never come."""
    return _RECEIVES.search(line) is not None
