"""A plan in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tabulate import tabulate

from gmpi.datatypes.parts import Part, RunList

if TYPE_CHECKING:
    from gmpi.datatypes.plans import Plan

_MOST_PARTS = 20


def _row(part: Part) -> list[object]:
    if isinstance(part, RunList):
        what = f"{len(part.lengths)} runs of {part.lengths.min()}..{part.lengths.max()} bytes"
    else:
        what = f"block of {part.atom} bytes"
    steps = []
    for dim in part.dims:
        step = f"stride {dim.stride}" if dim.table is None else "table"
        steps.append(f"{dim.count} x {step}")
    return [part.begin, part.offset, what, ", ".join(steps) or "-", part.alignment]


def text(plan: Plan) -> str:
    """Sizes in a line, then one row for each part, in packed order; all figures in bytes."""
    kind = "contiguous" if plan.is_contiguous else "strided" if plan.is_strided else "general"
    head = (
        f"{kind}: {plan.size} packed bytes, lower bound {plan.lower_bound}, extent {plan.extent}, "
        f"words of {plan.width} bytes, {plan.device_bytes} bytes of tables"
    )
    rows = [_row(part) for part in plan.parts[:_MOST_PARTS]]
    if len(plan.parts) > _MOST_PARTS:
        rows.append(["...", "", f"{len(plan.parts) - _MOST_PARTS} more parts", "", ""])
    columns = ["position", "displacement", "what", "repeated (innermost first)", "word"]
    table: str = tabulate(rows, columns, tablefmt="simple")
    return f"{head}\n{table}"
