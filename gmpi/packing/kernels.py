"""Kernels that pack and unpack any part of a plan, or all of them, for calls from the host.

For what ``kernels_strided``, ``kernels_runs`` and ``kernels_parts`` leave: tables, repeated lists
of runs, bytes, more than 2**31 words, a limited number of blocks. A kernel for one part gets the
descriptor by value: kernel arguments are constants of the launch, so a strided block takes no
device memory at all. Each block copies it to its shared memory, where the lookup, which is the same
in a running kernel, reads it. Blocks take tiles of neighbouring words in turn.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np
from numba import cuda

from device_lib.move.lookup import dims_of, runs_4, strided_4
from device_lib.move.pack_words import make_move, make_move_bytes, make_move_pairs, turn_words
from device_lib.platform.primitives import (
    block_id,
    buffer_of,
    device,
    load_4,
    load_8,
    sync_block,
    thread_rank,
)
from device_lib.platform.unroll import unrolled
from gmpi.datatypes.descriptor import (
    D_BEGIN,
    D_DIMS,
    D_HEAD,
    D_SIZE,
    DESCRIPTOR_BYTES,
    DESCRIPTOR_WORDS,
    DIM_BYTES,
    RUN_LIST,
)

THREADS = 256


def tile_words(width: int) -> int:
    """Words (bytes for width 1) that a block moves in one turn."""
    return THREADS * (turn_words(width) if width > 1 else 32)


def _make_put(numbers: range) -> Callable:
    """(shared, descriptor) -> puts these words of a descriptor into shared memory."""

    def make(k: int) -> Callable:
        i = numbers[k]

        @device
        def put(shared, descriptor):
            shared[i] = descriptor[i]

        return put

    return unrolled(make, len(numbers))


_DIM_WORDS = DIM_BYTES // 8
_put_head = _make_put(range(D_DIMS // 8))


def _make_put_dim(k: int) -> Callable:
    """(shared, dims, descriptor) -> the same of a dimension, if it is looked up."""
    first = D_DIMS // 8 + k * _DIM_WORDS
    put = _make_put(range(first, first + _DIM_WORDS))

    @device
    def put_dim(shared, dims, descriptor):
        if dims > k:
            put(shared, descriptor)

    return put_dim


_put_dims = unrolled(_make_put_dim, (DESCRIPTOR_WORDS - D_DIMS // 8) // _DIM_WORDS)


@cache
def kernel_body(kind: int, width: int, unpack: bool, wide: bool, pairs: bool = False) -> Callable:
    """The Python function of one kernel.

    Its arguments: addresses of the user's and of the packed memory; words of the part, of ``width``
    bytes; dimensions to look up; then the words of the descriptor. ``pairs``: words of 8 bytes of a
    run list go two by two, see ``make_move_pairs``.
    """
    lookup = runs_4 if kind == RUN_LIST else strided_4
    if pairs:
        move = make_move_pairs(lookup, unpack)
    elif width > 1:
        move = make_move(width, lookup, unpack, False)
    else:
        move = make_move_bytes(lookup, unpack, False)
    tile = tile_words(width)

    def kernel(user, packed, words, dims, *numbers):
        shared = cuda.shared.array(DESCRIPTOR_WORDS, np.int64)
        if thread_rank() == 0:
            _put_head(shared, numbers)
            _put_dims(shared, dims, numbers)
        sync_block()
        descriptor, room, strided = buffer_of(shared)
        first = block_id() * tile
        while first < words:
            last = min(first + tile, words)
            move(descriptor, dims, wide, user, packed, first, last, thread_rank(), THREADS)
            first += cuda.gridDim.x * tile

    return kernel


@cache
def parts_body(width: int, unpack: bool, wide: bool) -> Callable:
    """The Python function of the kernel for plans of many parts, all of them in one launch.

    Its arguments: addresses of the user's and of the packed memory, of the descriptors, of the part
    of each tile (int32), of the first tile of each part (int32); the number of tiles.
    """
    make = make_move_bytes
    shift = 0
    if width > 1:
        make = partial(make_move, width)
        shift = width.bit_length() - 1
    move_strided = make(strided_4, unpack, False)
    move_runs = make(runs_4, unpack, False)
    words_of_tile = tile_words(width)

    def kernel(user, packed, descriptors, part_of, first_of, tiles):
        shared = cuda.shared.array(DESCRIPTOR_WORDS, np.int64)
        descriptor, room, strided = buffer_of(shared)
        rank = thread_rank()
        tile = block_id()
        while tile < tiles:
            part = load_4(part_of + tile * 4)
            first = (tile - load_4(first_of + part * 4)) * words_of_tile
            sync_block()  # nobody looks at the descriptor of the tile before any more
            if rank < DESCRIPTOR_WORDS:
                shared[rank] = load_8(descriptors + part * DESCRIPTOR_BYTES + rank * 8)
            sync_block()
            last = min(first + words_of_tile, load_8(descriptor + D_SIZE) >> shift)
            at = packed + load_8(descriptor + D_BEGIN)
            dims = dims_of(descriptor, 1)
            if load_8(descriptor + D_HEAD) & 0xFF == RUN_LIST:
                move_runs(descriptor, dims, wide, user, at, first, last, rank, THREADS)
            else:
                move_strided(descriptor, dims, wide, user, at, first, last, rank, THREADS)
            tile += cuda.gridDim.x

    return kernel


#: int64 arguments of the kernels
PART_ARGUMENTS = 4 + DESCRIPTOR_WORDS
PARTS_ARGUMENTS = 6
