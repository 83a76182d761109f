"""``gmpi hang`` and ``gmpi top``: what running jobs of this user do, asked from outside."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

from gmpi.commands.show import as_json, bad, emit, examples, odd, table
from gmpi.observe.asking import REPORT, STATE, NoAnswerError, ask, below, processes

_STALL_S = 2.0  # from which on a request is shown as one that stands still
_STATE_S = 2.0


@click.command(epilog=examples("gmpi hang 4711", "gmpi hang 4711 --json"))
@click.argument("pid", type=int)
@as_json
def hang(pid: int, as_json: bool) -> None:
    """Asks a running job what it waits for, and prints the likely cause.

    PID is a rank's process, or one above it, such as mpiexec's: then its lowest rank here is asked,
    and it asks all others. The job goes on as before.
    """
    found = below(pid)
    if not found:
        there = ", ".join(map(str, processes()))
        hint = f"contexts are open in {there}" if there else "no process of yours has one open here"
        raise click.ClickException(f"no context is open in process {pid} or below it; {hint}")
    problem = None
    for process in sorted(found, key=_rank):
        try:
            answer = ask(process, REPORT)
        except NoAnswerError as exc:
            problem = exc
            continue
        if "error" in answer:
            raise click.ClickException(f"process {process}: {answer['error']}")
        emit(answer, as_json, lambda a: str(a["text"]))
        return
    raise click.ClickException(str(problem))


def _rank(pid: int) -> int:
    try:
        return int(ask(pid, STATE, _STATE_S).get("rank", sys.maxsize))
    except NoAnswerError:
        return sys.maxsize


@click.command(epilog=examples("gmpi top", "gmpi top --interval 0.5", "gmpi top --count 1 --json"))
@click.option("--interval", default=1.0, type=click.FloatRange(0.1), metavar="S", help="[1]")
@click.option("--count", type=click.IntRange(1), metavar="N", help="So many times; default: on.")
@as_json
def top(interval: float, count: int | None, as_json: bool) -> None:
    """Shows all contexts that this user has open on this node, again and again.

    Rates are records that kernels have written to the proxies, and requests that these have opened
    and completed. Messages on the direct road need no proxy, and are not among them. A request that
    has been pending for 2 s is marked. Ctrl-C ends it.
    """
    before: dict[int, dict[str, Any]] = {}
    number = 0
    while count is None or number < count:
        number += 1
        if number > 1 or not as_json:
            time.sleep(interval if before or number > 1 else min(interval, 0.2))
        now = states()
        rows = [rates(state, before.get(state["pid"])) for state in now]
        if sys.stdout.isatty() and not as_json:
            click.clear()
        emit(rows, as_json, describe)
        before = {state["pid"]: state for state in now if "records" in state}


def states() -> list[dict[str, Any]]:
    """Of all contexts, by job and rank; of those that do not answer, their process and why."""
    found = []
    for pid in processes():
        try:
            found.append(ask(pid, STATE, _STATE_S))
        except NoAnswerError as exc:
            found.append({"pid": pid, "error": str(exc)})
    return sorted(found, key=lambda s: (s.get("program", "~"), s.get("rank", 0), s["pid"]))


def rates(now: dict[str, Any], before: dict[str, Any] | None) -> dict[str, Any]:
    """The state with rates since the time before; without one, since the context was opened."""
    if "records" not in now:
        return now
    zero = {"records": 0, "completed": 0, "now": now["now"] - now["open_s"]}
    since = before or zero
    seconds = max(now["now"] - since["now"], 1e-9)
    return {
        **now,
        "records_per_s": max(0, now["records"] - since["records"]) / seconds,
        "completed_per_s": max(0, now["completed"] - since["completed"]) / seconds,
    }


def describe(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "no context of this user is open on this node"
    return table([_shown(row) for row in rows])


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    if "records" not in row:
        return {"pid": row["pid"], "rank": "", "program": bad(row.get("error", "no answer"))}
    oldest = f"{row['oldest_s']:.1f} s" if row["pending"] else "-"
    stalls = row["pending"] and row["oldest_s"] >= _STALL_S
    roads = "; ".join(f"{path}: {len(ranks)}" for path, ranks in row["paths"].items())
    proxy = row["engine"] if row["proxy"] == "runs" else bad("dead")
    return {
        "pid": row["pid"],
        "rank": f"{row['rank']} of {row['size']}",
        "program": row["program"],
        "kernels": bad("aborted") if row["aborted"] else row["kernels"],
        "records/s": round(row["records_per_s"]),
        "completed/s": round(row["completed_per_s"]),
        "pending": row["pending"],
        "oldest": odd(oldest) if stalls else oldest,
        "errors": bad(str(row["errors"])) if row["errors"] else 0,
        "proxy": proxy,
        "ranks by road": roads,
    }
