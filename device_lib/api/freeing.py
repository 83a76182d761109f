"""GMPI_Request_free of sends and receives that are open (MPI 4.1 section 3.7.3), for each scope.

MPI goes on with such a request, but nobody waits for it. Here somebody must close it: bytes that
have come are moved by threads, and its slot is given back. Whoever finds no slot free does so,
GMPI_Synchronize, a later GMPI_Request_free, and when the kernels have ended, the host
(``gmpi/lifetime/freed.py``), by a kernel of its own. All that a freed request takes is two bits
beside the busy bit of its slot, one of which is set: it is freed; or, for a while, somebody is at
it. From then on no wait takes its
handle: a request of the proxied road stays claimed, one of the direct road, which anybody may go on
with, has another mark.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from types import SimpleNamespace

from device_lib.direct import rows, table
from device_lib.direct.how import ONE_LOOK, QUICK
from device_lib.direct.rows import is_direct_handle
from device_lib.platform import primitives as gpu
from device_lib.platform.context import all_slots, busy_address, row_address
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import device, int64
from device_lib.platform.scope import Scope, warp_lanes, warp_mask
from device_lib.proxied import slots
from device_lib.proxied.closing import COMPLETED
from device_lib.proxied.ring import post
from gmpi.contract import wire
from gmpi.contract.constants import ERR_REQUEST, SUCCESS

FOREVER = 1 << 62  # ns
_MARK = 1 << wire.HANDLE_FREED_SHIFT
_TAKEN_SHIFT = 16
_NONE = 0
_FREED = 1
_TAKEN = 1 << _TAKEN_SHIFT
_KEPT = 8  # freed requests that a call leaves to others

# What becomes of one.
_OURS = 1  # the caller may look at it
_GONE = 2
_LATER = 3  # somebody is at it


@device
def _word(ctx, slot):
    """Address of the word with the bits of a slot."""
    at = busy_address(ctx, slot >> 5) + wire.BUSY_FREED
    return at if slot & 16 == 0 else at + wire.BUSY_FREED_STEP


@device
def _bits(ctx, slot):
    return gpu.load_gpu(_word(ctx, slot)) >> (slot & 15) & (_FREED | _TAKEN)


@device
def _change(ctx, slot, clear, put):
    """Clears a bit of a slot and sets another."""
    address = _word(ctx, slot)
    shift = slot & 15
    old = gpu.load_gpu(address)
    found = gpu.cas_gpu(address, old, old & ~(clear << shift) | put << shift)
    while found != old:
        old = found
        found = gpu.cas_gpu(address, old, old & ~(clear << shift) | put << shift)


@device
def _try_to_take(ctx, slot):
    """From freed to taken, if nobody has taken it."""
    address = _word(ctx, slot)
    shift = slot & 15
    old = gpu.load_gpu(address)
    while old >> shift & (_FREED | _TAKEN) == _FREED:
        found = gpu.cas_gpu(address, old, old ^ (_FREED | _TAKEN) << shift)
        if found == old:
            return True
        old = found
    return False


@device
def _first_freed(ctx, begin):
    """The first slot from ``begin`` on with a freed request, or -1; all lanes of a warp."""
    lane, lanes, mask = gpu.lane_id(), warp_lanes(), warp_mask()
    words = (all_slots(ctx) + 31) >> 5
    first = begin >> 5
    while first < words:
        found = 0
        if first + lane < words:
            at = busy_address(ctx, first + lane) + wire.BUSY_FREED
            low, high = gpu.load_gpu(at), gpu.load_gpu(at + wire.BUSY_FREED_STEP)
            low, high = low | low >> _TAKEN_SHIFT, high | high >> _TAKEN_SHIFT
            found = low & 0xFFFF | (high & 0xFFFF) << 16
            if first + lane == begin >> 5:
                found &= wire.LOW_32 << (begin & 31)
        there = gpu.ballot(mask, found != 0)
        if there != 0:
            chosen = gpu.first_bit(there)
            return first + chosen << 5 | gpu.first_bit(gpu.shuffle(mask, found, chosen))
        first += gpu.opaque(lanes)
    return -1


@device
def _handle_in(ctx, slot):
    """The handle by which a freed request is closed."""
    owner = gpu.load_gpu(row_address(ctx, slot) + wire.REQUEST_OWNER)
    if owner >> wire.HANDLE_DIRECT_SHIFT & 1 != 0:
        return rows.handle_in(ctx, slot)
    return owner & ~slots.CLAIMED


@device
def _take(ctx, slot, handle):
    """Whether the caller may look at a freed request: _OURS, _GONE or _LATER; one lane."""
    if _try_to_take(ctx, slot):
        if not is_direct_handle(handle):
            slots.unclaim(ctx, handle)
        return _OURS
    if _bits(ctx, slot) == _NONE or _handle_in(ctx, slot) != handle:
        return _GONE
    return _LATER


@device
def _put_back(ctx, slot, handle):
    """It is not complete; one lane."""
    if not is_direct_handle(handle):
        slots.claim(ctx, handle)
    _change(ctx, slot, _TAKEN, _FREED)


@device
def _forget(ctx, slot):
    """It is closed, and its slot may be another one's already; one lane."""
    _change(ctx, slot, _TAKEN, _NONE)
    gpu.count_gpu(ctx.device + wire.DEVICE_FREED, -1)


