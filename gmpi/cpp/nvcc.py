"""CUDA's compiler nvcc and the programs beside it: objects and archives that it can link.

nvcc links a kernel with calls of GMPI in one of two ways. With ``-dlto`` each call is part of the
kernel, as with Numba; without, a call is a call, which saves registers. So each object has the call
in both forms, as LTO-IR and as object code.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from gmpi.errors import UsageError

#: Where nvlink looks for the compiler that makes object code of LTO-IR, in the toolkit's folder.
_LIBNVVM = Path("nvvm", "lib64", "libnvvm.so")
# What "nvcc -dc" compiles for the host where it is given object code for a GPU: nvcc itself takes
# no LTO-IR there. nvlink reads the code; the name is what the host's code of a program asks for.
_HOST_CODE = """\
#define __CUDA_INCLUDE_COMPILER_INTERNAL_HEADERS__
#define __NV_MODULE_ID _{name}
#define FATBINFILE "{fatbin}"
#include "{stub}"
"""


def tool(name: str) -> Path:
    """One of CUDA's programs, of the wheel that belongs to Numba's compiler if it is there.

    Raises:
        UsageError: there is none.
    """
    from cuda import pathfinder

    found = pathfinder.find_nvidia_binary_utility(name)
    if found is None:
        raise UsageError(
            f'{name} not found: pip install ".[cu13]" brings it (nvidia-cuda-nvcc), and so does '
            "the CUDA toolkit"
        )
    return Path(found)


def _run(*command: str | Path) -> None:
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        said = " ".join((made.stderr or made.stdout).split())
        raise UsageError(f"{command[0]} cannot make the device library: {said}")


def toolkit(link: Path) -> Path:
    """nvcc of a CUDA toolkit whose ``-dlto`` works: ``link`` is made a link to the toolkit.

    CUDA's wheels have libnvvm.so where nvlink does not look, and no option says where. So with
    them, ``link`` is a folder of links that has all in its place, which also has the libraries
    where nvcc 13.0 looks for them.

    Raises:
        UsageError: there is no nvcc.
    """
    root = tool("nvcc").parents[1]
    if link.is_symlink():
        link.unlink()
    elif link.exists():
        shutil.rmtree(link)  # what this function has made
    if (root / _LIBNVVM).exists():
        link.symlink_to(root)
        return link / "bin" / "nvcc"
    from cuda import pathfinder

    ours = ("bin", "nvvm")  # nvcc takes the parent of the folder that it lies in
    for folder in ours:
        (link / folder).mkdir(parents=True)
    for path in [*root.iterdir(), *(path for folder in ours for path in (root / folder).iterdir())]:
        if path.parent != root or path.name not in ours:
            (link / path.relative_to(root)).symlink_to(path)
    if not (link / "lib64").exists():
        (link / "lib64").symlink_to("lib")
    (link / _LIBNVVM).parent.mkdir()
    (link / _LIBNVVM).symlink_to(str(pathfinder.load_nvidia_dynamic_lib("nvvm").abs_path))
    return link / "bin" / "nvcc"


def make_object(folder: Path, name: str, target: str, images: dict[str, bytes]) -> Path:
    """An object file of the host with code of the GPU in it, which can still be linked.

    Args:
        images: the code by its kind: ``elf``, object code, and ``nvvm``, LTO-IR, which nvlink takes
            with ``-dlto``.
    """
    options = []
    for kind, code in images.items():
        path = folder / f"{name}.{kind}"
        path.write_bytes(code)
        options.append(f"--image3=kind={kind},sm={target.removeprefix('sm_')},file={path}")
    fatbin = folder / f"{name}.fatbin.c"
    _run(tool("fatbinary"), "-64", *options, f"--embedded-fatbin={fatbin}", "--device-c")
    compiler, source, made = tool("nvcc"), folder / f"{name}.cpp", folder / f"{name}.o"
    stub = compiler.with_name("crt") / "prelink.stub"
    source.write_text(_HOST_CODE.format(name=name, fatbin=fatbin, stub=stub))
    _run(compiler, "-c", "-Xcompiler", "-fPIC", source, "-o", made)
    return made


def join(folder: Path, name: str, target: str, objects: dict[str, bytes]) -> bytes:
    """Object code of many functions as one."""
    paths = []
    for function, code in objects.items():
        path = folder / f"{function}.cubin"
        path.write_bytes(code)
        paths.append(path)
    joined = folder / f"{name}.cubin"
    _run(tool("nvlink"), f"--arch={target}", "-r", *paths, "-o", joined)
    return joined.read_bytes()


def archive(objects: Iterable[Path], output: Path) -> None:
    """One file of many object files: of LTO-IR, nvlink takes only one piece from an object."""
    output.unlink(missing_ok=True)  # else what is in it stays there
    _run(tool("nvcc"), "-lib", *objects, "-o", output)
