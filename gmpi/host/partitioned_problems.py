"""What is wrong with the two ends of a partitioned request, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpi4py import MPI

from gmpi.errors import ArgumentError, Fault
from gmpi.fault_words import caller

if TYPE_CHECKING:
    from gmpi.host.partitioned_rows import Shape


def no_room(nbytes: int, arena: int) -> str:
    """Why there is no memory."""
    return (
        f"{nbytes} bytes are wanted in the memory for partitioned requests, which has "
        f"{arena}; free requests that are not used any more, or receive into registered "
        "arrays (Context.empty, Context.register)"
    )


def no_staging(nbytes: int) -> str:
    """Why there is none for a receive."""
    return (
        f"a partitioned receive of {nbytes} bytes into memory that is not registered needs "
        "staging, and to allocate it would wait for the kernel that is running; register the "
        "array, or make the request on the host before the launch (freed, it leaves its staging to "
        "later ones)"
    )


def differing(shape: Shape, partitions: int, nbytes: int, why: str = "") -> ArgumentError:
    """Two ends do not fit.

    Args:
        partitions, nbytes: of the other end; bytes of one partition.
        why: something else than their bytes.
    """
    call, other = ("Psend_init", "Precv_init") if shape.sends else ("Precv_init", "Psend_init")
    if shape.block >= 0:
        call = f"GMPI_{call}"
    where = f"{call} in {caller(shape.block)}"
    mine = f"{shape.total} bytes in {shape.partitions} partitions"
    theirs = f"{partitions * nbytes} bytes in {partitions} partitions"
    allowed = f"as many bytes as rank {shape.peer} has"
    text = (
        f"{where}: message is {mine}, allowed is {allowed}: its {other} has {theirs}; make "
        "partitions times count equal in bytes"
    )
    if why:
        text = f"{where}: message is {mine}; {why}"
    text += f" [peer {shape.peer}, tag {shape.tag}, communicator {shape.comm}]"
    error = MPI.ERR_OTHER if why else MPI.ERR_COUNT
    return ArgumentError(
        Fault(text, call, "message", shape.total, allowed, shape.block, int(error), ArgumentError)
    )
