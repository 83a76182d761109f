"""A call of block scope that the leading warp carries out alone: the other warps do its jobs.

A call that all threads carry out pays for all of them: each saves registers, each comes to every
barrier. Here the others wait at a barrier, read a *job* from the block's shared memory, do their
share of it, and meet again; the last job is the call's result. The leading warp is that of a call
of warp scope, by the same code: then there is nobody else, and it does all of each job.

A job is a single one, with its words, or *rows*, which say what to move (``block_rows``). Of a
batch of rows the leading warp moves the short ones by itself.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.direct import many_packets, packets
from device_lib.direct.block_rows import (
    COPY,
    OF_A_WARP,
    PUT_PACKETS,
    PUT_WIDE,
    TAKE_PACKETS,
    lies_well,
    move_rows,
    parts_of,
    put_rows,
)
from device_lib.direct.block_words import GRID, OVER, PUSH, TAKE, TOGETHER, put_words
from device_lib.direct.grid_jobs import execute as execute_in_grid
from device_lib.direct.long_moves import push_pieces, take_pieces
from device_lib.direct.staged_parts import make_push
from device_lib.move.blocks import pack_any
from device_lib.move.stretch import put_stretch
from device_lib.platform import primitives as gpu
from device_lib.platform.context import as_leading_warp, leads_block
from device_lib.platform.library import declared, linked
from device_lib.platform.primitives import device, int64, uint32
from device_lib.platform.scope import ALL_LANES, Scope, warp_lanes, warp_mask
from gmpi.contract.wire import SCATTERED

# Kinds of jobs, beside those of ``block_words``.
_HELP = 17  # executes commands of the proxied road
_PACK = 18
_PUT_WIDE = 19
_TAKE_WIDE = 20
_COPY = 21


@device
def _move(ctx, to, source, word):
    """Moves a row that is not in packets of a slot, by the calling warp."""
    nbytes, kind, number = parts_of(word)
    lane, lanes = int64(gpu.lane_id()), int64(warp_lanes())
    if kind == COPY:
        put_stretch(to, source, nbytes, lane, lanes)
    elif kind == PUT_WIDE:
        packets.put_wide(to, source, nbytes, number, lane, lanes)
    else:
        mark = packets.mark_of(number)
        return packets.take_wide(ctx, source, to, nbytes, nbytes, mark, lane, lanes)
    return 0


@device
def _put_packets(to, source, nbytes, mark):
    """A row that goes to its slot, by a full warp."""
    short = uint32(nbytes)
    many = many_packets.together(source, short)
    six = many_packets.load_six(source, many)
    many_packets.put(to, source, short, mark, many, six)
    return 0


@device
def _take_packets(ctx, to, source, nbytes, mark):
    short = uint32(nbytes)
    four = many_packets.look(source, many_packets.together(to, short), mark << 32)
    return many_packets.take(ctx, source, to, short, mark, four)


_move_linked = linked("gmpi_direct_move_row", 6, 1, _move)
_put_packets_linked = linked("gmpi_direct_put_row", 4, 1, _put_packets)
_take_packets_linked = linked("gmpi_direct_take_row", 7, 1, _take_packets)


@device
def _move_by_warp(ctx, rows, to, source, word):
    """Moves rows by the calling warp, as ``_batch``."""
    failed = 0
    while rows != 0:
        row = gpu.first_bit(rows)
        rows &= rows - 1
        its_to, its_source = gpu.shuffle(ALL_LANES, to, row), gpu.shuffle(ALL_LANES, source, row)
        its = gpu.shuffle(ALL_LANES, word, row)
        nbytes, kind, number = parts_of(its)
        if kind == PUT_PACKETS:
            _put_packets_linked(its_to, its_source, nbytes, packets.mark_of(number))
        elif kind == TAKE_PACKETS:
            mark = packets.mark_of(number)
            failed |= _take_packets_linked(ctx, its_to, its_source, nbytes, mark)
        else:
            failed |= _move_linked(ctx, its_to, its_source, its)
    return 1 if gpu.ballot(ALL_LANES, failed != 0) != 0 else 0


_pack_share = make_push(pack_any)


# wide: words of a job
@device
def _execute(ctx, kind, a, b, c, d, e, rank, size):
    """The calling thread's share of a job: 1 where waits were aborted before it was done, else
    0."""
    if kind == _PACK:
        _pack_share(ctx, a, b, c, d, e, rank, size)
    elif kind == _PUT_WIDE:
        packets.put_wide(a, b, c, d, rank, size)
    elif kind == _COPY:
        put_stretch(a, b, c, rank, size)
    else:
        return packets.take_wide(ctx, a, b, c, d, e, rank, size)
    return 0


_execute_linked = linked("gmpi_direct_execute_job", 11, 1, _execute)
_help_block = declared("gmpi_help_block", 3, 1)


@device
def _do_rare(ctx):
    """The same of the job whose words are in the block's shared memory."""
    kind, a, b, c = gpu.get_block_4(0, 0, 0, 0)
    d, e, command = gpu.get_block_row(0, 0, 0, 0)
    if kind == _HELP:
        return _help_block(ctx)
    if kind == GRID:
        return execute_in_grid(ctx, command, a, b, c, d, e)
    rank, size = int64(gpu.thread_rank()), int64(gpu.block_threads())
    return _execute_linked(ctx, kind, a, b, c, d, e, rank, size)


