"""What ``tests/gpu/instructions.py`` makes of the profiler's words."""

from __future__ import annotations

import sys
from typing import Any

import launcher
import pytest

sys.path.insert(0, str(launcher.ROOT / "tests" / "gpu"))

SAMPLED = """"Kernel Name","gmpi_direct_send_block",
"Address","Source","group:smsp__pcsamp_warp_stall_reasons"
"0x7fb398e07310","      YIELD","625"
"0x7fb398e07300","      LDC.64 R48, c[0x0][0x208]","40,625"
"0x7fb398e07320","      R2UR UR4, R48","0"
"Kernel Name","__main__::exchange_self[abi:v1](DeviceContext)",
"Address","Source","group:smsp__pcsamp_warp_stall_reasons"
"0x7fb398f01000","      CS2R R60, SR_CLOCKLO","1250"
"Kernel Name","gmpi_direct_open_block",
"0x7fb398f02000","      NOP",""
"""


def test_samples_become_cycles() -> None:
    import instructions

    rows: list[dict[str, Any]] = instructions.rows_of("plain", SAMPLED, 20_000)
    assert [(r["function"], r["cycles"], r["instructions"]) for r in rows] == [
        ("gmpi_direct_send_block", 66, 2),
        ("exchange_self", 2, 1),
    ]
    costly = {"offset": 0, "instruction": "LDC.64 R48, c[0x0][0x208]", "cycles": 65}
    assert rows[0]["costly"] == [costly] and rows[1]["costly"] == []


@pytest.mark.mpi
@pytest.mark.mpich
def test_the_program_sends_to_itself() -> None:
    status, text = launcher.mpi(1, str(launcher.ROOT / "tests/gpu/instructions.py"), "run")
    assert status == 0, text
