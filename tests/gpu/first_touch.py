"""Which GPU a context takes, where it or something else is the first to touch CUDA.

    python3 tests/gpu/first_touch.py [CASE...]

Each case is a job of two ranks of its own, with one GPU and, where there are two, with two. Prints
a line for each; exit 1 if any has failed. Two ranks on one GPU are quick under MPS only
(``setup.sh``).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
LIMIT_S = 120
RANKS = 2

# --- in a rank ------------------------------------------------------------------------------------


def shown() -> list[str]:
    return os.environ["FIRST_TOUCH_GPUS"].split(",")


def local_rank() -> int:
    names = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_RANK", "PMIX_RANK")
    return int(next(os.environ[name] for name in names if name in os.environ))


class Rank:
    """What the cases share. CUDA is not touched before a case does."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self.world = MPI.COMM_WORLD
        self.rank, self.size = self.world.rank, self.world.size
        self.gpus = len(shown())
        self.mine = self.rank % self.gpus  # what select_gpu would take
        self.last = self.gpus - 1

    def exchange(self, g: Any) -> None:
        """A message to the other rank and one from it."""
        import numpy as np
        from numba import cuda

        send = cuda.to_device(np.full(1000, self.rank, np.float32))
        recv = cuda.to_device(np.full(1000, -1, np.float32))
        kernel = exchange_kernel()
        kernel[1, 128](g.device, send, recv, 1000, 1 - self.rank)
        g.synchronize()
        assert (recv.copy_to_host() == 1 - self.rank).all()

    def works(self, expected: int, **settings: Any) -> None:
        """A context opens, on that GPU, and its kernels communicate."""
        from numba import cuda

        import gmpi

        with gmpi.Context(self.world, **settings) as g:
            found = cuda.get_current_device().id
            assert found == expected, f"rank {self.rank} is on GPU {found}, expected {expected}"
            self.exchange(g)


@cache
def exchange_kernel() -> Any:
    from numba import cuda

    import gmpi
    from gmpi import GMPI_Irecv, GMPI_Isend, GMPI_Wait

    @cuda.jit
    def exchange(ctx, send, recv, n, peer):  # type: ignore[no-untyped-def]
        r = GMPI_Irecv(ctx, recv, n, gmpi.FLOAT, peer, 7, gmpi.COMM_WORLD)
        s = GMPI_Isend(ctx, send, n, gmpi.FLOAT, peer, 7, gmpi.COMM_WORLD)
        GMPI_Wait(ctx, s)
        GMPI_Wait(ctx, r)

    return exchange


def in_thread(work: Callable[[], Any]) -> None:
    failures: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as exc:
            failures.append(exc)

    thread = threading.Thread(target=guarded)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


def context_first(r: Rank) -> None:
    r.works(r.mine)


def select_gpu_first(r: Rank) -> None:
    import gmpi

    assert gmpi.select_gpu(r.world) == r.mine
    r.works(r.mine)


def arrays_first(r: Rank) -> None:
    import numpy as np
    from numba import cuda

    array = cuda.to_device(np.arange(4))
    r.works(0)
    assert array.copy_to_host()[3] == 3


def chosen_with_numba(r: Rank) -> None:
    from numba import cuda

    cuda.select_device(r.last)
    r.works(r.last)


def chosen_with_cupy(r: Rank) -> None:
    import cupy

    cupy.cuda.Device(r.last).use()
    cupy.zeros(4)
    r.works(r.last)


def chosen_in_another_thread(r: Rank) -> None:
    import numpy as np
    from numba import cuda

    arrays = []

    def choose() -> None:
        cuda.select_device(r.last)
        arrays.append(cuda.to_device(np.arange(4)))

    in_thread(choose)
    r.works(r.last)


def opened_in_another_thread(r: Rank) -> None:
    in_thread(lambda: r.works(r.mine))


