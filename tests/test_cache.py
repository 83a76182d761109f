"""Compiled code on disk: when it is made anew, whose is believed, and what is left behind."""

from __future__ import annotations

import ast
import importlib
import os
import pkgutil
import resource
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any

import launcher
import numba
import pytest

from gmpi.cache import files as cache
from gmpi.cache import sources
from host_proxy.platform import engine_cache, native

ROOT = launcher.ROOT
COMPILED = ("device_lib", "host_proxy")
STRANGER = 12345  # a user that is neither we, nor root, nor the owner of the package

# --- the key --------------------------------------------------------------------------------------


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The sources, to be changed."""
    for package in ("gmpi", *COMPILED):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignore)
    return tmp_path


def key(package: str, root: Path) -> str:
    sources.fingerprint.cache_clear()
    return sources.fingerprint(package, root)


@pytest.mark.parametrize("package", COMPILED)
def test_what_is_compiled_in_changes_the_key(package: str, copy: Path) -> None:
    files = sources.compiled_from(package, copy)
    names = {str(path.relative_to(copy)) for path in files}
    assert names >= {str(p.relative_to(copy)) for p in (copy / package).rglob("*.py")}
    ring = {"device_lib": "device_lib/proxied/ring.py", "host_proxy": "host_proxy/records/ring.py"}
    kinds = [ring[package], "gmpi/contract/wire.py", "gmpi/contract/constants.py"]
    if package == "device_lib":
        kinds += ["gmpi/datatypes/descriptor.py", "gmpi/datatypes/parts.py"]
    assert names >= set(kinds)
    keys = {key(package, copy)}
    for name in kinds:
        with (copy / name).open("a") as file:
            file.write("\nX = 1\n")
        keys.add(key(package, copy))
    assert len(keys) == 1 + len(kinds)


@pytest.mark.parametrize("package", COMPILED)
def test_files_in_folders_and_behind_other_files_change_the_key(package: str, copy: Path) -> None:
    before = key(package, copy)
    deep = copy / package / "folder" / "deeper" / "new.py"
    deep.parent.mkdir(parents=True)
    deep.write_text("def f():\n    from gmpi.outer import N\n    return N\n")
    assert (inside := key(package, copy)) != before
    (copy / "gmpi" / "outer.py").write_text("from gmpi.inner import value as N\n")
    assert (outer := key(package, copy)) != inside
    (copy / "gmpi" / "inner.py").write_text("value = 1\n")
    assert (inner := key(package, copy)) != outer
    (copy / "gmpi" / "inner.py").write_text("value = 2\n")
    assert key(package, copy) != inner


@pytest.mark.parametrize("package", COMPILED)
def test_files_that_nothing_compiled_imports_do_not(package: str, copy: Path) -> None:
    before = key(package, copy)
    for name in ("report.py", "__init__.py", "datatypes/show.py", "new.py"):
        with (copy / "gmpi" / name).open("a") as file:
            file.write("\nX = 1\n")
    assert key(package, copy) == before


def parsed(block: ast.AST) -> Iterator[tuple[str, str, list[str]]]:
    """``sources.imports`` by Python's own parser."""
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        if name == "body" and isinstance(block, ast.If) and "TYPE_CHECKING" in ast.dump(block.test):
            continue
        for node in getattr(block, name, ()):
            if isinstance(node, ast.Import):
                yield from (("", alias.name, []) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield "." * node.level, node.module or "", [alias.name for alias in node.names]
            else:
                yield from parsed(node)


def test_no_import_is_overlooked() -> None:
    for package in ("gmpi", *COMPILED):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text()
            found = sorted(sources.imports(text))
            assert found == sorted(parsed(ast.parse(text))), path
    odd = '"""\nfrom a import b\n"""\n'
    odd += "if TYPE_CHECKING:\n    import a\n\n    from b import c\nimport d, e.f as g\n"
    odd += "def f():\n    from ..h import (  # i\n        j,\n        k as m,\n    )\n"
    wanted = [("", "d", []), ("", "e.f", []), ("..", "h", ["j", "k"])]
    assert sorted(sources.imports(odd)) == sorted(parsed(ast.parse(odd))) == wanted


def modules(package: str) -> Iterator[object]:
    """All that can be imported here: some are for a GPU only."""
    for found in pkgutil.walk_packages([str(ROOT / package)], f"{package}."):
        if not found.name.endswith("_cuda"):
            yield importlib.import_module(found.name)


@pytest.mark.parametrize("package", COMPILED)
def test_whatever_compiled_modules_have_in_hand_is_in_the_key(package: str) -> None:
    files = set(sources.compiled_from(package))
    seen = 0
    for module in modules(package):
        for thing in vars(module).values():
            code = getattr(getattr(thing, "py_func", thing), "__code__", None)
            home = Path(code.co_filename) if isinstance(code, CodeType) else ROOT
            if any(home.is_relative_to(ROOT / ours) for ours in ("gmpi", *COMPILED)):
                assert home in files, f"{module}: {thing}"
                seen += 1
    assert seen > 50


# --- device code ----------------------------------------------------------------------------------


class Maker:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> bytes:
        self.calls += 1
        return make_text(self.calls)


def other_owner(path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give files away")
    os.chown(path, STRANGER, STRANGER)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-3]),
    "one byte changed": lambda path: path.write_bytes(path.read_bytes()[:-2] + b"X\n"),
    "not text": lambda path: path.write_bytes(b"\xff\xfe\x00"),
    "no checksum": lambda path: path.write_text(".version 8.0\n"),
    "a directory's name": lambda path: (path.unlink(), path.symlink_to("/")),
}


