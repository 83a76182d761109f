"""The CUDA twin of who a block's threads are, and what they tell each other in shared memory."""

# mypy: disable-error-code="no-untyped-def,misc"
from __future__ import annotations

from llvmlite import ir
from numba import cuda
from numba.cuda import cgutils, types
from numba.cuda.extending import intrinsic

from device_lib.platform.ptx import device, ptx

#: Words of a block that stay until they are stored again (``put_block_note``).
NOTES = 4
COMMAND_NOTE = NOTES  # another one, of ``direct/grid_commands.py``

_I64 = ir.IntType(64)
_I32 = ir.IntType(32)

# Who am I. In 32 bits: with Numba's own names these are 64-bit multiplications, and they are on the
# path of every call. In LLVM's words, not in PTX: those it takes out of loops.


def _number(make):
    """() -> a number that ``make(special register -> its value, builder)`` works out."""

    def emit(context, builder, sig, args):
        kind = ir.FunctionType(_I32, [])

        def read(name):
            name = f"llvm.nvvm.read.ptx.sreg.{name}"
            return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [])

        return builder.zext(make(read, builder), _I64)

    return intrinsic(lambda typingctx: (types.int64(), emit))


def _place(of, extent):
    """The number of what has a place ``of`` three dimensions in an ``extent``."""

    def make(read, builder):
        row = builder.mul(read(f"{of}.z"), read(f"{extent}.y"))
        row = builder.mul(builder.add(row, read(f"{of}.y")), read(f"{extent}.x"))
        return builder.add(row, read(f"{of}.x"))

    return make


thread_rank = _number(_place("tid", "ntid"))
block_id = _number(_place("ctaid", "nctaid"))
# Every call asks for it: 40 cycles with the branch that follows, so it is found out before a loop.
block_threads = ptx(
    "{ .reg .u32 a, b; mov.u32 a, %ntid.x; mov.u32 b, %ntid.y; mul.lo.u32 a, a, b; "
    "mov.u32 b, %ntid.z; mul.lo.u32 $0, a, b; }",
    "=r",
    types.uint32,
    0,
    pure=True,
)
# Hardly any asks for this: it takes no register.
grid_blocks = ptx(
    "{ .reg .u32 a, b; mov.u32 a, %nctaid.x; mov.u32 b, %nctaid.y; mul.lo.u32 a, a, b; "
    "mov.u32 b, %nctaid.z; mul.lo.u32 $0, a, b; }",
    "=r",
    types.uint32,
    0,
)
lane_id = ptx("mov.u32 $0, %laneid;", "=r", types.uint32, 0)
# Below 2**$1, different for blocks and from one moment to the next.
scatter = ptx(
    "{ .reg .u32 a, b, n; cvt.u32.u64 n, $1; mov.u32 a, %clock; shr.u32 a, a, 3; "
    "mov.u32 b, %ctaid.x; mad.lo.u32 a, b, 37, a; bfe.u32 $0, a, 0, n; }",
    "=r,l",
    types.uint32,
    1,
)
# Different for warps that run at the same time, most of the time.
place = ptx(
    "{ .reg .u32 a, b; mov.u32 a, %smid; mov.u32 b, %warpid; mad.lo.u32 $0, b, 37, a; }",
    "=r",
    types.uint32,
    0,
)


# A broadcast, put_block_note, a row for each lane of a warp, put_block_4, and nothing. 896 bytes, a
# multiple of 128: the kernel's own arrays come next. A multiprocessor gives shared memory to blocks
# in steps, and the rest to L1: with 128 bytes more Himeno at M took a fifth longer.
_NOTES = 5
_ROWS = _NOTES + NOTES + 1
_PUT = _ROWS + 3 * 32
_SHARED_WORDS = 112
assert _PUT % 2 == 0 and _PUT + 4 <= _SHARED_WORDS  # put_block_4 stores 16 bytes at once


def shared_words(builder, name="gmpi_shared", size=_SHARED_WORDS, align=16):
    """GMPI words in the shared memory of the block.

    ``cuda.shared.array`` will not do: Numba gives it a strong symbol, and a device function that a
    kernel reaches along two paths is then a duplicate definition.
    """
    kind = ir.ArrayType(_I64, size)
    words = builder.module.globals.get(name)
    if words is None:
        words = ir.GlobalVariable(builder.module, kind, name, addrspace=3)
        words.linkage = "linkonce_odr"
        words.initializer = ir.Constant(kind, ir.Undefined)
        words.align = align
    return words


def _accesses():
    """(index, value) -> stores a word; (index) -> loads it."""

    def at(builder, index):
        words = shared_words(builder)
        return builder.gep(words, [ir.Constant(_I64, 0), index], inbounds=True)

    def store(context, builder, sig, args):
        builder.store(args[1], at(builder, args[0]))
        return context.get_dummy_value()

    def load(context, builder, sig, args):
        return builder.load(at(builder, args[0]), typ=_I64)

    return (
        intrinsic(lambda typingctx, index, value: (types.void(types.int64, types.int64), store)),
        intrinsic(lambda typingctx, index: (types.int64(types.int64), load)),
    )


_store_shared, _load_shared = _accesses()


def _several(count, make_index):
    """What loads ``count`` words from ``make_index(builder, arguments)`` on.

    A device function that returns a tuple has it stored to the stack. In a kernel of many calls
    the compiler leaves such stores, by all threads of a block, where nobody loads any more.
    """
    kind = types.UniTuple(types.int64, count)

    def load(context, builder, sig, args):
        words, first = shared_words(builder), make_index(builder, args)
        found = ir.Constant(ir.ArrayType(_I64, count), ir.Undefined)
        for i in range(count):
            index = builder.add(first, ir.Constant(_I64, i))
            at = builder.gep(words, [ir.Constant(_I64, 0), index], inbounds=True)
            found = builder.insert_value(found, builder.load(at, typ=_I64), i)
        return found

    return kind, load


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
    _store_shared(_ROWS + 3 * lane, a)
    _store_shared(_ROWS + 1 + 3 * lane, b)
    _store_shared(_ROWS + 2 + 3 * lane, c)


def _get_row(typingctx, lane, a, b, c):
    def row(builder, args):
        at = builder.mul(args[0], ir.Constant(_I64, 3))
        return builder.add(at, ir.Constant(_I64, _ROWS))

    kind, load = _several(3, row)
    return kind(types.int64, a, b, c), load


get_block_row = intrinsic(_get_row)


@device
def put_block_4(a, b, c, d):
    """In words of their own: whoever broadcasts meanwhile does no harm. By the leading warp."""
    if lane_id() == 0:
        _store_shared(_PUT, a)
        _store_shared(_PUT + 1, b)
        _store_shared(_PUT + 2, c)
        _store_shared(_PUT + 3, d)


@device
def put_block_4_same(a, b, c, d):
    """``put_block_4`` of what all lanes have: each stores it, which costs less than that one lane
    does it for all."""
    _store_shared(_PUT, a)
    _store_shared(_PUT + 1, b)
    _store_shared(_PUT + 2, c)
    _store_shared(_PUT + 3, d)


def _get_4(typingctx, a, b, c, d):
    kind, load = _several(4, lambda builder, args: ir.Constant(_I64, _PUT))
    return kind(a, b, c, d), load


get_block_4 = intrinsic(_get_4)


@device
def put_block_note(index, value):
    """Keeps a value for the threads of the block, in one of NOTES words. What is there before the
    first one is not defined."""
    _store_shared(_NOTES + index, value)


@device
def get_block_note(index):
    return _load_shared(_NOTES + index)
