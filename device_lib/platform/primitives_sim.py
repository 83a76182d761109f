"""The simulator twin of ``primitives``: same names, same meaning, plain Python.

Lanes run one at a time in one OS thread, so only memory that the proxy shares needs care: on x86
and, through ``ctypes``, in practice on every CPython platform, an aligned 8-byte access is one
access. A packet's tag is therefore written after its low word, and read before and after it.
The threads of a block are in ``block_sim``.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import ctypes
import functools
import operator
import struct

import numpy as np
from greenlet import getcurrent

from device_lib.platform.block_sim import COMMAND_NOTE as COMMAND_NOTE
from device_lib.platform.block_sim import NOTES as NOTES
from device_lib.platform.block_sim import block_id as block_id
from device_lib.platform.block_sim import block_threads as block_threads
from device_lib.platform.block_sim import broadcast_block as broadcast_block
from device_lib.platform.block_sim import broadcast_block_3 as broadcast_block_3
from device_lib.platform.block_sim import broadcast_block_4 as broadcast_block_4
from device_lib.platform.block_sim import broadcast_block_5 as broadcast_block_5
from device_lib.platform.block_sim import get_block_4 as get_block_4
from device_lib.platform.block_sim import get_block_note as get_block_note
from device_lib.platform.block_sim import get_block_row as get_block_row
from device_lib.platform.block_sim import grid_blocks as grid_blocks
from device_lib.platform.block_sim import lane_id as lane_id
from device_lib.platform.block_sim import place as place
from device_lib.platform.block_sim import put_block_4 as put_block_4
from device_lib.platform.block_sim import put_block_4_same as put_block_4_same
from device_lib.platform.block_sim import put_block_note as put_block_note
from device_lib.platform.block_sim import put_block_row as put_block_row
from device_lib.platform.block_sim import scatter as scatter
from device_lib.platform.block_sim import sync_block_or as sync_block_or
from device_lib.platform.block_sim import thread_rank as thread_rank
from device_lib.platform.clocks_sim import clock as clock
from device_lib.platform.clocks_sim import pause as pause
from device_lib.platform.clocks_sim import relax as relax
from device_lib.platform.clocks_sim import spin as spin
from device_lib.platform.clocks_sim import timer_ns as timer_ns
from device_lib.platform.clocks_sim import wait_cycles as wait_cycles
from device_lib.simulator import lanes
from device_lib.simulator.addresses import HALVES, MEMORY, WORDS
from device_lib.simulator.arrays import memory_of
from device_lib.simulator.memory import ThreadMemory

vote_all = lanes.vote_all
ballot = lanes.ballot
_word = ctypes.c_int64.from_address
_pair = (ctypes.c_int64 * 2).from_address
_KNOWN_BUFFERS = 1024
int64 = int


def uint32(value):
    return int(value) & 0xFFFFFFFF


def device(fn):
    """Device functions are ordinary functions here; a kernel calls them directly."""
    return fn


def memory_space(address):
    return 0


def is_private(buffer, address):
    shared = getcurrent().block.shared
    return isinstance(buffer, (tuple, ThreadMemory)) or shared.holds(address)


# These two are what the simulator does most: no function more than is needed.
def sync_warp(mask):
    me = getcurrent()
    warp = me.warp
    (warp.points.get(mask) or warp.new_point(mask)).sync(me)


def sync_block():
    me = getcurrent()
    me.block.told = False
    me.block.barrier.sync(me)


def shuffle(mask, value, lane):
    me = getcurrent()
    shuffles = me.warp.shuffles.get(mask) or me.warp.new_shuffles(mask)
    return shuffles.shuffle(me, value, lane)


shuffle_32 = shuffle


def load_gpu(address):
    return WORDS[address >> 3]


acquire_gpu = load_gpu


def store_gpu(address, value):
    _word(address).value = value


def store_32_gpu(address, value):
    ctypes.c_uint32.from_address(address).value = value


def add_gpu(address, value):
    cell = _word(address)
    old = cell.value
    cell.value = old + value
    return old


def add_32_gpu(address, value):
    cell = ctypes.c_uint32.from_address(address)
    old = cell.value
    cell.value = old + value
    return old


def or_32_gpu(address, value):
    cell = _word(address)
    old = cell.value
    cell.value = old | value
    return old


count_gpu = add_gpu
set_bits_32_gpu = or_32_gpu


def cas_gpu(address, expected, value):
    cell = _word(address)
    old = cell.value
    if old == expected:
        cell.value = value
    return old


def take_if(counter, word, flags, bits, wanted):
    if not wanted:
        return 0, 0, 0
    return add_gpu(counter, 1), load_gpu(word), or_32_gpu(flags, bits)


def enter_if(counter, word, wanted):
    if not wanted:
        return 0, 0
    return add_gpu(counter, 1), load_gpu(word)


def claim_if(address, expected, value, word, wanted):
    return (cas_gpu(address, expected, value), load_gpu(word)) if wanted else (0, 0)


def draw_if(address, wanted):
    if not wanted:
        return 0, 0
    free = _word(address).value & 0xFFFFFFFF
    return add_32_gpu(address + 4, 1), free


def draw_two_if(counter, word, bits, wanted):
    return (add_32_gpu(counter, 1), or_32_gpu(word, bits)) if wanted else (0, 0)


def give_back_if(credit, word, count, bits, mask, wanted):
    if wanted:
        write_packet(credit, 0, word)
        count_gpu(count, -1)
        clear_bits_gpu(bits, mask)


def add_if(address, value, wanted):
    return add_gpu(address, value) if wanted else 0


def cas_if(address, expected, value, wanted):
    return cas_gpu(address, expected, value) if wanted else 0


def max_gpu(address, value):
    cell = _word(address)
    old = cell.value
    cell.value = max(old, value)
    return old


def load_1_if(address, wanted):
    return MEMORY[address] if wanted else 0


def load_4(address):
    return HALVES[address >> 2]


def store_4_if(address, value, wanted):
    if wanted:
        HALVES[address >> 2] = value & 0xFFFFFFFF


def load_4_if(address, wanted):
    return HALVES[address >> 2] if wanted else 0


def clear_bits_32_gpu(address, bits):
    cell = _word(address)
    cell.value = cell.value & ~bits


clear_bits_gpu = clear_bits_32_gpu


def _refuse_odd(address):
    """What kills a CUDA context: 16 bytes at once that do not lie at a multiple of 16."""
    if address & 15:
        raise ValueError(f"address is {address:#x}, allowed are multiples of 16: load words of 8")


def store_pair_gpu(address, low, high):
    _refuse_odd(address)
    pair = _pair(address)
    pair[0], pair[1] = low, high


def store_gpu_if(address, value, wanted):
    if wanted:
        store_gpu(address, value)


def store_pair_gpu_if(address, low, high, wanted):
    if wanted:
        store_pair_gpu(address, low, high)


load_sys = load_gpu
store_sys = store_gpu
load_8 = load_gpu
_two_words = functools.partial(struct.Struct("=qq").unpack_from, MEMORY)


def load_pair_gpu(address):
    _refuse_odd(address)
    return _two_words(address)


load_16 = load_pair_gpu


def load_16_sys_if(address, wanted):
    return load_16(address) if wanted else (0, 0)


store_8 = store_gpu


def store_16_if(address, low, high, wanted):
    if wanted:
        store_pair_gpu(address, low, high)


def read_packet(address):
    """In one piece, as on a GPU: the proxy may write while we read."""
    _refuse_odd(address)
    at = address >> 3
    word, low = WORDS[at + 1], WORDS[at]
    while word != WORDS[at + 1]:
        word, low = WORDS[at + 1], WORDS[at]
    getcurrent().seen.append((address + 8, word))
    return low, word


acquire_packet_gpu = acquire_packet_sys = read_packet


def read_packet_if(address, word, wanted):
    return read_packet(address) if wanted else (0, word)


def write_packet(address, low, word):
    _refuse_odd(address)
    packet = _pair(address)
    packet[0], packet[1] = low, word  # in this order


def write_packet_if(address, low, word, wanted):
    if wanted:
        write_packet(address, low, word)


def fence_sys():
    pass


fence_gpu = fence_sys


def elements_of(buffer):
    """The NumPy array behind an array of a kernel, or of the host."""
    array = getattr(buffer, "_item", buffer)
    found = memory_of(array)
    return array if found is None else found


def buffer_of(buffer):
    if isinstance(buffer, tuple):
        me = getcurrent()
        me.stack = (ctypes.c_int64 * len(buffer))(*buffer)  # alive until the lane's next tuple
        return ctypes.addressof(me.stack), ctypes.sizeof(me.stack), 0
    # Asking NumPy takes longer than the rest of a call: once for each array and launch.
    known = getcurrent().grid.buffers
    found = known.get(id(buffer))
    if found is not None:
        return found[1]
    if isinstance(buffer, (int, np.integer)) or not hasattr(buffer, "strides"):
        return int(buffer), 1 << 62, 0
    array = elements_of(buffer)
    flags = array.flags
    contiguous = flags.c_contiguous or flags.f_contiguous
    place = array.__array_interface__["data"][0], array.nbytes, int(not contiguous)
    if len(known) >= _KNOWN_BUFFERS:
        known.clear()  # a kernel may make slices without end
    size = array.itemsize if array.dtype.kind in "biufc" else 0
    known[id(buffer)] = buffer, place, size  # the buffer stays alive, and its id its own
    return place


def itemsize_of(buffer):
    buffer_of(buffer)
    found = getcurrent().grid.buffers.get(id(buffer))
    return 0 if found is None else found[2]


def describe(buffer, address, room, strided):
    words = [address, room, 0, 1]
    if strided:
        array = elements_of(buffer)
        words[2:] = [array.ndim, array.itemsize]
        for pair in zip(array.shape, array.strides):
            words += pair
    me = getcurrent()
    me.described = (getattr(me, "described", ()) + ((ctypes.c_int64 * len(words))(*words),))[-2:]
    return ctypes.addressof(me.described[-1])


def opaque(value):
    return value


def as_it_stands():
    pass


# Python's integers do not overflow; whoever stores one takes its low 64 bits.
wrapping_add = operator.add
wrapping_multiply = operator.mul


def first_bit(word):
    return (word & -word).bit_length() - 1


def count_bits(word):
    return word.bit_count()
