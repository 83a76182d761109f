"""Long collectives that all blocks of all ranks carry out at once; ``direct_collectives`` runs
these, whose chunks are short."""

from __future__ import annotations

import contextlib
import time
from typing import Any, NamedTuple

import numpy as np
from common import RANK, SIZE, WORLD, barrier, every_shape, pattern, same
from mpi4py import MPI
from numba import cuda

import gmpi
from gmpi.contract.collectives import AREA, LONG, area_bytes
from gmpi.contract.pipelines import flags_bytes
from gmpi.contract.wire import DEVICE_COLLECTIVES

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
        steps: elements apart, of what goes out and of what comes back: 1, or of a derived datatype.
    """

    call: int
    count: int
    kind: int = 0
    in_place: bool = False
    skews: tuple[int, int] = (0, 0)
    registered: bool = False
    shape: tuple[str, int, int] = SHAPES[1]
    steps: tuple[int, int] = (1, 1)


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


def _spread(area: np.ndarray, data: np.ndarray, step: int) -> None:
    """Puts elements into bytes, so many apart; what is between them stays."""
    area.view(data.dtype)[: len(data) * step : step] = data


def _commit(g: gmpi.Context, stack: contextlib.ExitStack, kind: int, step: int) -> int:
    """A datatype of one element, and of room for more."""
    datatype, dtype = KINDS[kind][:2]
    if step == 1:
        return int(datatype)
    size = np.dtype(dtype).itemsize
    element = next(d for d in (MPI.DOUBLE, MPI.UINT8_T, MPI.INT32_T) if d.Get_size() == size)
    derived = element.Create_resized(0, size * step).Commit()
    stack.callback(derived.Free)
    handle = g.commit(derived)
    stack.callback(g.free, handle)
    return handle


# long: a call and all that is to be compared
def carry_out(g: gmpi.Context, arrays: Arrays, c: Case, seed: int) -> bool:
    """One call; whether it has gone straight between the arrays of the users."""
    dtype, op, combine = KINDS[c.kind][1:]
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
    lengths = given * size * c.steps[0], got * size * c.steps[1]
    whole, out, back = arrays.take(c, lengths)
    content = np.full(2 * arrays.half, POISON, np.uint8)
    at, to = GUARD + c.skews[0], arrays.half + GUARD + c.skews[1]
    _spread(content[at : at + lengths[0]], everybody[RANK], c.steps[0])
    if c.in_place:
        begin = to + (n * size * RANK * c.steps[1] if c.call == ALLGATHER else 0)
        end = begin + everybody[RANK].nbytes * c.steps[1]
        _spread(content[begin:end], everybody[RANK], c.steps[1])
    whole.copy_to_device(content)
    scope, blocks, threads = c.shape
    errors = cuda.to_device(np.full(blocks * threads, -1, np.int64))
    flags = _flags(g)
    with contextlib.ExitStack() as stack:
        datatype, received = (_commit(g, stack, c.kind, step) for step in c.steps)
        barrier()
        KERNELS[scope][blocks, threads](
            g.device, c.call, c.in_place, out, n, datatype, back, received, op, errors
        )
        g.synchronize()
    assert not errors.copy_to_host().any(), (c, errors.copy_to_host())
    # Of what comes back all bits, and of all that is beside it.
    _spread(content[to : to + lengths[1]], expected, c.steps[1])
    same(whole.copy_to_host(), content, f"{CALLS[c.call]}, {c}")
    barrier()
    return bool(np.array_equal(flags, _flags(g)))


def _flags(g: gmpi.Context) -> np.ndarray:
    """What pipelines have told this rank."""
    area = int(g._memory.read_device(DEVICE_COLLECTIVES + AREA, 8).view(np.int64)[0])
    return g._memory.fetch(area + area_bytes(SIZE), flags_bytes(SIZE))


def straight_between_arrays(g: gmpi.Context) -> None:
    """Registered ones, once all have mapped them: no byte goes through staging."""
    arrays = Arrays(g, 2 * SIZE * (LONG + 4096))
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
        # What goes out is packed on the way; what comes back is unpacked from a slot.
        (first._replace(call=ALLTOALL, steps=(2, 1)), True),
        (first._replace(call=ALLTOALL, steps=(2 if RANK else 1, 2 - bool(RANK))), False),
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
            (first._replace(call=ALLGATHER, steps=(2, 1), shape=mixed), True),
            (first._replace(call=ALLTOALL, steps=(2, 1), shape=SHAPES[4]), True),
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


def datatypes_through_pipelines(g: gmpi.Context) -> None:
    """On one side and on both, on some ranks and on all, of one turn and of several: a rank's own
    block goes straight from one side to the other, or through a slot."""
    arrays = Arrays(g, 3 * SIZE * (3 * LONG + 4096))
    mixed = SHAPES[0] if RANK == SIZE - 1 else SHAPES[1]
    n = LONG // 8 + 7
    cases = [
        Case(ALLTOALL, n, steps=(1, 2) if RANK == 0 else (1, 1)),
        Case(ALLTOALL, 5 * LONG // 16 + 1, steps=(2, 3), shape=SHAPES[0]),
        Case(ALLGATHER, n, steps=(2, 2), shape=mixed),
        Case(ALLTOALL, LONG + 29, 3, steps=(2, 1 if RANK == 0 else 2), skews=(3, RANK)),
        Case(ALLTOALL, n, in_place=True, steps=(1, 2)),
    ]
    if every_shape():
        cases += [
            Case(ALLGATHER, n, in_place=True, steps=(1, 3 if RANK == 0 else 1), shape=mixed),
            Case(ALLTOALL, 5 * LONG // 16 + 1, steps=(3, 1), shape=SHAPES[1]),
            Case(ALLTOALL, 5 * LONG // 16 + 1, steps=(1, 3), shape=SHAPES[4]),
            Case(ALLTOALL, 5 * LONG // 8, 2, steps=(2, 2), skews=(4, 8), shape=SHAPES[5]),
        ]
    for i, case in enumerate(cases):
        straight = carry_out(g, arrays, case, 3000 + SIZE * i)
        assert not straight or SIZE == 1, case


def short_ones(g: gmpi.Context) -> None:
    """They take rounds."""
    arrays = Arrays(g, 3 * SIZE * (LONG + 4096))
    for i, count in enumerate((0, 1, 300, LONG // 8)):
        for call in CALLS:
            assert carry_out(g, arrays, Case(call, count), 3100 + 10 * i + call)
    for call in (ALLGATHER, ALLTOALL):
        case = Case(call, LONG // 8, steps=(3 if RANK == 0 else 1, 2))
        assert carry_out(g, arrays, case, 3200 + call)


def random_calls(g: gmpi.Context) -> None:
    """Each rank with memory, alignment and shape of its own."""
    arrays = Arrays(g, 2 * SIZE * (3 * LONG + 4096))
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
        if call != ALLREDUCE and size in (1, 4, 8):
            case = case._replace(steps=(int(own.integers(1, 3)), int(own.integers(1, 3))))
        carry_out(g, arrays, case, 4000 + SIZE * i)
    g.unregister(arrays.registered)


SCENARIOS = [
    straight_between_arrays, through_pipelines, datatypes_through_pipelines, short_ones,
    random_calls,
]  # fmt: skip
