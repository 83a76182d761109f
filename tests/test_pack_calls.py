"""What a call of ``gmpi.pack`` finds of earlier ones."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

import gmpi
from gmpi.packing import calls

pytestmark = pytest.mark.quick

simulated = pytest.mark.skipif(not gmpi.SIMULATOR, reason="packs NumPy arrays")


@simulated
def test_a_freed_datatype_leaves_nothing_to_the_next_one_of_its_handle() -> None:
    source = np.arange(64, dtype=np.uint8)
    handles = set()
    for k in range(1, 9):
        datatype = MPI.BYTE.Create_vector(8, 1, k)
        for count in (1, 2) if k < 4 else (1,):
            places = [e * (7 * k + 1) + k * i for e in range(count) for i in range(8)]
            for _ in range(2):  # the second call finds what the first one has prepared
                packed = gmpi.pack(source, datatype, count)
                assert packed.tolist() == places
        handles.add(datatype.handle)
        handle = datatype.handle
        assert handle in calls._plans
        datatype.Free()
        assert handle not in calls._plans
    assert len(handles) < 8, "no handle came twice: this test has tested nothing"


def test_cupy_has_the_calls_of_the_driver() -> None:
    cupy = pytest.importorskip("cupy")
    assert callable(cupy.cuda.driver.launchKernel) and callable(cupy.cuda.driver.ctxGetDevice)
    assert {"_c_contiguous", "_f_contiguous"} <= set(dir(cupy.ndarray))
