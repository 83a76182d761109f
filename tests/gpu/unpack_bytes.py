"""Unpacking short blocks of any length along the user's memory, in words put together in registers.

A candidate that ``unpack.sh`` compares with ``pack_tiles``; ``gmpi.unpack`` does not use it. A
thread takes an aligned word of 8 bytes of the user's memory, with the end of one block in it, the
begin of the next one, or both. It loads those bytes from where they are in the packed memory, and
stores them by the fewest instructions: whole words by one. Nothing goes through shared memory, and
no thread waits for another one.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import cast

from numba import cuda

from device_lib.platform.divide import LIMIT, divide, magic_of
from device_lib.platform.primitives import SIMULATOR, device
from gmpi.packing.kernels_strided import Shape, make_first_word
from gmpi.packing.tile_words import load_1

REGISTERS = 40
LINE = 128  # bytes to which the first thread's word is aligned
SHORTEST_BLOCK = 8  # bytes; a word has bytes of two blocks at most
ARGUMENTS = 6

if SIMULATOR:
    _ALL = (1 << 64) - 1

    def _load_8(address):
        return int.from_bytes(ctypes.string_at(address, 8), "little", signed=True)

    def load_joined(last, first, tail, head):
        if tail == 0 and head == 0:
            return 0
        if tail == 0 or head == 0:
            return _load_8(last)
        ours = (1 << 8 * tail) - 1
        return _load_8(last) & ours | _load_8(first) & ~ours

    def store_some(address, word, tail, head):
        data = (int(word) & _ALL).to_bytes(8, "little")
        assert address & 7 == 0 and min(tail, head) >= 0 and tail + head <= 8
        ctypes.memmove(address, data[:tail], tail)
        ctypes.memmove(address + 8 - head, data[8 - head :], head)

else:
    from numba.cuda import types

    from device_lib.platform.ptx import ptx

    def _load_joined() -> str:
        lines = [
            "{ .reg .pred p, q, w; .reg .b64 a; .reg .b32 t, h, b, c, m; .reg .b32 x<4>, y<4>;",
            "cvt.u32.u64 t, $3; cvt.u32.u64 h, $4; or.b32 c, t, h; setp.ne.u32 p, c, 0;",
            "setp.ne.u32 w, h, 0; setp.ne.and.u32 q, t, 0, w;",
        ]
        for name, wanted, at in (("x", "p", "$1"), ("y", "q", "$2")):
            lines += [f"mov.b32 {name}{k}, 0;" for k in range(4)]
            lines += [
                f"and.b64 a, {at}, -8;",
                f"@{wanted} ld.global.nc.v2.u32 {{{name}0, {name}1}}, [a];",
                f"@{wanted} ld.global.nc.v2.u32 {{{name}2, {name}3}}, [a+8];",
            ]
        for name, at in (("x", "$1"), ("y", "$2")):
            lines.append(f"cvt.u32.u64 b, {at}; and.b32 c, b, 4; setp.ne.u32 w, c, 0;")
            lines += [f"selp.b32 {name}{k}, {name}{k + 1}, {name}{k}, w;" for k in range(3)]
            lines.append("shl.b32 b, b, 3;")
            lines += [f"shf.r.wrap.b32 {name}{k}, {name}{k}, {name}{k + 1}, b;" for k in range(2)]
        # With bytes of one block only, all are of x.
        lines.append("shl.b32 t, t, 3; selp.b32 t, t, 64, q;")
        for k in range(2):
            lines += [
                f"sub.s32 c, t, {32 * k}; max.s32 c, c, 0; shl.b32 m, -1, c;",
                f"lop3.b32 x{k}, x{k}, y{k}, m, 0xD8;",  # m ? y : x, bit by bit
            ]
        return " ".join([*lines, "mov.b64 $0, {x0, x1}; }"])

    # Eight bytes at $1, if any of them is wanted; behind the first $3 those at $2 if $4 are too.
    # Each in two aligned words around them: up to 7 bytes before and 8 behind are read as well.
    load_joined = ptx(_load_joined(), "=l,l,l,l,l", types.int64, 4)

    def _store_some() -> str:
        lines = [
            "{ .reg .pred p, w; .reg .b32 t, h, c, m, o; .reg .b64 d; .reg .b64 v;",
            "cvt.u32.u64 t, $2; cvt.u32.u64 h, $3;",
            "setp.eq.u32 p, t, 8; @p st.global.u64 [$0], $1;",
        ]

        def store(size: int, wanted: str, place: str) -> list[str]:
            """``size`` bytes, where count ``wanted`` has that bit, at offset ``place``."""
            return [
                f"and.b32 c, {wanted}, {size}; setp.ne.u32 p, c, 0; {place}",
                "cvt.u64.u32 d, o; add.s64 d, d, $0; shl.b32 o, o, 3; shr.u64 v, $1, o;",
                f"@p st.global.u{8 * size} [d], v;",
            ]

        # Not both have 4 bytes or more.
        lines += [
            "and.b32 m, t, 4; and.b32 c, h, 4; or.b32 c, c, m; setp.ne.u32 p, c, 0;",
            "setp.ne.u32 w, m, 0; selp.b32 o, 0, 4, w; cvt.u64.u32 d, o; add.s64 d, d, $0;",
            "shl.b32 o, o, 3; shr.u64 v, $1, o; { .reg .b32 x; cvt.u32.u64 x, v;",
            "@p st.global.u32 [d], x; }",
        ]
        lines += store(2, "t", "and.b32 o, t, 4;")
        lines += store(1, "t", "and.b32 o, t, 6;")
        lines += store(2, "h", "and.b32 o, h, 4; sub.u32 o, 6, o; max.s32 o, o, 0;")
        lines += store(1, "h", "sub.u32 o, 8, h; and.b32 o, o, 7;")
        return " ".join([*lines, "}"])

    # At the aligned address $0 the first $2 and the last $3 bytes of word $1.
    store_some = ptx(_store_some(), "l,l,l,l", types.void, 4)


@device
def _place(at, packed, count, atom, pitch, magic):
    """Of the word at byte ``at`` of the layout, which may begin before it: (address of its bytes
    in the block that it begins in, how many, address of eight bytes whose last are in the next
    block, how many, whether ``load_joined`` reads nothing outside the packed memory)."""
    i, r = divide(max(at, 0), pitch, magic)
    tail_at = packed + i * atom + r
    head_at = tail_at - (pitch - atom)
    to_next = pitch - r
    tail = 0
    if at < 0:
        to_next = -at
        head_at = packed + at
        i = -1
    elif i < count:
        tail = max(min(atom - r, 8), 0)
    head = 0
    if to_next < 8 and i + 1 < count:
        head = 8 - to_next
    return tail_at, tail, head_at, head, 1 <= i < count - 2


@device
def _by_bytes(tail_at, tail, head_at, head):
    """As ``load_joined``, and reads nothing else."""
    word = 0
    if tail + head > 0:
        for k in range(8):
            if k < tail:
                word |= load_1(tail_at + k) << 8 * k
            elif k >= 8 - head:
                word |= load_1(head_at + k) << 8 * k
    return word


def arguments(atom: int, count: int, pitch: int, shape: Shape) -> tuple[list[int], int] | None:
    """(arguments of the kernel, two addresses first; blocks of threads), ``None``: not for it."""
    reach = (count - 1) * pitch + atom
    tile = shape.threads * shape.words
    words = (reach + LINE + 7) // 8
    if not SHORTEST_BLOCK <= atom < pitch or 8 * (words + tile) >= LIMIT:
        return None
    blocks = -(-words // tile)
    return [0, 0, count, atom, pitch, magic_of(pitch)], blocks


@cache
def bytes_body(shape: Shape) -> Callable:
    """The Python function of a kernel; a block of threads moves one tile of the blocks of data.

    Its arguments, int64: addresses of the user's (of the first block of data) and of the packed
    memory; blocks of data; bytes of one, and from one to the next, and the latter's ``magic_of``.
    """
    first, step = make_first_word(shape)
    lines = [f"at0 = first(cuda.blockIdx.x, cuda.threadIdx.x) * 8 - (user & {LINE - 1})"]
    for k in range(1, shape.words):
        lines.append(f"at{k} = at0 + {8 * k * step}")
    words = range(shape.words)
    for k in words:
        place = f"place(at{k}, packed, count, atom, pitch, magic)"
        lines.append(f"a{k}, t{k}, b{k}, h{k}, inside{k} = {place}")
    # One branch for all words of a thread: then their loads follow one another.
    lines.append(f"if {' and '.join(f'inside{k}' for k in words)}:")
    for k in words:
        last = f"a{k} if t{k} > 0 else b{k}"
        lines.append(f" x{k} = load_joined({last}, b{k}, t{k}, h{k})")
    lines.append("else:")
    lines += [f" x{k} = by_bytes(a{k}, t{k}, b{k}, h{k})" for k in words]
    lines += [f"store_some(user + at{k}, x{k}, t{k}, h{k})" for k in words]
    head = "def kernel(user, packed, count, atom, pitch, magic):"
    scope = {"cuda": cuda, "place": _place, "load_joined": load_joined, "by_bytes": _by_bytes,
             "store_some": store_some, "first": first}  # fmt: skip
    exec("\n ".join([head, *lines]), scope)
    return cast(Callable, scope["kernel"])
