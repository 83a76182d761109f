"""The CUDA twin of ``primitives``: inline PTX for what the ring protocol relies on.

Buffers are in ``buffer_cuda``, the threads of a block in ``block_cuda``.
``tests/test_ptx.py`` compiles these for sm_90 and checks the instructions that come out.
"""

# mypy: disable-error-code="no-untyped-def,misc"
from __future__ import annotations

from llvmlite import ir
from numba import cuda
from numba.cuda import cgutils, types
from numba.cuda.extending import intrinsic

from device_lib.platform.block_cuda import COMMAND_NOTE as COMMAND_NOTE
from device_lib.platform.block_cuda import NOTES as NOTES
from device_lib.platform.block_cuda import block_id as block_id
from device_lib.platform.block_cuda import block_threads as block_threads
from device_lib.platform.block_cuda import broadcast_block as broadcast_block
from device_lib.platform.block_cuda import broadcast_block_3 as broadcast_block_3
from device_lib.platform.block_cuda import broadcast_block_4 as broadcast_block_4
from device_lib.platform.block_cuda import broadcast_block_5 as broadcast_block_5
from device_lib.platform.block_cuda import get_block_4 as get_block_4
from device_lib.platform.block_cuda import get_block_note as get_block_note
from device_lib.platform.block_cuda import get_block_row as get_block_row
from device_lib.platform.block_cuda import grid_blocks as grid_blocks
from device_lib.platform.block_cuda import lane_id as lane_id
from device_lib.platform.block_cuda import place as place
from device_lib.platform.block_cuda import put_block_4 as put_block_4
from device_lib.platform.block_cuda import put_block_4_same as put_block_4_same
from device_lib.platform.block_cuda import put_block_note as put_block_note
from device_lib.platform.block_cuda import put_block_row as put_block_row
from device_lib.platform.block_cuda import scatter as scatter
from device_lib.platform.block_cuda import thread_rank as thread_rank
from device_lib.platform.buffer_cuda import buffer_of as buffer_of
from device_lib.platform.buffer_cuda import describe as describe
from device_lib.platform.buffer_cuda import itemsize_of as itemsize_of
from device_lib.platform.clocks_cuda import clock as clock
from device_lib.platform.clocks_cuda import pause as pause
from device_lib.platform.clocks_cuda import relax as relax
from device_lib.platform.clocks_cuda import spin as spin
from device_lib.platform.clocks_cuda import timer_ns as timer_ns
from device_lib.platform.clocks_cuda import wait_cycles as wait_cycles
from device_lib.platform.ptx import device as device
from device_lib.platform.ptx import ptx

int64 = types.int64
uint32 = types.uint32
_I64 = ir.IntType(64)
_I32 = ir.IntType(32)
_PAIR = types.UniTuple(types.int64, 2)
_TRIPLE = types.UniTuple(types.int64, 3)


