"""Device functions, and intrinsics around one piece of inline PTX.

Why PTX and not Numba's own operations: Numba has no loads or stores with an order and a scope, its
``cuda.atomic`` fences nothing, and one 16-byte access that cannot tear does not exist in Python.
"""

# mypy: disable-error-code="no-untyped-def,misc"
from __future__ import annotations

from llvmlite import ir
from numba import cuda
from numba.cuda import types
from numba.cuda.extending import intrinsic

_I64 = ir.IntType(64)
_I32 = ir.IntType(32)


def device(fn):
    """Marks a device function; called from kernels and other device functions only."""
    return cuda.jit(device=True)(fn)


def pack_tuple(context, builder, returns, values):
    return context.make_tuple(builder, returns, values)


def ptx(template: str, constraints: str, returns, arity: int, pure: bool = False):
    """An intrinsic of ``arity`` int64 arguments around one piece of inline PTX.

    Every one is volatile and clobbers memory: the compiler keeps them in program order among
    each other and moves no ordinary access across. Not so a ``pure`` one, of whose calls with equal
    arguments the compiler may keep one, before a loop. Where the PTX gives 32 bits (``=r``) the
    caller gets an int64 of which the compiler knows that the upper half is 0.
    """
    outputs = [_I32 if c.endswith("r") else _I64 for c in constraints.split(",") if c[:1] == "="]

    def emit(context, builder, sig, args):
        if returns == types.void:
            result = ir.VoidType()
        elif len(outputs) == 1:
            result = outputs[0]
        else:
            result = ir.LiteralStructType(outputs)
        function = ir.FunctionType(result, [_I64] * arity)
        text = constraints if pure else ",".join(filter(None, (constraints, "~{memory}")))
        out = builder.call(ir.InlineAsm(function, template, text, side_effect=not pure), args)
        if returns == types.void:
            return context.get_dummy_value()
        if len(outputs) == 1:
            return builder.zext(out, _I64) if outputs[0] == _I32 else out
        values = [builder.extract_value(out, i) for i in range(len(outputs))]
        values = [builder.zext(v, _I64) if v.type == _I32 else v for v in values]
        return pack_tuple(context, builder, returns, values)

    visible = types.int64 if returns == types.uint32 else returns
    return intrinsic(_TYPINGS[arity](visible(*[types.int64] * arity), emit))


# An intrinsic's arguments are those that its function names.
_TYPINGS = (
    lambda *found: lambda typingctx: found,
    lambda *found: lambda typingctx, a: found,
    lambda *found: lambda typingctx, a, b: found,
    lambda *found: lambda typingctx, a, b, c: found,
    lambda *found: lambda typingctx, a, b, c, d: found,
    lambda *found: lambda typingctx, a, b, c, d, e: found,
    lambda *found: lambda typingctx, a, b, c, d, e, f: found,
)
