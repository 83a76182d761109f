"""Producer of completions and commands (consumer: ``device_lib/proxied/completion.py``,
``commands.py``).

A packet's low word is stored first and the word with its sequence number after it, with release: a
lane that sees the number in its 16-byte read of the line sees the low word too. MPI's writes to
staging come before the completion that announces them, for the same reason.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from gmpi.contract import wire
from gmpi.contract.constants import ANY_SOURCE, ANY_TAG, SUCCESS
from gmpi.contract.layouts import DERIVED_MARK, DERIVED_MASK, DERIVED_ROWS
from host_proxy.platform import state as st
from host_proxy.platform import trace
from host_proxy.platform.flight import completed
from host_proxy.platform.native import (
    apart,
    bump,
    entry,
    entry_inlined,
    get,
    inlined,
    jit,
    load,
    put,
    store_release,
)
from host_proxy.records.narrow import (
    find_overdue_narrow,
    forget_narrow,
    hear_narrow,
    is_narrow,
    show_blocks,
    show_narrow,
)


@inlined
def write_packet(address, low, high, seq):
    store_release(address, low)
    store_release(address + 8, (high & wire.LOW_32) | (seq << 32))


@inlined
def staging(g, slot):
    """Address of the payload in the slot's small staging buffer."""
    return get(g, st.G_SMALL) + slot * get(g, st.G_SMALL_STRIDE) + wire.STAGING_LEAD


@jit
def size_of(g, datatype):
    """Packed bytes of an element; the handle has been checked."""
    if datatype & ~DERIVED_MASK == DERIVED_MARK:
        return get(get(g, st.G_DERIVED), (datatype & (DERIVED_ROWS - 1)) * st.D_COUNT + st.D_SIZE)
    return get(get(g, st.G_DATATYPES), (datatype & 0xFF) * st.D_COUNT + st.D_SIZE)


@inlined
def elements(g, row, nbytes):
    """Received elements of the datatype of the call, or UNDEFINED (MPI_Get_count)."""
    if nbytes == 0:
        return 0
    if nbytes == get(row, st.S_BYTES) and get(row, st.S_ELEMENTS) <= 0x7FFFFFFF:
        return get(row, st.S_ELEMENTS)
    return _elements(g, row, nbytes)


@jit
def _elements(g, row, nbytes):
    size = size_of(g, get(row, st.S_DATATYPE))
    count = nbytes // size
    if count * size != nbytes or count > 0x7FFFFFFF:
        return get(g, st.G_UNDEFINED)
    return count


@inlined
def write(g, slot, handle, nbytes, error, count, origin, commands):
    """Writes a completion into the slot: all the packets that the handle makes the waiter poll."""
    address = get(g, st.G_COMPLETIONS) + slot * wire.SLOT_BYTES
    seq = handle & wire.LOW_32
    packets = (handle >> wire.HANDLE_PACKETS_SHIFT) & wire.HANDLE_PACKETS_MASK
    low = (
        (nbytes & wire.BYTES_MASK)
        | (error & 0xFF) << wire.ERROR_SHIFT
        | wire.KIND_DONE << wire.KIND_SHIFT
    )
    if packets >= wire.STATUS_PACKETS:
        if packets > wire.STATUS_PACKETS and (handle >> wire.HANDLE_LARGE_SHIFT) & 1 == 0:
            source = staging(g, slot)
            for packet in range(wire.STATUS_PACKETS, packets):
                write_packet(
                    address + packet * wire.PACKET_BYTES, load(source), load(source + 8), seq
                )
                source += wire.PACKET_PAYLOAD
        write_packet(address + wire.PACKET_BYTES, origin, commands, seq)
    write_packet(address, low, count, seq)


@entry_inlined
def tell(g, row, nbytes, error, source, tag, commands):
    """Writes the completion of an open request. ``commands``: how many the waiter must see done."""
    count = elements(g, row, nbytes)
    origin = (source & wire.LOW_32) | (tag & wire.LOW_32) << 32
    put(row, st.S_TOLD, 1)
    # Before the kernel can see it: else a proxy that loses its core in between stamps it too late.
    trace.end(g, row, nbytes, error, source, tag)
    write(g, get(row, st.S_SLOT), get(row, st.S_HANDLE), nbytes, error, count, origin, commands)
    completed(g, row, nbytes, error)


@entry_inlined
def close(g, row):
    """Forgets a request whose completion is written."""
    put(row, st.S_STATE, st.COMPLETE)
    bump(g, st.G_CLOSED, 1)
    if get(g, st.G_COMMANDED) | get(g, st.G_HELPED) | get(g, st.G_NARROW_BLOCKS):
        forget_commands(g, row)


@entry
def complete(g, row, nbytes, error, source, tag):
    """Ends the open request of a slot."""
    tell(g, row, nbytes, error, source, tag, 0)
    close(g, row)


@inlined
def end(g, row, nbytes):
    """``complete`` of what has no source: a send, for one."""
    tell(g, row, nbytes, SUCCESS, ANY_SOURCE, ANY_TAG, 0)
    close(g, row)


@jit
def slot_address(g, row):
    return get(g, st.G_COMPLETIONS) + get(row, st.S_SLOT) * wire.SLOT_BYTES


