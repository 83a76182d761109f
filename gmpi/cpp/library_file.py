"""The device library as one file for nvcc, beside the header ``gmpi.cuh``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from device_lib.platform import assembler, library
from gmpi.cpp import header, nvcc, symbols
from gmpi.cpp.table import calls
from gmpi.errors import UsageError

Capability = tuple[int, int]
_PARTS = "gmpi_parts"  # what the calls have in common
_NAME = re.compile(r"\bGMPI_[A-Z][a-z]\w*")


class Written(NamedTuple):
    """What ``write`` has written, an nvcc that can link it, and how many calls are in it."""

    header: Path
    library: Path
    compiler: Path
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
    """Writes the header and the library, for ``nvcc -rdc=true`` with or without ``-dlto``.

    Needs no GPU.

    Args:
        limit: most registers a thread, one of ``assembler.LIMITS``: of the library's functions.
        wanted: symbols of calls.
        done: is told each of them when it is compiled.

    Raises:
        UsageError, AssemblerError: a program of CUDA's is missing, or refuses its input.
    """
    compiled = {}
    for symbol in wanted:
        compiled[symbol] = symbols.ptx(symbol, cc), symbols.ltoir(symbol, cc)
        symbols.parts([symbol], cc)
        done(symbol)
    parts = symbols.parts(wanted, cc)
    target = assembler.architecture(cc)
    written = Written(
        directory / "gmpi.cuh",
        directory / f"gmpi_{target}.a",
        nvcc.toolkit(directory / "gmpi_cuda"),
        len(wanted),
    )

    def part(name: str) -> bytes:
        return library.compile_object(name, cc, limit)

    with TemporaryDirectory(prefix="gmpi-") as place, ThreadPoolExecutor() as pool:
        folder = Path(place)

        def call(symbol: str) -> Path:
            ptx, ltoir = compiled[symbol]
            code = assembler.assemble(symbol, ptx, cc, limit)
            return nvcc.make_object(folder, symbol, target, {"elf": code, "nvvm": ltoir})

        objects = list(pool.map(call, wanted))
        joined = nvcc.join(folder, _PARTS, target, dict(zip(parts, pool.map(part, parts))))
        objects.append(nvcc.make_object(folder, _PARTS, target, {"elf": joined}))
        nvcc.archive(objects, written.library)
    written.header.write_text(header.text())
    return written
