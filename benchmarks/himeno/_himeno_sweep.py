"""The sweep of the Himeno benchmark over a part of the grid: one source for every kernel.

``make_sweep`` makes device functions for one part of a grid and one ``Plan``, with all extents
compiled in: the nine rows of the stencil and the twelve coefficients are then one address each and
immediate offsets, instead of 14 pointers in registers. This, and several bytes in flight for each
thread, is what a persistent kernel needs to be as fast as one launch per sweep. What it can do and
launches cannot: some coefficients stay in shared memory for all iterations.

A *tile* is what a block updates at a time: ``threads`` groups of 4 points, in whole rows.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
from _himeno_faces import PIECE
from _himeno_fetch import spin
from _himeno_grid import COEFFICIENTS, Box, Part
from _himeno_vector import (
    acquire,
    arrive,
    device,
    load1,
    load4,
    load4_once,
    load4_shared,
    product,
    store4,
    store4_shared,
    take,
)

from device_lib.platform.primitives import sync_block, thread_rank

OMEGA = 0.8
_N = len(COEFFICIENTS)

# Words of the board, int64 in device memory, zero before a kernel starts; on lines of their own.
TICKETS = 0  # tiles taken so far by all blocks, over all iterations
READY = 16  # outer tiles that have been updated, over all iterations
WORKERS = 32  # blocks that sweep
HELPERS = 40  # blocks that communicate because they share a multiprocessor with one that does
FAILED = 48  # 0, or 1 + the number of the iteration in which a message failed
MET = 64  # how often blocks have come to the barrier after an iteration
BUSY = 80  # for each multiprocessor: whether one of its blocks communicates
BOARD = BUSY + 1024


class Plan(NamedTuple):
    """How a sweep is carried out.

    Attributes:
        threads: per block.
        blocks: per multiprocessor, for a persistent kernel.
        registers: at most so many per thread; 0 for what the compiler likes.
        held: tiles per block whose coefficients stay in shared memory for all iterations.
        dynamic: blocks take the other tiles from a counter, in the order of memory, so that all
            blocks stay close together; else every block has its own tiles.
        once: coefficients are the first to leave the caches.
        communicating: multiprocessors whose blocks communicate and do not sweep.
        messages: that a face is cut into, as far as it has rows; 0 for as many as there are blocks
            that communicate, but none of less than 64 KiB.
        slots: planes whose coefficients are in shared memory when two iterations are swept together
            (``_himeno_wave.py``); 0 for one after the other.
        slot_bytes: of shared memory for each of them.
        workers: blocks that sweep then.
    """

    threads: int = 256
    blocks: int = 2
    registers: int = 0
    held: int = 0
    dynamic: bool = False
    once: bool = True
    communicating: int = 1
    messages: int = 0
    slots: int = 0
    slot_bytes: int = 0
    workers: int = 0

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        return self.held * self.threads * 4 * _N * 4 + self.slots * self.slot_bytes

    @property
    def pieces(self) -> tuple[int, int]:
        """Most messages for a face, and fewest elements of one."""
        if self.messages:
            return self.messages, 1
        return self.communicating * self.blocks, PIECE


class Tiling:
    """The tiles of a box: a tile is ``rows`` rows of one plane, or a segment of a row."""

    def __init__(self, box: Box, threads: int) -> None:
        self.box = box
        self.segments = -(-box.groups // threads)
        self.groups = box.groups if self.segments == 1 else threads
        self.rows = max(1, threads // box.groups)
        self.across = -(-box.rows // self.rows)  # tiles of a plane along j
        self.tiles = box.planes * self.across * self.segments


class Layout:
    """How the coefficients lie in memory: those of a row together.

    Element ``(m, i, j, k)`` is at ``m * array + (i * rows + j) * row + k``.
    """

    def __init__(self, part: Part) -> None:
        self.row = part.pitch * _N
        self.array = part.pitch


def make_point(lane: int):
    """The stencil at one of four neighbouring points."""
    center = lane + 1
    right = lane + 2
    omega = np.float32(OMEGA)

    # wide: the nine columns of the stencil
    @device
    def point(c, m0, om, oo, op, p0, mm, mp, pm, pp):
        """(new pressure, residual); a name is (i, j): m for -1, o for 0, p for 1."""
        s0 = (
            product(c[0][lane], p0[center])
            + product(c[1][lane], op[center])
            + product(c[2][lane], oo[right])
            + product(c[4][lane], pp[lane] - pm[lane] - mp[lane] + mm[lane])
            + product(c[5][lane], op[right] - om[right] - op[lane] + om[lane])
            + product(c[6][lane], p0[right] - m0[right] - p0[lane] + m0[lane])
            + product(c[7][lane], m0[center])
            + product(c[8][lane], om[center])
            + product(c[9][lane], oo[lane])
            + c[11][lane]
        )
        ss = product(product(s0, c[3][lane]) - oo[center], c[10][lane])
        return oo[center] + product(omega, ss), ss

    return point


@device
def window(p, at):
    """Four points of a row and their neighbours on both sides: at its ends whatever is there, since
    points there do not change."""
    a, b, c, d = load4(p, at)
    return load1(p, at - 1), a, b, c, d, load1(p, at + 4)


def make_relax(part: Part):
    """``gather`` reads the pressure around 4 points, ``relax`` updates them."""
    plane, pitch = part.plane, part.pitch
    point0, point1, point2, point3 = (make_point(lane) for lane in range(4))

    @device
    def gather(p, at):
        return (
            window(p, at - plane),
            window(p, at - pitch),
            window(p, at),
            window(p, at + pitch),
            window(p, at + plane),
            load4(p, at - plane - pitch),
            load4(p, at - plane + pitch),
            load4(p, at + plane - pitch),
            load4(p, at + plane + pitch),
        )

    @device
    def relax(new, at, c, around):
        """Writes 4 points; returns their share of gosa."""
        m0, om, oo, op, p0, mm, mp, pm, pp = around
        w0, s0 = point0(c, m0, om, oo, op, p0, mm, mp, pm, pp)
        w1, s1 = point1(c, m0, om, oo, op, p0, mm, mp, pm, pp)
        w2, s2 = point2(c, m0, om, oo, op, p0, mm, mp, pm, pp)
        w3, s3 = point3(c, m0, om, oo, op, p0, mm, mp, pm, pp)
        store4(new, at, w0, w1, w2, w3)
        return np.float64(s0 * s0 + s1 * s1 + (s2 * s2 + s3 * s3))

    return gather, relax


def make_read(load, array: int):
    """The twelve coefficients of 4 points, ``array`` elements from one to the next."""

    @device
    def read(coef, at):
        return (
            load(coef, at),
            load(coef, at + array),
            load(coef, at + 2 * array),
            load(coef, at + 3 * array),
            load(coef, at + 4 * array),
            load(coef, at + 5 * array),
            load(coef, at + 6 * array),
            load(coef, at + 7 * array),
            load(coef, at + 8 * array),
            load(coef, at + 9 * array),
            load(coef, at + 10 * array),
            load(coef, at + 11 * array),
        )

    return read


def make_locate(tilings: list[Tiling], part_rows: int):
    """(row, element along k) of the calling thread in a tile; row -1 when it has none.

    A row counts ``i * rows + j``. The tiles of all boxes are numbered one box after the other.
    """
    tiling, others = tilings[0], tilings[1:]
    box, tiles, across = tiling.box, tiling.tiles, tiling.across
    segments, groups, rows = tiling.segments, tiling.groups, tiling.rows
    i0, j0, k0 = box.i0, box.j0, 4 * box.g0
    box_groups, box_rows = box.groups, box.rows

    @device
    def locate(tile):
        thread = thread_rank()
        if segments > 1:
            segment = tile % segments
            tile = tile // segments
            i = tile // across
            group = segment * groups + thread
            if group >= box_groups:
                return -1, 0
            return (i0 + i) * part_rows + j0 + tile - i * across, k0 + 4 * group
        i = tile // across
        r = thread // groups
        j = (tile - i * across) * rows + r
        if r >= rows or j >= box_rows:
            return -1, 0
        return (i0 + i) * part_rows + j0 + j, k0 + 4 * (thread - r * groups)

    if not others:
        return locate
    rest = make_locate(others, part_rows)

    @device
    def locate_in_all(tile):
        if tile < tiles:
            return locate(tile)
        return rest(tile - tiles)

    return locate_in_all


def make_update(part: Part, plan: Plan, boxes: list[Box]) -> SimpleNamespace:
    """``update`` for one tile of the boxes; ``hold`` and ``update_held`` for coefficients in
    shared memory.

    Shapes: pressures are flat float32[part.elements], coefficients flat in ``Layout``.
    """
    tilings = [Tiling(box, plan.threads) for box in boxes if not box.empty]
    layout = Layout(part)
    pitch, row_step = part.pitch, layout.row
    locate = make_locate(tilings, part.rows)
    gather, relax = make_relax(part)
    read = make_read(load4_once if plan.once else load4, layout.array)
    held_array = 4 * plan.threads
    held_tile = _N * held_array
    read_held = make_read(load4_shared, held_array)

    @device
    def update(old, new, coef, tile):
        """One tile; the calling thread's share of gosa."""
        row, k = locate(tile)
        if row < 0:
            return 0.0
        at = row * pitch + k
        return relax(new, at, read(coef, row * row_step + k), gather(old, at))

    @device
    def hold(coef, held, place, tile):
        """Loads the coefficients of a tile, each thread those that it will need itself."""
        row, k = locate(tile)
        if row >= 0:
            to = place * held_tile + 4 * thread_rank()
            for c in read(coef, row * row_step + k):
                store4_shared(held, to, c[0], c[1], c[2], c[3])
                to += held_array

    @device
    def update_held(old, new, held, place, tile):
        """``update`` with the coefficients that ``hold`` put at this place."""
        row, k = locate(tile)
        if row < 0:
            return 0.0
        at = row * pitch + k
        c = read_held(held, place * held_tile + 4 * thread_rank())
        return relax(new, at, c, gather(old, at))

    return SimpleNamespace(
        tiles=sum(tiling.tiles for tiling in tilings),
        update=update,
        hold=hold,
        update_held=update_held,
    )


