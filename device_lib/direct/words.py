"""What the words of a request say: its call, its channel, its length, what has come in elements."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.direct import rows
from device_lib.move.layouts import layout_of
from device_lib.platform.divide import divide_wide
from device_lib.platform.primitives import device, first_bit, load_gpu
from gmpi.contract.channels import KEY_PEER_SHIFT, KEY_PEERS, KEY_TAG_MASK
from gmpi.contract.constants import UNDEFINED
from gmpi.contract.layouts import LAYOUT_RECV, LAYOUT_TYPE, TYPE_SIZE
from gmpi.contract.wire import CALL_MASK, CALL_SHIFT, DATATYPE_SHIFT


@device
def peer_tag_of(key):
    """Peer and tag of a channel, as ``origin`` has them."""
    return key >> KEY_PEER_SHIFT & (KEY_PEERS - 1) | (key & KEY_TAG_MASK) << 32


@device
def length_word(word0, length, type_row):
    """LENGTH of a request's row."""
    kind = word0 >> DATATYPE_SHIFT & 0xFFFF
    if type_row != 0:
        kind = 0  # the layout has it
    return length | kind << rows.LENGTH_BITS


@device
def in_elements(nbytes, itemsize):
    """How many elements so many bytes are (MPI_Get_count)."""
    if itemsize & itemsize - 1 == 0:  # nearly always; a division takes 0.1 us
        shift = first_bit(itemsize)
        count = nbytes >> shift
        rest = nbytes - (count << shift)
    else:
        count, rest = divide_wide(nbytes, itemsize)
    return UNDEFINED if rest != 0 or count > 0x7FFFFFFF else count


@device
def elements_of(length, nbytes):
    """The same by LENGTH of a request's row, of a basic datatype."""
    if nbytes == 0:
        return 0
    return in_elements(nbytes, length >> rows.LENGTH_BITS + 8 & 0xFF)


@device
def elements(ctx, slot, length, nbytes):
    """How many of a receive, whose LENGTH this is, are in so many bytes (MPI_Get_count)."""
    if length >> rows.LENGTH_BITS + 8 & 0xFF != 0 or nbytes == 0:
        return elements_of(length, nbytes)
    layout = layout_of(ctx, slot, LAYOUT_RECV)
    itemsize = load_gpu(load_gpu(layout + LAYOUT_TYPE) + TYPE_SIZE)
    return in_elements(nbytes, itemsize)


@device
def call_of(word0):
    return word0 >> CALL_SHIFT & CALL_MASK
