"""Strict simulation: what orders accesses, which bytes a buffer has, and what is said of a race.

The mistakes that need a context are in ``ranks/planted.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numba import cuda

import gmpi
from gmpi import StrictError

pytestmark = [
    pytest.mark.skipif(not gmpi.SIMULATOR, reason="needs the simulator"),
    pytest.mark.quick,
]

if gmpi.SIMULATOR:
    from device_lib.simulator import kernels
    from device_lib.simulator.atomics import OPERATIONS
    from device_lib.simulator.lanes import Grid
    from device_lib.strict import clocks, regions, start
    from device_lib.strict.checker import World
    from device_lib.strict.clocks import Clock
    from device_lib.strict.findings import MOST
    from device_lib.strict.schedule import Schedule
    from device_lib.strict.shadow import Shadow


@pytest.fixture
def strict() -> Iterator[None]:
    """Kernels without a context are checked."""
    start(World(0, 1, lambda datatype, count: None, lambda comm: (0, 1)))
    yield
    kernels.check_with(None)


def findings(kernel: Any, blocks: Any, threads: Any, *arguments: Any) -> list[Any]:
    try:
        kernel[blocks, threads](*arguments)
    except StrictError as exc:
        return list(exc.findings)
    return []


def line(kernel: Any, number: int) -> str:
    return f"test_strict.py:{kernel.py_func.__code__.co_firstlineno + number}"


# --- what comes before what -----------------------------------------------------------------------


def lanes(number: int) -> list[Clock]:
    return [Clock(k, [0] * number) for k in range(number)]


def test_lanes_that_have_met_have_seen_each_other() -> None:
    a, b, c = lanes(3)
    before = a.epoch()
    assert a.has_seen(before) and not b.has_seen(before)
    clocks.meet([a, b])
    assert b.has_seen(before) and not c.has_seen(before) and not b.has_seen(a.epoch())
    clocks.meet([b, c])
    assert c.has_seen(before)  # by way of b


def test_an_atomic_orders_with_a_fence_on_both_sides_only() -> None:
    for fences in range(4):
        a, b = lanes(2)
        written = a.epoch()
        if fences & 1:
            clocks.fence(a)
        published = clocks.atomic(a, None)
        later = a.epoch()
        clocks.atomic(b, published)
        if fences & 2:
            clocks.fence(b)
        assert b.has_seen(written) == (fences == 3)
        assert not (fences & 1 and b.has_seen(later))


def test_words_get_smaller_when_less_is_accessed() -> None:
    told: list[Any] = []
    shadow = Shadow(4096, 64, 8, lambda *race: told.append(race))
    a, b = lanes(2)
    shadow.write(a, 4096 + 8, 8, 1)
    shadow.read(a, 4096 + 16, 8, 2)
    shadow.read(b, 4096 + 4, 4, 3)  # beside it
    assert shadow.shift == 2 and not told
    shadow.read(b, 4096 + 12, 4, 4)
    shadow.write(b, 4096 + 16, 4, 5)
    assert [(race[0], race[1].site, race[2].site) for race in told] == [
        (4096 + 12, 1, 4), (4096 + 16, 2, 5),
    ]  # fmt: skip


# --- bytes of a buffer ----------------------------------------------------------------------------


def runs(datatype: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Two floats, then one at a distance; extent 32."""
    at = np.concatenate([np.array([0, 16]) + 32 * k for k in range(count)])
    return at, np.tile([8, 4], count)


