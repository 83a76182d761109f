"""Figures that have a bar, and what was measured of each; ``table.py`` writes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tabulate import tabulate

#: Suffix of the files -> heading of their column.
KINDS = {"2gpu": "2 GPUs", "1gpu": "1 GPU, 2 ranks under MPS", "simulator": "simulator"}

Files = dict[str, dict[str, Any]]  # of one kind, by what is before the kind in their names


class Measured(NamedTuple):
    text: str
    met: bool | None  # None: there is no bar


class Figure(NamedTuple):
    """One row: ``of`` gets the files of one kind by their stems; KeyError: not measured there."""

    name: str
    bar: str
    of: Callable[[Files], Measured]
    kinds: tuple[str, ...] = ("2gpu", "1gpu")


def _us(times: dict[str, float]) -> str:
    return f"{times['p50']:.2f} us (p99 {times['p99']:.2f})"


def row_of(files: Files, size: int, program: str = "pingpong") -> dict[str, Any]:
    for row in files[program]["rows"]:
        if row["size"] == size:
            found: dict[str, Any] = row
            return found
    raise KeyError(size)


def conventional(row: dict[str, Any]) -> float:
    return float(min(variant["p50"] for variant in row["conventional"].values()))


def _null_request(files: Files) -> Measured:
    null, echo = files["pingpong"]["null_request"], files["pingpong"]["echo"]
    ratio = null["p50"] / echo["p50"]
    return Measured(f"{ratio:.2f} ({null['p50']:.2f} / {echo['p50']:.2f} us)", ratio <= 1.25)


def _eight_bytes(files: Files) -> Measured:
    row = row_of(files, 8)
    times = conventional(row) / row["gmpi"]["p50"]
    text = f"{_us(row['gmpi'])}, {times:.1f} x faster"
    return Measured(text, row["gmpi"]["p50"] <= 3.0 and times >= 4)


def _againstconventional(size: int, bar: float) -> Callable[[Files], Measured]:
    def of(files: Files) -> Measured:
        row = row_of(files, size)
        ratio = row["gmpi"]["p50"] / conventional(row)
        return Measured(f"{ratio:.2f} ({_us(row['gmpi'])})", ratio <= bar)

    return of


def _against_host(size: int, bar: float) -> Callable[[Files], Measured]:
    def of(files: Files) -> Measured:
        row = row_of(files, size)
        ratio = row["gmpi"]["p50"] / row["host"]["p50"]
        return Measured(f"{ratio:.2f} ({_us(row['gmpi'])})", ratio <= bar)

    return of


def _records(blocks: int, bar: float) -> Callable[[Files], Measured]:
    def of(files: Files) -> Measured:
        if "rates_runs" in files:
            return _range(files["rates_runs"]["runs"], f"records_{blocks}", bar, 1)
        for found in files["rates"]["records"]:
            if found["blocks"] == blocks:
                return Measured(f"{found['per_s'] / 1e6:.1f} M/s", found["per_s"] >= bar)
        raise KeyError(blocks)

    return of


def _rate(name: str, bar: float) -> Callable[[Files], Measured]:
    def of(files: Files) -> Measured:
        if "rates_runs" in files:
            return _range(files["rates_runs"]["runs"], name, bar, 2)
        per_s = files["rates"][name]["per_s"]
        return Measured(f"{per_s / 1e6:.2f} M/s", per_s >= bar)

    return of


def _range(runs: list[dict[str, Any]], name: str, bar: float, digits: int) -> Measured:
    """Of a rate that was measured several times: met where the slowest run meets the bar."""
    found = [run["per_s"][name] for run in runs]
    low, high = (f"{value / 1e6:.{digits}f}" for value in (min(found), max(found)))
    machines = len({run["machine"].get("gpu_id") for run in runs})
    text = f"{low} to {high} M/s ({len(found)} runs, {some(machines, 'machine')})"
    return Measured(text, min(found) >= bar)


def some(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _record_cost(files: Files) -> Measured:
    found = {row["arguments"]: row["p50"] for row in files["rates"]["record_cost"]}
    us = [f"{found[n]:.2f}" for n in (1, 7, 16, 25)]
    return Measured(" / ".join(us) + " us", None)


def _launch_cost(program: str) -> Callable[[Files], Measured]:
    def of(files: Files) -> Measured:
        found = files["rates"]["launch_cost"]
        us = [f"{found[f'{program}_{kind}']['p50']:.2f}" for kind in ("launch", "stream", "device")]
        return Measured(" / ".join(us) + " us", None)

    return of


def _allreduce(files: Files) -> Measured:
    rates = files["rates"]
    mine, host = rates["allreduce"]["gmpi"], rates["allreduce"]["host"]
    bound = 2 * host["p50"] + rates["echo"]["p50"]
    return Measured(f"{_us(mine)}; bar {bound:.2f} us", mine["p50"] <= bound)


def _busy(files: Files) -> Measured:
    quiet, busy = (files["rates"][f"one_way_{name}"]["p50"] for name in ("quiet", "busy"))
    return Measured(f"{busy / quiet:.2f} ({busy:.2f} / {quiet:.2f} us)", busy / quiet <= 1.1)


def _engines(files: Files) -> Measured:
    compiled = row_of(files, 8)["gmpi"]["p50"]
    plain = row_of(files, 8, "pingpong-mpi4py")["gmpi"]["p50"]
    return Measured(f"{compiled:.2f} us, {plain:.2f} us", None)


def _idle(files: Files) -> Measured:
    idle = files["rates"]["idle"]
    share, first = idle["core_share"]["p50"], idle["first_request_us"]
    text = f"{100 * share:.1f} %; {first['p50']:.0f} us, at most {first['max']:.0f}"
    return Measured(text, share <= 0.05 and first["max"] <= 100)


def _waiting_blocks(files: Files) -> Measured:
    rows = {row["blocks"]: row for row in files["waiting_blocks"]["rows"]}
    none, most = rows[0], rows[max(rows)]
    names = ("to_gpu", "to_host", "launch")
    us = ", ".join(f"{most[n]['p50']:.1f} / {none[n]['p50']:.1f}" for n in names)
    worst = max(row[name]["ratio"] for row in rows.values() for name in names)
    return Measured(f"{worst:.2f} (with {max(rows)}: {us} us)", worst <= 2)


def _simulator(files: Files) -> Measured:
    times = row_of(files, 8)["gmpi"]
    round_trip_ms = 2 * times["p50"] / 1000
    return Measured(f"{round_trip_ms:.2f} ms", round_trip_ms <= 3)


FIGURES = [
    Figure("null request, round trip ÷ 8-byte echo", "≤ 1.25", _null_request),
    Figure("8 B one way", "≤ 3.0 us, ≥ 4 x faster than conventional", _eight_bytes),
    Figure(
        "64 KiB one way, one block, ÷ conventional", "≤ 0.6", _againstconventional(1 << 16, 0.6)
    ),
    Figure("1 MiB one way ÷ plain mpi4py on the host", "≤ 1.2", _against_host(1 << 20, 1.2)),
    Figure("16 MiB one way ÷ plain mpi4py on the host", "≤ 1.2", _against_host(1 << 24, 1.2)),
    Figure("null records through one ring, 16 blocks x 4 warps", "≥ 20 M/s", _records(16, 20e6)),
    Figure("null records through one ring, 132 blocks x 4 warps", "≥ 10 M/s", _records(132, 10e6)),
    Figure("null requests, posted and waited for, 16 x 4 warps", "≥ 5 M/s", _rate("requests", 5e6)),
    Figure("8-byte messages, 64 warps, window of 16", "≥ 1.5 M/s", _rate("messages", 1.5e6)),
    Figure("the same with `no_any_tag`", "≥ 1.5 M/s", _rate("messages_no_any_tag", 1.5e6)),
    Figure("Allreduce of one double", "≤ 2 x the host's + one echo", _allreduce),
    Figure("8 B one way while Python is busy ÷ quiet", "≤ 1.1", _busy),
    Figure("8 B one way, compiled engine and mpi4py engine", "stated", _engines),
    Figure("a record of 1 / 7 / 16 / 25 arguments, there and back", "stated", _record_cost),
    Figure("launch / and wait for stream / for device, CuPy", "stated", _launch_cost("cupy")),
    Figure("launch / and wait for stream / for device, Numba", "stated", _launch_cost("numba")),
    Figure("proxy after 1 s of silence: core; first request", "≤ 5 %; ≤ 100 us", _idle),
    Figure("copies of 8 B, a launch: beside blocks that wait ÷ alone", "≤ 2", _waiting_blocks),
    Figure(
        "simulator, 2 ranks on 2 cores, 8 B round trip of 32 lanes",
        "≤ 3 ms",
        _simulator,
        ("simulator",),
    ),
]


def bars(kinds: dict[str, Files]) -> str:
    """The figures that have a bar, with what was measured."""
    shown = [kind for kind in ("2gpu", "1gpu") if kinds[kind]] or ["2gpu"]
    rows = []
    for figure in FIGURES:
        cells = []
        on_gpu = figure.kinds != ("simulator",)
        for kind in shown if on_gpu else figure.kinds:
            try:
                measured = figure.of(kinds[kind])
            except KeyError:
                cells.append("not measured")
                continue
            verdict = {True: ": met", False: ": **not met**", None: ""}[measured.met]
            cells.append(measured.text + verdict)
        cells += [""] * (len(shown) - len(cells))
        rows.append([figure.name, figure.bar, *cells])
    headers = ["figure (both sides of a ratio in the same run)", "bar", *(KINDS[k] for k in shown)]
    return str(tabulate(rows, headers=headers, tablefmt="github", disable_numparse=True))
