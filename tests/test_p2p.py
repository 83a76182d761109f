"""Which ranks of a communicator share this node: what kernels and the host make of a placement."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gmpi
from device_lib.platform.context import DeviceContext, p2p_staging
from gmpi.communicators import _p2p_row
from gmpi.contract.sizes import SHAPE_P2P_SHIFT
from gmpi.contract.wire import (
    DEVICE_P2P,
    DEVICE_ROWS,
    DEVICE_STAGING,
    MAILED,
    OP_ISEND,
    P2P,
    P2P_BYTES,
    P2P_RANKS,
)
from gmpi.memory.peers import Peers
from host_proxy.platform.state import P_COUNT, P_MAILBOXES, P_MAPS

pytestmark = pytest.mark.quick
STAGING = 1 << 40
COMM = 3


def placed(nodes: str, size: int) -> np.ndarray:
    """What ``Peers.of`` returns on rank 0, by the nodes of the first ranks."""
    here = [rank for rank in range(size) if nodes[rank % len(nodes)] == nodes[0]]
    peers = np.full(size, -1)
    peers[here] = np.arange(len(here))
    return peers


def some_peers(count: int) -> Peers:
    """``count`` ranks of a node, all but rank 0 of it with mailboxes."""
    found = object.__new__(Peers)
    found.table = np.zeros((count, P_COUNT), np.int64)
    found.table[:, P_MAPS] = 1
    found.table[1:, P_MAILBOXES] = 1000 + np.arange(1, count)
    return found


def seen_by_kernels(peers: Peers, p2p: np.ndarray, rows: np.ndarray) -> list[tuple[int, int]]:
    """``p2p_staging`` for a send to each rank."""
    memory = np.zeros(DEVICE_ROWS // 8, np.int64)
    memory[DEVICE_STAGING // 8] = STAGING
    reached, _ = peers.reach(rows)
    begin = (DEVICE_P2P + COMM * P2P_BYTES) // 8
    reach = _p2p_row(reached, p2p, peers.table[rows, P_MAILBOXES]).view(np.int64)
    memory[begin : begin + len(reach)] = reach
    ctx = DeviceContext(0, memory.ctypes.data, 1 << SHAPE_P2P_SHIFT, 0)
    return [p2p_staging(ctx, OP_ISEND | COMM << 16, rank) for rank in range(len(rows))]


def check(rows: np.ndarray) -> np.ndarray:
    """Kernels and the host come to the same answer; the host's."""
    peers = some_peers(int((rows >= 0).sum()))
    _, p2p = peers.reach(rows)
    for rank, (staging, mailbox) in enumerate(seen_by_kernels(peers, p2p, rows)):
        assert staging == (STAGING if p2p[rank] & P2P else 0), rank
        fits_mailbox = peers.table[rows[rank], P_MAILBOXES] if p2p[rank] & MAILED else 0
        assert mailbox == fits_mailbox, rank
    return p2p


@pytest.mark.skipif(not gmpi.SIMULATOR, reason="calls device code from Python")
@pytest.mark.parametrize("nodes", ["a", "ab", "abc", "abcdefg"])
@pytest.mark.parametrize("size", [1, 2, 64, 65, 130, 300])
def test_all_of_a_node_are_reached_however_they_are_placed(nodes: str, size: int) -> None:
    rows = placed(nodes, size)
    p2p = check(rows)
    here = np.flatnonzero(rows >= 0)
    np.testing.assert_array_equal(np.flatnonzero(p2p), here[:P2P_RANKS])


@pytest.mark.skipif(not gmpi.SIMULATOR, reason="calls device code from Python")
@given(st.lists(st.booleans(), min_size=1, max_size=300))
def test_kernels_and_host_agree_for_any_placement(is_here: list[bool]) -> None:
    rows = np.full(len(is_here), -1)
    rows[is_here] = np.arange(sum(is_here))
    if sum(is_here):
        assert check(rows).any()
