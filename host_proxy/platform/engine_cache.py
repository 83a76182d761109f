"""Where the compiled engine is kept on disk: Numba's cache, with doubts.

Numba keeps machine code as pickles, beside the function's file, in the user's cache directory or in
``NUMBA_CACHE_DIR``, and believes what it finds. Here a file counts only if nobody but its user
could have written it and it is whole; and where nothing can be kept, nothing is.
"""

# mypy: disable-error-code="no-untyped-def,misc,no-any-return"
from __future__ import annotations

import fcntl
import hashlib
import os
import pickle
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from numba.core.caching import FunctionCache, IndexDataCacheFile, NullCache
from numba.core.runtime import rtsys

from gmpi.cache.files import doubt
from gmpi.cache.sources import fingerprint
from gmpi.contract.constants import FROZEN
from host_proxy.platform.loaded import Loading

NOWHERE = (
    "the compiled engine is compiled anew by every process, for half a minute: neither the "
    "installed package nor the home directory can be written to; let NUMBA_CACHE_DIR name a "
    "directory that can"
)


_MOST_S = 120  # a process that takes longer to compile the engine is not waited for
_LOOKS_S = 0.05
_CHECKSUM_BYTES = hashlib.sha256().digest_size


class _Files(IndexDataCacheFile):
    """An index file, which says where the entry of a key is, and a data file for each entry."""

    def _load_index(self):
        """Empty where it cannot be believed: Numba writes it anew then."""
        try:
            version, (stamp, entries) = pickle.loads(self._read(self._index_path))
        except Exception:  # there is none, or it is damaged: pickle raises whatever it likes
            return {}
        return entries if (version, stamp) == (self._version, self._source_stamp) else {}

    def _save_index(self, overloads):
        self._write(self._index_path, (self._version, (self._source_stamp, overloads)))

    def _load_data(self, name):
        """None where it cannot be believed: Numba compiles then, and writes it anew."""
        try:
            return pickle.loads(self._read(self._data_path(name)))
        except Exception:
            return None

    def _save_data(self, name, data):
        self._write(self._data_path(name), data)

    def _read(self, path):
        """What ``_write`` has written."""
        with open(path, "rb") as file:
            problem = doubt(file.fileno())
            content = b"" if problem else file.read()
        if problem:
            warnings.warn(
                f"{path} is not used and made again: {problem}; let NUMBA_CACHE_DIR name a "
                "directory that only you write to",
                RuntimeWarning,
                stacklevel=2,
            )
        checksum, body = content[:_CHECKSUM_BYTES], content[_CHECKSUM_BYTES:]
        if hashlib.sha256(body).digest() != checksum:
            raise ValueError("damaged")
        return body

    def _write(self, path, thing):
        body = self._dump(thing)
        with self._open_for_write(path) as file:
            # Whatever the umask lets others do: what they may write is not believed.
            os.fchmod(file.fileno(), os.fstat(file.fileno()).st_mode & ~0o022)
            file.write(hashlib.sha256(body).digest() + body)


class _Turn:
    """Which process of a node compiles: the others wait for it, and load what it has compiled.

    The lock of a process that ends is free. Where there are no locks, each compiles for itself.
    """

    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, "engine.lock")
        self._file: BinaryIO | None = None

    def take(self) -> bool:
        """Waits for the turn, but not for ever; False: this process has had it before."""
        if self._file is not None:
            return False
        try:
            self._file = open(self._path, "ab")  # noqa: SIM115
        except OSError:
            return False
        late = time.monotonic() + _MOST_S
        while time.monotonic() < late:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(_LOOKS_S)
            except OSError:
                break
            else:
                break
        return True

    def give_back(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


_turn: _Turn | None = None


@contextmanager
def one_at_a_time(cache: FunctionCache | NullCache) -> Iterator[None]:
    """While this process loads the engine, or compiles it, which others must not do as well.

    Args:
        cache: of a function of the engine, the same in all processes.
    """
    global _turn
    directory = getattr(cache, "cache_path", None)
    _turn = None if directory is None else _Turn(directory)
    try:
        yield
    finally:
        if _turn is not None:
            _turn.give_back()
        _turn = None


class EngineCache(FunctionCache):
    """For functions made of more than one file.

    Numba looks at the file of the function alone: with its own key, a change in a function that
    is called from there would go unnoticed.
    """

    _impl_class = Loading

    def __init__(self, py_func):
        super().__init__(py_func)
        stamp = self._impl.locator.get_source_stamp()
        self._cache_file = _Files(self.cache_path, self._impl.filename_base, stamp)

    def _index_key(self, signature, codegen):
        return *super()._index_key(signature, codegen), FROZEN, fingerprint("host_proxy")

    def load_overload(self, sig, target_context):
        """As Numba's, which first imports and registers all that a compiler may need: a tenth of a
        second. What is loaded is machine code of integers; a compiler does it for itself."""
        rtsys.initialize(target_context)
        found = self._loaded(sig, target_context)
        if found is None and _turn is not None and _turn.take():
            found = self._loaded(sig, target_context)
            if found is not None:
                _turn.give_back()
        return found

    def _loaded(self, sig, target_context):
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)

    def save_overload(self, sig, data):
        with suppress(OSError):  # a full disk costs the next process time, nothing else
            super().save_overload(sig, data)


def cache_of(function):
    """The cache of a compiled function; one that keeps nothing where nothing can be written."""
    try:
        return EngineCache(function)
    except RuntimeError:  # Numba has found no directory
        return NullCache()
