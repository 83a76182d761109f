"""What was found, in words: who, what, where, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from device_lib.strict.regions import address_of, byte_places

if TYPE_CHECKING:
    from device_lib.strict.checker import Checker
    from device_lib.strict.shadow import Access

_MOST_SEARCHED = 1 << 24  # bytes of an array that is not in one piece


def thread(lane: int, threads: int) -> str:
    return f"thread {lane % threads} of block {lane // threads}"


def element(address: int, names: list[tuple[str, np.ndarray]]) -> str:
    """The element of an argument of the kernel that lies at an address."""
    for name, array in names:
        at = address - address_of(array)
        if array.flags.c_contiguous:
            if not 0 <= at < array.nbytes:
                continue
            number = at // array.itemsize
        else:
            if array.nbytes > _MOST_SEARCHED:
                continue
            hits = np.flatnonzero(byte_places(array)[:: array.itemsize] == at)
            if not len(hits):
                continue
            number = int(hits[0])
        index = ", ".join(str(int(k)) for k in np.unravel_index(number, array.shape))
        return f"element [{index}] of argument {name}"
    return "an element of shared memory, or of another array"


def race(checker: Checker, address: int, before: Access, now: Access) -> list[str]:
    """Two accesses, and what orders them."""
    threads = checker.threads
    lines = [f"{element(address, checker.names)}:"]
    for access in (before, now):
        place, call = checker.sites.place(access.site), checker.sites.call(access.site)
        if call:
            block = access.lane // threads
            verb = {"reads": "takes it", "writes": "stores there"}[access.how]
            lines.append(f"{call} of block {block} at {place} {verb}")
        else:
            lines.append(f"{thread(access.lane, threads)} {access.how} it at {place}")
    lines.append("nothing says which of the two comes first")
    return [*lines, _cure(checker, before, now)]


def _cure(checker: Checker, before: Access, now: Access) -> str:
    threads = checker.threads
    atomics = [access for access in (before, now) if access.how == "updates"]
    if before.lane // threads == now.lane // threads:
        if atomics:
            return (
                "use cuda.atomic for both accesses, or put cuda.syncthreads() between them, where "
                "all threads of the block come"
            )
        if before.how == now.how == "writes" and before.site == now.site:
            return "let one thread write, or use cuda.atomic, or a place for each thread"
        return (
            "put cuda.syncthreads() between them, where all threads of the block come (between "
            "reading and the next writing, too)"
        )
    cure = (
        "put a grid barrier between them, cuda.cg.this_grid().sync(), where all blocks come; or "
        "count with cuda.atomic, and call cuda.threadfence() before counting and after having "
        "seen the count (docs/grids.md)"
    )
    if before.how == now.how == "writes" and before.site == now.site:
        return f"let one block write, or use cuda.atomic; or {cure}"
    if len(atomics) == 1:
        return f"use cuda.atomic for both accesses; or {cure}"
    return cure
