"""What two ranks tell each other of the ends of partitioned requests."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np

from gmpi.memory.gpu_staging import Token

OFFER = 1  # an end that sends is there
OPEN = 2  # the answer: how bytes travel, and where to
REFUSE = 3  # of the answer: that memory cannot be mapped
GIVE_UP = 4  # the two ends do not fit; mode is the error class
FREED = 5

_HANDLE_BYTES = 64


def identity_word(identity: str) -> int:
    """A communicator's name, the same on all its ranks, as a number."""
    digest = hashlib.blake2b(identity.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


class Message(NamedTuple):
    """One message.

    Attributes:
        to: number of the end that it is for.
        sender: number of the end that it is from.
        identity, tag: what ends are matched by, beside the ranks.
        partitions, nbytes: of the end that it is from; bytes of one partition.
        derived: 1 where its bytes do not lie in one piece.
        mode, stride: as in the row of the receiver.
        place: OFFER: of the credit; OPEN: where bytes go; in the arena of who says it, or in an
            allocation.
        flags: where flags are, in the arena.
        pid, fd, handle: of that allocation; pid 0: it is the arena.
    """

    kind: int
    to: int = 0
    sender: int = 0
    identity: int = 0
    tag: int = 0
    partitions: int = 0
    nbytes: int = 0
    derived: int = 0
    mode: int = 0
    place: int = 0
    flags: int = 0
    stride: int = 0
    pid: int = 0
    fd: int = 0
    handle: bytes = b""

    @property
    def token(self) -> Token:
        return Token(self.pid, self.handle, self.fd)

    @staticmethod
    def buffer() -> np.ndarray:
        return np.zeros(_BYTES, np.uint8)

    def pack(self) -> np.ndarray:
        data = self.buffer()
        data[: 8 * _WORDS].view(np.int64)[:] = [int(word) for word in self[:_WORDS]]
        data[8 * _WORDS] = len(self.handle)
        data[8 * _WORDS + 1 :][: len(self.handle)] = list(self.handle)
        return data

    @classmethod
    def unpack(cls, data: np.ndarray) -> Message:
        words = map(int, data[: 8 * _WORDS].view(np.int64))
        handle = bytes(data[8 * _WORDS + 1 :][: int(data[8 * _WORDS])])
        return cls(*words, handle)  # type: ignore[arg-type,call-arg]


_WORDS = len(Message._fields) - 1
_BYTES = 8 * _WORDS + 1 + _HANDLE_BYTES
