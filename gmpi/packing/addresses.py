"""Addresses of arrays, for datatypes that have them."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI


def Get_address(location: Any) -> int:
    """Address of the first element of an array in device or host memory (MPI 4.1 section 5.1.5).

    For datatypes of absolute addresses, which go with ``gmpi.BOTTOM``: mpi4py's ``Get_address``
    takes arrays in host memory only.

    Args:
        location: a device array (CuPy, Numba or any object with ``__cuda_array_interface__``), or
            anything that mpi4py takes.

    Raises:
        TypeError: it has no address.
    """
    interface = getattr(location, "__cuda_array_interface__", None)
    if interface is not None:
        return int(interface["data"][0] or 0)
    try:
        return int(MPI.Get_address(location))
    except (TypeError, BufferError) as exc:
        raise TypeError(
            f"location is a {type(location).__name__}; pass an array in device or host memory"
        ) from exc
