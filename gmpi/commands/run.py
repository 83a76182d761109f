"""``gmpi run``: a program on ranks of this node, with all that it needs around it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import click

from gmpi.commands.launching import Plan, mps_daemon, plan
from gmpi.commands.show import as_json, emit, examples


@click.command(
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False},
    epilog=examples(
        "gmpi run -n 2 examples/hello.py",
        "gmpi run -n 4 --simulator my_program.py --steps 10",
        "gmpi run -n 2 --dry-run my_program.py",
    ),
)
@click.option("-n", "ranks", type=click.IntRange(1), required=True, metavar="N", help="Ranks.")
@click.option(
    "--simulator/--gpu", default=None, help="Where kernels run; default: on GPUs, if there are any."
)
@click.option("--no-mps", is_flag=True, help="Start no MPS daemon where ranks share a GPU.")
@click.option("--mpiexec", metavar="PATH", help="Another one than that of this Python.")
@click.option("--dry-run", is_flag=True, help="Only print what would be run.")
@as_json
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    ranks: int,
    simulator: bool | None,
    no_mps: bool,
    mpiexec: str | None,
    dry_run: bool,
    as_json: bool,
    program: tuple[str, ...],
) -> None:
    """Runs PROGRAM with its arguments on N ranks of this node.

    That is mpiexec with the right variables: Open MPI may start more ranks than there are cores,
    MPS runs as long as the ranks where they share a GPU, and kernels run in the simulator where
    there is no GPU. A Python file runs with the Python of this command. --json prints what would be
    run. Ends as the program does.
    """
    made = plan(ranks, program, mpiexec=mpiexec, simulator=simulator, mps=not no_mps)
    if dry_run or as_json:
        emit(made.facts(), as_json, lambda _: describe(made))
        return
    if program[0].endswith(".py") and not Path(program[0]).is_file():
        raise click.UsageError(f"no file {program[0]} in {Path.cwd()}")
    for note in made.notes:
        click.echo(f"gmpi run: {note}", err=True)
    raise SystemExit(start(made))


def describe(made: Plan) -> str:
    """A line for a shell, below the notes."""
    words = [f"{name}={shlex.quote(value)}" for name, value in made.variables.items()]
    return "\n".join([*(f"# {note}" for note in made.notes), " ".join(words) + " \\",
                      f"  {shlex.join(made.command)}"])  # fmt: skip


def start(made: Plan, **options: Any) -> int:
    """Runs it to its end: its exit status, as a shell has it. Ctrl-C and SIGTERM are its own."""
    with mps_daemon(made.mps) as more:
        env = {**os.environ, **made.variables, **more}
        process = subprocess.Popen(made.command, env=env, **options)
        before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        try:
            while True:
                try:
                    status = process.wait()
                    break
                except KeyboardInterrupt:  # the terminal has told the ranks, too
                    continue
        finally:
            signal.signal(signal.SIGTERM, before)
    return status if status >= 0 else 128 - status
