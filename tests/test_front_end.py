"""What depends on the inside of numba-cuda is in one folder, or in the list of what still does not.

The public interface is ``numba.cuda`` itself, its types, and ``numba.cuda.extending``.
"""

from __future__ import annotations

import ast
from pathlib import Path

import launcher
import pytest

pytestmark = pytest.mark.quick

SEAM = "device_lib/platform"
PUBLIC = {"numba.cuda", "numba.cuda.types", "numba.cuda.extending"}
#: Attributes of numba-cuda's objects that are none of its interface.
PRIVATE = {
    "_Kernel", "_LaunchConfiguration", "_codelibrary", "_linking_files", "_cubin_cache",
    "_linkerinfo_cache", "_cufunc_cache", "_max_registers", "get_call_template", "get_overload",
}  # fmt: skip
#: Files elsewhere, and what they use. It may only become shorter.
REMAINING = {
    "gmpi/launch/launch.py": {  # wraps the launch methods
        "numba.cuda.dispatcher", "numba.cuda.typing.typeof", "numba.cuda.core.errors",
        "_Kernel", "_LaunchConfiguration",
    },
    "gmpi/launch/builds.py": {  # links a kernel with another build of the library
        "_codelibrary", "_linking_files", "_cubin_cache", "_linkerinfo_cache", "_cufunc_cache",
        "_max_registers",
    },
    "device_lib/api/arguments_cuda.py": {  # what a call is given, while it is typed
        "numba.cuda.dispatcher", "numba.cuda.core.imputils", "numba.cuda.datamodel.models",
        "numba.cuda.np.numpy_support", "numba.cuda.typing.typeof", "get_call_template",
    },
    "device_lib/api/traced.py": {"get_call_template", "get_overload"},  # another call, by type
}  # fmt: skip


def inside(path: Path) -> set[str]:
    """What a file uses of numba-cuda that is not public."""
    return found_in(path.read_text())


def found_in(text: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for name in node.names:
                whole = f"{node.module}.{name.name}"
                if node.module == "numba.cuda":
                    found |= {whole} - PUBLIC
                elif node.module.startswith("numba.cuda."):
                    found |= {node.module} - PUBLIC
        elif isinstance(node, ast.Import):
            found |= {n.name for n in node.names if n.name.startswith("numba.cuda.")} - PUBLIC
        elif isinstance(node, ast.Attribute):
            found |= {node.attr} & PRIVATE
    return found


def test_only_the_seam_knows_the_inside_of_numba_cuda() -> None:
    used = {}
    for folder in ("gmpi", "device_lib", "host_proxy", "examples", "benchmarks"):
        for path in (launcher.ROOT / folder).rglob("*.py"):
            name = path.relative_to(launcher.ROOT).as_posix()
            if not name.startswith(f"{SEAM}/") and (found := inside(path)):
                used[name] = found
    assert used == REMAINING, (
        f"what is inside numba-cuda is for {SEAM} (front_end.py): {used}; a file that no longer "
        "uses something goes from the list"
    )


def test_the_page_names_the_seam_and_what_remains() -> None:
    page = (launcher.ROOT / "docs/design.md").read_text()
    _, _, text = page.partition("## One seam for the front end")
    text = text.partition("\n## ")[0]
    assert f"`{SEAM}`" in text
    for name in REMAINING:
        assert f"`{name}`" in text, name


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from numba import cuda\ncuda.jit", set()),
        ("from numba.cuda import types, extending", set()),
        ("from numba.cuda.extending import intrinsic", set()),
        ("def f():\n    from numba.cuda import cgutils", {"numba.cuda.cgutils"}),
        ("from numba.cuda.cudadrv.driver import driver", {"numba.cuda.cudadrv.driver"}),
        ("import numba.cuda.core.ir", {"numba.cuda.core.ir"}),
        ("kernel._codelibrary.get_cufunc()", {"_codelibrary"}),
    ],
)
def test_what_is_found(text: str, found: set[str]) -> None:
    assert found_in(text) == found