def one_shown_to_each(r: Rank) -> None:
    """``main`` has set CUDA_VISIBLE_DEVICES."""
    from numba import cuda

    r.works(0)
    names = r.world.allgather(str(cuda.get_current_device().uuid))
    assert len(set(names)) == min(RANKS, r.gpus), names


def two_contexts(r: Rank) -> None:
    r.works(r.mine)
    r.works(r.mine)


def without_gpu_staging(r: Rank) -> None:
    r.works(r.mine, gpu_staging=False)


def a_rank_without_kernels(r: Rank) -> None:
    import numpy as np
    from cuda.bindings import driver
    from numba import cuda

    import gmpi

    host_only = r.rank == 1
    with gmpi.Context(r.world, gpu=not host_only) as g:
        if host_only:
            data = np.full(1000, 1, np.float32)
            room = np.empty(1000, np.float32)
            request = g.host.Irecv(room, 0, 7)
            g.host.Send(data, 0, 7)
            request.Wait()
            assert (room == 0).all()
            error, context = driver.cuCtxGetCurrent()
            assert int(error) != 0 or int(context) == 0, "a rank without kernels has touched CUDA"
        else:
            assert cuda.get_current_device().id == r.mine
            r.exchange(g)


def memory_is_lacking(r: Rank) -> None:
    """Only then are sizes blamed; afterwards a context opens."""
    import numpy as np
    from numba import cuda

    import gmpi
    from device_lib.platform.freeing_cuda import free_dropped

    gmpi.select_gpu(r.world)
    context = cuda.current_context()
    r.world.Barrier()
    hog: list[Any] = []
    size = int(context.get_memory_info()[0]) if r.rank == 0 else 0
    while size >= 8 << 20:
        try:
            hog.append(cuda.device_array(size, np.uint8))
        except Exception:
            size //= 2
    r.world.Barrier()
    try:
        gmpi.Context(r.world)
        raise AssertionError("a context has opened without memory")
    except gmpi.ContextError as exc:
        text = str(exc)
    assert r.rank or ("OUT_OF_MEMORY" in text and "lower request_slots" in text), text
    hog.clear()
    free_dropped()
    r.world.Barrier()
    r.works(r.mine)


def small_grids(r: Rank) -> None:
    """Numba's warning: not for kernels with a context, still for others."""
    import numpy as np
    from numba import cuda

    import gmpi

    @cuda.jit
    def plain(x):  # type: ignore[no-untyped-def]
        x[0] = 1

    with gmpi.Context(r.world) as g:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            r.exchange(g)
        mine = [str(w.message) for w in caught if "Grid size" in str(w.message)]
        assert not mine, mine
        array = cuda.to_device(np.zeros(4))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            plain[1, 32](array)
            plain[1, 32](array)
        theirs = [w for w in caught if "Grid size 1" in str(w.message)]
        assert len(theirs) == 1, [str(w.message) for w in caught]
        cuda.synchronize()


def largest_grids(r: Rank) -> None:
    """What max_blocks says is what the launch admits, with dynamic shared memory too."""
    import numpy as np
    from numba import cuda

    import gmpi

    @cuda.jit
    def marks(ctx, out):  # type: ignore[no-untyped-def]
        block = cuda.blockIdx.x
        if cuda.threadIdx.x == 0 and cuda.threadIdx.y == 0:
            out[block] = 1

    with gmpi.Context(r.world) as g:
        out = cuda.to_device(np.zeros(1 << 16, np.int8))
        args = (g.device, out)
        flat = g.max_blocks(marks, 128, args=args)
        assert g.max_blocks(marks, (32, 4)) == flat
        least = g.max_blocks(marks, (32, 4), shared_bytes=40_000)
        assert 0 < least < flat, (least, flat)
        for threads, shared, most in ((128, 0, flat), ((32, 4), 40_000, least)):
            out.copy_to_device(np.zeros(1 << 16, np.int8))
            cuda.synchronize()
            marks[most, threads, 0, shared](*args)
            g.synchronize()
            assert int(out.copy_to_host().sum()) == most
            try:
                marks[most + 1, threads, 0, shared](*args)
                raise AssertionError(f"{most + 1} blocks were not refused")
            except gmpi.GridError:
                pass


