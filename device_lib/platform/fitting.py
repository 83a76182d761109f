"""The build of the library with which Numba links a kernel that it compiles.

A kernel may have a limit of registers of its own: ``@cuda.jit(max_registers=n)``, or
``launch_bounds``, from which the compiler derives one. The linker refuses a function that takes
more. So such a kernel gets a leaner build, and a launch may take one that is leaner still
(``gmpi/launch/builds.py``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from device_lib.platform.assembler import LEAN, LIMITS
from gmpi.errors import UsageError

REGISTERS = 65536  # of a multiprocessor
_STEP = 8  # in which a thread gets them


def most_registers(kernel: Any) -> int:
    """Registers a thread that the kernel's own limits allow."""
    most = kernel._codelibrary._max_registers or max(LIMITS)
    return int(min(most, _of_bounds(kernel)))


def _of_bounds(kernel: Any) -> int:
    """What ``launch_bounds`` leaves: threads of a block, and blocks on a multiprocessor."""
    bounds = getattr(kernel, "launch_bounds", None)
    if not bounds:
        return max(LIMITS)
    threads, blocks = (*bounds, 1)[:2] if isinstance(bounds, tuple | list) else (bounds, 1)
    return registers_left(threads, max(blocks or 1, 1))


def registers_left(threads: int, blocks: int) -> int:
    """Of a thread, where so many blocks are resident on a multiprocessor."""
    resident = -(-threads // 32) * 32 * blocks
    return int(REGISTERS // resident // _STEP * _STEP)


def allowed(most: int) -> tuple[int, ...]:
    """The builds that fit so many registers, those with the most first; the lean one if no other
    does."""
    return tuple(limit for limit in LIMITS if limit <= most) or (LEAN,)


def fit(kernel: Any, linked: Any) -> None:
    """Links the kernel with the first build that it allows.

    ``max_registers`` below what the lean build takes is raised to that.

    Raises:
        UsageError: ``launch_bounds`` leave fewer registers than that.
    """
    code = kernel._codelibrary
    ours = {file for file in code._linking_files if isinstance(file, linked)}
    if not ours:
        return
    if _of_bounds(kernel) < LEAN:
        raise UsageError(
            f"launch_bounds={kernel.launch_bounds} leave a thread {_of_bounds(kernel)} registers, "
            f"and a kernel that calls GMPI needs {LEAN}: allow fewer threads or blocks"
        )
    limit = allowed(most_registers(kernel))[0]
    if code._max_registers:
        code._max_registers = max(code._max_registers, LEAN)
    more = {file for file in ours if file.limit > limit}
    code._linking_files = code._linking_files - more | {file.with_limit(limit) for file in more}


def fitted(bind: Callable[[Any], None], linked: Any) -> Callable[[Any], None]:
    """Numba's ``_Kernel.bind``, which links; ``linked``: the class of the library's files."""

    @functools.wraps(bind)
    def bound(kernel: Any) -> None:
        fit(kernel, linked)
        bind(kernel)

    return bound
