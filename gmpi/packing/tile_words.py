"""Words between shared memory, where every byte may be wanted at any place, and global memory.

Addresses of shared memory are those of its own window (``shared_address``), 32 bits wide. Up to 8
bytes behind the bytes asked for are read there too, and no address may be beyond the array by more.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import ctypes

from device_lib.platform.primitives import SIMULATOR

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
