"""Writes the figures in benchmarks/himeno/README.md, and some in docs/himeno.md.

    python docs/measurements/himeno_table.py [--check]

They come from docs/measurements/himeno, where ``tests/gpu/himeno.sh docs/measurements/himeno`` puts
them. Nothing is rounded in favour of a bar: a ratio is compared as it stands in the files.
"""

from __future__ import annotations

import json
import sys
from math import prod
from pathlib import Path
from typing import Any

import click
from tabulate import tabulate

from docs.pages import fill

HERE = Path(__file__).resolve().parent
OWN = HERE / "himeno"
H100 = OWN.parent / "himeno_h100"
H200 = OWN.parent / "himeno_h200"  # all four programs in turns
HIMENO = HERE.parents[1] / "benchmarks" / "himeno"
EXAMPLE = HERE.parent / "himeno.md"
sys.path.insert(0, str(HIMENO))

from _himeno_report import (  # noqa: E402
    beside_example,
    lines_table,
    messages_table,
    pairs,
    read,
    scaling,
)

PROGRAM = "docs/measurements/himeno_table.py"
SHOWN = 5  # persistent plans of a size
EXAMPLES = ("example", "partitioned")  # himeno.py and himeno_partitioned.py
#: What a variant of the examples' sweep is.
VARIANTS = {
    "plain": "as above, 512 threads",
    "b": "and limits for the indices",
    "b-cs": "and `cuda.ldcs`",
    "b-cs-640": "and 640 threads",
    "b-cs-768": "768 threads instead",
    "b-back-cs": "512 threads, odd iterations backwards",
    "b-back-cs-640": "640 threads, odd iterations backwards (as in the example before)",
    "twoj-back-cs": "the same, two rows a thread",
    "stream": "the same bytes without the stencil",
}

Rows = list[dict[str, Any]]


def _table(rows: list[list[Any]], headers: list[str]) -> str:
    return str(tabulate(rows, headers=headers, tablefmt="github", disable_numparse=True))


def _us(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.1f}"


def results(measured: Rows) -> str:
    """Time of an iteration of both programs, and their ratio against its bar."""
    rows = []
    for row in pairs(measured):
        bar, ratio = row["wanted"], row["ratio"]
        verdict = "" if bar is None else ": met" if ratio >= bar else ": **not met**"
        rows.append(
            [
                *(row["size"], row["ranks"], row["cut"]),
                *(_us(row["GMPI us"]), _us(row["CUDA+MPI us"])),
                *(f"{ratio:.3f}", "" if bar is None else f"≥ {bar}{verdict}"),
                *(f"{row['GMPI GFLOPS']:.0f}", "yes" if row["same gosa"] else "**no**"),
            ]
        )
    headers = ["size", "ranks", "cut", "GMPI, us", "CUDA+MPI, us", "CUDA+MPI ÷ GMPI", "bar"]
    return _table(rows, [*headers, "GMPI, GFLOPS", "same gosa"])


def example(measured: Rows) -> str:
    """``examples/himeno.py`` beside the programs that are made for speed."""
    rows = []
    for row in beside_example(measured):
        ratios = [row.get(f"{name} / example") for name in ("GMPI", "CUDA+MPI")]
        shown = ["not measured" if ratio is None else f"{ratio:.2f}" for ratio in ratios]
        if row["wanted"] and ratios[0] is not None:
            verdict = "met" if ratios[0] >= row["wanted"] else "**not met**"
            shown[0] += f" (wanted {row['wanted']}: {verdict})"
        rows.append(
            [row["size"], *(_us(row.get(name)) for name in (*EXAMPLES, "GMPI", "CUDA+MPI")), *shown]
        )
    headers = ["size", "example, us", "partitioned, us", "tuned, us", "CUDA+MPI, us"]
    headers.append("tuned ÷ example")
    return _table(rows, [*headers, "CUDA+MPI ÷ example"])


