"""The words of errors: operation, calling block, field, value, what is allowed, what to do."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI

import gmpi
from gmpi import errors, faults
from gmpi.contract import wire
from gmpi.contract.collectives import (
    BARRIER,
    KIND_SHIFT,
    REDUCE_ROOT_SHIFT,
    SIGNATURE_SHIFT,
    call_word,
    reduction_word,
    root_of,
)
from gmpi.contract.collectives import REDUCE as REDUCE_KIND
from gmpi.contract.moves import ROWS, Row
from gmpi.contract.windows import FIELDS, PUT, WRONG_NOTIFICATION
from gmpi.fault_words import call_text
from host_proxy.compiled.headers import BAD_CHUNK
from host_proxy.platform import operations as ops
from host_proxy.platform import state as st

pytestmark = pytest.mark.quick

UB = 4095


def row(op: int, field: int, value: int = 0, high: int = 0, **more: int) -> np.ndarray:
    """A row of the proxy's error log."""
    entry = np.zeros(st.E_COUNT, np.int64)
    entry[st.E_OP] = op
    entry[st.E_FIELD] = field
    entry[st.E_VALUE] = value
    entry[st.E_HIGH] = high
    entry[st.E_LOW] = more.get("low", 0)
    entry[st.E_CLASS] = more.get("error", 0)
    entry[st.E_CODE] = more.get("code", 0)
    entry[st.E_BLOCK] = more.get("block", 5)
    entry[st.E_COMM] = more.get("comm", 1)
    entry[st.E_PEER] = more.get("peer", 3)
    entry[st.E_TAG] = more.get("tag", 7)
    entry[st.E_DATATYPE] = more.get("datatype", gmpi.FLOAT)
    entry[st.E_ELEMENTS] = more.get("elements", 10)
    return entry


