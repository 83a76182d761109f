"""The CUDA twin of ``primitives``: inline PTX for what the ring protocol relies on.

Why PTX and not Numba's own operations: Numba has no loads or stores with an order and a scope, its
``cuda.atomic`` fences nothing, and one 16-byte access that cannot tear does not exist in Python.
``tests/test_ptx.py`` compiles these for sm_90 and checks the instructions that come out.
"""

# mypy: disable-error-code="no-untyped-def,misc"
from __future__ import annotations

from llvmlite import ir
from numba import cuda
from numba.cuda import cgutils, types
from numba.cuda.core.errors import TypingError
from numba.cuda.extending import intrinsic

int64 = types.int64
_I64 = ir.IntType(64)
_I32 = ir.IntType(32)
_PAIR = types.UniTuple(types.int64, 2)
_TRIPLE = types.UniTuple(types.int64, 3)


def device(fn):
    """Marks a device function; called from kernels and other device functions only."""
    return cuda.jit(device=True)(fn)


def _pack_tuple(context, builder, returns, values):
    return context.make_tuple(builder, returns, values)


def _ptx(template: str, constraints: str, returns, arity: int):
    """An intrinsic of ``arity`` int64 arguments around one piece of inline PTX.

    Every one is volatile and clobbers memory: the compiler keeps them in program order among
    each other and moves no ordinary access across. Where the PTX gives 32 bits (``=r``, alone or as
    the last of several) the caller gets an int64 of which the compiler knows that the upper half
    is 0.
    """

    def emit(context, builder, sig, args):
        if returns == types.void:
            result = ir.VoidType()
        elif returns == types.int64:
            result = _I64
        elif returns == types.uint32:
            result = _I32
        else:
            last = _I32 if narrow else _I64
            result = ir.LiteralStructType([_I64] * (len(returns) - 1) + [last])
        function = ir.FunctionType(result, [_I64] * arity)
        text = f"{constraints},~{{memory}}" if constraints else "~{memory}"
        out = builder.call(ir.InlineAsm(function, template, text, side_effect=True), args)
        if returns == types.void:
            return context.get_dummy_value()
        if returns == types.int64:
            return out
        if returns == types.uint32:
            return builder.zext(out, _I64)
        values = [builder.extract_value(out, i) for i in range(len(returns))]
        if narrow:
            values[-1] = builder.zext(values[-1], _I64)
        return _pack_tuple(context, builder, returns, values)

    narrow = constraints.startswith(("=&l,=&l,=&r", "=l,=l,=r"))
    visible = types.int64 if returns == types.uint32 else returns
    signature = visible(*[types.int64] * arity)
    if arity == 0:

        @intrinsic
        def nullary(typingctx):
            return signature, emit

        return nullary
    if arity == 1:

        @intrinsic
        def unary(typingctx, a):
            return signature, emit

        return unary
    if arity == 2:

        @intrinsic
        def binary(typingctx, a, b):
            return signature, emit

        return binary

    if arity == 3:

        @intrinsic
        def ternary(typingctx, a, b, c):
            return signature, emit

        return ternary

    if arity == 4:

        @intrinsic
        def quaternary(typingctx, a, b, c, d):
            return signature, emit

        return quaternary

    @intrinsic
    def quinary(typingctx, a, b, c, d, e):
        return signature, emit

    return quinary


