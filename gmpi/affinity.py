"""Which GPU a rank takes, where its proxy runs, and whether there are cores enough for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from mpi4py import MPI

from device_lib.platform.primitives import SIMULATOR
from gmpi.config import parse_cores
from gmpi.errors import ContextError
from gmpi.memory.node import of_this_node


def require_gpu() -> None:
    """Raises ContextError where no kernel can run on a GPU."""
    from numba import cuda

    if not cuda.is_available():
        raise ContextError(
            "no usable GPU: run with NUMBA_ENABLE_CUDASIM=1 for the simulator, or open the context "
            "with gpu=False if this rank runs no kernel; gmpi info says what is missing"
        )


class OnNode(NamedTuple):
    """The ranks of a communicator that are on this node.

    Attributes:
        rank: which of them this process is.
        processes: process id of each, in their order.
    """

    rank: int
    processes: tuple[int, ...]


def on_node(comm: MPI.Comm) -> OnNode:
    """Who is on this node; collective."""
    local = of_this_node(comm)
    found = OnNode(local.Get_rank(), tuple(local.allgather(os.getpid())))
    local.Free()
    return found


def select_gpu(comm: MPI.Comm | None = None) -> int | None:
    """Makes one GPU the current one: those of a node are dealt out to its ranks in turn.

    Call it before the first use of CUDA: arrays and kernels belong to the GPU that was current. A
    context that is opened before any use of CUDA does the same. Collective over ``comm``. Where the
    launcher shows each rank one GPU only, that is the one.

    Args:
        comm: the ranks among which GPUs are dealt out; default MPI.COMM_WORLD.

    Returns:
        Its number; None in the simulator, where there is nothing to select.

    Raises:
        ContextError: there is no GPU that can be used.
    """
    rank = on_node(MPI.COMM_WORLD if comm is None else comm).rank
    if SIMULATOR:
        return None
    require_gpu()
    return _select(rank)


def _select(rank: int) -> int:
    from numba import cuda

    number = rank % len(cuda.gpus)
    cuda.select_device(number)
    return number


def take_gpu(rank: int) -> None:
    """Sees to it that a GPU is current in this thread: the user's, or else that of the rank.

    The user has chosen one where something has used CUDA before: where a CUDA context is current in
    this thread, by Numba, CuPy or any other library, or where Numba has used exactly one GPU in
    another thread. What a launcher shows to each rank is a choice among fewer.

    Args:
        rank: of this process among those of its node.

    Raises:
        ContextError: there is no GPU that can be used.
    """
    require_gpu()
    from numba import cuda

    if not _has_current_context():
        used = _used_by_numba()
        if len(used) == 1:
            cuda.select_device(used[0])
        else:
            _select(rank)
    cuda.current_context()  # Numba's view of it; raises where it is none that Numba can work with


def _has_current_context() -> bool:
    """Whether this thread has a CUDA context, whoever made it."""
    from cuda.bindings import driver

    error, context = driver.cuCtxGetCurrent()
    return int(error) == 0 and int(context) != 0


def _used_by_numba() -> list[int]:
    """The GPUs that Numba has used in this process, in any thread."""
    from numba import cuda

    return [gpu.id for gpu in cuda.gpus if gpu.primary_context is not None]


def crowded(ranks: int) -> bool:
    """Whether so many ranks of a node have fewer cores than threads that spin (two each)."""
    return len(os.sched_getaffinity(0)) < 2 * ranks


def pci_folder(device: Any) -> Path:
    """What the system says about a Numba device; may not exist (containers, other systems)."""
    name = f"{device.PCI_DOMAIN_ID:04x}:{device.PCI_BUS_ID:02x}:{device.PCI_DEVICE_ID:02x}.0"
    return Path("/sys/bus/pci/devices", name)


def cores_near(device: Any) -> frozenset[int]:
    """Cores of the NUMA node that a GPU hangs on; empty when the system does not say."""
    try:
        return parse_cores((pci_folder(device) / "local_cpulist").read_text().strip())
    except (OSError, ValueError, AttributeError):
        return frozenset()


def cores_near_gpu() -> frozenset[int]:
    """The same for the current GPU."""
    from numba import cuda

    return cores_near(cuda.get_current_device())


def cores(setting: str, gpu: bool) -> frozenset[int]:
    """Cores for the proxy thread; empty: wherever the process may run.

    ``gpu``: whether there is a GPU to be near to.
    """
    allowed = frozenset(os.sched_getaffinity(0))
    if setting == "any":
        return frozenset()
    if setting == "auto":
        near = cores_near_gpu() & allowed if gpu else frozenset()
        return near if near != allowed else frozenset()
    return parse_cores(setting) & allowed


def cores_text(numbers: frozenset[int]) -> str:
    """The reverse of ``parse_cores``: ``0,2-5``."""
    parts: list[str] = []
    ordered = sorted(numbers)
    begin = 0
    for i, core in enumerate(ordered):
        if i + 1 == len(ordered) or ordered[i + 1] != core + 1:
            first = ordered[begin]
            parts.append(f"{first}" if first == core else f"{first}-{core}")
            begin = i + 1
    return ",".join(parts)
