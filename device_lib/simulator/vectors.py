"""Short vectors of CUDA C, such as ``float32x4``, which is called ``float4`` as well."""

from __future__ import annotations

from typing import Any

import numpy as np

_ALIASES = {
    "int8": ("char",), "int16": ("short",), "int32": ("int",), "int64": ("long", "longlong"),
    "uint8": ("uchar",), "uint16": ("ushort",), "uint32": ("uint",),
    "uint64": ("ulong", "ulonglong"), "float32": ("float",), "float64": ("double",),
}  # fmt: skip


class Vector:
    """One to four numbers: ``x``, ``y``, ``z``, ``w``. Made of numbers and of shorter vectors."""

    _element: Any
    _names: str

    def __init__(self, *parts: Any) -> None:
        numbers: list[Any] = []
        for part in parts:
            numbers += part if isinstance(part, Vector) else [part]
        if len(numbers) != len(self._names):
            raise TypeError(
                f"{type(self).__name__} is made of {len(numbers)} numbers, allowed is "
                f"{len(self._names)}"
            )
        for name, number in zip(self._names, numbers):
            setattr(self, name, self._element(number))

    def __iter__(self) -> Any:
        return (getattr(self, name) for name in self._names)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(str, self))})"


#: Of a name, the class.
VECTORS: dict[str, type[Vector]] = {}
for _name, _aliases in _ALIASES.items():
    for _size in range(1, 5):
        _content = {"_element": getattr(np, _name), "_names": "xyzw"[:_size]}
        _made = type(f"{_name}x{_size}", (Vector,), _content)
        for _called in (_made.__name__, *(f"{alias}{_size}" for alias in _aliases)):
            VECTORS[_called] = _made