CALL = " [peer 3, tag 7, communicator 1, count 10 of FLOAT]"
SEND, RECV, REDUCE = wire.OP_ISEND, wire.OP_IRECV, wire.OP_ALLREDUCE
FINDING = "the buffer of GMPI_Irecv in block 5 (record 7) at 0x10..0x20 overlaps ..."
SUM_OF_10 = call_word(reduction_word(gmpi.SUM, gmpi.DOUBLE), 10, 0) >> SIGNATURE_SHIFT
CASES = {
    ops.DEBUG: (row(RECV, ops.DEBUG, 1), f"debug mode: {FINDING}", gmpi.DebugError),
    ops.DEST: (
        row(SEND, ops.DEST, 9, 1),
        "GMPI_Isend in block 5: dest is 9, allowed is 0..1, or PROC_NULL; "
        "communicator 1 has 2 ranks",
        gmpi.ArgumentError,
    ),
    ops.SOURCE: (
        row(RECV, ops.SOURCE, -7, 1),
        "GMPI_Irecv in block 5: source is -7, allowed is 0..1, ANY_SOURCE or PROC_NULL; "
        "communicator 1 has 2 ranks",
        gmpi.ArgumentError,
    ),
    ops.ROOT: (
        row(wire.OP_BCAST, ops.ROOT, 2, 1),
        "GMPI_Bcast in block 5: root is 2, allowed is 0..1; communicator 1 has 2 ranks",
        gmpi.ArgumentError,
    ),
    ops.TAG: (
        row(SEND, ops.TAG, -3, UB),
        "GMPI_Isend in block 5: tag is -3, allowed is 0..4095; MPI_TAG_UB of this library is 4095",
        gmpi.ArgumentError,
    ),
    ops.COUNT: (
        row(SEND, ops.COUNT, -1, 100),
        "GMPI_Isend in block 5: count is -1, allowed is 0..100; split the message",
        gmpi.ArgumentError,
    ),
    ops.DATATYPE: (
        row(SEND, ops.DATATYPE, 8, datatype=8),
        "GMPI_Isend in block 5: datatype is 0x8, allowed is a predefined datatype such as "
        "gmpi.FLOAT, or a handle of Context.commit(); pass the constant of the gmpi module, not "
        "mpi4py's object or a size",
        gmpi.ArgumentError,
    ),
    ops.COMMUNICATOR: (
        row(SEND, ops.COMMUNICATOR, 17),
        "GMPI_Isend in block 5: communicator is 17, allowed is 0..2; "
        "register it with Context.comm() first",
        gmpi.ArgumentError,
    ),
    ops.REDUCTION: (
        row(REDUCE, ops.REDUCTION, 12, 0),
        "GMPI_Iallreduce in block 5: op is 12, allowed is one of gmpi.SUM, gmpi.PROD, gmpi.MIN, "
        "gmpi.MAX, gmpi.LAND, gmpi.LOR, gmpi.LXOR, gmpi.BAND, gmpi.BOR, gmpi.BXOR, gmpi.MINLOC, "
        "gmpi.MAXLOC, or a number of Context.op()",
        gmpi.ArgumentError,
    ),
    ops.BUFFER: (
        row(SEND, ops.BUFFER, wire.FLAG_NULL_BUFFER, 40),
        "GMPI_Isend in block 5: buffer is null, allowed is a buffer of at least 40 bytes, "
        "or count 0",
        gmpi.ArgumentError,
    ),
    ops.REQUEST: (
        row(wire.OP_WAIT, ops.REQUEST, 0xABC, block=0),
        "GMPI_Wait in block 0: request is 0xabc, allowed is a request that is open in this "
        "context; it was completed before, belongs to another context, or is no request",
        gmpi.ArgumentError,
    ),
    ops.LENGTH: (
        row(RECV, ops.LENGTH, 80, 40),
        "GMPI_Irecv in block 5: message length is 80, allowed is at most 40 bytes; "
        "receive with a larger count",
        gmpi.TruncationError,
    ),
    ops.RESOURCE: (
        row(SEND, ops.RESOURCE, 64),
        "GMPI_Isend in block 5: request slots is all in use, allowed is 64 requests of this size "
        "outstanding at once; wait for requests earlier, or open the context with more "
        "request_slots (and large_slots for messages above eager_bytes)",
        gmpi.ResourceError,
    ),
    ops.OPERATION: (
        row(99, ops.OPERATION, 99, 8),
        "operation 99 in block 5: operation is 99, allowed is 1..8; the record is corrupt",
        gmpi.ArgumentError,
    ),
    ops.MESSAGE: (
        row(RECV, ops.MESSAGE, BAD_CHUNK),
        "GMPI_Irecv in block 5: message is one whose header has an impossible chunk size, allowed "
        "is messages of GMPI only; something else sends on the context's communicator, or memory "
        "is corrupt",
        gmpi.CallError,
    ),
    ops.MPI_CALL: (
        row(SEND, ops.MPI_CALL, MPI.ERR_RANK, code=MPI.ERR_RANK),
        f"GMPI_Isend in block 5: MPI call is {MPI.ERR_RANK}, allowed is MPI_SUCCESS; "
        + MPI.Get_error_string(MPI.ERR_RANK),
        gmpi.MPICallError,
    ),
    ops.PEER: (
        row(RECV, ops.PEER, 3),
        "GMPI_Irecv in block 5: other rank is 3, allowed is a rank whose part of the message "
        "succeeds; the errors of rank 3 say which of its calls has failed",
        gmpi.MPICallError,
    ),
    ops.BROKEN: (
        row(REDUCE, ops.BROKEN, 0),
        "GMPI_Iallreduce in block 5: communicator is 0, allowed is a communicator on which no "
        "collective has failed; an earlier one has failed, and the other ranks may still be "
        "in it; register another communicator (Context.comm) to go on",
        gmpi.MPICallError,
    ),
    ops.PARTITION: (
        row(wire.OP_PREADY, ops.PARTITION, 4, 4),
        "GMPI_Pready in block 5: partition is 4, allowed is 0..3, each once a round; it is none of "
        "the request's partitions, or was ready before in this round",
        gmpi.ArgumentError,
    ),
    ops.CALL: (
        row(wire.OP_BARRIER, ops.CALL, SUM_OF_10, low=BARRIER << KIND_SHIFT),
        "GMPI_Barrier in block 5: call is GMPI_Barrier here and GMPI_Allreduce SUM of 10 DOUBLE "
        "on rank 3, allowed is the same on all ranks of the communicator; ranks must call "
        "collectives in the same order, with equal counts, datatypes, roots and operations; "
        "register another communicator (Context.comm) to go on",
        gmpi.ArgumentError,
    ),
    ops.ROAD: (
        row(SEND, ops.ROAD, 1),
        "GMPI_Isend in block 5: communicator is 1, allowed is one that was registered without "
        "wildcards=False; the direct road has no synchronous sends; register another communicator "
        "for them (Context.comm)",
        gmpi.ArgumentError,
    ),
    ops.LENGTHS: (
        row(wire.OP_GATHER, ops.LENGTHS, 8, 16),
        "GMPI_Igather in block 5: block of sendbuf is 8 bytes, allowed is 16 bytes, as of a block "
        "of recvbuf; sendcount elements of sendtype must have as many bytes as recvcount of "
        "recvtype",
        gmpi.ArgumentError,
    ),
    ops.TAKEN: (
        row(wire.OP_IRECV, ops.TAKEN, 77),
        "GMPI_Irecv in block 5: message is 0x4d, allowed is a message of GMPI_Mprobe or "
        "GMPI_Improbe of this context that has not been received; each is received once",
        gmpi.ArgumentError,
    ),
    ops.ROOM: (
        row(wire.OP_WAIT, ops.ROOM, 5, 4),
        "GMPI_Wait in block 5: count is 5, allowed is 0..4; its arrays, of requests, statuses, "
        "indices or partitions, have room for no more",
        gmpi.ArgumentError,
    ),
    ops.BLOCKS: (
        row(wire.OP_ALLTOALLV, ops.BLOCKS, 400, 170),
        "GMPI_Ialltoallv in block 5: number of blocks is 400, out and back, allowed is at most "
        "170; open the context with a larger eager_bytes: 24 bytes for each block, and 32",
        gmpi.ArgumentError,
    ),
}
WITHOUT_CALL = (*ops.WITHOUT_PEER, ops.DEBUG)


