"""``gmpi`` on the command line; also ``python -m gmpi``."""

from __future__ import annotations

import json
from typing import Any

import click
from tabulate import tabulate

import gmpi
from gmpi.cache.files import cache_directory, kept, leftovers


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(gmpi.__version__, prog_name="gmpi")
def main() -> None:
    """MPI called from inside a running GPU kernel."""


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Everything, for machines.")
def info(as_json: bool) -> None:
    """Versions, GPUs, MPI, settings, and whether a context can be opened.

    Under mpiexec, all ranks open one context together and rank 0 prints. Ends with 1 when no
    context can be opened.
    """
    from gmpi import environment

    facts = environment.collect()
    if facts["mpi"].get("rank", 0) == 0:
        click.echo(json.dumps(facts, indent=1) if as_json else describe(facts))
    raise SystemExit(0 if facts["context"]["opens"] else 1)


def describe(facts: dict[str, Any]) -> str:
    """The facts of ``environment.collect`` as text."""
    sections = [
        ("Versions", _table((k, v or "not installed") for k, v in facts["versions"].items())),
        ("MPI", _table(_mpi(facts["mpi"]))),
        ("CUDA", _table(_cuda(facts["cuda"]))),
    ]
    gpus = facts["cuda"]["gpus"]
    if gpus:
        sections.append(("GPUs", tabulate([_gpu(gpu) for gpu in gpus], headers="keys")))
    values = facts["settings"].get("values", {})
    if values:
        rows = [(name, v["value"], v["origin"], v["meaning"]) for name, v in values.items()]
        headers = ("setting", "value", "from", "meaning")
        sections.append(("Settings", tabulate(rows, headers=headers)))
    if "ranks" in facts:
        sections.append(("Ranks", tabulate(_ranks(facts["ranks"]), headers="keys")))
    sections.append(("Context", _table(_context(facts))))
    return "\n\n".join(f"{title}\n{'-' * len(title)}\n{text}" for title, text in sections)


def _table(rows: Any) -> str:
    return str(tabulate(list(rows), tablefmt="plain", disable_numparse=True))


def _mpi(mpi: dict[str, Any]) -> list[tuple[str, Any]]:
    if not mpi["loaded"]:
        return [("problem", mpi["problem"])]
    return [
        ("library", mpi["library"]),
        ("standard", mpi["standard"]),
        ("thread level", mpi["thread_level"]),
        ("largest tag", mpi["tag_ub"]),
        ("ranks", mpi["ranks"]),
    ]


def _cuda(cuda: dict[str, Any]) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    if cuda["simulator"]:
        rows.append(("kernels run in", "the simulator (NUMBA_ENABLE_CUDASIM=1)"))
        if cuda["gpus_present"]:
            rows.append(("unused GPUs", cuda["gpus_present"]))
    elif cuda["gpus"]:
        rows.append(("kernels run on", "the GPU"))
    else:
        rows.append(("kernels run", "nowhere: no usable GPU, and the simulator is not selected"))
    for key in ("problem", "driver", "toolkit", "toolkit_problem"):
        if cuda.get(key):
            rows.append((key.replace("_", " "), " ".join(cuda[key].split())))
    if "mps" in cuda:
        rows.append(("MPS daemon", "runs" if cuda["mps"] else "does not run"))
    return rows


def _gpu(gpu: dict[str, Any]) -> dict[str, Any]:
    return {
        "GPU": gpu["number"],
        "name": gpu["name"],
        "cc": gpu["compute_capability"],
        "memory": gpu["memory"] or "unknown",
        "SMs": gpu["multiprocessors"],
        "concurrent managed": "yes" if gpu["concurrent_managed_access"] else "no",
        "PCI": gpu["pci"],
        "NUMA node": "unknown" if gpu["numa_node"] is None else gpu["numa_node"],
        "cores near": gpu["cores_near"] or "unknown",
    }


def _ranks(ranks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    from gmpi.observe.report import paths_text  # needs MPI

    return [
        {
            "rank": number,
            "host": rank["host"],
            "GPUs seen": ", ".join(rank["gpus"]) or "none",
            "cores": rank["cores"],
            "proxy on": rank["context"].get("proxy_cores", "-"),
            "long messages by": paths_text(rank["context"].get("paths", {})) or "-",
        }
        for number, rank in enumerate(ranks)
    ]


def _context(facts: dict[str, Any]) -> list[tuple[str, Any]]:
    context = facts["context"]
    rows: list[tuple[str, Any]] = [("cores of this process", facts["cores"])]
    if context["opens"]:
        rows.insert(0, ("can be opened", "yes"))
        rows.append(("proxy thread on cores", context["proxy_cores"]))
        if context["crowded"]:
            rows.append(("note", "fewer cores than threads that spin: the proxy yields its core"))
        rows.append(("engine", context["engine"]))
    else:
        rows.insert(0, ("can be opened", "no"))
        rows.append(("because", context["problem"]))
    if not facts["settings"].get("values") and context["problem"] != facts["mpi"].get("problem"):
        rows.append(("settings", facts["settings"]["problem"]))
    rows += [("warning", text) for text in facts["settings"]["warnings"]]
    return rows


@main.group()
def cache() -> None:
    """The compiled device code that is kept on disk."""


@cache.command()
def show() -> None:
    """Where it is and how much there is."""
    sizes: dict[str, list[int]] = {}
    for path in kept():
        architecture = path.stem.split("-")[1]
        sizes.setdefault(architecture, []).append(path.stat().st_size)
    click.echo(f"{cache_directory()} (GMPI_CACHE_DIR chooses another directory)")
    rows = [(name, len(found), f"{sum(found) / 1024:.0f} KiB") for name, found in sizes.items()]
    click.echo(tabulate(rows, headers=("architecture", "files", "size")) if rows else "empty")


@cache.command()
@click.option("--cc", "texts", multiple=True, metavar="9.0", help="Instead of the GPUs here.")
def fill(texts: tuple[str, ...]) -> None:
    """Compiles the device library, on all cores: what the first kernel would otherwise do on one.

    For the GPUs here, or for compute capabilities that --cc names, where no GPU is needed: on a
    login node, or when an image is made.
    """
    from gmpi import SIMULATOR

    if SIMULATOR:
        raise click.UsageError("the simulator compiles nothing: unset NUMBA_ENABLE_CUDASIM")
    from device_lib.platform import assembler
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
    length = len(precompile.names())
    for cc in wanted:
        label = f"sm_{cc[0]}{cc[1]}"
        try:
            with click.progressbar(precompile.fill(cc), length=length, label=label) as names:
                done = sum(1 for _ in names)
        except assembler.AssemblerError as exc:
            raise click.ClickException(str(exc)) from None
        click.echo(f"{label}: {done} functions in {cache_directory()}")


@cache.command()
def clear() -> None:
    """Deletes it; the next kernel that is compiled makes it again."""
    files = kept()
    for path in [*files, *leftovers()]:
        path.unlink(missing_ok=True)
    click.echo(f"{len(files)} files deleted")


if __name__ == "__main__":
    main(prog_name="gmpi")