@entry
def answer(g, slot, error, number):
    """Tells a request of the direct road what debug mode says to it."""
    write_packet(get(g, st.G_COMPLETIONS) + slot * wire.SLOT_BYTES, error, 0, number)


@entry
def set_base(g, row, base, ready):
    """Says where (GPU) the chunk buffers are that the commands of this request are about, and what
    their ready word will be (0: they have none)."""
    seq = get(row, st.S_HANDLE) & wire.LOW_32
    write_packet(slot_address(g, row) + wire.BASE_PACKET * wire.PACKET_BYTES, base, ready, seq)


@entry
def command(g, row, index, position, length, direction):
    """Asks threads that wait to move ``length`` bytes at ``position`` to or from buffer ``index``.

    The buffer's packet may have an earlier command of this request, with the same sequence number.
    It loses that first: a lane that reads between two of our stores must not see one command's
    position with another's length, and the last chunk is shorter.
    """
    address = slot_address(g, row) + (wire.STATUS_PACKETS + index) * wire.PACKET_BYTES
    seq = get(row, st.S_HANDLE) & wire.LOW_32
    store_release(address + 8, 0)
    write_packet(address, position | direction << wire.DIRECTION_SHIFT, length, seq)
    bump(row, st.S_COMMANDS, 1)
    if is_narrow(g, row):
        show_narrow(g, row)
        return
    bit = _bit(g, row)
    if get(g, st.G_COMMANDED) & bit == 0:
        put(g, st.G_QUIET, get(g, st.G_QUIET) & ~bit)
        show_commands(g, get(g, st.G_COMMANDED) | bit)
    if get(g, st.G_HELPED) & bit:
        set_doorbell(g, get(g, st.G_DOORBELL) | bit)


@entry
def command_done(g, row):
    """An order of the slot has been executed."""
    bump(row, st.S_COMMANDS, -1)
    if is_narrow(g, row):
        hear_narrow(g, row)
        if get(row, st.S_COMMANDS) == 0:
            forget_narrow(g, row)
        return
    bit = _bit(g, row)
    put(g, st.G_QUIET, get(g, st.G_QUIET) & ~bit)
    if get(row, st.S_COMMANDS) == 0:
        set_doorbell(g, get(g, st.G_DOORBELL) & ~bit)
        show_commands(g, get(g, st.G_COMMANDED) & ~bit)


# --- who is to execute commands -------------------------------------------------------------------


@jit
def _bit(g, row):
    """The bit of a large slot."""
    return 1 << (get(row, st.S_SLOT) - get(g, st.G_REQUEST_SLOTS))


@jit
def set_doorbell(g, slots):
    """Tells all that wait which large slots have commands that nobody has come for."""
    if get(g, st.G_DOORBELL) != slots:
        put(g, st.G_DOORBELL, slots)
        store_release(get(g, st.G_CONTROL) + wire.CONTROL_DOORBELL, slots)


@jit
def show_commands(g, slots):
    """Tells all that wait which large slots have commands, and which blocks have opened them."""
    put(g, st.G_COMMANDED, slots)
    blocks = 0
    for slot in range(get(g, st.G_LARGE_SLOTS)):
        if slots >> slot & 1:
            row = get(g, st.G_SLOT_TABLE) + (get(g, st.G_REQUEST_SLOTS) + slot) * st.S_ROW_BYTES
            blocks |= 1 << (get(row, st.S_BLOCK) & wire.BLOCK_BITS)
    store_release(get(g, st.G_CONTROL) + wire.CONTROL_COMMANDS, slots)
    put(g, st.G_BLOCKS, blocks)
    show_blocks(g)


@entry
def find_overdue(g):
    """Leaves commands that nobody has come for to everybody that waits; in each turn of the loop
    while there are commands.

    A command is overdue when nothing was heard of its request between two looks: no new command
    where there was none, no answer. The next commands of such a request are everybody's
    at once.
    """
    if get(g, st.G_NOW) - get(g, st.G_QUIET_SINCE) < get(g, st.G_PATIENCE_NS):
        return
    put(g, st.G_QUIET_SINCE, get(g, st.G_NOW))
    overdue = get(g, st.G_QUIET) & get(g, st.G_COMMANDED)
    put(g, st.G_HELPED, get(g, st.G_HELPED) | overdue)
    set_doorbell(g, get(g, st.G_DOORBELL) | overdue)
    put(g, st.G_QUIET, get(g, st.G_COMMANDED))
    find_overdue_narrow(g)


@apart
def forget_commands(g, row):
    """The request of a slot is over, and with it the commands that nobody has answered."""
    if get(row, st.S_SLOT) < get(g, st.G_REQUEST_SLOTS):
        return
    if is_narrow(g, row):
        forget_narrow(g, row)
        return
    bit = _bit(g, row)
    put(g, st.G_HELPED, get(g, st.G_HELPED) & ~bit)
    set_doorbell(g, get(g, st.G_DOORBELL) & ~bit)
    if get(g, st.G_COMMANDED) & bit:
        show_commands(g, get(g, st.G_COMMANDED) & ~bit)
