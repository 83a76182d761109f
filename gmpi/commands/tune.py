"""``gmpi tune``: measures this machine once, and keeps what is quickest on it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import timeit
from typing import Any, NamedTuple

import click

from gmpi.commands import launching
from gmpi.commands.show import as_json, emit, examples, pairs, section, table
from gmpi.tuning import choices

#: By setting: the values that are tried, and the sizes of messages for which it matters.
TRIED: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "eager_bytes": ((2048, 4096, 8192, 16384, 32768), (1024, 4096, 8192, 16384, 32768)),
    "chunk_bytes": ((1 << 17, 1 << 18, 1 << 19, 1 << 20, 1 << 21), (1 << 20, 1 << 22, 1 << 24)),
}
DEFAULTS = {"eager_bytes": 8192, "chunk_bytes": 524288}
ROAD_SIZES = (8, 1024, 65536, 1 << 20)
_LIMIT_S = 120  # of one run of two ranks

Times = dict[str, dict[int, float]]  # by road, then by bytes: us


class Trial(NamedTuple):
    """What two ranks measure with some settings of a context: sizes of messages, on these roads."""

    settings: dict[str, Any]
    sizes: tuple[int, ...]
    roads: tuple[str, ...] = ("proxied",)


@click.command(epilog=examples("gmpi tune", "gmpi tune --show --json", "gmpi tune --forget"))
@click.option("--show", "shows", is_flag=True, help="Only print what is kept for this machine.")
@click.option("--forget", is_flag=True, help="Only delete it: defaults count again.")
@click.option("--mpiexec", metavar="PATH", help="Another one than that of this Python.")
@as_json
def tune(shows: bool, forget: bool, mpiexec: str | None, as_json: bool) -> None:
    """Measures this machine once: the road, sizes of staging and chunks, how to pack.

    Takes some minutes and one or two GPUs. What is better than the defaults is kept in the cache
    directory for this GPU, driver and version of GMPI. Contexts take it where neither an argument
    nor the environment says otherwise; what rank 0 finds counts for all ranks.
    """
    from gmpi.tuning import kept

    key = kept.here()
    if key is None:
        raise click.ClickException(
            "gmpi tune needs a GPU: the simulator's times mean nothing; run it where the program "
            "is going to run"
        )
    path = kept.path_of(key)
    if forget:
        path.unlink(missing_ok=True)
        emit({"forgotten": str(path)}, as_json, lambda _: f"{path}: forgotten")
        return
    if not shows:
        tuned, measured = measure(mpiexec)
        kept.write(key, tuned, measured)
    found = kept.read(key)
    facts = {"file": str(path), "kept": path.exists(), **key._asdict(), **found._asdict()}
    if path.exists():
        facts["measured"] = json.loads(path.read_text())["measured"]
    emit(facts, as_json, describe)


def measure(mpiexec: str | None) -> tuple[Any, dict[str, Any]]:
    """(what is chosen, what was measured)."""
    from gmpi.commands import tune_packing
    from gmpi.tuning.kept import Tuned

    settings, measured = chosen(lambda trials: two_ranks(mpiexec, trials))
    cases = tune_packing.cases()
    bar = click.progressbar(
        tune_packing.timings(), length=len(cases), label="packing", file=sys.stderr
    )
    with bar as found:
        timings = dict(found)
    limits = choices.copy_rows(timings)
    measured["packing"] = [
        {"bytes": n, "rows": rows, "kernel_us": kernel, "copy_us": copy}
        for (n, rows), (kernel, copy) in timings.items()
    ]
    measured["good_share"] = choices.good_share(timings, limits)
    measured["decision_us"] = decision_us(limits)
    return Tuned(settings, tuple(limits)), measured


def chosen(run: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """(settings that are better than the defaults, what was measured).

    Args:
        run: takes a list of trials; returns Times of each.
    """
    settings: dict[str, Any] = {}
    measured: dict[str, Any] = {}
    every = [(name, value) for name, (values, _) in TRIED.items() for value in values]
    found = run([Trial({name: value}, TRIED[name][1]) for name, value in every])
    times_of = {pair: times["proxied"] for pair, times in zip(every, found, strict=True)}
    for name, (values, _) in TRIED.items():
        times = {value: times_of[name, value] for value in values}
        measured[name] = times
        value = choices.best(times, DEFAULTS[name])
        if value != DEFAULTS[name]:
            settings[name] = value
    (roads,) = run([Trial(settings, ROAD_SIZES, ("proxied", "direct"))])
    measured["road"] = roads
    if choices.best(roads, "direct") != "direct":
        settings["road"] = "proxied"
    return settings, measured


def decision_us(limits: list[int]) -> float:
    """What a choice takes. It is taken once for a datatype and a count, and kept with them."""
    calls = 100_000
    return timeit.timeit(lambda: choices.takes_copy(limits, 65536, 64), number=calls) / calls * 1e6


def two_ranks(mpiexec: str | None, trials: list[Trial]) -> list[Times]:
    """One way times of two ranks, in one start: a context for each trial and road."""
    words = ["-m", "gmpi.commands.tune_ranks", json.dumps([each._asdict() for each in trials])]
    plan = launching.plan(2, words, mpiexec=mpiexec)
    what = f"{len(trials)} settings" if len(trials) > 1 else "both roads"
    click.echo(f"measuring {what} by two ranks", err=True)
    with launching.mps_daemon(plan.mps) as more:
        env = {**os.environ, **plan.variables, **more}
        try:
            done = subprocess.run(
                plan.command, env=env, capture_output=True, text=True, timeout=_LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise click.ClickException(
                f"{what}: two ranks did not end within {_LIMIT_S} s; gmpi doctor looks why"
            ) from None
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["nothing was printed"]
        raise click.ClickException(f"{what}: {last[0]}; gmpi doctor looks why")
    try:
        found = launching.printed_json(done.stdout)
    except ValueError:
        problem = f"{what}: no figures were printed; gmpi doctor looks why"
        raise click.ClickException(problem) from None
    return [
        {road: {int(n): us for n, us in times.items()} for road, times in each.items()}
        for each in found
    ]


def describe(facts: dict[str, Any]) -> str:
    if not facts["kept"]:
        return f"nothing is kept for {facts['gpu']}, driver {facts['driver']}: run gmpi tune"
    settings = facts["settings"] or {"all": "the defaults are best"}
    measured = facts["measured"]
    parts = [
        ("Settings", pairs(settings.items())),
        (
            "Packing",
            table(
                [(1 << log, rows) for log, rows in enumerate(facts["copy_rows"]) if log >= 10],
                ("bytes from", "a copy up to rows"),
            ),
        ),
        (
            "Choices",
            pairs(
                [
                    ("within 10 % of the best", f"{100 * measured['good_share']:.0f} % of cases"),
                    ("a decision", f"{measured['decision_us']:.2f} us"),
                    ("file", facts["file"]),
                ]
            ),
        ),
    ]
    return "\n\n".join(section(*part) for part in parts)
