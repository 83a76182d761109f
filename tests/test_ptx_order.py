"""What comes before what is said to another GPU, compiled for sm_90 without a GPU: the order of
stores, which the simulator does not have."""

from __future__ import annotations

import re

import pytest
from ptx_of import ptx_of

pytestmark = pytest.mark.sm90

FENCE = "fence.acq_rel.sys"
SAID = re.compile(r"st\.(relaxed|volatile)(\.sys)?\.global\.(b128|u64)")

#: By function: fences of system scope. ``begin_long`` has one where an announcement was in vain.
FENCES = {
    "gmpi_direct_announce": 1,
    "gmpi_direct_begin_long": 2,
    "gmpi_direct_exchange_enter": 1,
    "gmpi_partitioned_start_any_warp": 1,
}


def test_what_a_gpu_has_stored_to_a_buffer_comes_before_its_place() -> None:
    functions = ptx_of(*FENCES)
    for name, fences in FENCES.items():
        ptx = functions[name]
        assert ptx.count(FENCE) == fences, name
        assert SAID.search(ptx, ptx.rindex(FENCE)), name
