"""Compiles the device library into the cache before a kernel needs it, by several processes, and
the engine of the proxy beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import NamedTuple

from numba import cuda

import device_lib.api.exports
import device_lib.api.exports_grid  # noqa: F401  (the same)
from device_lib.platform import assembler, front_end, library
from device_lib.platform.primitives import SIMULATOR

Capability = tuple[int, int]


class Engine(NamedTuple):
    """The compiled engine of the proxy on disk: how many functions, below which folder, and in one
    line why it is not there."""

    functions: int
    directory: str
    problem: str


def capability(text: str) -> Capability:
    """``9.0`` or ``90`` as (9, 0).

    Raises:
        ValueError: it is neither.
    """
    major, dot, minor = text.partition(".") if "." in text else (text[:-1], ".", text[-1:])
    if not (dot and major.isdecimal() and minor.isdecimal() and len(minor) == 1):
        raise ValueError(f"a compute capability is two numbers such as 9.0, got {text!r}")
    return int(major), int(minor)


def capabilities_of_gpus() -> list[Capability]:
    """Of the GPUs that this process may see; none in the simulator, or where no driver is.

    A process of its own asks them: no driver can be used in what is forked from one that has.
    """
    with ProcessPoolExecutor(1, get_context("fork")) as pool:
        return pool.submit(_capabilities).result()


def _capabilities() -> list[Capability]:
    if SIMULATOR or not cuda.is_available():
        return []
    found = [tuple(gpu.compute_capability) for gpu in cuda.gpus]
    return sorted({(int(major), int(minor)) for major, minor in found})


def compile_without_gpu(cc: Capability) -> None:
    """From now on Numba compiles for ``cc`` without asking for a device, in this process. All
    functions of the library are known."""
    front_end.compile_without_gpu(cc)


def _compile(name: str, cc: Capability) -> str:
    for limit in assembler.LIMITS:
        library.compile_object(name, cc, limit)
    return name


def why_nothing_compiles() -> str:
    """Which of CUDA's compilers is missing, and how to get it; empty: none."""
    try:
        from cuda.bindings import nvvm

        nvvm.version()
        assembler.ptxas()
    except Exception as exc:
        reason = str(exc).partition("\n")[0]
        return f'CUDA\'s compilers are not installed: pip install ".[cu13]" ({reason})'
    return ""


def check(cc: Capability) -> None:
    """For one that the compiler does not know, Numba takes the next one below, if there is any.

    Raises:
        ValueError: there is none.
    """
    known = front_end.known_capabilities()
    if cc < known[0]:
        least, *_ = texts = [f"{major}.{minor}" for major, minor in known]
        raise ValueError(
            f"a compute capability must be at least {least}, got {cc[0]}.{cc[1]}; "
            f"CUDA's compiler knows {', '.join(texts)}"
        )


def names() -> list[str]:
    """The functions of the library."""
    return list(library.functions)


def compile_engine() -> Engine:
    """Compiles the engine into Numba's cache, as the first context of a machine would otherwise:
    for this processor and this MPI library."""
    import host_proxy.proxy  # noqa: F401  (with all that is part of it)
    from host_proxy.platform.engine_cache import NOWHERE
    from host_proxy.platform.native import compile_entries, directory_of_entries

    directory = directory_of_entries()
    if not directory:
        return Engine(0, "", NOWHERE)
    return Engine(compile_entries(), directory, "")


def fill(cc: Capability, engine: bool) -> Iterator[str | Engine]:
    """Compiles what the cache lacks of the library for ``cc``: names of its functions, as they are
    done. Needs no GPU, but CUDA's compiler, and not the simulator.

    By forked processes, which have nothing to import and use no device.

    Args:
        engine: one of them compiles the engine of the proxy; that comes last.

    Raises:
        Exception: what the first one raised that does not compile; the rest is not begun then.
    """
    workers = len(os.sched_getaffinity(0))
    prepare = compile_without_gpu, (cc,)
    with ProcessPoolExecutor(workers, get_context("fork"), *prepare) as pool:
        # It takes as long as a process's share of the library.
        made_engine = [pool.submit(compile_engine)] if engine else []
        # The longest take a tenth of the time of all: which comes first hardly matters.
        waiting = [pool.submit(_compile, name, cc) for name in names()]
        try:
            for made in as_completed(waiting):
                yield made.result()
            for last in made_engine:
                yield last.result()
        except BaseException:  # one does not compile, or Ctrl-C: nobody waits for the others
            pool.shutdown(cancel_futures=True)
            raise
