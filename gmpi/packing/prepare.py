"""Which kernel, with which arguments, packs a plan: prepared once, and kept with the plan."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from device_lib.move import pack_words
from device_lib.platform.divide import LIMIT, magic_of
from device_lib.platform.primitives import SIMULATOR
from gmpi.datatypes.descriptor import (
    D_DELTAS,
    D_POSITIONS,
    D_UNITS,
    DESCRIPTOR_WORDS,
    RUN_LIST,
    STRIDED,
    Tables,
    describe,
    table_arrays,
)
from gmpi.datatypes.parts import Part, RunList
from gmpi.datatypes.plans import Plan
from gmpi.packing import (
    kernels,
    kernels_along,
    kernels_bytes,
    kernels_parts,
    kernels_runs,
    kernels_strided,
    kernels_tiles,
    kernels_transpose,
)
from gmpi.packing.copies import Copy, is_quicker, shape_of
from gmpi.packing.driver import Launch, kernel, multiprocessors, upload
from gmpi.tuning import kept

ENGINES = ("auto", "kernel", "copy")
_MAX_REGISTERS = {16: 64, 8: 80, 4: 80, 1: 96}
_PARTS_REGISTERS = 80
# Blocks for each multiprocessor where they take tiles in turn. On an H200 (``by_blocks`` in
# pack_bench) more than 8 are better by 2 to 3 %.
_BLOCKS = 16


def _transposing(part: Part) -> tuple[list[int], int] | None:
    """(arguments of the transposing kernel, blocks), ``None`` when the part is not for it.

    It is when single words follow each other at a stride, and words beside them in memory, within
    the 32 bytes that memory moves at once, come much later.
    """
    dims = part.dims
    if isinstance(part, RunList) or part.table is not None or part.alignment < part.atom:
        return None
    if part.atom not in pack_words.WIDTHS or not 2 <= len(dims) <= 2 + kernels_transpose.MAX_OUTER:
        return None
    fast = min(range(len(dims)), key=lambda d: abs(dims[d].stride))
    if fast == 0 or abs(dims[fast].stride) >= 32 or abs(dims[0].stride) < 32:
        return None
    if min(dims[0].count, dims[fast].count) < kernels_transpose.TILE // 4:
        return None
    packed_strides = np.cumprod([part.atom, *(dim.count for dim in dims)]).tolist()
    sides = [-(-dims[d].count // kernels_transpose.TILE) for d in (0, fast)]
    others = [d for d in range(1, len(dims)) if d != fast]
    blocks = sides[0] * sides[1] * prod(dims[d].count for d in others)
    if blocks >= LIMIT:
        return None
    arguments = [0] * kernels_transpose.ARGUMENTS
    arguments[2:12] = (
        dims[0].count, dims[0].stride, dims[fast].count, dims[fast].stride, packed_strides[fast],
        sides[0], magic_of(sides[0]), sides[1], magic_of(sides[1]), len(others),
    )  # fmt: skip
    for k, d in enumerate(others):
        row = dims[d].count, magic_of(dims[d].count), dims[d].stride, packed_strides[d]
        arguments[12 + 4 * k : 16 + 4 * k] = row
    return arguments, blocks


def _short(part: Part) -> tuple[int, list[tuple[int, int]]] | None:
    """(bytes of a block, dimensions) of short blocks at a regular pitch, which ``kernels_tiles``
    packs and ``kernels_bytes`` unpacks; ``None`` when the part is something else."""
    if isinstance(part, RunList) or part.table is not None:
        return None
    dims = [(dim.count, dim.stride) for dim in part.dims]
    return (part.atom, dims) if kernels_tiles.is_short(part.atom, dims) else None


def _strided_numbers(part: Part, width: int, dims: int) -> list[int] | None:
    """Of a strided block without a table, as one of so many dimensions."""
    if isinstance(part, RunList) or part.table is not None:
        return None
    more = [(1, 0)] * (dims - len(part.dims))
    found = [(dim.count, dim.stride) for dim in part.dims]
    return kernels_strided.numbers_of(width, part.atom, found + more)


def _runs_numbers(part: Part, descriptor: np.ndarray) -> list[int] | None:
    """Of a run list that is not repeated."""
    if not isinstance(part, RunList) or part.dims:
        return None
    tables = [int(descriptor[at // 8]) for at in (D_POSITIONS, D_DELTAS, D_UNITS)]
    return [part.size, *tables, part.alignment.bit_length() - 1]


def _width(bits: int) -> int:
    """Widest word for addresses and displacements with these bits; 1: byte by byte."""
    width = min(bits & -bits, pack_words.WIDTHS[0])
    return width if width >= pack_words.WIDTHS[-1] else 1


Way = Launch | Copy


class Prepared:
    """A plan for one count, on one device, ready to be launched.

    Attributes:
        low, high: first and last + 1 byte of the user's memory that it touches.
        nbytes: packed.
        most_blocks: of a launch that takes tiles in turn; ``None``: as many blocks as are good.
        shape: of the copy that could do it; ``None``: none can.
        by_copy: whether it does, unless the user says otherwise.
    """

    def __init__(self, plan: Plan, low: int, high: int, device: int) -> None:
        self.low, self.high, self.nbytes = low, high, plan.size
        self._most_blocks: int | None = None
        self._device = device
        self._keep: list[Any] = []
        # Of packing and unpacking, by the last four bits of both addresses: what moves the bytes.
        self._ways: tuple[dict[int, Way], dict[int, Way]] = {}, {}
        self._kernels: dict[tuple[int, int, bool], Launch] = {}
        self._copies: dict[bool, Copy] = {}
        self.shape = shape_of(plan.parts)
        # In the simulator kernels are what is to be tried.
        self.by_copy = not SIMULATOR and self.shape is not None
        if self.by_copy and self.shape is not None:
            self.by_copy = is_quicker(self.shape, kept.tuned_here().copy_rows)
        self._parts = plan.parts
        self._single = len(plan.parts) == 1
        self._transposing = _transposing(plan.parts[0]) if self._single else None
        self._short = _short(plan.parts[0]) if self._single else None
        self._descriptors = [
            describe(part, Tables(**upload(table_arrays(part), self._keep)), 0)
            for part in plan.parts
        ]
        self._bits = 0
        for part in plan.parts:
            self._bits |= part.alignment

    @classmethod
    def of(cls, plan: Plan, count: int, device: int) -> Prepared:
        return cls(plan.repeated(count), *plan.reach(count), device)

    @property
    def most_blocks(self) -> int | None:
        return self._most_blocks

    @most_blocks.setter
    def most_blocks(self, blocks: int | None) -> None:
        self._most_blocks = blocks
        for known in (*self._ways, self._kernels):
            known.clear()

    def launch(
        self, user: int, packed: int, unpack: bool, stream: Any, engine: str = "auto"
    ) -> None:
        """Packs or unpacks: addresses of the user's and of the packed memory.

        Args:
            engine: of ENGINES.

        Raises:
            ValueError: it is none of them, or no copy can do it.
        """
        ending = (user & 15) << 4 | packed & 15
        way = self._ways[unpack].get(ending) if engine == "auto" else None
        if way is None:
            copy = self._copy(unpack, engine) if engine != "auto" or self.by_copy else None
            way = copy or self._kernel(user & 15, packed & 15, unpack)
            if engine == "auto":
                self._ways[unpack][ending] = way
        way(user, packed, stream)

    def _kernel(self, user: int, packed: int, unpack: bool) -> Launch:
        key = user, packed, unpack
        if key not in self._kernels:
            self._kernels[key] = self._prepare(user, packed, unpack)
        return self._kernels[key]

    def _copy(self, unpack: bool, engine: str) -> Copy | None:
        """The copy that does it; ``None``: a kernel does."""
        if engine == "kernel" or (engine == "auto" and self.most_blocks is not None):
            return None
        if engine not in ENGINES:
            raise ValueError(f"engine is {engine!r}, allowed is {', '.join(ENGINES)}")
        if self.shape is None:
            raise ValueError(
                "engine is 'copy', but the datatype is not one block repeated along up to two "
                "dimensions, each a multiple of the other: use 'auto' or 'kernel'"
            )
        if unpack not in self._copies:
            self._copies[unpack] = Copy(self.shape, unpack)
        return self._copies[unpack]

    def _prepare(self, user: int, packed: int, unpack: bool) -> Launch:
        """For addresses that end in these four bits."""
        bits = user | packed
        if self._transposing is not None and bits & (self._parts[0].atom - 1) == 0:
            return self._prepare_transpose(unpack)
        width = _width(bits | self._bits | 16)
        found = None
        if width == 1 and self._short is not None:
            prepare = self._prepare_bytes if unpack else self._prepare_tiling
            found = prepare(*self._short)
        if width > 1 and self.most_blocks is None:
            found = self._prepare_along(width) if unpack and self._single else None
            found = found or self._prepare_words(width, unpack)
        if found is None and self._single:
            found = self._prepare_part(width, unpack, packed == 0)
        return found or self._prepare_parts(width, unpack)

    def _prepare_words(self, width: int, unpack: bool) -> Launch | None:
        """For the usual layouts."""
        if not self._single:
            return self._prepare_rows(width, unpack)
        return self._prepare_strided(width, unpack) or self._prepare_runs(width, unpack)

    def _prepare_along(self, width: int) -> Launch | None:
        """For short blocks that end and begin in the middle of what memory writes at once."""
        part = self._parts[0]
        if isinstance(part, RunList) or part.table is not None:
            return None
        dims = [(dim.count, dim.stride) for dim in part.dims]
        found = kernels_along.along(width, part.atom, dims)
        if found is None:
            return None
        body = kernels_along.along_body(width, found.outer)
        code = kernel(self._device, body, kernels_along.ARGUMENTS, kernels_along.REGISTERS)
        threads = kernels_along.SHAPES[width].threads
        return Launch(code, found.arguments, found.blocks, part.offset, threads)

    def _prepare_transpose(self, unpack: bool) -> Launch:
        assert self._transposing is not None
        part = self._parts[0]
        body = kernels_transpose.transpose_body(part.atom, unpack)
        code = kernel(self._device, body, kernels_transpose.ARGUMENTS, 64)
        return Launch(code, *self._transposing, part.offset)

    def _prepare_tiling(self, atom: int, dims: list[tuple[int, int]]) -> Launch | None:
        found = kernels_tiles.tiling(atom, dims)
        if found is None:
            return None
        body = kernels_tiles.tiles_body(found.long, found.outer)
        code = kernel(self._device, body, kernels_tiles.ARGUMENTS, kernels_tiles.REGISTERS)
        offset = self._parts[0].offset
        return Launch(code, found.arguments, found.blocks, offset, kernels_tiles.THREADS)

    def _prepare_bytes(self, atom: int, dims: list[tuple[int, int]]) -> Launch | None:
        found = kernels_bytes.bytes_along(atom, dims)
        if found is None:
            return None
        width = kernels_bytes.width_of(atom)
        body = kernels_bytes.bytes_body(width, found.outer)
        code = kernel(self._device, body, kernels_bytes.ARGUMENTS, kernels_bytes.REGISTERS)
        threads = kernels_bytes.SHAPES[width].threads
        return Launch(code, found.arguments, found.blocks, self._parts[0].offset, threads)

    def _prepare_strided(self, width: int, unpack: bool) -> Launch | None:
        part = self._parts[0]
        numbers = _strided_numbers(part, width, len(part.dims))
        if numbers is None:
            return None
        body = kernels_strided.strided_body(width, len(part.dims), unpack)
        arguments = [0, 0, *numbers]
        code = kernel(self._device, body, len(arguments), kernels_strided.REGISTERS)
        blocks = -(-numbers[0] // kernels_strided.tile_words(width, unpack))
        threads = kernels_strided.SHAPES[width, unpack].threads
        return Launch(code, arguments, blocks, part.offset, threads)

    def _prepare_runs(self, width: int, unpack: bool) -> Launch | None:
        part = self._parts[0]
        numbers = _runs_numbers(part, self._descriptors[0])
        if numbers is None:
            return None
        body = kernels_runs.runs_body(width, unpack)
        code = kernel(self._device, body, kernels_runs.ARGUMENTS, kernels_runs.REGISTERS[width])
        blocks = kernels_runs.blocks_for(part.size)
        return Launch(code, [0, 0, *numbers], blocks, part.offset, kernels_runs.THREADS)

    def _prepare_rows(self, width: int, unpack: bool) -> Launch | None:
        """All parts in one launch, where each is strided without a table or a list of runs."""
        lists = [isinstance(part, RunList) for part in self._parts]
        strided = [len(part.dims) for part, runs in zip(self._parts, lists) if not runs]
        dims = max(1, *strided)
        shape = kernels_parts.shape_of(width, unpack)
        rows = np.zeros((len(lists), kernels_parts.row_words(dims)), np.int64)
        tiles: list[int] = []
        for part, runs, descriptor, row in zip(self._parts, lists, self._descriptors, rows):
            numbers = _runs_numbers(part, descriptor) or _strided_numbers(part, width, dims)
            if numbers is None:
                return None
            row[:4] = sum(tiles), part.begin, part.offset, kernels_parts.RUNS if runs else 0
            row[4 : 4 + len(numbers)] = numbers
            strided_tiles = -(-part.size // (width * shape.threads * shape.words))
            tiles.append(kernels_runs.blocks_for(part.size) if runs else strided_tiles)
        part_of = np.repeat(np.arange(len(tiles), dtype=np.int32), tiles)
        tables = upload({"part_of": part_of, "rows": rows}, self._keep)
        body = kernels_parts.parts_body(width, dims, any(lists), unpack)
        registers = kernels_parts.registers(width, dims)
        code = kernel(self._device, body, kernels_parts.ARGUMENTS, registers)
        return Launch(code, [0, 0, *tables.values()], len(part_of), threads=kernels_parts.THREADS)

    def _prepare_part(self, width: int, unpack: bool, packed_aligned: bool) -> Launch:
        part = self._parts[0]
        words = part.size // width
        kind = RUN_LIST if isinstance(part, RunList) else STRIDED
        pairs = kind == RUN_LIST and width == 8 and packed_aligned
        body = kernels.kernel_body(kind, width, unpack, words >= LIMIT, pairs)
        code = kernel(self._device, body, kernels.PART_ARGUMENTS, _MAX_REGISTERS[width])
        arguments = [0, 0, words, len(part.dims), *self._descriptors[0].tolist()]
        blocks = -(-words // kernels.tile_words(width))
        most = self.most_blocks or multiprocessors(self._device) * _BLOCKS
        return Launch(code, arguments, min(blocks, most))

    def _prepare_parts(self, width: int, unpack: bool) -> Launch:
        """All parts in one launch, of whatever kind: a table says which part a tile belongs to."""
        tile = kernels.tile_words(width) * width
        tiles = [-(-part.size // tile) for part in self._parts]
        part_of = np.repeat(np.arange(len(tiles), dtype=np.int32), tiles)
        names = {
            "descriptors": np.concatenate(self._descriptors),
            "part_of": part_of,
            "first_of": np.cumsum([0, *tiles[:-1]]).astype(np.int32),
        }
        addresses = upload(names, self._keep)
        wide = any(part.size // width >= LIMIT for part in self._parts)
        body = kernels.parts_body(width, unpack, wide)
        code = kernel(self._device, body, kernels.PARTS_ARGUMENTS, _PARTS_REGISTERS)
        most = multiprocessors(self._device) * _BLOCKS
        arguments = [0, 0, *addresses.values(), len(part_of)]
        return Launch(code, arguments, min(len(part_of), self.most_blocks or most))


assert kernels.PART_ARGUMENTS == 4 + DESCRIPTOR_WORDS
