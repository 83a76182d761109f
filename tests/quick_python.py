"""The quickest Python of a version on this machine.

Most of what the tests take is Python's own time. One that was compiled without profiles, as pyenv's
unless it is told otherwise, takes a third more than a distribution's of the same version.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

_ROUNDS = 3  # in turns, so that a moment in which a core is slow hits all
_WORTH = 0.9  # of the time that this Python takes: what is less is noise

#: What ours are made of: calls, attributes, numbers and tuples. Modules that an environment needs.
_LOOP = """
import ensurepip, os, sys, time, venv

class Thing:
    pass

def step(a, b):
    return (a + b) & 255

def loop():
    thing, rows = Thing(), {}
    thing.x = 0
    for i in range(50_000):
        thing.x = step(thing.x, i)
        rows[i & 7] = i, thing.x

def seconds():
    began = time.process_time()
    loop()
    return time.process_time() - began

print(*sys.version_info[:2], min(seconds() for _ in range(5)), os.path.realpath(sys.executable))
"""


def _ask(python: str) -> tuple[str, float, str] | None:
    """Its version, the seconds that it takes, and what it really is; None: it cannot be used."""
    try:
        done = subprocess.run(
            [python, "-I", "-c", _LOOP], capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    major, minor, seconds, path = done.stdout.split(maxsplit=3)
    return f"{major}.{minor}", float(seconds), path.strip()


def quickest(path: str | None = None) -> str:
    """Of this Python and all of its version in the directories of a PATH: the quickest one.

    Args:
        path: None: the environment's.
    """
    own = "{}.{}".format(*sys.version_info)
    folders = (path or os.environ.get("PATH", os.defpath)).split(os.pathsep)
    names = (f"python{own}", "python3")
    found = (shutil.which(name, path=folder) for folder in folders for name in names)
    this = os.path.realpath(sys.executable)
    asked = [this, *filter(None, found)]
    least: dict[str, float] = {}
    for _ in range(_ROUNDS):
        for python in dict.fromkeys(map(os.path.realpath, asked)):
            said = _ask(python)
            if said is not None and said[0] == own:
                _, seconds, real = said
                least[real] = min(seconds, least.get(real, seconds))
        asked = list(least)  # each once, by whatever names
    best = min(least, key=least.__getitem__, default=this)
    return best if best != this and least[best] < _WORTH * least.get(this, 0.0) else sys.executable
