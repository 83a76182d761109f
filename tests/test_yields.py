"""What is done to the assembler's object code, without a GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from device_lib.platform import assembler, yields

pytestmark = pytest.mark.sm90
POLL = """
.version 8.0
.target sm_90
.address_size 64
.visible .func (.param .b64 found) poll(.param .b64 place)
{
    .reg .pred missing;
    .reg .b64 at, word;
    ld.param.u64 at, [place];
again:
    ld.relaxed.sys.global.u64 word, [at];
    setp.eq.u64 missing, word, 0;
    @missing bra again;
    st.param.b64 [found], word;
    ret;
}
"""


def test_no_function_yields(tmp_path: Path) -> None:
    """The assembler puts a YIELD into what polls; it becomes a NOP, and nothing else changes."""
    (tmp_path / "poll.ptx").write_text(POLL)
    files = [str(tmp_path / "poll.ptx"), "-o", str(tmp_path / "poll.cubin")]
    subprocess.run([assembler.ptxas(), "-c", "-arch=sm_90a", *files], check=True)
    code = (tmp_path / "poll.cubin").read_bytes()
    changed = yields.without_yields(code, (9, 0))
    assert yields.without_yields(code, (10, 0)) == code  # instructions that nobody has looked at
    assert len(changed) == len(code) and len(code) % 8 == 0
    words = np.frombuffer(code, "<u8"), np.frombuffer(changed, "<u8")
    places = np.flatnonzero(words[0] != words[1])
    operations = [int(words[0][i]) for i in places[::2]], [int(words[1][i]) for i in places[::2]]
    count = len(operations[0])
    assert count > 0 and operations == ([0x7946] * count, [0x7918] * count)
    assert (places[1::2] == places[::2] + 1).all()  # the instruction's other half
    control = [w[places[1::2]] >> np.uint64(40) for w in words]
    assert (control[0] == control[1]).all() and not (words[1][places[1::2]] << np.uint64(24)).any()
    # So does what kernels link.
    assert assembler.assemble("poll", POLL, (9, 0), 255) == changed
