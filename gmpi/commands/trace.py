"""``gmpi trace``: the files that ``GMPI_TRACE_FILE`` makes each rank write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from gmpi.commands.show import as_json, emit, examples, odd, section, table

_FILES = click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
_LISTED = 20


def _read(files: tuple[Path, ...]) -> list[dict[str, Any]]:
    from gmpi.trace import merge

    try:
        return merge.read(list(files))
    except merge.TraceError as exc:
        raise click.ClickException(str(exc)) from None


@click.group(
    epilog=examples(
        "GMPI_TRACE_FILE=run gmpi run -n 2 examples/hello.py   # writes run.0.json, run.1.json",
        "gmpi trace summary run.0.json run.1.json",
    )
)
def trace() -> None:
    """Traces of ranks: joins them, and says where the time goes."""


@trace.command("merge", epilog=examples("gmpi trace merge run.0.json run.1.json -o run.json"))
@_FILES
@click.option("-o", "output", required=True, type=click.Path(dir_okay=False, path_type=Path),
              help="Where to.")  # fmt: skip
@as_json
def merge_command(files: tuple[Path, ...], output: Path, as_json: bool) -> None:
    """Joins the traces of all ranks of a job, with an arrow from each send to its receive.

    Open the result at https://ui.perfetto.dev, or in chrome://tracing.
    """
    from gmpi.trace import merge

    ranks = _read(files)
    found, alone = merge.pairs(ranks)
    try:
        output.write_text(merge.text_of(ranks))
    except OSError as exc:
        raise click.ClickException(f"{output} cannot be written: {exc.strerror}") from None
    facts = {
        "file": str(output), "ranks": len(ranks), "messages": len(found),
        "without_other_end": len(alone),
    }  # fmt: skip
    emit(facts, as_json, lambda f: (
        f"{f['file']}: {f['ranks']} ranks, {f['messages']} messages"
        + (odd(f", {len(alone)} without their other end") if alone else "")
    ))  # fmt: skip


@trace.command(epilog=examples("gmpi trace summary run.json", "gmpi trace summary run.*.json"))
@_FILES
@as_json
def summary(files: tuple[Path, ...], as_json: bool) -> None:
    """Time by operation, peer and phase; late senders; imbalance; overlap achieved.

    FILES are those of all ranks, or one that gmpi trace merge has written.
    """
    from gmpi.trace.summary import summarize

    emit(summarize(_read(files)), as_json, describe)


def describe(found: dict[str, Any]) -> str:
    """``summarize`` as text; times in microseconds."""
    head = f"{found['ranks']} of {found['size']} ranks, {found['messages']} messages"
    if found["without_other_end"]:
        head += odd(f", {found['without_other_end']} without their other end")
    head += f"; clocks agree within {found['clock_error_us']:.2f} us; times in us"
    lines = [head]
    if found["simulator"]:
        lines.append(odd("kernels ran in the simulator: these times mean nothing"))
    lost = ", ".join(f"{n} {what}" for what, n in found["lost"].items() if n)
    if lost:
        lines.append(odd(f"there was no room for {lost}: set GMPI_TRACE to a larger number"))
    parts = ["\n".join(lines)]
    for title, key in (
        ("Calls", "by_operation"),
        ("Messages between ranks", "by_peer"),
        ("One-sided calls", "by_access"),
        ("Phases on the proxied road", "by_phase"),
        ("Late senders", "late_senders"),
        ("Collectives", "collectives"),
        ("Ranks", "by_rank"),
    ):
        if found[key]:
            parts.append(section(title, table([_row(row) for row in found[key][:_LISTED]])))
    return "\n\n".join(parts)


def _row(row: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", " "): _cell(name, value) for name, value in row.items()}


def _cell(name: str, value: Any) -> Any:
    if name == "overlap":
        return "-" if value is None else f"{100 * value:.0f} %"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return round(value, 2) if isinstance(value, float) else value
