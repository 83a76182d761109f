"""Where the proxy thread runs, and whether there are cores enough for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from mpi4py import MPI

from gmpi.config import parse_cores


def crowded(comm: MPI.Comm) -> bool:
    """Whether this node has fewer cores for us than threads that spin (two a rank); collective."""
    local = comm.Split_type(MPI.COMM_TYPE_SHARED)
    ranks = local.Get_size()
    local.Free()
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
