"""The device library as one file for nvcc, beside the header ``gmpi.cuh``."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from device_lib.platform import assembler, library
from gmpi.cpp import header, symbols
from gmpi.cpp.table import calls
from gmpi.errors import UsageError

Capability = tuple[int, int]
_NAME = re.compile(r"\bGMPI_[A-Z][a-z]\w*")


class Written(NamedTuple):
    """What ``write`` has written, and how many calls are in it."""

    header: Path
    library: Path
    calls: int


def named_in(sources: Sequence[str]) -> list[str]:
    """The symbols of the calls that some programs name.

    Raises:
        UsageError: they name one that does not exist.
    """
    names = {call.name: symbol for symbol, call in calls().items()}
    found = sorted({name for text in sources for name in _NAME.findall(text)})
    if unknown := [name for name in found if name not in names]:
        raise UsageError(f"there is no call {', '.join(unknown)}; docs/api.md lists all")
    return [names[name] for name in found]


def write(
    directory: Path,
    cc: Capability,
    limit: int,
    wanted: Sequence[str],
    done: Callable[[str], None] = lambda symbol: None,
) -> Written:
    """Writes the header and the library, for ``nvcc -rdc=true``. Needs no GPU.

    Args:
        limit: most registers a thread, one of ``assembler.LIMITS``: of the library's functions.
        wanted: symbols of calls.
        done: is told each of them when it is compiled.

    Raises:
        UsageError, AssemblerError: a program of CUDA's is missing, or refuses its input.
    """
    texts = {}
    for symbol in wanted:
        texts[symbol] = symbols.ptx(symbol, cc)
        symbols.parts([symbol], cc)
        done(symbol)
    parts = symbols.parts(wanted, cc)

    def assembled(symbol: str) -> bytes:
        return assembler.assemble(symbol, texts[symbol], cc, limit)

    def compiled(name: str) -> bytes:
        return library.compile_object(name, cc, limit)

    with ThreadPoolExecutor() as pool:
        objects = dict(zip(wanted, pool.map(assembled, wanted)))
        objects |= dict(zip(parts, pool.map(compiled, parts)))
    target = assembler.architecture(cc)
    written = Written(directory / "gmpi.cuh", directory / f"gmpi_{target}.o", len(wanted))
    written.header.write_text(header.text())
    _join(objects, target, written.library)
    return written


def _tool(name: str) -> str:
    """Path of one of CUDA's programs, of the wheel that belongs to Numba's compiler if it is there.

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
    return str(found)


def _join(objects: dict[str, bytes], target: str, output: Path) -> None:
    """One object file of the host with many of the GPU in it, which can still be linked."""
    with tempfile.TemporaryDirectory(prefix="gmpi-") as place:
        paths = []
        for name, code in objects.items():
            path = Path(place, f"{name}.cubin")
            path.write_bytes(code)
            paths.append(str(path))
        joined = str(Path(place, "gmpi.cubin"))
        _run(_tool("nvlink"), f"--arch={target}", "-r", *paths, "-o", joined)
        into = ["-Xcompiler", "-fPIC", "-dc", joined, "-o", str(output)]
        _run(_tool("nvcc"), f"-arch={target}", *into)


def _run(*command: str) -> None:
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        said = " ".join((made.stderr or made.stdout).split())
        raise UsageError(f"{command[0]} cannot join the device library: {said}")
