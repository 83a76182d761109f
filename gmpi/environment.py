"""What there is on this machine: the facts of ``gmpi info`` and ``gmpi.show_versions``.

Works without a GPU, without ``mpiexec`` and where no MPI library can be loaded: what cannot be
found out is left out, with the reason.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

import gmpi
from gmpi.missing import why_mpi_is_missing
from gmpi.observe.libraries import libraries

Facts = dict[str, Any]

_PACKAGES = (
    "numpy",
    "numba",
    "numba-cuda",
    "llvmlite",
    "cupy-cuda13x",
    "mpi4py",
    "nvidia-cuda-runtime",
    "nvidia-nvvm",
)


def _command(*words: str, stdin: str = "") -> str | None:
    """What a program prints; None when it is not there or fails."""
    try:
        done = subprocess.run(
            words, input=stdin, capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def versions() -> Facts:
    """Of GMPI, Python, the packages it needs; None for a package that is not installed."""
    found: Facts = {"gmpi": gmpi.__version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def mpi() -> Facts:
    """The MPI library that mpi4py loads, or why it loads none."""
    problem = why_mpi_is_missing()
    if problem is not None:
        return {"loaded": False, "problem": problem}
    from mpi4py import MPI

    levels = ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")
    known = {getattr(MPI, "THREAD_" + name): name for name in levels}
    return {
        "loaded": True,
        "library": " ".join(MPI.Get_library_version().strip("\0").splitlines()[0].split()),
        "standard": ".".join(map(str, MPI.Get_version())),
        "thread_level": known[MPI.Query_thread()],
        "tag_ub": MPI.COMM_WORLD.Get_attr(MPI.TAG_UB),
        "ranks": MPI.COMM_WORLD.size,
        "rank": MPI.COMM_WORLD.rank,
    }


def ranks() -> int:
    """Of this job; 1 where no MPI library can be loaded."""
    if why_mpi_is_missing() is not None:
        return 1
    from mpi4py import MPI

    return int(MPI.COMM_WORLD.size)


def mps_runs() -> bool:
    """Whether a CUDA MPS control daemon answers, so that ranks can share a GPU. Starts nothing."""
    answer = _command("nvidia-cuda-mps-control", stdin="get_server_list\n")
    return answer is not None and "Cannot find" not in answer


def cuda() -> Facts:
    """Simulator or driver and toolkit; the GPUs that kernels can use."""
    simulator = os.environ.get("NUMBA_ENABLE_CUDASIM", "").strip() not in ("", "0")  # Numba's own
    listing = _command("nvidia-smi", "--query-gpu=pci.bus_id,memory.total", "--format=csv,noheader")
    memory = {}
    for line in (listing or "").splitlines():
        bus, _, size = line.partition(", ")
        memory[bus.lower().lstrip("0")] = size
    found: Facts = {"simulator": simulator, "gpus_present": len(memory), "gpus": []}
    if simulator:
        return found
    from device_lib.platform import front_end

    try:
        found["toolkit"] = ".".join(map(str, front_end.toolkit_version()))
    except Exception as exc:  # whatever a broken installation raises is what the user must see
        found["toolkit_problem"] = f"{type(exc).__name__}: {exc}"
    if not front_end.has_driver():  # Numba would say so, too, after a second
        found["problem"] = "no CUDA driver: libcuda.so.1 is not found"
        return found
    from numba import cuda as numba_cuda

    if not numba_cuda.is_available():
        found["problem"] = str(numba_cuda.cuda_error() or "no CUDA driver, or no NVVM")
        return found
    driver = front_end.driver()
    found["driver"] = ".".join(map(str, driver.get_version()))
    found["mps"] = mps_runs()
    for number in range(driver.get_device_count()):
        found["gpus"].append(_gpu(driver.get_device(number), memory))
    if len(memory) > 1:
        found["links"] = links(_command("nvidia-smi", "topo", "-m") or "")
    return found


def links(matrix: str) -> Facts:
    """How GPUs reach each other, such as ``{"0-1": "NV18"}``, from ``nvidia-smi topo -m``.

    NV and a number: so many NVLinks; PIX, PXB, PHB, NODE, SYS: PCIe, ever farther apart. The
    numbers are those of nvidia-smi, which CUDA_VISIBLE_DEVICES does not change.
    """
    rows = [re.sub(r"\x1b\[[\d;]*m", "", line).split() for line in matrix.splitlines()]
    gpus = {row[0]: row[1:] for row in rows if row and re.fullmatch(r"GPU\d+", row[0])}
    header = next((row for row in rows if row[:1] == ["GPU0"] and row[1:2] == ["GPU1"]), [])
    found = {}
    for name, ways in gpus.items():
        for other, way in zip(header, ways):
            if other in gpus and int(name[3:]) < int(other[3:]):
                found[f"{name[3:]}-{other[3:]}"] = way
    return found


def _gpu(device: Any, memory: dict[str, str]) -> Facts:
    from gmpi.affinity import cores_near, cores_text, pci_folder

    folder = pci_folder(device)
    try:
        numa = int((folder / "numa_node").read_text())
    except (OSError, ValueError):
        numa = -1
    name = device.name
    return {
        "number": device.id,
        "name": name.decode() if isinstance(name, bytes) else str(name),
        "compute_capability": ".".join(map(str, tuple(device.compute_capability))),
        "memory": memory.get(folder.name.lstrip("0")),
        "multiprocessors": device.MULTIPROCESSOR_COUNT,
        "concurrent_managed_access": bool(device.CONCURRENT_MANAGED_ACCESS),
        "pci": folder.name,
        "numa_node": numa if numa >= 0 else None,
        "cores_near": cores_text(cores_near(device)) or None,
    }


def settings() -> Facts:
    """Every setting: value, where it came from, meaning; and what is wrong with the environment."""
    from gmpi import config
    from gmpi.tuning import kept

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            tuned = kept.tuned_here().settings
            values = config.load(tuned)
        except gmpi.ConfigError as exc:
            return {"problem": str(exc), "warnings": [str(w.message) for w in caught]}
    origins = config.origins(values, tuned)
    return {
        "values": {
            name: {
                "value": getattr(values, name),
                "origin": origins[name],
                "meaning": field.description,
            }
            for name, field in type(values).model_fields.items()
        },
        "warnings": [str(w.message) for w in caught],
    }


def cores() -> str:
    """Cores that this process may run on, such as ``0-3``."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Cpus_allowed_list:"):
            return line.partition(":")[2].strip()
    return ",".join(map(str, sorted(os.sched_getaffinity(0))))


