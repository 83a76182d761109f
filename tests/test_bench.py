"""``gmpi bench`` without ranks: options, tables, comparisons. test_examples.py runs it on ranks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from gmpi.__main__ import main
from gmpi.bench import figures, streams
from gmpi.commands import bench


def row(size: int, value: float, **more: float) -> dict[str, Any]:
    return {"size": size, "value": value, "skew": 0.25, **more}


def facts(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"subject": "latency", "unit": "Latency (us)", "ranks": 2, "simulator": False,
            "rows": list(rows)}  # fmt: skip


def test_sizes() -> None:
    assert bench.powers("8:64") == [8, 16, 32, 64]
    assert bench.powers("1K:2K") == [1024, 2048] and bench.powers("100") == [100]
    assert bench.powers(":4") == [1, 2, 4]
    for wrong in ("x", "8:", "64:8", "0", "-4"):
        with pytest.raises(click.BadParameter, match="two numbers such as 8:64K"):
            bench.powers(wrong)


def test_the_table_has_osus_layout() -> None:
    text = bench.describe(facts(row(8, 1.5), row(65536, 12.25)), "Latency (us)")
    head, first, second = text.splitlines()[1:4]
    assert head == f"{'# Size':<10}{'Latency (us)':>20}{'Skew (us)':>20}"
    assert first == f"{'8':<10}{'1.50':>20}{'0.25':>20}" and second.startswith("65536     ")


def test_figures_are_compared_with_former_ones(tmp_path: Path) -> None:
    former = tmp_path / "former.json"
    former.write_text(json.dumps(facts(row(8, 2.0), row(16, 4.0))))
    known = bench._former(former, "latency")
    rows = figures.compared([row(8, 3.0), row(32, 5.0)], known)
    assert rows[0]["former"] == 2.0 and rows[0]["ratio"] == 1.5 and "former" not in rows[1]
    text = bench.describe(facts(*rows), "Latency (us)").splitlines()
    assert text[1].endswith(f"{'Former':>20}{'Ratio':>20}")
    assert text[2].split() == ["8", "3.00", "0.25", "2.00", "1.50"]
    assert text[3].split() == ["32", "5.00", "0.25", "nan", "nan"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "is no output of gmpi bench rate --json"),
        ("[1, 2]", "is no output of gmpi bench rate --json"),
        (json.dumps(facts(row(8, 1.0))), "has figures of latency, not of rate"),
    ],
)
def test_a_file_with_other_figures_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(click.BadParameter, match=message):
        bench._former(path, "rate")


def test_windows_are_no_larger_than_memory_allows() -> None:
    assert streams.messages_of(1) == streams.messages_of(8) == streams.WINDOW
    assert streams.messages_of(128 << 20) == 2 and streams.messages_of(1 << 30) == 1


@pytest.mark.mpi
@pytest.mark.mpich
def test_the_wrong_number_of_ranks_is_refused() -> None:
    done = CliRunner().invoke(main, ["bench", "latency"])
    assert done.exit_code == 2
    wanted = "latency needs 2 ranks, got 1: gmpi run -n 2 -- -m gmpi bench latency"
    assert wanted in done.output


def test_a_wrong_payload_ends_all_ranks() -> None:
    class World:
        def allreduce(self, value: int) -> int:
            return value + 1  # another rank's

    made = figures.Bench(None, World(), 1, 0, 32)  # type: ignore[arg-type]
    with pytest.raises(figures.BenchError, match="rate: 8 bytes: a payload is wrong on 2 ranks"):
        figures.require_right(made, "rate", 8, False)


def test_the_help_names_all_subjects() -> None:
    text = CliRunner().invoke(main, ["bench", "--help"]).output
    assert "[OPTIONS] SUBJECT\n" in text  # not the list, cut in the middle of a word
    assert [word for word in bench.SUBJECTS if word not in re.findall(r"\w+", text)] == []
