"""The CUDA twin of how a call sees a buffer: arrays, slices, tuples and addresses."""

# mypy: disable-error-code="no-untyped-def,misc"
from __future__ import annotations

from llvmlite import ir
from numba.cuda import types
from numba.cuda.core.errors import TypingError
from numba.cuda.extending import intrinsic
from numba.cuda.np.arrayobj import populate_array
from numba.cuda.np.numpy_support import as_dtype

from device_lib.platform.ptx import pack_tuple

_I64 = ir.IntType(64)
_I32 = ir.IntType(32)
_TRIPLE = types.UniTuple(types.int64, 3)


def _local(builder, kind):
    """Memory of the calling thread's stack. Numba's own is cleared first, by all threads, also by
    those that never come to where it is used: of 1024 threads that is 180 KB in an exchange."""
    with builder.goto_entry_block():
        return builder.alloca(kind)


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
            words = _local(builder, kind)
            builder.store(args[0], words)
            size = ir.Constant(_I64, 8 * buffer.count)
            address = builder.ptrtoint(words, _I64)
            return pack_tuple(context, builder, _TRIPLE, [address, size, ir.Constant(_I64, 0)])

        return _TRIPLE(types.UniTuple(types.int64, buffer.count)), from_tuple
    if isinstance(buffer, types.Integer):

        def from_address(context, builder, sig, args):
            unlimited = ir.Constant(_I64, 1 << 62)
            return pack_tuple(context, builder, _TRIPLE, [args[0], unlimited, ir.Constant(_I64, 0)])

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
        return pack_tuple(context, builder, _TRIPLE, [address, nbytes, builder.zext(strided, _I64)])

    return _TRIPLE(buffer), from_array


@intrinsic
def itemsize_of(typingctx, buffer):
    """Bytes of an element of an array of numbers; 0 for anything else, such as an address."""
    size = 0
    if isinstance(buffer, types.Array) and isinstance(buffer.dtype, types.Number | types.Boolean):
        size = as_dtype(buffer.dtype).itemsize

    def emit(context, builder, sig, args):
        return ir.Constant(_I64, size)

    return types.int64(buffer), emit


def _array_at(dtype):
    """An intrinsic: (address) -> an array of ``dtype`` that begins there, of unknown, hence
    unlimited, length."""
    kind = types.Array(dtype, 1, "C")

    def emit(context, builder, sig, args):
        size = ir.Constant(_I64, dtype.bitwidth // 8)
        made = context.make_array(kind)(context, builder)
        pointer = context.data_model_manager[dtype].get_data_type().as_pointer()
        populate_array(
            made,
            data=builder.inttoptr(args[0], pointer),
            shape=[ir.Constant(_I64, 1 << 48)],
            strides=[size],
            itemsize=size,
            meminfo=None,
        )
        return made._getvalue()

    return intrinsic(lambda typingctx, address: (kind(types.int64), emit))


int32_array_at = _array_at(types.int32)
int64_array_at = _array_at(types.int64)


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
        words = _local(builder, ir.ArrayType(_I64, 4 + 2 * rank))

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
