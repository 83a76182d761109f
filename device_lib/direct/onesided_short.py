"""One-sided calls of a few words, which the leading warp of a scope carries out alone.

The other threads only meet it, before and after. What the call must know of the window and the
words to store are loaded together: a flush has emptied L1, so each look takes as long as a third of
the way to the other GPU and back.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from device_lib.direct import windows
from device_lib.direct.epochs import aborted_together
from device_lib.move import atomics
from device_lib.move.words import scatter
from device_lib.platform.context import leads_grid
from device_lib.platform.primitives import device, lane_id, load_8, memory_space, spin, store_8
from device_lib.platform.scope import Scope
from gmpi.contract import windows as w
from gmpi.contract.constants import SUCCESS

_WORD = 8  # bytes
_SHIFT = 3  # log2 of them


@device
def _is_usable(ctx, address, room, nbytes):
    """Whether a buffer has so many bytes, in whole words that all threads of the scope reach."""
    space = memory_space(address)
    reached = (space == 0) | ((space == 1) & (leads_grid(ctx) == 0))
    whole = (address | nbytes) & _WORD - 1 == 0
    return (address != 0) & whole & (nbytes > 0) & (nbytes <= room) & reached


def make_short(scope: Scope, tell: Callable) -> SimpleNamespace:
    """For one scope, all of whose threads call these together.

    Args:
        tell: of ``epochs``.
    """
    leads, lanes, sync, sync_or = scope.leads, scope.leading_lanes, scope.sync, scope.sync_or

    @device
    def puts_words(ctx, what, address, room, nbytes, target_bytes):
        """Whether ``put_words`` carries out a Put; nothing is wrong with its buffer then.

        Args:
            nbytes, target_bytes: of both sides; 0 where count or datatype are wrong.
        """
        strided = what >> windows.STRIDED_SHIFT & 1
        alike = (nbytes == target_bytes) & (nbytes <= lanes() << _SHIFT) & (strided == 0)
        return alike & _is_usable(ctx, address, room, nbytes)

    # wide: as MPI's
    @device
    def put_words(ctx, what, address, nbytes, count, datatype, place, disp):
        """Puts a word by each lane; the error class."""
        sync()  # the buffer is as all threads have left it
        wrong = 0
        more = 0
        if leads():
            mine = lane_id() << _SHIFT
            word = load_8(address + min(mine, nbytes - _WORD))
            wrong, at, more = windows.find(ctx, place, disp, nbytes)
            if at != windows.NOWHERE and mine < nbytes:
                if at & _WORD - 1 == 0:
                    store_8(at + mine, word)
                else:
                    scatter(at + mine, _WORD, word)
        if sync_or(wrong):
            return tell(ctx, what, wrong, place, disp, count, datatype, more)
        return SUCCESS

    # wide: as MPI's
    @device
    def fetches_word(ctx, what, kind, address, room, result, result_room, nbytes, target_bytes):
        """Whether ``fetch_word`` carries out a Get_accumulate or a Fetch_and_op; nothing is wrong
        with its buffers then.

        Args:
            kind: of the update (``atomics``); negative: there is none.
            nbytes, target_bytes: as ``puts_words``'.
        """
        strided = what >> windows.STRIDED_SHIFT & 1
        one = (kind >= 0) & (nbytes == _WORD) & (target_bytes == _WORD) & (strided == 0)
        one &= atomics.is_usual_8(kind)
        stored = atomics.loads(kind) | _is_usable(ctx, address, room, _WORD)
        return one & stored & _is_usable(ctx, result, result_room, _WORD)

    # wide: as MPI's
    @device
    def fetch_word(ctx, what, kind, address, result, datatype, place, disp):
        """Updates a word of the target, and brings what was there; the error class."""
        sync()  # the buffers are as all threads have left them
        wrong = 0
        more = 0
        if leads():
            value = 0
            if not atomics.loads(kind):
                value = load_8(address)
            wrong, at, more = windows.find(ctx, place, disp, _WORD)
            if wrong == 0 and more & w.NO_ATOMICS != 0:
                wrong = w.WRONG_GPU
                more = 0
            if at & _WORD - 1 != 0:
                wrong = w.WRONG_ALIGNMENT
                more = _WORD
            late = aborted_together(ctx)
            wrong = late if wrong == 0 else wrong
            if wrong == 0 and at != windows.NOWHERE and lane_id() == 0:
                store_8(result, atomics.fetch_usual_8(kind, at, value))
        if sync_or(wrong):
            return tell(ctx, what, wrong, place, disp, 1, datatype, more)
        spin()
        return SUCCESS

    return SimpleNamespace(
        puts_words=puts_words, put_words=put_words, fetches_word=fetches_word, fetch_word=fetch_word
    )
