"""Long collectives that all blocks of all ranks carry out at once; ``direct_collectives`` runs
these, whose chunks are short."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from common import RANK, SIZE, TIME_FACTOR, WORLD, barrier, every_shape, pattern, raises, same
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi.contract.collectives import AREA, CHUNK, LONG, area_bytes
from gmpi.contract.pipelines import flags_bytes
from gmpi.contract.wire import DEVICE_COLLECTIVES
from gmpi.lifetime import watchdog

ALLREDUCE, ALLGATHER, ALLTOALL = range(3)
CALLS = {ALLREDUCE: "Allreduce", ALLGATHER: "Allgather", ALLTOALL: "Alltoall"}
GUARD = 64  # bytes around a buffer that must stay as they are
POISON = 0xA5
PATIENCE_S = 60
SHAPES = [
    ("block", 1, 64), ("grid", 3, 32), ("grid", 2, 40), ("grid", 1, 33), ("warp", 1, 32),
    ("grid", 2, 1),
]  # fmt: skip
#: (datatype, NumPy's, operation, NumPy's)
KINDS = [
    (gmpi.DOUBLE, np.float64, gmpi.SUM, np.add),
    (gmpi.FLOAT, np.float32, gmpi.MAX, np.maximum),
    (gmpi.INT32_T, np.int32, gmpi.SUM, np.add),
    (gmpi.UINT8_T, np.uint8, gmpi.BXOR, np.bitwise_xor),
    (gmpi.INT16_T, np.int16, gmpi.MIN, np.minimum),
]


def _make(suffix: str) -> Any:
    """The kernel of a scope; what its calls end with."""
    names = "Allreduce", "Allgather", "Alltoall", "Barrier"
    allreduce, allgather, alltoall, meet = (getattr(gmpi, f"GMPI_{n}{suffix}") for n in names)

    # wide: a kernel
    @cuda.jit
    def kernel(ctx, call, in_place, out, n, datatype, back, received, op, errors):
        if call == ALLREDUCE:
            if in_place:
                error = allreduce(ctx, gmpi.IN_PLACE, back, n, received, op, 0)
            else:
                error = allreduce(ctx, out, back, n, datatype, op, 0)
        elif call == ALLGATHER:
            if in_place:
                error = allgather(ctx, gmpi.IN_PLACE, n, datatype, back, n, received, 0)
            else:
                error = allgather(ctx, out, n, datatype, back, n, received, 0)
        elif in_place:
            error = alltoall(ctx, gmpi.IN_PLACE, n, datatype, back, n, received, 0)
        else:
            error = alltoall(ctx, out, n, datatype, back, n, received, 0)
        errors[cuda.grid(1)] = error + 1000 * meet(ctx, 0)

    return kernel


KERNELS = {"block": _make(""), "grid": _make("_grid"), "warp": _make("_warp")}


class Case(NamedTuple):
    """What this rank calls.

    Attributes:
        count: elements of a block.
        kind: which of KINDS.
        skews: bytes past a multiple of 64 at which the buffers begin.
        registered: whether they are registered arrays.
        step: elements apart, of a derived datatype where there is more than one.
    """

    call: int
    count: int
    kind: int = 0
    in_place: bool = False
    skews: tuple[int, int] = (0, 0)
    registered: bool = False
    shape: tuple[str, int, int] = SHAPES[1]
    step: int = 1


def _elements(n: int, seed: int, dtype: Any) -> np.ndarray:
    """Numbers of which every sum is exact, and of doubles any: their order is that of ranks."""
    if dtype == np.float64:
        return np.random.default_rng(seed).normal(size=n)
    return (pattern(n, seed).astype(np.int32) - 20).astype(dtype)


class Arrays:
    """Registered and other memory for two buffers, which all calls use in turn."""

    def __init__(self, g: gmpi.Context, nbytes: int) -> None:
        room = 2 * (nbytes + 4 * GUARD)
        self.registered = g.zeros(room, np.uint8)
        self.other = cuda.to_device(np.zeros(room, np.uint8))
        self.half = room // 2

    def take(self, c: Case, nbytes: tuple[int, int]) -> tuple[Any, Any, Any]:
        """(all of it, what goes out, what comes back)."""
        whole = self.registered if c.registered else self.other
        begins = [i * self.half + GUARD + skew for i, skew in enumerate(c.skews)]
        out, back = (whole[at : at + n] for at, n in zip(begins, nbytes))
        return whole, out, back


def _apart(data: np.ndarray, step: int) -> np.ndarray:
    wide = np.zeros(len(data) * step, data.dtype)
    wide[::step] = data
    return wide


# long: a call and all that is to be compared
def carry_out(g: gmpi.Context, arrays: Arrays, c: Case, seed: int) -> bool:
    """One call; whether it has gone straight between the arrays of the users."""
    datatype, dtype, op, combine = KINDS[c.kind]
    n, size = c.count, np.dtype(dtype).itemsize
    given, got = n * (SIZE if c.call == ALLTOALL else 1), n * (1 if c.call == ALLREDUCE else SIZE)
    everybody = [_elements(given, seed + r, dtype) for r in range(SIZE)]
    if c.call == ALLREDUCE:
        expected = everybody[0].copy()
        for other in everybody[1:]:
            expected = combine(expected, other)
    elif c.call == ALLGATHER:
        expected = np.concatenate(everybody)
    else:
        expected = np.concatenate([data[n * RANK : n * RANK + n] for data in everybody])
    whole, out, back = arrays.take(c, (given * size, got * size * c.step))
    content = np.full(2 * arrays.half, POISON, np.uint8)
    at = GUARD + c.skews[0]
    content[at : at + given * size] = everybody[RANK].view(np.uint8)
    to = arrays.half + GUARD + c.skews[1]
    filled = np.full(got * size * c.step, POISON, np.uint8)
    if c.in_place:
        begin = n * size * RANK * c.step if c.call == ALLGATHER else 0
        mine = _apart(everybody[RANK], c.step).view(np.uint8)
        filled[begin : begin + mine.size] = mine
    content[to : to + filled.size] = filled
    whole.copy_to_device(content)
    received = datatype
    kind = None
    if c.step > 1:
        element = next(d for d in (MPI.DOUBLE, MPI.UINT8_T, MPI.INT32_T) if d.Get_size() == size)
        kind = element.Create_resized(0, size * c.step).Commit()
        received = g.commit(kind)
    scope, blocks, threads = c.shape
    errors = cuda.to_device(np.full(blocks * threads, -1, np.int64))
    flags = _flags(g)
    barrier()
    KERNELS[scope][blocks, threads](
        g.device, c.call, c.in_place, out, n, datatype, back, received, op, errors
    )
    g.synchronize()
    assert not errors.copy_to_host().any(), (c, errors.copy_to_host())
    found = whole.copy_to_host()
    what = f"{CALLS[c.call]}, {c}"
    came = found[to : to + filled.size].view(dtype) if c.step == 1 else None
    if came is None:
        came = np.frombuffer(found[to : to + filled.size].tobytes(), dtype)[:: c.step]
    same(came.view(np.uint8) if c.step == 1 else came, _seen(expected, c.step), what)
    found[to : to + filled.size] = content[to : to + filled.size]
    same(found, content, f"{what}: what is beside")
    if kind is not None:
        g.free(received)
        kind.Free()
    barrier()
    return bool(np.array_equal(flags, _flags(g)))


def _seen(expected: np.ndarray, step: int) -> np.ndarray:
    """As it is compared: all bits of what lies in one piece."""
    return expected.view(np.uint8) if step == 1 else expected


def _flags(g: gmpi.Context) -> np.ndarray:
    """What pipelines have told this rank."""
    area = int(g._memory.read_device(DEVICE_COLLECTIVES + AREA, 8).view(np.int64)[0])
    return g._memory.fetch(area + area_bytes(SIZE), flags_bytes(SIZE))


def _is_long(g: gmpi.Context) -> bool:
    return bool(g._memory.read_device(DEVICE_COLLECTIVES + CHUNK, 8).view(np.int64)[0])


def straight_between_arrays(g: gmpi.Context) -> None:
    """Registered ones, once all have mapped them: no byte goes through staging."""
    arrays = Arrays(g, SIZE * (LONG + 4096))
    n = LONG // 8 + 5
    until = time.monotonic() + PATIENCE_S
    seed = 1000
    straight = False
    while not WORLD.allreduce(straight, MPI.LAND):
        assert time.monotonic() < until, "nobody has mapped them"
        seed += SIZE
        straight = carry_out(g, arrays, Case(ALLREDUCE, n, registered=True), seed)
    first = Case(ALLREDUCE, n, registered=True)
    mixed = SHAPES[0] if RANK == SIZE - 1 else SHAPES[1]
    cases = [
        (first._replace(in_place=True), True),
        (first._replace(count=LONG + 29, kind=3), True),
        (first._replace(call=ALLGATHER, skews=(3 * RANK, 0)), True),
        (first._replace(call=ALLTOALL, skews=(0, 8)), True),
        # What comes would fall on what goes out, or cannot be moved by words.
        (first._replace(call=ALLTOALL, in_place=True), SIZE == 1),
        (first._replace(skews=(8 * (RANK == 0), 0)), False),
        (first._replace(registered=RANK > 0), SIZE == 1),
    ]
    if every_shape():
        cases += [
            (first._replace(call=ALLGATHER, in_place=True, shape=mixed), True),
            (first._replace(call=ALLTOALL, count=LONG + 13, kind=3, skews=(1, 6)), True),
            (first._replace(shape=mixed), True),
            (first._replace(call=ALLGATHER, shape=SHAPES[4]), True),
        ]
    for case, expected in cases:
        seed += SIZE
        found = carry_out(g, arrays, case, seed)
        assert found == expected or SIZE == 1, (case, found)
    g.unregister(arrays.registered)
    assert not carry_out(g, arrays, first, seed) or SIZE == 1


def through_pipelines(g: gmpi.Context) -> None:
    """Any memory: by one block and by many, in one turn of each pipeline and in several, with other
    shapes on other ranks."""
    arrays = Arrays(g, SIZE * (6 * LONG))
    first = Case(ALLREDUCE, LONG // 8 + 1)
    mixed = SHAPES[0] if RANK == SIZE - 1 else SHAPES[1]
    cases = [first._replace(call=call, shape=mixed) for call in CALLS]
    cases.append(first._replace(call=ALLTOALL, count=5 * LONG // 8 + 3, in_place=True))
    if every_shape():
        cases += [first._replace(call=call, count=5 * LONG // 8) for call in CALLS]
        cases += [first._replace(count=5 * LONG // 8, shape=SHAPES[0])]
        cases += [first._replace(call=call, shape=SHAPES[4]) for call in CALLS]
    for i, case in enumerate(cases):
        straight = carry_out(g, arrays, case, 2000 + SIZE * i)
        assert not straight or SIZE == 1, case


def datatypes_on_one_rank(g: gmpi.Context) -> None:
    """Then all of them take rounds, or chunks; as what is short does."""
    arrays = Arrays(g, 3 * SIZE * (LONG + 4096))
    for i, call in enumerate((ALLGATHER, ALLTOALL)):
        case = Case(call, LONG // 8 + 7, step=2 if RANK == 0 else 1)
        assert carry_out(g, arrays, case, 3000 + i), "pipelines are not for this"
    for i, count in enumerate((0, 1, 300, LONG // 8)):
        for call in CALLS:
            assert carry_out(g, arrays, Case(call, count), 3100 + 10 * i + call)


def random_calls(g: gmpi.Context) -> None:
    """Each rank with memory, alignment and shape of its own."""
    arrays = Arrays(g, SIZE * (3 * LONG + 4096))
    rng = np.random.default_rng(77)  # the same on all ranks
    own = np.random.default_rng(78 + RANK)
    for i in range(24 if every_shape() else 8):
        call, kind = int(rng.integers(3)), int(rng.integers(len(KINDS)))
        size = np.dtype(KINDS[kind][1]).itemsize
        count = int(rng.integers(0, 3 * LONG)) // size if rng.random() < 0.8 else 3
        skews = tuple(int(s) * size % 32 for s in own.integers(0, 5, size=2))
        case = Case(
            call, count, kind, bool(rng.random() < 0.3), skews,  # type: ignore[arg-type]
            bool(own.random() < 0.5), SHAPES[int(own.integers(len(SHAPES)))],
        )  # fmt: skip
        carry_out(g, arrays, case, 4000 + SIZE * i)
    g.unregister(arrays.registered)


SCENARIOS = [
    straight_between_arrays, through_pipelines, datatypes_on_one_rank, random_calls,
]  # fmt: skip


# --- what does not end ----------------------------------------------------------------------------

#: (call, elements of a block, shape, whether rank 1 leaves in the middle: else it is silent)
STALLS = [
    (ALLREDUCE, 5 * LONG // 8, ("grid", 2, 32), False),
    (ALLTOALL, 9 * LONG // 8, ("block", 1, 64), False),  # more bytes than a signature holds
    (ALLGATHER, 5 * LONG // 8, ("warp", 1, 32), False),
    (ALLREDUCE, 5 * LONG // 8, ("grid", 2, 32), True),
    (ALLGATHER, 3 * LONG // 8, ("block", 1, 32), True),
]


class Leaves(Exception):
    """What ends a rank in the middle of a call."""


@contextlib.contextmanager
def first_piece_only(leaves: bool) -> Iterator[None]:
    """This rank tells nobody of its second piece."""
    from device_lib.direct import pipelines

    write = pipelines.write_packet

    def tell(at: int, low: int, high: int) -> None:
        if low == 1:
            write(at, low, high)
        elif leaves:
            raise Leaves

    pipelines.write_packet = tell
    try:
        yield
    finally:
        pipelines.write_packet = write


def stalls_in_a_pipeline() -> None:
    """The second piece of rank 1 never comes: the others are told so, and end after ``timeout_s``;
    or at once, where rank 1 has gone."""
    if SIZE == 1 or not gmpi.SIMULATOR:
        return
    watchdog.POLL_S, watchdog.ANSWER_S = 0.05, 3.0 * TIME_FACTOR
    for case in STALLS if every_shape() else STALLS[SIZE % 2 :: 2]:
        _stall(*case)


def _stall(call: int, n: int, shape: tuple[str, int, int], leaves: bool) -> None:
    limit = 0.4 * TIME_FACTOR
    timeout = 60.0 * TIME_FACTOR if leaves else limit
    settings = {"watchdog_s": limit, "timeout_s": timeout, "on_error": "return"}
    error: gmpi.GMPIError | None = None
    scope, blocks, threads = shape
    out, back = (cuda.to_device(np.zeros(n * SIZE)) for _ in range(2))
    errors = cuda.to_device(np.full(blocks * threads, -1, np.int64))
    began = time.monotonic()
    stack = contextlib.ExitStack()
    with contextlib.suppress(Leaves), stack:
        g = stack.enter_context(gmpi.Context(WORLD, wildcards=False, **settings))  # type: ignore
        barrier()
        if RANK == 1:
            stack.enter_context(first_piece_only(leaves))
        try:
            KERNELS[scope][blocks, threads](
                g.device, call, False, out, n, gmpi.DOUBLE, back, gmpi.DOUBLE, gmpi.SUM, errors
            )
            g.synchronize()
        except gmpi.GMPIError as exc:
            error = exc
        if not leaves:
            barrier()  # nobody's watchdog goes before all have asked
    barrier()
    assert time.monotonic() - began < 20 * TIME_FACTOR
    if leaves and RANK == 1:
        return
    assert isinstance(error, gmpi.PeerError if leaves else gmpi.RequestTimeoutError), error
    ended = gmpi.GMPI_ERR_ABORTED if leaves else gmpi.GMPI_ERR_TIMEOUT
    found = errors.copy_to_host() % 1000  # MPI may complete a Barrier on the way out
    same(found, np.full(blocks * threads, ended), "errors")
    text = error.report.text
    amount = f" {n} DOUBLE" if call == ALLREDUCE else f" {8 * n} BYTE"
    assert re.search(f"GMPI_{CALLS[call]}.*{amount}", text), text
    piece = "[12]" if leaves and blocks > 1 else "2"  # it may leave before its other block begins
    assert re.search(rf"piece {piece} of \d+ has not come from rank 1", text), text
    why = "rank 1 has ended with Leaves" if leaves else "all ranks are in this call"
    assert why in error.report.causes[0].text, text


def aborted_in_a_pipeline() -> None:
    """Rank 1 never says what it has stored: an abort ends the call in all blocks of both."""
    if SIZE == 1 or not gmpi.SIMULATOR:
        return
    from device_lib.direct import pipelines

    write = pipelines.write_packet
    with contextlib.suppress(gmpi.AbortedError), gmpi.Context(WORLD, wildcards=False) as g:
        assert _is_long(g)
        if RANK == 1:
            pipelines.write_packet = lambda *words: None
        n = LONG // 8 + 1
        out, back = (cuda.to_device(np.zeros(n)) for _ in range(2))
        errors = cuda.to_device(np.full(96, -1, np.int64))
        threading.Timer(0.5, g.abort).start()
        barrier()
        KERNELS["grid"][3, 32](
            g.device, ALLREDUCE, False, out, n, gmpi.DOUBLE, back, gmpi.DOUBLE, gmpi.SUM, errors
        )
        raises(gmpi.AbortedError, "aborted", g.synchronize)
        pipelines.write_packet = write
        if RANK < 2:
            aborted = gmpi.GMPI_ERR_ABORTED
            same(errors, np.full(96, aborted + 1000 * aborted), "errors")
        barrier()
    barrier()


ENDINGS = [aborted_in_a_pipeline, stalls_in_a_pipeline]
