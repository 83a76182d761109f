"""A Reduce of at most 256 bytes, by the leading warp alone: a packet for each lane.

The same round as ``short_blocks`` would make of it, but nothing is decided here that depends on
which call it is.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct import rounds
from device_lib.direct.block_collectives import word_of
from device_lib.direct.collective_waits import AFTER_STORES, NOTHING_DONE
from device_lib.direct.round_waits import LOOKS
from device_lib.platform import primitives as gpu
from device_lib.platform.context import collects_direct, sign32
from device_lib.platform.primitives import device
from device_lib.platform.scope import ALL_LANES, FULL_WARP
from gmpi.contract import collectives
from gmpi.contract.constants import IN_PLACE, SUCCESS
from gmpi.contract.wire import LOW_32

MOST = FULL_WARP * collectives.PAYLOAD  # bytes


@device
def _is_usable(address, room, nbytes):
    """Whether a buffer in GPU memory has so many bytes."""
    return (address != 0) & (address != IN_PLACE) & (room >= nbytes) & (
        gpu.memory_space(address) == 0
    )  # fmt: skip


@device
def reduce_alone(ctx, word0, root_op, nbytes, send, recv, send_room, recv_room):
    """A call, by a full warp: SUCCESS, NOTHING_DONE or AFTER_STORES.

    Args:
        nbytes: 1 to MOST.
    """
    row = rounds.row_of(ctx, word0)
    number, entered = gpu.load_pair_gpu(row + collectives.NUMBER)
    area, where = gpu.load_16(row + collectives.AREA)
    peers = gpu.load_16(row + collectives.PEERS)
    if not collects_direct(ctx, word0):
        return NOTHING_DONE
    what = word_of(word0, root_op, nbytes)
    in_place = send == IN_PLACE
    source = recv if in_place else send
    sound = _is_usable(source, recv_room if in_place else send_room, nbytes)
    if not sound or what == collectives.NOT_OURS:
        return NOTHING_DONE
    lane = gpu.lane_id()
    low = rounds.load_packet(source, nbytes, lane)
    ranks = where >> collectives.RANKS_SHIFT
    root = sign32(root_op)
    is_root = where & LOW_32 == root
    if root < 0 or root >= ranks or (in_place and not is_root):
        return NOTHING_DONE
    if is_root and not _is_usable(recv, recv_room, nbytes):
        return NOTHING_DONE
    if entered != number:
        late = rounds.missing_of_last(row, area, ranks, number, entered, lane, FULL_WARP, LOOKS)
        if gpu.ballot(ALL_LANES, late != 0) != 0:
            return NOTHING_DONE
    # Of two ranks, one gets nothing but that the other has entered; of more, all get all.
    alone = 1 - root if ranks == 2 else rounds.NOBODY
    rounds.put(row, ranks, number, what, source, nbytes, alone, lane, FULL_WARP, low, peers)
    gpu.sync_warp(ALL_LANES)  # the result may fall on what other lanes have just read
    known = number + 1
    if is_root:
        missing = rounds.take_reduced(
            area, ranks, ranks, number, what, recv, nbytes, lane, FULL_WARP, LOOKS
        )
        if gpu.ballot(ALL_LANES, missing != 0) != 0:
            return AFTER_STORES
    else:
        late = rounds.missing_soon(area, ranks, number, what, lane, FULL_WARP)
        known = number if gpu.ballot(ALL_LANES, late != 0) != 0 else known
    gpu.store_gpu_if(row + collectives.SIGNATURE, rounds.signature_of(what), lane == 0)
    gpu.store_pair_gpu_if(row + collectives.NUMBER, number + 1, known, lane == 0)
    return SUCCESS
