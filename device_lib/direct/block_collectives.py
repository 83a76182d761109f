"""Direct collectives that move blocks (``gmpi/contract/moves.py``, ROWS): Reduce, Alltoall, ...

Every rank stores what each other rank gets to that rank, all at once, and reads what has come of
whom it needs. All of them are the same few functions, by the word of the call
(``gmpi/contract/collectives.py``). A rank that needs nothing of some ranks does not wait for them:
then whether all have entered the round is what the next call asks, as after a Bcast.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import block_rounds, rounds
from device_lib.direct.block_rounds import (
    gives_to,
    side_by_side,
    stride_back,
    stride_out,
    takes_from,
)
from device_lib.direct.collective_waits import AFTER_STORES, NOTHING_DONE
from device_lib.direct.long_collectives import is_long
from device_lib.direct.places import place_of
from device_lib.direct.round_waits import DATA, ENTERED_ONLY, LOOKS
from device_lib.direct.rounds import is_reducing, kind_of, row_of, signature_of
from device_lib.direct.transfers import NOT_AT_ONCE
from device_lib.move.layouts import (
    layout_of,
    pack_layout,
    unpack_layout,
)
from device_lib.platform import primitives as gpu
from device_lib.platform.context import may_collect_direct, sign32
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import device
from device_lib.platform.scope import Scope
from gmpi.contract import collectives, moves
from gmpi.contract.constants import SUCCESS
from gmpi.contract.layouts import LAYOUT_RECV, LAYOUT_SEND
from gmpi.contract.wire import (
    BLOCKING,
    COMMUNICATORS,
    DATATYPE_SHIFT,
    FIRST_MOVING,
    LOW_32,
    SCATTERED,
)

_call_word = device(collectives.call_word)
_reduction_word = device(collectives.reduction_word)
_reduces = device(moves.reduces)

# What a wait is for, in ``size_mode``: DATA | bytes of the round << 1, and
_ONE_SHIFT = 17  # the one rank of interest, + 1; 0: all
_ONE_MASK = 0x3F
_STRIDE_SHIFT = 23
_BYTES_MASK = 0xFFFF
assert collectives.ROOM <= _BYTES_MASK


@device
def word_of(word0, root_op, nbytes):
    """The word of a call; NOT_OURS: the GPU cannot reduce it.

    Args:
        word0: first word of the record, all of which is sound.
        root_op: root and reduction, as in a record.
        nbytes: of a block.
    """
    kind = (word0 & 0xFF) - FIRST_MOVING + collectives.REDUCE
    root = sign32(root_op)
    what = root
    amount = nbytes
    if _reduces(word0 & 0xFF):
        what = _reduction_word(root_op >> 32, word0 >> DATATYPE_SHIFT & LOW_32)
        if what == collectives.NOT_OURS:
            return collectives.NOT_OURS
        amount = nbytes >> (what >> collectives.SIZE_SHIFT & 3)
        if kind == collectives.REDUCE:
            amount = (
                amount & (1 << collectives.REDUCE_ROOT_SHIFT) - 1
                | root << collectives.REDUCE_ROOT_SHIFT
            )
    what = (
        what & ~(collectives.KIND_MASK << collectives.KIND_SHIFT) | kind << collectives.KIND_SHIFT
    )
    return _call_word(what, amount, word0 >> 16 & (COMMUNICATORS - 1))


@device
def all_come(what, recv, me, ranks):
    """Whether a call waits for all ranks, so that all are known to have entered its last round."""
    return recv != 0 and takes_from(what, me, ranks) == (1 << ranks) - 1


@device
def _may_be_at_once(ctx, what, nbytes):
    """Whether all ranks ask each other how to move long blocks (``transfers``)."""
    kind = kind_of(what)
    return (kind == collectives.ALLGATHER or kind == collectives.ALLTOALL) and is_long(
        ctx, what, nbytes
    )


def make_block_collectives(
    scope: Scope, make_wait: Callable, transfer: Callable
) -> SimpleNamespace:
    """What ``make_open_blocks`` takes, for one scope, all of whose threads call it.

    Args:
        make_wait: ``make_round_waits``.
        transfer: of ``transfers``.
    """
    rank = scope.rank
    size = scope.size
    leads = scope.leads
    sync = scope.sync
    sync_or = scope.sync_or
    part = parts_of(scope.name, "gmpi_direct")

    @device
    def at_once(ctx, what, send, recv, nbytes):
        """A call of few bytes, after a barrier: the error class, or how far it has come.

        Args:
            send: of the first block that goes out.
            recv: 0: nothing comes back.
        """
        row = row_of(ctx, what)
        number, entered = gpu.load_pair_gpu(row + collectives.NUMBER)
        area, where = gpu.load_16(row + collectives.AREA)
        ranks = where >> collectives.RANKS_SHIFT
        me = where & LOW_32
        threads = size() >> side_by_side(what, ranks, size())
        if nbytes > min(collectives.ROOM, 2 * threads * collectives.PAYLOAD):
            return NOTHING_DONE
        if entered != number:
            missing = rounds.missing_of_last(
                row, area, ranks, number, entered, rank(), size(), LOOKS
            )
            if sync_or(missing):
                return NOTHING_DONE
        block_rounds.put(
            row, ranks, number, what, -1, gives_to(what, me, ranks), send,
            stride_out(what, nbytes), nbytes, rank(), size(), False,
        )  # fmt: skip
        missing = 0
        if recv != 0:
            missing = block_rounds.take(
                area, ranks, number, what, takes_from(what, me, ranks), recv,
                stride_back(what, nbytes), nbytes, rank(), size(), LOOKS, False,
            )  # fmt: skip
        if sync_or(missing):
            return AFTER_STORES
        if leads() and gpu.lane_id() == 0:
            gpu.store_gpu(row + collectives.SIGNATURE, signature_of(what))
            known = number + 1 if all_come(what, recv, me, ranks) else number
            gpu.store_pair_gpu(row + collectives.NUMBER, number + 1, known)
        return SUCCESS

    # It calls nothing itself: that costs registers, which would have to be saved.
    at_once_linked = part("blocks_at_once", 7, 1, at_once)

    @device
    def look(ctx, what, number, signature, target, size_mode):
        """1 where a packet of a round that the caller has looked for is missing, else 0."""
        area, where = gpu.load_16(row_of(ctx, what) + collectives.AREA)
        ranks = where >> collectives.RANKS_SHIFT
        if size_mode & 1 == ENTERED_ONLY:
            return rounds.missing_of_entered(area, ranks, number, signature, rank(), size(), LOOKS)
        takes = takes_from(what, where & LOW_32, ranks)
        one = size_mode >> _ONE_SHIFT & _ONE_MASK
        if one != 0:
            takes &= 1 << one - 1
        nbytes = size_mode >> 1 & _BYTES_MASK
        stride = size_mode >> _STRIDE_SHIFT
        return block_rounds.take(
            area, ranks, number, what, takes, target, stride, nbytes, rank(), size(), LOOKS, True
        )

    wait = make_wait("wait_blocks", part("look_for_blocks", 8, 1, look), True)

    @device
    def store(ctx, what, number, slot, source, offset, sizes):
        """Stores what is ours of a round.

        Args:
            source: of the first block that goes out, or SCATTERED: the layout of ``slot`` says it.
            offset: of the round's bytes, from there on.
            sizes: bytes of a block in this round | stride << _STRIDE_SHIFT.
        """
        row = row_of(ctx, what)
        area, where = gpu.load_16(row + collectives.AREA)
        ranks = where >> collectives.RANKS_SHIFT
        wants = gives_to(what, where & LOW_32, ranks)
        nbytes = sizes & _BYTES_MASK
        stride = sizes >> _STRIDE_SHIFT
        if source != SCATTERED:
            block_rounds.put(
                row, ranks, number, what, -1, wants, source + offset, stride, nbytes, rank(),
                size(), True,
            )  # fmt: skip
            return 0
        packed = area + 2 * ranks * collectives.INBOX_BYTES
        layout = layout_of(ctx, slot, LAYOUT_SEND)
        peer = 0
        fresh = True
        while peer < ranks:
            bit = 1 << peer
            if wants & bit != 0 and (fresh or stride != 0):
                begin = offset + peer * stride
                sync()  # all have read what is there
                pack_layout(layout, packed, begin, begin + nbytes, rank(), size())
                sync()
                fresh = False
            block_rounds.put(
                row, ranks, number, what, bit, wants, packed, 0, nbytes, rank(), size(), True
            )
            peer += gpu.opaque(1)
        sync()
        return 0

    store_linked = part("store_blocks", 9, 1, store)

    @device
    def take_scattered(ctx, what, number, slot, begin, nbytes, some):
        """Waits for a round, whose bytes do not go to one piece: the error class."""
        area, where = gpu.load_16(row_of(ctx, what) + collectives.AREA)
        ranks = where >> collectives.RANKS_SHIFT
        packed = area + 2 * ranks * collectives.INBOX_BYTES
        takes = takes_from(what, where & LOW_32, ranks)
        if is_reducing(what) and takes != 0:
            takes = 1
        layout = layout_of(ctx, slot, LAYOUT_RECV)
        stride = stride_back(what, nbytes)
        error = SUCCESS
        source = 0
        while source < ranks and error == SUCCESS:
            if takes >> source & 1 != 0:
                one = 0 if is_reducing(what) else source + 1
                mode = DATA | some << 1 | one << _ONE_SHIFT
                error = wait(ctx, what, number, signature_of(what), packed, mode)
                if error == SUCCESS:
                    at = begin + source * stride
                    sync()
                    unpack_layout(layout, packed, at, at + some, rank(), size())
                sync()
            source += gpu.opaque(1)
        return error

    @device
    def rest(ctx, what, slot, send, recv, nbytes, shift, state):
        """A whole call, or what is left of it.

        Args:
            slot: with the layouts of what is SCATTERED.
            shift: bytes before the first block that goes out, of a SCATTERED buffer.
            state: NOTHING_DONE; or AFTER_STORES, of a single round.
        """
        row = row_of(ctx, what)
        number, entered = gpu.load_pair_gpu(row + collectives.NUMBER)
        where = gpu.load_16(row + collectives.AREA)[1]
        ranks = where >> collectives.RANKS_SHIFT
        me = where & LOW_32
        if entered < 0:
            return collectives.NOT_OURS
        ours = signature_of(what)
        last = gpu.load_gpu(row + collectives.SIGNATURE)
        error = SUCCESS
        begin = 0
        going = True
        if _may_be_at_once(ctx, what, nbytes):
            if entered != number:
                error = wait(ctx, what, number - 1, last, 0, ENTERED_ONLY)
            if error == SUCCESS:
                out, back = place_of(slot, send, shift), place_of(slot, recv, 0)
                error, number = transfer(ctx, what, out, back, nbytes, number)
            going = error == NOT_AT_ONCE
            error = SUCCESS if going else error
            entered = number
        while going:
            some = min(nbytes - begin, collectives.ROOM)
            if state == NOTHING_DONE:
                if entered != number:
                    error = wait(ctx, what, number - 1, last, 0, ENTERED_ONLY)
                if error == SUCCESS:
                    sizes = some | stride_out(what, nbytes) << _STRIDE_SHIFT
                    store_linked(ctx, what, number, slot, send, shift + begin, sizes)
            if error == SUCCESS and recv == SCATTERED:
                error = take_scattered(ctx, what, number, slot, begin, nbytes, some)
            elif error == SUCCESS and recv != 0:
                mode = DATA | some << 1 | stride_back(what, nbytes) << _STRIDE_SHIFT
                error = wait(ctx, what, number, ours, recv + begin, mode)
            state = NOTHING_DONE
            entered = number + 1 if all_come(what, recv, me, ranks) else number
            last = ours
            number += 1
            begin += collectives.ROOM
            going = error == SUCCESS and begin < nbytes
        sync()  # all have read the row, also where nothing was waited for
        if leads() and gpu.lane_id() == 0:
            if error == SUCCESS:
                gpu.store_gpu(row + collectives.SIGNATURE, ours)
                gpu.store_pair_gpu(row + collectives.NUMBER, number, entered)
            else:  # what comes next goes by the proxies, which refuse it
                gpu.store_pair_gpu(row + collectives.NUMBER, number, -1)
        return error

    rest_linked = part("rest_of_blocks", 10, 1, rest)

    @device
    def word(ctx, word0, root_op, nbytes):
        """``word_of`` where the call may go direct, which all ranks find alike; else NOT_OURS."""
        if not may_collect_direct(ctx, word0):
            return collectives.NOT_OURS
        what = word_of(word0, root_op, nbytes)
        if word0 & BLOCKING == 0 and what != collectives.NOT_OURS:
            if nbytes > collectives.PENDING_ROOM:
                return collectives.NOT_OURS
            what |= collectives.NONBLOCKING_CALL
        return what

    @device
    def in_one_piece(ctx, what, send, recv, nbytes, begun):
        """A call whose buffers are: the error class, or NOT_OURS; after a barrier.

        Args:
            send: of the first block that goes out.
            recv: 0: nothing comes back.
            begun: not 0: ``short_blocks`` has stored its packets.
        """
        error = AFTER_STORES
        if begun == 0:
            error = at_once_linked(ctx, what, send, recv, nbytes)
        if error <= AFTER_STORES:
            error = rest_linked(ctx, what, -1, send, recv, nbytes, 0, error)
        return error

    @device
    def scattered(ctx, what, slot, send, recv, nbytes, shift):
        """Any other one, where none on its communicator ``has_failed``: the error class."""
        return rest_linked(ctx, what, slot, send, recv, nbytes, shift, NOTHING_DONE)

    @device
    def has_failed(ctx, what):
        """Whether a call that blocks has, on the communicator of one that does."""
        blocks = what & collectives.NONBLOCKING_CALL == 0
        return blocks and gpu.load_pair_gpu(row_of(ctx, what) + collectives.NUMBER)[1] < 0

    return SimpleNamespace(
        word=word,
        in_one_piece=in_one_piece,
        scattered=scattered,
        has_failed=has_failed,
        wait=wait,
        take_scattered=take_scattered,
    )
