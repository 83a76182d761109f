"""What a part exchanges with its neighbours: messages for each face and edge.

A message is ``ni x nj x nk`` elements of a pressure array: whole rows, or one element of each row.
Where they do not lie together, ``types`` describes them to MPI; without GMPI they travel through a
buffer, which ``pack`` fills and ``unpack`` empties.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod
from types import SimpleNamespace

import numpy as np
from _himeno_grid import Part, Triple
from _himeno_vector import device, load4, store4
from mpi4py import MPI

from gmpi import FLOAT, SIMULATOR

# Columns of the table, one row for each message.
(PEER, SEND_TAG, RECV_TAG, SEND, RECV, COUNT, NI, NJ, NK, BUFFER, TOGETHER, TYPE, EXTENT) = range(
    13
)
#: Shortest piece of a face, in elements: from 64 KiB on, time grows with length.
PIECE = 16 if SIMULATOR else 16384
_TAGS = 27  # the directions of a cube


def _first(part: Part, begin: Triple, offset: Triple) -> int:
    i, j, k = (b + o for b, o in zip(begin, offset))
    return (i * part.rows + j) * part.pitch + (k if part.halo[2] else 0)


def _pieces(extent: Triple, most: int, shortest: int) -> Iterator[tuple[Triple, Triple]]:
    """(begin, extent) of pieces of at least so many elements, whole rows, cut along i or j."""
    ni, nj, nk = extent
    length = ni if ni > 1 else nj
    count = max(1, min(most, length, prod(extent) // shortest))
    for begin, end in pairwise(length * n // count for n in range(count + 1)):
        if ni > 1:
            yield (begin, 0, 0), (end - begin, nj, nk)
        else:
            yield (0, begin, 0), (1, end - begin, nk)


def table(part: Part, most: int = 1, shortest: int = PIECE) -> np.ndarray:
    """int64[messages, 13]: neighbour, tags, first element to send and to receive, number of
    elements, extents, place in the buffers, whether the elements lie together, handle of their
    datatype, and number of elements from the first to behind the last.

    A face of more than ``shortest`` elements is cut into up to ``most`` messages, for as many
    blocks that communicate.
    """
    rows = []
    place = 0
    for n in part.neighbours:
        for number, (offset, (ni, nj, own)) in enumerate(_pieces(n.send[1], most, shortest)):
            # Where k is not cut, a row with its padding: no gap between rows.
            nk = own if part.halo[2] else part.pitch
            together = ni == 1 and (nj == 1 or nk == part.pitch)
            count = ni * nj * nk
            tags = [tag + _TAGS * number for tag in (n.send_tag, n.recv_tag)]
            firsts = [_first(part, begin, offset) for begin in (n.send[0], n.recv[0])]
            extent = (ni - 1) * part.plane + (nj - 1) * part.pitch + nk
            rows.append(
                [n.rank, *tags, *firsts, count, ni, nj, nk, place, int(together), FLOAT, extent]
            )
            place += -(-count // 32) * 32
    return np.array(rows, np.int64).reshape(-1, 13)


def types(part: Part, messages: np.ndarray) -> Iterator[MPI.Datatype | None]:
    """Datatype of each message, None for one whose elements lie together."""
    for row in messages:
        rows = MPI.FLOAT.Create_contiguous(row[NK])
        plane = rows.Create_hvector(row[NJ], 1, 4 * part.pitch)
        yield None if row[TOGETHER] else plane.Create_hvector(row[NI], 1, 4 * part.plane)


def buffer_elements(messages: np.ndarray) -> int:
    """float32 elements of a buffer that all messages fit into."""
    return int(sum(-(-row[COUNT] // 32) * 32 for row in messages)) or 32


def make_packing(part: Part) -> SimpleNamespace:
    """``pack(field, buffer, messages, m, thread, threads)`` and ``unpack``: one thread's share of
    message ``m``."""
    plane, pitch = part.plane, part.pitch

    @device
    def address(messages, m, first, element):
        """Where element ``(i * nj + j) * nk + k`` of a message is."""
        nj, nk = messages[m, NJ], messages[m, NK]
        row = element // nk
        i = row // nj
        return messages[m, first] + i * plane + (row - i * nj) * pitch + element - row * nk

    @device
    def pack(field, buffer, messages, m, thread, threads):
        to = messages[m, BUFFER]
        if messages[m, NK] == 1:
            for e in range(thread, messages[m, COUNT], threads):
                buffer[to + e] = field[address(messages, m, SEND, e)]
        else:
            for e in range(4 * thread, messages[m, COUNT], 4 * threads):
                c = load4(field, address(messages, m, SEND, e))
                store4(buffer, to + e, c[0], c[1], c[2], c[3])

    @device
    def unpack(field, buffer, messages, m, thread, threads):
        at = messages[m, BUFFER]
        if messages[m, NK] == 1:
            for e in range(thread, messages[m, COUNT], threads):
                field[address(messages, m, RECV, e)] = buffer[at + e]
        else:
            for e in range(4 * thread, messages[m, COUNT], 4 * threads):
                c = load4(buffer, at + e)
                store4(field, address(messages, m, RECV, e), c[0], c[1], c[2], c[3])

    return SimpleNamespace(pack=pack, unpack=unpack)
