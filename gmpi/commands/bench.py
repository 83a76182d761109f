"""``gmpi bench``: how fast messages of kernels are here, in the layout of OSU's benchmarks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from gmpi.commands.show import as_json, emit, examples

#: Subject -> module and function, unit, ranks (0: any), default sizes.
SUBJECTS: dict[str, tuple[str, str, str, int, str]] = {
    "latency": ("latency", "measure", "Latency (us)", 2, "1:1M"),
    "bandwidth": ("streams", "bandwidth", "Bandwidth (MB/s)", 2, "1:4M"),
    "bibw": ("streams", "bibw", "Bandwidth (MB/s)", 2, "1:4M"),
    "rate": ("streams", "rate", "Messages/s", 2, "8:8"),
    "allreduce": ("collective", "allreduce", "Latency (us)", 0, "4:1M"),
    "alltoall": ("collective", "alltoall", "Latency (us)", 0, "1:256K"),
    "pack": ("packing", "pack", "Packed (MB/s)", 0, "64:16M"),
    "overhead": ("overhead", "overhead", "Isend (us)", 2, "1:8K"),
}
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(
    epilog=examples(
        "gmpi run -n 2 -- -m gmpi bench latency",
        "mpiexec -n 2 gmpi bench bandwidth -m 1K:16M -i 200 -x 20",
        "mpiexec -n 4 gmpi bench allreduce --json          # > before.json",
        "mpiexec -n 4 gmpi bench allreduce --against before.json",
    )
)
@click.argument("subject", metavar="SUBJECT", type=click.Choice(list(SUBJECTS)))
@click.option("-m", "sizes", metavar="MIN:MAX", help="Bytes of a message, such as 8:64K or 1M.")
@click.option("-i", "rounds", type=click.IntRange(1), help="How many rounds are timed.")
@click.option("-x", "skip", type=click.IntRange(0), help="How many are not, before these.")
@click.option("--threads", type=click.IntRange(1, 1024), help="Of a block.")
@click.option("--wildcards/--no-wildcards", default=False, help="Proxied, or the direct road.")
@click.option("--against", type=_FILE, help="Former figures, that --json has printed.")
@as_json
def bench(
    subject: str,
    sizes: str | None,
    rounds: int | None,
    skip: int | None,
    threads: int | None,
    wildcards: bool,
    against: Path | None,
    as_json: bool,
) -> None:
    """Measures SUBJECT between the kernels of the ranks that run this, on a GPU each.

    SUBJECT is latency, bandwidth, bibw, rate, allreduce, alltoall, pack or overhead.

    Payloads are checked. Figures are of the slowest rank; skew is how much faster the fastest one
    was. In the simulator everything works, and the times mean nothing.
    """
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    former = _former(against, subject)
    _, _, unit, ranks, default = SUBJECTS[subject]
    if ranks and world.size != ranks:
        raise click.UsageError(
            f"{subject} needs {ranks} ranks, got {world.size}: "
            f"gmpi run -n {ranks} -- -m gmpi bench {subject}"
        )
    found = _measured(subject, sizes or default, rounds, skip, threads, wildcards)
    if world.rank:
        return
    if former:
        from gmpi.bench import figures

        figures.compared(found["rows"], former)
    emit(found, as_json, lambda facts: describe(facts, unit))


def _former(path: Path | None, subject: str) -> list[dict[str, Any]]:
    """The rows of a file that --json has printed."""
    if path is None:
        return []
    try:
        facts = json.loads(path.read_text())
        rows = [{"size": row["size"], "value": float(row["value"])} for row in facts["rows"]]
        measured = facts["subject"]
    except (ValueError, KeyError, TypeError):
        text = f"{path} is no output of gmpi bench {subject} --json"
        raise click.BadParameter(text, param_hint="--against") from None
    if measured != subject:
        text = f"{path} has figures of {measured}, not of {subject}"
        raise click.BadParameter(text, param_hint="--against")
    return rows


def powers(text: str) -> list[int]:
    """The powers of two in a range such as 8:64K; of one number: that one."""
    from gmpi.bench.sizes import size_range, sizes_between

    try:
        low, high = size_range(text)
    except ValueError:
        low, high = 1, 0
    found = [n for n in sizes_between(low, high) if n] if ":" in text else [high]
    if not found or found[0] < 1:
        text = f"a range of bytes is two numbers such as 8:64K, got {text!r}"
        raise click.BadParameter(text, param_hint="-m")
    return found


def _measured(
    subject: str,
    sizes: str,
    rounds: int | None,
    skip: int | None,
    threads: int | None,
    wildcards: bool,
) -> dict[str, Any]:
    from importlib import import_module

    from mpi4py import MPI

    import gmpi
    from gmpi.bench.figures import Bench, BenchError

    module, function, unit, _, _ = SUBJECTS[subject]
    wanted = powers(sizes)
    measure = getattr(import_module(f"gmpi.bench.{module}"), function)
    world = MPI.COMM_WORLD
    gmpi.select_gpu(world)
    rows = []
    with gmpi.Context(world, wildcards=wildcards) as g:
        for nbytes in wanted:
            many = rounds or (3 if gmpi.SIMULATOR else 1000 if nbytes <= 65536 else 100)
            few = max(1, many // 10) if skip is None else skip
            width = threads or (32 if gmpi.SIMULATOR else 32 if nbytes <= 64 else 256)
            try:
                found = measure(Bench(g, world, many, few, width), nbytes)
            except BenchError as exc:
                raise click.ClickException(str(exc)) from None
            rows.append({"size": nbytes, "rounds": many, "threads": width, **found})
    return {
        "subject": subject,
        "unit": unit,
        "ranks": world.size,
        "simulator": gmpi.SIMULATOR,
        "wildcards": wildcards,
        "gmpi": gmpi.__version__,
        "rows": rows,
    }


def describe(found: dict[str, Any], unit: str) -> str:
    """OSU's layout: the size in 10 columns, each figure in 20."""
    lines = [f"# gmpi bench {found['subject']}, {found['ranks']} ranks"]
    if found["simulator"]:
        lines.append("# kernels ran in the simulator: these times mean nothing")
    against = any("former" in row for row in found["rows"])
    heads = [unit, "Skew (us)", *(("Former", "Ratio") if against else ())]
    lines.append(f"{'# Size':<10}" + "".join(f"{head:>20}" for head in heads))
    for row in found["rows"]:
        cells = [row["value"], row["skew"]]
        if against:
            cells += [row.get("former", float("nan")), row.get("ratio", float("nan"))]
        lines.append(f"{row['size']:<10}" + "".join(f"{cell:>20.2f}" for cell in cells))
    lines.append("# payloads checked: all right")
    return "\n".join(lines)
