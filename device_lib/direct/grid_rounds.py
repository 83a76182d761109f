"""Rounds of a long message, and their parts."""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from device_lib.platform import primitives as gpu
from device_lib.platform.primitives import device
from gmpi.contract.channels import FILLED, LEAST_ROUND, PART_BYTES, STRAIGHT
from gmpi.contract.wire import LOW_32


@device
def round_bytes(log):
    """Of a whole round, by what its announcement says of its parts."""
    return PART_BYTES << (log & STRAIGHT - 1)


@device
def parts_of(at, mark):
    """How many parts of the long message in an inbox slot have come; one thread."""
    parts, word = gpu.read_packet(at + FILLED)
    return parts if word >> 32 & LOW_32 == mark else 0


@device
def parts_there(at, mark):
    """The same, and what the sender has stored of these is there: for what is read at once. Staging
    is read past L1."""
    parts, word = gpu.acquire_packet_sys(at + FILLED)
    return parts if word >> 32 & LOW_32 == mark else 0


@device
def await_part(at, mark, parts, looks):
    """``parts_of``, as soon as more than ``parts`` have come; one thread."""
    come = parts
    looked = 0
    while come <= parts and looked < looks:
        come = parts_of(at, mark)
        looked += 1
        gpu.pause(20)
    return max(come, parts)


@device
def log_of(nbytes):
    """log2 of the parts of a round that has all of a message, at least as of any round."""
    log = LEAST_ROUND
    while PART_BYTES << log < nbytes:
        log += gpu.opaque(1)
    return log


@device
def parts_for(nbytes):
    """How many parts have been pushed with the first bytes of a long message; of one of which
    nothing is wanted one, too."""
    return max(1, (nbytes + PART_BYTES - 1) // PART_BYTES)


@device
def end_of_round(parts, log):
    """The part that the next round begins with, by how many parts have been taken."""
    return ((parts >> log) + 1) << log
