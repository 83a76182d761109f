"""Messages of the direct road of each length, from and to each place within a word.

    mpiexec -n 2 python3 tests/ranks/each_size.py [--some]

A message goes another way by its length and by where its buffers lie: one packet for each lane,
several, the wide slot. A packet more or less shows at the edges, a word in the wrong place in the
bytes around the room. On a GPU each length up to 4300 bytes is tried, in the simulator those at the
edges.
"""

from __future__ import annotations

import numpy as np
from common import RANK, SIZE, WORLD, end, every_shape, run
from numba import cuda

import gmpi
from device_lib.platform.scope import BLOCK, WARP
from gmpi import GMPI_Irecv, GMPI_Irecv_warp, GMPI_Isend, GMPI_Isend_warp, GMPI_Wait, GMPI_Wait_warp
from gmpi.contract.channels import ROOM

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE
AROUND = 16  # bytes before and after a room, which no message may touch
MOST = ROOM + 204


def kernel_of(scope, irecv, isend, wait):  # type: ignore[no-untyped-def]
    """For one scope, whose calls these are."""
    rank, size, sync = scope.rank, scope.size, scope.sync

    # wide: a kernel
    @cuda.jit
    def kernel(ctx, out, back, sizes, places, me, to, source, wrong):  # type: ignore[no-untyped-def]
        first, step = rank(), size()
        for i in range(sizes.size):
            n = sizes[i]
            for k in places:  # of the room and of the data, within a word
                begin = AROUND + k // 4
                for b in range(first, n + 4, step):
                    out[b] = (b * 7 + i * 5 + k + 13 * me) & 0xFF
                for b in range(first, back.size, step):
                    back[b] = 0xEE
                sync()
                receive = irecv(ctx, back[begin : begin + n], n, gmpi.BYTE, source, 3, 0)
                send = isend(ctx, out[k % 4 : k % 4 + n], n, gmpi.BYTE, to, 3, 0)
                status = wait(ctx, receive)
                wait(ctx, send)
                if status.nbytes != n or status.error != gmpi.SUCCESS:
                    cuda.atomic.add(wrong, i, 1)
                for b in range(first, back.size, step):
                    wanted = 0xEE
                    if begin <= b and b < begin + n:
                        wanted = ((b - begin + k % 4) * 7 + i * 5 + k + 13 * source) & 0xFF
                    if back[b] != wanted:
                        cuda.atomic.add(wrong, i, 1)
                sync()

    return kernel


in_a_block = kernel_of(BLOCK, GMPI_Irecv, GMPI_Isend, GMPI_Wait)
in_a_warp = kernel_of(WARP, GMPI_Irecv_warp, GMPI_Isend_warp, GMPI_Wait_warp)


def lengths() -> list[int]:
    if not gmpi.SIMULATOR:
        return list(range(MOST))
    edges = [0, 8, 20, 380, 381, 391, 392, 1536]
    if every_shape():
        edges += [1, 7, 9, 379, 383, 384, 396, 1532, ROOM - 1, ROOM, ROOM + 1, ROOM + 16]
    return edges


def tried(g: gmpi.Context, kernel: object, threads: int) -> None:
    sizes = np.array(lengths())
    out = cuda.to_device(np.zeros(MOST + 4, np.uint8))
    back = cuda.to_device(np.zeros(MOST + 2 * AROUND + 4, np.uint8))
    wrong = cuda.to_device(np.zeros(sizes.size, np.int32))
    places = cuda.to_device(np.arange(0, 16, 3 if gmpi.SIMULATOR else 1))
    WORLD.Barrier()
    kernel[1, threads](  # type: ignore[index]
        g.device, out, back, cuda.to_device(sizes), places, RANK, NEXT, PREVIOUS, wrong
    )
    g.synchronize()
    found = wrong.copy_to_host()
    assert not found.any(), [(int(n), int(w)) for n, w in zip(sizes, found) if w]


def blocks(g: gmpi.Context) -> None:
    for threads in (64,) if gmpi.SIMULATOR else (32, 256, 1024):
        tried(g, in_a_block, threads)


def warps(g: gmpi.Context) -> None:
    tried(g, in_a_warp, 32)


def main() -> None:
    with gmpi.Context(WORLD, wildcards=False) as g:
        run([blocks, warps] if every_shape() else [blocks], g)
    end()


main()
