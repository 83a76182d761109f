"""The grid of the Himeno benchmark and the part of it that each rank holds.

Sizes are those of the benchmark's MPI version: the grid has exactly the points that the size names
(its serial version adds one to each direction), the outermost of which never change.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

Triple = tuple[int, int, int]

SIZES: dict[str, Triple] = {
    "XS": (32, 32, 64),
    "S": (64, 64, 128),
    "M": (128, 128, 256),
    "L": (256, 256, 512),
    "XL": (512, 512, 1024),
}
#: The arrays that are read only, in the order in which they are stored.
COEFFICIENTS = ("a0", "a1", "a2", "a3", "b0", "b1", "b2", "c0", "c1", "c2", "bnd", "wrk1")
ARRAYS = len(COEFFICIENTS) + 2
FLOPS_PER_POINT = 34
BYTES_PER_POINT = 4 * ARRAYS
_DIRECTIONS = "ijk"
_ALIGN = 8  # elements: a row begins on a 32-byte sector
_LEAD = 8  # elements in front of a row that has a halo, so that its first point is aligned


class GridError(ValueError):
    """A grid, or a cut of it, that cannot be."""


@dataclass(frozen=True)
class Box:
    """Points of a rank's array: rows ``i, j`` from ``i0, j0``, and groups of 4 points along k."""

    i0: int
    j0: int
    g0: int
    planes: int
    rows: int
    groups: int

    @property
    def empty(self) -> bool:
        return self.planes <= 0 or self.rows <= 0 or self.groups <= 0


@dataclass(frozen=True)
class Neighbour:
    """A rank that shares a face or an edge, and what is exchanged with it.

    The stencil has 19 points: it reaches over the faces and edges of a part, not its corners.

    Attributes:
        rank: the neighbour.
        offset: where it lies: -1, 0 or 1 in each direction.
        send, recv: first element and number of elements in each direction of the array.
    """

    rank: int
    offset: Triple
    send: tuple[Triple, Triple]
    recv: tuple[Triple, Triple]

    @property
    def points(self) -> int:
        return prod(self.send[1])

    @property
    def send_tag(self) -> int:
        return _code(self.offset)

    @property
    def recv_tag(self) -> int:
        i, j, k = self.offset
        return _code((-i, -j, -k))


