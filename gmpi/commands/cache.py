"""``gmpi cache``: the compiled code that is kept on disk."""

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

    One of the cores compiles the engine of the proxy: what the first context would otherwise wait
    for. It is kept in Numba's cache, for this kind of processor and the MPI library that is found.
    """
    from gmpi import SIMULATOR

    if SIMULATOR:
        raise click.UsageError("the simulator compiles nothing: unset NUMBA_ENABLE_CUDASIM")
    import mpi4py

    mpi4py.rc.initialize = False  # its constants are compiled in; nothing is sent
    try:
        from gmpi.launch import precompile
    except (ImportError, RuntimeError) as exc:
        raise click.ClickException(" ".join(str(exc).split())) from None
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
    made = [_compile(cc, engine=cc == wanted[0]) for cc in wanted]
    found = {
        "directory": str(cache_directory()),
        "functions": {f"sm_{cc[0]}{cc[1]}": done for cc, (done, _) in zip(wanted, made)},
        "engine": made[0][1],
    }
    emit(found, as_json, _filled)


def _filled(found: dict[str, Any]) -> str:
    lines = [
        f"{label}: {functions} functions in {found['directory']}"
        for label, functions in found["functions"].items()
    ]
    engine = found["engine"]
    where = f"{engine['functions']} functions in {engine['directory']}"
    lines.append(f"engine of the proxy: {engine['problem'] or where}")
    return "\n".join(lines)


def _compile(cc: tuple[int, int], engine: bool) -> tuple[int, dict[str, Any]]:
    """How many functions there are now for a compute capability, and the engine; a bar on
    terminals."""
    from device_lib.platform import assembler
    from gmpi.launch import precompile

    length, label = len(precompile.names()) + engine, f"sm_{cc[0]}{cc[1]}"
    steps = precompile.fill(cc, engine)
    try:
        with click.progressbar(steps, length=length, label=label, file=sys.stderr) as bar:
            done = list(bar)
    except assembler.AssemblerError as exc:
        raise click.ClickException(str(exc)) from None
    engines = [each._asdict() for each in done if isinstance(each, precompile.Engine)]
    return len(done) - len(engines), engines[0] if engines else {}


@cache.command(epilog=examples("gmpi cache clear"))
@as_json
def clear(as_json: bool) -> None:
    """Deletes it; the next kernel that is compiled makes it again."""
    files = kept()
    for path in [*files, *leftovers()]:
        path.unlink(missing_ok=True)
    emit({"deleted": len(files)}, as_json, lambda _: f"{len(files)} files deleted")
