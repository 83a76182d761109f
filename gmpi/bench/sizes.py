"""Numbers of bytes as people write them."""

from __future__ import annotations


def size(text: str) -> int:
    """A number of bytes such as 64, 4K or 1M."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    unit = units.get(text[-1:].upper(), 1)
    return int(text if unit == 1 else text[:-1]) * unit


def size_range(text: str) -> tuple[int, int]:
    """Both ends of a range such as 8:64K; 0 is the first one where there is only one number."""
    low, _, high = text.rpartition(":")
    return size(low or "0"), size(high)


def sizes_between(low: int, high: int) -> list[int]:
    """0 and the powers of two in a range."""
    powers = [1 << k for k in range(31)]
    return [n for n in [0, *powers] if low <= n <= high]
