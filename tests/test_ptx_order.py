"""What comes before what is said to another GPU, compiled for sm_90 without a GPU: the order of
stores, which the simulator does not have."""

from __future__ import annotations

import re

import launcher
import pytest

pytestmark = pytest.mark.sm90

COMPILE = """
import sys
from gmpi.launch import precompile
precompile.compile_without_gpu((9, 0))
from device_lib.platform import library
for name in sys.argv[1:]:
    print("// function", name)
    print(library.compile_ptx(name, (9, 0)))
"""
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
    status, text = launcher.python("-c", COMPILE, *FENCES, timeout=200, NUMBA_ENABLE_CUDASIM="0")
    assert status == 0, text
    parts = re.split(r"^// function (\w+)$", text, flags=re.M)
    functions = dict(zip(parts[1::2], parts[2::2], strict=True))
    for name, fences in FENCES.items():
        ptx = functions[name]
        assert ptx.count(FENCE) == fences, name
        assert SAID.search(ptx, ptx.rindex(FENCE)), name
