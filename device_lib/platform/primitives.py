"""Every non-portable device operation, once: a CUDA version and a simulator version of each.

All values are ``int64`` (Numba turns int64 mixed with uint64 into float64), addresses included.
Memory operations name their order and scope; see the two twins for what each one guarantees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from device_lib.platform import front_end_sim

SIMULATOR: bool = front_end_sim.is_simulator()

if SIMULATOR:
    from device_lib.platform import primitives_sim as _twin
else:
    from device_lib.platform import primitives_cuda as _twin  # type: ignore[no-redef]

# What users pass is made int64 first: NumPy scalars in the simulator, any integer type on a GPU.
int64 = _twin.int64
uint32 = _twin.uint32  # of what fits: half the instructions of 64 bits

_Function = TypeVar("_Function", bound=Callable[..., Any])


def device(function: _Function) -> _Function:
    """Makes a device function of a Python function, for callers of the same signature."""
    return cast(_Function, _twin.device(function))


# who am I
thread_rank = _twin.thread_rank
block_threads = _twin.block_threads
block_id = _twin.block_id
grid_blocks = _twin.grid_blocks
lane_id = _twin.lane_id
place = _twin.place
scatter = _twin.scatter

# warp and block
sync_warp = _twin.sync_warp
sync_block = _twin.sync_block
sync_block_or = _twin.sync_block_or
shuffle = _twin.shuffle
shuffle_32 = _twin.shuffle_32
vote_all = _twin.vote_all
ballot = _twin.ballot
broadcast_block = _twin.broadcast_block
broadcast_block_3 = _twin.broadcast_block_3
broadcast_block_4 = _twin.broadcast_block_4
broadcast_block_5 = _twin.broadcast_block_5
put_block_row = _twin.put_block_row
get_block_row = _twin.get_block_row
put_block_4 = _twin.put_block_4
put_block_4_same = _twin.put_block_4_same
get_block_4 = _twin.get_block_4
NOTES = _twin.NOTES
COMMAND_NOTE = _twin.COMMAND_NOTE
put_block_note = _twin.put_block_note
get_block_note = _twin.get_block_note

# memory
load_gpu = _twin.load_gpu
store_gpu = _twin.store_gpu
store_32_gpu = _twin.store_32_gpu
load_sys = _twin.load_sys
store_sys = _twin.store_sys
read_packet = _twin.read_packet
read_packet_if = _twin.read_packet_if
write_packet = _twin.write_packet
write_packet_if = _twin.write_packet_if
add_gpu = _twin.add_gpu
or_32_gpu = _twin.or_32_gpu
count_gpu = _twin.count_gpu
set_bits_32_gpu = _twin.set_bits_32_gpu
cas_gpu = _twin.cas_gpu
take_if = _twin.take_if
enter_if = _twin.enter_if
draw_if = _twin.draw_if
draw_two_if = _twin.draw_two_if
give_back_if = _twin.give_back_if
add_if = _twin.add_if
cas_if = _twin.cas_if
max_gpu = _twin.max_gpu
add_32_gpu = _twin.add_32_gpu
claim_if = _twin.claim_if
load_1_if = _twin.load_1_if
load_4_if = _twin.load_4_if
store_4_if = _twin.store_4_if
clear_bits_32_gpu = _twin.clear_bits_32_gpu
clear_bits_gpu = _twin.clear_bits_gpu
load_pair_gpu = _twin.load_pair_gpu
acquire_gpu = _twin.acquire_gpu
acquire_packet_gpu = _twin.acquire_packet_gpu
acquire_packet_sys = _twin.acquire_packet_sys
store_pair_gpu = _twin.store_pair_gpu
store_gpu_if = _twin.store_gpu_if
store_pair_gpu_if = _twin.store_pair_gpu_if
fence_gpu = _twin.fence_gpu
fence_sys = _twin.fence_sys
load_4 = _twin.load_4
load_8 = _twin.load_8
load_16 = _twin.load_16
load_16_sys_if = _twin.load_16_sys_if
store_8 = _twin.store_8
store_16_if = _twin.store_16_if

# the rest
buffer_of = _twin.buffer_of
itemsize_of = _twin.itemsize_of
describe = _twin.describe
memory_space = _twin.memory_space
is_private = _twin.is_private
as_it_stands = _twin.as_it_stands
opaque = _twin.opaque
# Where a sum or a product may need more than 64 bits: ``+`` and ``*`` must not overflow.
wrapping_add = _twin.wrapping_add
wrapping_multiply = _twin.wrapping_multiply
clock = _twin.clock
timer_ns = _twin.timer_ns
pause = _twin.pause
spin = _twin.spin
wait_cycles = _twin.wait_cycles
relax = _twin.relax
first_bit = _twin.first_bit
count_bits = _twin.count_bits
