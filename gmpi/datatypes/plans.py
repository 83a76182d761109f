"""``plan(datatype)``: what GMPI understood of a datatype."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gmpi.datatypes import decode as _decode
from gmpi.datatypes.nodes import Dense, Int64, Node, Runs, stream
from gmpi.datatypes.parts import Part, parts_of
from gmpi.errors import DatatypeError

if TYPE_CHECKING:
    from mpi4py import MPI

_MAX_SEGMENTS = 1 << 27
_MAX_NAMED = 1 << 20  # segments among which to look for the one that an error names


class Plan:
    """How the bytes of a datatype are packed.

    Equal plans pack the same bytes in the same order; datatypes that describe the same bytes have
    equal plans whatever constructors made them.

    Attributes:
        node: the canonical form.
        size: packed bytes of one element.
        lower_bound, extent: of the datatype, bytes (MPI 4.1 section 5.1.5).
        parts: what a kernel carries out, in packed order.
    """

    def __init__(self, node: Node, lower_bound: int, extent: int) -> None:
        self.node = node
        self.size = node.size
        self.lower_bound = lower_bound
        self.extent = extent
        self.parts: tuple[Part, ...] = parts_of(node)
        #: (device, count) -> what launches need (``gmpi/packing/prepare.py``)
        self.prepared: dict[tuple[int, int], Any] = {}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plan):
            return NotImplemented
        return (self.node, self.extent) == (other.node, other.extent)

    def __hash__(self) -> int:
        return hash((self.node, self.extent))

    @property
    def width(self) -> int:
        """Widest word that all parts can be moved in, bytes, as far as the pointers allow."""
        return min((part.alignment for part in self.parts), default=16)

    @property
    def is_strided(self) -> bool:
        """Whether it is one strided block, so that a kernel needs no table at all."""
        return len(self.parts) <= 1 and self.device_bytes == 0

    @property
    def is_contiguous(self) -> bool:
        """Whether any count of it is one run of bytes."""
        return self.node.is_dense and self.node.size == self.extent

    @property
    def device_bytes(self) -> int:
        """Device memory for tables; 0 when there is none."""
        return sum(part.device_bytes for part in self.parts)

    def repeated(self, count: int) -> Plan:
        """The plan of ``count`` elements."""
        return self if count == 1 else _repeated(self, count)

    def segments(self, count: int = 1) -> list[tuple[int, int]]:
        """(displacement, length) of the runs of ``count`` elements, bytes, in packed order.

        Runs that are adjacent in memory and in the packed bytes are joined.
        """
        at, lengths = self.runs(count)
        return list(zip(at.tolist(), lengths.tolist()))

    def runs(self, count: int = 1) -> tuple[Int64, Int64]:
        """``segments`` as two int64 arrays."""
        plan = self.repeated(count)
        total = plan.node.run_count()
        if total > _MAX_SEGMENTS:
            raise DatatypeError(f"there are {total} segments, too many to list; print the plan")
        if not plan.parts:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        pairs = [part.segments() for part in plan.parts]
        at = np.concatenate([pair[0] for pair in pairs])
        lengths = np.concatenate([pair[1] for pair in pairs])
        begins = np.flatnonzero(np.concatenate(([True], at[1:] != at[:-1] + lengths[:-1])))
        return at[begins], np.add.reduceat(lengths, begins)

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """(first, last + 1) byte that one element touches, relative to the buffer."""
        return _bounds(self.node)

    def reach(self, count: int) -> tuple[int, int]:
        """(first, last + 1) byte that ``count`` elements touch; (0, 0) for none."""
        if count == 0 or self.size == 0:
            return 0, 0
        low, high = self.bounds
        far = (count - 1) * self.extent
        return low + min(far, 0), high + max(far, 0)

    def first_outside(self, count: int, low: int, high: int) -> str:
        """Words for the first segment of ``count`` elements that leaves bytes ``low..high``."""
        first, last = self.reach(count)
        if self.node.run_count() <= _MAX_NAMED:
            for element in (0, count - 1):
                at, lengths = self.runs()
                at = at + element * self.extent
                bad = np.flatnonzero((at < low) | (at + lengths > high))
                if len(bad):
                    k = int(bad[0])
                    where = f"bytes {at[k]}..{at[k] + lengths[k]}"
                    return f"segment {k} of element {element}, {where}"
        return f"bytes {first}..{last}"

    def __str__(self) -> str:
        from gmpi.datatypes.show import text

        return text(self)

    def __repr__(self) -> str:
        kind = "strided" if self.is_strided else "general"
        return f"<{kind} plan: {self.size} bytes, extent {self.extent}, width {self.width}>"


@lru_cache(maxsize=256)
def _repeated(plan: Plan, count: int) -> Plan:
    return Plan(stream(plan.node, count, plan.extent), plan.lower_bound, plan.extent * count)


def _bounds(node: Node) -> tuple[int, int]:
    if isinstance(node.core, Dense):
        low, high = 0, node.core.length
    elif isinstance(node.core, Runs):
        low = int(node.core.displacements.min())
        high = int((node.core.displacements + node.core.lengths).max())
    else:
        pairs = [_bounds(child) for child in node.core.nodes]
        low, high = min(p[0] for p in pairs), max(p[1] for p in pairs)
    for dim in node.dims:
        if dim.table is not None:
            first, last = int(dim.table.min()), int(dim.table.max())
        else:
            far = (dim.count - 1) * dim.stride
            first, last = min(far, 0), max(far, 0)
        low, high = low + first, high + last
    return low + node.offset, high + node.offset


def plan(datatype: MPI.Datatype) -> Plan:
    """What GMPI understood of an MPI datatype (host only; it need not be committed).

    Args:
        datatype: any mpi4py datatype over C types.

    Raises:
        DatatypeError: it is DATATYPE_NULL, or is made of Fortran types.
    """
    node = _decode.decode(datatype)
    return Plan(node, *_decode.extent_of(datatype))
