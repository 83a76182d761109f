"""Loads and stores of packing: words of 4, 8 or 16 bytes, and runs of a few bytes anywhere.

Every word is a pair (low, high); only words of 16 bytes have a high half, and the compiler drops
the other ones. Addresses are generic: the packed side may be mapped memory or another GPU's, the
user's side shared memory.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import ctypes
from typing import Any

from device_lib.platform.primitives import SIMULATOR, device

if SIMULATOR:
    from device_lib.platform.primitives_sim import load_16, store_16_if
    from device_lib.simulator.addresses import BYTES, HALVES, MEMORY, WORDS

    _ALL = (1 << 64) - 1
    _word_at = ctypes.c_int64.from_address
    _half_at = ctypes.c_int32.from_address

    def _store_16_if(address, low, high, wanted):
        store_16_if(address, int(low), int(high), wanted)

    def _load_8(address):
        return WORDS[address >> 3], 0

    def _load_4(address):
        return HALVES[address >> 2], 0

    def _storer(at):
        def store(address, low, high, wanted):
            if wanted:
                at(address).value = int(low)

        return store

    def gather(address, count):
        """The ``count`` (0..8) bytes at an address as the low bytes of a word."""
        return int.from_bytes(BYTES[address : address + count], "little")

    def scatter(address, count, word):
        """Stores the ``count`` (0..8) low bytes of a word at an address."""
        MEMORY[address : address + count] = (int(word) & _ALL).to_bytes(8, "little")[:count]

    def _if(load):
        return lambda address, wanted: load(address) if wanted else (0, 0)

    LOAD: dict[int, Any] = {4: _load_4, 8: _load_8, 16: load_16}
    LOAD_STAGED = LOAD
    LOAD_ONCE_IF = {width: _if(load) for width, load in LOAD.items()}

    def load_once_4(address):
        return HALVES[address >> 2]

    def load_once_8(address):
        return WORDS[address >> 3]

    gather_staged = gather
    STORE_IF = {4: _storer(_half_at), 8: _storer(_word_at), 16: _store_16_if}
    STORE_GLOBAL_IF = STORE_IF

else:
    from numba.cuda import types

    from device_lib.platform.primitives import load_4_if
    from device_lib.platform.primitives_cuda import (
        load_4,
        load_8,
        load_16,
        load_16_sys,
        store_1,
        store_4,
        store_8,
        store_16_if,
    )
    from device_lib.platform.ptx import ptx

    load_8_sys = ptx("ld.relaxed.sys.global.u64 $0, [$1];", "=l,l", types.int64, 1)
    load_4_sys = ptx("ld.relaxed.sys.global.u32 $0, [$1];", "=l,l", types.int64, 1)
    _load_4_sys_if = ptx(
        "{ .reg .pred p; setp.ne.u64 p, $2, 0; mov.b32 $0, 0; "
        "@p ld.relaxed.sys.global.u32 $0, [$1]; }",
        "=&r,l,l",
        types.uint32,
        2,
    )
    _store_8_if = ptx(
        "{ .reg .pred p; setp.ne.u64 p, $2, 0; @p st.u64 [$0], $1; }", "l,l,l", types.void, 3
    )
    _store_4_if = ptx(
        "{ .reg .pred p; setp.ne.u64 p, $2, 0; @p st.u32 [$0], $1; }", "l,l,l", types.void, 3
    )
    _store_2 = ptx("st.u16 [$0], $1;", "l,l", types.void, 2)

    # The bodies for all widths move pairs of 8 bytes; of the narrow ones, the second is not there.

    def _as_pair(load):
        @device
        def load_pair(address):
            return load(address), 0

        return load_pair

    def _as_pair_if(load_if):
        @device
        def load_pair_if(address, wanted):
            return load_if(address, wanted), 0

        return load_pair_if

    def _of_pair_if(store_if):
        @device
        def store_pair_if(address, low, high, wanted):
            store_if(address, low, wanted)

        return store_pair_if

    # Global memory that nobody writes while the kernel runs, and that is read once. Where it is
    # not wanted, what comes back is undefined.
    _once = "{ .reg .pred p; setp.ne.u64 p, $%d, 0; @p ld.global.nc%s; }"
    _pair = types.UniTuple(types.int64, 2)
    _load_once_16_if = ptx(_once % (3, ".v2.u64 {$0, $1}, [$2]"), "=l,=l,l,l", _pair, 2)
    _load_once_8_if = ptx(_once % (2, ".u64 $0, [$1]"), "=l,l,l", types.int64, 2)
    _load_once_4_if = ptx(_once % (2, ".u32 $0, [$1]"), "=r,l,l", types.uint32, 2)
    load_once_4 = ptx("ld.global.nc.u32 $0, [$1];", "=r,l", types.uint32, 1)
    load_once_8 = ptx("ld.global.nc.u64 $0, [$1];", "=l,l", types.int64, 1)
    _global = "{ .reg .pred p; setp.ne.u64 p, $%d, 0; @p st.global%s; }"
    _store_global_16_if = ptx(_global % (3, ".v2.u64 [$0], {$1, $2}"), "l,l,l,l", types.void, 4)
    _store_global_8_if = ptx(_global % (2, ".u64 [$0], $1"), "l,l,l", types.void, 3)
    _store_global_4_if = ptx(_global % (2, ".u32 [$0], $1"), "l,l,l", types.void, 3)

    LOAD_ONCE_IF = {
        4: _as_pair_if(_load_once_4_if),
        8: _as_pair_if(_load_once_8_if),
        16: _load_once_16_if,
    }
    STORE_GLOBAL_IF = {
        4: _of_pair_if(_store_global_4_if),
        8: _of_pair_if(_store_global_8_if),
        16: _store_global_16_if,
    }
    LOAD = {4: _as_pair(load_4), 8: _as_pair(load_8), 16: load_16}
    # The packed side of an unpack in a running kernel: past L1, where lines of the staging
    # buffer's previous message may still be.
    LOAD_STAGED = {4: _as_pair(load_4_sys), 8: _as_pair(load_8_sys), 16: load_16_sys}
    STORE_IF = {4: _of_pair_if(_store_4_if), 8: _of_pair_if(_store_8_if), 16: store_16_if}

    def _make_gather(load_if):
        @device
        def gather(address, count):
            """The ``count`` (0..8) bytes at an address as the low bytes of a word.

            By aligned 4-byte loads of the words that hold them: up to three bytes before and
            after are read too, in the same allocation because those are aligned to more.
            """
            within = address & 3
            base = address - within
            end = within + count
            first = load_if(base, count > 0)
            second = load_if(base + 4, end > 4)
            third = load_if(base + 8, end > 8)
            word = first | second << 32
            if within != 0:
                bits = within << 3
                word = word >> bits & (1 << (64 - bits)) - 1 | third << (64 - bits)
            if count < 8:
                word &= (1 << (count << 3)) - 1
            return word

        return gather

    gather = _make_gather(load_4_if)
    gather_staged = _make_gather(_load_4_sys_if)

    @device
    def scatter(address, count, word):
        """Stores the ``count`` (0..8) low bytes of a word at an address, no byte beside them."""
        if count == 8 and address & 7 == 0:
            store_8(address, word)
        else:
            while count > 0:
                if address & 3 == 0 and count >= 4:
                    store_4(address, word)
                    address += 4
                    count -= 4
                    word = word >> 32
                elif address & 1 == 0 and count >= 2:
                    _store_2(address, word)
                    address += 2
                    count -= 2
                    word = word >> 16
                else:
                    store_1(address, word)
                    address += 1
                    count -= 1
                    word = word >> 8
