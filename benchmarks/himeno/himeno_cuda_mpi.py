"""The Himeno benchmark the conventional way: kernels that end, messages from the host.

    mpiexec -n 2 python benchmarks/himeno/himeno_cuda_mpi.py [options as himeno_tuned.py]

The same sweep as ``himeno.py``, and everything that makes this style fast: an iteration is one
CUDA graph, in which the points that neighbours wait for come first, on a stream of their own, while
the interior is computed; they are packed straight into pinned memory; the host sees a flag there
instead of waiting for a stream, and exchanges with persistent requests. The sum of the residuals
of an iteration is reduced while the next one computes.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
from _himeno_app import Solver, main
from _himeno_faces import (
    BUFFER,
    COUNT,
    PEER,
    RECV_TAG,
    SEND_TAG,
    buffer_elements,
    make_packing,
    table,
)
from _himeno_graph import Recorder
from _himeno_kernels import ACCUMULATORS, block_sum, launched_plan, make_launched
from mpi4py import MPI
from numba import cuda, float64

from gmpi import SIMULATOR

BLOCKS, THREADS = (2, 64) if SIMULATOR else (32, 256)  # of the kernels that pack
_SPINS = 1 << 20  # looks at the flag between two questions whether the GPU is well


def make_arrive(part, messages):
    """Kernel: from pinned memory into the halo; the residual of the iteration before to it."""
    unpack = make_packing(part).unpack
    count = len(messages)

    @cuda.jit
    def arrive(field, arriving, messages, sums, residual, with_halo):
        scratch = cuda.shared.array(32, float64)
        if cuda.blockIdx.x == 0:
            share = 0.0
            if cuda.threadIdx.x < ACCUMULATORS:
                share = sums[cuda.threadIdx.x]
                sums[cuda.threadIdx.x] = 0.0
            total = block_sum(share, scratch)
            if cuda.threadIdx.x == 0:
                residual[0] = total
        if with_halo:
            thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
            for m in range(count):
                unpack(field, arriving, messages, m, thread, cuda.blockDim.x * cuda.gridDim.x)

    return arrive


def make_leave(part, messages):
    """Kernel: boundary points to pinned memory; the last block tells the host."""
    pack = make_packing(part).pack
    count = len(messages)

    @cuda.jit
    def leave(field, leaving, messages, progress, flag):
        thread = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        for m in range(count):
            pack(field, leaving, messages, m, thread, cuda.blockDim.x * cuda.gridDim.x)
        cuda.threadfence_system()
        cuda.syncthreads()
        if cuda.threadIdx.x == 0:
            if cuda.atomic.add(progress, 0, 1) == cuda.gridDim.x - 1:
                progress[0] = 0
                progress[1] += 1
                cuda.threadfence_system()
                flag[0] = progress[1]

    return leave


class Conventional(Solver):
    """One rank's part, its kernels, graphs and messages."""

    name = "CUDA+MPI"

    def prepare(self) -> None:
        part, fields = self.part, self.fields
        plan = launched_plan(part)
        rows = table(part)
        messages = cuda.to_device(rows if len(rows) else np.zeros((1, 11), np.int64))
        arriving = cuda.mapped_array(buffer_elements(rows), np.float32)
        leaving = cuda.mapped_array(buffer_elements(rows), np.float32)
        self.residual = cuda.mapped_array(1, np.float64)
        self.flag = cuda.mapped_array(1, np.int64)
        self.flag[0] = 0
        progress = cuda.to_device(np.zeros(2, np.int64))
        self.sums = [cuda.to_device(np.zeros(ACCUMULATORS)) for _ in range(2)]
        self.recorder = Recorder()
        self.turn = 0
        self.instrumented = False
        self.requests = []
        for row in rows:
            at = slice(row[BUFFER], row[BUFFER] + row[COUNT])
            peer, send_tag, recv_tag = (int(row[c]) for c in (PEER, SEND_TAG, RECV_TAG))
            receive, send = np.asarray(arriving)[at], np.asarray(leaving)[at]
            self.requests += [
                self.comm.Recv_init([receive, MPI.FLOAT], peer, recv_tag),
                self.comm.Send_init([send, MPI.FLOAT], peer, send_tag),
            ]

        arrive, leave = make_arrive(part, rows), make_leave(part, rows)
        inner = make_launched(part, plan, [part.inner]) if not part.inner.empty else None
        outer = make_launched(part, plan, part.outer) if part.outer else None
        urgent, patient = self.recorder.urgent, self.recorder.patient
        threads = plan.threads

        pressures = fields.p, fields.q

        def step(turn: int, with_halo: bool) -> tuple[Any, Any]:
            """What an iteration launches, from ``old`` to ``new``."""
            old, new = pressures[turn], pressures[1 - turn]
            sums, before = self.sums[turn], self.sums[1 - turn]

            def boundary() -> None:
                arrive[BLOCKS, THREADS, urgent](
                    old, arriving, messages, before, self.residual, with_halo
                )
                if outer:
                    outer.kernel[outer.tiles, threads, urgent](old, new, fields.coef, sums)
                leave[BLOCKS, THREADS, urgent](new, leaving, messages, progress, self.flag)

            def interior() -> None:
                if inner:
                    inner.kernel[inner.tiles, threads, patient](old, new, fields.coef, sums)

            return boundary, interior

        def end(turn: int) -> Any:
            """The halo and the residual of the last iteration."""
            return lambda: arrive[BLOCKS, THREADS, urgent](
                pressures[turn], arriving, messages, self.sums[1 - turn], self.residual, True
            )

        if not SIMULATOR:
            for launches in step(0, True):  # compiles
                launches()
            self.recorder.wait()
            cuda.synchronize()
        self.epoch = int(self.flag[0])
        record = self.recorder.record
        self.first = [record(*step(turn, False)) for turn in (0, 1)]
        self.next = [record(*step(turn, True)) for turn in (0, 1)]
        self.last = [record(end(turn)) for turn in (0, 1)]

    def run(self, iterations: int) -> np.ndarray:
        """Residual of each iteration; the newest pressure is ``fields.p``."""
        comm, requests, flag = self.comm, self.requests, self.flag
        gosa = np.zeros(iterations)
        start, wait_all = MPI.Prequest.Startall, MPI.Request.Waitall
        graphs = self.next
        turn, epoch = self.turn, self.epoch
        for sums in self.sums:
            sums.copy_to_device(np.zeros(ACCUMULATORS))
        cuda.synchronize()
        halo = reduction = 0.0
        with self.timed():
            self.first[turn]()
            for n in range(iterations):
                turn = 1 - turn
                epoch += 1
                spins = 0
                while flag[0] != epoch:
                    spins += 1
                    if spins % _SPINS == 0:
                        self.recorder.check()
                if n > 0:
                    gosa[n - 1] = self.residual[0]
                if self.instrumented:
                    began = time.perf_counter()
                if requests:
                    start(requests)
                    wait_all(requests)
                if self.instrumented:
                    halo += time.perf_counter() - began
                if n + 1 < iterations:
                    graphs[turn]()
                if self.instrumented:
                    began = time.perf_counter()
                if n > 0:
                    comm.Allreduce(MPI.IN_PLACE, gosa[n - 1 : n])
                if self.instrumented:
                    reduction += time.perf_counter() - began
            self.last[turn]()
            self.recorder.wait()
            gosa[-1] = self.residual[0]
            comm.Allreduce(MPI.IN_PLACE, gosa[-1:])
        self.epoch, self.turn = epoch, turn
        if iterations % 2:
            self.fields.swap()
        self.host_us = halo / iterations * 1e6, reduction / iterations * 1e6
        return gosa

    def parts(self) -> dict[str, Any]:
        self.instrumented = True
        self.run(100)
        self.instrumented = False
        halo, reduction = self.host_us
        return {"compute": self.compute_us(), "halo": halo, "convergence": reduction}

    def compute_us(self) -> float:
        """A sweep over the part by one launch, without anything beside it."""
        recorder, fields = self.recorder, self.fields
        plan = launched_plan(self.part)
        whole = make_launched(self.part, plan, [*self.part.outer, self.part.inner])
        launch = whole.kernel[whole.tiles, plan.threads, recorder.urgent]
        sweeps, graphs = (1, 1) if SIMULATOR else (10, 40 if self.part.elements < 1 << 22 else 4)
        launch(fields.p, fields.q, fields.coef, self.sums[0])  # compiles

        def there_and_back() -> None:
            for p, q in [(fields.p, fields.q), (fields.q, fields.p)] * sweeps:
                launch(p, q, fields.coef, self.sums[0])

        again = recorder.record(there_and_back)
        found = []
        for _ in range(5):
            recorder.wait()
            began = time.perf_counter()
            for _ in range(graphs):
                again()
            recorder.wait()
            found.append((time.perf_counter() - began) / (2 * sweeps * graphs))
        return min(found) * 1e6

    def close(self) -> None:
        for request in self.requests:
            request.Free()


if __name__ == "__main__":
    sys.exit(main(Conventional, __doc__ or ""))
