"""Where the threads of processes are, in native code, without a debugger: Linux, x86-64.

    python3 tests/native_stacks.py [--late SECONDS] PID...

With ``--late`` only of those that are still there so much later, and then.

For each thread: what it waits for in the kernel, then the words of its stack that point into code,
the innermost first, as the nearest exported symbol. Some of these are left over from calls that
have returned. ``faulthandler`` says nothing of a process that has left Python, such as one that
hangs in MPI_Finalize or in a driver's end.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
import time
from functools import cache
from pathlib import Path

_WORDS = 2048  # of a stack
_SHOWN = 40


class _Info(ctypes.Structure):
    _fields_ = (
        ("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )  # fmt: skip


def code_of(pid: int) -> list[tuple[int, int, int, str]]:
    """(begin, end, load address of the file, file) of all that the process can execute."""
    found, base = [], {}
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        match = re.match(r"(\w+)-(\w+) (\S+) (\w+) \S+ \d+\s+(/.*)", line)
        if match:
            begin, end, offset = (int(match[i], 16) for i in (1, 2, 4))
            base.setdefault(match[5], begin - offset)
            if "x" in match[3]:
                found.append((begin, end, base[match[5]], match[5]))
    return found


@cache
def library(path: str) -> tuple[ctypes.CDLL, int] | None:
    """A library that is loaded here as well, and where."""
    try:
        loaded = ctypes.CDLL(path)
    except OSError:
        return None
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(path):
            return loaded, int(line.split("-")[0], 16) - int(line.split()[2], 16)
    return None


def symbol(path: str, offset: int) -> str:
    here = library(path) if ".so" in path else None
    info = _Info()
    name = ""
    if here and ctypes.CDLL(None).dladdr(ctypes.c_void_p(here[1] + offset), ctypes.byref(info)):
        name = (info.name or b"").decode()
    return f"{Path(path).name} {name or hex(offset)}"


def stack_of(pid: int, thread: int) -> list[str]:
    """Of a thread that sleeps in a system call, or is stopped."""
    words = Path(f"/proc/{pid}/task/{thread}/syscall").read_text().split()
    if words[0] == "running":
        return ["it runs"]
    pointer, at = int(words[-2], 16), int(words[-1], 16)
    code = code_of(pid)
    ends = re.findall(r"^(\w+)-(\w+) rw", Path(f"/proc/{pid}/maps").read_text(), re.M)
    end = next(int(last, 16) for first, last in ends if int(first, 16) <= pointer < int(last, 16))
    with open(f"/proc/{pid}/mem", "rb") as memory:
        memory.seek(pointer)
        content = memory.read(min(8 * _WORDS, (end - pointer) // 8 * 8))
    found = []
    for word in (at, *memoryview(content).cast("Q")):
        for begin, last, base, path in code:
            if begin <= word < last:
                found.append(symbol(path, word - base))
    return found[:_SHOWN]


def main() -> None:
    arguments = sys.argv[1:]
    late = 0.0
    if arguments[:1] == ["--late"]:
        late, arguments = float(arguments[1]), arguments[2:]
    for pid in map(int, arguments):
        if late and has_ended(pid, late):
            continue
        os.kill(pid, signal.SIGSTOP)  # else those that spin have no stack pointer to be seen
        time.sleep(0.1)
        try:
            show(pid)
        finally:
            os.kill(pid, signal.SIGCONT)


def has_ended(pid: int, seconds: float) -> bool:
    """Whether a process ends within so long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not Path(f"/proc/{pid}/exe").exists():  # it is gone, or a zombie
            return True
        time.sleep(0.2)
    return False


def show(pid: int) -> None:
    for task in sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda path: int(path.name)):
        name, where = ((task / file).read_text().strip() for file in ("comm", "wchan"))
        print(f"process {pid} thread {task.name} ({name}), in the kernel: {where}")
        try:
            lines = stack_of(pid, int(task.name))
        except (OSError, ValueError, StopIteration) as exc:
            lines = [repr(exc)]
        print(*(f"  {line}" for line in lines), sep="\n", flush=True)


if __name__ == "__main__":
    main()
