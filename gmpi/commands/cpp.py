"""``gmpi cpp``: the header and the device library, for programs in CUDA C++."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from gmpi.commands.show import as_json, emit, examples

_FOLDER = click.Path(file_okay=False, path_type=Path)
_SOURCE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(
    epilog=examples(
        "gmpi cpp -o build                             # for the GPU here",
        "gmpi cpp -o build --cc 9.0 --for solver.cu    # the calls of solver.cu only",
    )
)
@click.option("-o", "folder", required=True, type=_FOLDER, help="Where to.")
@click.option("--cc", "text", metavar="9.0", help="Instead of the GPU here.")
@click.option("--for", "sources", multiple=True, type=_SOURCE, help="Programs: their calls only.")
@click.option(
    "--registers",
    type=click.Choice(["255", "128", "64"]),
    default="255",
    show_default=True,
    help="Most registers a thread: 128 for blocks of 512 threads, 64 for 1024.",
)
@click.option("--header-only", is_flag=True, help="Writes gmpi.cuh, which needs no compiler.")
@as_json
def cpp(
    folder: Path,
    text: str | None,
    sources: tuple[Path, ...],
    registers: str,
    header_only: bool,
    as_json: bool,
) -> None:
    """Writes gmpi.cuh and the device library, for kernels that nvcc compiles.

    The numbers in the header are those of the MPI library that is loaded now.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if header_only:
        from gmpi.cpp import header

        path = folder / "gmpi.cuh"
        path.write_text(header.text())
        emit({"header": str(path)}, as_json, lambda f: f["header"])
        return
    found = _write(folder, text, sources, int(registers))
    emit(found, as_json, _describe)


def _describe(found: dict[str, Any]) -> str:
    return (
        f"{found['header']}\n{found['library']}: {found['calls']} calls\n"
        f"{found['compiler']} {' '.join(found['options'])} program.cu {found['library']}"
    )


def _options(folder: Path, architecture: str, registers: int) -> list[str]:
    """For nvcc. With -dlto the linker compiles the kernel, so the limit is the linker's, too."""
    options = [f"-arch={architecture}", "-rdc=true", "-dlto", f"-I{folder}"]
    return options if registers == 255 else [*options, f"-maxrregcount={registers}"]


def _write(
    folder: Path, text: str | None, sources: tuple[Path, ...], registers: int
) -> dict[str, Any]:
    from gmpi import SIMULATOR

    if SIMULATOR:
        raise click.UsageError("the simulator compiles nothing: unset NUMBA_ENABLE_CUDASIM")
    from device_lib.platform import assembler
    from gmpi.cpp import library_file, table
    from gmpi.errors import UsageError
    from gmpi.launch import precompile

    cc = _capability(text)
    if reason := precompile.why_nothing_compiles():
        raise click.ClickException(reason)
    precompile.compile_without_gpu(cc)
    try:
        wanted = library_file.named_in([path.read_text() for path in sources])
        wanted = wanted or sorted(table.calls())
        bar = click.progressbar(length=len(wanted), label="calls", file=sys.stderr)
        with bar:
            made = library_file.write(folder, cc, registers, wanted, lambda _: bar.update(1))
    except (UsageError, assembler.AssemblerError) as exc:
        raise click.ClickException(str(exc)) from None
    architecture = assembler.architecture(cc)
    return {
        "header": str(made.header),
        "library": str(made.library),
        "calls": made.calls,
        "architecture": architecture,
        "compiler": str(made.compiler),
        "options": _options(folder, architecture, registers),
    }


def _capability(text: str | None) -> tuple[int, int]:
    from gmpi.launch import precompile

    try:
        if text is not None:
            cc = precompile.capability(text)
            precompile.check(cc)
            return cc
    except ValueError as exc:
        raise click.BadParameter(str(exc), param_hint="--cc") from None
    here = precompile.capabilities_of_gpus()
    if len(here) != 1:
        raise click.UsageError(
            "no usable GPU here: say for which with --cc, such as --cc 9.0" if not here
            else "there are several kinds of GPUs here: say for which with --cc"
        )  # fmt: skip
    return here[0]
