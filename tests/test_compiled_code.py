"""The compiled engine's cache on disk, and what must hold for it to work."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import launcher
import pytest
from numba import njit
from numba.core.codegen import JITCodeLibrary as CodeLibrary

from host_proxy.platform import engine_cache, linked

SELF_MESSAGE = """
import numpy as np
from mpi4py import MPI
import gmpi
from host_proxy.compiled import loop
with gmpi.Context(MPI.COMM_SELF, gpu=False) as g:
    room = np.zeros(5)
    request = g.host.Irecv(room, 0, 3)
    g.host.Send(np.arange(5.0), 0, 3)
    assert request.Wait().count == 5 and (room == np.arange(5)).all()
stats = loop.run.stats
print("compiled", sum(stats.cache_misses.values()), "loaded", sum(stats.cache_hits.values()))
"""


@pytest.mark.mpi
@pytest.mark.mpich  # with a cache of its own: the lanes of tests/run.py have one each
def test_a_second_process_loads_the_engine_from_disk() -> None:
    # The first one, or whoever has filled the cache before it, may compile.
    for _ in range(2):
        status, text = launcher.python("-c", SELF_MESSAGE, timeout=300)
        assert status == 0, text
    assert "compiled 0 loaded 1" in text, text


#: With one function of the library, and of the engine one that stands for all.
FILL = """
import sys
sys.path.insert(0, "tests")
import mpi4py
mpi4py.rc.initialize = False
import host_proxy.proxy, numba, test_cache
from device_lib.platform import library
from gmpi.__main__ import main
from gmpi.launch import precompile
from host_proxy.platform import engine_cache, native
library.functions = {"gmpi_put_mail": library.functions["gmpi_put_mail"]}
dispatcher = numba.njit(test_cache.answer)
dispatcher._cache = engine_cache.cache_of(test_cache.answer)
native._entries[:] = [dispatcher]
main(["cache", "fill", "--cc", "9.0", *sys.argv[1:]], standalone_mode=False)
native.compile_entries()
print("loaded" if dispatcher.stats.cache_hits else "compiled", mpi4py.MPI.Is_initialized())
"""


def test_who_fills_the_cache_compiles_the_engine_as_well(tmp_path: Path) -> None:
    """Without a GPU, and without a start of MPI, which some libraries refuse without mpiexec."""
    options = {"NUMBA_ENABLE_CUDASIM": "0", "GMPI_CACHE_DIR": str(tmp_path / "library")}
    options["NUMBA_CACHE_DIR"] = str(tmp_path / "engine")
    status, text = launcher.python("-c", FILL, **options)
    assert status == 0 and f"\nengine of the proxy: 1 functions in {tmp_path / 'engine'}" in text
    assert text.endswith("loaded False\n"), text
    options |= {"NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator", "NUMBA_CACHE_DIR": ""}
    status, text = launcher.python("-c", FILL, "--json", **options)
    found, _ = json.JSONDecoder().raw_decode(text[text.index("{") :])
    assert found["functions"] == {"sm_90": 1} and found["engine"]["functions"] == 0
    assert found["engine"]["problem"] == engine_cache.NOWHERE
    assert status == 0 and text.endswith("compiled False\n"), text


def test_an_mpi_library_that_cannot_be_loaded_is_named_in_one_line() -> None:
    without = {"NUMBA_ENABLE_CUDASIM": "0", "MPI4PY_LIBMPI": "/nowhere/libmpi.so"}
    status, text = launcher.python("-m", "gmpi", "cache", "fill", "--cc", "9.0", **without)
    assert status == 1 and text.count("\n") == 1 and "/nowhere/libmpi.so" in text, text


# --- no machine code for what is linked -----------------------------------------------------------


def three(a, b, c):  # type: ignore[no-untyped-def]
    """Functions as those of the engine are: the outer one calls the inner one twice."""

    @c
    def outer(x, y):  # type: ignore[no-untyped-def]
        return a(x) + b(y), a(y)

    return outer


@pytest.mark.parametrize("known", [True, False])
def test_code_that_is_linked_is_not_compiled_twice(
    known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not known:  # a Numba that keeps code otherwise
        monkeypatch.setattr(linked, "_KNOWN", (*linked._KNOWN, "of_another_numba"))
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "nogil": True}
    jit = njit(pipeline_class=linked.compiler(), **options)
    inner = jit(lambda x: x * x + 1)
    middle = three(inner, inner, jit)
    whole = three(inner, inner, njit(nogil=True))
    outer = njit(nogil=True)(lambda x, y: (whole(x, y), middle(x, y)))
    assert outer(3, 4) == ((10 + 17, 17), (10 + 17, 17))
    for function in (inner, middle):
        (made,) = function.overloads.values()
        name = made.fndesc.mangled_name
        has_code = CodeLibrary.get_pointer_to_function(made.library, name) != 0
        assert has_code is not known, "Numba's code libraries are not as host_proxy knows them"


# --- no circles -----------------------------------------------------------------------------------


def calls_of_compiled_functions() -> dict[str, set[str]]:
    """Which jitted functions of ``host_proxy`` call which."""
    graph: dict[str, set[str]] = {}
    for path in (launcher.ROOT / "host_proxy").rglob("*.py"):
        tree = ast.parse(path.read_text())
        module = path.stem
        origin: dict[str, str] = {}  # local name -> module.function
        modules: dict[str, str] = {}
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("host_proxy"):
                place = node.module or ""
                for alias in node.names:
                    local = alias.asname or alias.name
                    if place.count(".") < 2:  # a room
                        modules[local] = alias.name
                    else:
                        origin[local] = f"{place.rpartition('.')[2]}.{alias.name}"
            if isinstance(node, ast.FunctionDef):
                origin.setdefault(node.name, f"{module}.{node.name}")
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef):
                continue
            if not any(ast.unparse(d) in ("jit", "entry") for d in node.decorator_list):
                continue
            called = set()
            for inner in ast.walk(node):
                if isinstance(inner, ast.Call):
                    name = ast.unparse(inner.func)
                    first, _, rest = name.partition(".")
                    if name in origin:
                        called.add(origin[name])
                    elif first in modules:
                        called.add(f"{modules[first]}.{rest}")
            graph[f"{module}.{node.name}"] = called
    return graph


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Functions that call each other in a circle, or nothing."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        for other in sorted(graph.get(name, ())):
            if found := visit(other, [*path, name]):
                return found
        done.add(name)
        return []

    for name in sorted(graph):
        if found := visit(name, []):
            return found
    return []


def test_circles_are_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert circle({"a": {"a"}}) == ["a", "a"]
    assert circle({"a": {"b", "c"}, "b": {"c"}}) == []


def test_no_circles_of_calls() -> None:
    # Numba resolves such calls when it compiles and not when it loads from disk: the second
    # process that used the engine ended with a segmentation fault.
    graph = calls_of_compiled_functions()
    assert len(graph) > 60 and graph["loop.run"] >= {"loop.serve", "progress.progress"}
    assert circle(graph) == []


PAIR = """
from host_proxy.platform.native import compile_entries, entry

