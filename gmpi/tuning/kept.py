"""The file of a machine: where it is, whose it is, and whether it can be believed.

One for each GPU, driver and version of GMPI, in the user's cache directory. A file that cannot be
read, or that others may write, counts as none: defaults always work.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from gmpi.cache.files import cache_directory, doubt

FORMAT = 1
#: Which settings of a context it may have.
TUNABLE = ("road", "eager_bytes", "chunk_bytes")


class Key(NamedTuple):
    """What a measurement is of."""

    gpu: str
    driver: str
    gmpi: str


class Tuned(NamedTuple):
    """What has been chosen.

    Attributes:
        settings: of contexts, by name; only those that differ from the defaults.
        copy_rows: of ``gmpi.pack``: ``choices.copy_rows``; empty: not measured.
    """

    settings: dict[str, Any]
    copy_rows: tuple[int, ...]


NOTHING = Tuned({}, ())


def path_of(key: Key) -> Path:
    name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:12]
    return cache_directory() / f"gmpi_tuned-{name}.json"


def write(key: Key, tuned: Tuned, measured: dict[str, Any]) -> Path:
    """Keeps it, with what was measured; raises OSError where that cannot be done."""
    path = path_of(key)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {"format": FORMAT, **key._asdict(), **tuned._asdict(), "measured": measured}
    temporary = path.with_name(f"{path.name}.tmp.{os.getpid()}")
    temporary.write_text(json.dumps(data, indent=1) + "\n")
    temporary.chmod(0o644)
    os.replace(temporary, path)
    read.cache_clear()
    return path


@cache
def read(key: Key) -> Tuned:
    """What is kept for a machine; NOTHING: nothing, or nothing that can be believed."""
    path = path_of(key)
    try:
        with path.open("rb") as file:
            problem = doubt(file.fileno())
            text = b"" if problem else file.read()
    except OSError:
        return NOTHING
    if not problem:
        try:
            return _parsed(json.loads(text), key)
        except (ValueError, KeyError, TypeError) as exc:
            problem = f"it is damaged ({exc})"
    warnings.warn(
        f"{path} is not used: {problem}; gmpi tune makes it again", RuntimeWarning, stacklevel=2
    )
    return NOTHING


def _parsed(data: dict[str, Any], key: Key) -> Tuned:
    if data["format"] != FORMAT or Key(data["gpu"], data["driver"], data["gmpi"]) != key:
        raise ValueError("it is of another machine or version")
    settings = dict(data["settings"])
    if unknown := settings.keys() - set(TUNABLE):
        raise ValueError(f"it sets {', '.join(sorted(unknown))}")
    return Tuned(settings, tuple(int(rows) for rows in data["copy_rows"]))


@cache
def here() -> Key | None:
    """The key of the first GPU that this process sees; ``None``: the simulator, or no GPU."""
    from device_lib.platform import front_end

    if not front_end.has_driver():
        return None
    from device_lib.platform.primitives import SIMULATOR

    if SIMULATOR:
        return None
    import gmpi

    try:
        driver = front_end.driver()
        if driver.get_device_count() == 0:
            return None
        name = driver.get_device(0).name
        version = ".".join(map(str, driver.get_version()))
    except Exception:  # whatever is wrong with CUDA, somebody else says it better
        return None
    return Key(name.decode() if isinstance(name, bytes) else str(name), version, gmpi.__version__)


def tuned_here() -> Tuned:
    """What is kept for this machine."""
    key = here()
    return NOTHING if key is None else read(key)


def settings_of_rank_0(comm: Any, gpu: bool) -> dict[str, Any]:
    """The settings that rank 0 has found, for all ranks: they must agree; collective.

    Args:
        gpu: whether this rank has kernels; rank 0 without them has found nothing.
    """
    mine: dict[str, Any] = {}
    if comm.Get_rank() == 0 and gpu:
        mine = tuned_here().settings
    found: dict[str, Any] = comm.bcast(mine, root=0)
    return found
