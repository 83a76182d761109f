"""What ``tests/gpu/scaling.sh`` has measured: its JSON files, and their tables in docs/scaling.md.

Of several files, a figure of a later one stands in place of the same one of an earlier one, and the
tables mark it. Pairs are shown of each file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tabulate import tabulate

MEASURED = Path(__file__).resolve().parent.parent / "docs" / "measurements"
PAIRS, WEAK, ALLTOALL = 1.1, 0.95, 0.8  # the project's bars
ALLREDUCE = {4: 2.5, 8: 3.0}  # us
LONG = 64 << 20
LINK = (
    450.0  # GB/s out of a GPU: NVLink of H100 and H200, 18 links of 25 each (NVIDIA's data sheets)
)
GROWING = ("halo26",)  # each rank has as much, however many there are
RANKS = (1, 2, 4)
MARKS = ("", "²", "³")  # of what the second and the third file have measured
SIZES = {"64x64x128": "S", "128x128x256": "M", "256x256x512": "L", "512x512x1024": "XL"}
PROGRAMS = {"himeno_tuned": "GMPI", "himeno_cuda_mpi": "CUDA + MPI"}

Found = dict[str, Any]
Value = tuple[float, int]  # and the number of its file
Series = dict[Any, dict[int, Value]]  # by what it is, and by the number of ranks


def load() -> list[Found]:
    """The files, oldest first: ``scaling-4gpu.json``, and what was measured later."""
    paths = sorted(MEASURED.glob("scaling*-4gpu.json"), key=lambda path: (len(path.name), path))
    return [{**json.loads(path.read_text()), "name": path.name} for path in paths]


def of_pairs(rows: list[Found], road: str, size: int) -> dict[tuple[int, int], float]:
    """One way between the ranks of each pair, in us. Of its turns the quickest counts."""
    us: dict[tuple[int, int], float] = {}
    for row in rows:
        if (row["road"], row["size"]) == (road, size):
            low, high = row["ranks"]
            us[low, high] = min(us.get((low, high), row["p50"]), row["p50"])
    return us


def part_of(size: str, cut: str) -> str:
    """The part of one rank of Himeno's grid."""
    sizes = (map(int, text.split("x")) for text in (size, cut))
    return "x".join(str(whole // ranks) for whole, ranks in zip(*sizes, strict=True))


def with_efficiency(himeno: list[Found]) -> None:
    """Adds it: strong, T1 / (N TN), where one rank has had the same grid; weak, T1 / TN, where it
    has had what is now the part of each."""
    alone = {(row["program"], row["size"]): row["us"] for row in himeno if row["ranks"] == 1}
    for row in himeno:
        program, part = row["program"], part_of(row["size"], row["decomposition"])
        if (program, row["size"]) in alone:
            row["strong"] = alone[program, row["size"]] / row["ranks"] / row["us"]
        if (program, part) in alone:
            row["weak"] = alone[program, part] / row["us"]


def with_gain(applications: list[Found]) -> None:
    """Adds the efficiency of each case, by what one rank does: weak or strong."""
    alone = {(row["name"], row["case"]): row["value"] for row in applications if row["ranks"] == 1}
    for row in applications:
        one = alone.get((row["name"], row["case"]))
        if one:
            faster = row["value"] / one if row["more"] else one / row["value"]
            row["efficiency"] = faster / (1 if row["name"] in GROWING else row["ranks"])


def merged(files: list[Found], name: str, *keys: str) -> list[Found]:
    """The rows of all files, each with the number of its ``file``; later ones replace others."""
    rows: dict[Any, Found] = {}
    for number, found in enumerate(files):
        for row in found[name]:
            rows[tuple(row[key] for key in keys)] = {**row, "file": number}
    return list(rows.values())


def himeno(files: list[Found]) -> list[Found]:
    rows = merged(files, "himeno", "program", "size", "decomposition")
    with_efficiency(rows)
    return rows


def collectives(files: list[Found]) -> Series:
    """Medians in us by (call, bytes, threads, whether a grid calls, road)."""
    series: Series = {}
    for number, found in enumerate(files):
        for ranks, run in found["all_ranks"].items():
            for row in run.get("collectives", []):  # as older files have them: of a block
                if row["scope"] == "block":
                    key = row["call"], row["size"], row["threads"], False, row["road"]
                    series.setdefault(key, {})[int(ranks)] = row["p50"], number
        for ranks, run in found["collectives"].items():
            for row, road in ((r, way) for r in run["rows"] for way in ("direct", "proxied")):
                key = row["call"], row["size"], row["threads"], row["blocks"] > 1, road
                if road in row:
                    series.setdefault(key, {})[int(ranks)] = row[road]["p50"], number
    return series


def long_collectives(files: list[Found]) -> Series:
    """Times in us of 64 MiB, or 64 MiB a block, by all blocks of a grid, by what they are and how
    many bytes an Alltoall sends to each other rank (else 0)."""
    series: Series = {}
    for number, found in enumerate(files):
        for ranks, run in found.get("collectives_long", {}).items():
            for row in run["rows"]:
                memory = "registered" if row["registered"] else "any memory"
                what = f"{row['call']} of 64 MiB, {row['threads']} threads a block, {memory}"
                key = what, LONG if row["call"] == "Alltoall" else 0
                if row["size"] == LONG:
                    series.setdefault(key, {})[int(ranks)] = row["direct"]["p50"], number
    return series


def rates(files: list[Found]) -> Series:
    """Million messages a second of each rank, by road."""
    series: Series = {}
    for number, found in enumerate(files):
        for ranks, run in found["all_ranks"].items():
            for row in run["rates"]:
                series.setdefault(row["road"], {})[int(ranks)] = row["per_second"] / 1e6, number
    return series


def table(rows: list[list[Any]], *head: str) -> str:
    return tabulate(rows, list(head), tablefmt="github", disable_numparse=True)


def _shown(values: dict[int, Value], digits: int = 2) -> list[str]:
    cells = (values.get(ranks) for ranks in RANKS)
    return [f"{cell[0]:.{digits}f}{MARKS[cell[1]]}" if cell else "" for cell in cells]


def _verdict(met: bool) -> str:
    return "yes" if met else "**no**"


def _pairs(files: list[Found]) -> Iterator[list[str]]:
    """Quickest to slowest of all pairs, of each file."""
    for road in ("direct", "proxied"):
        for size, words in ((8, "8 B"), (65536, "64 KiB")):
            for number, found in enumerate(files):
                row = [f"one way of {words}, {road}, us", ""]
                each: list[float] = []
                for ranks in RANKS[1:]:
                    run = found["all_ranks"].get(str(ranks), {"pairs": []})
                    each = sorted(of_pairs(run["pairs"], road, size).values())
                    ends = sorted({f"{us:.2f}" for us in (*each[:1], *each[-1:])}, key=float)
                    row.append(" to ".join(ends) + (MARKS[number] if each else ""))
                if any(row[1:]):
                    ratio = each[-1] / each[0] if each else 0
                    bar = [
                        f"slowest / quickest ≤ {PAIRS}",
                        f"{_verdict(ratio <= PAIRS)}: {ratio:.2f}",
                    ]
                    yield row + (bar if each else ["", ""])


def four(files: list[Found]) -> str:
    """Pairs, rates and collectives on one, two and four GPUs."""
    rows = list(_pairs(files))
    for road, values in rates(files).items():
        rows.append([f"million messages/s of each rank, {road}", *_shown(values, 2), "", ""])
    found = collectives(files)
    shown = [("Barrier", 0, 256, False, "direct")]
    shown += [("Allreduce", 8, threads, False, "direct") for threads in (256, 1024)]
    shown += [("Allreduce", 8, 256, False, "proxied")]
    shown += [(call, 8, 256, False, "direct") for call in ("Bcast", "Allgather", "Alltoall")]
    shown += [("Allreduce", 8, 1024, True, "direct")]
    for key in shown:
        call, size, threads, grid, road = key
        values = found.get(key, {})
        what = f"{call}{f' of {size} B' if size else ''}, {'a grid' if grid else 'a block'}"
        row = [f"{what} of {threads} threads, {road}, us", *_shown(values), "", ""]
        if call == "Allreduce" and 4 in values and not grid and road == "direct":
            row[-2:] = [f"≤ {ALLREDUCE[4]}", _verdict(values[4][0] <= ALLREDUCE[4])]
        rows.append(row)
    for (what, sent), values in long_collectives(files).items():
        row = [f"grid: {what}, us", *_shown(values, 0), "", ""]
        if sent and 4 in values:
            share = sent * 3 / values[4][0] / 1e3 / LINK
            row[-2:] = [f"≥ {ALLTOALL} of the link", f"{_verdict(share >= ALLTOALL)}: {share:.2f}"]
        rows.append(row)
    return table(rows, "", "1 GPU", "2 GPUs", "4 GPUs", "bar", "met")


def sources(files: list[Found]) -> str:
    """The files, what machine each is of, and the mark of its figures."""
    lines = []
    for mark, found in zip(MARKS, files, strict=False):
        machine = found["machine"]
        gpus = f"{len(machine['gpu'])} x {machine['gpu'][0]}; {machine['cores']} cores"
        name = f"[`{found['name']}`](measurements/{found['name']})"
        what = f"{gpus}; {machine['mpi']}; commit {machine['commit']}"
        if machine.get("gpu_id") != files[0]["machine"].get("gpu_id"):
            what += "; another machine"
        lines.append(f"* {f'Marked {mark}: ' if mark else ''}{name}: {what}")
    if len(files) > 1:
        lines.append("* T1 of an efficiency is of the last of these files that has it.")
    return "\n".join(lines)


def _himeno(files: list[Found], kind: str) -> str:
    """Efficiencies by the grid, or by the part of a rank, and by cut and program."""
    cells: dict[str, dict[tuple[str, str], str]] = {}
    for row in himeno(files):
        if kind in row and row["ranks"] > 1:
            size, cut = row["size"], row["decomposition"]
            shown = size if kind == "strong" else part_of(size, cut)
            text = f"{row[kind]:.2f}{MARKS[row['file']]}"
            if kind == "weak" and row["program"] == "himeno_tuned" and row[kind] < WEAK:
                text = f"**{text}**"
            cells.setdefault(shown, {})[row["program"], cut] = text
    columns = [(p, cut) for p in PROGRAMS for cut in ("2x1x1", "4x1x1", "2x2x1")]
    columns = [key for key in columns if any(key in row for row in cells.values())]
    rows = [[SIZES[size], *(row.get(key, "") for key in columns)] for size, row in cells.items()]
    first = "grid" if kind == "strong" else "each rank has"
    return table(rows, first, *(f"{PROGRAMS[p]}, {cut}" for p, cut in columns))


def weak(files: list[Found]) -> str:
    return _himeno(files, "weak")


def strong(files: list[Found]) -> str:
    return _himeno(files, "strong")


def applications(files: list[Found]) -> list[Found]:
    rows = merged(files, "applications", "name", "case", "ranks")
    with_gain(rows)
    return rows


def programs(files: list[Found]) -> str:
    """Efficiencies of the applications on two and four ranks."""
    rows: dict[tuple[str, str], dict[int, str]] = {}
    for row in applications(files):
        text = f"{row['efficiency']:.2f}{MARKS[row['file']]}" if "efficiency" in row else ""
        rows.setdefault((row["name"], row["case"]), {})[row["ranks"]] = text
    lines = [
        [*key, "weak" if key[0] in GROWING else "strong", *(by_ranks.get(n, "") for n in RANKS[1:])]
        for key, by_ranks in rows.items()
    ]
    return table(lines, "program", "case", "scaling", "2 GPUs", "4 GPUs")


TABLES = {"sources": sources, "calls": four, "weak": weak, "strong": strong, "programs": programs}
