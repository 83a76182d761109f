"""What the leading warp works out without branches, beside the words of the contract."""

from __future__ import annotations

import pytest

import gmpi
from device_lib.direct.short_blocks import _partners
from gmpi.contract import collectives
from gmpi.contract.wire import LOW_32

pytestmark = [
    pytest.mark.skipif(not gmpi.SIMULATOR, reason="calls device code from Python"),
    pytest.mark.quick,
]


@pytest.mark.parametrize("kind", range(collectives.REDUCE, collectives.EXSCAN + 1))
def test_partners_are_those_of_the_contract(kind: int) -> None:
    differ = []
    for ranks in (1, 2, 3, 4, 7, 31, 32):
        for root in range(ranks):
            for me in range(ranks):
                asked = kind, root, me, ranks
                gives = collectives.gives_to(*asked) & LOW_32
                takes = collectives.takes_from(*asked) & LOW_32
                if tuple(map(int, _partners(*asked))) != (gives, takes):
                    differ.append(asked)
    assert not differ