def make_sweep(part: Part, plan: Plan) -> SimpleNamespace:
    """Device functions for the blocks of a persistent kernel that sweep again and again.

    The outer tiles, which neighbours wait for, come first: when ``board[READY]`` has grown by
    ``outer``, all of them have been updated, and the threads that have seen it may read them.
    """
    made = make_update(part, plan, [*part.outer, part.inner])
    tiles, update, hold, update_held = made.tiles, made.update, made.hold, made.update_held
    outer = sum(Tiling(box, plan.threads).tiles for box in part.outer)
    most_held, dynamic = plan.held, plan.dynamic

    @device
    def begin(coef, held, worker, workers):
        """Loads what stays; once. Returns (tiles that are not held by any block, held by this)."""
        direct = max(tiles - most_held * workers, 0)
        count = 0
        tile = direct + worker
        while tile < tiles and count < most_held:
            hold(coef, held, count, tile)
            tile += workers
            count += 1
        return direct, count

    # wide: the kernel's arrays, and the block's share
    @device
    def sweep(old, new, coef, held, board, slot, n, worker, workers, direct, count):
        """Iteration ``n`` of a block; the calling thread's share of gosa.

        ``slot`` is int64[2] in shared memory. Held tiles alternate with the others, so that all
        the time some blocks load coefficients and some do not need to.
        """
        total = 0.0
        leader = thread_rank() == 0
        tile = worker
        following = tile + workers
        held_tile = direct + worker
        place = 0
        side = 0
        held_next = False
        while tile < direct or place < count:
            ours = 0
            if place < count and (held_next or tile >= direct):
                ours = held_tile
                total += update_held(old, new, held, place, ours)
                held_tile += workers
                place += 1
                held_next = False
                if ours < outer:
                    sync_block()
            else:
                ours = tile
                ticket = 0
                if dynamic and leader:
                    ticket = take(board) - n * direct + 2 * workers
                total += update(old, new, coef, ours)
                tile = following
                following += workers
                if dynamic and leader:
                    slot[side] = ticket
                if dynamic or ours < outer:
                    sync_block()
                if dynamic:
                    following = slot[side]
                    side ^= 1
                held_next = True
            if ours < outer and leader:
                arrive(board, READY)  # the barrier put the tile of all threads before this
        return total

    @device
    def await_outer(board, n):
        """Returns when all blocks have updated their outer tiles of iteration ``n``; a block."""
        if thread_rank() == 0:
            while acquire(board, READY) < (n + 1) * outer:
                spin()
        sync_block()

    return SimpleNamespace(
        tiles=tiles, outer=outer, begin=begin, sweep=sweep, await_outer=await_outer
    )
