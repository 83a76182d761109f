"""Launches recorded once and repeated: a CUDA graph with two branches.

A Numba launch with many arguments costs some 50 us of Python, a graph of several launches 3 us. In
the simulator, which has no graphs, the launches are simply made again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda

from gmpi import SIMULATOR

if not SIMULATOR:
    from cuda.bindings import driver

_USE_NODE_PRIORITY = 8  # CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY


def _check(result: Any) -> Any:
    """The value of a driver call."""
    error, *values = result
    if error != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"the CUDA driver says {error.name}")
    return values[0] if values else None


class Recorder:
    """Two streams: ``urgent``, whose blocks are started before those of ``patient``.

    Attributes:
        urgent, patient: streams for Numba launches.
    """

    def __init__(self) -> None:
        self.urgent: Any = 0
        self.patient: Any = 0
        if SIMULATOR:
            return
        cuda.current_context()
        _, least, greatest = driver.cuCtxGetStreamPriorityRange()
        non_blocking = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        self._urgent = _check(driver.cuStreamCreateWithPriority(non_blocking, greatest))
        self._patient = _check(driver.cuStreamCreateWithPriority(non_blocking, least))
        self.urgent = cuda.external_stream(int(self._urgent))
        self.patient = cuda.external_stream(int(self._patient))

    def record(
        self, urgent: Callable[[], None], patient: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """What ``urgent`` launches on its stream and, side by side, ``patient`` on its own.

        The kernels must have been compiled. Calls of the result follow one another: a launch of
        one call begins when all of the call before have ended.
        """
        if SIMULATOR:

            def again() -> None:
                urgent()
                if patient is not None:
                    patient()

            return again

        relaxed = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        _check(driver.cuStreamBeginCapture(self._urgent, relaxed))
        if patient is not None:
            fork, join = _check(driver.cuEventCreate(2)), _check(driver.cuEventCreate(2))
            _check(driver.cuEventRecord(fork, self._urgent))
            _check(driver.cuStreamWaitEvent(self._patient, fork, 0))
        urgent()
        if patient is not None:
            patient()
            _check(driver.cuEventRecord(join, self._patient))
            _check(driver.cuStreamWaitEvent(self._urgent, join, 0))
        graph = _check(driver.cuStreamEndCapture(self._urgent))
        executable = _check(driver.cuGraphInstantiate(graph, _USE_NODE_PRIORITY))
        _check(driver.cuGraphUpload(executable, self._urgent))
        launch, stream = driver.cuGraphLaunch, self._urgent
        return lambda: _check(launch(executable, stream))

    def wait(self) -> None:
        """Until everything has ended."""
        if not SIMULATOR:
            _check(driver.cuStreamSynchronize(self._urgent))

    def check(self) -> None:
        """Raises when a launch has failed; does not wait."""
        if not SIMULATOR:
            (error,) = driver.cuStreamQuery(self._urgent)
            if error != driver.CUresult.CUDA_ERROR_NOT_READY:
                _check((error,))
