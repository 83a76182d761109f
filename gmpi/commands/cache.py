"""``gmpi cache``: the compiled device code that is kept on disk."""

from __future__ import annotations

import sys
from typing import Any

import click

from gmpi.cache.files import cache_directory, kept, leftovers
from gmpi.commands.show import as_json, emit, examples, table


@click.group(epilog=examples("gmpi cache show", "gmpi cache fill --cc 9.0      # on a login node"))
def cache() -> None:
    """The compiled device code that is kept on disk."""


@cache.command(epilog=examples("gmpi cache show", "gmpi cache show --json"))
@as_json
def show(as_json: bool) -> None:
    """Where it is and how much there is."""
    sizes: dict[str, list[int]] = {}
    for path in kept():
        architecture = path.stem.split("-")[1]
        sizes.setdefault(architecture, []).append(path.stat().st_size)
    found = {
        "directory": str(cache_directory()),
        "architectures": {
            name: {"files": len(each), "bytes": sum(each)} for name, each in sizes.items()
        },
    }
    emit(found, as_json, _describe)


def _describe(found: dict[str, Any]) -> str:
    rows = [
        (name, each["files"], f"{each['bytes'] / 1024:.0f} KiB")
        for name, each in found["architectures"].items()
    ]
    text = table(rows, ("architecture", "files", "size")) if rows else "empty"
    return f"{found['directory']} (GMPI_CACHE_DIR chooses another directory)\n{text}"


@cache.command(epilog=examples("gmpi cache fill", "gmpi cache fill --cc 8.0 --cc 9.0"))
@click.option("--cc", "texts", multiple=True, metavar="9.0", help="Instead of the GPUs here.")
@as_json
def fill(texts: tuple[str, ...], as_json: bool) -> None:
    """Compiles the device library, on all cores: what the first kernel would otherwise do on one.

    For the GPUs here, or for compute capabilities that --cc names, where no GPU is needed: on a
    login node, or when an image is made.
    """
    from gmpi import SIMULATOR

    if SIMULATOR:
        raise click.UsageError("the simulator compiles nothing: unset NUMBA_ENABLE_CUDASIM")
    from gmpi.launch import precompile

    try:
        wanted = [precompile.capability(text) for text in texts]
    except ValueError as exc:
        raise click.BadParameter(str(exc), param_hint="--cc") from None
    wanted = wanted or precompile.capabilities_of_gpus()
    if not wanted:
        raise click.UsageError("no usable GPU here: say for which with --cc, such as --cc 9.0")
    if reason := precompile.why_nothing_compiles():
        raise click.ClickException(reason)
    try:
        for cc in wanted:
            precompile.check(cc)
    except ValueError as exc:
        raise click.BadParameter(str(exc), param_hint="--cc") from None
    done = {f"sm_{cc[0]}{cc[1]}": _compile(cc) for cc in wanted}
    found = {"directory": str(cache_directory()), "functions": done}
    emit(found, as_json, lambda _: "\n".join(_filled(label, n) for label, n in done.items()))


def _filled(label: str, functions: int) -> str:
    return f"{label}: {functions} functions in {cache_directory()}"


def _compile(cc: tuple[int, int]) -> int:
    """How many functions there are now for a compute capability; a bar on terminals."""
    from device_lib.platform import assembler
    from gmpi.launch import precompile

    length, label = len(precompile.names()), f"sm_{cc[0]}{cc[1]}"
    bar = click.progressbar(precompile.fill(cc), length=length, label=label, file=sys.stderr)
    try:
        with bar as names:
            return sum(1 for _ in names)
    except assembler.AssemblerError as exc:
        raise click.ClickException(str(exc)) from None


@cache.command(epilog=examples("gmpi cache clear"))
@as_json
def clear(as_json: bool) -> None:
    """Deletes it; the next kernel that is compiled makes it again."""
    files = kept()
    for path in [*files, *leftovers()]:
        path.unlink(missing_ok=True)
    emit({"deleted": len(files)}, as_json, lambda _: f"{len(files)} files deleted")