def test_every_field_has_a_case() -> None:
    windows = {ops.WINDOW + number for number in range(len(FIELDS))}
    assert set(CASES) == set(ops.FIELD_NAMES) - {ops.WORDED, ops.COUNTS} - windows


@pytest.mark.parametrize("number, name", [*enumerate(FIELDS)])
def test_every_field_of_a_one_sided_call_has_words(number: int, name: str) -> None:
    """What each says, ``ranks/onesided_refused.py`` tells: here also what no kernel writes."""
    for high in (0, 1, 64, 1 << 40, -1):
        entry = row(wire.OP_WINDOW, ops.WINDOW + number, 12, high, tag=0x60000040)
        entry[st.E_CALL] = PUT
        fault = faults.describe(entry, communicators=3)
        assert fault.text.startswith(f"GMPI_Put in block 5: {name} is ")
        where = "target_disp 12, window 0x60000040, count 10"
        if number == WRONG_NOTIFICATION:  # its number is in the place of the displacement
            where = "window 0x60000040"
        assert fault.text.endswith(f" [target_rank 3, {where}]")
        assert ", allowed is " in fault.text and fault.kind is gmpi.ArgumentError


def test_what_the_host_has_worded_stays_as_it_is() -> None:
    fault = faults.describe(row(wire.OP_PSEND_INIT, ops.DEBUG, 1), 3, notes=["", FINDING])
    worded = faults.describe(row(wire.OP_PSEND_INIT, ops.WORDED, 1), 3, notes=["", fault])
    assert worded is fault


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_calls_that_differ_are_worded(row: Row) -> None:
    """By what their packets say: name, operation, amount and root."""
    kind, root, amount = row.op - wire.FIRST_MOVING + REDUCE_KIND, 5, 77
    what, words = root, f"of {amount} bytes a block"
    if row.reduces:
        what, words = reduction_word(gmpi.MAX, gmpi.INT32_T), f"MAX of {amount} INT32_T"
        amount |= root << REDUCE_ROOT_SHIFT if row.rooted else 0
    what = what & (1 << KIND_SHIFT) - 1 | kind << KIND_SHIFT
    words += f" with root {root}" if row.rooted else ""
    word = call_word(what, amount, 3)
    assert word > 0
    signature = word >> SIGNATURE_SHIFT
    assert call_text(signature) == f"GMPI_{row.name} {words}"
    assert call_text(signature, blocks=False) == f"GMPI_{row.nonblocking} {words}"
    assert root_of(signature) == root or not row.rooted