_do_rare_linked = linked("gmpi_direct_do_job", 3, 1, _do_rare)


@device
def _share(ctx, kind, a, b, c, d, e):
    """Has a job done, as ``batch``."""
    if leads_block(ctx):
        put_words(kind, a, b, c, d, e, 0)
        gpu.sync_block()
        return 1 if gpu.sync_block_or(_do_rare_linked(ctx)) else 0
    rank, size = int64(gpu.lane_id()), int64(warp_lanes())
    failed = _execute_linked(ctx, kind, a, b, c, d, e, rank, size)
    gpu.sync_warp(warp_mask())
    return 1 if gpu.ballot(warp_mask(), failed != 0) != 0 else 0


_share_linked = linked("gmpi_direct_share_job", 9, 1, _share)


# --- rows -----------------------------------------------------------------------------------------


@device
def _move_by_all(ctx, rows, to, source, word):
    """Has rows that lie well moved, as ``_batch``."""
    failed = 0
    lengths = parts_of(word)[0]
    lane = int64(gpu.lane_id())
    while rows != 0:
        nbytes = gpu.shuffle(ALL_LANES, lengths, gpu.first_bit(rows))
        same = gpu.ballot(ALL_LANES, rows >> lane & 1 != 0 and lengths == nbytes)
        log, nbytes, left = put_rows(same, to, source, word)
        gpu.sync_block()
        failed |= 1 if gpu.sync_block_or(move_rows(ctx, log, nbytes)) else 0
        rows = rows & ~same | left
    return failed


@device
def _copy_each(ctx, rows, to, source, word):
    """Has rows copied that do not lie well, as ``_batch``."""
    failed = 0
    while rows != 0:
        row = gpu.first_bit(rows)
        rows &= rows - 1
        its_to, its_source = gpu.shuffle(ALL_LANES, to, row), gpu.shuffle(ALL_LANES, source, row)
        nbytes = gpu.shuffle(ALL_LANES, parts_of(word)[0], row)
        failed |= _share_linked(ctx, _COPY, its_to, its_source, nbytes, 0, 0)
    return failed


@device
def _batch(ctx, rows, to, source, word):
    """Has the rows of a batch moved, by the leading warp, which is full: 1 where waits were aborted
    before all was done, else 0.

    Args:
        rows: bits of the lanes whose words these are, the same in all lanes.
        to, source, word: of the lane's row (``row_word``).
    """
    if leads_block(ctx):
        mine = rows >> int64(gpu.lane_id()) & 1 != 0
        short = gpu.ballot(ALL_LANES, mine and parts_of(word)[0] <= OF_A_WARP)
        for_all = gpu.ballot(ALL_LANES, mine and lies_well(to, source, word))
        failed = _move_by_warp(ctx, short, to, source, word)
        failed |= _move_by_all(ctx, for_all, to, source, word)
        return failed | _copy_each(ctx, rows & ~(short | for_all), to, source, word)
    failed = _move_by_warp(ctx, rows, to, source, word)
    gpu.sync_warp(ALL_LANES)
    return failed


