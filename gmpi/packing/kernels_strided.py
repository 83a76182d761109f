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
from typing import NamedTuple, cast

from numba import cuda

from device_lib.move.words import LOAD_ONCE_IF, STORE_GLOBAL_IF
from device_lib.platform.divide import LIMIT, divide, magic_of

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


def _lookup(word: str, at: str, dims: int, shift: int) -> list[str]:
    """Source lines: ``at`` becomes the address in the user's memory of a word by its number."""
    if dims == 0:
        return [f"{at} = user + ({word} << {shift})"]
    lines = [f"i, r = divide({word}, atom, magic)", f"{at} = user + (r << {shift})"]
    for d in range(dims - 1):
        lines += [f"i, r = divide(i, count{d}, magic{d})", f"{at} += r * stride{d}"]
    return [*lines, f"{at} += i * stride{dims - 1}"]


def first_word(shape: Shape) -> tuple[str, int]:
    """Source of the number of the calling thread's first word in tile ``tile``, and what the next
    one is away from it."""
    at = f"tile * {shape.threads * shape.words} + "
    if shape.near:
        warp = 32 * shape.words
        return f"{at}(cuda.threadIdx.x >> 5) * {warp} + (cuda.threadIdx.x & 31)", 32
    return f"{at}cuda.threadIdx.x", shape.threads


def move_lines(width: int, dims: int, unpack: bool, shape: Shape) -> list[str]:
    """Source lines that move the calling thread's words of tile ``tile``, by the names above."""
    shift = width.bit_length() - 1
    each = shape.words
    first, step = first_word(shape)
    lines = [f"w0 = {first}", f"p0 = packed + (w0 << {shift})"]
    for k in range(1, each):
        lines += [f"w{k} = w0 + {k * step}", f"p{k} = p0 + {k * step * width}"]
    for k in range(each):
        lines += _lookup(f"w{k}", f"a{k}", dims, shift)
    source, target = ("p", "a") if unpack else ("a", "p")
    lines += [f"x{k}, y{k} = load_if({source}{k}, w{k} < words)" for k in range(each)]
    return lines + [f"store_if({target}{k}, x{k}, y{k}, w{k} < words)" for k in range(each)]


def scope_of(width: int, shape: Shape) -> dict[str, object]:
    """The names that these lines use."""
    load_if = shape.load_if or LOAD_ONCE_IF[width]
    store_if = shape.store_if or STORE_GLOBAL_IF[width]
    return {"cuda": cuda, "divide": divide, "load_if": load_if, "store_if": store_if}


@cache
def strided_body(width: int, dims: int, unpack: bool, shape: Shape | None = None) -> Callable:
    """The Python function of a kernel; a block of threads moves one tile.

    Its arguments, int64: addresses of the user's (of the first block of data) and of the packed
    memory, then ``names_of(dims)``.

    Args:
        shape: by default the one in ``SHAPES``.
    """
    shape = shape or SHAPES[width, unpack]
    lines = ["tile = cuda.blockIdx.x", *move_lines(width, dims, unpack, shape)]
    head = f"def kernel(user, packed, {', '.join(names_of(dims))}):"
    scope = scope_of(width, shape)
    exec("\n ".join([head, *lines]), scope)
    return cast(Callable, scope["kernel"])
