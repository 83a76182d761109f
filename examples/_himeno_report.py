"""Tables and plots from the figures of both Himeno programs.

    python examples/_himeno_report.py DIRECTORY

Reads ``himeno-*.json`` there (``--json`` of the programs), writes ``himeno.json`` and PNG files.
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
#: What each program consists of beside the files that both share.
PROGRAMS = {
    "GMPI": ["himeno.py"],
    "CUDA+MPI": ["himeno_cuda_mpi.py", "_himeno_graph.py"],
}
#: Time of CUDA+MPI / time of GMPI that this project has set itself.
WANTED = {"S": 1.8, "M": 1.3, "L": 1.05, "XL": 1.0}


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


def read(directory: Path) -> list[dict[str, Any]]:
    rows = []
    for path in sorted(directory.glob("himeno-*.json")):
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


def scaling(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Strong scaling: T1 / (N TN) of each program and size."""
    single = {(r["program"], r["name"]): r["us"] for r in rows if r["ranks"] == 1}
    return [
        {"program": r["program"], "size": r["name"], "ranks": r["ranks"], "us": r["us"],
         "efficiency": single[r["program"], r["name"]] / (r["ranks"] * r["us"])}
        for r in rows if (r["program"], r["name"]) in single and "breakdown" not in r
    ]  # fmt: skip


def plot(table: list[dict[str, Any]], rows: list[dict[str, Any]], directory: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    if table:
        figure, axes = plt.subplots(figsize=(6, 4))
        at = range(len(table))
        axes.bar([x - 0.2 for x in at], [r["GMPI us"] for r in table], 0.4, label="GMPI")
        axes.bar([x + 0.2 for x in at], [r["CUDA+MPI us"] for r in table], 0.4, label="CUDA+MPI")
        axes.set_xticks(list(at), [f"{r['size']}, {r['ranks']} ranks" for r in table])
        axes.set(yscale="log", ylabel="time of an iteration (us)", title=rows[0]["where"])
        axes.legend()
        figure.tight_layout()
        figure.savefig(directory / "himeno.png", dpi=120)
    stamped = [r for r in rows if r["program"] == "GMPI" and "breakdown" in r]
    if not stamped:
        return
    figure, panels = plt.subplots(
        len(stamped), 1, figsize=(7, 1.3 * len(stamped) + 0.6), squeeze=False
    )
    for axes, row in zip(panels[:, 0], stamped):
        _, reduced, sent, halo, swept = row["breakdown"]["timeline"]
        bars = [("sweep", 0, swept), ("halo", sent, halo), ("residual", 0, reduced)]
        for y, (name, begin, end) in enumerate(bars):
            axes.barh(y, end - begin, left=begin, label=name)
        axes.set_yticks(range(3), [name for name, _, _ in bars])
        axes.set_title(f"{row['name']}, {row['ranks']} ranks: one iteration (us)", fontsize=9)
    figure.tight_layout()
    figure.savefig(directory / "himeno-timeline.png", dpi=120)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    rows = read(directory)
    if not rows:
        print(f"error: no himeno-*.json with measurements in {directory}", file=sys.stderr)
        return 2
    table, lines, scaled = pairs(rows), lines_table(), scaling(rows)
    for row in rows:
        if "breakdown" in row:
            parts = {k: v for k, v in row["breakdown"].items() if k != "timeline"}
            text = ", ".join(f"{name} {us:.2f}" for name, us in parts.items())
            print(f"# {row['program']} {row['name']} on {row['ranks']} ranks, us: {text}")
    print(tabulate(lines, headers="keys"), end="\n\n")
    if scaled:
        print(tabulate(scaled, headers="keys", floatfmt=".3f"), end="\n\n")
    print(tabulate(table, headers="keys", floatfmt=".3f"))
    plot(table, rows, directory)
    results = {"machine": rows[0]["machine"], "where": rows[0]["where"], "ratios": table}
    results.update(lines=lines, scaling=scaled)
    (directory / "himeno.json").write_text(json.dumps(results, indent=1) + "\n")
    return 0 if all(row["same gosa"] for row in table) else 1


if __name__ == "__main__":
    sys.exit(main())
