"""Random epochs of one-sided calls, each compared with NumPy (``onesided.py``)."""

from __future__ import annotations

import numpy as np
from common import RANK, SIZE, barrier, every_shape, same
from numba import cuda

import gmpi
from device_lib.direct import epochs
from device_lib.platform.primitives import SIMULATOR

if SIMULATOR:  # a thread that need not wait in a flush goes on at once, before any other one runs
    epochs.spin = lambda: None

PUT, GET, ACCUMULATE, GET_ACCUMULATE, FETCH, SWAP, RPUT, RGET, FENCE = range(9)
RACCUMULATE, RGET_ACCUMULATE, FLUSH_LOCAL, FLUSH_LOCAL_ALL = range(9, 13)
WINDOW = 1536  # bytes of a rank's window
HALF = WINDOW // 2  # for Put and Get; then for updates
UNITS = (1, 4, 2, 8) * 3  # of displacements, by rank


def interpret(suffix: str):
    """A kernel that carries out a script, by the calls of one scope."""
    put, get, accumulate, get_accumulate, fetch, swap, rput, rget, wait, fence = (
        getattr(gmpi, f"GMPI_{name}{suffix}")
        for name in (
            "Put", "Get", "Accumulate", "Get_accumulate", "Fetch_and_op", "Compare_and_swap",
            "Rput", "Rget", "Wait", "Win_fence",
        )
    )  # fmt: skip
    raccumulate, rget_accumulate, flush_local, flush_local_all = (
        getattr(gmpi, f"GMPI_{name}{suffix}")
        for name in ("Raccumulate", "Rget_accumulate", "Win_flush_local", "Win_flush_local_all")
    )

    @cuda.jit
    def kernel(ctx, win, script, data, results, errors):
        for i in range(script.shape[0]):
            kind, at, count, kind_of, target, disp, op, back = script[i]
            e = 0
            if kind == PUT:
                e = put(ctx, data[at:], count, kind_of, target, disp, count, kind_of, win)
            elif kind == GET:
                e = get(ctx, results[at:], count, kind_of, target, disp, count, kind_of, win)
            elif kind == ACCUMULATE:
                e = accumulate(
                    ctx, data[at:], count, kind_of, target, disp, count, kind_of, op, win
                )
            elif kind == GET_ACCUMULATE:
                e = get_accumulate(
                    ctx, data[at:], count, kind_of, results[back:], count, kind_of, target, disp,
                    count, kind_of, op, win,
                )  # fmt: skip
            elif kind == FETCH:
                e = fetch(ctx, data[at:], results[back:], kind_of, target, disp, op, win)
            elif kind == SWAP:
                e = swap(ctx, data[at:], data[at + 8 :], results[back:], kind_of, target, disp, win)
            elif kind == RPUT:
                r = rput(ctx, data[at:], count, kind_of, target, disp, count, kind_of, win)
                e = wait(ctx, r).error
            elif kind == RGET:
                r = rget(ctx, results[at:], count, kind_of, target, disp, count, kind_of, win)
                e = wait(ctx, r).error
            elif kind == RACCUMULATE:
                r = raccumulate(
                    ctx, data[at:], count, kind_of, target, disp, count, kind_of, op, win
                )
                e = wait(ctx, r).error
            elif kind == RGET_ACCUMULATE:
                r = rget_accumulate(
                    ctx, data[at:], count, kind_of, results[back:], count, kind_of, target, disp,
                    count, kind_of, op, win,
                )  # fmt: skip
                e = wait(ctx, r).error
            elif kind == FLUSH_LOCAL:
                e = flush_local(ctx, target, win)
            elif kind == FLUSH_LOCAL_ALL:
                e = flush_local_all(ctx, win)
            else:
                e = fence(ctx, op, win)
            if kind >= FLUSH_LOCAL:
                # The buffer of the call before may be changed, from behind: by other threads.
                for k in range(cuda.threadIdx.x, count, cuda.blockDim.x):
                    data[at + count - 1 - k] = 255
            if cuda.threadIdx.x == 0:
                errors[i] = e

    return kernel


KERNELS = {"block": interpret(""), "warp": interpret("_warp")}

# --- random epochs --------------------------------------------------------------------------------

INTEGERS = [f"{sign}INT{bits}_T" for sign in ("", "U") for bits in (8, 16, 32, 64)]
TYPES = [*INTEGERS, "FLOAT", "DOUBLE", "BYTE", "C_BOOL"]
DTYPES = {name: dtype for name, _, dtype in gmpi.contract.constants.DATATYPES}
ARITHMETIC = ["SUM", "PROD", "MIN", "MAX"]
LOGICAL = ["LAND", "LOR", "LXOR"]
BITWISE = ["BAND", "BOR", "BXOR"]