@device
def _mark_direct(ctx, handle):
    """Takes an open request of the direct road from its user: whether it was one; one lane."""
    if not rows.names_request(ctx, handle) or handle & _MARK != 0:
        return False
    row = row_address(ctx, slots.slot_of(handle))
    while True:
        owner = gpu.load_gpu(row + wire.REQUEST_OWNER)
        if owner & ~(rows.HELPED | rows.TOUCHED) != handle:
            return False
        if (
            owner & rows.HELPED == 0
            and gpu.cas_gpu(row + wire.REQUEST_OWNER, owner, owner | _MARK) == owner
        ):
            return True
        gpu.pause(64)


@device
def _tell_debug(ctx, request, mine):
    """Tells debug mode of a request that is freed, before anybody can close it; all lanes of a
    warp. ``mine``: 1 in lane 0, if it is freed."""
    lane, lanes, mask = gpu.lane_id(), warp_lanes(), warp_mask()
    if gpu.shuffle(mask, mine, 0) != 0:
        handle = slots.slot_of(request) << wire.HANDLE_SLOT_SHIFT
        handle |= wire.OP_REQUEST_FREE << wire.WATCHED_OP_SHIFT
        post(ctx, lane, lanes, mask, wire.OP_ENDS, 0, handle, 0)


def make_freeing(
    scope: Scope, requests: SimpleNamespace, direct: SimpleNamespace, others: SimpleNamespace
) -> SimpleNamespace:
    """For one scope.

    Args:
        requests: of the proxied road.
        direct: of the direct one.
        others: ``perform`` of ``waiting``, ``free_persistent`` and ``free_partitioned``.
    """
    finish_direct, complete = direct.finish, requests.complete
    report = requests.report
    perform, free_persistent = others.perform, others.free_persistent
    free_partitioned = others.free_partitioned
    leads = scope.leads
    sync = scope.sync
    broadcast_3 = scope.broadcast_3
    part = parts_of(scope.name)

    @device
    def look(ctx, handle, how):
        """Whether a request that was freed is closed now."""
        if is_direct_handle(handle):
            outcome, count, origin = finish_direct(ctx, handle, how)
            return outcome & COMPLETED != 0
        completed, status = complete(ctx, handle, True)
        return completed

    @device
    def close_one(ctx, slot, handle, end):
        """Closes a freed request if it is complete, until ``end`` (ns; 0: one look); whether it
        is still open."""
        how = QUICK if end == 0 else ONE_LOOK
        while True:
            state = 0
            late = 0
            if leads() and gpu.lane_id() == 0:
                state = _take(ctx, slot, handle)
                late = 1 if end == 0 or gpu.timer_ns() >= end else 0
            state, late, unused = broadcast_3(state, late, 0)
            sync()
            if state == _OURS:
                closed = look(ctx, handle, how)
                if leads() and gpu.lane_id() == 0:
                    if closed:
                        _forget(ctx, slot)
                    else:
                        _put_back(ctx, slot, handle)
                if closed:
                    return 0
            elif state == _GONE:
                return 0
            if late != 0:
                return 1
            gpu.pause(500)
            sync()  # before the next broadcast

    @device
    def close_freed(ctx, patience):
        """Closes requests that were freed, and are complete; all threads of the scope.

        Args:
            patience: 0: looks at each once. Else waits for those that are there now, so many
                nanoseconds in all.

        Returns:
            How many are still open of those that it has looked at.
        """
        sync()
        slot = -1
        handle = 0
        end = 0
        if leads() and gpu.lane_id() == 0:
            slot = 0 if gpu.load_gpu(ctx.device + wire.DEVICE_FREED) > 0 else -1
            if patience > 0:
                end = gpu.timer_ns() + patience
        slot, end, handle = broadcast_3(slot, end, handle)
        sync()
        left = 0
        while slot >= 0:
            if leads():
                slot = _first_freed(ctx, slot)
                if slot >= 0:
                    handle = _handle_in(ctx, slot)
            slot, handle, unused = broadcast_3(slot, handle, 0)
            sync()
            if slot >= 0:
                left += close_one(ctx, slot, handle, end)
                slot += 1
                sync()  # before the next broadcast
        return left

    close_freed_linked = part("close_freed", 4, 1, close_freed)

    @device
    def free_open(ctx, request):
        """Frees a request of a send or a receive: an error class."""
        if request >> wire.HANDLE_ERROR_SHIFT == 1:  # it was refused, or is complete already
            return request & 0xFF
        is_direct = is_direct_handle(request)
        error = SUCCESS
        if not is_direct:
            # The proxy knows what it is: that of a collective may not be freed (section 6.12).
            asked = request
            if slots.names_slot(ctx, request):
                row = row_address(ctx, slots.slot_of(request))
                if gpu.load_gpu(row + wire.REQUEST_OWNER) != request:
                    asked |= slots.CLAIMED
            error = perform(ctx, wire.OP_REQUEST_FREE, 0, asked, 0, 0, 0).error
            if error != SUCCESS:
                return error
        sync()
        kept = 0
        mine = 0
        if leads() and gpu.lane_id() == 0:
            if is_direct:
                mine = 1 if _mark_direct(ctx, request) else 0
            elif slots.names_slot(ctx, request):
                mine = 1 if slots.claim(ctx, request) == request else 0
        if is_direct and table.is_watched(ctx) and leads():
            _tell_debug(ctx, request, mine)
        if leads() and gpu.lane_id() == 0:
            if mine != 0:
                gpu.count_gpu(ctx.device + wire.DEVICE_FREED, 1)
                gpu.store_sys(ctx.mapped + wire.CONTROL_FREED, 1)
                _change(ctx, slots.slot_of(request), _NONE, _FREED)
                kept = gpu.load_gpu(ctx.device + wire.DEVICE_FREED)
            else:
                error = ERR_REQUEST
        error, kept, unused = broadcast_3(error, kept, 0)
        sync()
        if error != SUCCESS:
            report(ctx, wire.OP_REQUEST_FREE, request, ERR_REQUEST)
        elif kept > _KEPT:
            close_freed_linked(ctx, 0)
        return error

    free_linked = part("free_open", 4, 1, free_open)

    @device
    def request_free(ctx, request):
        request = int64(request)
        if slots.is_persistent(request):
            return free_persistent(ctx, request)
        if slots.is_partitioned(request):
            return free_partitioned(ctx, request)
        return free_linked(ctx, request)

    return SimpleNamespace(request_free=request_free, close_freed=close_freed_linked)
