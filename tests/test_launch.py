"""What GMPI does around launches, with numba-cuda's own classes; no GPU takes part."""

from __future__ import annotations

from types import SimpleNamespace

import launcher
import pytest

from gmpi.launch import builds, launch

WARNINGS = """
import warnings
from types import SimpleNamespace
import gmpi
from gmpi.launch import launch
from numba.cuda import dispatcher
from numba.cuda.core.errors import NumbaPerformanceWarning

launched = []
kernel = SimpleNamespace(call=lambda args, configuration: launched.append(args))

def warned(configure, *launches):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        configuration = configure()
        for args in launches:
            configuration(*args)
    assert launched[-len(launches):] == list(launches)
    assert all(w.category is NumbaPerformanceWarning for w in caught), caught
    assert all(w.filename == "<string>" for w in caught if launch._hooks), caught
    return len(caught)

def configure(blocks=1):
    return dispatcher._LaunchConfiguration(kernel, (blocks, 1, 1), (32, 1, 1), 0, 0)

context = gmpi.DeviceContext(1, 2, 3, 4)
assert warned(configure, (context,)) == 1  # Numba's own way
launch.install(None, None)
assert warned(configure, (context, 5), (context, 6)) == 0
assert warned(configure, (5,)) == 1
assert warned(configure, (5,), (6,)) == 1
assert warned(configure, (context,), (5,), (context,)) == 1
assert warned(lambda: configure(1000), (5,)) == 0
assert dispatcher._LaunchConfiguration.__call__.__module__ == "gmpi.launch.launch"
print("as expected")
"""


def test_numba_warns_of_small_grids_only_without_a_context() -> None:
    environment = {"NUMBA_ENABLE_CUDASIM": "0", "CUDA_VISIBLE_DEVICES": ""}
    status, text = launcher.python("-c", WARNINGS, **environment)
    assert status == 0 and "as expected" in text, text


class Compiled:
    """One specialisation of a kernel, on a GPU of 100 multiprocessors."""

    shared_mem_per_block = 0

    def __init__(self, registers: int) -> None:
        self.regs_per_thread = registers

    def max_cooperative_grid_blocks(self, threads: int, shared_bytes: int) -> int:
        by_registers = 65536 // (self.regs_per_thread * threads)
        by_memory = 200_000 // (1024 + shared_bytes)
        return 100 * min(2048 // threads, by_registers, by_memory)


@pytest.mark.parametrize(
    "threads, shared_bytes, most",
    [
        (128, 0, 800),
        ((128,), 0, 800),
        ((32, 4), 0, 800),
        ((8, 4, 4), 0, 800),
        ((32, 8), 0, 400),
        (128, 99_000, 100),
        ((32, 4), 49_000, 300),
    ],
)
def test_the_largest_grid(
    threads: int | tuple[int, ...], shared_bytes: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "SIMULATOR", False)
    monkeypatch.setattr(builds, "builds", lambda kernel, lean, held: [kernel])
    monkeypatch.setattr(builds, "_allow_dynamic", lambda build, nbytes: None)
    kernel = SimpleNamespace(overloads={"a": Compiled(32), "b": Compiled(64)})
    assert launch.max_blocks(kernel, threads, shared_bytes) == most


def test_a_kernel_that_is_not_compiled_has_no_largest_grid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launch, "SIMULATOR", False)
    with pytest.raises(ValueError, match="has not been compiled yet"):
        launch.max_blocks(SimpleNamespace(overloads={}), 32)
