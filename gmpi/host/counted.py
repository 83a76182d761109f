"""The collectives of ``Context.host`` whose blocks have counts of their own.

One preparation for all of them (``gmpi/contract/moves.py``, WITH_TABLES); buffers are mpi4py's
vectors (``gmpi/host/blocks.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from mpi4py import MPI

from gmpi.contract import moves
from gmpi.contract.constants import COMM_WORLD, DATATYPES, SUM, datatype_of, operation_name
from gmpi.contract.moves import BACK, OUT, Row
from gmpi.host.arguments import Argument, checked_rank, checked_reduction
from gmpi.host.blocks import HostBlocks, as_error
from gmpi.host.buffer import is_in_place, reduced_array
from gmpi.host.requests import HostRequest, Operation
from host_proxy.platform.communicator import Communicator
from host_proxy.reference.blocks import begin_counted
from host_proxy.reference.counts import Block, Blocks, Names, no_neighbours, own_block
from host_proxy.reference.flows import flows, number_of
from host_proxy.reference.protocol import Outcome, Step

if TYPE_CHECKING:
    from gmpi.context import Context

_ROWS = {row.name: row for row in moves.WITH_TABLES}


class HostCounted:
    """What ``Context.host`` has of them."""

    _context: Context

    def Gatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0, comm: int = COMM_WORLD) -> None:
        """MPI 4.1 section 6.5; ``recvbuf``, of the root's only, is ``[buf, (counts, displs),
        datatype]`` or shorter. At the root ``sendbuf`` may be ``gmpi.IN_PLACE``."""
        self._counted("Gatherv", "Gatherv", sendbuf, recvbuf, comm, root).Wait()

    def Igatherv(
        self, sendbuf: Any, recvbuf: Any, root: int = 0, comm: int = COMM_WORLD
    ) -> HostRequest:
        """MPI 4.1 section 6.12.3; as ``Gatherv``."""
        return self._counted("Igatherv", "Gatherv", sendbuf, recvbuf, comm, root)

    def Scatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0, comm: int = COMM_WORLD) -> None:
        """MPI 4.1 section 6.6; ``sendbuf``, of the root's only, is ``[buf, (counts, displs),
        datatype]`` or shorter. At the root ``recvbuf`` may be ``gmpi.IN_PLACE``."""
        self._counted("Scatterv", "Scatterv", sendbuf, recvbuf, comm, root).Wait()

    def Iscatterv(
        self, sendbuf: Any, recvbuf: Any, root: int = 0, comm: int = COMM_WORLD
    ) -> HostRequest:
        """MPI 4.1 section 6.12.4; as ``Scatterv``."""
        return self._counted("Iscatterv", "Scatterv", sendbuf, recvbuf, comm, root)

    def Allgatherv(self, sendbuf: Any, recvbuf: Any, comm: int = COMM_WORLD) -> None:
        """MPI 4.1 section 6.7; ``recvbuf`` is ``[buf, (counts, displs), datatype]`` or shorter,
        ``sendbuf`` may be ``gmpi.IN_PLACE``."""
        self._counted("Allgatherv", "Allgatherv", sendbuf, recvbuf, comm).Wait()

    def Iallgatherv(self, sendbuf: Any, recvbuf: Any, comm: int = COMM_WORLD) -> HostRequest:
        """MPI 4.1 section 6.12.5; as ``Allgatherv``."""
        return self._counted("Iallgatherv", "Allgatherv", sendbuf, recvbuf, comm)

    def Alltoallv(self, sendbuf: Any, recvbuf: Any, comm: int = COMM_WORLD) -> None:
        """MPI 4.1 section 6.8; both are ``[buf, (counts, displs), datatype]`` or shorter,
        ``sendbuf`` may be ``gmpi.IN_PLACE``."""
        self._counted("Alltoallv", "Alltoallv", sendbuf, recvbuf, comm).Wait()

    def Ialltoallv(self, sendbuf: Any, recvbuf: Any, comm: int = COMM_WORLD) -> HostRequest:
        """MPI 4.1 section 6.12.6; as ``Alltoallv``."""
        return self._counted("Ialltoallv", "Alltoallv", sendbuf, recvbuf, comm)

    def Alltoallw(self, sendbuf: Any, recvbuf: Any, comm: int = COMM_WORLD) -> None:
        """MPI 4.1 section 6.8; both are ``[buf, (counts, displs), datatypes]``, displacements in
        bytes; ``sendbuf`` may be ``gmpi.IN_PLACE``."""
        self._counted("Alltoallw", "Alltoallw", sendbuf, recvbuf, comm).Wait()

    def Ialltoallw(self, sendbuf: Any, recvbuf: Any, comm: int = COMM_WORLD) -> HostRequest:
        """MPI 4.1 section 6.12.6; as ``Alltoallw``."""
        return self._counted("Ialltoallw", "Alltoallw", sendbuf, recvbuf, comm)

    def Reduce_scatter(
        self,
        sendbuf: Any,
        recvbuf: Any,
        recvcounts: Any,
        op: int = SUM,
        comm: int = COMM_WORLD,
    ) -> None:
        """MPI 4.1 section 6.10.2; ``sendbuf`` has the elements of all ranks, ``recvbuf`` room for
        this one's. With ``gmpi.IN_PLACE`` ``recvbuf`` has all, and the result at its beginning."""
        name = "Reduce_scatter"
        self._counted(name, name, sendbuf, recvbuf, comm, 0, op, recvcounts).Wait()

    def Ireduce_scatter(
        self,
        sendbuf: Any,
        recvbuf: Any,
        recvcounts: Any,
        op: int = SUM,
        comm: int = COMM_WORLD,
    ) -> HostRequest:
        """MPI 4.1 section 6.12.10; as ``Reduce_scatter``."""
        name = "Reduce_scatter"
        return self._counted(f"I{name.lower()}", name, sendbuf, recvbuf, comm, 0, op, recvcounts)

    # --- what they have in common -----------------------------------------------------------------

    def _counted(
        self,
        call: str,
        name: str,
        sendbuf: Any,
        recvbuf: Any,
        comm: int,
        root: int = 0,
        op: int = 0,
        recvcounts: Any = None,
    ) -> HostRequest:
        row, communicator = _ROWS[name], self._communicator(comm)
        if row.among_neighbours and communicator.neighbours is None:
            raise as_error(call, no_neighbours(comm))
        if row.rooted:
            root = checked_rank(Argument(call, "root"), root, communicator)
        datatype, element, reduction, number = MPI.BYTE, None, None, 0
        target: HostBlocks | None = None
        if row.reduces:
            send, result, blocks, element = _reduced(
                call, row, communicator, sendbuf, recvbuf, recvcounts
            )
            datatype = DATATYPES[datatype_of(element) & 0xFF][1]
            reductions = self._context._state.reductions
            number = checked_reduction(Argument(call, "op"), op, reductions, element)
            reduction = reductions.known[number]
        else:
            send, result, blocks, target = self._moved(
                call, row, communicator, sendbuf, recvbuf, root
            )

        def steps() -> Step:
            yield begin_counted(row, communicator, send, result, blocks, datatype, reduction, root)
            if target is not None:
                target.unpack()
            return Outcome(len(result))

        operation = Operation(
            call, "collective", comm, root if row.rooted else None, None, element,
            reduction=operation_name(number) if row.reduces else "",
            flows=flows(row, blocks, root, communicator),
        )  # fmt: skip
        keep = sendbuf, recvbuf, send, result
        return self._collective(row.op, operation, steps(), number, keep=keep)

    def _moved(
        self, call: str, row: Row, communicator: Communicator, sendbuf: Any, recvbuf: Any, root: int
    ) -> tuple[np.ndarray, np.ndarray, Blocks, HostBlocks | None]:
        """(what goes out, room for what comes back, the blocks, where these go)."""
        me = communicator.rank
        number = number_of(row, communicator, root)
        neighbours = communicator.neighbours
        missing = neighbours.missing if row.among_neighbours and neighbours is not None else 0
        specs = {OUT: sendbuf, BACK: recvbuf}
        given = [way for way in (OUT, BACK) if number(way) and is_in_place(specs[way])]
        for way in given:
            if way != row.in_place_way or (row.rooted and me != root):
                names, allowed = Names.of(row, way), "a buffer"
                text = f"{names.buffer} is IN_PLACE, allowed is {allowed} on this rank"
                raise Argument(call, names.buffer).refused(text, specs[way], allowed)
        found: dict[int, HostBlocks] = {}
        plans = self._context._datatypes
        for way in (OUT, BACK):
            if number(way) and way not in given:
                typed = row.typed
                found[way] = HostBlocks(
                    specs[way], call, Names.of(row, way), way == BACK, number(way), typed,
                    lambda: plans.plans, 0 if row.out == moves.ONE and way == OUT else missing,
                )  # fmt: skip
        out = found[OUT].blocks if OUT in found else []
        back = found[BACK].blocks if BACK in found else []
        nothing = np.empty(0, np.uint8)
        send = found[OUT].data if OUT in found else nothing
        target = found.get(BACK)
        result = nothing if target is None else target.data
        if OUT in given:
            assert target is not None
            out, send = back, target.packed().copy()
            if row.shifted:
                begin = sum(block.nbytes for block in back[:me])
                out, send = [back[me]], send[begin : begin + back[me].nbytes]
        blocks = Blocks(out, back, (True, True), bool(given))
        if (wrong := own_block(row, blocks, me)) is not None:
            raise as_error(call, wrong)
        return send, result, blocks, target

    def _communicator(self, comm: int) -> Communicator:
        raise NotImplementedError

    def _collective(
        self, op: int, asked: Operation, steps: Step, reduction: int = 0, keep: Any = None
    ) -> HostRequest:
        raise NotImplementedError