CASES: dict[str, Callable[[Rank], None]] = {
    f.__name__: f
    for f in (
        context_first, select_gpu_first, arrays_first, chosen_with_numba, chosen_with_cupy,
        chosen_in_another_thread, opened_in_another_thread, one_shown_to_each, two_contexts,
        without_gpu_staging, a_rank_without_kernels, memory_is_lacking, small_grids, largest_grids,
    )
}  # fmt: skip


def rank_main(case: str) -> None:
    if case == "one_shown_to_each":
        os.environ["CUDA_VISIBLE_DEVICES"] = shown()[local_rank() % len(shown())]
    try:
        CASES[case](Rank())
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # the launcher ends the other rank
    print("all passed", flush=True)


# --- starting them --------------------------------------------------------------------------------


def readme(with_select_gpu: bool) -> str:
    """The Python of README.md as one program."""
    text = (ROOT / "README.md").read_text()
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S))
    lines = code.splitlines()
    kept = [line for line in lines if with_select_gpu or "select_gpu" not in line]
    assert with_select_gpu or len(kept) < len(lines)
    return "\n".join([*kept, 'print("all passed", flush=True)', ""])


def run(name: str, gpus: list[str], program: list[str]) -> bool:
    import launcher

    environment = {
        "CUDA_VISIBLE_DEVICES": ",".join(gpus),
        "FIRST_TOUCH_GPUS": ",".join(gpus),
        "NUMBA_ENABLE_CUDASIM": "0",
    }
    began = time.monotonic()
    with launcher.Job(launcher.mpi_command(RANKS, *program), LIMIT_S, environment) as job:
        status = job.wait(LIMIT_S)
    text = job.text()
    passed = status == 0 and text.count("all passed") == RANKS
    skipped = "No module named 'cupy'" in text
    word = "ok" if passed else "no CuPy" if skipped else "FAILED"
    seconds = time.monotonic() - began
    print(
        f"{word:8} {len(gpus)} GPU{'s'[: len(gpus) - 1]:1} {name:32} {seconds:5.1f} s", flush=True
    )
    if word == "FAILED":
        why = f"not done within {LIMIT_S} s" if status is None else f"exit {status}"
        print(f"{why}\n{text}\n", flush=True)
    return word != "FAILED"


def visible() -> list[str]:
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen:
        return chosen.split(",")
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    return [str(i) for i in range(len(done.stdout.strip().splitlines()))]


def main(wanted: list[str]) -> int:
    everything = visible()
    failed = 0
    # No case spends its time on it.
    subprocess.run(
        [sys.executable, "-m", "gmpi", "cache", "fill"], cwd=ROOT, timeout=300, check=True
    )
    with tempfile.TemporaryDirectory() as directory:
        programs = {name: [str(Path(__file__).resolve()), "--rank", name] for name in CASES}
        for name, selects in (("readme", True), ("readme_without_select_gpu", False)):
            path = Path(directory, f"{name}.py")
            path.write_text(readme(selects))
            programs[name] = [str(path)]
        unknown = set(wanted) - set(programs)
        if unknown:
            sys.exit(f"no cases {', '.join(sorted(unknown))}; there are {', '.join(programs)}")
        for count in (1, 2):
            if len(everything) < count:
                print(f"skipped  {count} GPUs: {len(everything)} here")
                continue
            for name, program in programs.items():
                if not wanted or name in wanted:
                    failed += not run(name, everything[:count], program)
    print(f"{failed} failed" if failed else "all cases passed")
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank_main(sys.argv[2])
    else:
        sys.exit(main(sys.argv[1:]))
