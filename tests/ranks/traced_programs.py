"""A program whose trace is looked at by all ranks; not a test by itself."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import RANK, SIZE, WORLD, barrier

sys.path.insert(0, str(Path(__file__).parents[1]))
import trace_checks

import gmpi
from gmpi.trace import merge


def traced(
    program: Callable[[gmpi.Context], None], wild: bool = True, **settings: Any
) -> tuple[list[Any], list[Any]]:
    """What all ranks have recorded of a program, and the events of their merged trace."""
    folder = WORLD.bcast(tempfile.mkdtemp() if RANK == 0 else None)
    with gmpi.Context(WORLD, wildcards=wild, trace_file=f"{folder}/run.json", **settings) as g:
        program(g)
        g.synchronize()
    barrier()
    ranks = merge.read([Path(folder) / f"run.{rank}.json" for rank in range(SIZE)])
    merged = json.loads(merge.text_of(ranks))["traceEvents"]
    for facts in ranks:
        own = trace_checks.events(Path(folder) / f"run.{facts['rank']}.json")
        trace_checks.check_format(own)
        trace_checks.check_nesting(own)
        trace_checks.check_times(facts["operations"])
    trace_checks.check_format(merged)
    barrier()
    return ranks, merged


def joined(ranks: list[Any], merged: list[Any], messages: int) -> list[merge.Pair]:
    """Every send is joined to its receive, by an arrow."""
    pairs, alone = merge.pairs(ranks)
    assert not alone, alone
    error_us = sum(facts["clock_error_ns"] for facts in ranks) / 1000
    assert trace_checks.check_arrows(merged, error_us) == len(pairs) == messages
    for pair in pairs:
        assert pair.send.nbytes == pair.receive.nbytes, pair
        assert pair.send.tag == pair.receive.tag, pair
    return pairs
