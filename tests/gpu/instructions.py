"""Cycles of each instruction of a message (instructions.sh).

    python tests/gpu/instructions.py run [--trace] [--gaps] [--bytes N --threads N]   under ncu
    python tests/gpu/instructions.py table DIRECTORY --json FILE

The profiler looks every 32 cycles at which instruction a warp stands, in each of the four parts of
a multiprocessor at one warp, in turns. So the samples of an instruction are the cycles that a warp
has waited before it could issue it: of one warp, or the mean of many.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from mpi4py import MPI
from numba import cuda
from tabulate import tabulate

import gmpi
from gmpi import GMPI_Irecv, GMPI_Isend, GMPI_Wait

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
from _bench import write_json

ROUNDS = 3 if gmpi.SIMULATOR else 20_000  # of one warp
INTERVAL = 32  # cycles between two samples
PARTS = 4  # of a multiprocessor, each with a sampler and warps of its own
COSTLY = 20  # cycles


class Instruction(NamedTuple):
    address: int
    text: str
    cycles: float


# wide: a kernel
@cuda.jit
def exchange_self(ctx, out, back, count, datatype, rounds, comm):
    for _ in range(rounds):
        receive = GMPI_Irecv(ctx, back, count, datatype, 0, 1, comm)
        send = GMPI_Isend(ctx, out, count, datatype, 0, 1, comm)
        GMPI_Wait(ctx, send)
        GMPI_Wait(ctx, receive)


def rounds_of(threads: int) -> int:
    """Of a block: the profiler drops samples where many warps run for long."""
    return ROUNDS if threads <= 32 else max(ROUNDS * 2 // threads, 1)


def functions(text: str, rounds: int) -> dict[str, list[Instruction]]:
    """Of each function the instructions that ran, in order, with their cycles in a round.

    Args:
        text: what ncu prints of its source page, as CSV.
        rounds: how often they ran in the parts of a multiprocessor, taken together.
    """
    found: dict[str, dict[int, Instruction]] = {}
    name = ""
    for row in csv.reader(text.splitlines()):
        if row[:1] == ["Kernel Name"]:
            name = row[1].split("[")[0].removeprefix("__main__::")
        elif len(row) == 3 and row[0].startswith("0x"):
            cycles = float(row[2].replace(",", "") or 0) * INTERVAL / rounds
            address = int(row[0], 16)
            found.setdefault(name, {})[address] = Instruction(address, row[1].strip(), cycles)
    ran = {
        name: [each for _, each in sorted(those.items()) if each.cycles > 0]
        for name, those in found.items()
    }
    return {name: those for name, those in ran.items() if those}


def rows_of(case: str, text: str, rounds: int) -> list[dict[str, Any]]:
    """A row for each function: its cycles in a round, and its costliest instructions."""
    rows = []
    for name, those in functions(text, rounds).items():
        first = those[0].address
        costly = [
            {"offset": each.address - first, "instruction": each.text, "cycles": each.cycles}
            for each in those
            if each.cycles >= COSTLY
        ]
        cycles = sum(each.cycles for each in those)
        row = {"case": case, "function": name, "cycles": cycles, "instructions": len(those)}
        rows.append(row | {"costly": costly})
    return rows


@click.group()
def main() -> None:
    """Cycles of each instruction of a short message."""


@main.command()
@click.option("--trace", is_flag=True, help="With a trace file.")
@click.option("--gaps", is_flag=True, help="Of words of 8 bytes, with as much between them.")
@click.option("--bytes", "nbytes", default=8, help="Of a message.")
@click.option("--threads", default=32, help="Of the block.")
def run(trace: bool, gaps: bool, nbytes: int, threads: int) -> None:
    """Sends a message to itself, again and again; under the profiler."""
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, Any] = {"trace_file": f"{folder}/trace.json"} if trace else {}
        with gmpi.Context(MPI.COMM_WORLD, wildcards=False, **settings) as g:
            out, back = (cuda.to_device(np.zeros(2 * nbytes, np.uint8)) for _ in range(2))
            message = nbytes, gmpi.BYTE
            if gaps:
                message = 1, g.commit(MPI.DOUBLE.Create_vector(nbytes // 8, 1, 2))
            for rounds in (10, rounds_of(threads)):
                exchange_self[1, threads](g.device, out, back, *message, rounds, gmpi.COMM_WORLD)
                g.synchronize()
            if gaps:
                g.free(message[1])


@main.command()
@click.argument("directory", type=click.Path(exists=True, path_type=Path))
@click.option("--json", "file", type=click.Path(path_type=Path), required=True)
def table(directory: Path, file: Path) -> None:
    """Writes JSON of what the profiler has found, and a table.

    ``DIRECTORY``: files NAME-THREADS.csv of what ncu prints of its source page.
    """
    rows = []
    for path in sorted(directory.glob("*.csv")):
        name, threads = path.stem.split("-")
        parts = min(max(int(threads) // 32, 1), PARTS)
        rows += rows_of(name, path.read_text(), rounds_of(int(threads)) * parts)
    if not rows:
        raise click.ClickException(f"{directory} has nothing that ncu has sampled")
    write_json(str(file), {"benchmark": "instructions", "rounds": ROUNDS, "rows": rows})
    shown = [[r["case"], r["function"], r["cycles"], r["instructions"]] for r in rows]
    click.echo(tabulate(shown, ("case", "function", "cycles", "instructions"), floatfmt=".0f"))


if __name__ == "__main__":
    main()
