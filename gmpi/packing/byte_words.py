"""Words of a user's memory put together in registers, of packed bytes that lie at any address.

Packed bytes of one word follow one another, wherever gaps are in the word. So they are loaded at
once, moved to their places, and stored by the fewest instructions; gaps are never written.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import ctypes

from device_lib.platform.primitives import SIMULATOR

if SIMULATOR:

    def load_1(address):
        return ctypes.c_uint8.from_address(address).value

    def load_any_8(address, wanted):
        return int.from_bytes(ctypes.string_at(address, 8), "little", signed=True) if wanted else 0

    def load_any_4(address, wanted):
        return int.from_bytes(ctypes.string_at(address, 4), "little") if wanted else 0

    def store_ends(address, packed, tail, head):
        data = (packed & (1 << 64) - 1).to_bytes(8, "little")
        assert address & 7 == 0 and min(tail, head) >= 0 and tail + head <= 8 > head
        ctypes.memmove(address, data[:tail], tail)
        ctypes.memmove(address + 8 - head, data[tail : tail + head], head)

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

else:
    from numba.cuda import types

    from device_lib.platform.primitives_cuda import load_1 as load_1
    from device_lib.platform.ptx import ptx

    _PAIR = types.UniTuple(types.int64, 2)

    def _load_any_8() -> str:
        lines = [
            "{ .reg .pred p; .reg .b64 a; .reg .b32 b, c, x<4>; setp.ne.u64 p, $2, 0;",
            *(f"mov.b32 x{k}, 0;" for k in range(4)),
            "and.b64 a, $1, -8; @p ld.global.nc.v2.u32 {x0, x1}, [a];",
            "@p ld.global.nc.v2.u32 {x2, x3}, [a+8];",
            "cvt.u32.u64 b, $1; and.b32 c, b, 4; setp.ne.u32 p, c, 0; shl.b32 b, b, 3;",
            *(f"selp.b32 x{k}, x{k + 1}, x{k}, p;" for k in range(3)),
            *(f"shf.r.wrap.b32 x{k}, x{k}, x{k + 1}, b;" for k in range(2)),
        ]
        return " ".join([*lines, "mov.b64 $0, {x0, x1}; }"])

    # Eight, or four, bytes at any address $1, if $2: in the two aligned words around them, of
    # which up to 7 (3) bytes before the address and 8 (4) behind the bytes are read as well.
    load_any_8 = ptx(_load_any_8(), "=l,l,l", types.int64, 2)
    load_any_4 = ptx(
        "{ .reg .pred p; .reg .b64 a; .reg .b32 b, x<2>; setp.ne.u64 p, $2, 0; "
        "and.b64 a, $1, -4; mov.b32 x0, 0; mov.b32 x1, 0; @p ld.global.nc.u32 x0, [a]; "
        "@p ld.global.nc.u32 x1, [a+4]; cvt.u32.u64 b, $1; shl.b32 b, b, 3; "
        "shf.r.wrap.b32 $0, x0, x1, b; }",
        "=r,l,l",
        types.uint32,
        2,
    )

    def _store_ends() -> str:
        lines = [
            "{ .reg .pred p, w; .reg .b32 t, h, c, m, o; .reg .b64 d, v, x, y, k;",
            "cvt.u32.u64 t, $2; cvt.u32.u64 h, $3;",
            # The last bytes go to the end. Shifts by 64 bits give 0.
            "sub.u32 c, 8, h; sub.u32 m, c, t; shl.b32 c, c, 3; shl.b32 m, m, 3;",
            "mov.b64 k, -1; shl.b64 k, k, c; shl.b64 y, $1, m;",
            "and.b64 y, y, k; not.b64 k, k; and.b64 x, $1, k; or.b64 x, x, y;",
            "setp.eq.u32 p, t, 8; @p st.global.u64 [$0], x;",
        ]

        def store(size: int, wanted: str, place: str) -> list[str]:
            """``size`` bytes, where count ``wanted`` has that bit, at offset ``place``."""
            return [
                f"and.b32 c, {wanted}, {size}; setp.ne.u32 p, c, 0; {place}",
                "cvt.u64.u32 d, o; add.s64 d, d, $0; shl.b32 o, o, 3; shr.u64 v, x, o;",
                f"@p st.global.u{8 * size} [d], v;",
            ]

        # Not both have 4 bytes or more.
        lines += [
            "and.b32 m, t, 4; and.b32 c, h, 4; or.b32 c, c, m; setp.ne.u32 p, c, 0;",
            "setp.ne.u32 w, m, 0; selp.b32 o, 0, 4, w; cvt.u64.u32 d, o; add.s64 d, d, $0;",
            "shl.b32 o, o, 3; shr.u64 v, x, o; @p st.global.u32 [d], v;",
        ]
        lines += store(2, "t", "and.b32 o, t, 4;")
        lines += store(1, "t", "and.b32 o, t, 6;")
        lines += store(2, "h", "and.b32 o, h, 4; sub.u32 o, 6, o; max.s32 o, o, 0;")
        lines += store(1, "h", "sub.u32 o, 8, h; and.b32 o, o, 7;")
        return " ".join([*lines, "}"])

    # Of the bytes in $1, $2 go to the aligned address $0, and the next $3 to the end of its word.
    store_ends = ptx(_store_ends(), "l,l,l,l", types.void, 4)

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

    def _store_places() -> str:
        lines = [
            "{ .reg .pred p, w; .reg .b32 x, s, m, c, v; cvt.u32.u64 x, $1; cvt.u32.u64 m, $2;",
            "cvt.u32.u64 s, $3; prmt.b32 x, x, 0, s; setp.eq.u32 w, m, 15;",
            "@w st.global.u32 [$0], x; @w mov.b32 m, 0;",
        ]
        for at in (0, 2):
            lines += [
                f"shr.u32 v, x, {8 * at}; and.b32 c, m, {3 << at}; setp.eq.u32 p, c, {3 << at};",
                f"@p st.global.u16 [$0+{at}], v; setp.eq.u32 p, c, {1 << at};",
                f"@p st.global.u8 [$0+{at}], v; setp.eq.u32 p, c, {2 << at};",
                f"shr.u32 v, v, 8; @p st.global.u8 [$0+{at + 1}], v;",
            ]
        return " ".join([*lines, "}"])

    # The bytes in $1 to the aligned address $0, where ``places_of`` ($2, $3) says.
    store_places = ptx(_store_places(), "l,l,l,l", types.void, 4)
