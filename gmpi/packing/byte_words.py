"""Words of a user's memory put together in registers, of packed bytes that lie at any address.

Packed bytes of one word follow one another, wherever gaps are in the word. So they are loaded at
once, moved to their places, and stored by the fewest instructions; gaps are never written.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import ctypes
from functools import cache

from device_lib.platform.primitives import SIMULATOR


@cache
def pattern_of(atom: int, pitch: int) -> int:
    """A bit for each of 32 bytes of blocks of ``atom`` bytes at a pitch: 1 where it is data."""
    return sum(1 << k for k in range(32) if k % pitch < atom)


if SIMULATOR:

    def load_1(address):
        return ctypes.c_uint8.from_address(address).value

    def places_of(r, atom, pitch):
        mask = sources = found = 0
        for k in range(4):
            if r < atom:
                mask |= 1 << k
                sources |= found << 4 * k
                found += 1
            r = 0 if r + 1 == pitch else r + 1
        return mask, sources

    def store_places(address, packed, mask, sources):
        assert address & 3 == 0 and 0 <= mask < 16
        for k in range(4):
            if mask >> k & 1:
                byte = packed >> 8 * (sources >> 4 * k & 7) & 0xFF
                ctypes.c_uint8.from_address(address + k).value = byte

    def make_spread(width, words, step):
        def spread(to, base, r, blocks, pattern, steps):
            (atom, pitch), (onward, ahead) = (
                (pair & 0xFFFFFFFF, pair >> 32) for pair in (blocks, steps)
            )
            assert to % width == 0 and pattern == pattern_of(atom, pitch)
            for k in range(words):
                data = [(r + byte) % pitch < atom for byte in range(width)]
                # As a GPU does: whole aligned words of four bytes.
                source = base + min(r, atom)
                loaded = source & -4
                packed = load_words(loaded, 1 + width // 4 if any(data) else 0)
                packed = iter(packed[source - loaded :])
                for byte, wanted in enumerate(data):
                    if wanted:
                        ctypes.c_uint8.from_address(to + k * step + byte).value = next(packed)
                r += onward
                base += ahead
                if r >= pitch:
                    r -= pitch
                    base += atom

        return spread

    def load_words(address, words):
        return ctypes.string_at(address, 4 * words)

else:
    from numba.cuda import types

    from device_lib.platform.primitives_cuda import load_1 as load_1
    from device_lib.platform.ptx import ptx

    _PAIR = types.UniTuple(types.int64, 2)

    def _places_of() -> str:
        lines = [
            "{ .reg .pred p; .reg .b32 r, a, q, n, m, s, t; cvt.u32.u64 r, $2;",
            "cvt.u32.u64 a, $3; cvt.u32.u64 q, $4; mov.b32 n, 0; mov.b32 m, 0; mov.b32 s, 0;",
        ]
        for k in range(4):
            lines += [
                f"setp.lt.u32 p, r, a; shl.b32 t, n, {4 * k}; @p or.b32 s, s, t;",
                f"@p or.b32 m, m, {1 << k}; @p add.u32 n, n, 1;",
                "add.u32 r, r, 1; setp.eq.u32 p, r, q; @p mov.b32 r, 0;",
            ]
        return " ".join([*lines, "cvt.u64.u32 $0, m; cvt.u64.u32 $1, s; }"])

    # Of a word of four bytes, the first one $2 bytes behind the begin of a block, blocks of $3 at a
    # pitch of $4: (a bit for each byte that is data, for each of them the packed byte that it is,
    # as ``prmt`` takes them).
    places_of = ptx(_places_of(), "=l,=l,l,l,l", _PAIR, 3)

    def _store_masked(x: str, m: str, offset: int) -> list[str]:
        """The bytes of ``x`` that have a bit in ``m``, which is changed, to [$0 + offset]."""
        lines = [f"setp.eq.u32 w, {m}, 15; @w st.global.u32 [$0+{offset}], {x}; @w mov.b32 {m}, 0;"]
        for at in (0, 2):
            place = offset + at
            lines += [
                f"shr.u32 v, {x}, {8 * at}; and.b32 t, {m}, {3 << at};",
                f"setp.eq.u32 p, t, {3 << at}; @p st.global.u16 [$0+{place}], v;",
                f"setp.eq.u32 p, t, {1 << at};",
                f"@p st.global.u8 [$0+{place}], v; setp.eq.u32 p, t, {2 << at};",
                f"shr.u32 v, v, 8; @p st.global.u8 [$0+{place + 1}], v;",
            ]
        return lines

    def _store_places() -> str:
        lines = [
            "{ .reg .pred p, w; .reg .b32 x, s, m, t, v; cvt.u32.u64 x, $1; cvt.u32.u64 m, $2;",
            "cvt.u32.u64 s, $3; prmt.b32 x, x, 0, s;",
            *_store_masked("x", "m", 0),
        ]
        return " ".join([*lines, "}"])

    # The bytes in $1 to the aligned address $0, where ``places_of`` ($2, $3) says.
    store_places = ptx(_store_places(), "l,l,l,l", types.void, 4)

    def _find_4(k: int) -> list[str]:
        """Which bytes of a word are data, in m; r: bytes from the begin of a block to the word."""
        return [
            f"shr.u32 t, pat, r; and.b32 m{k}, t, 15; setp.ne.u32 p, m{k}, 0;",
            f"@p ld.global.nc.u32 x{k}, [e]; @p ld.global.nc.u32 y{k}, [e+4];",
        ]

    def _put_4(k: int, offset: int) -> list[str]:
        return [
            f"shf.r.wrap.b32 x{k}, x{k}, y{k}, b{k};",
            # Of each byte: how many before it are data.
            f"and.b32 t, m{k}, 1; mul.lo.u32 s, t, 0x1110; bfe.u32 t, m{k}, 1, 1;",
            f"mad.lo.u32 s, t, 0x1100, s; bfe.u32 t, m{k}, 2, 1; mad.lo.u32 s, t, 0x1000, s;",
            f"prmt.b32 x{k}, x{k}, 0, s;",
            *_store_masked(f"x{k}", f"m{k}", offset),
        ]

    def _find_8(k: int) -> list[str]:
        """Bytes up to the end of the data (in m) and to the next block (n), at most 8."""
        return [
            f"sub.s32 m{k}, a, r; max.s32 m{k}, m{k}, 0; min.s32 m{k}, m{k}, 8;",
            f"sub.u32 n{k}, q, r; min.u32 n{k}, n{k}, 8; mov.b32 z{k}, 0;",
            f"setp.ne.u32 p, m{k}, 0; setp.lt.or.u32 p, n{k}, 8, p;",
            f"@p ld.global.nc.u32 x{k}, [e]; @p ld.global.nc.u32 y{k}, [e+4];",
            f"@p ld.global.nc.u32 z{k}, [e+8];",
        ]

    def _put_8(k: int, offset: int) -> list[str]:
        return [
            f"shf.r.wrap.b32 x{k}, x{k}, y{k}, b{k}; shf.r.wrap.b32 y{k}, y{k}, z{k}, b{k};",
            # The bytes from the next block on are moved by the gap.
            f"shl.b32 v, n{k}, 2; mov.b32 s, 0x11111111; shl.b32 s, s, v; sub.u32 t, n{k}, m{k};",
            "mul.lo.u32 s, s, t; sub.u32 s, 0x76543210, s;",
            f"prmt.b32 z{k}, x{k}, y{k}, s; shr.u32 s, s, 16; prmt.b32 y{k}, x{k}, y{k}, s;",
            # A bit for each byte that is data.
            f"mov.b32 s, 1; shl.b32 s, s, m{k}; sub.u32 s, s, 1; mov.b32 t, 255;",
            f"shl.b32 t, t, n{k}; or.b32 s, s, t; and.b32 s, s, 255; setp.eq.u32 w, s, 255;",
            f"@w st.global.v2.u32 [$0+{offset}], {{z{k}, y{k}}}; @w mov.b32 s, 0;",
            f"and.b32 m{k}, s, 15; shr.u32 n{k}, s, 4;",
            *_store_masked(f"z{k}", f"m{k}", offset),
            *_store_masked(f"y{k}", f"n{k}", offset + 4),
        ]

    def _spread(width: int, words: int, step: int) -> str:
        find, put = (_find_4, _put_4) if width == 4 else (_find_8, _put_8)
        names = ", ".join(f"{name}<{words}>" for name in "xybm" + "nz" * (width == 8))
        lines = [
            "{ .reg .pred p, w; .reg .b32 r, a, q, o, d, pat, t, s, v; .reg .b64 f, e, g, h;",
            f".reg .b32 {names}; mov.b64 f, $1; cvt.u32.u64 r, $2; mov.b64 {{a, q}}, $3;",
            "cvt.u32.u64 pat, $4; mov.b64 {o, d}, $5; cvt.u64.u32 g, d; cvt.u64.u32 h, a;",
        ]
        for k in range(words):
            lines += [
                "min.u32 t, r, a; cvt.u64.u32 e, t; add.s64 e, e, f; cvt.u32.u64 t, e;",
                f"shl.b32 b{k}, t, 3; and.b64 e, e, -4; mov.b32 x{k}, 0; mov.b32 y{k}, 0;",
                *find(k),
            ]
            if k + 1 < words:
                lines += [
                    "add.u32 r, r, o; add.s64 f, f, g; setp.ge.u32 w, r, q;",
                    "@w sub.u32 r, r, q; @w add.s64 f, f, h;",
                ]
        for k in range(words):
            lines += put(k, k * step)
        return " ".join([*lines, "}"])

    def make_spread(width, words, step):
        """(to, base, r, blocks, pattern, steps) -> unpacks ``words`` words of ``width`` bytes, at
        the aligned address ``to`` and every ``step`` bytes, of which none is at an end of the
        layout: loads take the aligned words of four bytes around those that are wanted.

        ``base``: where the packed bytes of the first word's block are; ``r``: bytes from that
        block's begin to the word. Then pairs, the second in the high half: bytes of a block, and of
        the pitch; what a step adds to ``r``, and to ``base``. ``pattern``: ``pattern_of``.

        Args:
            width: 8 for blocks of 8 bytes or more: a word has bytes of two at most. 4 for shorter
                ones, at a pitch of at most 28 bytes.
        """
        return ptx(_spread(width, words, step), "l,l,l,l,l,l", types.void, 6)