@dataclass(frozen=True)
class Part:
    """One rank's part of a grid, and how its arrays lie in memory.

    An array has ``planes x rows x pitch`` elements. Directions that are cut have a halo of one
    point on both sides (unused at the edge of the grid). Along k a row begins with ``lead``
    elements, the last of which is the halo.

    Attributes:
        size: points of the whole grid.
        ranks: number of parts in each direction.
        place: which of them this is.
    """

    size: Triple
    ranks: Triple
    place: Triple

    @cached_property
    def shape(self) -> Triple:
        """Own points."""
        i, j, k = (s // r for s, r in zip(self.size, self.ranks))
        return i, j, k

    @cached_property
    def first(self) -> Triple:
        """Where the own points begin in the grid."""
        i, j, k = (p * s for p, s in zip(self.place, self.shape))
        return i, j, k

    @cached_property
    def halo(self) -> Triple:
        i, j, k = (int(r > 1) for r in self.ranks)
        return i, j, k

    @property
    def planes(self) -> int:
        return self.shape[0] + 2 * self.halo[0]

    @property
    def rows(self) -> int:
        return self.shape[1] + 2 * self.halo[1]

    @property
    def lead(self) -> int:
        return _LEAD if self.halo[2] else 0

    @property
    def pitch(self) -> int:
        return -(-(self.lead + self.shape[2] + self.halo[2]) // _ALIGN) * _ALIGN

    @property
    def plane(self) -> int:
        return self.rows * self.pitch

    @property
    def elements(self) -> int:
        return self.planes * self.plane

    @property
    def nbytes(self) -> int:
        """Device memory of the 14 arrays."""
        return ARRAYS * self.elements * 4

    @cached_property
    def own(self) -> tuple[slice, slice, slice]:
        """Own points in an array of ``planes x rows x pitch``."""
        starts = (self.halo[0], self.halo[1], self.lead)
        i, j, k = (slice(a, a + n) for a, n in zip(starts, self.shape))
        return i, j, k

    @cached_property
    def box(self) -> Box:
        """The own points that change. Along k whole rows: ``bnd`` is 0 where they do not."""
        begin, end = [], []
        for d in (0, 1):
            low = self.halo[d]
            begin.append(low + int(self.place[d] == 0))
            end.append(low + self.shape[d] - int(self.place[d] == self.ranks[d] - 1))
        groups = -(-self.shape[2] // 4)
        i, j = begin
        return Box(i, j, self.lead // 4, end[0] - i, end[1] - j, groups)

    @cached_property
    def neighbours(self) -> list[Neighbour]:
        """Faces first, the largest messages."""
        found = []
        lows = (self.halo[0], self.halo[1], self.lead)
        offsets = sorted(product((-1, 0, 1), repeat=3), key=lambda o: sum(map(abs, o)))
        for offset in offsets:
            at = [p + o for p, o in zip(self.place, offset)]
            inside = all(0 <= a < r for a, r in zip(at, self.ranks))
            if not inside or not 1 <= sum(map(abs, offset)) <= 2:
                continue
            send, recv, extent = [], [], []
            for o, low, n in zip(offset, lows, self.shape):
                own = low if o <= 0 else low + n - 1
                send.append(own)
                recv.append(own + o)
                extent.append(1 if o else n)
            size = (extent[0], extent[1], extent[2])
            found.append(
                Neighbour(
                    rank_of(at, self.ranks),
                    offset,
                    ((send[0], send[1], send[2]), size),
                    ((recv[0], recv[1], recv[2]), size),
                )
            )
        return found

    @cached_property
    def inner(self) -> Box:
        """The part of ``box`` that no neighbour needs: it is swept while messages travel."""
        cut = [[int(0 <= p + side < r) for side in (-1, 1)] for p, r in zip(self.place, self.ranks)]
        b = self.box
        return Box(
            b.i0 + cut[0][0],
            b.j0 + cut[1][0],
            b.g0 + cut[2][0],
            b.planes - sum(cut[0]),
            b.rows - sum(cut[1]),
            b.groups - sum(cut[2]),
        )

    @cached_property
    def outer(self) -> list[Box]:
        """The rest of ``box``, without overlaps: what neighbours wait for."""
        b, n = self.box, self.inner
        found = []
        for i in sorted({b.i0, b.i0 + b.planes - 1}):
            if not n.i0 <= i < n.i0 + n.planes:
                found.append(Box(i, b.j0, b.g0, 1, b.rows, b.groups))
        for j in sorted({b.j0, b.j0 + b.rows - 1}):
            if not n.j0 <= j < n.j0 + n.rows:
                found.append(Box(n.i0, j, b.g0, n.planes, 1, b.groups))
        for g in sorted({b.g0, b.g0 + b.groups - 1}):
            if not n.g0 <= g < n.g0 + n.groups:
                found.append(Box(n.i0, n.j0, g, n.planes, n.rows, 1))
        return [box for box in found if not box.empty]


def _code(offset: Triple) -> int:
    """A message tag for a direction."""
    return (offset[0] + 1) * 9 + (offset[1] + 1) * 3 + offset[2] + 1


def rank_of(place: list[int], ranks: Triple) -> int:
    return (place[0] * ranks[1] + place[1]) * ranks[2] + place[2]


def part_of(rank: int, size: Triple, ranks: Triple) -> Part:
    i, rest = divmod(rank, ranks[1] * ranks[2])
    j, k = divmod(rest, ranks[2])
    return Part(size, ranks, (i, j, k))


def inner_points(size: Triple) -> int:
    """Points that change."""
    return prod(n - 2 for n in size)


def parse_triple(text: str, what: str) -> Triple:
    words = text.replace("x", ",").split(",")
    try:
        i, j, k = (int(word) for word in words)
    except ValueError:
        raise GridError(f"{what} must be three integers such as 2,1,1, got {text!r}") from None
    if min(i, j, k) < 1:
        raise GridError(f"{what} must be positive in each direction, got {i},{j},{k}")
    return i, j, k


def parse_size(text: str) -> Triple:
    """One of the official names, or I,J,K."""
    if text.upper() in SIZES:
        return SIZES[text.upper()]
    try:
        size = parse_triple(text, "size")
    except GridError:
        raise GridError(
            f"size must be {', '.join(SIZES)} or three integers I,J,K, got {text!r}"
        ) from None
    if min(size) < 3:
        raise GridError(f"a grid needs 3 points in each direction to have one inside, got {text}")
    return size


def check(size: Triple, ranks: Triple, processes: int) -> None:
    """Raises GridError unless the grid can be cut into ``ranks`` for so many processes."""
    if prod(ranks) != processes:
        raise GridError(
            f"decomposition {ranks[0]},{ranks[1]},{ranks[2]} is for {prod(ranks)} ranks, but there "
            f"are {processes}: I*J*K must be the number of ranks"
        )
    for name, n, r in zip(_DIRECTIONS, size, ranks):
        if n % r:
            fits = [d for d in range(1, n + 1) if n % d == 0]
            near = min(fits, key=lambda d: abs(d - r))
            raise GridError(
                f"{n} points in direction {name} cannot be divided among {r} ranks; {near} would do"
            )
        if r > 1 and n // r < 2:
            raise GridError(
                f"{r} ranks in direction {name} leave {n // r} planes each; at least 2 are needed, "
                f"so at most {n // 2} ranks"
            )
    if ranks[2] > 1 and size[2] // ranks[2] % 4:
        raise GridError(
            f"{size[2]} points in direction k on {ranks[2]} ranks are {size[2] // ranks[2]} each; "
            "a direction k that is cut must leave a multiple of 4"
        )


def decompositions(size: Triple, processes: int) -> list[Triple]:
    """All cuts that are possible."""
    found = []
    numbers = [d for d in range(1, processes + 1) if processes % d == 0]
    for i, j in product(numbers, numbers):
        if processes % (i * j) == 0:
            ranks = (i, j, processes // (i * j))
            try:
                check(size, ranks, processes)
            except GridError:
                continue
            found.append(ranks)
    return found


def choose(size: Triple, processes: int) -> Triple:
    """The cut whose busiest rank moves least for its halo.

    Points of a plane across k lie 4 bytes here and 4 bytes there, and memory moves 32 at a time.
    Among equals the first direction, whose planes are contiguous.
    """
    possible: list[tuple[int, Triple]] = []
    for ranks in decompositions(size, processes):
        i, j, _ = ranks
        own = [n // r for n, r in zip(size, ranks)]
        moved = sum(
            min(2, r - 1) * prod(own) // n * (8 if d == 2 else 1)
            for d, (r, n) in enumerate(zip(ranks, own))
        )
        possible.append((moved, (-i, -j, 0)))
    if not possible:
        raise GridError(
            f"no decomposition of {size[0]}x{size[1]}x{size[2]} points for {processes} ranks: each "
            "direction must be divisible by its number of ranks and leave 2 planes or more; "
            "take another number of ranks or another size"
        )
    i, j, _ = min(possible)[1]
    return -i, -j, processes // (i * j)
