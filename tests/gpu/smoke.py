"""First light on a GPU: two ranks exchange every class of message; the echo floor beside it."""

import sys
import time

import numpy as np
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi import GMPI_Irecv, GMPI_Isend, GMPI_Recv, GMPI_Send, GMPI_Wait

comm = MPI.COMM_WORLD
cuda.select_device(comm.rank % len(cuda.gpus))


@cuda.jit
def exchange(ctx, send, recv, n, peer, out):
    r = GMPI_Irecv(ctx, recv, n, gmpi.FLOAT, peer, 7, gmpi.COMM_WORLD)
    s = GMPI_Isend(ctx, send, n, gmpi.FLOAT, peer, 7, gmpi.COMM_WORLD)
    GMPI_Wait(ctx, s)
    status = GMPI_Wait(ctx, r)
    if cuda.threadIdx.x == 0:
        out[0] = status.error
        out[1] = status.source
        out[2] = status.tag
        out[3] = status.count
        out[4] = status.nbytes


@cuda.jit
def pingpong(ctx, buf, n, rank, peer, iterations):
    for i in range(iterations):
        if rank == 0:
            GMPI_Send(ctx, buf, n, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
            GMPI_Recv(ctx, buf, n, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
        else:
            GMPI_Recv(ctx, buf, n, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)
            GMPI_Send(ctx, buf, n, gmpi.BYTE, peer, 1, gmpi.COMM_WORLD)


@cuda.jit
def pings(ctx, iterations):
    for i in range(iterations):
        from_device(ctx)


from device_lib.exports import block_calls  # noqa: E402

from_device = block_calls.ping


def main():
    me = comm.rank
    peer = 1 - me
    start = time.time()
    with gmpi.Context(comm, engine=sys.argv[1] if len(sys.argv) > 1 else "compiled") as g:
        if me == 0:
            print("open", round(time.time() - start, 2), flush=True)
        for n in (0, 1, 2, 36, 37, 2048, 2049, 5000, 100000, 1000000, 10000000):
            for shift in (0, 1):
                send = cuda.to_device(np.arange(n + 1 + shift, dtype=np.float32) + me * 1000)
                recv = cuda.to_device(np.full(n + 1 + shift, -1, np.float32))
                out = cuda.to_device(np.full(5, -9, np.int64))
                t = time.time()
                exchange[1, 128](g.device, send[shift:], recv[shift:], n, peer, out)
                g.synchronize()
                got = recv.copy_to_host()
                want = np.arange(n, dtype=np.float32) + peer * 1000 + shift
                ok = np.array_equal(got[shift : n + shift], want) and got[n + shift] == -1
                if me == 0 or not ok:
                    ms = round((time.time() - t) * 1e3, 2)
                    print(me, n, shift, ok, out.copy_to_host(), ms, "ms", flush=True)
        print(
            "registers",
            [k.regs_per_thread for k in exchange.overloads.values()],
            [k.local_mem_per_thread for k in exchange.overloads.values()],
            flush=True,
        )
        for n in (8, 1024, 65536, 1 << 20):
            buf = cuda.to_device(np.zeros(n, np.uint8))
            its = 2000 if n <= 1024 else 100
            for count in (10, its):
                comm.Barrier()
                t = time.time()
                pingpong[1, 256](g.device, buf, n, me, peer, count)
                g.synchronize()
                dt = time.time() - t
            if me == 0:
                print("one-way", n, round(dt / its / 2 * 1e6, 2), "us", flush=True)
        for count in (10, 5000):
            t = time.time()
            pings[1, 32](g.device, count)
            g.synchronize()
        if me == 0:
            print("ping", round((time.time() - t) / 5000 * 1e6, 2), "us", flush=True)
    if me == 0:
        print("closed", round(time.time() - start, 2), flush=True)


main()