def readable() -> str:
    """The examples' sweep alone, on one H100, half of the grid; of two runs, the first that has a
    variant."""
    rows = []
    found = []
    for file in ("readable_variants.json", "readable_variants_more.json"):
        have = {row["name"] for row in found}
        more = json.loads((H100 / file).read_text())["rows"]
        found += [row for row in more if row["name"] not in have]
    for name, what in VARIANTS.items():
        mine = {row["size"]: row for row in found if row["name"] == name}
        registers = max(row["registers"] for row in mine.values())
        rows.append([what, registers, *(_us(mine[size]["us"]) for size in ("M", "L", "XL"))])
    return _table(rows, ["sweep", "registers", "M, us", "L, us", "XL, us"])


def parts(measured: Rows) -> str:
    """Where the time of an iteration goes."""
    names = ["iteration", "compute", "boundary", "halo", "convergence", "exposed"]
    rows = [
        [row["program"], row["name"], row["ranks"]]
        + [f"{row['breakdown'][n]:.1f}" if n in row["breakdown"] else "-" for n in names]
        for row in measured
        if "breakdown" in row
    ]
    return _table(rows, ["program", "size", "ranks", *(f"{name}, us" for name in names)])


def lines() -> str:
    rows = [[row["program"], f"`{row['files']}`", row["lines"]] for row in lines_table()]
    return _table(rows, ["program", "files", "lines of code"])


def sweeps(directory: Path) -> str:
    """The sweep alone, on one GPU: the fastest launched plan, and the fastest ones of those that
    stay."""
    path = directory / "sweeps.json"
    if not path.exists():
        return "not measured"
    found = json.loads(path.read_text())
    rows = []
    for size in dict.fromkeys(row["size"] for row in found["rows"]):
        mine = [row for row in found["rows"] if row["size"] == size and "us" in row]
        launched, persistent, wave = (
            sorted((row for row in mine if row["kind"] == kind), key=lambda row: row["us"])
            for kind in ("launched", "persistent", "wave")
        )
        best = launched[0]["us"]
        for row in [launched[0], *persistent[:SHOWN], *wave[:SHOWN]]:
            times = [f"{row['us']:.2f}", f"{row['us'] / best:.3f}"]
            times.append(f"{row['us'] / row['ideal_us']:.3f}")
            rows.append([size, row["kind"], row["plan"], row["registers"], *times])
    headers = ["size", "kernel", "plan", "registers", "us", "÷ launched", "÷ 56 B a point"]
    return _table(rows, headers)


def ncu(directory: Path) -> str:
    """The sweep in ncu, with its heading; nothing where it was not measured."""
    path = directory / "himeno-ncu.json"
    if not path.exists():
        return ""
    found = json.loads(path.read_text())
    rows = []
    for row in found["rows"]:
        shown = [row["size"], row["kind"], row["plan"], f"{row['registers']:.0f}"]
        shown += [f"{row[name]:.1f}" for name in ("us", "bytes_per_point")]
        shown += [f"{row['TB_per_s']:.2f}", f"{row['of_copy']:.0%}", f"{row['in_flight_KiB']:.1f}"]
        for name in ("occupancy_percent", "l1_hit_percent", "l2_hit_percent"):
            shown.append(f"{row[name]:.0f} %" if name in row else "-")
        rows.append(shown)
    headers = ["size", "kernel", "plan", "registers", "us", "B a point", "TB/s", "of device copy"]
    headers += ["KiB in flight an SM", "occupancy", "L1 hits", "L2 hits"]
    copy = found["copy_bytes_per_s"] * 1e-12
    share = {1: "the whole", 2: "half of the"}[prod(found.get("ranks", [1]))]
    text = f"""### The sweep in ncu

What Nsight Compute counts on one GPU that holds {share} grid (`tests/gpu/himeno_ncu.sh`), with
the plans that the programs choose: bytes to and from device memory, for each point of the grid and
in a second, and the same as a share of a device copy's {copy:.2f} TB/s. Bytes in flight follow from
Little's law: bandwidth times the {found["latency_ns"]:.0f} ns of a lone read, a lower bound."""
    return f"{text}\n\n{_table(rows, headers)}"


