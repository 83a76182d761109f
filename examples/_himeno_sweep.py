"""The sweep of the Himeno benchmark over a box of points: one source for every kernel.

``make_sweep`` makes device functions for one part of a grid and one ``Plan``, with all extents
compiled in: the nine rows of the stencil and the twelve coefficients are then one address each and
immediate offsets, instead of 14 pointers in registers. This, and several bytes in flight for each
thread, is what a persistent kernel needs to be as fast as one launch per sweep.

A *tile* is what a block updates at a time: ``threads`` groups of 4 points, in whole rows.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
from _himeno_grid import COEFFICIENTS, Box, Part
from _himeno_vector import (
    barrier_done,
    barrier_expect,
    bulk_copy,
    device,
    grid_blocks,
    load1,
    load4,
    load4_once,
    load4_shared,
    prefetch,
    product,
    store4,
    take,
)

from device_lib.primitives import block_id, pause, sync_block, thread_rank

OMEGA = 0.8
_N = len(COEFFICIENTS)


class Plan(NamedTuple):
    """How a sweep is carried out.

    Attributes:
        threads: per block.
        blocks: per multiprocessor, for a persistent kernel.
        registers: at most so many per thread; 0 for what the compiler likes.
        staging: where a tile's coefficients come from. ``direct``: loads by the thread that needs
            them. ``ahead``: the same, one tile earlier, kept in registers. ``prefetch``: direct,
            and one thread asks L2 for the next tile's. ``bulk``: bulk copies to shared memory,
            ``stages`` tiles ahead; what fits there stays for all iterations.
        stages: tiles in shared memory, for ``bulk``.
        dynamic: blocks take tiles from a counter, in the order of memory, so that all blocks stay
            close together; else every block has its own tiles.
        once: coefficients are the first to leave the caches.
        interleaved: the coefficients of a row lie together; else each is an array.
        slab: rows along j that are swept for all i before the next; 0 for all rows.
    """

    threads: int = 256
    blocks: int = 2
    registers: int = 0
    staging: str = "direct"
    stages: int = 2
    dynamic: bool = False
    once: bool = True
    interleaved: bool = True
    slab: int = 0


class Tiling:
    """The tiles of a box: a tile is ``rows`` rows of one plane, or a segment of a row."""

    def __init__(self, box: Box, threads: int, slab: int) -> None:
        self.box = box
        self.segments = -(-box.groups // threads)
        self.groups = box.groups if self.segments == 1 else threads
        self.rows = max(1, threads // box.groups)
        self.across = -(-box.rows // self.rows)  # tiles of a plane along j
        wanted = -(-slab // self.rows) if slab else self.across
        self.slab = max(1, min(wanted, self.across))
        self.last = self.across - (-(-self.across // self.slab) - 1) * self.slab
        self.slabs = -(-self.across // self.slab)
        self.tiles = 0 if box.empty else box.planes * self.across * self.segments


class Layout:
    """How the coefficients lie in memory: ``at(m, i, j, k) = m * array + (i, j) * row + k``."""

    def __init__(self, part: Part, interleaved: bool) -> None:
        self.row = part.pitch * (_N if interleaved else 1)
        self.array = part.pitch if interleaved else part.elements
        self.interleaved = interleaved

    def shape(self, part: Part) -> tuple[int, ...]:
        if self.interleaved:
            return (part.planes, part.rows, _N, part.pitch)
        return (_N, part.planes, part.rows, part.pitch)


def make_point(lane: int):
    """The stencil at one of four neighbouring points."""
    center = lane + 1
    right = lane + 2
    omega = np.float32(OMEGA)

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


def make_relax(part: Part):
    """``gather`` reads the pressure around 4 points, ``relax`` updates them."""
    plane, pitch = part.plane, part.pitch
    point0, point1, point2, point3 = (make_point(lane) for lane in range(4))

    @device
    def window(p, at):
        """Four points of a row and their neighbours on both sides."""
        a, b, c, d = load4(p, at)
        return load1(p, at - 1), a, b, c, d, load1(p, at + 4)

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


def make_locate(tiling: Tiling):
    """(row, element along k) of the calling thread in a tile; row -1 when it has none.

    ``first`` gives the same for the first thread of a tile. A row counts ``i * rows + j``.
    """
    box = tiling.box
    segments, groups, rows = tiling.segments, tiling.groups, tiling.rows
    slab, last, slabs = tiling.slab, tiling.last, tiling.slabs
    in_slab = box.planes * slab
    i0, j0, k0 = box.i0, box.j0, 4 * box.g0
    box_groups, box_rows = box.groups, box.rows

    def make(part_rows: int):
        @device
        def corner(tile):
            """(plane, row in the box, segment) where a tile begins."""
            segment = 0
            if segments > 1:
                segment = tile % segments
                tile = tile // segments
            at = 0
            if slabs > 1:
                s = tile // in_slab
                tile = tile - s * in_slab
                at = s * slab
                if s == slabs - 1:
                    i = tile // last
                    return i, at + tile - i * last, segment
            i = tile // slab
            return i, at + tile - i * slab, segment

        @device
        def locate(tile):
            i, across, segment = corner(tile)
            thread = thread_rank()
            if segments > 1:
                group = segment * groups + thread
                if group >= box_groups:
                    return -1, 0
                return (i0 + i) * part_rows + j0 + across, k0 + 4 * group
            r = thread // groups
            j = across * rows + r
            if r >= rows or j >= box_rows:
                return -1, 0
            return (i0 + i) * part_rows + j0 + j, k0 + 4 * (thread - r * groups)

        @device
        def first(tile):
            i, across, segment = corner(tile)
            return (i0 + i) * part_rows + j0 + across * rows, k0 + 4 * segment * groups

        return locate, first

    return make


def make_sweep(part: Part, plan: Plan, box: Box) -> SimpleNamespace:
    """Device functions that sweep over a box; ``launched`` for one tile per block, ``persistent``
    for blocks that stay.

    Shapes: pressures are flat float32[part.elements], coefficients flat in ``Layout``.
    """
    tiling = Tiling(box, plan.threads, plan.slab)
    layout = Layout(part, plan.interleaved)
    tiles = tiling.tiles
    pitch, plane, row_step, array_step = part.pitch, part.plane, layout.row, layout.array
    locate, first = make_locate(tiling)(part.rows)
    gather, relax = make_relax(part)
    read = make_read(load4_once if plan.once else load4, array_step)
    dynamic, staging = plan.dynamic, plan.staging

    @device
    def update(old, new, coef, tile):
        """One tile; the calling thread's share of gosa."""
        row, k = locate(tile)
        if row < 0:
            return 0.0
        at = row * pitch + k
        return relax(new, at, read(coef, row * row_step + k), gather(old, at))

    # --- what a tile needs of memory ------------------------------------------------------------
    # One run of elements when rows are whole and their coefficients lie together, else one each.
    whole = tiling.segments == 1
    one_run = whole and plan.interleaved
    runs = 1 if one_run else _N
    held_row = pitch * (_N if one_run else 1) if whole else 0
    held_array = pitch if one_run else (tiling.rows * pitch if whole else 4 * plan.threads)
    stage_size = tiling.rows * pitch * _N if whole else 4 * plan.threads * _N
    run = stage_size // runs
    pressure_share = _N if one_run else 1
    elements = part.elements
    read_held = make_read(load4_shared, held_array)

    @device
    def run_length(k):
        """Elements of a run: the last segment of a row is shorter."""
        return run if whole else min(run, pitch - k)

    @device
    def ask_pressure(old, tile):
        """Asks L2 for the plane of pressure that this tile is first to need."""
        row, k = first(tile)
        at = row * pitch + plane + (0 if whole else k)
        prefetch(old, at, min(run_length(k) // pressure_share, elements - at))

    @device
    def ask(old, coef, tile):
        row, k = first(tile)
        begin = row * row_step + (0 if whole else k)
        for m in range(runs):
            prefetch(coef, begin + m * array_step, run_length(k))
        ask_pressure(old, tile)

    @device
    def sweep_direct(old, new, coef, counter, slot, done):
        """All tiles, by all blocks together; ``done`` is the number of tiles swept before.

        ``counter`` int64[1] in device memory counts the tiles taken so far, ``slot`` int64[2] is
        shared memory.
        """
        total = 0.0
        blocks = grid_blocks()
        tile = block_id()
        following = tile + blocks
        turn = 0
        leader = thread_rank() == 0
        while tile < tiles:
            ticket = np.int64(0)
            if dynamic and leader:
                ticket = take(counter) - done + 2 * blocks
            if staging == "prefetch" and leader and following < tiles:
                ask(old, coef, following)
            total += update(old, new, coef, tile)
            tile = following
            if dynamic:
                if leader:
                    slot[turn] = ticket
                sync_block()
                following = slot[turn]
                turn ^= 1
            else:
                following += blocks
        return total

    @device
    def sweep_ahead(old, new, coef, counter, slot, done):
        """As ``sweep_direct``; a tile's coefficients are loaded before the previous is updated."""
        total = 0.0
        blocks = grid_blocks()
        tile = block_id()
        following = tile + blocks
        turn = 0
        leader = thread_rank() == 0
        row, k = locate(min(tile, tiles - 1))
        c = read(coef, max(row, 0) * row_step + k)
        while tile < tiles:
            ticket = np.int64(0)
            if dynamic and leader:
                ticket = take(counter) - done + 2 * blocks
            at = row * pitch + k
            mine = row >= 0
            around = gather(old, max(at, plane + pitch))
            row, k = locate(min(following, tiles - 1))
            coming = read(coef, max(row, 0) * row_step + k)
            if mine:
                total += relax(new, at, c, around)
            c = coming
            tile = following
            if dynamic:
                if leader:
                    slot[turn] = ticket
                sync_block()
                following = slot[turn]
                turn ^= 1
            else:
                following += blocks
        return total

    # --- coefficients by bulk copies ------------------------------------------------------------
    stages = plan.stages

    @device
    def fill(coef, held, bars, stage, tile):
        """Starts the copies of a tile's coefficients; one thread."""
        row, k = first(tile)
        begin = row * row_step + (0 if whole else k)
        length = run_length(k)
        barrier_expect(bars, stage, runs * length * 4)
        for m in range(runs):
            at = stage * stage_size + m * held_array * (0 if one_run else 1)
            bulk_copy(held, at, coef, begin + m * array_step, length, bars, stage)

    @device
    def tiles_of_block():
        blocks = grid_blocks()
        return max(np.int64(0), (tiles - block_id() + blocks - 1) // blocks)

    @device
    def stages_of_block(count):
        """Stages in use: when all tiles of the block fit, each has one for good."""
        return min(np.int64(stages), count)

    @device
    def fill_first(coef, held, bars, queue):
        """Before the first sweep: fills the stages. All threads."""
        blocks = grid_blocks()
        if thread_rank() == 0:
            used = np.int64(stages) if dynamic else stages_of_block(tiles_of_block())
            for stage in range(used):
                tile = block_id() + stage * blocks
                queue[stage] = tile
                fill(coef, held, bars, stage, tile % tiles)
        sync_block()

    @device
    def wait_for(bars, stage, parity):
        while not barrier_done(bars, stage, parity):
            pause(0)

    @device
    def drain(bars, stage, parity):
        """After the last sweep: no copy may be under way when a block ends. All threads."""
        used = np.int64(stages) if dynamic else stages_of_block(tiles_of_block())
        for _ in range(used):
            wait_for(bars, stage, parity)
            stage += 1
            if stage == used:
                stage = np.int64(0)
                parity ^= 1

    @device
    def update_held(old, new, held, bars, stage, parity, tile):
        row, k = locate(tile)
        at = max(row * pitch + k, np.int64(plane + pitch))
        around = gather(old, at)
        wait_for(bars, stage, parity)
        if row < 0:
            return 0.0
        if whole:
            r = thread_rank() // tiling_groups
            offset = stage * stage_size + r * held_row + k
        else:
            offset = stage * stage_size + 4 * thread_rank()
        return relax(new, at, read_held(held, offset), around)

    tiling_groups = tiling.groups

    @device
    def sweep_bulk_static(old, new, coef, held, bars, queue, counter, sweep, stage, parity):
        """One sweep; returns (share of gosa, next stage, its parity)."""
        total = 0.0
        blocks = grid_blocks()
        count = tiles_of_block()
        used = stages_of_block(count)
        leader = thread_rank() == 0
        tile = block_id()
        refill = tile + used * blocks  # what the stage in use holds next
        if used == count:
            refill = tile
        for _ in range(count):
            total += update_held(old, new, held, bars, stage, parity, tile)
            tile += blocks
            if used < count:
                sync_block()
                if leader:
                    fill(coef, held, bars, stage, refill)
                    ask_pressure(old, refill)
                refill += blocks
                if refill >= tiles:
                    refill = block_id()
            stage += 1
            if stage == used:
                stage = np.int64(0)
                if used < count:
                    parity ^= 1
        return total, stage, parity

    @device
    def sweep_bulk_dynamic(old, new, coef, held, bars, queue, counter, sweep, stage, parity):
        """As ``sweep_bulk_static``, with tiles from a counter that goes on through the sweeps."""
        total = 0.0
        blocks = grid_blocks()
        leader = thread_rank() == 0
        begin = sweep * tiles
        tile = queue[stage] - begin
        while tile < tiles:
            ticket = np.int64(0)
            if leader:
                ticket = take(counter) + stages * blocks
            total += update_held(old, new, held, bars, stage, parity, tile)
            sync_block()
            if leader:
                queue[stage] = ticket
                fill(coef, held, bars, stage, ticket % tiles)
                if ticket - begin < tiles:
                    ask_pressure(old, ticket - begin)
            stage += 1
            if stage == stages:
                stage = np.int64(0)
                parity ^= 1
            if stages == 1:
                sync_block()
            tile = queue[stage] - begin
        return total, stage, parity

    return SimpleNamespace(
        tiles=tiles,
        layout=layout,
        update=update,
        sweep=sweep_ahead if staging == "ahead" else sweep_direct,
        sweep_bulk=sweep_bulk_dynamic if dynamic else sweep_bulk_static,
        fill_first=fill_first,
        drain=drain,
        shared_bytes=4 * stage_size * stages if staging == "bulk" else 0,
    )
