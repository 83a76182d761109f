"""Long collectives between the users' arrays: no byte goes through staging.

What goes out may be packed on the way. All threads of all blocks of a rank take part. The ranks
meet before, and once more behind (``transfers``).
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct.block_rounds import stride_out
from device_lib.direct.long_steps import segment_bytes
from device_lib.direct.places import put_anywhere
from device_lib.direct.rounds import kind_of, row_of, turn_of
from device_lib.direct.segments import reduce_segment
from device_lib.platform.library import linked
from device_lib.platform.primitives import block_id, device, load_8, load_16, opaque
from gmpi.contract.collectives import ALLREDUCE, AREA, INBOX_BYTES, RANKS_SHIFT
from gmpi.contract.pipelines import RECV_PACKET, SEND_PACKET
from gmpi.contract.wire import LOW_32, PACKET_BYTES


# In the packets of the opening are addresses now, and all blocks have been told that they are
# there: loads through L1 do.
@device
def _move(ctx, what, send, recv, nbytes, number, rank, size):
    row = row_of(ctx, what)
    area, place = load_16(row + AREA)
    ranks = place >> RANKS_SHIFT
    me = place & LOW_32
    opened = area + turn_of(number, ranks)
    if kind_of(what) == ALLREDUCE:
        begin = min(me * segment_bytes(nbytes, ranks), nbytes)
        some = min(segment_bytes(nbytes, ranks), nbytes - begin)
        table = opened + SEND_PACKET * PACKET_BYTES
        reduce_segment(table, INBOX_BYTES, what, ranks, begin, some, True, rank, size)
        return 0
    stride = stride_out(what, nbytes)
    # Blocks begin with different ranks: some move what stays here while others use the links.
    peer = (me + block_id()) % ranks
    turns = ranks
    while turns > 0:
        source = send + peer * stride
        target = recv + me * nbytes
        if peer != me:
            at = opened + peer * INBOX_BYTES + RECV_PACKET * PACKET_BYTES
            target = load_8(at) + me * nbytes
        if target != source:
            put_anywhere(ctx, target, source, nbytes, rank, size)
        peer += 1
        if peer >= ranks:
            peer = 0
        turns -= opaque(1)
    return 0


move_straight = linked("gmpi_direct_move_straight", 10, 1, _move)
