"""Moving bytes between the user's buffer and staging, by all threads of a scope.

Staging is mapped host memory, 16-byte aligned. Over PCIe a load takes about 1 us and is worth a
full word; a store is posted. So every access to staging is 16 bytes whatever the alignment of the
user's buffer, and each thread keeps eight loads in flight before its first store. Loads from
staging bypass L1, where lines of the slot's previous message may still be.

Payloads of up to 12 bytes a packet travel in records and completions and are moved by one lane
each.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import struct
from functools import partial

from device_lib.platform.library import linked
from device_lib.platform.primitives import SIMULATOR, device, int64, opaque, uint32
from gmpi.contract.wire import PACKET_PAYLOAD

_WARP_BYTES = 32 * 16  # what the lanes of a full warp move in one access each
FEW_THREADS = 512  # more than so many have few registers each, and enough loads under way
SHORT_BYTES = 4 * _WARP_BYTES  # as much as ``copy_short`` has under way at once

if SIMULATOR:
    from device_lib.simulator.addresses import BYTES, MEMORY

    _WORD = (1 << 64) - 1
    _12_BYTES = struct.Struct("=QI")

    def load_payload(address, valid):
        if valid >= 12:
            return load_12(address)
        data = BYTES[address : address + valid] if valid > 0 else b""
        return int.from_bytes(data[:8], "little"), int.from_bytes(data[8:], "little")

    def store_payload(address, low, high, valid):
        if valid >= 12:
            store_12(address, low, high)
        elif valid > 0:
            data = _12_BYTES.pack(low & _WORD, high & 0xFFFFFFFF)
            MEMORY[address : address + valid] = data[:valid]

    store_bytes = store_payload

    def load_words(address, left, before):
        return load_payload(address + before, left - before)

    def store_words(address, low, high, left, before):
        store_payload(address + before, low, high, left - before)

    load_12 = partial(_12_BYTES.unpack_from, MEMORY)

    def store_12(address, low, high):
        _12_BYTES.pack_into(MEMORY, address, low & _WORD, high & 0xFFFFFFFF)

    def copy_to_staging(staging, source, nbytes, rank, size):
        begin = nbytes * rank // size
        end = nbytes * (rank + 1) // size
        MEMORY[staging + begin : staging + end] = BYTES[source + begin : source + end]

    copy_from_staging = copy_words = copy_to_staging

    def copy_short(target, staging, nbytes, lane):
        for at in range(lane * 16, nbytes, _WARP_BYTES):
            end = min(at + 16, nbytes)
            MEMORY[target + at : target + end] = BYTES[staging + at : staging + end]

else:
    from device_lib.move.streams_cuda import (
        gather_16,
        lean_scatter_stream,
        lean_stream,
        lean_stream_sys,
        scatter_stream,
        stream,
        stream_sys,
    )
    from device_lib.platform.primitives_cuda import (
        as_it_stands,
        load_1,
        load_1_sys,
        load_4,
        load_4_if,
        load_16_sys_if,
        store_1,
        store_4,
        store_4_if,
        store_16,
    )

    _7_BYTES = (1 << 56) - 1

    @device
    def _load_payload_bytes(address, valid):
        low = 0
        high = 0
        i = 0
        while i < valid and i < PACKET_PAYLOAD:
            byte = load_1(address + i) << (8 * (i & 7))
            if i < 8:
                low |= byte
            else:
                high |= byte
            i += opaque(1)
        return low, high

    @device
    def store_bytes(address, low, high, valid):
        """``store_payload`` byte by byte, to any address. Few instructions: who jumps over many
        waits until those behind them have come to the multiprocessor's nearest cache."""
        left = min(uint32(valid), uint32(PACKET_PAYLOAD))
        while left != 0:
            as_it_stands()
            store_1(address, low)
            low = low >> 8 & _7_BYTES | high << 56
            high >>= 8
            address += 1
            left = uint32(left - uint32(1))

    @device
    def load_payload(address, valid):
        """(low word, high word) of up to 12 bytes of a buffer; bytes past ``valid`` are 0."""
        if address & 3 != 0 or valid & 3 != 0:
            return _load_payload_bytes(address, valid)
        first = load_4_if(address, valid >= 4)  # all three under way at once
        second = load_4_if(address + 4, valid >= 8)
        third = load_4_if(address + 8, valid >= 12)
        return int64(first) | int64(second) << 32, int64(third)

    @device
    def store_payload(address, low, high, valid):
        """Stores the first ``valid`` (at most 12) bytes of a packet's payload to a buffer."""
        if address & 3 != 0 or valid & 3 != 0:
            store_bytes(address, low, high, valid)
        else:
            if valid >= 4:
                store_4(address, low)
            if valid >= 8:
                store_4(address + 4, low >> 32)
            if valid >= 12:
                store_4(address + 8, high)

    @device
    def load_words(address, left, before):
        """``load_payload`` of words at multiples of 4, as far as there are any: without a branch.

        Args:
            left: bytes from ``address`` on, less than 2**32.
            before: of these, before the packet's.
        """
        address += before
        first = load_4_if(address, left > uint32(before))
        second = load_4_if(address + 4, left > uint32(before + 4))
        third = load_4_if(address + 8, left > uint32(before + 8))
        return int64(first) | int64(second) << 32, int64(third)

    @device
    def store_words(address, low, high, left, before):
        """``store_payload``, likewise."""
        address += before
        store_4_if(address, low, left > uint32(before))
        store_4_if(address + 4, low >> 32, left > uint32(before + 4))
        store_4_if(address + 8, high, left > uint32(before + 8))

    @device
    def load_12(address):
        """``load_payload`` of a whole packet at a multiple of 4: without a branch."""
        return load_4(address) | load_4(address + 4) << 32, load_4(address + 8)

    @device
    def store_12(address, low, high):
        store_4(address, low)
        store_4(address + 4, low >> 32)
        store_4(address + 8, high)

    @device
    def _store_words(address, low, high, valid):
        """Stores the first ``valid`` (at most 16) bytes, a multiple of 4."""
        if valid >= 4:
            store_4(address, low)
        if valid >= 8:
            store_4(address + 4, low >> 32)
        if valid >= 12:
            store_4(address + 8, high)
        if valid >= 16:
            store_4(address + 12, high >> 32)

    @device
    def copy_short(target, staging, nbytes, lane):
        """Copies at most SHORT_BYTES from staging to a buffer; all lanes of a full warp.

        Address and length are multiples of 4. Inline, with all loads under way at once.
        """
        at = staging + (lane << 4)
        to = target + (lane << 4)
        left = nbytes - (lane << 4)
        a0, b0 = load_16_sys_if(at, left > 0)
        a1, b1 = load_16_sys_if(at + _WARP_BYTES, left > _WARP_BYTES)
        a2, b2 = load_16_sys_if(at + 2 * _WARP_BYTES, left > 2 * _WARP_BYTES)
        a3, b3 = load_16_sys_if(at + 3 * _WARP_BYTES, left > 3 * _WARP_BYTES)
        _store_words(to, a0, b0, left)
        _store_words(to + _WARP_BYTES, a1, b1, left - _WARP_BYTES)
        _store_words(to + 2 * _WARP_BYTES, a2, b2, left - 2 * _WARP_BYTES)
        _store_words(to + 3 * _WARP_BYTES, a3, b3, left - 3 * _WARP_BYTES)

    @device
    def _gather_stream(to, at, end, step):
        while to < end:
            low, high = gather_16(at)
            store_16(to, low, high)
            at += step
            to += step

    def _make_copies(stream, anywhere, lean, odd, load_1, to_user):
        """(copy by few threads; by many, of a user's address that is a multiple of 16; of others).

        Args:
            stream, anywhere: how a thread copies words from and to multiples of 16, and otherwise.
            lean, odd: the same with few registers.
            to_user: whether the target is the user's, else the source is.
        """

        @device
        def tail(target, source, nbytes, rank, size):
            """Bytes behind the last whole word."""
            i = (nbytes & ~15) + rank
            while i < nbytes:
                store_1(target + i, load_1(source + i))
                i += opaque(size)

        @device
        def copy_any(target, source, nbytes, rank, size):
            to = target + (rank << 4)
            at = source + (rank << 4)
            end = target + (nbytes & ~15)
            if (target if to_user else source) & 15 == 0:
                stream(to, at, end, size << 4)
            else:
                anywhere(to, at, end, size << 4)
            tail(target, source, nbytes, rank, size)
            return 0

        @device
        def copy_lean(target, source, nbytes, rank, size):
            tail(target, source, nbytes, rank, size)  # first: else its arguments are kept
            lean(target + (rank << 4), source + (rank << 4), (nbytes >> 4) - rank, size)
            return 0

        @device
        def copy_odd(target, source, nbytes, rank, size):
            end = target + (nbytes & ~15)
            odd(target + (rank << 4), source + (rank << 4), end, size << 4)
            tail(target, source, nbytes, rank, size)
            return 0

        return copy_any, copy_lean, copy_odd

    _to = _make_copies(stream, _gather_stream, lean_stream, _gather_stream, load_1, False)
    _from = _make_copies(
        stream_sys, scatter_stream, lean_stream_sys, lean_scatter_stream, load_1_sys, True
    )
    # Of many threads each has few registers, and what one saves all others save, too
    # (docs/direct_speed.md). So what they call most is a function of its own, which saves hardly
    # any.
    _to_any = linked("gmpi_copy_to_staging", 5, 1, _to[0])
    _to_lean = linked("gmpi_copy_to_staging_lean", 5, 1, _to[1])
    _to_odd = linked("gmpi_copy_to_staging_odd", 5, 1, _to[2])
    _from_any = linked("gmpi_copy_from_staging", 5, 1, _from[0])
    _from_lean = linked("gmpi_copy_from_staging_lean", 5, 1, _from[1])
    _from_odd = linked("gmpi_copy_from_staging_odd", 5, 1, _from[2])
    _LEAN_SHIFT = 34  # log2 of bytes: so many words a thread of ``lean_stream`` can count

    @device
    def copy_to_staging(staging, source, nbytes, rank, size):
        """Copies the calling thread's share of ``nbytes`` from a buffer to staging.

        All ``size`` threads of a scope call, each with its ``rank``.
        """
        if size <= FEW_THREADS:
            _to_any(staging, source, nbytes, rank, size)
        elif source & 15 == 0 and nbytes >> _LEAN_SHIFT == 0:
            _to_lean(staging, source, nbytes, rank, size)
        else:
            _to_odd(staging, source, nbytes, rank, size)

    @device
    def copy_words(target, source, nbytes, rank, size):
        """The same of whole words of 16 bytes, less than 2**_LEAN_SHIFT bytes, by threads that are
        to save no registers for it, however many they are."""
        _to_lean(target, source, nbytes, rank, size)

    @device
    def copy_from_staging(target, staging, nbytes, rank, size):
        """Copies the calling thread's share of ``nbytes`` from staging to a buffer."""
        if size <= FEW_THREADS:
            _from_any(target, staging, nbytes, rank, size)
        elif target & 15 == 0 and nbytes >> _LEAN_SHIFT == 0:
            _from_lean(target, staging, nbytes, rank, size)
        else:
            _from_odd(target, staging, nbytes, rank, size)
