"""All memory of the process, by address.

To load from here takes a third of what a ctypes object at the address takes, and a slice a third of
``string_at`` and ``memmove``. The address of a word is a multiple of its size, as GPUs want it.
"""

from __future__ import annotations

import ctypes
from typing import Any

BYTES: Any = (ctypes.c_char * (1 << 62)).from_address(0)  # slices of it are ``bytes``
MEMORY = memoryview(BYTES).cast("B")
WORDS = MEMORY.cast("q")  # signed, by their address / 8
HALVES = MEMORY.cast("I")  # by their address / 4
