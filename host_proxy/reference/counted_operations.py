"""The mpi4py engine's collectives whose blocks have counts of their own: one call of MPI each."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI

from gmpi.contract import layouts, moves, wire
from gmpi.contract.constants import DATATYPES
from gmpi.contract.moves import BACK, OUT
from host_proxy.platform import operations as ops
from host_proxy.platform.state import D_HANDLE, D_SIZE, S_COMM, S_OP, S_PEER, S_TAG
from host_proxy.records.fault_log import log_request
from host_proxy.reference.blocks import begin_counted
from host_proxy.reference.counts import Blocks, Reader, Refused, corrupt, no_neighbours
from host_proxy.reference.flows import number_of
from host_proxy.reference.protocol import Outcome, Step

if TYPE_CHECKING:
    from gmpi.datatypes.plans import Plan
    from host_proxy.reference.mpi4py_operations import Operations


def read_blocks(engine: Operations, slot: int) -> int:
    """Reads and checks the table of a request that has just been opened: an error class, or 0.

    Afterwards its memory is staging like any other: what it says is in ``State.blocks``.
    """
    op, state = engine.field(slot, S_OP), engine.state
    if not moves.is_counted(op):
        return 0
    communicator, row = engine.communicator(slot), moves.BY_OP[op]
    root, tag = engine.field(slot, S_PEER), engine.field(slot, S_TAG)

    def derived(handle: int) -> tuple[int, Plan | None] | None:
        known = state.derived[handle & (layouts.DERIVED_ROWS - 1)]
        plan = state.plans.get(handle)
        if handle & ~layouts.DERIVED_MASK != layouts.DERIVED_MARK or known[D_HANDLE] != handle:
            return None
        return None if plan is None else (int(known[D_SIZE]), plan)

    begin, (eager, _) = engine.small(slot), engine.sizes
    words = engine.memory[begin : begin + eager].view(np.int64).copy()
    number = number_of(row, communicator, root)
    reader = Reader(row, words, communicator.rank, number, tag, derived)
    try:
        if row.among_neighbours and communicator.neighbours is None:
            raise Refused(no_neighbours(engine.field(slot, S_COMM)))
        blocks = reader.read()
        lengths = [blocks.places(way)[2] for way in (OUT, BACK)]
        offset = moves.out_offset(max(lengths[BACK], blocks.table_bytes))
        if slot < state.layout.request_slots and offset + lengths[OUT] > eager:
            raise Refused(corrupt(lengths[OUT]))
    except Refused as exc:
        note, error = state.notes.keep(exc.wrong), exc.wrong.error_class
        log_request(engine.g, engine.row(slot), ops.COUNTS, error, 0, note, 0)
        return error
    state.blocks[slot] = blocks
    return 0


def move_counted(engine: Operations, slot: int) -> Step:
    """One call of MPI, however long."""
    op, communicator = engine.field(slot, S_OP), engine.communicator(slot)
    root, tag = engine.field(slot, S_PEER), engine.field(slot, S_TAG)
    row, blocks = moves.BY_OP[op], engine.state.blocks[slot]
    assert isinstance(blocks, Blocks)
    port, (eager, _) = engine.port(engine, slot), engine.sizes
    _, _, out = blocks.places(OUT)
    _, _, back = blocks.places(BACK)
    is_short = slot < engine.state.layout.request_slots
    small = port.small()
    if is_short:
        offset = moves.out_offset(max(back, blocks.table_bytes))
        send, result = small[offset : offset + out], small[:back]
    else:
        send, result = np.empty(out, np.uint8), np.empty(back, np.uint8)
        yield from port.move(send, 0, wire.PACK)
    datatype, reduction = MPI.BYTE, None
    if row.reduces:
        datatype = DATATYPES[blocks.out[0].datatype & 0xFF][1]
        reduction = engine.state.reductions.known[tag]
    yield begin_counted(row, communicator, send, result, blocks, datatype, reduction, root)
    if not is_short and back > eager:
        yield from port.move(result, 0, wire.UNPACK)
    elif not is_short:
        small[:back] = result
    return Outcome(back)
