"""The dispatch table: every operation a record can name, once.

Both engines check and dispatch by it. A row says how the operation is called, which fields of the
record it uses (and must therefore be valid), and what it moves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gmpi.contract import constants, moves, windows, wire

# Fields of a record, as bits of ``Operation.fields`` and as numbers in the error log.
COMMUNICATOR = 1
DATATYPE = 2
COUNT = 4
BUFFER = 8
DEST = 16
SOURCE = 32
TAG = 64
ROOT = 128
REDUCTION = 256
IN_PLACE = 1 << 20  # the tag says whether a buffer is MPI_IN_PLACE
# Only in FIELDS: what the operation is, so that one look at the table says all.
KNOWN = 1 << 21
COLLECTIVE = 1 << 22
# Only in the error log
OPERATION = 512
REQUEST = 1024
LENGTH = 2048  # truncation: the message is longer than the receive
MPI_CALL = 4096  # MPI itself returned an error
MESSAGE = 8192  # what came is no message of ours
RESOURCE = 16384  # no free request slot
DEBUG = 32768  # a check of debug mode
PEER = 65536  # the other rank's part of the message has failed
BROKEN = OPERATION + 1  # of a collective: an earlier one has failed on the communicator
PARTITION = OPERATION + 2  # of a partitioned request
CALL = OPERATION + 3  # of a direct collective: another rank has called something else
LENGTHS = OPERATION + 4  # of a collective: what a rank gives and gets must be equally long
ROAD = OPERATION + 5  # of a call that there is on the proxied road only
WORDED = OPERATION + 6  # said in words, which the state has (notes)
COUNTS = OPERATION + 7  # of the blocks of a collective: ``Wrong`` of counts.py, likewise
BLOCKS = OPERATION + 8  # there are more of them than a table can have
TAKEN = OPERATION + 9  # of a receive: no such message
ROOM = OPERATION + 10  # of a call with arrays of requests: they have no room for so many
WINDOW = OPERATION + 32  # of a one-sided call: | what is wrong (gmpi/contract/windows.py)
WINDOW_FIELDS = 15

WITHOUT_PEER = REQUEST, PARTITION, RESOURCE, OPERATION, CALL, TAKEN, ROOM  # they say all there is

FIELD_NAMES = {
    COMMUNICATOR: "communicator",
    DATATYPE: "datatype",
    COUNT: "count",
    BUFFER: "buffer",
    DEST: "dest",
    SOURCE: "source",
    TAG: "tag",
    ROOT: "root",
    REDUCTION: "op",
    OPERATION: "operation",
    REQUEST: "request",
    LENGTH: "message length",
    MPI_CALL: "MPI call",
    MESSAGE: "message",
    RESOURCE: "request slots",
    DEBUG: "debug check",
    PEER: "other rank",
    PARTITION: "partition",
    BROKEN: "communicator",
    CALL: "call",
    LENGTHS: "block of sendbuf",
    ROAD: "communicator",
    WORDED: "argument",
    COUNTS: "counts",
    BLOCKS: "number of blocks",
    TAKEN: "message",
    ROOM: "count",
    **{WINDOW + number: name for number, name in enumerate(windows.FIELDS)},
}
FIELD_CLASSES = {
    COMMUNICATOR: constants.ERR_COMM,
    DATATYPE: constants.ERR_TYPE,
    COUNT: constants.ERR_COUNT,
    BUFFER: constants.ERR_BUFFER,
    DEST: constants.ERR_RANK,
    SOURCE: constants.ERR_RANK,
    TAG: constants.ERR_TAG,
    ROOT: constants.ERR_ROOT,
    REDUCTION: constants.ERR_OP,
    OPERATION: constants.ERR_OTHER,
    REQUEST: constants.ERR_REQUEST,
    DEBUG: constants.ERR_INTERN,
    PARTITION: constants.ERR_ARG,
    BROKEN: constants.ERR_COMM,
    CALL: constants.ERR_OTHER,
    LENGTHS: constants.ERR_COUNT,
    ROAD: constants.ERR_COMM,
    BLOCKS: constants.ERR_COUNT,
    ROOM: constants.ERR_COUNT,
}

_DATA = COMMUNICATOR | DATATYPE | COUNT | BUFFER


class Operation(NamedTuple):
    """One row of the table.

    Attributes:
        name: what the user called, as far as the opcode says it.
        fields: the fields of the record that it uses.
        collective: all ranks of the communicator call it, in the same order.
    """

    name: str
    fields: int
    collective: bool = False


OPERATIONS = {
    wire.OP_NULL: Operation("null record", 0),
    wire.OP_PING: Operation("ping", 0),
    wire.OP_ISEND: Operation("GMPI_Isend", _DATA | DEST | TAG),
    wire.OP_IRECV: Operation("GMPI_Irecv", _DATA | SOURCE | TAG),
    wire.OP_ALLREDUCE: Operation("GMPI_Iallreduce", _DATA | REDUCTION, True),
    wire.OP_BCAST: Operation("GMPI_Bcast", _DATA | ROOT, True),
    wire.OP_BARRIER: Operation("GMPI_Barrier", COMMUNICATOR, True),
    wire.OP_SYNCHRONIZE: Operation("GMPI_Synchronize", 0),
    wire.OP_CHUNK: Operation("chunk", 0),
    wire.OP_FAULT: Operation("fault", 0),
    wire.OP_WAIT: Operation("GMPI_Wait", 0),
    # Whatever they name: what cannot be a channel is answered with the proxied road.
    wire.OP_SEND_CHANNEL: Operation("channel of sends", 0),
    wire.OP_RECEIVE_CHANNEL: Operation("channel of receives", 0),
    wire.OP_WAITS: Operation("wait begins", 0),
    wire.OP_WAITED: Operation("wait is over", 0),
    wire.OP_OPENS: Operation("request opens", 0),
    wire.OP_ENDS: Operation("request ends", 0),
    wire.OP_START: Operation("GMPI_Start", 0),
    wire.OP_PREADY: Operation("GMPI_Pready", 0),
    wire.OP_PARRIVED: Operation("GMPI_Parrived", 0),
    wire.OP_GRID: Operation("call of grid scope", 0),
    # What is in their payload the host checks, by the words that it has for its own calls.
    wire.OP_PSEND_INIT: Operation("GMPI_Psend_init", DATATYPE | COUNT | BUFFER),
    wire.OP_PRECV_INIT: Operation("GMPI_Precv_init", DATATYPE | COUNT | BUFFER),
    wire.OP_REQUEST_FREE: Operation("GMPI_Request_free", COUNT),
    wire.OP_BSEND: Operation("GMPI_Ibsend", _DATA | DEST | TAG),
    wire.OP_CANCEL: Operation("GMPI_Cancel", COUNT),
    wire.OP_PROBE: Operation("GMPI_Probe", COMMUNICATOR | SOURCE | TAG),
    wire.OP_ABORT: Operation("GMPI_Abort", COMMUNICATOR | COUNT),
    wire.OP_WINDOW: Operation("one-sided call", 0),
}
for _move in moves.ALL_ROWS:
    # What a table says of blocks is looked at where it is read (host_proxy/reference/counts.py).
    _fields = COMMUNICATOR if _move.counted else _DATA
    _fields |= (ROOT if _move.rooted else 0) | (REDUCTION if _move.reduces else IN_PLACE)
    OPERATIONS[_move.op] = Operation(f"GMPI_{_move.nonblocking}", _fields, True)


_CALLS = {
    (wire.OP_ISEND, wire.BLOCKING): "GMPI_Send",
    (wire.OP_IRECV, wire.BLOCKING): "GMPI_Recv",
    (wire.OP_ISEND, wire.SENDRECV): "GMPI_Sendrecv",
    (wire.OP_IRECV, wire.SENDRECV): "GMPI_Sendrecv",
    (wire.OP_ALLREDUCE, wire.BLOCKING): "GMPI_Allreduce",
    (wire.OP_ISEND, wire.PARTITIONED): "partitioned send",
    (wire.OP_IRECV, wire.PARTITIONED): "partitioned receive",
    (wire.OP_ISEND, wire.READY): "GMPI_Irsend",
    (wire.OP_ISEND, wire.READY_BLOCKING): "GMPI_Rsend",
    (wire.OP_BSEND, wire.BLOCKING): "GMPI_Bsend",
    (wire.OP_PROBE, wire.NONBLOCKING): "GMPI_Iprobe",
    (wire.OP_PROBE, wire.MATCHED): "GMPI_Mprobe",
    (wire.OP_PROBE, wire.MATCHED_TOO): "GMPI_Improbe",
    (wire.OP_IRECV, wire.MATCHED): "GMPI_Imrecv",
    (wire.OP_IRECV, wire.MATCHED_TOO): "GMPI_Mrecv",
    **{
        (op, call): name
        for op in (wire.OP_ISEND, wire.OP_IRECV, wire.OP_BSEND)
        for call, name in (
            (wire.REPLACE, "GMPI_Sendrecv_replace"),
            (wire.COMBINED, "GMPI_Isendrecv"),
            (wire.COMBINED_REPLACE, "GMPI_Isendrecv_replace"),
        )
    },
    (wire.OP_ISEND, wire.PERSISTENT): "GMPI_Send_init",
    (wire.OP_ISEND, wire.SYNCHRONOUS_PERSISTENT): "GMPI_Ssend_init",
    (wire.OP_ISEND, wire.READY_PERSISTENT): "GMPI_Rsend_init",
    (wire.OP_BSEND, wire.PERSISTENT): "GMPI_Bsend_init",
    (wire.OP_IRECV, wire.PERSISTENT): "GMPI_Recv_init",
    (wire.OP_ALLREDUCE, wire.PERSISTENT): "GMPI_Allreduce_init",
    (wire.OP_BCAST, wire.PERSISTENT): "GMPI_Bcast_init",
    (wire.OP_BARRIER, wire.PERSISTENT): "GMPI_Barrier_init",
    (wire.OP_ISEND, wire.SYNCHRONOUS): "GMPI_Issend",
    (wire.OP_ISEND, wire.SYNCHRONOUS_BLOCKING): "GMPI_Ssend",
    (wire.OP_BCAST, wire.NONBLOCKING): "GMPI_Ibcast",
    (wire.OP_BARRIER, wire.NONBLOCKING): "GMPI_Ibarrier",
    (wire.OP_ALLREDUCE, wire.PIECE): "GMPI_Allreduce",
    **{
        (wire.OP_WAIT, number << wire.CALL_SHIFT): f"GMPI_{name}"
        for number, name in enumerate(wire.LISTED, 1)
    },
    **{
        (move.op, call): f"GMPI_{move.name}"
        for move in moves.ALL_ROWS
        for call in (wire.BLOCKING, wire.PIECE)
    },
    **{
        (wire.OP_WINDOW, number << wire.CALL_SHIFT): f"GMPI_{name}"
        for number, name in enumerate(windows.CALLS, 1)
    },
}


def name_of(op: int, call: int = 0) -> str:
    """What the user has called: ``op`` and ``call`` of a record."""
    if (name := _CALLS.get((op, call << wire.CALL_SHIFT))) is not None:
        return name
    return OPERATIONS[op].name if op in OPERATIONS else f"operation {op}"


_NO_REQUESTS = (
    wire.OP_CHUNK, wire.OP_FAULT, wire.OP_WAIT, wire.OP_WAITS, wire.OP_WAITED, wire.OP_START,
    wire.OP_PREADY, wire.OP_PARRIVED, wire.OP_GRID, wire.OP_WINDOW, wire.OP_OPENS, wire.OP_ENDS,
)  # fmt: skip

# The same for compiled code: indexed by opcode (any byte), 0 for what does not exist.
FIELDS = np.zeros(256, np.int64)
COLLECTIVES = np.zeros(256, np.int64)
for _op, _row in OPERATIONS.items():
    if _op in _NO_REQUESTS:
        continue
    FIELDS[_op] = _row.fields | KNOWN | (COLLECTIVE if _row.collective else 0)
    COLLECTIVES[_op] = _row.collective
