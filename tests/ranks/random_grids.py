"""Random messages by calls of grid scope, on the direct road: argument --seeds=FIRST:LAST.

Each rank has another number of blocks. What one rank sends as a grid, another one receives as a
grid or as a block.
"""

from __future__ import annotations

import sys

import numpy as np
from common import RANK, SIZE, WORLD, barrier, end, pattern
from script import Script

import gmpi
from gmpi.contract.channels import PART_BYTES, ROOM, WIDE_ROOM

LENGTHS = (0, 1, 8, 300, 385, ROOM, ROOM + 1, 20_000, WIDE_ROOM, WIDE_ROOM + 1, 2 * PART_BYTES + 7)


def check(g: gmpi.Context, seed: int) -> None:
    common = np.random.default_rng(seed)  # what all ranks know
    own = np.random.default_rng([seed, RANK])
    alone = seed % 4 == 3 and RANK == 0
    s = Script("block", 40) if alone else Script("grid", int(own.integers(20, 70)), blocks=2 + RANK)
    open_now, expected = [], []
    for phase in range(3):
        new = []
        for number in range(int(common.integers(1, 8))):
            source, dest = (int(r) for r in common.integers(0, SIZE, 2))
            tag, n = int(common.integers(0, 2)), int(common.choice(LENGTHS))
            room = n if common.integers(0, 5) else n // 2
            content = pattern(n, 100 * phase + number)
            calls = []
            if dest == RANK:
                b = s.room(room, 16)
                calls.append(lambda b=b, room=room, source=source, tag=tag: s.irecv(
                    b, room, gmpi.BYTE, source, tag))  # fmt: skip
            if source == RANK:
                data = s.data(content, 16)
                calls.append(lambda data=data, n=n, dest=dest, tag=tag: s.isend(
                    data, n, gmpi.BYTE, dest, tag))  # fmt: skip
            for k, call in enumerate(calls):
                request = call()
                found = (b, source, tag, n, room, content) if k == 0 and dest == RANK else None
                new.append((request, found))
        if new and own.integers(0, 2):
            done = s.waitall([request for request, _ in new])
            expected += [(done, k, found) for k, (_, found) in enumerate(new)]
            new = []
        open_now += new
        kept = []
        for k in own.permutation(len(open_now)):
            if phase < 2 and own.integers(0, 4) == 0:
                kept.append(open_now[k])
            else:
                expected.append((s.wait(open_now[k][0]), -1, open_now[k][1]))
        open_now = kept
    s.launch(g)
    cut = 0
    try:
        s.collect(g)
    except gmpi.TruncationError:
        s.read_back()
        cut = 1
    for call, index, found in expected:
        if found is None:
            continue
        b, source, tag, n, room, content = found
        status = call.status if index < 0 else call.statuses[index]
        wanted = gmpi.ERR_TRUNCATE if room < n else gmpi.SUCCESS
        what = f"seed {seed}: {n} bytes into {room} from {source}"
        assert status.error == wanted, f"{what}: {status}"
        assert (status.source, status.tag, status.nbytes) == (source, tag, min(n, room)), what
        assert wanted == gmpi.SUCCESS or cut, what
        s.expect(b, content[:room], what)


def main() -> None:
    first, _, last = sys.argv[1].removeprefix("--seeds=").partition(":")
    for seed in range(int(first), int(last)):
        with gmpi.Context(WORLD, wildcards=False) as g:
            check(g, seed)
        barrier()
        if RANK == 0:
            print(f"ok seed {seed}", flush=True)
    end()


main()
