"""Which ranks of a communicator share this node: what kernels and the host make of a placement."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gmpi
from device_lib.platform.context import DeviceContext, near_staging
from gmpi.communicators import _reach
from gmpi.contract.sizes import SHAPE_NEAR_SHIFT
from gmpi.contract.wire import (
    DEVICE_REACH,
    DEVICE_ROWS,
    DEVICE_STAGING,
    LANDED,
    NEAR,
    OP_ISEND,
    REACH_BYTES,
    REACH_RANKS,
)
from gmpi.memory.peers import Peers
from host_proxy.platform.state import P_COUNT, P_LANDING, P_MAPS

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
    """``count`` ranks of a node, all but rank 0 of it with landing places."""
    found = object.__new__(Peers)
    found.table = np.zeros((count, P_COUNT), np.int64)
    found.table[:, P_MAPS] = 1
    found.table[1:, P_LANDING] = 1000 + np.arange(1, count)
    return found


def seen_by_kernels(peers: Peers, near: np.ndarray, rows: np.ndarray) -> list[tuple[int, int]]:
    """``near_staging`` for a send to each rank."""
    memory = np.zeros(DEVICE_ROWS // 8, np.int64)
    memory[DEVICE_STAGING // 8] = STAGING
    reached, _ = peers.reach(rows)
    begin = (DEVICE_REACH + COMM * REACH_BYTES) // 8
    reach = _reach(reached, near, peers.table[rows, P_LANDING]).view(np.int64)
    memory[begin : begin + len(reach)] = reach
    ctx = DeviceContext(0, memory.ctypes.data, 1 << SHAPE_NEAR_SHIFT, 0)
    return [near_staging(ctx, OP_ISEND | COMM << 16, rank) for rank in range(len(rows))]


def check(rows: np.ndarray) -> np.ndarray:
    """Kernels and the host come to the same answer; the host's."""
    peers = some_peers(int((rows >= 0).sum()))
    _, near = peers.reach(rows)
    for rank, (staging, landing) in enumerate(seen_by_kernels(peers, near, rows)):
        assert staging == (STAGING if near[rank] & NEAR else 0), rank
        lands = peers.table[rows[rank], P_LANDING] if near[rank] & LANDED else 0
        assert landing == lands, rank
    return near


@pytest.mark.skipif(not gmpi.SIMULATOR, reason="calls device code from Python")
@pytest.mark.parametrize("nodes", ["a", "ab", "abc", "abcdefg"])
@pytest.mark.parametrize("size", [1, 2, 64, 65, 130, 300])
def test_all_of_a_node_are_reached_however_they_are_placed(nodes: str, size: int) -> None:
    rows = placed(nodes, size)
    near = check(rows)
    here = np.flatnonzero(rows >= 0)
    np.testing.assert_array_equal(np.flatnonzero(near), here[:REACH_RANKS])


@pytest.mark.skipif(not gmpi.SIMULATOR, reason="calls device code from Python")
@given(st.lists(st.booleans(), min_size=1, max_size=300))
def test_kernels_and_host_agree_for_any_placement(is_here: list[bool]) -> None:
    rows = np.full(len(is_here), -1)
    rows[is_here] = np.arange(sum(is_here))
    if sum(is_here):
        assert check(rows).any()
