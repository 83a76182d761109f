"""Partitions that are made ready by lists: in any order, of any memory, by blocks and by warps."""

from __future__ import annotations

import numpy as np
from common import RANK, SIZE, WORLD, barrier, end, pattern, run, same
from numba import cuda, int32, int64

import gmpi
from gmpi import GMPI_Parrived, GMPI_Pready_list, GMPI_Pready_list_warp, GMPI_Start, GMPI_Wait

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE
PARTITIONS, BYTES = 7, 40
ORDER = np.array([5, 0, 6, 2, 4, 1, 3], np.int32)
FORMS = 5  # of a list


# wide: a kernel
@cuda.jit
def send_by_lists(ctx, send, recv, order, wide_order, out, back, found, errors):
    """A round for each form of the list."""
    thread = cuda.threadIdx.x
    shared = cuda.shared.array(PARTITIONS, int64)
    own = cuda.local.array(PARTITIONS, int32)
    constant = cuda.const.array_like(ORDER)
    for k in range(PARTITIONS):
        own[k] = order[k]
    if thread < PARTITIONS:
        shared[thread] = order[thread]
    cuda.syncthreads()
    for form in range(FORMS):
        GMPI_Start(ctx, recv)
        GMPI_Start(ctx, send)
        for k in range(thread, out.size, cuda.blockDim.x):
            out[k] = int64(out[k]) + 1 & 0xFF
        if form == 0:  # some, none, the others; of a warp
            cuda.syncthreads()
            error = GMPI_Pready_list_warp(ctx, 3, order, send) if thread < 32 else 0
            error += GMPI_Pready_list(ctx, 0, order, send)
            error += GMPI_Pready_list(ctx, PARTITIONS - 3, order[3:], send)
        elif form == 1:
            error = GMPI_Pready_list(ctx, PARTITIONS, wide_order, send)
        elif form == 2:
            error = GMPI_Pready_list(ctx, PARTITIONS, shared, send)
        elif form == 3:
            error = GMPI_Pready_list(ctx, PARTITIONS, own, send)
        else:
            error = GMPI_Pready_list(ctx, PARTITIONS, constant, send)
        for p in range(PARTITIONS):
            while not GMPI_Parrived(ctx, recv, p):
                pass
        cuda.syncthreads()
        for k in range(thread, out.size, cuda.blockDim.x):
            found[form, k] = back[k]
        error += GMPI_Wait(ctx, recv).error + GMPI_Wait(ctx, send).error
        if thread == 0:
            errors[form] = error


def lists_of_all_memories(g: gmpi.Context) -> None:
    """All partitions come, with what was stored before they were named."""
    size = PARTITIONS * BYTES
    begins = [pattern(size, 7 * rank) for rank in (RANK, PREVIOUS)]
    out, back = cuda.to_device(begins[0]), cuda.to_device(np.zeros(size, np.uint8))
    send = g.Psend_init(out, PARTITIONS, BYTES, gmpi.BYTE, NEXT, 3)
    recv = g.Precv_init(back, PARTITIONS, BYTES, gmpi.BYTE, PREVIOUS, 3)
    found = cuda.to_device(np.zeros((FORMS, size), np.uint8))
    errors = cuda.to_device(np.full(FORMS, -1, np.int64))
    lists = cuda.to_device(ORDER), cuda.to_device(ORDER.astype(np.int64))
    barrier()
    send_by_lists[1, 64](g.device, send, recv, *lists, out, back, found, errors)
    g.synchronize()
    same(errors.copy_to_host(), [gmpi.SUCCESS] * FORMS, "error classes")
    for form, got in enumerate(found.copy_to_host()):
        same(got, begins[1] + np.uint8(form + 1), f"form {form} of the list")
    g.Request_free(send)
    g.Request_free(recv)


if __name__ == "__main__":
    with gmpi.Context(WORLD) as g:
        run([lists_of_all_memories], g)
    with gmpi.Context(WORLD, wildcards=False) as g:
        run([lists_of_all_memories], g)
    end()
