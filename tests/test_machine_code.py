"""The library's machine code, without a GPU: what is done to it, how short its hot parts are."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import launcher
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


#: What a message of at most 380 bytes runs through: most instructions, most branches among them.
HOT = {
    "gmpi_direct_send_block": (410, 28),
    "gmpi_direct_post_block": (280, 10),
    "gmpi_direct_take_block": (390, 28),
}
COUNTS = f"""
import json, struct
from device_lib.api import exports
from device_lib.platform import library, yields
from gmpi.launch import precompile
precompile.compile_without_gpu((9, 0))
found = {{}}
for name in {tuple(HOT)}:
    code = library.compile_object(name, (9, 0), 255)
    places = list(yields.instructions(code))
    branches = sum(struct.unpack_from("<Q", code, at)[0] & 0xFFF == 0x947 for at in places)
    found[name] = len(places), branches
print(json.dumps(found))
"""


def test_short_messages_have_few_instructions_and_branches() -> None:
    """A branch takes 18 cycles, a jump over many instructions 52 more (docs/direct_history.md)."""
    status, text = launcher.python("-c", COUNTS, timeout=120, NUMBA_ENABLE_CUDASIM="0")
    assert status == 0, text
    for name, counts in json.loads(text.splitlines()[-1]).items():
        assert all(map(int.__le__, counts, HOT[name])), (name, counts, HOT[name])
        assert min(counts) > 0, (name, counts)
