"""Which way long messages take, as a user sees it."""

from __future__ import annotations

import launcher
import pytest

pytestmark = pytest.mark.mpi

PROGRAM = """
import os
from mpi4py import MPI
import gmpi
rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
everyone = list(range(size))

def paths(gpu=True, **settings):
    with gmpi.Context(gpu=gpu, **settings) as g:
        report = g.report()
        assert report.ranks[rank].paths == g.paths
        others = [report.ranks[r] for r in everyone if r != rank and report.ranks[r]]
        assert all(sum(map(len, other.paths.values())) == size for other in others)
        MPI.COMM_WORLD.Barrier()
        return g.paths, report.text

found, text = paths()
assert found == {"GPU staging": everyone}, found
assert "long messages by GPU staging to ranks 0-2" in text, text
found, text = paths(wildcards=False)
assert found == {"direct road": everyone}, found
assert "long messages by direct road to ranks 0-2" in text, text
assert paths(wildcards=False, road="proxied")[0] == {"GPU staging": everyone}
found, text = paths(gpu_staging=False)
assert found == {"MPI": everyone}, found
assert "long messages by MPI to ranks 0-2" in text, text
assert paths(debug=True)[0] == {"MPI": everyone}
assert paths(debug=True, wildcards=False)[0] == {"direct road": everyone}
# A rank without kernels has no GPU memory, and reads none.
found, text = paths(gpu=rank != 2)
if rank == 2:
    assert found == {"MPI": everyone}, found
else:
    assert found == {"GPU staging": [0, 1], "MPI": [2]}, found
found, text = paths(gpu=rank != 2, wildcards=False)
assert found == ({"MPI": everyone} if rank == 2 else {"direct road": [0, 1], "MPI": [2]}), found
# Ranks 0 and 2 on one node, rank 1 on another.
os.environ["GMPI_TEST_NODES"] = "aba"
found, text = paths()
assert found == ({"MPI": everyone} if rank == 1 else {"GPU staging": [0, 2], "MPI": [1]}), found
assert "long messages by GPU staging to ranks 0, 2; MPI to rank 1" in text, text
print("as it should be")
"""


@pytest.mark.openmpi
def test_paths() -> None:
    status, text = launcher.mpi(3, "-c", PROGRAM)
    assert status == 0 and text.count("as it should be") == 3, text


@pytest.mark.mpich
def test_gmpi_info_names_them() -> None:
    status, text = launcher.mpi(2, "-m", "gmpi", "info")
    assert status == 0 and text.count("GPU staging to ranks 0, 1") == 2, text
    status, text = launcher.mpi(2, "-m", "gmpi", "info", GMPI_GPU_STAGING="0")
    assert status == 0 and text.count("MPI to ranks 0, 1") == 2, text
