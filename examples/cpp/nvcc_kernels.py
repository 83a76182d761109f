"""CUDA C++ that calls MPI, compiled by nvcc to a shared library: ping-pong, Allreduce, heat.

    gmpi cpp -o build --for examples/cpp/kernels.cu
    python examples/cpp/nvcc_kernels.py --build build                 # by nvcc, needs no GPU
    mpiexec -n 2 python examples/cpp/nvcc_kernels.py --library build/libkernels.so

The library is C++ alone: nothing in it is Python's. Python opens the context, and passes it to the
library's functions as one argument. What follows the folder are options of nvcc: for blocks of 512
threads "gmpi cpp" takes --registers 128, and nvcc -maxrregcount=128.
"""

import ctypes
import subprocess
import sys
from pathlib import Path

import run_kernels
from mpi4py import MPI

import gmpi

USAGE = "usage: nvcc_kernels.py --build FOLDER [OPTION ...] | --library FILE (see the first lines)"


def build(folder: Path, *options: str) -> Path:
    """Compiles launch.cu with what "gmpi cpp" has written to the folder, and links it.

    With -dlto each call is part of the kernel, as with Numba.
    """
    (code,) = sorted(folder.glob("gmpi_sm_*.a"))
    made, source = folder / "libkernels.so", Path(__file__).with_name("launch.cu")
    command = [
        str(folder / "gmpi_cuda" / "bin" / "nvcc"), f"-arch={code.stem.removeprefix('gmpi_')}",
        "-std=c++17", "-rdc=true", "-dlto", f"-I{folder}", "-Xcompiler", "-fPIC", "-shared",
        *options, str(source), str(code), "-o", str(made),
    ]  # fmt: skip
    subprocess.run(command, check=True)
    return made


def as_c(argument):
    """Arrays are passed by their addresses."""
    described = getattr(argument, "__cuda_array_interface__", None)
    if described is not None:
        return ctypes.c_void_p(described["data"][0])
    return ctypes.c_double(argument) if isinstance(argument, float) else ctypes.c_longlong(argument)


class Library:
    """The launches of launch.cu."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(str(Path(path).resolve()))

    def resident(self, threads: int) -> int:
        return self._library.resident_heat(as_c(threads))

    def launch(self, g, name, blocks, threads, *arguments):
        grid = [as_c(blocks)] if name == "heat" else []
        words = [*grid, as_c(threads), *map(as_c, arguments)]
        resident = self.resident(threads) if name == "heat" else None
        with gmpi.cpp_launch(g.device, blocks, threads, name=name, resident=resident) as ctx:
            status = getattr(self._library, f"launch_{name}")(ctx, *words)
        if status:
            raise RuntimeError(f"{name} was not launched: CUDA error {status}")


def main() -> int:
    if len(sys.argv) < 3 or sys.argv[1] not in ("--build", "--library"):
        sys.exit(USAGE)
    if sys.argv[1] == "--build":
        print(build(Path(sys.argv[2]), *sys.argv[3:]), flush=True)
        return 0
    if gmpi.SIMULATOR:
        print("skipped: CUDA C++ needs a GPU", flush=True)
        return 0
    library = Library(sys.argv[2])
    del sys.argv[1:3]  # the rest is for heat.py
    gmpi.select_gpu(MPI.COMM_WORLD)
    return run_kernels.main(library.launch, library.resident)


if __name__ == "__main__":
    sys.exit(main())
