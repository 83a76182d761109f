"""The bytes of a long send, behind its record: one way, whatever lies at its end.

A receiver that maps our GPU memory gets them by one of two protocols; which, ``fits_mailbox`` of
``gmpi/contract/rules.py`` says on both sides:

* up to 64 KiB as packets in its mailbox (``device_lib/move/mailbox.py``);
* longer ones in chunks, through chunk buffers in our GPU staging, which its threads read. The
  record is published before anything is packed, so the ready word behind the buffers says when the
  first chunk is there.

For any other receiver the chunk buffers are in host memory, and MPI sends them. There the record
itself says that the first chunk is packed.

In both kinds of buffers a CHUNK record tells of each further chunk. As many are packed at once as
there are buffers; for the rest the proxy gives copy commands (``commands.py``). ``executing.py`` is
the other end of both protocols.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable

from device_lib.move.copy import copy_to_staging
from device_lib.move.mailbox import groups_of, mail_word, put_mail
from device_lib.platform.context import chunk_buffers, chunk_bytes, mailbox_of, ready_address
from device_lib.platform.primitives import device, fence_sys, lane_id, opaque, store_sys
from device_lib.platform.scope import Scope, warp_lanes, warp_mask
from device_lib.proxied import commands, slots
from gmpi.contract.rules import chunk_bytes_of
from gmpi.contract.wire import LARGE_BUFFERS, LOW_32, MAILED_MARK, PACK

_chunk_bytes_of = device(chunk_bytes_of)


@device
def place_of(ctx, staging, mailbox, slot, nbytes, send):
    """Where the bytes of a send in a large slot go: MAILED_MARK | its mailbox, or its chunk
    buffers.

    Args:
        staging, mailbox: what ``staging_of`` or ``p2p_staging`` found; mailbox 0 of a narrow slot.
        send: the buffer's address, or what stands for it in the record.
    """
    found = mailbox_of(ctx, mailbox, slot, nbytes, send)
    if found != 0:
        return found | MAILED_MARK
    return chunk_buffers(ctx, staging, slot)


def make_copy_out(scope: Scope) -> Callable:
    """The ``pack`` of ``make_fill`` for bytes that lie in one piece."""
    rank = scope.rank
    size = scope.size

    @device
    def copy_out(ctx, slot, send, packed, begin, end):
        copy_to_staging(packed, send + begin, end - begin, rank(), size())

    return copy_out


def make_fill(scope: Scope, pack: Callable) -> Callable:
    """Packs what fits the chunk buffers; all threads of the scope call it together.

    Args:
        pack: packs bytes ``begin..end`` of the message to ``packed``, by all threads of the scope:
            ``pack(ctx, slot, send, packed, begin, end)``.
    """
    leads = scope.leads
    sync = scope.sync

    @device
    def fill(ctx, handle, buffers, send, out, first):
        """Fills the chunk buffers from number ``first`` on, all of them free, and tells of each.

        Args:
            out: bytes of the message.
            first: 0, or 1 where the first chunk was packed before the record.
        """
        chunk = _chunk_bytes_of(out, chunk_bytes(ctx))
        index = first
        position = first * chunk
        while index < LARGE_BUFFERS and position < out:
            staging = buffers + index * chunk_bytes(ctx)
            end = min(position + chunk, out)
            pack(ctx, slots.slot_of(handle), send, staging, position, end)
            sync()
            if leads():
                if index == 0:
                    if lane_id() == 0:
                        fence_sys()  # release
                        store_sys(ready_address(ctx, buffers), handle & LOW_32)
                else:
                    commands.report_chunk(
                        ctx, lane_id(), warp_lanes(), warp_mask(), handle, position, PACK, index
                    )
            index += opaque(1)
            position += chunk
        return 0

    return fill


def make_send_bytes(scope: Scope, fill: Callable) -> Callable:
    """What follows the record of a long send; all threads of the scope call it together.

    Args:
        fill: what ``make_fill`` has made.
    """
    rank = scope.rank
    size = scope.size

    @device
    def send_bytes(ctx, handle, place, send, out, first):
        """Stores the message, or what fits of it, where ``place_of`` says.

        Args:
            first: of ``fill``.
        """
        if place & MAILED_MARK != 0:
            word = mail_word(groups_of(out), handle & LOW_32)
            put_mail(place ^ MAILED_MARK, send, out, word, rank(), size())
        else:
            fill(ctx, handle, place, send, out, first)

    return send_bytes