# --- device memory, all warps of this GPU ---------------------------------------------------------
load_gpu = ptx("ld.relaxed.gpu.global.u64 $0, [$1];", "=l,l", types.int64, 1)
store_gpu = ptx("st.relaxed.gpu.global.u64 [$0], $1;", "l,l", types.void, 2)
store_32_gpu = ptx(
    "{ .reg .b32 v; cvt.u32.u64 v, $1; st.relaxed.gpu.global.u32 [$0], v; }",
    "l,l",
    types.void,
    2,
)
add_gpu = ptx("atom.relaxed.gpu.global.add.u64 $0, [$1], $2;", "=l,l,l", types.int64, 2)
add_32_gpu = ptx(
    "{ .reg .b32 v; cvt.u32.u64 v, $2; atom.relaxed.gpu.global.add.u32 $0, [$1], v; }",
    "=r,l,l",
    types.uint32,
    2,
)
or_32_gpu = ptx(
    "{ .reg .b32 v; cvt.u32.u64 v, $2; atom.relaxed.gpu.global.or.b32 $0, [$1], v; }",
    "=r,l,l",
    types.uint32,
    2,
)
# The same where nobody asks what was there before. A function that has called an ``atom`` returns
# when its answer has come, wanted or not: 0.4 us.
count_gpu = ptx("red.relaxed.gpu.global.add.u64 [$0], $1;", "l,l", types.void, 2)
set_bits_32_gpu = ptx(
    "{ .reg .b32 v; cvt.u32.u64 v, $1; red.relaxed.gpu.global.or.b32 [$0], v; }",
    "l,l",
    types.void,
    2,
)
cas_gpu = ptx("atom.relaxed.gpu.global.cas.b64 $0, [$1], $2, $3;", "=l,l,l,l", types.int64, 3)
clear_bits_gpu = ptx(
    "{ .reg .b64 m; not.b64 m, $1; red.relaxed.gpu.global.and.b64 [$0], m; }", "l,l", types.void, 2
)
clear_bits_32_gpu = ptx(
    "{ .reg .b32 m; cvt.u32.u64 m, $1; not.b32 m, m; red.relaxed.gpu.global.and.b32 [$0], m; }",
    "l,l",
    types.void,
    2,
)
# What opening a request asks of device memory, by the lanes that ask for it: adds 1 at $3, loads
# $4, sets bits $6 at $5, all under way together. One piece without a branch: what follows need not
# wait for the results, which it would where the two ways of a branch join.
take_if = ptx(
    "{ .reg .pred p; .reg .b32 v; cvt.u32.u64 v, $6; setp.ne.u64 p, $7, 0; "
    "mov.b64 $0, 0; mov.b64 $1, 0; mov.b32 $2, 0; "
    "@p atom.relaxed.gpu.global.add.u64 $0, [$3], 1; "
    "@p ld.relaxed.gpu.global.u64 $1, [$4]; "
    "@p atom.relaxed.gpu.global.or.b32 $2, [$5], v; }",
    "=&l,=&l,=&r,l,l,l,l,l",
    _TRIPLE,
    5,
)
# The same without bits: adds 1 at $2, loads $3.
enter_if = ptx(
    "{ .reg .pred p; setp.ne.u64 p, $4, 0; mov.b64 $0, 0; mov.b64 $1, 0; "
    "@p atom.relaxed.gpu.global.add.u64 $0, [$2], 1; "
    "@p ld.relaxed.gpu.global.u64 $1, [$3]; }",
    "=&l,=&l,l,l,l",
    _PAIR,
    3,
)
# The same for closing one: swaps $4 for $3 at $2, loads $5.
claim_if = ptx(
    "{ .reg .pred p; setp.ne.u64 p, $6, 0; mov.b64 $0, 0; mov.b64 $1, 0; "
    "@p atom.relaxed.gpu.global.cas.b64 $0, [$2], $3, $4; "
    "@p ld.relaxed.gpu.global.u64 $1, [$5]; }",
    "=&l,=&l,l,l,l,l,l",
    _PAIR,
    5,
)
# What a message of the direct road asks of its channel: adds 1 to the upper 32 bits at $2, of which
# it says what they and the lower ones were.
draw_if = ptx(
    "{ .reg .pred p; .reg .b64 both; setp.ne.u64 p, $3, 0; mov.b64 both, 0; "
    "@p atom.relaxed.gpu.global.add.u64 both, [$2], 0x100000000; mov.b64 {$1, $0}, both; }",
    "=&r,=&r,l,l",
    _PAIR,
    2,
)
# What opening a receive asks: adds 1 to the 32 bits at $2, sets bits $4 of those at $3. Both behind
# one branch: the assembler makes one of each predicate before a load or an atomic operation, and
# lanes that part and meet again lose some 30 cycles.
draw_two_if = ptx(
    "{ .reg .pred p; .reg .b32 v; cvt.u32.u64 v, $4; setp.eq.u64 p, $5, 0; "
    "mov.b32 $0, 0; mov.b32 $1, 0; @p bra DRAWN; "
    "atom.relaxed.gpu.global.add.u32 $0, [$2], 1; "
    "atom.relaxed.gpu.global.or.b32 $1, [$3], v; DRAWN: }",
    "=&r,=&r,l,l,l,l",
    _PAIR,
    4,
)
# What closing a receive asks of memory, behind one branch: stores a packet whose high word is
# $1 to $0, takes 1 from what is at $2, clears bits $4 at $3.
give_back_if = ptx(
    "{ .reg .pred p; .reg .b64 zero, mask; .reg .b128 u; setp.eq.u64 p, $5, 0; mov.b64 zero, 0; "
    "mov.b128 u, {zero, $1}; not.b64 mask, $4; @p bra GIVEN; "
    "st.relaxed.sys.global.b128 [$0], u; red.relaxed.gpu.global.add.u64 [$2], -1; "
    "red.relaxed.gpu.global.and.b64 [$3], mask; GIVEN: }",
    "l,l,l,l,l,l",
    types.void,
    6,
)
max_gpu = ptx("atom.relaxed.gpu.global.max.u64 $0, [$1], $2;", "=l,l,l", types.int64, 2)
cas_if = ptx(
    "{ .reg .pred p; setp.ne.u64 p, $4, 0; mov.b64 $0, 0; "
    "@p atom.relaxed.gpu.global.cas.b64 $0, [$1], $2, $3; }",
    "=&l,l,l,l,l",
    types.int64,
    4,
)
add_if = ptx(
    "{ .reg .pred p; setp.ne.u64 p, $3, 0; mov.b64 $0, 0; "
    "@p atom.relaxed.gpu.global.add.u64 $0, [$1], $2; }",
    "=&l,l,l,l",
    types.int64,
    3,
)
load_1_if = ptx(
    "{ .reg .pred p; setp.ne.u64 p, $2, 0; mov.b32 $0, 0; @p ld.u8 $0, [$1]; }",
    "=&r,l,l",
    types.uint32,
    2,
)
load_4_if = ptx(
    "{ .reg .pred p; setp.ne.u64 p, $2, 0; mov.b32 $0, 0; @p ld.u32 $0, [$1]; }",
    "=&r,l,l",
    types.uint32,
    2,
)
store_4_if = ptx(
    "{ .reg .pred p; .reg .b32 v; setp.ne.u64 p, $2, 0; cvt.u32.u64 v, $1; @p st.u32 [$0], v; }",
    "l,l,l",
    types.void,
    3,
)
# With an acquire: loads after it see what was stored before a release of what it has found. For who
# polls one word or packet: a fence behind the last look takes as long as another look.
acquire_gpu = ptx("ld.acquire.gpu.global.u64 $0, [$1];", "=l,l", types.int64, 1)
_ACQUIRE_PACKET = "{ .reg .b128 u; ld.acquire.%s.global.b128 u, [$2]; mov.b128 {$0, $1}, u; }"
acquire_packet_gpu = ptx(_ACQUIRE_PACKET % "gpu", "=l,=l,l", _PAIR, 1)
acquire_packet_sys = ptx(_ACQUIRE_PACKET % "sys", "=l,=l,l", _PAIR, 1)
load_pair_gpu = ptx("ld.relaxed.gpu.global.v2.u64 {$0, $1}, [$2];", "=l,=l,l", _PAIR, 1)
store_pair_gpu = ptx("st.relaxed.gpu.global.v2.u64 [$0], {$1, $2};", "l,l,l", types.void, 3)
# Where they are wanted: a store needs no branch for that.
store_gpu_if = ptx(
    "{ .reg .pred p; setp.ne.u64 p, $2, 0; @p st.relaxed.gpu.global.u64 [$0], $1; }",
    "l,l,l",
    types.void,
    3,
)
store_pair_gpu_if = ptx(
    "{ .reg .pred p; setp.ne.u64 p, $3, 0; @p st.relaxed.gpu.global.v2.u64 [$0], {$1, $2}; }",
    "l,l,l,l",
    types.void,
    4,
)