def context() -> Facts:
    """Opens a context, collectively over all ranks, and says what happened."""
    from mpi4py import MPI

    from gmpi.affinity import cores_text
    from host_proxy.platform.state import G_CROWDED

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            g = gmpi.Context(MPI.COMM_WORLD)
        with g:
            return {
                "opens": True,
                "problem": "",
                "engine": g.config.engine,
                "proxy_cores": cores_text(g.proxy_cores) or "any",
                "paths": g.paths,
                "crowded": bool(g._state.globals[G_CROWDED]),
            }
    except Exception as exc:  # any exception is the answer
        return {"opens": False, "problem": f"{type(exc).__name__}: {exc}"}


def software() -> Facts:
    """Versions, MPI, CUDA, and the libraries that are loaded by then."""
    return {
        "versions": versions(),
        "executable": sys.executable,
        "host": platform.node(),
        "mpi": mpi(),
        "cuda": cuda(),
        "libraries": libraries(),
    }


def collect(open_context: bool) -> Facts:
    """Everything; every rank must call it. ``ranks`` is filled in on rank 0 only.

    ``context`` says whether one can be opened: ``opens`` is None where nothing speaks against it
    and nobody has tried.

    Args:
        open_context: tries, which takes a second, and twenty where the engine is not compiled yet.
    """
    facts = {**software(), "cores": cores()}
    if not facts["mpi"]["loaded"]:
        facts["settings"] = {"problem": "not read: no MPI library", "warnings": []}
        facts["context"] = {"opens": False, "problem": facts["mpi"]["problem"]}
        return facts
    facts["settings"] = settings()
    facts["context"] = context() if open_context else {"opens": None, "problem": _hindrance(facts)}
    if facts["context"]["problem"]:
        facts["context"]["opens"] = False
    if facts["mpi"]["ranks"] > 1:
        from mpi4py import MPI

        mine = {key: facts[key] for key in ("host", "cores", "context")}
        mine["gpus"] = [gpu["name"] for gpu in facts["cuda"]["gpus"]]
        facts["ranks"] = MPI.COMM_WORLD.gather(mine)
    return facts


def _hindrance(facts: Facts) -> str:
    """Why no context could be opened, as far as that is known without trying; empty: nothing."""
    if "problem" in facts["settings"]:
        return f"ConfigError: {facts['settings']['problem']}"
    if not facts["cuda"]["simulator"] and not facts["cuda"]["gpus"]:
        return (
            "no usable GPU, and the simulator is not selected: NUMBA_ENABLE_CUDASIM=1, or gmpi run"
        )
    return ""
