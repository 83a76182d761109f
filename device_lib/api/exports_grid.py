"""The names of grid scope that users import: twins of those in ``exports``."""

from __future__ import annotations

from device_lib.api import exports, exports_collectives
from device_lib.api.binding import Twin, block_calls, make_twin
from device_lib.api.grid import make_grid_calls

grid_calls = make_grid_calls(block_calls)


def grid_scope(call: Twin) -> Twin:
    """The twin for the grid scope of a call that ``block_scope`` has bound."""
    return make_twin(call, grid_calls, "grid")


GMPI_Isend_grid = grid_scope(exports.GMPI_Isend)
GMPI_Irecv_grid = grid_scope(exports.GMPI_Irecv)
GMPI_Send_grid = grid_scope(exports.GMPI_Send)
GMPI_Recv_grid = grid_scope(exports.GMPI_Recv)
GMPI_Sendrecv_grid = grid_scope(exports.GMPI_Sendrecv)
GMPI_Wait_grid = grid_scope(exports.GMPI_Wait)
GMPI_Waitall_grid = grid_scope(exports.GMPI_Waitall)
GMPI_Waitany_grid = grid_scope(exports.GMPI_Waitany)
GMPI_Test_grid = grid_scope(exports.GMPI_Test)
GMPI_Allreduce_grid = grid_scope(exports.GMPI_Allreduce)
GMPI_Iallreduce_grid = grid_scope(exports.GMPI_Iallreduce)
GMPI_Bcast_grid = grid_scope(exports.GMPI_Bcast)
GMPI_Allgather_grid = grid_scope(exports_collectives.GMPI_Allgather)
GMPI_Alltoall_grid = grid_scope(exports_collectives.GMPI_Alltoall)
GMPI_Barrier_grid = grid_scope(exports.GMPI_Barrier)
GMPI_Synchronize_grid = grid_scope(exports.GMPI_Synchronize)
