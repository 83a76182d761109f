"""The device library's PTX as object code: assembled once, linked into every kernel that calls it.

A linker that is given PTX assembles it anew for each kernel, which takes seconds. It also has one
limit of registers for all that it links, the kernel's own code included. Objects that were
assembled before have none of this: each *build* of the library has its own limit, and a kernel
needs as many registers as its own code or the build takes, whichever is more.
"""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

from device_lib.platform.yields import without_yields

#: Most registers a thread of each build of the library, 255 being the hardware's limit. A
#: multiprocessor has 65536: enough for 256, 512 and 1024 threads a block.
LIMITS = (255, 128, 64)
#: And of one for kernels that hardly call GMPI and want more threads than that: 1536 of a
#: multiprocessor. It is made when a launch asks for it.
LEAN = 40

_HOW_TO_GET_IT = 'pip install ".[cu13]" brings it (nvidia-cuda-nvcc), and so does the CUDA toolkit'


class AssemblerError(RuntimeError):
    """CUDA's assembler is missing, or refuses what Numba has compiled."""


def architecture(cc: tuple[int, int]) -> str:
    """The target for which numba-cuda links kernels on a device of compute capability ``cc``."""
    return f"sm_{cc[0]}{cc[1]}{'a' if cc >= (9, 0) else ''}"


@functools.cache
def ptxas() -> str:
    """Path of CUDA's assembler: of the wheel that belongs to Numba's compiler, else the toolkit's.

    Raises:
        AssemblerError: there is none.
    """
    from cuda import pathfinder

    found = pathfinder.find_nvidia_binary_utility("ptxas")
    if found is None:
        raise AssemblerError(
            f"cannot compile the device library: ptxas not found; {_HOW_TO_GET_IT}"
        )
    return str(found)


@functools.cache
def version() -> str:
    """What the assembler says of itself: part of the key of every object that is kept."""
    shown = subprocess.run([ptxas(), "--version"], capture_output=True, text=True, check=False)
    return shown.stdout.strip()


def assemble(name: str, ptx: str, cc: tuple[int, int], limit: int) -> bytes:
    """Relocatable object code of some PTX, with at most ``limit`` registers a thread.

    Raises:
        AssemblerError: ptxas is missing, or does not accept the PTX.
    """
    options = ["-c", f"-arch={architecture(cc)}"]
    if limit < max(LIMITS):
        options.append(f"--maxrregcount={limit}")
    with tempfile.TemporaryDirectory(prefix="gmpi-") as directory:
        source, made = Path(directory, f"{name}.ptx"), Path(directory, f"{name}.cubin")
        source.write_text(ptx)
        command = [ptxas(), *options, str(source), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise AssemblerError(
                f"{ptxas()} does not accept {name}, which Numba has compiled for "
                f"{architecture(cc)}: {done.stderr.strip()}; the assembler must be as new as the "
                f"compiler: {_HOW_TO_GET_IT}"
            )
        return without_yields(made.read_bytes(), cc)
