"""Compiled device code on disk: where it is, what is there, and whether it can be believed.

Imports nothing that needs MPI. A file begins with a checksum of the rest, and counts only if nobody
but its user could have written it: what it says is going to run in the user's kernels.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_MARK = b"// gmpi cache, sha256 of what follows: "  # a comment of PTX
_KINDS = ("gmpi_*-sm*-*.ptx", "gmpi_*-sm*-*.ltoir", "gmpi_*-sm*-*.cubin")
_TEMPORARY = ".tmp."  # between a file's name and what makes it unique while it is written


def cache_directory() -> Path:
    """Where compiled device code is kept: ``GMPI_CACHE_DIR``, else the user's cache directory."""
    chosen = os.environ.get("GMPI_CACHE_DIR")
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "gmpi"


def kept() -> list[Path]:
    """Every file that ``read_or_make`` has made there for this and other versions."""
    return sorted(path for kind in _KINDS for path in cache_directory().glob(kind))


def leftovers() -> list[Path]:
    """What processes that were killed while they wrote have left there."""
    found = (cache_directory().glob(f"{kind}{_TEMPORARY}*") for kind in _KINDS)
    return sorted(path for paths in found for path in paths)


def doubt(file: int) -> str:
    """Why the content of an open file is not to be believed; empty: it is.

    Whoever may write the file decides what runs in our process. That may be the user, root, and the
    owner of the installed package, whose code runs here anyhow.
    """
    found = os.fstat(file)
    believed = {os.geteuid(), 0, os.stat(__file__).st_uid}
    if found.st_uid not in believed:
        return f"it belongs to user {found.st_uid}"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write it (mode {stat.S_IMODE(found.st_mode):o})"
    return ""


def read_or_make(path: Path, make: Callable[[], bytes]) -> bytes:
    """The file's content, made first if there is none, or a damaged one, or one of somebody else's.

    Several processes may do so at once. Where nothing can be written, it is made each time.
    """
    content = _read(path)
    if content is None:
        content = make()
        _write(path, content)
    return content


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            problem = doubt(file.fileno())
            content = b"" if problem else file.read()
    except OSError:
        return None
    if problem:
        warnings.warn(
            f"{path} is not used and made again: {problem}; let GMPI_CACHE_DIR name a directory "
            "that only you write to",
            RuntimeWarning,
            stacklevel=4,
        )
        return None
    head, _, body = content.partition(b"\n")
    return body if head == _head(body) else None


def _head(body: bytes) -> bytes:
    return _MARK + hashlib.sha256(body).hexdigest().encode()


def _write(path: Path, body: bytes) -> None:
    """All of it or, where that cannot be done, nothing."""
    temporary = path.with_name(path.name + _TEMPORARY + secrets.token_hex(8))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Readable for others as far as the umask lets it be: an image may be filled for its users.
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    except OSError:
        return  # a read-only home costs compile time, nothing else
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_head(body) + b"\n" + body)
        os.replace(temporary, path)  # atomic: a reader sees no file or all of it
    except BaseException as exc:
        with suppress(OSError):
            temporary.unlink()
        if not isinstance(exc, OSError):  # a full disk costs compile time, too
            raise
