"""Which build of the device library a kernel is linked with: the one under which its grid fits.

The library is there in several builds (``device_lib/platform/assembler.py``): with as many
registers a thread as its functions like to have, and with fewer. A launch takes the first under
which all of its blocks are resident at once, so a block of 256 threads communicates at full speed,
and one of 1024 can be launched at all. What the kernel's own code takes stays as Numba has compiled
it, unless that is what keeps the grid from being resident: then it is held to 64 registers, too.
The *lean* build is for grids that no other one lets be resident.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from device_lib.platform.assembler import LEAN, LIMITS
from device_lib.platform.fitting import allowed, most_registers, registers_left

_MAKES = "gmpi_partitioned_make_"  # of partitioned_making.py, and of device_lib/api/persistent.py
_WITHOUT_ASKING = 48 << 10  # bytes of shared memory a block; a kernel must be allowed more


class Choice(NamedTuple):
    """A kernel linked for a launch, and what the device can hold of it.

    Attributes:
        resident: blocks of the launch's size that the device holds at once.
        registers: a thread takes.
        shared_bytes: a block takes, static and dynamic.
    """

    kernel: Any  # numba.cuda.dispatcher._Kernel, or a function of CuPy
    resident: int
    registers: int
    shared_bytes: int


def name_of(kernel: Any) -> str:
    """The kernel's name as the user wrote it."""
    function = getattr(kernel, "py_func", None)  # not where Numba has read it from its cache
    if function is not None:
        return str(function.__qualname__)
    return demangled(kernel.entry_name)


def demangled(name: str) -> str:
    """The dotted name in a mangled one; the name itself where it is not mangled."""
    parts = []
    rest = name.removeprefix("_ZN")
    while rest != name and (found := re.match(r"\d+", rest)):
        length = int(found.group())
        parts.append(rest[found.end() : found.end() + length])
        rest = rest[found.end() + length :]
    return ".".join(parts[1:] or parts) or name  # without the module


def builds(kernel: Any, lean: bool = True, held: bool = True) -> Iterator[Any]:
    """The kernel with each build that it may have, those with the most registers first.

    The kernel's own limit of registers holds for the library's functions, too.

    Args:
        lean: with the lean build, too.
        held: also those that hold the kernel's own code to the build's number, where it takes more:
            they come last.
    """
    build = None
    for limit in allowed(most_registers(kernel)):
        build = _linked_with(kernel, limit)
        yield build
    if held and build is not None and int(build.regs_per_thread) > min(LIMITS):
        yield _linked_with(kernel, min(LIMITS), held=True)
    if lean:
        yield _linked_with(kernel, LEAN, held=True)


def makes_requests(kernel: Any) -> bool:
    """Whether it calls GMPI_Psend_init, GMPI_Send_init or the like."""
    from device_lib.platform.library import Linked  # not there in the simulator

    if "_gmpi_makes_requests" not in kernel.__dict__:
        files = kernel._codelibrary._linking_files
        made = any(isinstance(f, Linked) and f.function.startswith(_MAKES) for f in files)
        kernel._gmpi_makes_requests = made
    return bool(kernel._gmpi_makes_requests)


def choose(kernel: Any, blocks: int, threads: int, dynamic: int) -> Choice:
    """The kernel with the first build under which so many blocks are resident.

    Where that is none: with the leanest under which most are. ``dynamic``: bytes of shared memory.
    """
    known = kernel.__dict__.setdefault("_gmpi_choices", {})
    key = blocks, threads, dynamic
    if key not in known:
        known[key] = _choose(kernel, *key)
    found: Choice = known[key]
    return found


def _choose(kernel: Any, blocks: int, threads: int, dynamic: int) -> Choice:
    # The lean build is not even made for a grid that it cannot let be resident: that takes seconds.
    each = -(-blocks // _multiprocessors())
    made = builds(kernel, lean=registers_left(threads, each) >= LEAN)
    return first_that_fits((_measure(build, threads, dynamic) for build in made), blocks)


def _multiprocessors() -> int:
    from numba import cuda

    return int(cuda.get_current_device().MULTIPROCESSOR_COUNT)


def first_that_fits(choices: Iterable[Choice], blocks: int) -> Choice:
    """The first under which so many blocks are resident, else the first under which most are. What
    comes after it is not asked for: it is not even linked."""
    best = None
    for choice in choices:
        if best is None or choice.resident > best.resident:
            best = choice
        if best.resident >= blocks:
            break
    assert best is not None
    return best


def must_be_allowed(static: int, dynamic: int) -> bool:
    """Whether a kernel must be let have that much dynamic shared memory; bytes of a block."""
    return static + dynamic > _WITHOUT_ASKING and dynamic > 0


def most_blocks(kernel: Any, threads: int, dynamic: int, lean: bool, held: bool = True) -> int:
    """The largest grid that is resident as a whole with some build: as of ``builds``."""
    made = builds(kernel, lean, held)
    return max(_measure(build, threads, dynamic).resident for build in made)


def _measure(build: Any, threads: int, dynamic: int) -> Choice:
    static = int(build.shared_mem_per_block)
    if must_be_allowed(static, dynamic):
        _allow_dynamic(build, dynamic)
    resident = int(build.max_cooperative_grid_blocks(threads, dynamic))
    return Choice(build, resident, int(build.regs_per_thread), static + dynamic)


def _allow_dynamic(build: Any, nbytes: int) -> None:
    """Lets it have that much dynamic shared memory, as the user may have let the kernel; Numba has
    no way. What the device cannot give is refused by the launch."""
    from cuda.bindings import driver
    from numba import cuda

    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    handle = build._codelibrary.get_cufunc().handle
    driver.cuKernelSetAttribute(attribute, nbytes, handle, cuda.get_current_device().id)


def _linked_with(kernel: Any, limit: int, held: bool = False) -> Any:
    """The kernel with the library's build of that limit; itself if it calls no function of it.

    Args:
        held: its own code, too, takes no more.
    """
    from device_lib.platform.library import Linked, assemble_all  # not there in the simulator

    files = kernel._codelibrary._linking_files
    ours = {file for file in files if isinstance(file, Linked)}
    if not ours or (not held and all(file.limit == limit for file in ours)):
        assemble_all(ours)
        return kernel
    made = kernel.__dict__.setdefault("_gmpi_builds", {})
    if (limit, held) not in made:
        others = {file.with_limit(limit) for file in ours}
        assemble_all(others)
        library = _copy(kernel._codelibrary)
        library._linking_files = files - ours | others
        # Made anew; the PTX of the kernel's own code is shared.
        library._cubin_cache, library._linkerinfo_cache, library._cufunc_cache = {}, {}, {}
        if held:
            library._max_registers = limit
        build = made[limit, held] = _copy(kernel)
        build._codelibrary = library
        build.bind()
    return made[limit, held]


def _copy(thing: Any) -> Any:
    """A shallow copy. ``copy.copy`` would serialize these objects, which have their own ways."""
    made = object.__new__(type(thing))
    made.__dict__.update(thing.__dict__)
    return made
