"""The simulator twin of ``block_cuda``: who a block's threads are, what they tell each other."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import time

from greenlet import getcurrent

#: Words of a block that stay until they are stored again (``put_block_note``).
NOTES = 4
COMMAND_NOTE = NOTES  # another one, of ``direct/grid_commands.py``


def thread_rank():
    return getcurrent().thread_id


def block_threads():
    return getcurrent().block.threads


def block_id():
    return getcurrent().block.number


def grid_blocks():
    return getcurrent().grid.blocks


def lane_id():
    return getcurrent().lane_id


def place():
    me = getcurrent()
    return me.block.number + 37 * (me.thread_id >> 5)


def scatter(bits):
    return getcurrent().block.number * 37 + (time.perf_counter_ns() >> 3) & ((1 << bits) - 1)


def sync_block_or(flag):
    me = getcurrent()
    me.block.told = False
    return any(me.block.barrier.meet(me, me.thread_id, flag, None, True))


def broadcast_block(a):
    """On a GPU thread 0 stores it where the last one was: who has that not yet would take this."""
    me = getcurrent()
    if me.thread_id == 0:
        assert not me.block.told, "two broadcasts of a block without a sync_block() between them"
        me.block.told = True
    return me.block.barrier.meet(me, me.thread_id, a)[0]


def broadcast_block_3(*values):
    return broadcast_block(values)


broadcast_block_4 = broadcast_block_5 = broadcast_block_3


def put_block_row(lane, a, b, c):
    me = getcurrent()
    me.block.rows[lane].store(me, (a, b, c))


def get_block_row(lane, a, b, c):
    me = getcurrent()
    return me.block.rows[lane].load(me)


def put_block_4(a, b, c, d):
    me = getcurrent()
    if me.thread_id == 0:
        me.block.put.store(me, (a, b, c, d))


def put_block_4_same(a, b, c, d):
    me = getcurrent()
    me.block.put.store(me, (a, b, c, d))


def get_block_4(a, b, c, d):
    me = getcurrent()
    return me.block.put.load(me)


def put_block_note(index, value):
    getcurrent().block.notes[index] = value


def get_block_note(index):
    return getcurrent().block.notes[index]