def test_the_bytes_of_a_buffer() -> None:
    array = np.arange(48.0).reshape(6, 8)
    at = array.ctypes.data
    row = regions.region_of(array[1], 8, gmpi.DOUBLE, runs)
    column = regions.region_of(array[:, 2], 5, gmpi.DOUBLE, runs)
    assert row is not None and column is not None
    assert (row.low, row.high, row.places) == (at + 64, at + 128, None)
    assert (column.read().view(float) == array[:5, 2]).all()
    assert row.overlaps(column) and column.overlaps(row)
    assert column.touches(at + 16, at + 17) and not column.touches(at + 24, at + 80)
    other = regions.region_of(array[:, 3], 6, gmpi.DOUBLE, runs)
    assert other is not None and not other.overlaps(column)
    part = column.part(1, 5)
    part.poison()
    assert np.isnan(array[1, 2]) and np.isnan(array).sum() == 1
    assert regions.region_of(array[1:2], 9, gmpi.DOUBLE, runs) is None  # refused: too short
    derived = regions.region_of(array, 2, 0x50000000, runs)
    assert derived is not None and derived.size == 24
    assert (derived.read()[:8] == array.view(np.uint8).ravel()[:8]).all()
    assert derived.touches(at + 48, at + 52) and not derived.touches(at + 52, at + 64)


def test_poison_shows_as_a_number_and_as_an_integer() -> None:
    array = np.zeros(4)
    region = regions.region_of(array, 4, gmpi.DOUBLE, runs)
    assert region is not None
    region.poison()
    assert np.isnan(array).all() and np.isnan(array.view(np.float32)).all()
    assert (array.view(np.int32) == 2147334877).all()


# --- orders ---------------------------------------------------------------------------------------


def order(seed: int) -> list[int]:
    """The order in which ten lanes run."""
    grid = Grid()
    grid.ready.extend(range(10))  # type: ignore[arg-type]
    Schedule(seed, 0).begin(grid)
    return [int(grid.ready.popleft()) for _ in range(10)]  # type: ignore[call-overload]


def test_the_same_seed_draws_the_same_order() -> None:
    assert order(1) == order(1) != order(2)
    assert sorted(order(3)) == list(range(10))


def test_a_test_says_not_yet_at_least_once_and_not_for_ever() -> None:
    schedule = Schedule(0, 0)
    for handle in range(50):
        assert schedule.holds((handle,))
        assert not all(schedule.holds((handle,)) for _ in range(4))


# --- races ----------------------------------------------------------------------------------------


@cuda.jit
def _everybody_writes(data):  # type: ignore[no-untyped-def]
    i = cuda.grid(1)
    data[i % 4, 1] = i


@cuda.jit
def _one_line_after_the_other(data, shared):  # type: ignore[no-untyped-def]
    tile = cuda.shared.array(64, np.int32)
    i = cuda.threadIdx.x
    tile[i] = data[i] + 1
    if shared:
        cuda.syncthreads()
    data[i] = tile[i ^ 1] + 1


@pytest.mark.usefixtures("strict")
def test_a_race_names_element_threads_lines_and_cure() -> None:
    (found,) = findings(_everybody_writes, 2, 4, cuda.to_device(np.full((4, 3), -1)))
    text = found.text
    assert found.kind == "race"
    assert "element [" in text and ", 1] of argument data" in text
    assert "of block 0 writes it" in text and "of block 1 writes it" in text
    assert text.count(line(_everybody_writes, 3)) == 2
    assert "to do: let one block write, or use cuda.atomic; or put a grid barrier" in text

    data = np.zeros(64, np.int32)
    (found,) = findings(_one_line_after_the_other, 1, 64, cuda.to_device(data), False)
    assert "an element of shared memory" in found.text
    assert line(_one_line_after_the_other, 4) in found.text
    assert line(_one_line_after_the_other, 7) in found.text
    assert "to do: put cuda.syncthreads() between them" in found.text
    assert not findings(_one_line_after_the_other, 1, 64, cuda.to_device(data), True)


@cuda.jit
def _records(data, views, out):  # type: ignore[no-untyped-def]
    i = cuda.threadIdx.x
    data[i]["x"] = i
    data[i].y = 2 * i
    row = views[i]
    row[0] = data[i].x + data["y"][i]
    views[i, 1:] = row[:1]
    cuda.syncthreads()
    out[-1 - i] = views.T[2, i - 1]
    cuda.atomic.add(out, 0, len(row))


