"""Object code without the instruction YIELD.

CUDA's assembler puts one into each function, and each loop, that loads what others may store. It
lets lanes of a warp that have parted take turns, so that one of them may wait for another one. It
takes 51 cycles of an H100, on the way of every call and between any two looks at a message. Here no
lane waits for another lane of its warp: what a warp waits for comes from other GPUs, from the host,
or from other warps. Nothing in PTX turns it off. So it becomes NOP, with all that the assembler
says of its time and of what it waits for.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_SECTIONS = 0x28  # of an ELF header: offset of the section headers
_SIZES = 0x3A  # bytes of a section header, number of them
_HOLDS_INSTRUCTIONS = 4  # of a section's flags
_INSTRUCTION = struct.Struct("<QQ")  # of 128 bits: operation and operands, operands and control
_YIELD = 0x7946, 0x03800000
_NOP = 0x7918
_CONTROL = ~((1 << 40) - 1)  # of the second word

#: Compute capabilities whose instructions look like that.
KNOWN = ((9, 0),)


def without_yields(code: bytes, cc: tuple[int, int]) -> bytes:
    """Some object code of the assembler's, each YIELD in it a NOP.

    Args:
        cc: compute capability. What is not in KNOWN is returned as it is.
    """
    if cc not in KNOWN:
        return code
    changed = bytearray(code)
    for place in instructions(code):
        operation, rest = _INSTRUCTION.unpack_from(code, place)
        if (operation, rest & ~_CONTROL) == _YIELD:
            _INSTRUCTION.pack_into(changed, place, _NOP, rest & _CONTROL)
    return bytes(changed)


def instructions(code: bytes) -> Iterator[int]:
    """Where each instruction of some object code begins."""
    (headers,) = struct.unpack_from("<Q", code, _SECTIONS)
    size, count = struct.unpack_from("<HH", code, _SIZES)
    for i in range(count):
        _, _, flags, _, begin, length = struct.unpack_from("<IIQQQQ", code, headers + i * size)
        if flags & _HOLDS_INSTRUCTIONS:
            yield from range(begin, begin + length, _INSTRUCTION.size)