@pytest.mark.parametrize("field", CASES, ids=ops.FIELD_NAMES.get)
def test_every_field_has_its_words(field: int) -> None:
    entry, text, kind = CASES[field]
    if field not in WITHOUT_CALL:
        text += CALL if field != ops.DATATYPE else CALL.replace("FLOAT", "0x8")
    fault = faults.describe(entry, communicators=3, notes=["", FINDING])
    assert fault.text == text
    assert fault.kind is kind
    assert fault.block == int(entry[st.E_BLOCK])
    assert issubclass(kind, gmpi.CallError) and issubclass(kind, gmpi.GMPIError)


@pytest.mark.parametrize(
    "flaw, value, allowed",
    [
        (wire.FLAG_NULL_BUFFER, "null", "a buffer of at least 40 bytes, or count 0"),
        (
            wire.FLAG_SHORT_BUFFER,
            "smaller than the message",
            "an array of at least 40 bytes, or a lower count",
        ),
        (
            wire.FLAG_STRIDED_BUFFER,
            "a strided view and the datatype is derived",
            "a strided view with a predefined datatype, or the whole array with a derived one",
        ),
        (
            wire.FLAG_OVERLAP,
            "written more than once by this datatype, count or view",
            "datatypes and views of which no two elements overlap",
        ),
        (
            wire.FLAG_PRIVATE_BUFFER,
            "private to a thread, or to a block and too large for that",
            "device memory, or shared memory of at most eager_bytes",
        ),
    ],
)
def test_every_flaw_of_a_buffer_has_its_words(flaw: int, value: str, allowed: str) -> None:
    fault = faults.describe(row(SEND, ops.BUFFER, flaw, 40), communicators=1)
    assert (fault.value, fault.allowed) == (value, allowed)
    assert f"buffer is {value}, allowed is {allowed}" in fault.text


def test_a_receive_may_have_any_tag_and_a_send_not() -> None:
    assert "or ANY_TAG" in faults.describe(row(RECV, ops.TAG, -5, UB), 1).allowed
    assert "ANY_TAG" not in faults.describe(row(SEND, ops.TAG, -5, UB), 1).allowed


def test_wildcards_are_named() -> None:
    entry = row(RECV, ops.COUNT, -1, 9, peer=gmpi.ANY_SOURCE, tag=gmpi.ANY_TAG)
    assert "[peer ANY_SOURCE, tag ANY_TAG, " in faults.describe(entry, 1).text
    entry = row(SEND, ops.COUNT, -1, 9, peer=gmpi.PROC_NULL)
    assert "[peer PROC_NULL, tag 7, " in faults.describe(entry, 1).text


def test_an_exception_carries_the_parts_and_how_many_more_there_are() -> None:
    entry, text, kind = CASES[ops.DEST]
    entry = entry.copy()
    entry[st.E_CLASS] = gmpi.ERR_RANK
    caught = kind(faults.describe(entry, 3), more=2)
    assert str(caught) == text + CALL + " (and 2 more: see Context.errors)"
    assert (caught.operation, caught.field, caught.value) == ("GMPI_Isend", "dest", 9)
    assert (caught.block, caught.error_class, caught.more) == (5, gmpi.ERR_RANK, 2)
    assert caught.allowed == "0..1, or PROC_NULL"


def test_error_classes_have_strings() -> None:
    for name in ("ABORTED", "NO_RESOURCE", "PROXY"):
        own = getattr(gmpi, f"GMPI_ERR_{name}")
        assert errors.error_string(own).startswith(f"GMPI_ERR_{name}: ")
        assert own > MPI.ERR_LASTCODE or own > 100  # above every class of MPI
        assert own < 256  # one byte of a completion
    assert errors.error_string(gmpi.ERR_TRUNCATE) == MPI.Get_error_string(MPI.ERR_TRUNCATE)


def test_the_tree_of_exceptions() -> None:
    assert issubclass(gmpi.ConfigError, ValueError)
    assert issubclass(gmpi.ArgumentError, ValueError)
    for name in ("Config", "Context", "Grid", "Call", "Pending", "Aborted", "Proxy"):
        assert issubclass(getattr(gmpi, f"{name}Error"), gmpi.GMPIError)
