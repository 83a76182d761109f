"""Memory for staging: guard pages around it, and no access once it was given back."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable

import pytest

from gmpi.memory.gpu_staging import MemoryFile
from host_proxy.platform import pages
from host_proxy.platform.pages import PAGE, Pages


def signal_of(touch: Callable[[], object]) -> int:
    """The signal that ends a process which does that; 0: none."""
    child = os.fork()
    if child == 0:
        for number in (signal.SIGSEGV, signal.SIGBUS):
            signal.signal(number, signal.SIG_DFL)  # pytest's would print where it was
        touch()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


def read(address: int) -> Callable[[], object]:
    return lambda: ctypes.c_uint8.from_address(address).value


@pytest.fixture
def _guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "guarded", True)


@pytest.mark.usefixtures("_guarded")
def test_a_touch_beside_it_or_after_it_is_seen() -> None:
    memory = Pages(PAGE + 1)
    assert ctypes.string_at(memory.address, memory.nbytes) == bytes(memory.nbytes)
    address = memory.address
    assert signal_of(read(address + 2 * PAGE - 1)) == 0
    assert signal_of(read(address - 1)) == signal.SIGSEGV
    assert signal_of(read(address + 2 * PAGE)) == signal.SIGSEGV
    memory.give_back()
    memory.give_back()
    assert signal_of(read(address)) == signal.SIGSEGV
    others = [Pages(PAGE) for _ in range(50)]
    assert all(abs(other.address - address) >= 2 * PAGE for other in others), "used again"


@pytest.mark.usefixtures("_guarded")
def test_memory_files_are_guarded_too() -> None:
    file = MemoryFile.create(3 * PAGE)
    other = file.open(os.getpid(), file.fd)
    assert other is not None
    ctypes.c_uint8.from_address(file.address + 5).value = 7
    assert ctypes.c_uint8.from_address(other.address + 5).value == 7
    address = file.address
    assert signal_of(read(address - 1)) == signal.SIGSEGV
    del file
    assert signal_of(read(address)) == signal.SIGSEGV
    assert ctypes.c_uint8.from_address(other.address + 5).value == 7


def test_without_guards_memory_is_mapped_and_unmapped() -> None:
    memory = Pages(5)
    assert ctypes.string_at(memory.address, 5) == bytes(5) and memory.address % PAGE == 0
    memory.give_back()
    assert memory.address == 0
