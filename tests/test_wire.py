"""The layout of shared bytes: no region overlaps another, whatever the settings."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from gmpi.contract import pipelines, rules, sizes, wire
from gmpi.contract.sizes import Layout
from gmpi.errors import ContextError
from gmpi.lifetime import opening

pytestmark = pytest.mark.quick

LAYOUTS = st.builds(
    Layout,
    ring_slots=st.integers(6, 20).map(lambda k: 1 << k),
    request_slots=st.integers(5, 15).map(lambda k: 1 << k),
    large_slots=st.integers(1, 64),
    eager_bytes=st.integers(2, 8192).map(lambda k: 128 * k),
    chunk_bytes=st.integers(4, 2**21).map(lambda k: 128 * k),
)
DEFAULT = Layout(4096, 4096, 32, 8192, 262144)


def overlaps(regions: list[tuple[str, int, int]]) -> list[str]:
    """Names of neighbours that share bytes; a region is (name, begin, end)."""
    commanded = sorted(regions, key=lambda r: r[1])
    return [f"{a[0]} and {b[0]}" for a, b in pairwise(commanded) if a[2] > b[1]]


@given(LAYOUTS)
def test_regions_of_mapped_memory_do_not_overlap(layout: Layout) -> None:
    regions = [
        ("doorbell and abort", wire.CONTROL_DOORBELL, wire.CONTROL_ABORT + 8),
        ("commands and blocks", wire.CONTROL_COMMANDS, wire.CONTROL_BLOCKS + 8),
        ("consumed", wire.CONTROL_CONSUMED, wire.CONTROL_CONSUMED + 8),
        ("patience", wire.CONTROL_RESOURCE_NS, wire.CONTROL_RESOURCE_NS + 8),
        ("narrow", wire.CONTROL_NARROW, wire.CONTROL_NARROW + 8 * wire.NARROW_WORDS),
        (
            "communicators",
            wire.MAPPED_COMMUNICATORS,
            wire.MAPPED_COMMUNICATORS + wire.COMMUNICATORS * wire.COMMUNICATOR_BYTES,
        ),
        ("ring", layout.ring, layout.ring + layout.ring_slots * wire.SLOT_BYTES),
        ("completions", layout.completions, layout.completions + layout.slots * wire.SLOT_BYTES),
        ("small", layout.small, layout.small + layout.slots * layout.small_stride),
        ("large", layout.large, layout.large + layout.large_bytes),
    ]
    assert overlaps(regions) == []
    assert max(end for _, _, end in regions) <= layout.mapped_bytes
    assert layout.mapped_bytes % 4096 == 0


@given(LAYOUTS)
def test_regions_of_device_memory_do_not_overlap(layout: Layout) -> None:
    counters = ("TICKET", "CONSUMED", "REFRESH", "ABORT", "LARGE")
    regions = [
        (name, getattr(wire, f"DEVICE_{name}"), getattr(wire, f"DEVICE_{name}") + 8)
        for name in counters
    ]
    words = layout.slots // wire.BUSY_BITS
    long = layout.slots - layout.request_slots
    regions += [
        ("busy", wire.DEVICE_BUSY, wire.DEVICE_BUSY + words * wire.BUSY_STRIDE),
        ("reach", wire.DEVICE_P2P, wire.DEVICE_ROWS),
        ("rows", wire.DEVICE_ROWS, wire.DEVICE_ROWS + layout.slots * wire.REQUEST_BYTES),
        ("claims", layout.claims, layout.claims + long * wire.CLAIM_BYTES),
        ("datatypes", layout.datatypes, layout.layouts),
    ]
    assert overlaps(regions) == []
    assert max(end for _, _, end in regions) <= layout.device_bytes


@given(LAYOUTS)
def test_slots_of_each_class_begin_with_a_word_of_busy_bits(layout: Layout) -> None:
    large = layout.first_narrow - layout.request_slots
    assert large in (32, 64) and large - 32 < layout.large_slots <= large
    assert layout.first_narrow % wire.BUSY_BITS == 0 and layout.slots % wire.BUSY_BITS == 0
    assert layout.narrow_slots & (layout.narrow_slots - 1) == 0
    assert 32 <= layout.narrow_slots <= min(layout.request_slots, 64 * wire.NARROW_WORDS)
    # Numbers of transfers, one for each slot, fit the smallest MPI_TAG_UB there may be.
    assert layout.slots - layout.request_slots < wire.TRANSFER_TAG_UB >> 2


@given(LAYOUTS)
def test_what_is_written_in_units_is_aligned_to_units(layout: Layout) -> None:
    # A 16-byte store that straddles a 16-byte boundary is not one access.
    for place in (layout.ring, layout.completions, layout.small, layout.small_stride):
        assert place % wire.PACKET_BYTES == 0
    assert wire.SLOT_BYTES % 64 == 0
    assert layout.ring % wire.SLOT_BYTES == 0
    assert wire.STAGING_LEAD % wire.PACKET_BYTES == 0
    assert wire.STAGING_LEAD >= wire.MESSAGE_HEADER
    assert wire.DEVICE_ROWS % 128 == 0
    assert (wire.DEVICE_ROWS + wire.REQUEST_OWNER) % 16 == 0  # owner and address: one store
    assert wire.REQUEST_RECV == wire.REQUEST_OWNER + 8


@given(LAYOUTS, st.integers(0, 63))
def test_the_shape_word_gives_back_every_size(layout: Layout, context: int) -> None:
    shape = layout.shape(context, p2p=True)
    assert 0 <= shape < 1 << 63  # an int64 in kernels
    assert 1 << (shape >> sizes.SHAPE_RING_SHIFT & 31) == layout.ring_slots
    assert 1 << (shape >> sizes.SHAPE_REQUEST_SHIFT & 31) == layout.request_slots
    assert shape >> sizes.SHAPE_LARGE_SHIFT & 127 == layout.large_slots
    assert shape >> sizes.SHAPE_CONTEXT_SHIFT & wire.HANDLE_CONTEXT_MASK == context
    assert (shape >> sizes.SHAPE_EAGER_SHIFT & 0x3FFF) * wire.POSITION_STEP == layout.eager_bytes
    assert (shape >> sizes.SHAPE_CHUNK_SHIFT & 0x3FFFFF) * wire.POSITION_STEP == layout.chunk_bytes


def test_fields_of_a_handle_do_not_overlap() -> None:
    fields = [
        ("tag", 0, 32),
        ("slot", wire.HANDLE_SLOT_SHIFT, wire.HANDLE_SLOT_SHIFT + 16),
        ("units", wire.HANDLE_PACKETS_SHIFT, wire.HANDLE_PACKETS_SHIFT + 4),
        ("class", wire.HANDLE_LARGE_SHIFT, wire.HANDLE_LARGE_SHIFT + 1),
        ("context", wire.HANDLE_CONTEXT_SHIFT, wire.HANDLE_CONTEXT_SHIFT + 6),
        ("claimed", 59, 60),
        ("error", wire.HANDLE_ERROR_SHIFT, 61),
    ]
    assert overlaps(fields) == []
    assert wire.MAX_SLOTS <= wire.HANDLE_SLOT_MASK
    assert wire.SLOT_PACKETS - 1 <= wire.HANDLE_PACKETS_MASK


def test_a_slot_holds_what_is_put_into_it() -> None:
    assert wire.SLOT_BYTES == 256  # the paper's attribute: 32 x 8 bytes
    assert wire.HEADER_PACKETS + wire.payload_packets(wire.INLINE_BYTES) == wire.SLOT_PACKETS
    assert wire.STATUS_PACKETS + wire.payload_packets(wire.INLINE_BYTES) <= wire.SLOT_PACKETS
    assert wire.BASE_PACKET == wire.STATUS_PACKETS + wire.LARGE_BUFFERS
    assert wire.LARGE_PACKETS <= wire.SLOT_PACKETS


def test_payload_units_divides_by_twelve() -> None:
    for nbytes in range(32768):
        assert wire.payload_packets(nbytes) == -(-nbytes // wire.PACKET_PAYLOAD), nbytes


@given(st.integers(257, wire.POSITION_MASK), st.integers(4, 2**21).map(lambda k: 128 * k))
def test_chunks_cover_a_message_and_positions_are_exact(nbytes: int, chunk_bytes: int) -> None:
    chunk = rules.chunk_bytes_of(nbytes, chunk_bytes)
    assert 0 < chunk <= chunk_bytes
    assert chunk % wire.POSITION_STEP == 0 or chunk >= nbytes  # command numbers are exact
    # Where chunks of 64 KiB or more allow it, there is one for each buffer.
    if nbytes >= 4 * 65536 and chunk_bytes >= 65536:
        assert -(-nbytes // chunk) >= wire.LARGE_BUFFERS


def test_the_longest_message_has_order_numbers_within_32_bits() -> None:
    last = wire.POSITION_MASK + 1 - 512  # the shortest chunk there is
    number = (last // wire.POSITION_STEP << 1 | 1) + 1
    assert number <= wire.LOW_32
    done = wire.POSITION_MASK << wire.CHUNK_POSITION_SHIFT | 1 << wire.CHUNK_DIRECTION_SHIFT | 127
    assert done < 1 << 63


@settings(max_examples=200)
@given(st.integers(257, 1 << 34), st.integers(4, 2**21).map(lambda k: 128 * k))
def test_compiled_code_cuts_like_python(nbytes: int, chunk_bytes: int) -> None:
    assert _cut(nbytes, chunk_bytes) == rules.chunk_bytes_of(nbytes, chunk_bytes)


_cut = njit(rules.chunk_bytes_of)


@pytest.mark.parametrize("step", [1, 2, 8, 64, 1000, 4096, 1 << 20])
def test_tags_are_spread_over_the_duplicates(step: int) -> None:
    # MPI looks through the list of one duplicate: as short as can be, whatever tags users take.
    count = rules.TAG_DUPLICATES
    chosen = [rules.duplicate_of(k * step, count - 1) for k in range(64)]
    assert all(64 // count // 2 <= chosen.count(i) <= 64 // count * 2 for i in range(count)), chosen


@settings(max_examples=200)
@given(st.integers(-2, 2**31 - 1), st.integers(0, 3).map(lambda k: (1 << k) - 1))
def test_compiled_code_chooses_the_duplicate_like_python(tag: int, last: int) -> None:
    found = rules.duplicate_of(tag, last)
    assert 0 <= found <= last
    assert _choice(tag, last) == found


_choice = njit(rules.duplicate_of)


@pytest.mark.parametrize("places", [1, 7, 64])
def test_transfer_numbers_of_slots_never_meet(places: int) -> None:
    """Two slots never have the same number, nor the host's, at the least MPI_TAG_UB there may be.

    Guards against a send that takes the tags of another one which nobody has received yet.
    """
    upper = wire.TRANSFER_TAG_UB
    owners: dict[int, int] = {}
    for count in range(3 * (upper >> 2)):
        place = count * 5 % places
        number = rules.transfer_number(count, place, places, upper)
        assert owners.setdefault(number, place) == place
        assert 0 <= number < upper >> 2


def test_too_few_tags_are_refused() -> None:
    opening.require_tags(wire.TRANSFER_TAG_UB)
    with pytest.raises(ContextError, match="MPI_TAG_UB of this MPI library is 4095"):
        opening.require_tags(4095)


@given(st.integers(0, 31), st.integers(0, 1), st.integers(1, 20000), st.integers(1, 20000))
def test_the_word_of_a_missing_piece_gives_back_what_it_says(
    rank: int, which: int, piece: int, pieces: int
) -> None:
    """Numbers that are too large are as large as can be."""
    word = pipelines.missing_word(rank, which, piece, pieces)
    assert 0 < word < 1 << 32
    found = pipelines.missing_of(word)
    assert found == (rank, which, min(piece, 8191), min(pieces, 8191))
