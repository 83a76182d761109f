"""The device library compiled for sm_90, without a GPU: what the ring protocol relies on."""

from __future__ import annotations

import json
import re
from pathlib import Path

import launcher
import pytest

INLINE = [
    f"gmpi_{name}_{scope}"
    for name in ("open_inline", "finish_small")
    for scope in ("block", "warp")
]
SYSTEM_STORE = re.compile(r"\bst\.[\w.]*\bsys\b[\w.]*")
UNIT_STORE = "st.relaxed.sys.global.b128"
UNIT_LOAD = "ld.relaxed.sys.global.b128"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sm_90")
    status, text = launcher.python(
        "tests/compile_for_sm90.py",
        str(directory),
        timeout=240,
        NUMBA_ENABLE_CUDASIM="0",
        GMPI_CACHE_DIR=str(directory / "cache"),  # an empty one: everything is compiled
    )
    assert status == 0, text
    return directory


@pytest.fixture(scope="module")
def library(compiled: Path) -> dict[str, str]:
    """PTX of each library function."""
    return {p.stem: p.read_text() for p in sorted(compiled.glob("gmpi_*.ptx"))}


def test_every_library_function_is_there_for_both_scopes(library: dict[str, str]) -> None:
    names = {name.removesuffix("_block").removesuffix("_warp") for name in library}
    for name in names - {"gmpi_copy_to_staging", "gmpi_copy_from_staging"}:
        assert f"{name}_block" in library and f"{name}_warp" in library
    assert set(INLINE) <= set(library)


def test_all_kernels_link(compiled: Path) -> None:
    """``compile_for_sm90.py`` fails where one does not; among them: the library on two paths."""
    kernels = {p.stem for p in compiled.glob("kernel_*.ptx")}
    assert len(kernels) >= 6 and "kernel_two_paths" in kernels


def test_a_record_is_published_by_one_store_of_a_unit_per_lane(library: dict[str, str]) -> None:
    # Two 8-byte stores in place of one of 16 could be seen torn: new words under an old tag.
    for scope in ("block", "warp"):
        stores = SYSTEM_STORE.findall(library[f"gmpi_open_inline_{scope}"])
        assert stores == [UNIT_STORE]
    for name, ptx in library.items():
        assert set(SYSTEM_STORE.findall(ptx)) <= {UNIT_STORE}, name


def test_completions_are_read_by_units(library: dict[str, str]) -> None:
    for scope in ("block", "warp"):
        assert UNIT_LOAD in library[f"gmpi_finish_small_{scope}"]
        assert UNIT_LOAD in library[f"gmpi_finish_any_{scope}"]


def test_no_fence_on_the_way_of_a_small_message(library: dict[str, str]) -> None:
    # A system fence costs half a microsecond over PCIe.
    for scope in ("block", "warp"):
        assert not re.search(r"\b(fence|membar)\b", library[f"gmpi_open_inline_{scope}"])
        # The one of a wait is for payloads in staging.
        assert len(re.findall(r"\b(?:fence|membar)\b", library[f"gmpi_finish_small_{scope}"])) <= 1


def test_staging_is_complete_before_a_record_says_so(library: dict[str, str]) -> None:
    for scope in ("block", "warp"):
        assert "fence.acq_rel.sys" in library[f"gmpi_open_any_{scope}"]


def test_the_fast_paths_neither_spill_nor_call(compiled: Path, library: dict[str, str]) -> None:
    found = json.loads((compiled / "properties.json").read_text())
    for name in INLINE:
        assert found[name] == {"stack": 0, "spill_stores": 0, "spill_loads": 0}, name
        assert not re.search(r"^\s*call\b", library[name], re.M), name
        assert ".local" not in library[name], name


def test_moving_bytes_does_not_spill(compiled: Path) -> None:
    found = json.loads((compiled / "properties.json").read_text())
    for name in ("gmpi_copy_to_staging", "gmpi_copy_from_staging"):
        assert found[name] == {"stack": 0, "spill_stores": 0, "spill_loads": 0}, name


def test_there_is_no_arithmetic_in_floating_point(library: dict[str, str]) -> None:
    # Numba makes float64 of int64 and uint64: a handle would lose its low bits.
    for name, ptx in library.items():
        assert not re.search(r"\.f(32|64)\b", ptx), name


def test_shared_memory_of_the_library_is_one_weak_symbol(library: dict[str, str]) -> None:
    for name, ptx in library.items():
        for line in re.findall(r"^.*\.shared .*$", ptx, re.M):
            if "gmpi_shared" in line and not re.match(r"\s*(ld|st)\b", line):
                assert line.startswith((".weak", ".extern")), (name, line)
