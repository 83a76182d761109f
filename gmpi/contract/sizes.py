"""The sizes a context is opened with, and where they put everything in its memory.

Kernels are told of them in four integers, so that no kernel is compiled for sizes.
"""

from __future__ import annotations

from typing import NamedTuple

from gmpi.contract import wire
from gmpi.contract.counts import BLOCK_ENTRY, most_blocks
from gmpi.contract.layouts import DERIVED_ROWS, LAYOUTS_BYTES, TYPE_BYTES

# --- what a kernel is told: four integers, passed by value ----------------------------------------
#   mapped, device     addresses of the two regions
#   shape              the sizes below, and the number of the context
#   identity           rank | size << 32   in COMM_WORLD
SHAPE_RING_SHIFT = 0  # log2 of ring_slots (5 bits)
SHAPE_REQUEST_SHIFT = 5  # log2 of request_slots (5)
SHAPE_LARGE_SHIFT = 10  # large_slots (7)
SHAPE_CONTEXT_SHIFT = 17  # number of the context (6)
SHAPE_EAGER_SHIFT = 23  # eager_bytes / 128 (14)
SHAPE_CHUNK_SHIFT = 37  # chunk_bytes / 128 (22)
SHAPE_P2P_SHIFT = 59  # 1: another rank reads our GPU staging (1)
SHAPE_DIRECT_SHIFT = 60  # 1: there is a communicator of the direct road (1)
# 1: the call is of grid scope, and its other blocks wait for jobs (1); set by the leading block
SHAPE_GRID_SHIFT = 61
# 1: the leading warp carries out the call, and the other threads of its block wait for jobs (1)
SHAPE_LED_SHIFT = 62
IDENTITY_SIZE_SHIFT = 32


def align(n: int, to: int) -> int:
    return (n + to - 1) // to * to


class Layout(NamedTuple):
    """The sizes a context is opened with.

    Slots from ``request_slots`` on are of the large class: ``large_slots`` with chunk buffers, and,
    from ``first_narrow`` on, where a word of busy bits begins, narrow ones. Between the two are
    some that nobody takes.
    """

    ring_slots: int
    request_slots: int
    large_slots: int
    eager_bytes: int
    chunk_bytes: int

    @property
    def narrow_slots(self) -> int:
        return min(self.request_slots, wire.MAX_NARROW_SLOTS)

    @property
    def first_narrow(self) -> int:
        return self.request_slots + align(self.large_slots, wire.BUSY_BITS)

    @property
    def slots(self) -> int:
        return self.first_narrow + self.narrow_slots

    @property
    def small_stride(self) -> int:
        return wire.STAGING_LEAD + self.eager_bytes

    @property
    def ring(self) -> int:
        return wire.MAPPED_RING

    @property
    def completions(self) -> int:
        return self.ring + self.ring_slots * wire.SLOT_BYTES

    @property
    def small(self) -> int:
        return self.completions + self.slots * wire.SLOT_BYTES

    @property
    def large(self) -> int:
        return align(self.small + self.slots * self.small_stride, 4096)

    @property
    def mapped_bytes(self) -> int:
        return self.large + self.large_bytes

    @property
    def large_bytes(self) -> int:
        """Size of large staging, and of GPU staging without mailboxes."""
        return align(
            self.large_slots * (wire.LARGE_BUFFERS * self.chunk_bytes + wire.READY_BYTES), 4096
        )

    def mailbox(self, rank: int) -> int:
        """Where in GPU staging the mailboxes for a rank of the node begin, one a large slot;
        for the number of its ranks: where they end."""
        return self.large_bytes + rank * self.large_slots * wire.MAILBOX_STRIDE

    def mailbox_of(self, rank: int, slot: int) -> int:
        """The number, among all of ours, of the place for a large slot of a rank of the node."""
        return rank * self.large_slots + slot - self.request_slots

    def chunk_buffers(self, slot: int) -> int:
        """Where in either of them the buffers of a large slot begin."""
        return (slot - self.request_slots) * (
            wire.LARGE_BUFFERS * self.chunk_bytes + wire.READY_BYTES
        )

    @property
    def claims(self) -> int:
        return wire.DEVICE_ROWS + self.slots * wire.REQUEST_BYTES

    @property
    def datatypes(self) -> int:
        return align(self.claims + (self.slots - self.request_slots) * wire.CLAIM_BYTES, TYPE_BYTES)

    @property
    def layouts(self) -> int:
        return self.datatypes + DERIVED_ROWS * TYPE_BYTES

    @property
    def blocks(self) -> int:
        """Where the blocks of collectives with counts lie, for slots of the large class."""
        return self.layouts + self.slots * LAYOUTS_BYTES

    @property
    def device_bytes(self) -> int:
        tables = self.slots - self.request_slots
        return self.blocks + tables * most_blocks(self.eager_bytes) * BLOCK_ENTRY

    def shape(self, context: int, p2p: bool) -> int:
        """The ``shape`` word of a device context."""
        return (
            self.ring_slots.bit_length() - 1 << SHAPE_RING_SHIFT
            | self.request_slots.bit_length() - 1 << SHAPE_REQUEST_SHIFT
            | self.large_slots << SHAPE_LARGE_SHIFT
            | context << SHAPE_CONTEXT_SHIFT
            | self.eager_bytes // wire.POSITION_STEP << SHAPE_EAGER_SHIFT
            | self.chunk_bytes // wire.POSITION_STEP << SHAPE_CHUNK_SHIFT
            | p2p << SHAPE_P2P_SHIFT
        )