# --- mapped memory, shared with the CPU -----------------------------------------------------------
store_sys = ptx("st.relaxed.sys.global.u64 [$0], $1;", "l,l", types.void, 2)
load_sys = ptx("ld.relaxed.sys.global.u64 $0, [$1];", "=l,l", types.int64, 1)
# A packet: one .b128 access, which the PTX memory model makes single-copy atomic (a .v2.u64 is two
# accesses in any order, although sm_90 happens to use the same instruction for both).
read_packet = ptx(
    "{ .reg .b128 u; ld.relaxed.sys.global.b128 u, [$2]; mov.b128 {$0, $1}, u; }",
    "=l,=l,l",
    _PAIR,
    1,
)
write_packet = ptx(
    "{ .reg .b128 u; mov.b128 u, {$1, $2}; st.relaxed.sys.global.b128 [$0], u; }",
    "l,l,l",
    types.void,
    3,
)
write_packet_if = ptx(
    "{ .reg .pred p; .reg .b128 u; setp.ne.u64 p, $3, 0; mov.b128 u, {$1, $2}; "
    "@p st.relaxed.sys.global.b128 [$0], u; }",
    "l,l,l,l",
    types.void,
    4,
)
# The same where it is wanted; else ``word`` in place of the high word.
read_packet_if = ptx(
    "{ .reg .pred p; .reg .b128 u; setp.ne.u64 p, $4, 0; mov.b64 $0, 0; mov.b64 $1, $3; "
    "@p ld.relaxed.sys.global.b128 u, [$2]; @p mov.b128 {$0, $1}, u; }",
    "=&l,=&l,l,l,l",
    _PAIR,
    3,
)
# Acquire and release for everything this thread has seen, up to the CPU: ~0.5 us over PCIe 5.
fence_sys = ptx("fence.acq_rel.sys;", "", types.void, 0)
# The same for the other warps of this GPU.
fence_gpu = ptx("fence.acq_rel.gpu;", "", types.void, 0)

