"""The shared libraries that this process has really loaded, from the kernel's own list."""

from __future__ import annotations

import re
from pathlib import Path

#: Of MPI and what it talks through, of CUDA, of compilers: what a report of a problem needs.
_TELLING = re.compile(
    r"lib(mpi|mpich|pmix|prrte|open-pal|open-rte|uc[pstm]|fabric|psm2|ibverbs"
    r"|cuda|cudart|nvrtc|nvvm|nvJitLink|nvidia-ml|nvidia-ptxjitcompiler|llvmlite)\b[\w.+-]*\.so"
)


def libraries(maps: str | None = None) -> list[str]:
    """Their paths, sorted.

    Args:
        maps: what ``/proc/self/maps`` says, for tests.
    """
    if maps is None:
        try:
            maps = Path("/proc/self/maps").read_text()
        except OSError:
            return []
    paths = {line.split(maxsplit=5)[5] for line in maps.splitlines() if line.count("/") > 1}
    return sorted(path for path in paths if _TELLING.search(path))