def _reduced(
    call: str, row: Row, communicator: Communicator, sendbuf: Any, recvbuf: Any, recvcounts: Any
) -> tuple[np.ndarray, np.ndarray, Blocks, Any]:
    """(what goes out, room for what comes back, the blocks, NumPy's dtype)."""
    if recvcounts is None:
        allowed = "elements of each rank"
        text = f"recvcounts is None, allowed is {allowed}: kernels do not tell each other theirs"
        raise Argument(call, "recvcounts").refused(text, None, allowed, MPI.ERR_COUNT)
    in_place = is_in_place(sendbuf)
    name = Argument(call, "recvbuf" if in_place else "sendbuf")
    source = reduced_array(recvbuf if in_place else sendbuf, name, writable=in_place).reshape(-1)
    names = Names.of(row, OUT)._replace(buffer=str(name))
    counts = HostBlocks(
        [source, recvcounts], call, names, False, communicator.size, False, dict
    ).blocks
    total = sum(block.nbytes for block in counts)
    mine = counts[communicator.rank]
    if in_place:
        target = source
    else:
        target = reduced_array(recvbuf, Argument(call, "recvbuf"), writable=True).reshape(-1)
        if target.dtype != source.dtype:
            text = f"sendbuf has dtype {source.dtype}, recvbuf {target.dtype}: make them equal"
            raise name.refused(text, source.dtype, str(target.dtype), MPI.ERR_TYPE)
    if target.nbytes < mine.nbytes:
        allowed = f"at least {mine.nbytes}"
        text = f"recvbuf has {target.nbytes} bytes, allowed is {allowed}, as recvcounts says"
        raise Argument(call, "recvbuf").refused(text, target.nbytes, allowed, MPI.ERR_COUNT)
    send = source.view(np.uint8)[:total]
    blocks = Blocks(counts, [Block(mine.count, 0, mine.nbytes, 0, None)], (True, True), in_place)
    return (
        send.copy() if in_place else send,
        target.view(np.uint8)[: mine.nbytes],
        blocks,
        source.dtype,
    )
