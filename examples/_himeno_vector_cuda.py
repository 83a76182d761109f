"""The CUDA twin of ``_himeno_vector``."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from llvmlite import ir
from numba import cuda
from numba.cuda import types
from numba.cuda.extending import intrinsic

_F32 = ir.FloatType()
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)
_GLOBAL, _SHARED = 1, 3
_FOUR = types.UniTuple(types.float32, 4)


def device(fn):
    """Marks a device function that becomes part of its caller."""
    return cuda.jit(device=True, forceinline=True)(fn)


@device
def grid_blocks():
    """Blocks of a one-dimensional grid."""
    return types.int64(cuda.gridDim.x)


@device
def take(counter):
    """The next number of an int64 counter that all blocks share; one thread."""
    return cuda.atomic.add(counter, 0, 1)


def _pointer(context, builder, kind, array, offset, space):
    """Address of an element, as a pointer into the address space that is known to hold it."""
    data = context.make_array(kind)(context, builder, array).data
    known = builder.addrspacecast(data, ir.PointerType(_F32, addrspace=space))
    return builder.gep(known, [offset])


def _address(context, builder, kind, array, offset):
    data = context.make_array(kind)(context, builder, array).data
    return builder.ptrtoint(builder.gep(data, [offset]), _I64)


def _four(context, builder, values):
    return context.make_tuple(builder, _FOUR, values)


def _asm(builder, template, constraints, result, args, volatile=True):
    kind = ir.FunctionType(result, [a.type for a in args])
    clobber = ",~{memory}" if volatile else ""
    return builder.call(
        ir.InlineAsm(kind, template, constraints + clobber, side_effect=volatile), args
    )


@intrinsic
def product(typingctx, x, y):
    """x * y, rounded: the compiler does not fuse it with an addition, so that the bits of a
    result do not depend on the code around, and are those of a CPU."""

    def emit(context, builder, sig, args):
        function = builder.module.declare_intrinsic(
            "llvm.nvvm.mul.rn.f", (), ir.FunctionType(_F32, [_F32, _F32])
        )
        return builder.call(function, args)

    return types.float32(types.float32, types.float32), emit


def _loader(space):
    @intrinsic
    def load(typingctx, array, offset):
        """Elements ``offset .. offset + 3``."""

        def emit(context, builder, sig, args):
            at = _pointer(context, builder, array, args[0], args[1], space)
            wide = builder.bitcast(at, ir.PointerType(ir.VectorType(_F32, 4), addrspace=space))
            value = builder.load(wide, align=16, typ=ir.VectorType(_F32, 4))
            lanes = [builder.extract_element(value, ir.Constant(_I32, i)) for i in range(4)]
            return _four(context, builder, lanes)

        return _FOUR(array, types.int64), emit

    return load


load4 = _loader(_GLOBAL)
load4_shared = _loader(_SHARED)


@intrinsic
def load1(typingctx, array, offset):
    """One element, without the test for a negative index that ``array[offset]`` means."""

    def emit(context, builder, sig, args):
        at = _pointer(context, builder, array, args[0], args[1], _GLOBAL)
        return builder.load(at, align=4, typ=_F32)

    return types.float32(array, types.int64), emit


@intrinsic
def load4_once(typingctx, array, offset):
    """``load4`` of data that no thread writes and that will not be read again soon: past L1, and
    the first to leave L2, where the pressure of three planes should stay instead."""

    def emit(context, builder, sig, args):
        address = _address(context, builder, array, args[0], args[1])
        result = _asm(
            builder,
            "{ .reg .b64 a, p; cvta.to.global.u64 a, $4; "
            "createpolicy.fractional.L2::evict_first.b64 p, 1.0; "
            "ld.global.nc.L1::no_allocate.L2::cache_hint.v4.f32 {$0, $1, $2, $3}, [a], p; }",
            "=f,=f,=f,=f,l",
            ir.LiteralStructType([_F32] * 4),
            [address],
            volatile=False,
        )
        return _four(context, builder, [builder.extract_value(result, i) for i in range(4)])

    return _FOUR(array, types.int64), emit


@intrinsic
def store4(typingctx, array, offset, a, b, c, d):
    """Writes four elements with one store."""

    def emit(context, builder, sig, args):
        at = _pointer(context, builder, array, args[0], args[1], _GLOBAL)
        kind = ir.VectorType(_F32, 4)
        value = ir.Constant(kind, ir.Undefined)
        for i in range(4):
            value = builder.insert_element(value, args[2 + i], ir.Constant(_I32, i))
        builder.store(value, builder.bitcast(at, ir.PointerType(kind, addrspace=_GLOBAL)), align=16)
        return context.get_dummy_value()

    four = [types.float32] * 4
    return types.void(array, types.int64, *four), emit


@intrinsic
def prefetch(typingctx, array, offset, count):
    """Brings ``count`` elements, a multiple of 4, to L2; one thread, does not wait."""

    def emit(context, builder, sig, args):
        address = _address(context, builder, array, args[0], args[1])
        _asm(
            builder,
            "{ .reg .b64 a; .reg .b32 n; cvta.to.global.u64 a, $0; cvt.u32.u64 n, $1; "
            "shl.b32 n, n, 2; cp.async.bulk.prefetch.L2.global [a], n; }",
            "l,l",
            ir.VoidType(),
            [address, args[2]],
        )
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), emit


# --- barriers in shared memory that bulk copies complete (PTX: mbarrier) --------------------------
# ``bars`` is an int64 array in shared memory, one element a barrier.


def _barrier_address(context, builder, kind, array, index):
    data = context.make_array(kind)(context, builder, array).data
    shared = builder.addrspacecast(data, ir.PointerType(_I64, addrspace=_SHARED))
    return builder.ptrtoint(builder.gep(shared, [index]), _I32)


@intrinsic
def barrier_init(typingctx, bars, index):
    """Prepares a barrier that one arrival per phase completes; one thread, then a block barrier."""

    def emit(context, builder, sig, args):
        at = _barrier_address(context, builder, bars, args[0], args[1])
        _asm(
            builder,
            "mbarrier.init.shared::cta.b64 [$0], 1; fence.mbarrier_init.release.cluster; "
            "fence.proxy.async.shared::cta;",
            "r",
            ir.VoidType(),
            [at],
        )
        return context.get_dummy_value()

    return types.void(bars, types.int64), emit


@intrinsic
def barrier_expect(typingctx, bars, index, nbytes):
    """Arrives; the phase ends when ``nbytes`` bytes of bulk copies have come. One thread."""

    def emit(context, builder, sig, args):
        at = _barrier_address(context, builder, bars, args[0], args[1])
        _asm(
            builder,
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;",
            "r,r",
            ir.VoidType(),
            [at, builder.trunc(args[2], _I32)],
        )
        return context.get_dummy_value()

    return types.void(bars, types.int64, types.int64), emit


@intrinsic
def barrier_done(typingctx, bars, index, parity):
    """Whether the phase of this parity has ended; waits a bounded time before it says no."""

    def emit(context, builder, sig, args):
        at = _barrier_address(context, builder, bars, args[0], args[1])
        done = _asm(
            builder,
            "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [$1], $2; "
            "selp.u32 $0, 1, 0, p; }",
            "=r,r,r",
            _I32,
            [at, builder.trunc(args[2], _I32)],
        )
        return builder.icmp_unsigned("!=", done, ir.Constant(_I32, 0))

    return types.boolean(bars, types.int64, types.int64), emit


@intrinsic
def bulk_copy(typingctx, target, target_offset, source, offset, count, bars, index):
    """Copies ``count`` elements from global to shared memory and reports to a barrier.

    One thread; does not wait. Offsets and count are multiples of 4. The data should be read once:
    it is the first to leave L2.
    """

    def emit(context, builder, sig, args):
        data = context.make_array(target)(context, builder, args[0]).data
        shared = builder.addrspacecast(data, ir.PointerType(_F32, addrspace=_SHARED))
        to = builder.ptrtoint(builder.gep(shared, [args[1]]), _I32)
        address = _address(context, builder, source, args[2], args[3])
        nbytes = builder.shl(builder.trunc(args[4], _I32), ir.Constant(_I32, 2))
        at = _barrier_address(context, builder, bars, args[5], args[6])
        _asm(
            builder,
            "{ .reg .b64 a, p; cvta.to.global.u64 a, $1; "
            "createpolicy.fractional.L2::evict_first.b64 p, 1.0; "
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
            "[$0], [a], $2, [$3], p; }",
            "r,l,r,r",
            ir.VoidType(),
            [to, address, nbytes, at],
        )
        return context.get_dummy_value()

    number = types.int64
    return types.void(target, number, source, number, number, bars, number), emit
