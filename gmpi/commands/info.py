"""``gmpi info``, and ``gmpi.show_versions()`` for notebooks and reports of problems."""

from __future__ import annotations

from typing import Any

import click

from gmpi.commands.show import as_json, bad, emit, examples, good, odd, pairs, section, table


@click.command(epilog=examples("gmpi info", "gmpi info --open", "mpiexec -n 2 gmpi info"))
@click.option("--open", "opens", is_flag=True, help="Open a context, too, and say what happened.")
@as_json
def info(opens: bool, as_json: bool) -> None:
    """Versions, GPUs and their links, MPI, the libraries that are loaded, settings.

    Under mpiexec, all ranks open one context together, and rank 0 prints which road messages take
    to each of them. Ends with 1 when no context can be opened.
    """
    from gmpi import environment

    facts = environment.collect(opens or environment.ranks() > 1)
    if facts["mpi"].get("rank", 0) == 0:
        emit(facts, as_json, describe)
    raise SystemExit(1 if facts["context"]["opens"] is False else 0)


def show_versions(as_json: bool = False) -> None:
    """Prints what a report of a problem needs: versions, MPI, CUDA, GPUs, libraries loaded.

    Host only; opens no context. The first use in a process loads MPI.

    Args:
        as_json: as JSON, for machines.
    """
    from gmpi import environment

    def text(facts: dict[str, Any]) -> str:
        return "\n\n".join(section(*part) for part in _software(facts))

    emit(environment.software(), as_json, text)


def _software(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Headings and texts of ``environment.software``."""
    parts = [
        ("Versions", pairs((k, v or "not installed") for k, v in facts["versions"].items())),
        ("MPI", pairs(_mpi(facts["mpi"]))),
        ("CUDA", pairs(_cuda(facts["cuda"]))),
    ]
    if facts["cuda"]["gpus"]:
        parts.append(("GPUs", table([_gpu(gpu) for gpu in facts["cuda"]["gpus"]])))
    links = facts["cuda"].get("links")
    if links:
        parts.append(("Links between GPUs", pairs((f"GPU {k}", v) for k, v in links.items())))
    if facts["libraries"]:
        parts.append(("Libraries loaded", "\n".join(facts["libraries"])))
    return parts


def describe(facts: dict[str, Any]) -> str:
    """The facts of ``environment.collect`` as text."""
    parts = _software(facts)
    values = facts["settings"].get("values", {})
    if values:
        rows = [
            (name, v["value"], _origin(v["origin"]), v["meaning"]) for name, v in values.items()
        ]
        parts.append(("Settings", table(rows, ("setting", "value", "from", "meaning"), False)))
    if "ranks" in facts:
        parts.append(("Ranks", table(_ranks(facts["ranks"]))))
    parts.append(("Context", pairs(_context(facts))))
    return "\n\n".join(section(*part) for part in parts)


def _origin(origin: str) -> str:
    return origin if origin == "default" else odd(origin)


def _mpi(mpi: dict[str, Any]) -> list[tuple[str, Any]]:
    if not mpi["loaded"]:
        return [("problem", bad(mpi["problem"]))]
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
        rows.append(
            ("kernels run", bad("nowhere: no usable GPU, and the simulator is not selected"))
        )
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
        rows.insert(0, ("can be opened", good("yes")))
        rows.append(("proxy thread on cores", context["proxy_cores"]))
        if context["crowded"]:
            rows.append(("note", "fewer cores than threads that spin: the proxy yields its core"))
        rows.append(("engine", context["engine"]))
    elif context["opens"] is None:
        rows.insert(0, ("can be opened", "not tried: gmpi info --open, or gmpi doctor"))
    else:
        rows.insert(0, ("can be opened", bad("no")))
        rows.append(("because", bad(context["problem"])))
    rows += [("warning", odd(text)) for text in facts["settings"]["warnings"]]
    return rows
