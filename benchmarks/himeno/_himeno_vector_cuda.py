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


@intrinsic
def multiprocessor(typingctx):
    """Number of the multiprocessor that the calling thread runs on."""

    def emit(context, builder, sig, args):
        kind = ir.FunctionType(_I32, [])
        number = builder.call(ir.InlineAsm(kind, "mov.u32 $0, %smid;", "=r"), [])
        return builder.zext(number, _I64)

    return types.int64(), emit


@device
def take(counter):
    """The next number of ``counter[0]``, int64, that all blocks share; one thread."""
    return cuda.atomic.add(counter, 0, 1)


def _pointer(context, builder, kind, array, offset, space):
    """Address of an element, as a pointer into the address space that is known to hold it."""
    data = context.make_array(kind)(context, builder, array).data
    known = builder.addrspacecast(data, ir.PointerType(data.type.pointee, addrspace=space))
    return builder.gep(known, [offset])


def _address(context, builder, kind, array, offset):
    data = context.make_array(kind)(context, builder, array).data
    return builder.ptrtoint(builder.gep(data, [offset]), _I64)


def _four(context, builder, values):
    return context.make_tuple(builder, _FOUR, values)


def _asm(builder, template, constraints, result, args, volatile=True):
    kind = ir.FunctionType(result, [a.type for a in args])
    if volatile:
        constraints += "," * bool(constraints) + "~{memory}"
    return builder.call(ir.InlineAsm(kind, template, constraints, side_effect=volatile), args)


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


def _peeker(order, about):
    @intrinsic
    def peek(typingctx, words, index):
        def emit(context, builder, sig, args):
            address = _address(context, builder, words, args[0], args[1])
            return _asm(builder, f"ld.{order}.gpu.u64 $0, [$1];", "=l,l", _I64, [address])

        return types.int64(words, types.int64), emit

    peek.__doc__ = about
    return peek


peek = _peeker("relaxed", "A word, int64, that other blocks add to: as it is now.")
acquire = _peeker("acquire", "``peek`` before all that this thread does after it.")


@intrinsic
def arrive(typingctx, words, index):
    """Adds 1 to a word behind all that this thread has done or seen done: what it was before."""

    def emit(context, builder, sig, args):
        address = _address(context, builder, words, args[0], args[1])
        return _asm(builder, "atom.release.gpu.add.u64 $0, [$1], 1;", "=l,l", _I64, [address])

    return types.int64(words, types.int64), emit


def _poker(order, about):
    @intrinsic
    def poke(typingctx, words, index, value):
        def emit(context, builder, sig, args):
            address = _address(context, builder, words, args[0], args[1])
            text = f"st.{order}.gpu.u64 [$0], $1;"
            _asm(builder, text, "l,l", ir.VoidType(), [address, args[2]])
            return context.get_dummy_value()

        return types.void(words, types.int64, types.int64), emit

    poke.__doc__ = about
    return poke


poke = _poker("relaxed", "Sets a word that only this thread sets, for others to ``peek`` at.")
release = _poker("release", "``poke`` behind all that this thread has done or seen done.")


def _storer(space):
    @intrinsic
    def store(typingctx, array, offset, a, b, c, d):
        """Writes elements ``offset .. offset + 3`` with one store."""

        def emit(context, builder, sig, args):
            at = _pointer(context, builder, array, args[0], args[1], space)
            kind = ir.VectorType(_F32, 4)
            value = ir.Constant(kind, ir.Undefined)
            for i in range(4):
                value = builder.insert_element(value, args[2 + i], ir.Constant(_I32, i))
            wide = builder.bitcast(at, ir.PointerType(kind, addrspace=space))
            builder.store(value, wide, align=16)
            return context.get_dummy_value()

        four = [types.float32] * 4
        return types.void(array, types.int64, *four), emit

    return store


store4 = _storer(_GLOBAL)
store4_shared = _storer(_SHARED)
