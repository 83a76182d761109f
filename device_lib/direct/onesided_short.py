"""One-sided calls of a few words, and flushes, which the leading warp of a scope carries out alone.

The other threads come to its barriers from the user's kernel: a call of the library's functions
would save registers of theirs for nothing. What the call must know of the window and the words to
store are loaded together: a flush has emptied L1, so each look takes a third as long as the way to
the other GPU and back. What is not as expected is left to ``onesided`` and ``epochs``, and so is
what is wrong, which they refuse.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import windows
from device_lib.direct.collective_waits import NOTHING_DONE
from device_lib.direct.epochs import abort_word
from device_lib.direct.telling import make_telling
from device_lib.move import atomics
from device_lib.move.words import scatter
from device_lib.platform import primitives as gpu
from device_lib.platform.context import DeviceContext, leads_grid, sign32
from device_lib.platform.library import parts_of
from device_lib.platform.primitives import device
from device_lib.platform.scope import ALL_LANES, FULL_WARP, Scope
from gmpi.contract import windows as w
from gmpi.contract.constants import SUCCESS

_WORD = 8  # bytes
_SHIFT = 3  # log2 of them
_MOST = FULL_WARP << _SHIFT  # bytes of a Put


@device
def _reaches(shape, address):
    """Whether the buffer at an address has whole words, which all threads of the scope reach."""
    space = gpu.memory_space(address)
    inside = leads_grid(DeviceContext(0, 0, shape, 0)) == 0
    return (address & _WORD - 1 == 0) & ((space == 0) | ((space == 1) & inside))


@device
def _state_of(right):
    """The same in all lanes: an epoch may end while they look at it."""
    return SUCCESS if gpu.ballot(ALL_LANES, not right) == 0 else NOTHING_DONE


def make_short(scope: Scope, complete_any: Callable) -> SimpleNamespace:
    """For one scope, all of whose threads call these together. ``put`` and ``fetch`` return SUCCESS
    or NOTHING_DONE, ``complete`` the error class.

    Args:
        complete_any: of ``epochs``.
    """
    leads = scope.leads
    leading_lanes = scope.leading_lanes
    sync_full = scope.sync_full
    told, follow = make_telling(scope)
    part = parts_of(scope.name, "gmpi_window")

    # --- Put --------------------------------------------------------------------------------------

    @device
    def put_by_warp(memory, shape, address, nbytes, place, disp):
        """Puts a word by each lane."""
        ctx = DeviceContext(0, memory, shape, 0)
        sync_full()  # the buffer is as all threads have left it
        right = _reaches(shape, address)
        if right:
            mine = gpu.lane_id() << _SHIFT
            word = gpu.load_8(address + min(mine, nbytes - _WORD))
            wrong, at, _ = windows.find(ctx, place, disp, nbytes)
            right = wrong == 0
            if at != windows.NOWHERE and mine < nbytes:
                if at & _WORD - 1 == 0:
                    gpu.store_8(at + mine, word)
                else:
                    scatter(at + mine, _WORD, word)
        return told(_state_of(right))

    put_linked = part("put_words", 6, 1, put_by_warp)

    @device
    def put(ctx, strided, address, room, nbytes, target_bytes, place, disp):
        """
        Args:
            nbytes, target_bytes: of both sides; 0 where count or datatype are wrong.
        """
        alike = (nbytes == target_bytes) & (nbytes <= room) & (strided == 0) & (address != 0)
        words = (nbytes & _WORD - 1 == 0) & (nbytes > 0) & (nbytes <= _MOST)
        if not (alike & words & (leading_lanes() >= FULL_WARP)):
            return NOTHING_DONE
        if leads():
            return put_linked(ctx.device, ctx.shape, address, nbytes, place, disp)
        return follow()

    # --- Fetch_and_op -----------------------------------------------------------------------------

    @device
    def fetch_by_warp(mapped, memory, shape, kind, address, result, place, disp):
        """Updates a word of the target, and brings what was there."""
        ctx = DeviceContext(mapped, memory, shape, 0)
        sync_full()
        keeps = atomics.loads(kind)
        right = (_reaches(shape, address) | keeps) & _reaches(shape, result)
        if right:
            aborted = abort_word(ctx)
            value = 0
            if not keeps:
                value = gpu.load_8(address)
            wrong, at, more = windows.find(ctx, place, disp, _WORD)
            right = (more & w.NO_ATOMICS == 0) & (at & _WORD - 1 == 0) & (wrong == 0)
            right &= aborted & 0xFF == 0
            if right and at != windows.NOWHERE and gpu.lane_id() == 0:
                gpu.store_8(result, atomics.fetch_usual_8(kind, at, value))
        gpu.spin()
        return told(_state_of(right))

    fetch_linked = part("fetch_word", 8, 1, fetch_by_warp)

    # wide: as MPI's
    @device
    def fetch(
        ctx, strided, kind, address, room, result, result_room, nbytes, target_bytes, place, disp
    ):
        """
        Args:
            kind: of the update (``atomics``); negative: there is none.
            nbytes, target_bytes: as ``put``'s.
        """
        one = (nbytes == _WORD) & (target_bytes == _WORD) & (strided == 0) & (kind >= 0)
        there = ((address != 0) & (room >= _WORD)) | atomics.loads(kind)
        there &= (result != 0) & (result_room >= _WORD)
        if not (one & there & atomics.is_usual_8(kind) & (leading_lanes() >= FULL_WARP)):
            return NOTHING_DONE
        if leads():
            return fetch_linked(
                ctx.mapped, ctx.device, ctx.shape, kind, address, result, place, disp
            )
        return follow()

    # --- flushes ----------------------------------------------------------------------------------

    @device
    def complete_by_warp(mapped, memory, what, place):
        """GMPI_Win_flush and its kin. The fence comes before anything is known, in vain where the
        call is refused: what the warp looks at is loaded meanwhile."""
        ctx = DeviceContext(mapped, memory, 0, 0)
        sync_full()  # all have stored
        win = place >> 32
        aborted = abort_word(ctx)
        epoch, handle, ranks = windows.look(windows.row_of(ctx, win))
        if what != w.FLUSH_LOCAL and what != w.FLUSH_LOCAL_ALL:
            gpu.fence_sys()
        right = windows.wrong_use(epoch, handle, ranks, win, sign32(place)) == 0
        right &= aborted & 0xFF == 0
        gpu.spin()
        return told(_state_of(right))

    complete_linked = part("complete_alone", 4, 1, complete_by_warp)

    @device
    def complete(ctx, what, place):
        state = NOTHING_DONE
        if leading_lanes() < FULL_WARP:
            pass
        elif leads():
            state = complete_linked(ctx.mapped, ctx.device, what, place)
        else:
            state = follow()
        return state if state == SUCCESS else complete_any(ctx, what, place)

    return SimpleNamespace(put=put, fetch=fetch, complete=complete)
