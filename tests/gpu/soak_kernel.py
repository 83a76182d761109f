"""The kernel of ``soak.py``: what each block sends, receives and checks in a round."""

from __future__ import annotations

import wrong_message
from numba import cuda
from soak_loop import ENDED, MESSAGES, OPERATIONS, WRONG_DATA, WRONG_STATUS, flood

import gmpi

# The simulator takes a microsecond for what a GPU does in a cycle: the same ways, shorter.
EAGER = 256 if gmpi.SIMULATOR else 8192
CHUNK = 512 if gmpi.SIMULATOR else 524_288
SHORT = (1, 8, 100, 143, 144, 145, EAGER // 8, EAGER // 2, EAGER - 1, EAGER)
LONG = (EAGER + 1, 4 * EAGER, 8 * EAGER + 1) + (
    () if gmpi.SIMULATOR else (262_144, 300_001, 1_234_567)
)
LONG_BLOCKS = 24  # blocks that send long messages: two large slots each, of 64
DERIVED = 40 if gmpi.SIMULATOR else 500  # doubles of the derived datatype, every third one
KINDS = 10
# Of partitioned requests: bytes of one partition, of blocks in turn.
PARTS = 4
PART_BYTES = (8, 64, 200, 300) if gmpi.SIMULATOR else (8, 256, 2048, 20_000)
ALIGNED = 16  # bytes: what is stored straight lies at multiples of it
ROOM = 8 * ALIGNED  # that a message needs besides its own bytes
WARP_BYTES = 256  # room of each warp
WARP_TAGS = 1000  # tags of warps' messages begin here
# What the kernel counts besides: whether a wrong message has been kept, and which; those of each
# kind.
KEPT = ENDED + 1
WRONG_OF_KIND = KEPT + 1 + len(wrong_message.Kept._fields)
COUNTS = WRONG_OF_KIND + KINDS


@cuda.jit(device=True)
def byte_of(k, i, block, rank):  # type: ignore[no-untyped-def]
    return (k * 7 + (k >> 8) * 3 + i * 13 + block * 5 + rank * 101) & 0xFF


@cuda.jit(device=True)
def in_landing(i):  # type: ignore[no-untyped-def]
    """Whether round ``i`` receives into ``landing``."""
    return (i >> 4) & 1 == 1


@cuda.jit(device=True)
def in_partitions(ctx, pair, out, back, i, b, me, source):  # type: ignore[no-untyped-def]
    """A round of the block's partitioned requests, each partition as soon as it is there: the
    error, and how many bytes of this thread were wrong."""
    t = cuda.threadIdx.x
    step = cuda.blockDim.x
    part = out.size // PARTS
    bad = 0
    error = gmpi.GMPI_Start(ctx, pair[1]) + gmpi.GMPI_Start(ctx, pair[0])
    for j in range(PARTS):
        p = (i + j) % PARTS
        for k in range(p * part + t, (p + 1) * part, step):
            out[k] = byte_of(k, i, b, me)
        error += gmpi.GMPI_Pready(ctx, p, pair[0])
    for p in range(PARTS):
        while not gmpi.GMPI_Parrived(ctx, pair[1], p):
            pass
        for k in range(p * part + t, (p + 1) * part, step):
            if back[k] != byte_of(k, i, b, source):
                bad += 1
    status = gmpi.GMPI_Wait(ctx, pair[1])
    error += status.error + gmpi.GMPI_Wait(ctx, pair[0]).error
    if status.nbytes != out.size:
        error += 1
    return error, bad


@cuda.jit(device=True)
def of_each_warp(ctx, out, back, i, b, me, to, source, counts):  # type: ignore[no-untyped-def]
    """A message of each warp, by itself: how many bytes of this thread were wrong."""
    warp = cuda.threadIdx.x // 32
    lane = cuda.threadIdx.x % 32
    tag = WARP_TAGS + 32 * b + warp
    n = 1 + (i * 37 + warp * 11) % WARP_BYTES
    bad = 0
    s = out[warp * WARP_BYTES : warp * WARP_BYTES + n]
    r = back[warp * WARP_BYTES : warp * WARP_BYTES + n]
    for k in range(lane, n, 32):
        s[k] = byte_of(k, i, tag, me)
        r[k] = 0
    q = gmpi.GMPI_Irecv_warp(ctx, r, n, gmpi.BYTE, source, tag, gmpi.COMM_WORLD)
    p = gmpi.GMPI_Isend_warp(ctx, s, n, gmpi.BYTE, to, tag, gmpi.COMM_WORLD)
    status = gmpi.GMPI_Wait_warp(ctx, q)
    error = status.error + gmpi.GMPI_Wait_warp(ctx, p).error
    if lane == 0 and (error != 0 or status.tag != tag or status.nbytes != n):
        cuda.atomic.add(counts, WRONG_STATUS, 1)
    for k in range(lane, n, 32):
        if r[k] != byte_of(k, i, tag, source):
            bad += 1
    return bad


@cuda.jit
def soak(  # type: ignore[no-untyped-def]
    ctx, first, rounds, sizes, short, out, room, landing, doubles, back, derived, own, to, source,
    requests, pairs, ready, arrived, kinds, counts, kept, host, talkers, before,
    until,
):  # fmt: skip
    """``own``: communicators of blocks 0 (reductions), 1 (broadcasts) and 2 (ANY_TAG), and one for
    ANY_SOURCE. ``room``, ``landing``: what is received into, in turn. ``pairs``: partitioned
    requests of each block, the send first. ``kept``: a wrong message, as it was found and as it was
    a millisecond later. ``talkers`` blocks behind the first ``before`` do all that; the others
    store to ``host`` until ``until`` blocks have ended."""
    b = cuda.blockIdx.x - before
    t = cuda.threadIdx.x
    step = cuda.blockDim.x
    me = gmpi.GMPI_Comm_rank(ctx, gmpi.COMM_WORLD)
    size = gmpi.GMPI_Comm_size(ctx, gmpi.COMM_WORLD)
    if b < 0 or b >= talkers:
        flood(host, counts, until)
        return
    done = 0
    messages = 0
    bad = 0
    for i in range(first, first + rounds):
        kind = kinds[(i + b) % kinds.size]
        most = sizes.size if b < LONG_BLOCKS else short
        n = sizes[(i * 5 + b) % most]
        skew = (i >> 3) & 7
        s = out[b, skew : skew + n]
        into = landing if in_landing(i) else room
        at = 7 - skew
        if n > EAGER and n % ALIGNED == 0:  # straight to ``landing``
            at *= ALIGNED
        r = into[b, at : at + n]
        for k in range(t, n, step):
            s[k] = byte_of(k, i, b, me)
        for k in range(t, 3 * DERIVED, step):
            doubles[b, k] = 1000.0 * me + b + i + k
            back[b, k] = 0.0
        for k in range(n - 1 - t, -1, -step):  # last what comes first: it must not be too late
            r[k] = 0
        status = gmpi.GMPI_Wait(ctx, gmpi.REQUEST_NULL)
        error = 0
        bytes_came = True
        came_now = 1
        if kind == 0:
            q = gmpi.GMPI_Irecv(ctx, r, n, gmpi.BYTE, source, b, gmpi.COMM_WORLD)
            p = gmpi.GMPI_Isend(ctx, s, n, gmpi.BYTE, to, b, gmpi.COMM_WORLD)
            error = gmpi.GMPI_Waitall(ctx, 2, (q, p))
        elif kind == 1:
            status = gmpi.GMPI_Sendrecv(
                ctx, s, n, gmpi.BYTE, to, b, r, n, gmpi.BYTE, source, b, gmpi.COMM_WORLD
            )
        elif kind == 2:  # from whomever
            q = gmpi.GMPI_Irecv(ctx, r, n, gmpi.BYTE, gmpi.ANY_SOURCE, b, own[3])
            p = gmpi.GMPI_Isend(ctx, s, n, gmpi.BYTE, to, b, own[3])
            error = gmpi.GMPI_Wait(ctx, p).error
            status = gmpi.GMPI_Wait(ctx, q)
            if status.tag != b or status.source != source or status.nbytes != n:
                error = 1
        elif kind == 3:  # tested for, with any tag where the communicator is the block's own
            comm = gmpi.COMM_WORLD
            tag = b
            wanted = b
            if b == 2:
                comm = own[2]
                tag = i & 0x3FFF
                wanted = gmpi.ANY_TAG
            q = gmpi.GMPI_Irecv(ctx, r, n, gmpi.BYTE, source, wanted, comm)
            p = gmpi.GMPI_Isend(ctx, s, n, gmpi.BYTE, to, tag, comm)
            came = False
            while not came:
                came, status = gmpi.GMPI_Test(ctx, q)
            if status.tag != tag:
                error = 1
            if gmpi.GMPI_Wait(ctx, p).error != 0:
                error = 1
        elif kind == 4:  # several at once
            bytes_came = False
            came_now = 4
            part = 3 * DERIVED // 4
            for j in range(4):
                piece = back[b, j * part : (j + 1) * part]
                h = gmpi.GMPI_Irecv(ctx, piece, part, gmpi.DOUBLE, source, b, gmpi.COMM_WORLD)
                if t == 0:
                    requests[b, j] = h
            for j in range(4):
                piece = doubles[b, j * part : (j + 1) * part]
                h = gmpi.GMPI_Isend(ctx, piece, part, gmpi.DOUBLE, to, b, gmpi.COMM_WORLD)
                if t == 0:
                    requests[b, 4 + j] = h
            cuda.syncthreads()
            error = gmpi.GMPI_Waitall(ctx, 8, requests[b])
            for k in range(t, 4 * part, step):
                if back[b, k] != 1000.0 * source + b + i + k:
                    bad += 1
            done += 6
        elif kind == 5:  # every third double out of a derived datatype, into a strided slice
            bytes_came = False
            q = gmpi.GMPI_Irecv(
                ctx, back[b, 0 : 3 * DERIVED : 3], DERIVED, gmpi.DOUBLE, source, b, gmpi.COMM_WORLD
            )
            p = gmpi.GMPI_Isend(ctx, doubles[b], 1, derived, to, b, gmpi.COMM_WORLD)
            error = gmpi.GMPI_Waitall(ctx, 2, (p, q))
            for k in range(t, 3 * DERIVED, step):
                expected = 1000.0 * source + b + i + k if k % 3 == 0 else 0.0
                if back[b, k] != expected:
                    bad += 1
        elif kind == 6 and b == 0:
            bytes_came = False
            came_now = 0
            error = gmpi.GMPI_Allreduce(
                ctx, doubles[b], back[b], 5 + i % DERIVED, gmpi.DOUBLE, gmpi.SUM, own[0]
            )
            for k in range(t, 5 + i % DERIVED, step):
                if back[b, k] != 500.0 * size * (size - 1) + size * float(b + i + k):
                    bad += 1
        elif kind == 6 and b == 1:
            bytes_came = False
            came_now = 0
            root = i % size
            error = gmpi.GMPI_Bcast(ctx, s, n, gmpi.BYTE, root, own[1])
            for k in range(t, n, step):
                if s[k] != byte_of(k, i, b, root):
                    bad += 1
            if gmpi.GMPI_Barrier(ctx, own[1]) != 0:
                error = 1
        elif kind == 8:
            bytes_came = False
            total = PARTS * PART_BYTES[b % 4]
            error, bad = in_partitions(
                ctx, pairs[b], ready[b, :total], arrived[b, :total], i, b, me, source
            )
        elif kind == 9:
            bytes_came = False
            came_now = (step + 31) // 32
            cuda.syncthreads()  # all have filled the rows that each warp uses a part of
            bad = of_each_warp(ctx, out[b], into[b], i, b, me, to, source, counts)
            done += 2 * (came_now - 1)
        elif (me % 2 == 0 and me + 1 < size) or size == 1:  # blocking, even ranks first
            q = gmpi.GMPI_Irecv(ctx, r, n, gmpi.BYTE, source, b, gmpi.COMM_WORLD)
            error = gmpi.GMPI_Send(ctx, s, n, gmpi.BYTE, to, b, gmpi.COMM_WORLD).error
            status = gmpi.GMPI_Wait(ctx, q)
        else:
            p = gmpi.GMPI_Isend(ctx, s, n, gmpi.BYTE, to, b, gmpi.COMM_WORLD)
            status = gmpi.GMPI_Recv(ctx, r, n, gmpi.BYTE, source, b, gmpi.COMM_WORLD)
            error = gmpi.GMPI_Wait(ctx, p).error
        done += 2
        messages += came_now
        if t == 0 and (error != 0 or status.error != 0):
            cuda.atomic.add(counts, WRONG_STATUS, 1)
        if bytes_came:
            for k in range(t, n, step):
                if r[k] != byte_of(k, i, b, source):
                    bad += 1
        if cuda.syncthreads_or(bad):
            cuda.atomic.add(counts, WRONG_DATA, bad)
            bad = 0
            if t == 0:
                cuda.atomic.add(counts, WRONG_OF_KIND + kind, 1)
                if bytes_came and cuda.atomic.cas(counts, KEPT, 0, 1) == 0:
                    counts[KEPT + 1] = b
                    counts[KEPT + 2] = i
                    counts[KEPT + 3] = kind
                    counts[KEPT + 4] = n
                    counts[KEPT + 5] = at
                    counts[KEPT] = 2 + b
            cuda.syncthreads()
            if counts[KEPT] == 2 + b and counts[KEPT + 2] == i:
                for look in range(2):
                    for k in range(t, n, step):
                        kept[look, k] = r[k]
                    if not gmpi.SIMULATOR:
                        cuda.nanosleep(1000000)
                    cuda.threadfence_system()
                cuda.syncthreads()
    if t == 0:
        cuda.atomic.add(counts, OPERATIONS, done)
        cuda.atomic.add(counts, MESSAGES, messages)
        cuda.atomic.add(counts, ENDED, 1)
