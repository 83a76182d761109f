"""Which registered arrays of this rank the other ranks of the node can store long messages to.

The proxies exchange it (``host_proxy/reference/channels.py``): whoever has opened a channel to us
is offered our registered arrays, maps them, and answers where they are for it. Until then what
comes for them goes through staging.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np

from gmpi.contract import registered as r
from gmpi.contract.channels import WIDE_ROOM, Places
from gmpi.contract.collectives import LONG
from gmpi.errors import ContextError
from gmpi.memory.exported import Exported, Region
from gmpi.memory.gpu_staging import Token
from gmpi.memory.regions import Memory

_HANDLE_WORDS = 8
assert LONG < WIDE_ROOM


class _Row(NamedTuple):
    """A registered array.

    Attributes:
        generation: tells it from others that had its row before.
        offered: to which ranks of the node.
    """

    region: Region
    generation: int
    offered: set[int]


def _may_map(region: Region, peer: int) -> bool:
    return region.peers is None or peer in region.peers


class Registered:
    """The table of one context.

    Attributes:
        version: grows with each array.
    """

    def __init__(self, memory: Memory, directs: np.ndarray, exported: Exported) -> None:
        """
        Args:
            directs: int64[ranks of the node]: where the direct memory of each is mapped here.
            exported: whose arrays it follows.
        """
        self._memory = memory
        self._directs = directs
        self._exported = exported
        self._rows: list[_Row | None] = [None] * r.ROWS
        self._lock = threading.Lock()
        self._at = memory.table + Places(len(directs)).registered
        self.version = 0
        header = [0, len(directs), Places(len(directs)).nbytes, *map(int, directs)]
        memory.write_device(self._at, np.array(header, np.int64))
        exported.follower = self

    def added(self, region: Region) -> None:
        """An array has been registered; any thread."""
        if region.token is None or region.nbytes <= LONG:
            return  # no long message has room there, nor a long collective
        with self._lock:
            if None not in self._rows:
                return
            index = self._rows.index(None)
            self.version += 1
            self._rows[index] = _Row(region, self.version, set())
            self._write(index, [region.address, region.nbytes])
            used = max(i for i, row in enumerate(self._rows) if row is not None) + 1
            self._memory.write_device(self._at + r.IN_USE, np.array([used], np.int64))

    def removed(self, region: Region) -> None:
        """It is registered no more; any thread. Peers keep it mapped until the context closes."""
        with self._lock:
            for index, row in enumerate(self._rows):
                if row is not None and row.region is region:
                    self._rows[index] = None
                    self._write(index, [0, 0])

    def stale(self, address: int, nbytes: int) -> str:
        """What is wrong with a registration that some memory lies in, in words; any thread."""
        self._memory.use_here()
        try:
            self._exported.find(address, nbytes)
        except ContextError as exc:
            return str(exc)
        return ""

    def offers(self, peer: int) -> list[list[int]]:
        """What a rank of the node has not been told of so far: of each array index, generation,
        process, memory file, offset in the allocation, and bytes and words of its handle."""
        with self._lock:
            rows = [
                (i, row)
                for i, row in enumerate(self._rows)
                if row and peer not in row.offered and _may_map(row.region, peer)
            ]
        found = []
        for index, (region, generation, offered) in rows:
            offered.add(peer)
            self._exported.tell(region)
            token = region.token
            assert token is not None
            handle = np.frombuffer(token.handle.ljust(8 * _HANDLE_WORDS, b"\0"), np.int64)
            words = index, generation, token.pid, token.fd, region.offset, len(token.handle)
            found.append([*words, *map(int, handle)])
        return found

    def map(self, peer: int, offer: list[int]) -> list[int] | None:
        """Maps what a rank of the node has offered: the answer; None: it cannot be mapped."""
        index, generation, pid, fd, offset, length, *words = offer
        handle = np.array(words[:_HANDLE_WORDS], np.int64).tobytes()[:length]
        self._memory.use_here()
        base = self._exported.map(Token(pid, handle, fd))
        return [index, generation, base + offset - int(self._directs[peer])] if base else None

    def mapped(self, peer: int, answer: list[int]) -> None:
        """A rank has mapped an array of ours.

        Args:
            answer: index, generation, and where it is for that rank, relative to our direct memory.
        """
        index, generation, place = answer[:3]
        own = self._memory.staging_address + self._memory.direct
        with self._lock:
            row = self._rows[index]
            if row is None or row.generation != generation:
                return
            shift = place - (row.region.address - own)
            self._memory.use_here()
            at = self._row_at(index) + r.SHIFTS + 8 * peer
            self._memory.write_device(at, np.array([shift | r.MAPPED], np.int64))

    def _row_at(self, index: int) -> int:
        ranks = len(self._directs)
        return self._at + r.header_bytes(ranks) + index * r.row_bytes(ranks)

    def _write(self, index: int, words: list[int]) -> None:
        """Address and bytes of a row's array, which no rank has mapped so far."""
        row = [*words, *[0] * len(self._directs)]
        self._memory.write_device(self._row_at(index), np.array(row, np.int64))
