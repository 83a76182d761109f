"""Whether atomic operations of one GPU on another one's memory are atomic.

Over NVLink they are. Over PCIe, GPUs that can load and store each other's memory may have none, and
an addition would be a load and a store.
"""

from __future__ import annotations

from typing import Any

from gmpi.memory.gpu_staging import cuda_call


def are_native(mine: str, theirs: str) -> bool:
    """Whether they are, of kernels here on memory there; False also where nobody knows.

    Args:
        mine, theirs: UUIDs of the GPUs (``Memory.gpu_name``).
    """
    if mine == theirs:
        return True
    from cuda.bindings import driver
    from numba import cuda

    visible = {str(gpu.uuid): gpu.id for gpu in cuda.list_devices()}
    if mine in visible and theirs in visible:
        which = driver.CUdevice_P2PAttribute.CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
        asked = driver.cuDeviceGetP2PAttribute(which, visible[mine], visible[theirs])
        return bool(cuda_call(asked))
    return _says_the_management_library(mine, theirs)


def _says_the_management_library(mine: str, theirs: str) -> bool:
    """The same of GPUs that this process cannot use (``CUDA_VISIBLE_DEVICES``)."""
    try:
        from cuda.bindings import nvml

        nvml.init_v2()
        gpus: list[Any] = [nvml.device_get_handle_by_uuid(uuid) for uuid in (mine, theirs)]
        status = nvml.device_get_p2p_status(*gpus, nvml.GpuP2PCapsIndex.P2P_CAPS_INDEX_ATOMICS)
        return int(status) == int(nvml.GpuP2PStatus.P2P_STATUS_OK)
    except Exception:  # no such library, or it does not know a GPU: of MIG, in a container
        return False
