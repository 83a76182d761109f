"""The collectives of ``Context.host``: all ranks of the communicator call one, kernel or host.

Those that block and those that do not are one preparation each; the ones that move blocks
(``gmpi/contract/moves.py``) share theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mpi4py import MPI

from gmpi.contract import moves
from gmpi.contract.constants import (
    COMM_WORLD,
    DATATYPES,
    SUM,
    datatype_of,
    operation_name,
)
from gmpi.contract.moves import BACK, OUT, Row
from gmpi.contract.rules import chunk_bytes_of
from gmpi.contract.wire import CALL_SHIFT, OP_ALLREDUCE, OP_BARRIER, OP_BCAST, PERSISTENT
from gmpi.host.arguments import Argument, checked_rank, checked_reduction
from gmpi.host.buffer import HostBuffer, is_in_place, reduced_array, require_alike
from gmpi.host.neighbours import HostNeighbours
from gmpi.host.requests import HostRequest, Operation, Progress
from host_proxy.platform.communicator import Communicator
from host_proxy.reference.agreement import Said, agreed
from host_proxy.reference.blocks import begin
from host_proxy.reference.protocol import Outcome, Step, chunks_of, collective

if TYPE_CHECKING:
    from gmpi.context import Context

_ROWS = {row.name: row for row in moves.ROWS}


def unpacked(operation: Step, buffer: HostBuffer) -> Step:
    """The steps, and then what has come is where the user wants it."""
    outcome: Outcome = yield from operation
    buffer.unpack(outcome.nbytes)
    return outcome


class _Turn(NamedTuple):
    """What a collective waits for, tested as a request of MPI: the one before it."""

    before: HostRequest

    def Test(self, status: MPI.Status | None = None) -> bool:
        return self.before.is_complete


def _after(before: HostRequest, steps: Step) -> Step:
    """One at a time on a communicator, as kernels' are: ranks must start the pieces of long ones in
    the same order."""
    yield _Turn(before)
    return (yield from steps)


class HostCollectives(HostNeighbours):
    """What ``Context.host`` has of MPI 4.1 chapter 6."""

    _context: Context
    _progress: Progress

    def Barrier(self, comm: int = COMM_WORLD) -> None:
        """MPI 4.1 section 6.3."""
        self._barrier("Barrier", comm).Wait()

    def Ibarrier(self, comm: int = COMM_WORLD) -> HostRequest:
        """MPI 4.1 section 6.12.1."""
        return self._barrier("Ibarrier", comm)

    def Bcast(self, buf: Any, root: int = 0, comm: int = COMM_WORLD) -> None:
        """MPI 4.1 section 6.4."""
        self._bcast("Bcast", buf, root, comm).Wait()

    def Ibcast(self, buf: Any, root: int = 0, comm: int = COMM_WORLD) -> HostRequest:
        """MPI 4.1 section 6.12.2."""
        return self._bcast("Ibcast", buf, root, comm)

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: int = SUM, comm: int = COMM_WORLD) -> None:
        """MPI 4.1 section 6.9.6; ``sendbuf`` may be ``gmpi.IN_PLACE``, ``op`` is as in kernels.

        Buffers are arrays: MPI defines reductions for predefined datatypes only.
        """
        self._allreduce("Allreduce", sendbuf, recvbuf, op, comm).Wait()

    def Iallreduce(
        self, sendbuf: Any, recvbuf: Any, op: int = SUM, comm: int = COMM_WORLD
    ) -> HostRequest:
        """MPI 4.1 section 6.12.8; buffers as of ``Allreduce``."""
        return self._allreduce("Iallreduce", sendbuf, recvbuf, op, comm)

    def Reduce(
        self, sendbuf: Any, recvbuf: Any, op: int = SUM, root: int = 0, comm: int = COMM_WORLD
    ) -> None:
        """MPI 4.1 section 6.9.1; buffers as of ``Allreduce``, ``recvbuf`` of the root's only."""
        self._blocks("Reduce", "Reduce", sendbuf, recvbuf, root, comm, op).Wait()

    def Ireduce(
        self, sendbuf: Any, recvbuf: Any, op: int = SUM, root: int = 0, comm: int = COMM_WORLD
    ) -> HostRequest:
        """MPI 4.1 section 6.12.7; as ``Reduce``."""
        return self._blocks("Ireduce", "Reduce", sendbuf, recvbuf, root, comm, op)

    def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0, comm: int = COMM_WORLD) -> None:
        """MPI 4.1 section 6.5; ``recvbuf``, of the root's only, has a block for each rank.

        At the root ``sendbuf`` may be ``gmpi.IN_PLACE``: its block is in ``recvbuf``.
        """
        self._blocks("Gather", "Gather", sendbuf, recvbuf, root, comm).Wait()

    def Igather(
        self, sendbuf: Any, recvbuf: Any, root: int = 0, comm: int = COMM_WORLD
    ) -> HostRequest:
        """MPI 4.1 section 6.12.3; as ``Gather``."""
        return self._blocks("Igather", "Gather", sendbuf, recvbuf, root, comm)

    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0, comm: int = COMM_WORLD) -> None:
        """MPI 4.1 section 6.6; ``sendbuf``, of the root's only, has a block for each rank.

        At the root ``recvbuf`` may be ``gmpi.IN_PLACE``: its block stays in ``sendbuf``.
        """
        self._blocks("Scatter", "Scatter", sendbuf, recvbuf, root, comm).Wait()

    def Iscatter(
        self, sendbuf: Any, recvbuf: Any, root: int = 0, comm: int = COMM_WORLD
    ) -> HostRequest:
        """MPI 4.1 section 6.12.4; as ``Scatter``."""
        return self._blocks("Iscatter", "Scatter", sendbuf, recvbuf, root, comm)

    def Allgather(self, sendbuf: Any, recvbuf: Any, comm: int = COMM_WORLD) -> None:
        """MPI 4.1 section 6.7; ``recvbuf`` has a block for each rank, ``sendbuf`` one, or is
        ``gmpi.IN_PLACE``."""
        self._blocks("Allgather", "Allgather", sendbuf, recvbuf, 0, comm).Wait()

    def Iallgather(self, sendbuf: Any, recvbuf: Any, comm: int = COMM_WORLD) -> HostRequest:
        """MPI 4.1 section 6.12.5; as ``Allgather``."""
        return self._blocks("Iallgather", "Allgather", sendbuf, recvbuf, 0, comm)

    def Alltoall(self, sendbuf: Any, recvbuf: Any, comm: int = COMM_WORLD) -> None:
        """MPI 4.1 section 6.8; both have a block for each rank; ``sendbuf`` may be
        ``gmpi.IN_PLACE``."""
        self._blocks("Alltoall", "Alltoall", sendbuf, recvbuf, 0, comm).Wait()

    def Ialltoall(self, sendbuf: Any, recvbuf: Any, comm: int = COMM_WORLD) -> HostRequest:
        """MPI 4.1 section 6.12.6; as ``Alltoall``."""
        return self._blocks("Ialltoall", "Alltoall", sendbuf, recvbuf, 0, comm)

    def Reduce_scatter_block(
        self, sendbuf: Any, recvbuf: Any, op: int = SUM, comm: int = COMM_WORLD
    ) -> None:
        """MPI 4.1 section 6.10.1; ``sendbuf`` has a block for each rank, ``recvbuf`` one. With
        ``gmpi.IN_PLACE`` ``recvbuf`` has all of them, and the result at its beginning."""
        name = "Reduce_scatter_block"
        self._blocks(name, name, sendbuf, recvbuf, 0, comm, op).Wait()

    def Ireduce_scatter_block(
        self, sendbuf: Any, recvbuf: Any, op: int = SUM, comm: int = COMM_WORLD
    ) -> HostRequest:
        """MPI 4.1 section 6.12.9; as ``Reduce_scatter_block``."""
        name = "Reduce_scatter_block"
        return self._blocks(f"I{name.lower()}", name, sendbuf, recvbuf, 0, comm, op)

    def Scan(self, sendbuf: Any, recvbuf: Any, op: int = SUM, comm: int = COMM_WORLD) -> None:
        """MPI 4.1 section 6.11.1; buffers as of ``Allreduce``."""
        self._blocks("Scan", "Scan", sendbuf, recvbuf, 0, comm, op).Wait()

    def Iscan(
        self, sendbuf: Any, recvbuf: Any, op: int = SUM, comm: int = COMM_WORLD
    ) -> HostRequest:
        """MPI 4.1 section 6.12.11; as ``Scan``."""
        return self._blocks("Iscan", "Scan", sendbuf, recvbuf, 0, comm, op)

    def Exscan(self, sendbuf: Any, recvbuf: Any, op: int = SUM, comm: int = COMM_WORLD) -> None:
        """MPI 4.1 section 6.11.2; buffers as of ``Allreduce``. ``recvbuf`` of rank 0 stays as it
        is."""
        self._blocks("Exscan", "Exscan", sendbuf, recvbuf, 0, comm, op).Wait()

    def Iexscan(
        self, sendbuf: Any, recvbuf: Any, op: int = SUM, comm: int = COMM_WORLD
    ) -> HostRequest:
        """MPI 4.1 section 6.12.12; as ``Exscan``."""
        return self._blocks("Iexscan", "Exscan", sendbuf, recvbuf, 0, comm, op)

    # --- what they have in common -----------------------------------------------------------------

    def _barrier(self, call: str, comm: int) -> HostRequest:
        messages = self._communicator(comm).messages

        def steps() -> Step:
            yield messages.Ibarrier()
            return Outcome(0)

        return self._collective(OP_BARRIER, Operation(call, "collective", comm), steps())

    def _broadcast(self, call: str, buf: Any, root: int, comm: int) -> tuple[int, HostBuffer]:
        """(root, buffer) of a Bcast, checked."""
        communicator = self._communicator(comm)
        root = checked_rank(Argument(call, "root"), root, communicator)
        return root, self._buffer(buf, Argument(call, "buf"), communicator.rank != root)

    def _bcast(self, call: str, buf: Any, root: int, comm: int) -> HostRequest:
        root, buffer = self._broadcast(call, buf, root, comm)
        communicator, data = self._communicator(comm), buffer.data
        sends = communicator.rank == root
        steps = self._by_chunks(
            buffer.nbytes,
            lambda at, n: communicator.messages.Ibcast([data[at : at + n], MPI.BYTE], root),
        )
        operation = Operation(
            call, "collective", comm, root, None, buffer.element, buffer.count, buffer.nbytes
        )
        steps = steps if sends else unpacked(steps, buffer)
        return self._collective(OP_BCAST, operation, steps, keep=buffer)

    def _reduction(
        self, call: str, sendbuf: Any, recvbuf: Any, op: int, comm: int
    ) -> tuple[np.ndarray, np.ndarray, int]:
        """(recvbuf, what is reduced, number of the operation) of an Allreduce, checked."""
        self._communicator(comm)
        result = reduced_array(recvbuf, Argument(call, "recvbuf"), writable=True)
        reductions = self._context._state.reductions
        number = checked_reduction(Argument(call, "op"), op, reductions, result.dtype)
        if is_in_place(sendbuf):
            return result, result, number
        source = reduced_array(sendbuf, Argument(call, "sendbuf"), writable=False)
        require_alike(Argument(call, "sendbuf"), source, result)
        return result, source, number

    def _allreduce(self, call: str, sendbuf: Any, recvbuf: Any, op: int, comm: int) -> HostRequest:
        communicator = self._communicator(comm)
        result, source, number = self._reduction(call, sendbuf, recvbuf, op, comm)
        flat = result.reshape(-1)
        if source is not result:
            flat[:] = source.reshape(-1)
        item = result.itemsize
        reduction = self._context._state.reductions.known[number]
        datatype = DATATYPES[datatype_of(result.dtype) & 0xFF][1]

        def start(at: int, n: int) -> MPI.Request:
            piece = [flat[at // item : (at + n) // item].view(np.uint8), n // item, datatype]
            return communicator.messages.Iallreduce(MPI.IN_PLACE, piece, reduction)

        operation = Operation(
            call, "collective", comm, None, None, result.dtype, flat.size, result.nbytes,
            operation_name(number),
        )  # fmt: skip
        steps = self._by_chunks(result.nbytes, start)
        return self._collective(OP_ALLREDUCE, operation, steps, number, keep=result)

    def _blocks(
        self, call: str, name: str, sendbuf: Any, recvbuf: Any, root: int, comm: int, op: int = 0
    ) -> HostRequest:
        """Starts a collective that moves blocks."""
        row, communicator = _ROWS[name], self._communicator(comm)
        if row.rooted:
            root = checked_rank(Argument(call, "root"), root, communicator)
        find = self._reduced_blocks if row.reduces else self._moved_blocks
        nbytes, send, result, target = find(call, row, communicator, sendbuf, recvbuf, root)
        datatype, element, reduction, number = MPI.BYTE, None, None, 0
        if row.reduces:
            element, reductions = target, self._context._state.reductions
            number = checked_reduction(Argument(call, "op"), op, reductions, element)
            reduction = reductions.known[number]
            datatype = DATATYPES[datatype_of(element) & 0xFF][1]

        def steps() -> Step:
            yield begin(row, communicator, send, result, datatype, reduction, root)
            if isinstance(target, HostBuffer):
                target.unpack(len(result))
            return Outcome(len(result))

        operation = Operation(
            call, "collective", comm, root if row.rooted else None, None, element,
            nbytes // element.itemsize if element is not None else 0, nbytes,
            operation_name(number) if row.reduces else "",
        )  # fmt: skip
        keep = sendbuf, recvbuf, send, result
        return self._collective(row.op, operation, steps(), number, keep=keep)

    def _ways(
        self, call: str, row: Row, communicator: Communicator, sendbuf: Any, recvbuf: Any, root: int
    ) -> tuple[int, int, bool]:
        """(blocks out, blocks back, whether they come from ``recvbuf``)."""
        me, ranks = communicator.rank, communicator.size
        out, back = (moves.blocks(row.op, way, me, ranks, root, 0) for way in (OUT, BACK))
        for way, number, name, buf in (
            (OUT, out, "sendbuf", sendbuf), (BACK, back, "recvbuf", recvbuf)
        ):  # fmt: skip
            if number and is_in_place(buf) and not moves.may_be_in_place(row.op, way, me, root):
                allowed = "a buffer"
                text = f"{name} is IN_PLACE, allowed is {allowed} on this rank"
                raise Argument(call, name).refused(text, buf, allowed)
        if back and is_in_place(recvbuf):
            back = 0
        return out, back, bool(out) and is_in_place(sendbuf)

    def _reduced_blocks(
        self, call: str, row: Row, communicator: Communicator, sendbuf: Any, recvbuf: Any, root: int
    ) -> tuple[int, np.ndarray, np.ndarray, Any]:
        """(bytes of a block, what goes out, room for what comes back, NumPy's dtype)."""
        out, back, in_place = self._ways(call, row, communicator, sendbuf, recvbuf, root)
        name = Argument(call, "recvbuf" if in_place else "sendbuf")
        source = reduced_array(recvbuf if in_place else sendbuf, name, writable=in_place)
        if source.size % out:
            allowed = f"a multiple of {out}, one block for each rank"
            text = f"{name} has {source.size} elements, allowed is {allowed}"
            raise name.refused(text, source.size, allowed, MPI.ERR_COUNT)
        block = source[: source.size // out]
        result = np.empty(0, np.uint8)
        if back and in_place:
            result = block.view(np.uint8)
        elif back:
            target = reduced_array(recvbuf, Argument(call, "recvbuf"), writable=True)
            require_alike(Argument(call, "sendbuf"), block, target)
            result = target.view(np.uint8)
        send = source.view(np.uint8)
        return block.nbytes, send.copy() if in_place else send, result, source.dtype

    def _moved_blocks(
        self, call: str, row: Row, communicator: Communicator, sendbuf: Any, recvbuf: Any, root: int
    ) -> tuple[int, np.ndarray, np.ndarray, Any]:
        """(bytes of a block, what goes out, room for what comes back, its buffer)."""
        out, back, in_place = self._ways(call, row, communicator, sendbuf, recvbuf, root)
        found = {}
        for name, number, spec, writable in (
            ("sendbuf", 0 if in_place else out, sendbuf, False), ("recvbuf", back, recvbuf, True)
        ):  # fmt: skip
            if not number:
                continue
            argument = Argument(call, name)
            buffer = found[name] = self._buffer(spec, argument, writable, number)
            if buffer.nbytes % number:
                allowed = f"a multiple of {number}, one block for each rank"
                text = f"{name} has {buffer.nbytes} bytes, allowed is {allowed}"
                raise argument.refused(text, buffer.nbytes, allowed, MPI.ERR_COUNT)
        sizes = {
            name: buffer.nbytes // (out if name == "sendbuf" else back)
            for name, buffer in found.items()
        }
        if len(set(sizes.values())) > 1:
            allowed = f"{sizes['recvbuf']} bytes, as of recvbuf"
            text = f"a block of sendbuf has {sizes['sendbuf']} bytes, allowed is {allowed}"
            raise Argument(call, "sendbuf").refused(text, sizes["sendbuf"], allowed, MPI.ERR_COUNT)
        nbytes = next(iter(sizes.values()))
        target = found.get("recvbuf")
        result = np.empty(0, np.uint8) if target is None else target.data
        if not in_place:
            send = found["sendbuf"].data if out else np.empty(0, np.uint8)
            return nbytes, send, result, target
        assert target is not None
        target.pack()
        result = target.data
        begin_at = communicator.rank * nbytes if row.shifted else 0
        return nbytes, result[begin_at : begin_at + out * nbytes].copy(), result, target

    def _collective(
        self, op: int, asked: Operation, steps: Step, reduction: int = 0, keep: Any = None
    ) -> HostRequest:
        communicator = self._communicator(asked.comm)
        if communicator.compared is not None:  # in debug mode
            rank, root = self._context.rank, asked.peer or 0
            call = PERSISTENT >> CALL_SHIFT if asked.name.endswith("_init") else 0
            mine = Said(rank, op, call, root, reduction, 0, asked.count, asked.nbytes, block=-1)
            steps = agreed(communicator, mine, steps, asked.flows)
        row = self._context._state.communicator_table[asked.comm]
        steps = collective(row, steps)
        before = self._progress.collectives.get(asked.comm)
        if before is not None and not before.is_complete:
            steps = _after(before, steps)
        request = HostRequest(self._progress, asked, steps, 1, keep)
        self._progress.collectives[asked.comm] = request
        return request

    def _by_chunks(self, nbytes: int, start: Any) -> Step:
        """Cuts as kernels do: ranks must start the same pieces in the same order."""
        eager, largest = self._sizes()
        chunk = chunk_bytes_of(nbytes, largest) if nbytes > eager else max(nbytes, 1)
        for position, length in chunks_of(nbytes, chunk) or [(0, 0)]:
            yield start(position, length)
        return Outcome(nbytes)

    def _buffer(self, spec: Any, argument: Argument, writable: bool, blocks: int = 1) -> HostBuffer:
        plans = self._context._datatypes
        return HostBuffer(spec, argument, writable, lambda: plans.plans, blocks)

    def _sizes(self) -> tuple[int, int]:
        layout = self._context.layout
        return layout.eager_bytes, layout.chunk_bytes

    def _communicator(self, comm: int) -> Communicator:
        raise NotImplementedError