# --- the user's buffer: generic addresses, because a block may send from shared memory ------------
load_16 = ptx("ld.v2.u64 {$0, $1}, [$2];", "=l,=l,l", _PAIR, 1)
store_16 = ptx("st.v2.u64 [$0], {$1, $2};", "l,l,l", types.void, 3)
# Staging is read past L1: lines of the slot's previous message may still be there.
load_16_sys = ptx("ld.relaxed.sys.global.v2.u64 {$0, $1}, [$2];", "=l,=l,l", _PAIR, 1)
# For a remainder: the words that are there, in one go.
load_16_if = ptx(
    "{ .reg .pred p; setp.ne.u64 p, $3, 0; mov.b64 $0, 0; mov.b64 $1, 0; "
    "@p ld.v2.u64 {$0, $1}, [$2]; }",
    "=&l,=&l,l,l",
    _PAIR,
    2,
)
load_16_sys_if = ptx(
    "{ .reg .pred p; setp.ne.u64 p, $3, 0; mov.b64 $0, 0; mov.b64 $1, 0; "
    "@p ld.relaxed.sys.global.v2.u64 {$0, $1}, [$2]; }",
    "=&l,=&l,l,l",
    _PAIR,
    2,
)
store_16_if = ptx(
    "{ .reg .pred p; setp.ne.u64 p, $3, 0; @p st.v2.u64 [$0], {$1, $2}; }",
    "l,l,l,l",
    types.void,
    4,
)
load_1_sys = ptx("ld.relaxed.sys.global.u8 $0, [$1];", "=l,l", types.int64, 1)
load_8 = ptx("ld.u64 $0, [$1];", "=l,l", types.int64, 1)
load_4 = ptx("ld.u32 $0, [$1];", "=l,l", types.int64, 1)
load_1 = ptx("ld.u8 $0, [$1];", "=l,l", types.int64, 1)
store_8 = ptx("st.u64 [$0], $1;", "l,l", types.void, 2)
store_4 = ptx("st.u32 [$0], $1;", "l,l", types.void, 2)
store_1 = ptx("st.u8 [$0], $1;", "l,l", types.void, 2)


def _space(name):
    """Whether an address lies in a space: LLVM's own word, which it takes out of loops."""

    def emit(context, builder, sig, args):
        pointer = builder.inttoptr(args[0], ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.IntType(1), [pointer.type])
        asked = cgutils.get_or_insert_function(builder.module, kind, f"llvm.nvvm.isspacep.{name}")
        return builder.zext(builder.call(asked, [pointer]), _I64)

    return intrinsic(lambda typingctx, address: (int64(int64), emit))


_is_shared = _space("shared")
_is_local = _space("local")

# A value the optimiser cannot see through. Stepping a loop by one keeps it from being unrolled:
# loops over packets turn once on a full warp, and four copies of their body only cost registers.
opaque = ptx("mov.u64 $0, $1;", "=l,l", types.int64, 1)

# The first words of a loop that the assembler is not to unroll.
as_it_stands = ptx(r".pragma \22nounroll\22;", "", types.void, 0)


def _wrapping(name):
    """Arithmetic modulo 2**64. Numba's own tells the compiler that no int64 overflows: it may then
    drop what only an overflow brings, such as a carry into the highest bit."""

    def emit(context, builder, sig, args):
        return getattr(builder, name)(*args)

    return intrinsic(lambda typingctx, a, b: (int64(int64, int64), emit))


wrapping_add = _wrapping("add")
wrapping_multiply = _wrapping("mul")


@device
def memory_space(address):
    """0: visible to the whole grid, 1: shared memory of the block, 2: private to one thread."""
    return _is_shared(address) + 2 * _is_local(address)


@device
def is_private(buffer, address):
    """Whether a buffer is memory that other blocks cannot address.

    Args:
        address: of the buffer.
    """
    return memory_space(address) != 0


@device
def sync_warp(mask):
    cuda.syncwarp(mask)


@device
def sync_block():
    cuda.syncthreads()


@device
def sync_block_or(flag):
    """``sync_block``; whether a thread of the block has a flag that is not 0."""
    return cuda.syncthreads_or(flag) != 0


@device
def shuffle(mask, value, lane):
    return cuda.shfl_sync(mask, value, lane)


@device
def shuffle_32(mask, value, lane):
    """``shuffle`` of a ``uint32``."""
    return types.uint32(cuda.shfl_sync(mask, types.int32(value), lane))


@device
def vote_all(mask, predicate):
    return cuda.all_sync(mask, predicate)


@device
def ballot(mask, predicate):
    return types.int64(cuda.ballot_sync(mask, predicate)) & 0xFFFFFFFF


@device
def first_bit(word):
    """Index of the lowest set bit of a non-zero 32-bit word."""
    return types.int64(cuda.ffs(word)) - 1


@device
def count_bits(word):
    """How many bits of a 32-bit word are set."""
    return types.int64(cuda.popc(types.uint32(word)))
