"""Which build of the device library a launch takes, with stand-ins for what needs a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from device_lib.platform import fitting, library
from gmpi.errors import UsageError
from gmpi.launch import builds, launch

OWN = 40  # registers that the stand-in's own code takes
MULTIPROCESSORS, REGISTERS = 132, 65536


class Kernel:
    """As ``builds`` uses Numba's: linked with a limit, it fits as often as its registers do."""

    shared_mem_per_block = 1000

    def __init__(self, limit: int, own: int = OWN) -> None:
        self.limit = limit
        self.regs_per_thread = max(limit, own)
        self.asked = 0

    def max_cooperative_grid_blocks(self, threads: int, dynamic: int) -> int:
        self.asked += 1
        return REGISTERS // (self.regs_per_thread * threads) * MULTIPROCESSORS


def kernel_of(monkeypatch: pytest.MonkeyPatch, most: int | None = None, own: int = OWN) -> Any:
    kernel = SimpleNamespace(_codelibrary=SimpleNamespace(_max_registers=most), linked={})

    def linked_with(_: Any, limit: int, held: bool = False) -> Kernel:
        name = f"{limit}, held" if held else limit
        return kernel.linked.setdefault(name, Kernel(limit, 0 if held else own))

    monkeypatch.setattr(builds, "_linked_with", linked_with)
    monkeypatch.setattr(builds, "_multiprocessors", lambda: MULTIPROCESSORS)
    return kernel


@pytest.mark.parametrize(
    ("blocks", "threads", "limit"),
    [
        (1, 32, 255),
        (132, 256, 255),
        (133, 256, 128),
        (528, 256, 64),
        (529, 256, 40),
        (1, 512, 128),
        (1, 1024, 64),
    ],
)
def test_a_launch_takes_the_first_build_under_which_its_grid_is_resident(
    monkeypatch: pytest.MonkeyPatch, blocks: int, threads: int, limit: int
) -> None:
    kernel = kernel_of(monkeypatch)
    found = builds.choose(kernel, blocks, threads, 24)
    assert found.kernel.limit == limit and found.resident >= blocks
    assert (found.registers, found.shared_bytes) == (limit, 1024)
    # What is not needed is not even linked.
    assert list(kernel.linked)[-1] in (limit, f"{limit}, held")


def test_where_none_fits_the_launch_knows_how_many_blocks_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = builds.choose(kernel_of(monkeypatch), 10_000, 1024, 0)
    assert (found.kernel.limit, found.resident) == (64, MULTIPROCESSORS)
    # The lean build would not make the grid resident either, and nobody waits for it.
    kernel = kernel_of(monkeypatch)
    found = builds.choose(kernel, 6 * MULTIPROCESSORS + 1, 256, 0)
    assert (found.kernel.limit, found.resident) == (64, 4 * MULTIPROCESSORS)
    assert list(kernel.linked) == [255, 128, 64]


def test_a_kernel_s_own_registers_do_not_keep_it_from_being_launched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = kernel_of(monkeypatch, own=80)
    found = builds.choose(kernel, 1, 1024, 0)
    assert (found.resident, found.registers) == (MULTIPROCESSORS, 64)
    assert list(kernel.linked)[-1] == "64, held"
    found = builds.choose(kernel, 6 * MULTIPROCESSORS, 256, 0)
    assert (found.resident, found.registers) == (6 * MULTIPROCESSORS, 40)
    assert list(kernel.linked)[-1] == "40, held"
    # They stay what they are where that is enough.
    assert builds.choose(kernel, 6 * MULTIPROCESSORS, 128, 0).registers == 80


def test_the_user_s_limit_of_registers_holds_for_the_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert builds.choose(kernel_of(monkeypatch, most=128), 1, 32, 0).kernel.limit == 128
    assert builds.choose(kernel_of(monkeypatch, most=32), 1, 32, 0).kernel.limit == 40


def test_the_largest_grid_is_that_of_usual_builds_unless_the_lean_one_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = kernel_of(monkeypatch)
    assert builds.most_blocks(kernel, 1024, 0, lean=False) == MULTIPROCESSORS
    assert builds.most_blocks(kernel, 256, 0, lean=False) == 4 * MULTIPROCESSORS
    assert list(kernel.linked) == [255, 128, 64]
    assert builds.most_blocks(kernel, 256, 0, lean=True) == 6 * MULTIPROCESSORS