@entry
def one(n):
    return 6 * n + 1

@entry
def both(n):
    return one(n) + one(n + 1)

compile_entries()
print(both(3), *(sum(function.stats.cache_hits.values()) for function in (one, both)))
"""


def test_a_function_that_is_not_on_disk_calls_one_that_is(tmp_path: Path) -> None:
    (tmp_path / "pair.py").write_text(PAIR)
    for loaded in ("0 0", "1 0", "1 1"):
        status, text = launcher.python(
            "-c", "import pair", PYTHONPATH=str(tmp_path), NUMBA_CACHE_DIR=str(tmp_path / "engine")
        )
        assert status == 0 and text == f"44 {loaded}\n", text
        if loaded == "0 0":
            files = list((tmp_path / "engine").rglob("pair.both*"))
            assert files
            for file in files:
                file.unlink()


#: Stand-ins for the compiler, of which one fails.
ONE_FAILS = """
import sys, time
from pathlib import Path
from gmpi.launch import precompile
def compiles(name, cc):
    if name == "f0":
        raise RuntimeError("f0 does not compile")
    time.sleep(0.05)
    Path(sys.argv[1], name).touch()
    return name
precompile._compile = compiles
precompile.names = lambda: [f"f{k}" for k in range(200)]
list(precompile.fill((9, 0), False))
"""


def test_nothing_more_is_compiled_when_one_does_not(tmp_path: Path) -> None:
    status, text = launcher.python(
        "-c", ONE_FAILS, str(tmp_path), NUMBA_ENABLE_CUDASIM="0", GMPI_CACHE_DIR=str(tmp_path)
    )
    assert status != 0 and "f0 does not compile" in text, text
    assert len(list(tmp_path.glob("f*"))) < 100
