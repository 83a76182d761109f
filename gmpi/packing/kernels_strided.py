"""Kernels that pack strided blocks word by word, for calls from the host (``gmpi.pack``).

Everything that a thread needs to find a word is an argument of the launch, which the hardware keeps
as constants: no shared memory, no table, nothing to wait for before the first load. Each thread
moves one to four words, all loads first, and each block one tile of neighbouring words: the
hardware's own scheduler of blocks balances better than a loop over tiles.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod
from typing import NamedTuple

from numba import cuda

from device_lib.move.words import LOAD_ONCE_IF, STORE_GLOBAL_IF
from device_lib.platform.divide import LIMIT, divide, magic_of
from device_lib.platform.primitives import device
from device_lib.platform.unroll import unrolled

THREADS = 256
REGISTERS = 32  # at most: as many threads on each multiprocessor as there can be


class Shape(NamedTuple):
    """How words are dealt out.

    Attributes:
        threads: of a block.
        words: of each thread.
        near: a thread's next word is that behind its warp's, not that behind its block's.
        load_if, store_if: as in ``words``; ``None``: those.
    """

    threads: int
    words: int
    near: bool = False
    load_if: Callable | None = None
    store_if: Callable | None = None


#: By width and direction. An unpack is the better the closer together its stores are in time.
SHAPES = {
    (16, False): Shape(THREADS, 2),
    (16, True): Shape(THREADS // 2, 1),
    (8, False): Shape(THREADS, 2),
    (8, True): Shape(THREADS, 2),
    (4, False): Shape(THREADS, 4),
    (4, True): Shape(THREADS, 4),
}


def tile_words(width: int, unpack: bool) -> int:
    """Words that a block of threads moves."""
    shape = SHAPES[width, unpack]
    return shape.threads * shape.words


def numbers_of(width: int, atom: int, dims: list[tuple[int, int]]) -> list[int] | None:
    """What a thread needs to know, see ``names_of``; ``None`` if there are too many words.

    Args:
        width: of a word in bytes; divides everything.
        atom: bytes of a block of data.
        dims: (count, stride in bytes), innermost first.
    """
    words = atom // width
    total = words * prod(count for count, _ in dims)
    if total + tile_words(width, False) >= LIMIT:
        return None
    if not dims:
        return [total]
    found = [total, words, magic_of(words)]
    for count, stride in dims[:-1]:
        found += [count, magic_of(count), stride]
    return [*found, dims[-1][1]]


def names_of(dims: int) -> list[str]:
    """Their names: number of words; words of a block of data and their ``magic_of``; for each
    dimension but the outermost count, magic and stride in bytes; the stride of the outermost."""
    if dims == 0:
        return ["words"]
    inner = [f"{name}{d}" for d in range(dims - 1) for name in ("count", "magic", "stride")]
    return ["words", "atom", "magic", *inner, f"stride{dims - 1}"]


def make_place(dims: int, shift: int) -> Callable:
    """(word, user, numbers) -> the address in the user's memory of a word by its number; numbers as
    ``names_of`` says."""
    if dims == 0:

        @device
        def place_alone(word, user, numbers):
            return user + (word << shift)

        return place_alone
    step = _make_step(0, dims)

    @device
    def place(word, user, numbers):
        block, r = divide(word, numbers[1], numbers[2])
        return step(block, user + (r << shift), numbers)

    return place


def _make_step(d: int, dims: int) -> Callable:
    """(block, address, numbers) -> the address, with the strides of dimension d and outer ones."""
    count, magic, stride = 3 + 3 * d, 4 + 3 * d, 5 + 3 * d
    if d + 1 == dims:

        @device
        def last_step(block, at, numbers):
            return at + block * numbers[count]  # of the outermost one there is the stride only

        return last_step
    onward = _make_step(d + 1, dims)

    @device
    def step(block, at, numbers):
        block, r = divide(block, numbers[count], numbers[magic])
        return onward(block, at + r * numbers[stride], numbers)

    return step


def make_first_word(shape: Shape) -> tuple[Callable, int]:
    """(tile, thread) -> the number of a thread's first word in a tile; and what the next one is
    away from that."""
    each = shape.threads * shape.words
    of_warp = 32 * shape.words

    @device
    def first_near(tile, thread):
        return tile * each + (thread >> 5) * of_warp + (thread & 31)

    @device
    def first(tile, thread):
        return tile * each + thread

    return (first_near, 32) if shape.near else (first, shape.threads)


def make_move_words(width: int, words: int, shape: Shape) -> Callable:
    """(moves) -> moves so many words, all loads first. A move is (from, to, number, end): there is
    one if its number is below the end."""
    load_if = shape.load_if or LOAD_ONCE_IF[width]
    store_if = shape.store_if or STORE_GLOBAL_IF[width]

    def make_load(k: int) -> Callable:
        @device
        def load(moves):
            source, _, word, end = moves[k]
            return load_if(source, word < end)

        return load

    def make_store(k: int) -> Callable:
        @device
        def store(moves, halves):
            _, target, word, end = moves[k]
            low, high = halves[k]
            store_if(target, low, high, word < end)

        return store

    loads = unrolled(make_load, words)
    stores = unrolled(make_store, words)

    @device
    def move_words(moves):
        stores(moves, loads(moves))

    return move_words


def make_move_tile(width: int, dims: int, unpack: bool, shape: Shape) -> Callable:
    """(user, packed, tile, thread, numbers) -> moves a thread's words of a tile."""
    shift = width.bit_length() - 1
    place = make_place(dims, shift)
    first, step = make_first_word(shape)

    def make_find(k: int) -> Callable:
        words, nbytes = k * step, k * step * width

        @device
        def find(word, beside, user, numbers):
            word += words
            beside += nbytes
            there = place(word, user, numbers)
            if unpack:
                return beside, there, word, numbers[0]
            return there, beside, word, numbers[0]

        return find

    find_all = unrolled(make_find, shape.words)
    move_words = make_move_words(width, shape.words, shape)

    @device
    def move_tile(user, packed, tile, thread, numbers):
        word = first(tile, thread)
        move_words(find_all(word, packed + (word << shift), user, numbers))

    return move_tile


@cache
def strided_body(width: int, dims: int, unpack: bool, shape: Shape | None = None) -> Callable:
    """The Python function of a kernel; a block of threads moves one tile.

    Its arguments, int64: addresses of the user's (of the first block of data) and of the packed
    memory, then ``names_of(dims)``.

    Args:
        shape: by default the one in ``SHAPES``.
    """
    move_tile = make_move_tile(width, dims, unpack, shape or SHAPES[width, unpack])

    def kernel(user, packed, *numbers):
        move_tile(user, packed, cuda.blockIdx.x, cuda.threadIdx.x, numbers)

    return kernel
