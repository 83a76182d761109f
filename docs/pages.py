"""Pages with tables that a program writes, between markers."""

from __future__ import annotations

import sys


def fill(text: str, program: str, name: str, content: str) -> str:
    """The page ``text`` with new content between the markers of ``name``.

    Args:
        program: who writes it, as a path from the project's root.
    """
    begin = f"<!-- {name}: begin. Written by {program} -->"
    end = f"<!-- {name}: end -->"
    before, found, rest = text.partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        sys.exit(f"the page lacks a marker: {end if found else begin}")
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"