def test_the_largest_grid_that_leaves_a_kernel_s_own_code_its_registers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = kernel_of(monkeypatch, own=80)
    assert builds.most_blocks(kernel, 256, 0, lean=False) == 4 * MULTIPROCESSORS
    assert builds.most_blocks(kernel, 256, 0, lean=False, held=False) == 3 * MULTIPROCESSORS
    # A launch of so many takes the build that leaves them.
    assert builds.choose(kernel, 3 * MULTIPROCESSORS, 256, 0).registers == 80
    with pytest.raises(ValueError, match="lean and keep_registers are True, allowed is one"):
        launch.max_blocks(kernel, 256, lean=True, keep_registers=True)


class File:
    """Stands in for a function of a build of the library."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def with_limit(self, limit: int) -> File:
        return File(limit)


def fitted(limit: int, most: int | None = None, **bounds: Any) -> SimpleNamespace:
    code = SimpleNamespace(_max_registers=most, _linking_files={File(limit), "user.o"})
    fitting.fit(SimpleNamespace(_codelibrary=code, **bounds), File)
    assert "user.o" in code._linking_files and len(code._linking_files) == 2
    return code


@pytest.mark.parametrize(
    ("most", "bounds", "limit"),
    [
        (None, None, 255),
        (200, None, 128),
        (32, None, 40),
        (None, (256, 2), 128),
        (None, (256, 6), 40),
        (None, 1024, 64),
    ],
)
def test_a_kernel_is_linked_with_a_build_that_it_allows(
    most: int | None, bounds: Any, limit: int
) -> None:
    code = fitted(255, most, launch_bounds=bounds)
    assert [file.limit for file in code._linking_files if isinstance(file, File)] == [limit]
    assert code._max_registers in (most, 40)


def test_what_a_launch_has_made_leaner_stays_so() -> None:
    files = fitted(64, 128)._linking_files
    assert [file.limit for file in files if isinstance(file, File)] == [64]


def test_bounds_that_leave_the_library_too_few_registers_are_named() -> None:
    with pytest.raises(UsageError, match=r"launch_bounds=\(1024, 2\) leave a thread 32 registers"):
        fitted(255, launch_bounds=(1024, 2))


def test_a_launch_like_one_before_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = kernel_of(monkeypatch)
    first = builds.choose(kernel, 1, 256, 0)
    assert builds.choose(kernel, 1, 256, 0) is first and kernel.linked[255].asked == 1


def test_names_are_the_user_s() -> None:
    assert builds.demangled("_ZN8__main__8exchangeB4v414B92cw51cXTLSUwv1s") == "exchange"
    assert builds.demangled("_ZN6solver4Heat4stepB2v1B3abc") == "Heat.step"
    assert builds.demangled("plain") == "plain"
    kernel = SimpleNamespace(py_func=kernel_of, entry_name="_ZN3abc")
    assert builds.name_of(kernel) == "kernel_of"


def test_a_launch_knows_what_its_kernel_links(monkeypatch: pytest.MonkeyPatch) -> None:
    linked = type("Linked", (SimpleNamespace,), {"__hash__": object.__hash__})
    monkeypatch.setattr(library, "Linked", linked, raising=False)
    for names, makes in (
        (["gmpi_open_any_block"], False),
        (["gmpi_open_any_warp", "gmpi_partitioned_make_warp"], True),
    ):
        files = {linked(function=name) for name in names} | {"something.ptx"}
        kernel = SimpleNamespace(_codelibrary=SimpleNamespace(_linking_files=files))
        assert builds.makes_requests(kernel) == makes
        files.clear()  # it is not asked again
        assert builds.makes_requests(kernel) == makes


def test_two_functions_of_the_library_have_two_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(value: int) -> Any:
        def body(word: int) -> int:
            return word + value

        return body

    monkeypatch.setattr(library, "_bodies", {}, raising=False)
    library.linked("gmpi_one", 1, 1, make(1))
    library.linked("gmpi_one", 1, 1, make(1))  # made again, for another caller
    with pytest.raises(ValueError, match="two functions of the library are named gmpi_one"):
        library.linked("gmpi_one", 1, 1, lambda word: word)
