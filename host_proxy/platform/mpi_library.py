"""The MPI library that mpi4py has loaded, as addresses and numbers for compiled code.

Whatever family it is: functions by address from mpi4py's own extension module (libmpi itself is
loaded with RTLD_LOCAL), handles of 4 bytes (MPICH family) or 8 (Open MPI), and the layout of
MPI_Status found by writing marks through mpi4py's setters.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from mpi4py import MPI

from gmpi.contract import moves

#: Of the collectives that move blocks, in the order of their opcodes.
MOVING = tuple(f"MPI_{row.nonblocking}" for row in moves.ROWS)
FUNCTIONS = (
    "MPI_Isend",
    "MPI_Issend",
    "MPI_Irecv",
    "MPI_Test",
    "MPI_Testsome",
    "MPI_Iallreduce",
    "MPI_Ibcast",
    "MPI_Ibarrier",
    "MPI_Error_class",
    "MPI_Request_free",
    *MOVING,
)

HANDLE_BYTES: int = MPI._sizeof(MPI.Comm)


class StatusLayout(NamedTuple):
    """Byte offsets in MPI_Status, and its size."""

    size: int
    source: int
    tag: int
    error: int
    nbytes: int  # lower half of their number


def functions() -> dict[str, int]:
    """Addresses of the MPI functions that the compiled engine calls."""
    library = ctypes.CDLL(MPI.__file__)
    found = {}
    for name in FUNCTIONS:
        found[name] = ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    return found


def handle(thing: MPI.Comm | MPI.Datatype | MPI.Op) -> int:
    """The C handle of an mpi4py object as a 64-bit number."""
    raw = ctypes.string_at(MPI._addressof(thing), HANDLE_BYTES)
    return int.from_bytes(raw, "little", signed=True)


def status_layout() -> StatusLayout:
    """Finds where source, tag, error and number of bytes are in an MPI_Status of this library."""
    status = MPI.Status()
    size = MPI._sizeof(status)

    def offset_of(set_field: object, mark: int) -> int:
        set_field(mark)  # type: ignore[operator]
        raw = ctypes.string_at(MPI._addressof(status), size)
        places = [i for i in range(0, size - 3, 4) if raw[i : i + 4] == mark.to_bytes(4, "little")]
        if len(places) != 1:
            raise RuntimeError(
                f"cannot find a field of MPI_Status: mark {mark:#x} at offsets {places}; "
                "use GMPI_ENGINE=mpi4py with this MPI library and report it"
            )
        return places[0]

    return StatusLayout(
        size,
        offset_of(status.Set_source, 0x12345671),
        offset_of(status.Set_tag, 0x12345672),
        offset_of(status.Set_error, 0x12345673),
        offset_of(lambda mark: status.Set_elements(MPI.BYTE, mark), 0x12345674),
    )


def request_at(address: int) -> MPI.Request:
    """mpi4py's object for the MPI request whose C handle is at an address."""
    request = MPI.Request()
    ctypes.memmove(MPI._addressof(request), address, HANDLE_BYTES)
    return request
