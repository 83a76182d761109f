"""Which files of ours compiled code is made from: the key of what is kept of it on disk.

Numba freezes every function and every number that it meets into what it compiles. All of them come
by ``import``, so the files that a package imports, directly or not, are all that its compiled code
can depend on; other files may change without a new compilation. Imports nothing that needs MPI.
"""

from __future__ import annotations

import ast
import hashlib
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
    for node in _imports(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {file_of(tuple(alias.name.split("."))) for alias in node.names}
            continue
        parent = inside[: len(inside) - node.level + 1] if node.level else ()
        parent += tuple(node.module.split(".")) if node.module else ()
        if parent[:1] and parent[0] not in _PACKAGES:
            continue
        for alias in node.names:
            found.add(file_of((*parent, alias.name)) or file_of(parent))
    return {path for path in found if path is not None}


def _imports(block: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """All of them, also in functions; not those for the type checker only."""
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        if name == "body" and isinstance(block, ast.If) and _for_the_checker(block.test):
            continue
        for node in getattr(block, name, ()):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield node
            else:
                yield from _imports(node)


def _for_the_checker(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


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
