"""Which arguments of which call are buffers, how long, and which way their bytes go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from gmpi.contract.constants import COMM_WORLD, IN_PLACE, PROC_NULL

OUT, BACK = 1, 2
ONE, EACH = "one", "each"  # ranks: one buffer's length holds for all, or for each of them


class Buffer(NamedTuple):
    """A buffer in the arguments of a call.

    Attributes:
        name, length, datatype: of its arguments.
        way: OUT, BACK.
        ranks: EACH: so many elements for each rank of the communicator.
        only: "root", "others" or "" for all: on which ranks it is used.
        peer: the argument that makes it empty when it is PROC_NULL; "" for none.
    """

    name: str
    length: str
    datatype: str
    way: int
    ranks: str = ONE
    only: str = ""
    peer: str = ""


_SEND = (Buffer("buf", "count", "datatype", OUT, peer="dest"),)
_RECV = (Buffer("buf", "count", "datatype", BACK, peer="source"),)
_REDUCTION = (
    Buffer("sendbuf", "count", "datatype", OUT),
    Buffer("recvbuf", "count", "datatype", BACK),
)


def _both(send: str, recv: str, send_only: str = "", recv_only: str = "") -> tuple[Buffer, ...]:
    return (
        Buffer("sendbuf", "sendcount", "sendtype", OUT, send, send_only),
        Buffer("recvbuf", "recvcount", "recvtype", BACK, recv, recv_only),
    )


_BLOCKING = {
    "Send": _SEND,
    "Ssend": _SEND,
    "Recv": _RECV,
    "Allreduce": _REDUCTION,
    "Scan": _REDUCTION,
    "Exscan": _REDUCTION,
    "Reduce": (_REDUCTION[0], _REDUCTION[1]._replace(only="root")),
    "Reduce_scatter_block": (
        Buffer("sendbuf", "recvcount", "datatype", OUT, EACH),
        Buffer("recvbuf", "recvcount", "datatype", BACK),
    ),
    "Bcast": (
        Buffer("buf", "count", "datatype", OUT, only="root"),
        Buffer("buf", "count", "datatype", BACK, only="others"),
    ),
    "Allgather": _both(ONE, EACH),
    "Alltoall": _both(EACH, EACH),
    "Gather": _both(ONE, EACH, recv_only="root"),
    "Scatter": _both(EACH, ONE, send_only="root"),
}

#: By the name without GMPI_ and scope.
BUFFERS: Mapping[str, tuple[Buffer, ...]] = {
    **_BLOCKING,
    **{f"I{name.lower()}": buffers for name, buffers in _BLOCKING.items()},
    "Sendrecv": (
        Buffer("sendbuf", "sendcount", "sendtype", OUT, peer="dest"),
        Buffer("recvbuf", "recvcount", "recvtype", BACK, peer="source"),
    ),
    "Mrecv": (Buffer("buf", "count", "datatype", BACK),),
    "Imrecv": (Buffer("buf", "count", "datatype", BACK),),
}
#: Calls that open a request.
OPENING = frozenset(f"I{name.lower()}" for name in (*_BLOCKING, "Barrier", "Mrecv"))
_UNDEFINED_ON_0 = frozenset({"Exscan", "Iexscan"})  # their result, which nothing stores there
SENDS = frozenset({"Send", "Ssend", "Isend", "Issend"})


def used(
    call: str, arguments: Mapping[str, Any], members: Callable[[int], tuple[int, int] | None]
) -> list[tuple[Any, int, int, int]]:
    """(buffer, count, datatype, way) of each buffer that a call uses on this rank.

    Args:
        members: of a communicator: this rank, and how many there are; None: it does not exist.
    """
    buffers = BUFFERS.get(call, ())
    found = []
    who = members(int(arguments.get("comm", COMM_WORLD))) if buffers else None
    if who is None:
        return []
    rank, size = who
    in_place = _is_in_place(arguments.get("sendbuf"))
    for buffer in buffers:
        value = arguments[buffer.name]
        if buffer.only and (buffer.only == "root") != (arguments.get("root") == rank):
            continue
        if buffer.peer and arguments[buffer.peer] == PROC_NULL or _is_in_place(value):
            continue
        if rank == 0 and call in _UNDEFINED_ON_0 and buffer.way == BACK:
            continue
        way = buffer.way | (OUT if in_place and buffer.name == "recvbuf" else 0)
        count = int(arguments[buffer.length]) * (size if buffer.ranks == EACH else 1)
        found.append((value, count, int(arguments[buffer.datatype]), way))
    return found


def _is_in_place(value: Any) -> bool:
    return not hasattr(value, "strides") and value is not None and int(value) == IN_PLACE
