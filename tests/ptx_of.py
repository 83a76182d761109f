"""PTX of functions of the library, compiled for sm_90 without a GPU."""

from __future__ import annotations

import re

import launcher

_COMPILE = """
import sys
from gmpi.launch import precompile
precompile.compile_without_gpu((9, 0))
from device_lib.platform import library
for name in sys.argv[1:]:
    print("// function", name)
    print(library.compile_ptx(name, (9, 0)))
"""


def ptx_of(*names: str) -> dict[str, str]:
    """By name."""
    options = {"NUMBA_ENABLE_CUDASIM": "0"}
    status, text = launcher.python("-c", _COMPILE, *names, timeout=200, **options)
    assert status == 0, text
    parts = re.split(r"^// function (\w+)$", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))