@pytest.mark.usefixtures("strict")
def test_records_views_and_negative_indices_are_accesses_of_their_elements() -> None:
    data = np.zeros(8, [("x", np.int32), ("y", np.int32)])
    views, out = np.zeros((8, 4)), np.zeros(9)
    assert not findings(_records, 1, 8, data, views, out)
    assert (views == 3.0 * np.arange(8)[:, None]).all()
    assert out[0] == 32 and (out[-1:0:-1] == np.roll(views[:, 2], 1)).all()


@cuda.jit
def _same_value(out, handles):  # type: ignore[no-untyped-def]
    handles[0] = 42
    out[cuda.grid(1)] = handles[0]


@pytest.mark.usefixtures("strict")
def test_a_store_of_the_same_value_is_no_race() -> None:
    assert not findings(_same_value, 1, 64, np.zeros(64), cuda.to_device(np.zeros(1, int)))


@cuda.jit
def _several(arrays):  # type: ignore[no-untyped-def]
    arrays[1][0] = cuda.threadIdx.x


@pytest.mark.usefixtures("strict")
def test_arrays_in_a_tuple_are_watched_too() -> None:
    arrays = cuda.to_device(np.zeros(2)), cuda.to_device(np.full(2, -1))
    (found,) = findings(_several, 1, 2, arrays)
    assert "element [0] of argument arrays[1]" in found.text


@cuda.jit
def _grid_of_two_dimensions(data):  # type: ignore[no-untyped-def]
    x, y = cuda.grid(2)
    data[x, y] = x + 10 * y + 1
    cuda.cg.this_grid().sync()
    data[x, y] += data[(x + 1) % 4, y]


@pytest.mark.usefixtures("strict")
def test_a_race_in_a_grid_of_two_dimensions() -> None:
    (found,) = findings(_grid_of_two_dimensions, (2, 3), (2, 2), np.zeros((4, 6)))
    assert found.text.count(line(_grid_of_two_dimensions, 5)) == 2


_MANY = "def many(data):\n    i = cuda.threadIdx.x\n" + "".join(
    f"    data[{k}] = i\n" for k in range(MOST + 5 if gmpi.SIMULATOR else 0)
)


@pytest.mark.usefixtures("strict")
def test_there_is_an_end_to_what_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"cuda": cuda}
    exec(compile(_MANY, "many.py", "exec"), names)
    with pytest.raises(
        StrictError, match=rf"{MOST + 5} mistakes in kernel many \(race\)"
    ) as caught:
        cuda.jit(names["many"])[1, 32](cuda.to_device(np.full(100, -1)))
    assert len(caught.value.findings) == MOST
    told = capsys.readouterr().err
    assert told.count("GMPI strict: rank 0: race") == MOST and told.count("are counted") == 1


@cuda.jit
def _fails(data):  # type: ignore[no-untyped-def]
    data[0] = cuda.threadIdx.x
    cuda.syncthreads()
    data[1000] = 1


@pytest.mark.usefixtures("strict")
def test_an_exception_says_what_was_found_before() -> None:
    with pytest.raises(IndexError) as caught:
        _fails[1, 32](cuda.to_device(np.full(8, -1)))
    assert "strict mode has found a mistake in kernel _fails (race)" in caught.value.__notes__[0]
    assert not findings(_same_value, 1, 64, np.zeros(64), cuda.to_device(np.zeros(1, int)))


def test_without_strict_mode_kernels_get_numpys_arrays() -> None:
    assert kernels.checker is None
    kinds = []

    @cuda.jit
    def kernel(data):  # type: ignore[no-untyped-def]
        kinds.append((type(data), cuda.atomic.add))

    kernel[1, 1](np.zeros(1))
    assert kinds == [(np.ndarray, OPERATIONS["add"])]