# --- device memory, all warps of this GPU ---------------------------------------------------------
load_gpu = _ptx("ld.relaxed.gpu.global.u64 $0, [$1];", "=l,l", types.int64, 1)
store_gpu = _ptx("st.relaxed.gpu.global.u64 [$0], $1;", "l,l", types.void, 2)
add_gpu = _ptx("atom.relaxed.gpu.global.add.u64 $0, [$1], $2;", "=l,l,l", types.int64, 2)
or_32_gpu = _ptx(
    "{ .reg .b32 v; cvt.u32.u64 v, $2; atom.relaxed.gpu.global.or.b32 $0, [$1], v; }",
    "=r,l,l",
    types.uint32,
    2,
)
cas_gpu = _ptx("atom.relaxed.gpu.global.cas.b64 $0, [$1], $2, $3;", "=l,l,l,l", types.int64, 3)
clear_bits_32_gpu = _ptx(
    "{ .reg .b32 m; cvt.u32.u64 m, $1; not.b32 m, m; red.relaxed.gpu.global.and.b32 [$0], m; }",
    "l,l",
    types.void,
    2,
)
# What opening a request asks of device memory, by the lanes that ask for it: adds 1 at $3, loads
# $4, sets bits $6 at $5, all under way together. One piece without a branch: what follows need not
# wait for the results, which it would where the two ways of a branch join.
take_if = _ptx(
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
enter_if = _ptx(
    "{ .reg .pred p; setp.ne.u64 p, $4, 0; mov.b64 $0, 0; mov.b64 $1, 0; "
    "@p atom.relaxed.gpu.global.add.u64 $0, [$2], 1; "
    "@p ld.relaxed.gpu.global.u64 $1, [$3]; }",
    "=&l,=&l,l,l,l",
    _PAIR,
    3,
)
# The same for closing one: swaps $4 for $3 at $2, loads $5.
claim_if = _ptx(
    "{ .reg .pred p; setp.ne.u64 p, $6, 0; mov.b64 $0, 0; mov.b64 $1, 0; "
    "@p atom.relaxed.gpu.global.cas.b64 $0, [$2], $3, $4; "
    "@p ld.relaxed.gpu.global.u64 $1, [$5]; }",
    "=&l,=&l,l,l,l,l,l",
    _PAIR,
    5,
)
load_4_if = _ptx(
    "{ .reg .pred p; setp.ne.u64 p, $2, 0; mov.b32 $0, 0; @p ld.u32 $0, [$1]; }",
    "=&r,l,l",
    types.uint32,
    2,
)
store_pair_gpu = _ptx("st.relaxed.gpu.global.v2.u64 [$0], {$1, $2};", "l,l,l", types.void, 3)

# --- mapped memory, shared with the CPU -----------------------------------------------------------
store_sys = _ptx("st.relaxed.sys.global.u64 [$0], $1;", "l,l", types.void, 2)
load_sys = _ptx("ld.relaxed.sys.global.u64 $0, [$1];", "=l,l", types.int64, 1)
# A unit: one .b128 access, which the PTX memory model makes single-copy atomic (a .v2.u64 is two
# accesses in any order, although sm_90 happens to use the same instruction for both).
load_unit = _ptx(
    "{ .reg .b128 u; ld.relaxed.sys.global.b128 u, [$2]; mov.b128 {$0, $1}, u; }",
    "=l,=l,l",
    _PAIR,
    1,
)
store_unit = _ptx(
    "{ .reg .b128 u; mov.b128 u, {$1, $2}; st.relaxed.sys.global.b128 [$0], u; }",
    "l,l,l",
    types.void,
    3,
)
# Acquire and release for everything this thread has seen, up to the CPU: ~0.5 us over PCIe 5.
fence_sys = _ptx("fence.acq_rel.sys;", "", types.void, 0)
# The same for the other warps of this GPU.
fence_gpu = _ptx("fence.acq_rel.gpu;", "", types.void, 0)

# --- the user's buffer: generic addresses, because a block may send from shared memory ------------
load_16 = _ptx("ld.v2.u64 {$0, $1}, [$2];", "=l,=l,l", _PAIR, 1)
store_16 = _ptx("st.v2.u64 [$0], {$1, $2};", "l,l,l", types.void, 3)
# Staging is read past L1: lines of the slot's previous message may still be there.
load_16_sys = _ptx("ld.relaxed.sys.global.v2.u64 {$0, $1}, [$2];", "=l,=l,l", _PAIR, 1)
# For a remainder: the words that are there, in one go.
load_16_if = _ptx(
    "{ .reg .pred p; setp.ne.u64 p, $3, 0; mov.b64 $0, 0; mov.b64 $1, 0; "
    "@p ld.v2.u64 {$0, $1}, [$2]; }",
    "=&l,=&l,l,l",
    _PAIR,
    2,
)
load_16_sys_if = _ptx(
    "{ .reg .pred p; setp.ne.u64 p, $3, 0; mov.b64 $0, 0; mov.b64 $1, 0; "
    "@p ld.relaxed.sys.global.v2.u64 {$0, $1}, [$2]; }",
    "=&l,=&l,l,l",
    _PAIR,
    2,
)
store_16_if = _ptx(
    "{ .reg .pred p; setp.ne.u64 p, $3, 0; @p st.v2.u64 [$0], {$1, $2}; }",
    "l,l,l,l",
    types.void,
    4,
)
load_1_sys = _ptx("ld.relaxed.sys.global.u8 $0, [$1];", "=l,l", types.int64, 1)
load_8 = _ptx("ld.u64 $0, [$1];", "=l,l", types.int64, 1)
load_4 = _ptx("ld.u32 $0, [$1];", "=l,l", types.int64, 1)
load_1 = _ptx("ld.u8 $0, [$1];", "=l,l", types.int64, 1)
store_8 = _ptx("st.u64 [$0], $1;", "l,l", types.void, 2)
store_4 = _ptx("st.u32 [$0], $1;", "l,l", types.void, 2)
store_1 = _ptx("st.u8 [$0], $1;", "l,l", types.void, 2)

_is_shared = _ptx(
    "{ .reg .pred p; isspacep.shared p, $1; selp.u64 $0, 1, 0, p; }", "=l,l", types.int64, 1
)
_is_local = _ptx(
    "{ .reg .pred p; isspacep.local p, $1; selp.u64 $0, 1, 0, p; }", "=l,l", types.int64, 1
)

# A value the optimiser cannot see through. Stepping a loop by one keeps it from being unrolled:
# loops over units turn once on a full warp, and four copies of their body only cost registers.
opaque = _ptx("mov.u64 $0, $1;", "=l,l", types.int64, 1)

# --- clocks ---------------------------------------------------------------------------------------
clock = _ptx("mov.u64 $0, %clock64;", "=l", types.int64, 0)
_clock_low = _ptx("mov.u32 $0, %clock;", "=r", types.uint32, 0)
timer_ns = _ptx("mov.u64 $0, %globaltimer;", "=l", types.int64, 0)


@device
def wait_cycles(cycles):
    """Returns when so many cycles have passed, fewer than 2**32."""
    begin = _clock_low()
    while (_clock_low() - begin) & 0xFFFFFFFF < cycles:
        pass


# Who am I. In 32 bits and one piece each: written with Numba's own names these are 64-bit
# multiplications, and they are on the path of every call.
thread_rank = _ptx(
    "{ .reg .u32 a, b, c; mov.u32 a, %tid.z; mov.u32 b, %ntid.y; mov.u32 c, %tid.y; "
    "mad.lo.u32 a, a, b, c; mov.u32 b, %ntid.x; mov.u32 c, %tid.x; mad.lo.u32 $0, a, b, c; }",
    "=r",
    types.uint32,
    0,
)
block_threads = _ptx(
    "{ .reg .u32 a, b; mov.u32 a, %ntid.x; mov.u32 b, %ntid.y; mul.lo.u32 a, a, b; "
    "mov.u32 b, %ntid.z; mul.lo.u32 $0, a, b; }",
    "=r",
    types.uint32,
    0,
)
block_id = _ptx(
    "{ .reg .u32 a, b, c; mov.u32 a, %ctaid.z; mov.u32 b, %nctaid.y; mov.u32 c, %ctaid.y; "
    "mad.lo.u32 a, a, b, c; mov.u32 b, %nctaid.x; mov.u32 c, %ctaid.x; mad.lo.u32 $0, a, b, c; }",
    "=r",
    types.uint32,
    0,
)
lane_id = _ptx("mov.u32 $0, %laneid;", "=r", types.uint32, 0)
# Below 2**$1, different for blocks and from one moment to the next.
scatter = _ptx(
    "{ .reg .u32 a, b, n; cvt.u32.u64 n, $1; mov.u32 a, %clock; shr.u32 a, a, 3; "
    "mov.u32 b, %ctaid.x; mad.lo.u32 a, b, 37, a; bfe.u32 $0, a, 0, n; }",
    "=r,l",
    types.uint32,
    1,
)
# Different for warps that run at the same time, most of the time.
place = _ptx(
    "{ .reg .u32 a, b; mov.u32 a, %smid; mov.u32 b, %warpid; mad.lo.u32 $0, b, 37, a; }",
    "=r",
    types.uint32,
    0,
)


@device
def memory_space(address):
    """0: visible to the whole grid, 1: shared memory of the block, 2: private to one thread."""
    return _is_shared(address) + 2 * _is_local(address)


@device
def sync_warp(mask):
    cuda.syncwarp(mask)


@device
def sync_block():
    cuda.syncthreads()


@device
def shuffle(mask, value, lane):
    return cuda.shfl_sync(mask, value, lane)


@device
def vote_all(mask, predicate):
    return cuda.all_sync(mask, predicate)


@device
def ballot(mask, predicate):
    return types.int64(cuda.ballot_sync(mask, predicate)) & 0xFFFFFFFF


_SHARED_WORDS = 5 + 3 * 32  # a broadcast, and a row for each lane of a warp


def _shared(builder):
    """The GMPI words in the shared memory of the block.

    ``cuda.shared.array`` will not do: Numba gives it a strong symbol, and a device function that a
    kernel reaches along two paths is then a duplicate definition.
    """
    kind = ir.ArrayType(_I64, _SHARED_WORDS)
    words = builder.module.globals.get("gmpi_shared")
    if words is None:
        words = ir.GlobalVariable(builder.module, kind, "gmpi_shared", addrspace=3)
        words.linkage = "linkonce_odr"
        words.initializer = ir.Constant(kind, ir.Undefined)
        words.align = 8
    return words


@intrinsic
def _store_shared(typingctx, index, value):
    def emit(context, builder, sig, args):
        at = builder.gep(_shared(builder), [ir.Constant(_I64, 0), args[0]], inbounds=True)
        builder.store(args[1], at)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@intrinsic
def _load_shared(typingctx, index):
    def emit(context, builder, sig, args):
        at = builder.gep(_shared(builder), [ir.Constant(_I64, 0), args[0]], inbounds=True)
        return builder.load(at, typ=_I64)

    return types.int64(types.int64), emit


@device
def broadcast_block(a):
    """Thread 0's value, in every thread of the block.

    All threads call; two broadcasts need a ``sync_block()`` between them.
    """
    if thread_rank() == 0:
        _store_shared(0, a)
    cuda.syncthreads()
    return _load_shared(0)


@device
def broadcast_block_3(a, b, c):
    """Three values of thread 0, as ``broadcast_block``."""
    if thread_rank() == 0:
        _store_shared(0, a)
        _store_shared(1, b)
        _store_shared(2, c)
    cuda.syncthreads()
    return _load_shared(0), _load_shared(1), _load_shared(2)


@device
def broadcast_block_4(a, b, c, d):
    """Four values of thread 0, as ``broadcast_block``."""
    if thread_rank() == 0:
        _store_shared(0, a)
        _store_shared(1, b)
        _store_shared(2, c)
        _store_shared(3, d)
    cuda.syncthreads()
    return _load_shared(0), _load_shared(1), _load_shared(2), _load_shared(3)


@device
def broadcast_block_5(a, b, c, d, e):
    """Five values of thread 0, as ``broadcast_block``."""
    if thread_rank() == 0:
        _store_shared(0, a)
        _store_shared(1, b)
        _store_shared(2, c)
        _store_shared(3, d)
        _store_shared(4, e)
    cuda.syncthreads()
    return _load_shared(0), _load_shared(1), _load_shared(2), _load_shared(3), _load_shared(4)


@device
def put_block_row(lane, a, b, c):
    _store_shared(5 + 3 * lane, a)
    _store_shared(6 + 3 * lane, b)
    _store_shared(7 + 3 * lane, c)


@device
def get_block_row(lane, a, b, c):
    return _load_shared(5 + 3 * lane), _load_shared(6 + 3 * lane), _load_shared(7 + 3 * lane)


@device
def pause(ns):
    """One turn of a waiting loop: sleeps about ``ns`` nanoseconds."""
    cuda.nanosleep(ns)


@device
def relax(control):
    """One turn of a loop in which all lanes of a warp poll the host together and vote.

    Nothing to do: each poll takes 1 us, and the host is not disturbed by one lane's reads.
    """


@device
def first_bit(word):
    """Index of the lowest set bit of a non-zero 32-bit word."""
    return types.int64(cuda.ffs(word)) - 1


@intrinsic
def buffer_of(typingctx, buffer):
    """(address, bytes, strided) of an array of any rank, or of a plain integer address.

    ``strided`` is 1 when the elements are not one contiguous run in C or Fortran order.
    An integer address has unknown, hence unlimited, size. A tuple of integers (of requests) is
    copied to the calling thread's stack.
    """
    if isinstance(buffer, types.UniTuple) and isinstance(buffer.dtype, types.Integer):

        def from_tuple(context, builder, sig, args):
            kind = ir.ArrayType(_I64, buffer.count)
            words = cgutils.alloca_once(builder, kind)
            builder.store(args[0], words)
            size = ir.Constant(_I64, 8 * buffer.count)
            address = builder.ptrtoint(words, _I64)
            return _pack_tuple(context, builder, _TRIPLE, [address, size, ir.Constant(_I64, 0)])

        return _TRIPLE(types.UniTuple(types.int64, buffer.count)), from_tuple
    if isinstance(buffer, types.Integer):

        def from_address(context, builder, sig, args):
            unlimited = ir.Constant(_I64, 1 << 62)
            return _pack_tuple(
                context, builder, _TRIPLE, [args[0], unlimited, ir.Constant(_I64, 0)]
            )

        return _TRIPLE(types.int64), from_address
    if not isinstance(buffer, types.Array):
        return None

    def from_array(context, builder, sig, args):
        array = context.make_array(buffer)(context, builder, args[0])
        shape = [builder.extract_value(array.shape, d) for d in range(buffer.ndim)]
        strides = [builder.extract_value(array.strides, d) for d in range(buffer.ndim)]
        nbytes = builder.mul(array.nitems, array.itemsize)
        strided = ir.Constant(ir.IntType(1), 0)
        if buffer.layout == "A":
            one = ir.Constant(_I64, 1)

            def broken(order):
                run = array.itemsize
                gap = ir.Constant(ir.IntType(1), 0)
                for d in order:
                    differs = builder.icmp_signed("!=", strides[d], run)
                    matters = builder.icmp_signed("!=", shape[d], one)
                    gap = builder.or_(gap, builder.and_(differs, matters))
                    run = builder.mul(run, shape[d])
                return gap

            dims = range(buffer.ndim)
            strided = builder.and_(broken(reversed(dims)), broken(dims))
        address = builder.ptrtoint(array.data, _I64)
        return _pack_tuple(
            context, builder, _TRIPLE, [address, nbytes, builder.zext(strided, _I64)]
        )

    return _TRIPLE(buffer), from_array


@intrinsic
def describe(typingctx, buffer, address, room, strided):
    """Address of what a buffer is, int64 words on the stack of the function that uses this:

    address, bytes, number of dimensions, itemsize, then count and stride of each dimension, the
    outermost first. No dimensions: the elements are one contiguous run.

    Args:
        address, room, strided: what ``buffer_of`` found.
    """
    rank = buffer.ndim if isinstance(buffer, types.Array) and buffer.layout == "A" else 0
    if rank > 8:
        raise TypingError(
            f"a view of {rank} dimensions cannot be sent or received, only views of up to 8; "
            "copy it to a contiguous array first"
        )
    whole = types.int64 if isinstance(buffer, types.Integer) else buffer

    def emit(context, builder, sig, args):
        words = cgutils.alloca_once(builder, ir.ArrayType(_I64, 4 + 2 * rank))

        def put(index, value):
            zero = ir.Constant(_I64, 0)
            builder.store(value, builder.gep(words, [zero, ir.Constant(_I64, index)]))

        put(0, args[1])
        put(1, args[2])
        put(2, builder.mul(args[3], ir.Constant(_I64, rank)))
        put(3, ir.Constant(_I64, 1))
        if rank:
            array = context.make_array(buffer)(context, builder, args[0])
            put(3, array.itemsize)
            for d in range(rank):
                put(4 + 2 * d, builder.extract_value(array.shape, d))
                put(5 + 2 * d, builder.extract_value(array.strides, d))
        return builder.ptrtoint(words, _I64)

    return types.int64(whole, types.int64, types.int64, types.int64), emit
