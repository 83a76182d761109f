"""How a part is divided among the blocks that sweep two iterations together."""

from __future__ import annotations

from math import prod

from _himeno_faces import PIECE
from _himeno_grid import COEFFICIENTS, GridError, Part
from _himeno_kernels import check_communicating, multiprocessors
from _himeno_stages import stages
from _himeno_sweep import Plan
from numba import cuda

from gmpi import SIMULATOR

_LEAST_SLOTS = 3
_MOST_SLOTS = 8
_MOST_SHARED = 223 << 10  # bytes; the rest of 227 KiB is for what is not coefficients
_MOST_THREADS = 256  # of a half: it has as many registers as there are
_LARGE = 1 << 23  # points of a part, below which half a round is too short for a halo
_COMMUNICATING = 5  # what half of 256 rows leaves over of 132 multiprocessors


class Strips:
    """The rows of each plane that the blocks have, one strip each, and the warps of half a block.

    Attributes:
        rows, row: of a strip, as many as all blocks can have; elements of a row's coefficients.
        count: strips. The last one may have fewer rows.
        warps: of half a block; thread ``t`` has group ``t % groups`` of row ``t // groups``.
        across: warps of a row, where they have nothing of another one.
    """

    def __init__(self, part: Part, workers: int) -> None:
        box = part.box
        self.rows = -(-box.rows // max(1, workers))
        self.count = -(-box.rows // self.rows)
        self.warps = -(-self.rows * box.groups // 32)
        self.across = box.groups // 32 if box.groups % 32 == 0 else 0
        self.row = part.pitch * len(COEFFICIENTS)

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def slot(self) -> int:
        """Elements of the coefficients of a strip."""
        return self.rows * self.row


def sides(part: Part) -> tuple[bool, bool]:
    """Whether there are neighbours on the left and on the right along i."""
    return part.place[0] > 0, part.place[0] < part.ranks[0] - 1


def wave_plan(part: Part, sharers: int = 1, **chosen: int) -> Plan:
    """How two iterations are swept together, with as many messages for a face as there are blocks,
    none of less than 64 KiB.

    Args:
        sharers: ranks that use the GPU.
        chosen: ``communicating``, ``messages``, ``slots``, where they are to be others.

    Raises:
        GridError: this part cannot be swept so.
    """
    ranks = part.ranks
    if ranks[1:] != (1, 1):
        raise GridError(
            f"two iterations are swept together where the grid is cut along i only, not into "
            f"{ranks[0]}x{ranks[1]}x{ranks[2]} parts; --decompose {prod(ranks)},1,1 does that, and "
            "--together 1 takes any"
        )
    few = chosen.get("communicating", min(_COMMUNICATING, multiprocessors() // sharers // 2))
    check_communicating(few, sharers)
    # One block sums up; the others are for the messages to and from one or two neighbours.
    most = (few - 1) // max(1, min(2, ranks[0] - 1))
    if most < max(1, chosen.get("messages", 0)):
        raise GridError(
            f"--communicating {few} gives {few} blocks that communicate: not one for each message "
            "and one for the sum; take more"
        )
    capability = (9, 0) if SIMULATOR else cuda.get_current_device().compute_capability
    if capability < (9, 0):
        raise GridError(
            "two iterations are swept together by GPUs of compute capability 9.0 or more, this one "
            f"has {capability[0]}.{capability[1]}; --together 1 takes any"
        )
    workers = multiprocessors() // sharers - few
    strips = Strips(part, workers)
    slots = min(_MOST_SLOTS, _MOST_SHARED // (4 * strips.slot))
    if (strips.threads > _MOST_THREADS and not SIMULATOR) or slots < _LEAST_SLOTS:
        raise GridError(
            f"{workers} blocks that sweep have {strips.rows} rows of {part.pitch} points each: two "
            f"iterations are swept together up to {4 * _MOST_THREADS} points a block, and when "
            f"{_LEAST_SLOTS} planes of their coefficients fit {_MOST_SHARED} bytes of shared "
            "memory; --together 1 takes any"
        )
    return Plan(
        threads=2 * strips.threads,
        blocks=1,
        registers=min(128, registers(2 * strips.warps)),
        communicating=few,
        messages=chosen.get("messages", max(1, min(most, part.plane // PIECE))),
        slots=min(slots, chosen.get("slots", slots)),
        slot_bytes=4 * strips.slot,
        workers=workers,
    )


def wave_pays(part: Part, sharers: int = 1) -> bool:
    """Whether two iterations are faster together (measured: README.md): where memory is what
    an iteration waits for, and blocks have rows enough to hide what they wait for each other. Not
    on a single rank: all of L took 436 us so at cee0060, and takes 426 one after the other."""
    if SIMULATOR or prod(part.shape) < _LARGE or part.ranks[0] == 1:
        return False
    try:
        stages(part.box.planes, True)
        return wave_plan(part, sharers).threads == 2 * _MOST_THREADS
    except GridError:
        return False


def registers(warps: int) -> int:
    """Most for each thread, when a multiprocessor holds so many warps: a quarter of it has 16384,
    and gives a warp a multiple of 256."""
    return 16384 // -(-warps // 4) // 256 * 8
