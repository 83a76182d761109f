"""Where the proxy thread runs, and whether there are cores enough for it."""

from __future__ import annotations

import os
from pathlib import Path

from mpi4py import MPI

from gmpi.config import parse_cores


def crowded(comm: MPI.Comm) -> bool:
    """Whether this node has fewer cores for us than threads that spin (two a rank); collective."""
    local = comm.Split_type(MPI.COMM_TYPE_SHARED)
    ranks = local.Get_size()
    local.Free()
    return len(os.sched_getaffinity(0)) < 2 * ranks


def cores_near_gpu() -> frozenset[int]:
    """Cores of the NUMA node that the current GPU hangs on; empty when the system does not say."""
    from numba import cuda

    attributes = cuda.get_current_device()
    try:
        name = (
            f"{attributes.PCI_DOMAIN_ID:04x}:{attributes.PCI_BUS_ID:02x}:"
            f"{attributes.PCI_DEVICE_ID:02x}.0"
        )
        text = Path("/sys/bus/pci/devices", name, "local_cpulist").read_text().strip()
        return parse_cores(text)
    except (OSError, ValueError, AttributeError):
        return frozenset()


def cores(setting: str, gpu: bool) -> frozenset[int]:
    """Cores for the proxy thread; empty: wherever the process may run."""
    allowed = frozenset(os.sched_getaffinity(0))
    if setting == "any":
        return frozenset()
    if setting == "auto":
        near = cores_near_gpu() & allowed if gpu else frozenset()
        return near if near != allowed else frozenset()
    return parse_cores(setting) & allowed