batch = linked("gmpi_direct_move_batch", 7, 1, _batch)


# --- single jobs ----------------------------------------------------------------------------------


@device
def copy(ctx, target, source, nbytes):
    _share_linked(ctx, _COPY, target, source, nbytes, 0, 0)


@device
def pack(ctx, slot, packed, nbytes):
    """Packs a send that is not in one piece."""
    _share_linked(ctx, _PACK, slot, packed, SCATTERED, 0, nbytes)


@device
def put_wide(ctx, to, address, nbytes, wide):
    _share_linked(ctx, _PUT_WIDE, to, address, nbytes, wide, 0)


@device
def take_wide(ctx, place, target, moved, length, mark):
    return _share_linked(ctx, _TAKE_WIDE, place, target, moved, length, mark)


@device
def help_by_block(ctx):
    """Has commands of the proxied road executed by a block; its leading warp."""
    _share_linked(ctx, _HELP, 0, 0, 0, 0, 0)


# --- a call of block scope ------------------------------------------------------------------------


@device
def begin(ctx):
    """The leading warp: what other threads of its scope wrote to the buffers is there."""
    if leads_block(ctx):
        gpu.sync_block()
    else:
        gpu.sync_warp(warp_mask())


@device
def release(a, b, c):
    """The leading warp of a block: its call is over, with a result."""
    gpu.put_block_4(OVER, a, b, c)
    gpu.sync_block()


@device
def _serve(ctx):
    """Does jobs, of which the first one is there, until the call is over: its result."""
    kind, a, b, c = gpu.get_block_4(0, 0, 0, 0)
    while kind != OVER:
        failed = 0
        if kind == PUSH:
            push_pieces(ctx, a)
        elif kind == TAKE:
            take_pieces(ctx, a, b)
        elif kind == TOGETHER:
            failed = move_rows(ctx, a, b)
        else:
            failed = _do_rare_linked(ctx)
        gpu.sync_block_or(failed)
        gpu.sync_block()
        kind, a, b, c = gpu.get_block_4(0, 0, 0, 0)
    return a, b, c


_serve_linked = linked("gmpi_direct_serve_jobs", 3, 3, _serve)


@device
def follow(ctx):
    """What the call returns, in the block's other warps: most have no job, and then nothing is
    called, which would save registers in all of them."""
    gpu.sync_block()  # ``begin``
    gpu.sync_block()
    kind, a, b, c = gpu.get_block_4(0, 0, 0, 0)
    if kind != OVER:
        a, b, c = _serve_linked(ctx)
    return a, b, c


@device
def follow_rows(ctx):
    """The same where rows are likely: here nothing is saved for these."""
    gpu.sync_block()
    gpu.sync_block()
    kind, a, b, c = gpu.get_block_4(0, 0, 0, 0)
    while kind == TOGETHER:
        gpu.sync_block_or(move_rows(ctx, a, b))
        gpu.sync_block()
        kind, a, b, c = gpu.get_block_4(0, 0, 0, 0)
    if kind != OVER:
        a, b, c = _serve_linked(ctx)
    return a, b, c


def make_led(scope: Scope, body: Callable, results: int) -> Callable:
    """A function of warp scope for the threads of any scope: of a block, its leading warp carries
    it out.

    Args:
        body: of the library, with a context; returns one word or three.
    """
    if scope.name == "warp":
        return body
    leads = scope.leads

    @device
    def call_1(ctx, *words):
        if leads():
            led = as_leading_warp(ctx)
            begin(led)
            a = body(led, *words)
            release(a, 0, 0)
        else:
            a, b, c = follow(ctx)
        return a

    @device
    def call_3(ctx, *words):
        if leads():
            led = as_leading_warp(ctx)
            begin(led)
            a, b, c = body(led, *words)
            release(a, b, c)
        else:
            a, b, c = follow(ctx)
        return a, b, c

    return call_1 if results == 1 else call_3
