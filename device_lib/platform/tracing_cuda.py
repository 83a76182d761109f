"""The CUDA twin of what traced kernels do besides their calls (``device_lib/api/traced.py``)."""

# mypy: disable-error-code="no-untyped-def,misc"
from __future__ import annotations

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic

from device_lib.platform.block_cuda import block_id as block_id
from device_lib.platform.block_cuda import shared_words
from device_lib.platform.block_cuda import thread_rank as thread_rank
from device_lib.platform.ptx import ptx
from gmpi.contract.trace import EVENT_BYTES, NOTE_WORDS, PERIOD_SHIFT

_I64 = ir.IntType(64)

# As block_cuda's, worked out once for many calls.
lane_id = ptx("mov.u32 $0, %laneid;", "=r", types.uint32, 0, pure=True)
# Modulo 2**32, in half the instructions.
low_difference = ptx(
    "{ .reg .b32 a, b; cvt.u32.u64 a, $1; cvt.u32.u64 b, $2; sub.u32 $0, a, b; }",
    "=r,l,l",
    types.uint32,
    2,
    pure=True,
)
# Stores a pair of words where one of the low bits $4 of $3 is set.
store_pair_if = ptx(
    "{ .reg .pred p; .reg .b32 w, b; cvt.u32.u64 w, $3; cvt.u32.u64 b, $4; and.b32 w, w, b; "
    "setp.ne.u32 p, w, 0; @p st.relaxed.gpu.global.v2.u64 [$0], {$1, $2}; }",
    "l,l,l,l,l",
    types.void,
    5,
)

# Words of each warp, of traced kernels only (``gmpi/contract/trace.py``). What is there when a
# block begins is not defined.
_NOTES = "gmpi_trace_notes", NOTE_WORDS * 32, 32


def _emit_address(context, builder, sig, args):
    words = shared_words(builder, *_NOTES)
    at = builder.gep(words, [ir.Constant(_I64, 0), args[0]], inbounds=True)
    return builder.ptrtoint(at, _I64)


# The address of a word.
address_of = intrinsic(lambda typingctx, index: (types.int64(types.int64), _emit_address))
put = ptx("{ .reg .b32 a; cvt.u32.u64 a, $0; st.shared.b64 [a], $1; }", "l,l", types.void, 2)
get = ptx("{ .reg .b32 a; cvt.u32.u64 a, $1; ld.shared.b64 $0, [a]; }", "=l,l", types.int64, 1)
# Of a warp's notes at $3: (1: their key is $4 and no pair is due at $5; events so far; where the
# next one's place is, in a ring of $6, a power of two).
look = ptx(
    "{ .reg .pred p; .reg .b32 a, l, h, d, n, t; .reg .b64 k, r; cvt.u32.u64 a, $3; "
    "ld.shared.v4.b32 {l, h, d, n}, [a]; ld.shared.b64 r, [a+16]; mov.b64 k, {l, h}; "
    "cvt.u32.u64 t, $5; sub.u32 t, d, t; setp.eq.u64 p, k, $4; "
    f"setp.le.and.u32 p, t, {1 << PERIOD_SHIFT}, p; selp.u32 $0, 1, 0, p; mov.b32 $1, n; "
    "cvt.u32.u64 t, $6; add.u32 t, t, -1; and.b32 t, t, n; "
    f"mad.wide.u32 $2, t, {EVENT_BYTES}, r; }}",
    "=&r,=&r,=&l,l,l,l,l",
    types.UniTuple(types.int64, 3),
    4,
)
# Notes there that there are $1 events, where the low bit 8 of $2 is set.
count_if = ptx(
    "{ .reg .pred p; .reg .b32 a, n, w; cvt.u32.u64 w, $2; and.b32 w, w, 8; setp.ne.u32 p, w, 0; "
    "cvt.u32.u64 a, $0; cvt.u32.u64 n, $1; @p st.shared.b32 [a+12], n; }",
    "l,l,l",
    types.void,
    3,
)
