"""Tables and plots from the figures of both Himeno programs.

    python benchmarks/himeno/_himeno_report.py DIRECTORY

Reads what the programs have written there (``--json``), ``himeno-*.json`` for the comparison,
``scaling-*.json`` and ``messages*.json``; writes ``himeno.json`` and PNG files.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tokenize
from pathlib import Path
from typing import Any

from tabulate import tabulate

HERE = Path(__file__).resolve().parent
_GMPI = ["himeno_tuned.py", "_himeno_persistent.py", "_himeno_barrier.py"]
#: What each program consists of beside the files that both share.
PROGRAMS = {
    "GMPI, halos as messages": [*_GMPI, "_himeno_messages.py"],
    "GMPI, halos as partitions": [*_GMPI, "_himeno_partitions.py"],
    "GMPI, two iterations together": [*_GMPI[:2], "_himeno_together.py"],
    "CUDA+MPI": ["himeno_cuda_mpi.py", "_himeno_graph.py"],
}
#: Time of CUDA+MPI / time of GMPI that this project has set itself.
WANTED = {"S": 3.5, "M": 2.5, "L": 1.2, "XL": 1.01}
#: Time of the tuned program / time of ``examples/himeno.py``.
WANTED_OF_EXAMPLE = {"M": 0.75, "L": 0.75, "XL": 0.75}


def lines_of_code(path: Path) -> int:
    """Lines that hold code: no comments, no docstrings, no blank lines."""
    code: set[int] = set()
    skip = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    skip |= {tokenize.ENCODING, tokenize.ENDMARKER}
    tokens = list(tokenize.generate_tokens(io.StringIO(path.read_text()).readline))
    fresh = True  # at the begin of a statement, where a string is a docstring
    for token in tokens:
        if token.type == tokenize.STRING and fresh:
            continue
        if token.type in skip:
            fresh = token.type != tokenize.COMMENT or fresh
            continue
        fresh = False
        code.update(range(token.start[0], token.end[0] + 1))
    return len(code)


def lines_table() -> list[dict[str, Any]]:
    counts = {name: sum(lines_of_code(HERE / f) for f in files) for name, files in PROGRAMS.items()}
    return [
        {"program": name, "files": " ".join(PROGRAMS[name]), "lines": lines}
        for name, lines in counts.items()
    ]


def read(directory: Path, pattern: str = "himeno-*.json") -> list[dict[str, Any]]:
    """Everything that was measured, a row for each program, size and decomposition."""
    rows = []
    for path in sorted(directory.glob(pattern)):
        found = json.loads(path.read_text())
        if found.get("benchmark") == "himeno":
            for row in found["rows"]:
                if "us" in row:
                    rows.append({**row, "program": found["program"], "where": found["where"],
                                 "machine": found["machine"]})  # fmt: skip
    return rows


def pairs(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each size, number of ranks and decomposition that both programs measured."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        if row["program"] == "example":
            continue
        key = (row["name"], row["ranks"], row["decomposition"], row["where"])
        kind = "stamped" if "breakdown" in row and row["program"] == "GMPI" else "plain"
        mine = found.setdefault(key, {})
        best = mine.get((row["program"], kind))
        if best is None or row["us"] < best["us"]:
            mine[row["program"], kind] = row
    table = []
    for (name, ranks, cut, _), mine in found.items():
        ours, theirs = mine.get(("GMPI", "plain")), mine.get(("CUDA+MPI", "plain"))
        ours_in, theirs_in = mine.get(("GMPI", "stamped")), theirs
        ours = ours or ours_in
        if ours is None or theirs is None:
            continue
        row = {
            "size": name,
            "ranks": ranks,
            "cut": cut,
            "GMPI us": ours["us"],
            "CUDA+MPI us": theirs["us"],
            "ratio": theirs["us"] / ours["us"],
            "wanted": WANTED.get(name),
            "GMPI GFLOPS": ours["mflops"] / 1e3,
            "same gosa": abs(ours["gosa"] / theirs["gosa"] - 1) < 1e-6,
        }
        parts = [r.get("breakdown") for r in (ours_in or {}, theirs_in)]
        if parts[0] and parts[1]:
            row["compute GMPI"], row["compute CUDA"] = parts[0]["compute"], parts[1]["compute"]
            row["compute ratio"] = parts[0]["compute"] / parts[1]["compute"]
        table.append(row)
    return table


def best(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The fastest row of each size."""
    found: dict[str, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: float(row["us"])):
        found.setdefault(row["name"], row)
    return found


