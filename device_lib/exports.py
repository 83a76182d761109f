"""The names users import, bound to the functions of each scope."""

from __future__ import annotations

from device_lib.calls import comm_rank, comm_size, make_calls
from device_lib.scope import BLOCK, WARP

block_calls = make_calls(BLOCK)
warp_calls = make_calls(WARP)

GMPI_Isend = block_calls.isend
GMPI_Irecv = block_calls.irecv
GMPI_Send = block_calls.send
GMPI_Recv = block_calls.recv
GMPI_Sendrecv = block_calls.sendrecv
GMPI_Wait = block_calls.wait
GMPI_Waitall = block_calls.waitall
GMPI_Waitany = block_calls.waitany
GMPI_Test = block_calls.test
GMPI_Allreduce = block_calls.allreduce
GMPI_Iallreduce = block_calls.iallreduce
GMPI_Bcast = block_calls.bcast
GMPI_Barrier = block_calls.barrier
GMPI_Synchronize = block_calls.synchronize

GMPI_Isend_warp = warp_calls.isend
GMPI_Irecv_warp = warp_calls.irecv
GMPI_Send_warp = warp_calls.send
GMPI_Recv_warp = warp_calls.recv
GMPI_Sendrecv_warp = warp_calls.sendrecv
GMPI_Wait_warp = warp_calls.wait
GMPI_Waitall_warp = warp_calls.waitall
GMPI_Waitany_warp = warp_calls.waitany
GMPI_Test_warp = warp_calls.test
GMPI_Allreduce_warp = warp_calls.allreduce
GMPI_Iallreduce_warp = warp_calls.iallreduce
GMPI_Bcast_warp = warp_calls.bcast
GMPI_Barrier_warp = warp_calls.barrier
GMPI_Synchronize_warp = warp_calls.synchronize

GMPI_Comm_rank = comm_rank
GMPI_Comm_size = comm_size
