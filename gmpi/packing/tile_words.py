"""Words between shared memory, where every byte may be wanted at any place, and global memory.

Addresses of shared memory are those of its own window (``shared_address``), 32 bits wide. Up to 8
bytes behind the bytes asked for are read there too, and no address may be beyond the array by more.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import ctypes

from device_lib.platform.primitives import SIMULATOR

SPREAD_STEP = 128  # bytes between a thread's bytes in ``spread_along``

if SIMULATOR:

    def shared_address(address):
        return address

    def load_1(address):
        return ctypes.c_uint8.from_address(address).value

    def store_1(address, byte):
        ctypes.c_uint8.from_address(address).value = byte

    def _halves(data):
        return int.from_bytes(data[:8], "little"), int.from_bytes(data[8:], "little")

    def _move_16(address, low, high):
        ctypes.memmove(address, low.to_bytes(8, "little") + high.to_bytes(8, "little"), 16)

    def load_16_if(address, wanted):
        return _halves(ctypes.string_at(address, 16)) if wanted else (0, 0)

    def put_16_if(shared, low, high, wanted):
        if wanted:
            _move_16(shared, low, high)

    put_1 = store_1
    get_1 = load_1
    store_16 = _move_16

    def get_16_of_two(shared, left, gap):
        data = ctypes.string_at(shared, min(left, 16))
        return _halves(data + ctypes.string_at(shared + len(data) + gap, 16 - len(data)))

    def get_16_of_many(shared, left, gap, block):
        data = b""
        for k in range(16):
            if k == left:
                shared += gap
                left += block
            data += ctypes.string_at(shared + k, 1)
        return _halves(data)

    def spread_4_if(address, shared, wanted):
        if wanted:
            assert address & 3 == 0
            ctypes.memmove(address, shared, 4)

    def spread_few(address, shared, count):
        ctypes.memmove(address, shared, count)

    def spread_along(to, shared, place, blocks, steps):
        (r, left), (atom, pitch), (ahead, onward) = (
            (pair & 0xFFFFFFFF, pair >> 32) for pair in (place, blocks, steps)
        )
        while left > 0:
            if r < atom:
                store_1(to, load_1(shared))
            r += onward
            shared += ahead
            if r >= pitch:
                r -= pitch
                shared -= pitch - atom
            to += SPREAD_STEP
            left -= SPREAD_STEP

else:
    from numba.cuda import types

    from device_lib.platform.primitives_cuda import load_1 as load_1
    from device_lib.platform.primitives_cuda import load_16_if as load_16_if
    from device_lib.platform.primitives_cuda import store_1 as store_1
    from device_lib.platform.primitives_cuda import store_16 as store_16
    from device_lib.platform.ptx import ptx

    _PAIR = types.UniTuple(types.int64, 2)

    shared_address = ptx(
        "{ .reg .u64 a; cvta.to.shared.u64 a, $1; cvt.u32.u64 $0, a; }",
        "=r,l",
        types.uint32,
        1,
    )
    put_16_if = ptx(
        "{ .reg .pred p; .reg .u32 a; setp.ne.u64 p, $3, 0; cvt.u32.u64 a, $0; "
        "@p st.shared.v2.u64 [a], {$1, $2}; }",
        "l,l,l,l",
        types.void,
        4,
    )
    put_1 = ptx("{ .reg .u32 a; cvt.u32.u64 a, $0; st.shared.u8 [a], $1; }", "l,l", types.void, 2)
    get_1 = ptx(
        "{ .reg .u32 a; cvt.u32.u64 a, $1; ld.shared.u8 $0, [a]; }", "=r,l", types.uint32, 1
    )

    def _unaligned(name: str, at: str) -> list[str]:
        """Sixteen bytes of shared memory at any address as ``name``0..3, through ``name``w0..4."""
        lines = [f"and.b32 a, {at}, -4;", f"shl.b32 b, {at}, 3;"]
        lines += [f"ld.shared.u32 {name}w{k}, [a+{4 * k}];" for k in range(5)]
        lines += [f"shf.r.wrap.b32 {name}{k}, {name}w{k}, {name}w{k + 1}, b;" for k in range(4)]
        return lines

    def _two() -> str:
        lines = [
            "{ .reg .pred p; .reg .b32 a, b, s, t, l, g, n, m;",
            ".reg .b32 x<4>, y<4>, xw<5>, yw<5>;",
            "cvt.u32.u64 s, $2; cvt.u32.u64 l, $3; cvt.u32.u64 g, $4;",
            # Nothing of the second block is wanted: the first one's bytes once more.
            "setp.lt.s32 p, l, 16; selp.b32 g, g, 0, p; add.s32 t, s, g; shl.b32 l, l, 3;",
            *_unaligned("x", "s"),
            *_unaligned("y", "t"),
        ]
        for k in range(4):
            lines += [
                f"sub.s32 n, l, {32 * k}; max.s32 n, n, 0; shl.b32 m, -1, n;",
                f"lop3.b32 x{k}, x{k}, y{k}, m, 0xD8;",  # m ? y : x, bit by bit
            ]
        return " ".join([*lines, "mov.b64 $0, {x0, x1}; mov.b64 $1, {x2, x3}; }"])

    def _many() -> str:
        lines = [
            "{ .reg .pred p; .reg .b32 s, l, g, n, h; .reg .b32 x<4>, c<16>;",
            "cvt.u32.u64 s, $2; cvt.u32.u64 l, $3; cvt.u32.u64 g, $4; cvt.u32.u64 n, $5;",
        ]
        for k in range(16):
            if k:
                lines.append(f"setp.eq.s32 p, l, {k}; @p add.s32 s, s, g; @p add.s32 l, l, n;")
            lines.append(f"ld.shared.u8 c{k}, [s+{k}];")
        for k in range(4):
            c = [f"c{4 * k + i}" for i in range(4)]
            lines += [
                f"prmt.b32 x{k}, {c[0]}, {c[1]}, 0x5540; prmt.b32 h, {c[2]}, {c[3]}, 0x5540;",
                f"prmt.b32 x{k}, x{k}, h, 0x5410;",
            ]
        return " ".join([*lines, "mov.b64 $0, {x0, x1}; mov.b64 $1, {x2, x3}; }"])

    # Sixteen bytes as (low, high): $3 from shared address $2 on, what is missing from after a gap
    # of $4 bytes.
    get_16_of_two = ptx(_two(), "=l,=l,l,l,l", _PAIR, 3)
    # The same for blocks that are shorter: a gap after the first $3 bytes, and then after every $5.
    get_16_of_many = ptx(_many(), "=l,=l,l,l,l,l", _PAIR, 4)

    # Four bytes from shared address $1 to the aligned address $0, if $2.
    spread_4_if = ptx(
        "{ .reg .pred p; .reg .b32 s, a, b, x, y; setp.ne.u64 p, $2, 0; cvt.u32.u64 s, $1; "
        "and.b32 a, s, -4; shl.b32 b, s, 3; @p ld.shared.u32 x, [a]; @p ld.shared.u32 y, [a+4]; "
        "shf.r.wrap.b32 x, x, y, b; @p st.u32 [$0], x; }",
        "l,l,l",
        types.void,
        3,
    )
    # $2 (0..3) bytes from shared address $1 to any address $0: a byte up to an even address, two
    # bytes, the byte that is left.
    spread_few = ptx(
        "{ .reg .pred p; .reg .b32 s, a, b, x, y, n; .reg .b64 t; mov.b64 t, $0; "
        "cvt.u32.u64 s, $1; cvt.u32.u64 n, $2; and.b32 a, s, -4; shl.b32 b, s, 3; "
        "ld.shared.u32 x, [a]; ld.shared.u32 y, [a+4]; shf.r.wrap.b32 x, x, y, b; "
        "cvt.u32.u64 a, t; and.b32 a, a, 1; min.u32 a, a, n; setp.ne.u32 p, a, 0; "
        "@p st.u8 [t], x; @p shr.u32 x, x, 8; @p add.s64 t, t, 1; @p sub.u32 n, n, 1; "
        "setp.ge.u32 p, n, 2; "
        "@p st.u16 [t], x; @p shr.u32 x, x, 16; @p add.s64 t, t, 2; @p sub.u32 n, n, 2; "
        "setp.ne.u32 p, n, 0; @p st.u8 [t], x; }",
        "l,l,l",
        types.void,
        3,
    )

    def _along() -> str:
        lines = [
            "{ .reg .pred p<4>, w; .reg .b32 s, r, n, a, q, d, o, g, x<4>; .reg .b64 t;",
            "mov.b64 t, $0; cvt.u32.u64 s, $1;",
            "mov.b64 {r, n}, $2; mov.b64 {a, q}, $3; mov.b64 {d, o}, $4;",
            "sub.u32 g, q, a; setp.le.s32 w, n, 0; @w bra gmpi_done;",
            "gmpi_next:",
        ]
        for k in range(4):
            lines += [
                f"setp.lt.u32 p{k}, r, a; setp.gt.and.s32 p{k}, n, {k * SPREAD_STEP}, p{k};",
                f"@p{k} ld.shared.u8 x{k}, [s]; add.u32 r, r, o; add.u32 s, s, d;",
                "setp.ge.u32 w, r, q; @w sub.u32 r, r, q; @w sub.u32 s, s, g;",
            ]
        lines += [f"@p{k} st.global.u8 [t+{k * SPREAD_STEP}], x{k};" for k in range(4)]
        step = 4 * SPREAD_STEP
        lines.append(f"add.s64 t, t, {step}; sub.s32 n, n, {step}; setp.gt.s32 w, n, 0;")
        return " ".join([*lines, "@w bra gmpi_next; gmpi_done: }"])

    # The calling thread's bytes of blocks at one pitch: the one at global address $0 from shared
    # address $1, as far as it is data, and so on at every SPREAD_STEP. Then pairs, the second in
    # the high half: its place within the pitch, and bytes from it to the last one's end; bytes of a
    # block, and of the pitch; what a step adds to the shared address, and to the place within the
    # pitch.
    spread_along = ptx(_along(), "l,l,l,l,l", types.void, 5)
