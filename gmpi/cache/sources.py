"""Which files of ours compiled code is made from: the key of what is kept of it on disk.

Numba freezes every function and every number that it meets into what it compiles. All of them come
by ``import``, so the files that a package imports, directly or not, are all that its compiled code
can depend on; other files may change without a new compilation. Imports nothing that needs MPI.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_PACKAGES = ("gmpi", "device_lib", "host_proxy")


def compiled_from(package: str, root: Path = _ROOT) -> list[Path]:
    """Every file of ``package``, in subfolders too, and what they import of our packages.

    ``__init__`` files import for the user, not for what is compiled: they are followed only where a
    name is taken from them.
    """
    found = set((root / package).rglob("*.py"))
    waiting = [path for path in found if path.name != "__init__.py"]
    file_of = cache(lambda name: _file(name, root))  # most names are asked for many times
    while waiting:
        for path in _imported_by(waiting.pop(), root, file_of):
            if path not in found or (path.name == "__init__.py" and path.parent.name == package):
                found.add(path)
                waiting.append(path)
    return sorted(found)


def _imported_by(
    path: Path, root: Path, file_of: Callable[[tuple[str, ...]], Path | None]
) -> set[Path]:
    """Files of our packages from which ``path`` takes modules or names."""
    inside = path.relative_to(root).parent.parts
    found = set()
    for dots, module, names in imports(path.read_text()):
        parent = inside[: len(inside) - len(dots) + 1] if dots else ()
        parent += tuple(filter(None, module.split(".")))
        if parent[:1] and parent[0] not in _PACKAGES:
            continue
        for name in names:
            found.add(file_of((*parent, name)) or file_of(parent))
        if not names:
            found.add(file_of(parent))
    return {path for path in found if path is not None}


# Every process that opens a context comes here, and Python's own parser takes 0.15 s for the files
# of the engine. What a formatter leaves of imports has these shapes; a test compares the two.
_DOCSTRING = re.compile(r'""".*?"""', re.S)
_CHECKER_ONLY = re.compile(r"^( *)if TYPE_CHECKING:\n(?:\1 +.*\n|\n)+", re.M)
_FROM = re.compile(r"^ *from (\.*)([\w.]*) import (?:\(([^)]*)\)|(.*))", re.M)
_IMPORT = re.compile(r"^ *import ([\w., ]+)", re.M)
_COMMENT = re.compile(r"#.*")


def imports(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """All of a file, also in functions; not those for the type checker only.

    Yields:
        The dots before the name of a module, the name, and what is taken from it, if that is said.
    """
    text = _CHECKER_ONLY.sub("", _DOCSTRING.sub("", text))
    for dots, module, several, line in _FROM.findall(text):
        names = _COMMENT.sub("", several or line).split(",")
        yield dots, module, [words.split()[0] for words in names if words.strip()]
    for modules in _IMPORT.findall(text):
        for words in modules.split(","):
            if words.strip():
                yield "", words.split()[0], []


def _file(name: tuple[str, ...], root: Path) -> Path | None:
    """The file of a module of ours, if it is one."""
    if not name or name[0] not in _PACKAGES:
        return None
    path = root.joinpath(*name)
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.exists():
            return candidate
    return None


@lru_cache
def fingerprint(package: str, root: Path = _ROOT) -> str:
    """Hash of all of these files, with their names."""
    digest = hashlib.sha256()
    for path in compiled_from(package, root):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root)} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()