def combine(op: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What elements become, in the order of MPI: the target's, then the origin's."""
    with np.errstate(all="ignore"):
        logical = {"LAND": np.logical_and, "LOR": np.logical_or, "LXOR": np.logical_xor}
        if op in logical:
            return logical[op](a != 0, b != 0).astype(a.dtype)
        if op == "NO_OP":
            return a
        if op == "REPLACE":
            return b
        functions = {
            "SUM": np.add, "PROD": np.multiply, "MIN": np.minimum, "MAX": np.maximum,
            "BAND": np.bitwise_and, "BOR": np.bitwise_or, "BXOR": np.bitwise_xor,
        }  # fmt: skip
        return functions[op](a, b).astype(a.dtype)


def operations_of(name: str) -> list[str]:
    if name == "BYTE":
        return [*BITWISE, "REPLACE"]
    if name == "C_BOOL":
        return [*LOGICAL, "REPLACE"]
    if name in INTEGERS:
        return [*ARITHMETIC, *LOGICAL, *BITWISE, "REPLACE"]
    return [*ARITHMETIC, "REPLACE"]


class Program:
    """Scripts of all ranks, and what becomes of their windows: the same on each rank."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.windows = self.rng.integers(0, 256, (SIZE, WINDOW), np.uint8)
        self.first = self.windows.copy()
        self.data = np.zeros((SIZE, 16384), np.uint8)
        self.results = np.zeros((SIZE, 16384), np.uint8)
        self.used = [0] * SIZE  # of data
        self.back = [0] * SIZE  # of results
        self.scripts: list[list[tuple[int, ...]]] = [[] for _ in range(SIZE)]
        self.fence(gmpi.MODE_NOPRECEDE)
        for _ in range(3):
            self.put()
            self.fence(0)
            self.get()
            self.fence(0)
            self.accumulate()
            self.fence(0)
            self.fetch()
            self.fence(0)
        for script in self.scripts:
            script[-1] = (*script[-1][:6], gmpi.MODE_NOSUCCEED, 0)

    def fence(self, assertion: int) -> None:
        for script in self.scripts:
            script.append((FENCE, 0, 0, 0, 0, 0, assertion, 0))

    def elements(self, rank: int, values: np.ndarray) -> int:
        """Puts elements into a rank's data, anywhere that fits them: where."""
        at = (self.used[rank] + 7) // 8 * 8
        raw = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
        self.data[rank, at : at + raw.size] = raw
        self.used[rank] = at + raw.size
        return at

    def room(self, rank: int, nbytes: int) -> int:
        at = (self.back[rank] + 7) // 8 * 8
        self.back[rank] = at + nbytes
        return at

    def values(self, name: str, count: int) -> np.ndarray:
        dtype = DTYPES[name]
        if dtype.kind == "f":
            return self.rng.integers(-8, 9, count).astype(dtype)
        if dtype.kind == "b":
            return self.rng.integers(0, 2, count).astype(dtype)
        raw = self.rng.integers(0, 256, count * dtype.itemsize, np.uint8)
        return raw.view(dtype)

    def stretch(self, low: int, high: int, step: int) -> tuple[int, int]:
        """A piece of low..high whose ends are multiples of ``step``."""
        a, b = sorted(self.rng.integers(low // step, high // step + 1, 2) * step)
        return int(a), int(b - a)

    def put(self) -> None:
        """Every rank stores to a part of each window that is its own."""
        for origin in range(SIZE):
            for target in range(SIZE):
                unit = UNITS[target]
                share = HALF // SIZE // 64 * 64
                name = str(self.rng.choice(TYPES))
                size = DTYPES[name].itemsize
                low, nbytes = self.stretch(origin * share, (origin + 1) * share, max(unit, size))
                values = self.values(name, nbytes // size)
                at = self.elements(origin, values)
                self.windows[target, low : low + nbytes] = values.view(np.uint8)
                kind = PUT if self.rng.random() < 0.7 else RPUT
                self.scripts[origin].append(
                    (kind, at, len(values), getattr(gmpi, name), target, low // unit, 0, 0)
                )
                self.flush_locally(origin, at, nbytes, target)

    def flush_locally(self, origin: int, at: int, nbytes: int, target: int) -> None:
        """Sometimes: the kernel then overwrites the buffer."""
        if self.rng.random() < 0.4:
            kind = int(self.rng.choice([FLUSH_LOCAL, FLUSH_LOCAL_ALL]))
            self.scripts[origin].append((kind, at, nbytes, 0, target, 0, 0, 0))

    def get(self) -> None:
        for origin in range(SIZE):
            for target in self.rng.integers(0, SIZE, 2):
                low, nbytes = self.stretch(0, WINDOW, UNITS[target])
                back = self.room(origin, nbytes) + int(self.rng.integers(0, 3))
                self.back[origin] = back + nbytes
                self.results[origin, back : back + nbytes] = self.windows[
                    target, low : low + nbytes
                ]
                kind = GET if self.rng.random() < 0.7 else RGET
                disp = low // UNITS[target]
                self.scripts[origin].append(
                    (kind, back, nbytes, gmpi.BYTE, int(target), disp, 0, 0)
                )

    def accumulate(self) -> None:
        """All ranks update the same elements of one type, with one operation."""
        name = str(self.rng.choice(TYPES))
        op = str(self.rng.choice(operations_of(name)))
        dtype = DTYPES[name]
        shared = op != "REPLACE"
        for target in range(SIZE):
            view = self.windows[target, HALF:].view(dtype)
            view[:] = 0  # of floating point all sums are exact
            self.scripts[target].append(self._clear(target))
        self.fence(0)
        for target in range(SIZE):
            view = self.windows[target, HALF:].view(dtype)
            for origin in range(SIZE):
                share = len(view) // SIZE
                begin, room = (0, len(view)) if shared else (origin * share, share)
                step = max(UNITS[target] // dtype.itemsize, 1)
                low, count = self.stretch(begin, begin + room, step)
                low = -(-low // step) * step
                count = max(min(count, begin + room - low), 0)
                values = self.values(name, count)
                at = self.elements(origin, values)
                view[low : low + count] = combine(op, view[low : low + count], values)
                disp = (HALF + low * dtype.itemsize) // UNITS[target]
                kind = int(self.rng.choice([ACCUMULATE, RACCUMULATE]))
                self.scripts[origin].append(
                    (kind, at, count, getattr(gmpi, name), target, disp, getattr(gmpi, op), 0)
                )
                self.flush_locally(origin, at, count * dtype.itemsize, target)

    def _clear(self, rank: int) -> tuple[int, ...]:
        """Stores zeros to a rank's own window."""
        at = self.elements(rank, np.zeros(HALF, np.uint8))
        return PUT, at, HALF, gmpi.BYTE, rank, HALF // UNITS[rank], 0, 0

    def fetch(self) -> None:
        """Each rank updates elements that no other one does: what it fetches is known."""
        for origin in range(SIZE):
            for _ in range(3):
                target = int(self.rng.integers(0, SIZE))
                name = str(self.rng.choice(TYPES))
                dtype, handle = DTYPES[name], getattr(gmpi, name)
                share = HALF // SIZE // 64 * 64
                low, nbytes = self.stretch(HALF + origin * share, HALF + (origin + 1) * share, 8)
                view = self.windows[target, low : low + nbytes].view(dtype)
                if dtype.kind in "fb":  # no NaN, no bool but 0 and 1
                    continue
                kind = int(self.rng.choice([GET_ACCUMULATE, RGET_ACCUMULATE, FETCH, SWAP]))
                count = len(view) if kind in (GET_ACCUMULATE, RGET_ACCUMULATE) else 1
                if nbytes == 0:
                    continue
                op = str(self.rng.choice([*operations_of(name), "NO_OP"]))
                values = self.values(name, count)
                at = self.elements(origin, values)
                if kind == SWAP:
                    at = self.elements(origin, np.zeros(16, np.uint8))
                    fits = bool(self.rng.random() < 0.5)
                    values = self.values(name, 1)
                    expected = view[:1] if fits else self.values(name, 1)
                    for place, value in ((at, values), (at + 8, expected)):
                        self.data[origin, place : place + dtype.itemsize] = value.view(np.uint8)
                    op = "REPLACE" if (expected == view[:1]).all() else "NO_OP"
                back = self.room(origin, count * dtype.itemsize)
                self.results[origin, back : back + count * dtype.itemsize] = view[:count].view(
                    np.uint8
                )
                view[:count] = combine(op, view[:count], values)
                self.scripts[origin].append(
                    (kind, at, count, handle, target, low // UNITS[target], getattr(gmpi, op),
                     back)
                )  # fmt: skip


def random_epochs(g: gmpi.Context) -> None:
    """Random programs, in blocks and warps."""
    memory = g.zeros(WINDOW, np.uint8)
    win = g.win(memory, disp_unit=UNITS[RANK])
    seeds = 12 if every_shape() else 4
    for seed in range(seeds):
        program = Program(1000 * SIZE + seed)
        memory.copy_to_device(program.first[RANK])
        script = np.array(program.scripts[RANK], np.int64)
        errors = cuda.to_device(np.full(len(script), -1, np.int64))
        results = cuda.to_device(np.zeros(16384, np.uint8))
        data = cuda.to_device(program.data[RANK])
        threads = (32, 48, 1, 32)[seed % 4]
        scope = "warp" if seed % 4 == 3 else "block"
        barrier()
        KERNELS[scope][1, threads](g.device, win, cuda.to_device(script), data, results, errors)
        g.synchronize()
        same(errors, np.zeros(len(script)), f"seed {seed}: error classes")
        same(memory, program.windows[RANK], f"seed {seed}: window")
        same(results, program.results[RANK], f"seed {seed}: results")
    g.win_free(win)
    g.unregister(memory)