def scaled(directory: Path) -> str:
    """Strong and weak scaling, with their heading; nothing where they were not measured."""
    table = scaling(read(directory, "scaling-*.json"))
    if not table:
        return ""
    rows = [
        [row["scaling"], row["grid"], row["program"], row["ranks"], row["where"].split(",")[0]]
        + [_us(row["us"]), f"{row['efficiency']:.2f}"]
        for row in table
    ]
    headers = ["scaling", "grid", "program", "ranks", "on", "iteration, us", "efficiency"]
    text = """## Scaling

*Strong*: the same grid on more ranks, efficiency T1 / (N TN). *Weak*: the grid grows along i, each
rank has as much as one had before, efficiency T1 / TN."""
    plot = "![efficiency by number of ranks](../../docs/measurements/himeno/himeno-scaling.png)"
    return f"{text}\n\n{_table(rows, headers)}\n\n{plot}"


def messages(directory: Path) -> str:
    """Into how many messages a face is cut, with its heading; nothing if not measured."""
    table = messages_table(directory)
    if not table:
        return ""
    names = ["us", "boundary", "halo", "exposed"]
    rows = [
        [row["size"], row["ranks"], row["communicating"], row["messages"]]
        + ["-" if row.get(name) is None else f"{row[name]:.1f}" for name in names]
        for row in table
    ]
    headers = ["size", "ranks", "multiprocessors that communicate", "messages for a face"]
    headers += ["iteration, us", "boundary, us", "halo, us", "exposed, us"]
    where = ", ".join(sorted({row["where"] for row in read(directory, "messages*.json")}))
    text = f"""### In how many messages

Measured on {where}. A face of size S has 32 KiB. Where every communicating block has messages, the
sum over all ranks has to wait for one of them; and two blocks of one multiprocessor that both poll
hold each other up."""
    return f"{text}\n\n{_table(rows, headers)}"


def machines(directory: Path) -> str:
    """Where the figures come from, a line for each file."""
    found = []
    for path in sorted(directory.glob("*.json")):
        data = json.loads(path.read_text())
        if "machine" in data and path.stem != "himeno":
            machine = data["machine"]
            gpus = machine["gpu"]
            versions = ", ".join(f"{n} {v}" for n, v in machine["versions"].items())
            found.append(
                f"* `himeno/{path.name}`: {len(gpus)} x {gpus[0]}; {machine['cpu']}, "
                f"{machine['cores']} cores; {machine['mpi'].split(',')[0]}; Python "
                f"{machine['python']}, {versions}; commit {machine['commit']}"
            )
    return "\n".join(found)


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--check", is_flag=True, help="Only say whether the page is up to date.")
@click.option("--directory", type=click.Path(path_type=Path), default=OWN)
@click.option("--page", type=click.Path(path_type=Path), default=HIMENO / "README.md")
def main(check: bool, directory: Path, page: Path) -> None:
    measured = read(directory)
    contents = {"results": results(measured), "parts": parts(measured), "lines": lines()}
    contents |= {"sweeps": sweeps(directory), "machines": machines(directory)}
    contents |= {"ncu": ncu(directory), "scaling": scaled(directory)}
    contents |= {"messages": messages(directory)}
    pages = {page: contents}
    if directory == OWN:
        there = read(H100)
        contents["h100"] = results([row for row in there if row["program"] in ("GMPI", "CUDA+MPI")])
        pages[EXAMPLE] = {
            "example": example(there), "example_h200": example(read(H200)), "sweep": readable()
        }  # fmt: skip
    for path, blocks in pages.items():
        old = new = path.read_text()
        for name, content in blocks.items():
            new = fill(new, PROGRAM, name, content)
        if new != old and check:
            raise click.ClickException(f"{path} is out of date: run python {PROGRAM}")
        if new != old:
            path.write_text(new)


if __name__ == "__main__":
    main()
