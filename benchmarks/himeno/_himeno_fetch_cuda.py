"""The CUDA twin of ``_himeno_fetch``."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from _himeno_vector_cuda import _I32, _SHARED, _address, _asm, _pointer, device
from llvmlite import ir
from numba import cuda
from numba.cuda import types
from numba.cuda.extending import intrinsic

_VOID = ir.VoidType()


def _shared(context, builder, kind, array, offset):
    """Address of an element in the window of shared memory, 32 bits."""
    return builder.ptrtoint(_pointer(context, builder, kind, array, offset, _SHARED), _I32)


def _narrow(builder, value):
    return builder.trunc(value, _I32)


@intrinsic
def _start(typingctx, full, slot):
    def emit(context, builder, sig, args):
        at = _shared(context, builder, sig.args[0], args[0], args[1])
        _asm(builder, "mbarrier.init.shared.b64 [$0], 1;", "r", _VOID, [at])
        return context.get_dummy_value()

    return types.void(full, types.int64), emit


@intrinsic
def _started(typingctx):
    """What this thread has initialized is seen by copies."""

    def emit(context, builder, sig, args):
        _asm(builder, "fence.mbarrier_init.release.cluster;", "", _VOID, [])
        return context.get_dummy_value()

    return types.void(), emit


@device
def prepare(full, slots):
    """Makes the barriers; one thread, before a barrier of the block."""
    for slot in range(slots):
        _start(full, slot)
    _started()


@intrinsic
def _fetch(typingctx, held, to, source, at, nbytes, full, slot):
    def emit(context, builder, sig, args):
        barrier = _shared(context, builder, sig.args[5], args[5], args[6])
        into = _shared(context, builder, sig.args[0], args[0], args[1])
        begin = _address(context, builder, sig.args[2], args[2], args[3])
        _asm(
            builder,
            "{ .reg .b64 a, p; cvta.to.global.u64 a, $1; "
            "createpolicy.fractional.L2::evict_first.b64 p, 1.0; "
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
            "[$0], [a], $2, [$3], p; }",
            "r,l,r,r",
            _VOID,
            [into, begin, _narrow(builder, args[4]), barrier],
        )
        return context.get_dummy_value()

    word = types.int64
    return types.void(held, word, source, word, word, full, word), emit


@device
def fetch(held, to, source, at, elements, full, slot):
    """Starts the copy of ``elements`` of ``source`` from ``at`` to ``held[to:]``, both float32 and
    multiples of 4; one thread, when nobody reads the slot any more. What is read once leaves L2
    first."""
    _fetch(held, to, source, at, 4 * elements, full, slot)


@intrinsic
def _expect(typingctx, full, slot, nbytes):
    def emit(context, builder, sig, args):
        at = _shared(context, builder, sig.args[0], args[0], args[1])
        nbytes = _narrow(builder, args[2])
        text = "mbarrier.arrive.expect_tx.shared.b64 _, [$0], $1;"
        _asm(builder, text, "r,r", _VOID, [at, nbytes])
        return context.get_dummy_value()

    return types.void(full, types.int64, types.int64), emit


@device
def expect(full, slot, elements):
    """How much is copied into a slot before it is full, which may be nothing; one thread, before
    the copies."""
    _expect(full, slot, 4 * elements)


@intrinsic
def _is_full(typingctx, full, slot, parity):
    def emit(context, builder, sig, args):
        at = _shared(context, builder, sig.args[0], args[0], args[1])
        return _asm(
            builder,
            "{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [$1], $2; "
            "selp.b32 $0, 1, 0, p; }",
            "=r,r,r",
            _I32,
            [at, _narrow(builder, args[2])],
        )

    return types.int32(full, types.int64, types.int64), emit


@device
def await_full(full, slot, phase):
    """Returns when the slot has been filled ``phase + 1`` times; every thread that reads it."""
    while _is_full(full, slot, phase & 1) == 0:
        pass


@intrinsic
def _prefetch(typingctx, source, at, nbytes):
    def emit(context, builder, sig, args):
        begin = _address(context, builder, sig.args[0], args[0], args[1])
        _asm(
            builder,
            "{ .reg .b64 a; cvta.to.global.u64 a, $0; cp.async.bulk.prefetch.L2.global [a], $1; }",
            "l,r",
            _VOID,
            [begin, _narrow(builder, args[2])],
        )
        return context.get_dummy_value()

    return types.void(source, types.int64, types.int64), emit


@device
def prefetch(source, at, elements):
    """Asks L2 to have these elements, multiples of 4; one thread."""
    _prefetch(source, at, 4 * elements)


@intrinsic
def _leave(typingctx, freed, slot):
    def emit(context, builder, sig, args):
        at = _shared(context, builder, sig.args[0], args[0], args[1])
        text = "atom.acq_rel.cta.shared.add.u32 $0, [$1], 1;"
        return _asm(builder, text, "=r,r", _I32, [at])

    return types.int32(freed, types.int64), emit


@device
def leave(freed, slot):
    """A warp has read what it needs of a slot: how many have so far, for one lane; the others get
    0."""
    cuda.syncwarp()
    if cuda.laneid == 0:
        return _leave(freed, slot) + 1
    return 0


@device
def spin():
    """A turn of a loop that waits: sleeping would take longer than what is waited for."""