def test_device_code_is_made_once(tmp_path: Path) -> None:
    make, path = Maker(), tmp_path / "new" / "gmpi_x-sm90-0.ptx"
    assert cache.read_or_make(path, make) == cache.read_or_make(path, make)
    assert make.calls == 1
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_device_code_is_made_anew(damage: str, tmp_path: Path) -> None:
    make, path = Maker(), tmp_path / "gmpi_x-sm90-0.ptx"
    cache.read_or_make(path, make)
    DAMAGES[damage](path)
    assert cache.read_or_make(path, make) == make_text(2)
    assert cache.read_or_make(path, make) == make_text(2)


def make_text(calls: int) -> bytes:
    return f".version 8.0\n// made {calls}\n".encode()


@pytest.mark.parametrize(
    "give, words",
    [
        (other_owner, f"it belongs to user {STRANGER}"),
        (lambda path: path.chmod(0o666), "others may write it (mode 666)"),
        (lambda path: path.chmod(0o660), "others may write it (mode 660)"),
    ],
)
def test_device_code_of_others_is_not_used(
    give: Callable[[Path], None], words: str, tmp_path: Path
) -> None:
    make, path = Maker(), tmp_path / "gmpi_x-sm90-0.ptx"
    cache.read_or_make(path, make)
    give(path)
    with pytest.warns(RuntimeWarning, match="GMPI_CACHE_DIR") as caught:
        assert cache.read_or_make(path, make) == make_text(2)
    assert words in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.read_or_make(path, make) == make_text(2)


def test_others_may_read_device_code_that_was_made_for_them(tmp_path: Path) -> None:
    path = tmp_path / "gmpi_x-sm90-0.ptx"
    before = os.umask(0o022)
    try:
        cache.read_or_make(path, Maker())
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o644


