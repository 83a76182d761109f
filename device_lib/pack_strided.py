"""Kernels that pack strided blocks word by word, for calls from the host (``gmpi.pack``).

Everything that a thread needs to find a word is an argument of the launch, which the hardware keeps
as constants: no shared memory, no table, nothing to wait for before the first load. Each thread
moves ``WORDS`` words, all loads first, and each block one tile of neighbouring words: the
hardware's own scheduler of blocks balances better than a loop over tiles.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import cast

from numba import cuda

from device_lib.divide import LIMIT, divide, magic_of
from device_lib.words import LOAD_ONCE_IF, STORE_GLOBAL_IF

THREADS = 256
REGISTERS = 32  # at most: as many threads on each multiprocessor as there can be
WORDS = {16: 2, 8: 4, 4: 4}  # of each thread, by their width


def strided_arguments(
    width: int, atom: int, dims: list[tuple[int, int]]
) -> tuple[list[int], int] | None:
    """(arguments of the kernel, two addresses first; blocks), ``None``: not for this kernel.

    Args:
        width: of a word in bytes; divides everything.
        atom: bytes of a block of data.
        dims: (count, stride in bytes), innermost first.
    """
    words = atom // width
    arguments = [words, magic_of(words)] if dims and words < LIMIT else []
    total = words
    for k, (count, stride) in enumerate(dims):
        total *= count
        if total >= LIMIT:
            return None
        arguments += [count, magic_of(count), stride] if k < len(dims) - 1 else [stride]
    tile = THREADS * WORDS[width]
    if total + tile >= LIMIT:
        return None
    return [0, 0, total, *arguments], -(-total // tile)


def _lookup(word: str, at: str, dims: int, shift: int) -> list[str]:
    """Source lines: ``at`` becomes the address in the user's memory of a word by its number."""
    if dims == 0:
        return [f" {at} = user + ({word} << {shift})"]
    lines = [f" i, r = divide({word}, atom, magic)", f" {at} = user + (r << {shift})"]
    for d in range(dims - 1):
        lines += [f" i, r = divide(i, count{d}, magic{d})", f" {at} += r * stride{d}"]
    return [*lines, f" {at} += i * stride{dims - 1}"]


@cache
def strided_body(width: int, dims: int, unpack: bool) -> Callable:
    """The Python function of a kernel of ``THREADS`` threads; a block of them moves one tile.

    Its arguments, int64: addresses of the user's (of the first block of data) and of the packed
    memory; number of words; words of a block of data and their ``magic_of``; for each dimension but
    the outermost count, magic and stride in bytes; the stride of the outermost one.
    """
    names = ["user", "packed", "words"]
    if dims:
        names += ["atom", "magic"]
        names += [f"{name}{d}" for d in range(dims - 1) for name in ("count", "magic", "stride")]
        names.append(f"stride{dims - 1}")
    shift = width.bit_length() - 1
    each = WORDS[width]
    lines = [
        f"def kernel({', '.join(names)}):",
        f" w0 = cuda.blockIdx.x * {THREADS * each} + cuda.threadIdx.x",
        f" p0 = packed + (w0 << {shift})",
    ]
    for k in range(1, each):
        lines += [f" w{k} = w0 + {k * THREADS}", f" p{k} = p0 + {k * THREADS * width}"]
    for k in range(each):
        lines += _lookup(f"w{k}", f"a{k}", dims, shift)
    source, target = ("p", "a") if unpack else ("a", "p")
    lines += [f" x{k}, y{k} = load_if({source}{k}, w{k} < words)" for k in range(each)]
    lines += [f" store_if({target}{k}, x{k}, y{k}, w{k} < words)" for k in range(each)]
    scope = {
        "cuda": cuda, "divide": divide,
        "load_if": LOAD_ONCE_IF[width], "store_if": STORE_GLOBAL_IF[width],
    }  # fmt: skip
    exec("\n".join(lines), scope)
    return cast(Callable, scope["kernel"])
