"""Two Himeno iterations in one pass: the order of their stages. No rank is started."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import product

import launcher
import pytest

sys.path.insert(0, str(launcher.ROOT / "benchmarks" / "himeno"))

from _himeno_grid import GridError, part_of
from _himeno_signals import make_signals
from _himeno_stages import stages, words
from _himeno_strips import Strips, registers, wave_pays, wave_plan

Done = set[tuple[int, int]]  # (iteration, plane)


class Block:
    """The only block of a rank, as its two halves go through their stages."""

    def __init__(self, planes: int, left: bool, right: bool, iterations: int, slots: int) -> None:
        self.planes, self.left, self.right = planes, left, right
        self.iterations, self.slots = iterations, slots
        self.order = stages(planes, left)
        self.needed = words(self.order)
        self.last = (iterations // 2 + 1) * len(self.order)
        self.ended = [0, 0]  # stages, of the leading and of the trailing half
        self.done: Done = set()

    def work(self, half: int, s: int) -> tuple[int, int] | None:
        """(iteration, plane) that a half computes in a stage."""
        turn, at = divmod(s, len(self.order))
        stage = self.order[at]
        n = 2 * turn + (stage.trails if half else 0)
        does = stage.trails != 0 if half else stage.leads
        return (n, stage.plane) if does and 0 <= n < self.iterations else None

    def step(self, half: int, halo_came: Callable[[int, int], bool]) -> bool:
        """One stage of a half, if it may begin."""
        s = self.ended[half]
        # A slot is free when the leading half has ended its stage and the trailing one has begun
        # it, for which it must have ended the one before.
        if s == self.last or s - self.slots >= min(self.ended[0], self.ended[1] + 1):
            return False
        found = self.work(half, s)
        if found:
            turn, at = divmod(s, len(self.order))
            if self.ended[1 - half] < turn * len(self.order) + self.needed[at, 1 + half]:
                return False
            n, plane = found
            edge = (self.left and plane == 0) or (self.right and plane == self.planes - 1)
            if edge and n > 0 and not halo_came(n, plane):
                return False
            around = range(max(0, plane - 1), min(self.planes, plane + 2))
            assert all((n - 1, i) in self.done for i in around if n > 0), found
            # What it overwrites has been read by all who need it: they are those around.
            assert not any((n + 1, i) in self.done for i in around), found
            assert found not in self.done
            self.done.add(found)
        self.ended[half] += 1
        return True


def go(planes: int, ranks: int, slots: int, iterations: int, eager: bool) -> None:
    """All go at the same pace, or each as far as it can: what comes out is the same."""
    blocks = [Block(planes, rank > 0, rank < ranks - 1, iterations, slots) for rank in range(ranks)]

    def step(rank: int, half: int) -> bool:
        def came(n: int, plane: int) -> bool:
            other, theirs = (rank - 1, planes - 1) if plane == 0 else (rank + 1, 0)
            return (n - 1, theirs) in blocks[other].done

        return blocks[rank].step(half, came)

    moved = True
    while moved:
        moved = False
        for rank, half in product(range(ranks), (0, 1)):
            while step(rank, half):
                moved = True
                if not eager:
                    break
    wanted = {(n, plane) for n in range(iterations) for plane in range(planes)}
    assert all(block.done == wanted for block in blocks)


@pytest.mark.parametrize("planes", [4, 5, 6, 9, 32])
def test_each_plane_once_behind_what_it_needs_and_nobody_waits_in_a_circle(planes: int) -> None:
    cases = product((1, 2, 3, 5), (3, 4, 8), (1, 2, 3, 4, 7), (False, True))
    for ranks, slots, iterations, eager in cases:
        try:
            go(planes, ranks, slots, iterations, eager)
        except AssertionError as exc:
            case = f"{ranks} ranks, {slots} slots, {iterations} iterations, eager: {eager}"
            raise AssertionError(f"{case}: {exc}") from exc


@pytest.mark.parametrize("left", [False, True])
def test_what_comes_from_a_neighbour_has_half_a_round_to_come(left: bool) -> None:
    """All ranks go through their rounds at the same pace: how far apart sending and use are."""
    planes, iterations = 64, 12

    def positions(is_left: bool) -> dict[tuple[int, int], float]:
        """In rounds."""
        block = Block(planes, not is_left, is_left, iterations, 4)
        found = {}
        for s in range(block.last):
            for half in (0, 1):
                if work := block.work(half, s):
                    found[work] = s + 2 * half  # so many stages behind
        return found

    users, makers = positions(not left), positions(left)
    used, made = (0, planes - 1) if left else (planes - 1, 0)
    for n in range(1, iterations - 2):
        assert users[n, used] - makers[n - 1, made] > 0.4, n


def test_planes_that_follow_each_other_are_said_to() -> None:
    """Half a block keeps the pressure of two planes in registers, and reads it again if not."""
    for left in (False, True):
        order = stages(16, left)
        for at, (stage, word) in enumerate(zip(order, words(order)[:, 0])):
            before = order[at - 1] if at else None
            kept = before is not None and before.plane == stage.plane - 1
            assert bool(word & 8) == (not (kept and before.leads)), stage  # type: ignore[union-attr]
            again = kept and before.trails == stage.trails  # type: ignore[union-attr]
            assert bool(word & 16) == (not again), stage


def test_registers_are_what_a_quarter_of_a_multiprocessor_gives_its_warps() -> None:
    # 5 warps of 104 would need 16640 of 16384.
    assert [registers(n) for n in (8, 16, 17, 20, 32)] == [256, 128, 96, 96, 64]


def test_what_cannot_be_swept_so_is_refused() -> None:
    with pytest.raises(GridError, match="i only, not into 1x2x1 parts; --decompose 2,1,1 does"):
        wave_plan(part_of(0, (8, 8, 8), (1, 2, 1)))
    with pytest.raises(GridError, match="--communicating 1 gives 1 blocks"):
        wave_plan(part_of(0, (8, 8, 8), (2, 1, 1)), communicating=1)
    with pytest.raises(GridError, match="not one for each message and one for the sum; take more"):
        wave_plan(part_of(0, (8, 8, 8), (2, 1, 1)), messages=3)
    with pytest.raises(GridError, match="3 blocks that sweep have 170 rows of 1024 points each"):
        wave_plan(part_of(0, (512, 512, 1024), (2, 1, 1)))
    with pytest.raises(GridError, match="3 planes that change cannot be swept .* 4 can"):
        stages(3, True)


def test_more_iterations_than_can_be_counted_are_refused() -> None:
    part = part_of(1, (256, 256, 512), (2, 1, 1))
    strips, order = Strips(part, 127), stages(128, True)
    signals = make_signals(part, strips, order, 4)
    most = 2 * ((1 << 28) // 130) - 2
    # All stages, and all warps that leave a slot.
    assert (most // 2 + 1) * len(order) <= 1 << 28
    assert 2 * strips.warps * ((1 << 28) // 3 + 1) < 1 << 31
    with pytest.raises(GridError, match=f"at most {most} of this size; --together 1 takes any"):
        signals.fresh(most + 1)


def test_small_parts_are_swept_one_iteration_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import _himeno_kernels
    import _himeno_strips

    # As on a GPU of 132 multiprocessors.
    monkeypatch.setattr(_himeno_strips, "SIMULATOR", False)
    monkeypatch.setattr(_himeno_strips, "multiprocessors", lambda: 132)
    monkeypatch.setattr(_himeno_kernels, "multiprocessors", lambda: 132)

    class Device:
        compute_capability = (9, 0)

    monkeypatch.setattr(_himeno_strips.cuda, "get_current_device", Device, raising=False)
    pays = {
        (64, 64, 128): False,
        (128, 128, 256): False,
        (256, 256, 512): True,
        (512, 512, 1024): False,
    }
    for size, wanted in pays.items():
        assert wave_pays(part_of(0, size, (2, 1, 1))) == wanted, size
    assert wave_pays(part_of(3, (256, 256, 512), (4, 1, 1)))
    assert not wave_pays(part_of(0, (256, 256, 512), (1, 1, 1)))
    assert not wave_pays(part_of(3, (256, 256, 512), (8, 1, 1)))
    assert not wave_pays(part_of(0, (256, 256, 512), (1, 2, 1)))
    assert not wave_pays(part_of(0, (256, 256, 512), (2, 1, 1)), sharers=2)
    plan = wave_plan(part_of(0, (256, 256, 512), (2, 1, 1)))
    assert (plan.threads, plan.registers, plan.slots, plan.workers) == (512, 128, 4, 127)
    Device.compute_capability = (8, 0)
    with pytest.raises(GridError, match=r"9\.0 or more, this one has 8\.0; --together 1 takes any"):
        wave_plan(part_of(0, (256, 256, 512), (2, 1, 1)))