def beside_example(measured: list[dict[str, Any]], ranks: int = 2) -> list[dict[str, Any]]:
    """For each size on so many ranks: times in us of ``examples/himeno.py``, of
    ``himeno_partitioned.py`` beside it and of the two programs here, and their times / the
    example's; what was not measured is left out."""
    measured = [row for row in measured if row["ranks"] == ranks]
    programs = {
        name: best([row for row in measured if row["program"] == name and "breakdown" not in row])
        for name in ("example", "partitioned", "GMPI")
    }
    programs["CUDA+MPI"] = best([row for row in measured if row["program"] == "CUDA+MPI"])
    table = []
    for size in ("S", "M", "L", "XL"):
        rows = {name: found[size] for name, found in programs.items() if size in found}
        row: dict[str, Any] = {"size": size, "wanted": WANTED_OF_EXAMPLE.get(size)}
        row |= {name: found["us"] for name, found in rows.items()}
        if "example" in rows:
            for name in rows.keys() - {"example"}:
                row[f"{name} / example"] = row[name] / row["example"]
                row[f"gosa of {name}"] = rows[name]["gosa"] / rows["example"]["gosa"] - 1
        if rows:
            table.append(row)
    return table


def scaling(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Strong scaling, T1 / (N TN) of the same grid, and weak, T1 / TN of the same part of it."""
    single = {(r["program"], r["size"]): r["us"] for r in rows if r["ranks"] == 1}
    names = {r["size"]: r["name"] for r in rows if r["ranks"] == 1}
    table = []
    for r in rows:
        ranks, size = r["ranks"], [int(n) for n in r["size"].split("x")]
        part = "x".join(str(n // int(d)) for n, d in zip(size, r["decomposition"].split("x")))
        for kind, grid, work in (("strong", r["size"], ranks), ("weak", part, 1)):
            base = single.get((r["program"], grid))
            if base is not None:
                found = {"scaling": kind, "program": r["program"], "grid": names[grid]}
                found.update({"ranks": ranks, "us": r["us"], "efficiency": base / work / r["us"]})
                table.append({**found, "where": r["where"]})
    return sorted(table, key=lambda r: (r["scaling"], r["grid"], r["program"], r["ranks"]))


def messages_table(directory: Path) -> list[dict[str, Any]]:
    """Time of an iteration by number of messages of a face and of multiprocessors for them."""
    names = ["size", "ranks", "communicating", "messages", "us"]
    parts = ["boundary", "halo", "exposed"]
    table: dict[tuple[int, ...], dict[str, Any]] = {}
    for row in read(directory, "messages*.json"):
        key = row["ranks"], row["communicating"], row["messages"]
        mine = table.setdefault(key, {"size": row["name"], **dict(zip(names[1:], key)), "us": None})
        if "breakdown" in row:
            mine.update({name: row["breakdown"][name] for name in parts})
        else:
            mine["us"] = row["us"]
    return [table[key] for key in sorted(table)]


def panels_of(size: tuple[float, float], rows: int, columns: int, **options: Any) -> Any:
    """A figure of so many inches, and Axes[rows, columns]."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size)
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def plot_scaling(table: list[dict[str, Any]], directory: Path) -> None:
    figure, (panels,) = panels_of((8, 3.6), 1, 2, sharey=True)
    for axes, kind in zip(panels, ("strong", "weak")):
        lines: dict[tuple[str, str], list[tuple[int, float]]] = {}
        for row in table:
            if row["scaling"] == kind:
                line = lines.setdefault((row["program"], row["grid"]), [])
                line.append((row["ranks"], row["efficiency"]))
        for (program, grid), points in lines.items():
            style = "o-" if program == "GMPI" else "s--"
            axes.plot(*zip(*points), style, label=f"{program}, {grid}")
        axes.set_xticks(sorted({row["ranks"] for row in table}))
        axes.set(xlabel="ranks", title=f"{kind} scaling")
    panels[0].set(ylabel="efficiency", ylim=(0, None))
    panels[1].legend(fontsize=8)
    figure.suptitle(max((r["where"] for r in table), key=str), fontsize=9)
    save(figure, directory / "himeno-scaling.png")


def plot_parts(table: list[dict[str, Any]], rows: list[dict[str, Any]], directory: Path) -> None:
    """A panel for each size: time of an iteration of both programs, and of its parts."""
    parts = ["iteration", "compute", "halo", "convergence"]
    stamped = {
        (r["program"], r["name"], r["ranks"]): r["breakdown"] for r in rows if "breakdown" in r
    }
    figure, (panels,) = panels_of((3 * len(table), 3.4), 1, len(table))
    for axes, row in zip(panels, table):
        for side, program in ((-0.2, "GMPI"), (0.2, "CUDA+MPI")):
            found = {**stamped.get((program, row["size"], row["ranks"]), {})}
            found["iteration"] = row[f"{program} us"]
            at = [x + side for x, name in enumerate(parts) if name in found]
            axes.bar(at, [found[name] for name in parts if name in found], 0.4, label=program)
        axes.set_xticks(range(len(parts)), parts, rotation=30, fontsize=8)
        axes.set_title(f"{row['size']}, {row['ranks']} ranks", fontsize=9)
    panels[0].set(ylabel="us")
    panels[0].legend(fontsize=8)
    figure.suptitle(rows[0]["where"], fontsize=9)
    save(figure, directory / "himeno.png")


def plot_timeline(rows: list[dict[str, Any]], directory: Path) -> None:
    """What overlaps in one iteration."""
    # Two iterations that are swept together have no begin that a timeline could start at.
    stamped = [r for r in rows if "timeline" in r.get("breakdown", {})]
    stamped.sort(key=lambda r: float(r["us"]))
    if not stamped:
        return
    figure, panels = panels_of((7, 1.3 * len(stamped) + 0.6), len(stamped), 1)
    for axes, row in zip(panels[:, 0], stamped):
        _, reduced, sent, halo, swept = row["breakdown"]["timeline"]
        bars = [("sweep", 0, swept), ("halo", sent, halo), ("residual", 0, reduced)]
        for y, (name, begin, end) in enumerate(bars):
            axes.barh(y, end - begin, left=begin, label=name)
        axes.set_yticks(range(3), [name for name, _, _ in bars])
        axes.set_title(f"{row['name']}, {row['ranks']} ranks: one iteration (us)", fontsize=9)
    save(figure, directory / "himeno-timeline.png")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    rows, scaled = read(directory), scaling(read(directory, "scaling-*.json"))
    messages = messages_table(directory)
    for found in (scaled, messages):
        if found:
            shown = [{k: v for k, v in row.items() if k != "where"} for row in found]
            print(tabulate(shown, headers="keys", floatfmt=".3f"), end="\n\n")
    if scaled:
        plot_scaling(scaled, directory)
    if not rows:
        if scaled or messages:
            return 0
        print(f"error: no measurements of Himeno in {directory}", file=sys.stderr)
        return 2
    table, lines = pairs(rows), lines_table()
    for row in rows:
        if "breakdown" in row:
            parts = {k: v for k, v in row["breakdown"].items() if k != "timeline"}
            text = ", ".join(f"{name} {us:.2f}" for name, us in parts.items())
            print(f"# {row['program']} {row['name']} on {row['ranks']} ranks, us: {text}")
    print(tabulate(lines, headers="keys"), end="\n\n")
    print(tabulate(table, headers="keys", floatfmt=".3f"))
    if table:
        plot_parts(table, rows, directory)
    plot_timeline(rows, directory)
    results = {"machine": rows[0]["machine"], "where": rows[0]["where"], "ratios": table}
    results.update(lines=lines, scaling=scaled)
    (directory / "himeno.json").write_text(json.dumps(results, indent=1) + "\n")
    return 0 if all(row["same gosa"] for row in table) else 1


if __name__ == "__main__":
    sys.exit(main())
