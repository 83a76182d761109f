"""Atomic updates of one element in memory that other GPUs map (any thread).

What the GPU has an instruction for is one instruction, carried out where the memory is. All else is
a loop of compare and swap around ``reduce.combine``: elements of one and two bytes in the word of
four bytes that they lie in. Both are atomic with each other.

A kind of update is a word as of a reduction (``gmpi/contract/collectives.py``), whose operation may
also be REPLACE or NO_OP; of a complex number each half is an element.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import ctypes

from device_lib.move.reduce import combine
from device_lib.platform.primitives import SIMULATOR, device, int64, spin
from gmpi.contract import collectives
from gmpi.contract.constants import BAND, BOR, BXOR, MAX, MIN, NO_OP, REPLACE, SUM

_reduction_word = device(collectives.reduction_word)
_COMPLEX = collectives.COMPLEX_FLOATS | collectives.COMPLEX_DOUBLES
NOT_ALIKE = -2  # in place of a kind of update: the elements of the two sides are not of one type
_REPLACES = 14  # the operation in a kind of update
_LOADS = 15
_COPIED = (
    collectives.UNSIGNED << collectives.CLASS_SHIFT
    | collectives.ALLREDUCE << collectives.KIND_SHIFT
)


@device
def kind_of(op, datatype, fetches):
    """How an element of a predefined datatype is updated; NOT_OURS: it cannot be, as a whole.

    Args:
        fetches: whether what was there before is wanted: of a complex number, both halves.
    """
    size = int64(datatype) >> 8 & 0xFF
    halves = _COMPLEX >> (datatype & 0x3F) & 1
    if op == REPLACE or op == NO_OP:
        shift = (size > 1) + (size > 2) + (size > 4)
        if size != 1 << shift or halves != 0:
            return collectives.NOT_OURS
        return (
            (_REPLACES if op == REPLACE else _LOADS)
            | int64(shift) << collectives.SIZE_SHIFT
            | _COPIED
        )
    if halves != 0 and (op != SUM or fetches != 0):
        return collectives.NOT_OURS
    return _reduction_word(int64(op), int64(datatype))


@device
def may_compare(datatype):
    """Whether GMPI_Compare_and_swap takes a predefined datatype: integers, logical ones, bytes
    (MPI 4.1 section 12.3.6)."""
    if kind_of(REPLACE, datatype, 1) == collectives.NOT_OURS:
        return False
    what = _reduction_word(int64(SUM), int64(datatype))
    logical = collectives.BOOLEANS >> (datatype & 0x3F) & 1 != 0
    return (
        logical
        or what == collectives.NOT_OURS
        or what >> collectives.CLASS_SHIFT & 3 != collectives.REAL
    )


@device
def loads(what):
    """Whether nothing is changed."""
    return what & collectives.OP_MASK == _LOADS


@device
def shift_of(what):
    """log2 of the bytes of what is updated at once."""
    return what >> collectives.SIZE_SHIFT & 3


@device
def is_usual_8(what):
    """Whether it is a sum of integers, a replacement or a load, of 8 bytes: what counters, locks
    and flags need."""
    op = what & collectives.OP_MASK
    whole = what >> collectives.CLASS_SHIFT & 3 != collectives.REAL
    usual = ((op == SUM) & whole) | (op == _REPLACES) | (op == _LOADS)
    return usual & (shift_of(what) == 3)


@device
def _mask_of(shift):
    return (1 << (8 << shift)) - 1


@device
def _next(what, old, value):
    """What an element becomes."""
    op = what & collectives.OP_MASK
    if op == _REPLACES:
        return value
    if op == _LOADS:
        return old
    return combine(what, old, value)


if SIMULATOR:
    from device_lib.platform.atomics_sim import cas_4_sys, cas_8_sys, load_4_sys, load_8_sys

else:
    from device_lib.platform import atomics_cuda
    from device_lib.platform.atomics_cuda import cas_4_sys, cas_8_sys, load_4_sys, load_8_sys


@device
def _fetch_by_loop(what, address, value):
    """Updates an element; what was there before."""
    shift = shift_of(what)
    if shift == 3:
        old = load_8_sys(address)
        found = cas_8_sys(address, old, _next(what, old, value))
        while found != old:
            old = found
            found = cas_8_sys(address, old, _next(what, old, value))
        return old
    at = address & ~3
    bits = (address & 3) << 3
    mask = _mask_of(shift)
    others = ~(mask << bits) & 0xFFFFFFFF
    old = int64(load_4_sys(at))
    mine = old >> bits & mask
    found = cas_4_sys(at, old, old & others | (_next(what, mine, value) & mask) << bits)
    while found != old:
        old = found
        mine = old >> bits & mask
        found = cas_4_sys(at, old, old & others | (_next(what, mine, value) & mask) << bits)
    return mine


@device
def compare_and_swap(shift, address, expected, value):
    """Replaces an element that is as expected; what was there before.

    Args:
        shift: log2 of its bytes.
    """
    if shift == 3:
        return cas_8_sys(address, expected, value)
    at = address & ~3
    bits = (address & 3) << 3
    mask = _mask_of(shift)
    others = ~(mask << bits) & 0xFFFFFFFF
    old = int64(load_4_sys(at))
    mine = old >> bits & mask
    trying = mine == expected & mask
    while trying:
        found = cas_4_sys(at, old, old & others | (value & mask) << bits)
        trying = found != old
        if trying:  # perhaps by what lies beside it
            old = found
            mine = old >> bits & mask
            trying = mine == expected & mask
            spin()
    return mine


if SIMULATOR:

    def fetch(what, address, value):
        if shift_of(what) == 3:
            value = ctypes.c_int64(value).value  # as what is loaded
        return _fetch_by_loop(what, address, value)

    update = fetch_usual_8 = fetch

else:

    def _native(number, narrow):
        """The instructions of all operations: of those that fetch or not, of 8 bytes or of 4."""
        return [
            pair[narrow][number]
            for pair in (
                atomics_cuda.ADD,
                atomics_cuda.ADD_REAL,
                atomics_cuda.MIN_SIGNED,
                atomics_cuda.MAX_SIGNED,
                atomics_cuda.MIN_UNSIGNED,
                atomics_cuda.MAX_UNSIGNED,
                atomics_cuda.AND,
                atomics_cuda.OR,
                atomics_cuda.XOR,
            )
        ]

    def _make(narrow, fetches):
        add, add_real, low, high, low_unsigned, high_unsigned, both, either, differ = _native(
            0 if fetches else 1, narrow
        )
        exchange = atomics_cuda.exchange_4 if narrow else atomics_cuda.exchange_8
        store = atomics_cuda.store_4_sys if narrow else atomics_cuda.store_8_sys
        load = load_4_sys if narrow else load_8_sys

        @device
        def fetch_natively(what, address, value):
            op = what & collectives.OP_MASK
            kind = what >> collectives.CLASS_SHIFT & 3
            if op == SUM:
                return add_real(address, value) if kind == collectives.REAL else add(address, value)
            if op == _REPLACES:
                return exchange(address, value)
            if op == _LOADS:
                return load(address)
            if op == BAND:
                return both(address, value)
            if op == BOR:
                return either(address, value)
            if op == BXOR:
                return differ(address, value)
            if op == MIN and kind == collectives.SIGNED:
                return low(address, value)
            if op == MAX and kind == collectives.SIGNED:
                return high(address, value)
            if op == MIN and kind == collectives.UNSIGNED:
                return low_unsigned(address, value)
            if op == MAX and kind == collectives.UNSIGNED:
                return high_unsigned(address, value)
            return _fetch_by_loop(what, address, value)

        @device
        def update_natively(what, address, value):
            op = what & collectives.OP_MASK
            kind = what >> collectives.CLASS_SHIFT & 3
            if op == SUM and kind == collectives.REAL:
                add_real(address, value)
            elif op == SUM:
                add(address, value)
            elif op == _REPLACES:
                store(address, value)
            elif op == BAND:
                both(address, value)
            elif op == BOR:
                either(address, value)
            elif op == BXOR:
                differ(address, value)
            elif op == MIN and kind == collectives.SIGNED:
                low(address, value)
            elif op == MAX and kind == collectives.SIGNED:
                high(address, value)
            elif op == MIN and kind == collectives.UNSIGNED:
                low_unsigned(address, value)
            elif op == MAX and kind == collectives.UNSIGNED:
                high_unsigned(address, value)
            elif op != _LOADS:
                _fetch_by_loop(what, address, value)

        return fetch_natively if fetches else update_natively

    _fetch_8, _fetch_4 = _make(0, True), _make(1, True)
    (_add_8, _), _ = atomics_cuda.ADD
    _update_8, _update_4 = _make(0, False), _make(1, False)

    @device
    def fetch(what, address, value):
        """Updates an element; the bits that were there before."""
        shift = shift_of(what)
        if shift == 3:
            return _fetch_8(what, address, value)
        if shift == 2:
            return _fetch_4(what, address, value)
        return _fetch_by_loop(what, address, value)

    @device
    def fetch_usual_8(what, address, value):
        """The same where ``is_usual_8`` says so."""
        op = what & collectives.OP_MASK
        if op == SUM:
            return _add_8(address, value)
        if op == _REPLACES:
            return atomics_cuda.exchange_8(address, value)
        return load_8_sys(address)

    @device
    def update(what, address, value):
        """The same where nobody asks what was there."""
        shift = shift_of(what)
        if shift == 3:
            _update_8(what, address, value)
        elif shift == 2:
            _update_4(what, address, value)
        else:
            _fetch_by_loop(what, address, value)
