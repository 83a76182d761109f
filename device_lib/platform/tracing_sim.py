"""The simulator twin of what traced kernels do besides their calls (``tracing_cuda``)."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.platform import primitives_sim
from device_lib.simulator import lanes
from gmpi.contract.trace import EVENT_BYTES, NOTE_FIRST, NOTE_KEY, NOTE_PROGRESS, PERIOD_SHIFT
from gmpi.contract.wire import LOW_32

thread_rank = primitives_sim.thread_rank
block_id = primitives_sim.block_id
lane_id = primitives_sim.lane_id


def low_difference(a, b):
    return (a - b) & LOW_32


def store_pair_if(address, low, high, wanted, bits):
    if wanted & bits:
        primitives_sim.store_pair_gpu(address, low, high)


def address_of(index):
    return 8 * index


def put(address, value):
    lanes.lane().block.trace_notes[address] = value


def get(address):
    return lanes.lane().block.trace_notes[address]


def look(notes, key, now, rows):
    progress = get(notes + 8 * NOTE_PROGRESS)
    soon = low_difference(progress, now) <= 1 << PERIOD_SHIFT
    number = progress >> 32 & LOW_32
    at = get(notes + 8 * NOTE_FIRST) + (number & (rows - 1)) * EVENT_BYTES
    return int(soon and get(notes + 8 * NOTE_KEY) == key), number, at


def count_if(notes, number, wanted):
    if wanted & 8:
        at = notes + 8 * NOTE_PROGRESS
        put(at, (get(at) & LOW_32) | (number & LOW_32) << 32)
