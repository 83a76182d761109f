"""What there is to say of a model: its bounds, and what can be taken away from it."""

from __future__ import annotations

from typing import NamedTuple

#: How it shows that something is missing.
WRONG = "assertion"
STUCK = "invalid end state"
EITHER = f"{WRONG}|{STUCK}"
#: Optimised, searches of seconds take half as long.
FAST = ("-O1",)
SMALL = ("-DCOLLAPSE", "-O1")  # for more states than fit into memory otherwise


class Bounds(NamedTuple):
    """At which a model is searched.

    Attributes:
        defines: the model's settings.
        least: more states than this are visited; 0: only mutations are searched at these bounds.
        options: of the compiler.
        full: with ``--full`` only.
    """

    defines: list[str]
    least: int = 0
    options: tuple[str, ...] = ()
    full: bool = False


class Model(NamedTuple):
    """Bounds by name; and what can be taken away: where that shows, and how."""

    bounds: dict[str, Bounds]
    mutations: dict[str, tuple[str, str]]