@contextmanager
def full_disk() -> Iterator[None]:
    """No file can be longer than some bytes, as on a full disk; pytest's own output neither."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_no_device_code_behind(tmp_path: Path) -> None:
    make, path = Maker(), tmp_path / "gmpi_x-sm90-0.ptx"
    for calls in (1, 2):
        with full_disk():
            made = cache.read_or_make(path, make)
        assert made == make_text(calls) and list(tmp_path.iterdir()) == []


def test_an_interrupted_write_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cache.os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cache.read_or_make(tmp_path / "gmpi_x-sm90-0.ptx", Maker())
    assert list(tmp_path.iterdir()) == []


def test_nowhere_to_write_costs_time_only() -> None:
    assert cache.read_or_make(Path("/proc/nowhere/gmpi_x-sm90-0.ptx"), Maker()) == make_text(1)


# --- the compiled engine --------------------------------------------------------------------------


def answer(x):  # type: ignore[no-untyped-def]
    return x + 42


@pytest.fixture
def numba_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    return tmp_path


def compiled() -> bool:
    """Whether a function of the engine had to be compiled."""
    dispatcher = numba.njit(answer)
    dispatcher._cache = engine_cache.cache_of(answer)
    dispatcher.compile((numba.types.int64,))
    assert dispatcher(1) == 43
    return not dispatcher.stats.cache_hits


def files(directory: Path) -> dict[str, Path]:
    """The index and the data file."""
    return {path.suffix: path for path in directory.rglob("*") if path.is_file()}


def test_the_engine_is_compiled_once(numba_cache: Path) -> None:
    before = os.umask(0o002)  # what it lets the group do must not make us doubt our own files
    try:
        assert compiled()
    finally:
        os.umask(before)
    assert not compiled()
    assert set(files(numba_cache)) == {".nbi", ".nbc"}


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("damage", ["empty", "cut short", "one byte changed", "not text"])
def test_a_damaged_engine_is_compiled_anew(suffix: str, damage: str, numba_cache: Path) -> None:
    compiled()
    DAMAGES[damage](files(numba_cache)[suffix])
    assert compiled()
    assert not compiled()


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_an_engine_of_others_is_not_used(suffix: str, numba_cache: Path) -> None:
    compiled()
    other_owner(files(numba_cache)[suffix])
    with pytest.warns(RuntimeWarning, match=f"belongs to user {STRANGER}; let NUMBA_CACHE_DIR"):
        assert compiled()
    assert not compiled()


def test_another_key_is_another_engine(numba_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled()
    monkeypatch.setattr(engine_cache, "fingerprint", lambda package: f"changed {package}")
    assert compiled()
    monkeypatch.setattr(engine_cache, "FROZEN", engine_cache.FROZEN + " OTHER=1")
    assert compiled()


def test_a_full_disk_leaves_no_engine_behind(numba_cache: Path) -> None:
    for _ in range(2):
        with full_disk():
            assert compiled()
        assert files(numba_cache) == {}


NOWHERE = """
from gmpi import Context
from numba.core.caching import NullCache
from host_proxy.platform import native
assert native._entries and all(isinstance(e._cache, NullCache) for e in native._entries)
print("imported")
"""


def test_without_a_directory_to_write_to_there_is_no_cache() -> None:
    # Root can write everywhere: what the installed package allows is taken away from Numba.
    locators = "UserProvidedCacheLocator,UserWideCacheLocator"
    environment = {"NUMBA_CACHE_LOCATOR_CLASSES": locators, "NUMBA_CACHE_DIR": ""}
    environment |= {"HOME": "/proc/nowhere", "XDG_CACHE_HOME": "/proc/nowhere"}
    status, text = launcher.python("-c", NOWHERE, **environment)
    assert status == 0 and "imported" in text, text


def test_an_engine_that_cannot_be_kept_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dispatcher = numba.njit(answer)
    monkeypatch.setattr(native, "_entries", [dispatcher])
    with pytest.warns(RuntimeWarning, match="NUMBA_CACHE_DIR") as caught:
        native.compile_entries()
    assert len(caught) == 1 and "\n" not in str(caught[0].message)
    native.compile_entries()  # once
    assert dispatcher(1) == 43


ONE_OF_TWO = """
import sys, time
sys.path.insert(0, "tests")
import numba, test_cache
from host_proxy.platform import engine_cache, native
dispatcher = numba.njit(test_cache.answer)
dispatcher._cache = engine_cache.cache_of(test_cache.answer)
compiler = dispatcher._compiler.compile
def slowly(*arguments):
    time.sleep(float(sys.argv[1]))
    return compiler(*arguments)
dispatcher._compiler.compile = slowly
native._entries[:] = [dispatcher]
print("ready", flush=True)
sys.stdin.readline()
native.compile_entries()
print("loaded" if dispatcher.stats.cache_hits else "compiled")
"""


def test_one_process_compiles_for_all(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(launcher.ROOT)}
    command = [sys.executable, "-c", ONE_OF_TWO, str(2 * launcher.TIME_FACTOR)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        subprocess.Popen(command, cwd=launcher.ROOT, env=environment, **pipes) as one,
        subprocess.Popen(command, cwd=launcher.ROOT, env=environment, **pipes) as other,
    ):
        both = one, other
        assert all(process.stdout.readline() == "ready\n" for process in both)
        for process in both:
            process.stdin.write("\n")
            process.stdin.flush()
        said = sorted(process.communicate(timeout=60 * launcher.TIME_FACTOR)[0] for process in both)
    assert said == ["compiled\n", "loaded\n"]
