"""Calls with wrong arguments: a status for the kernel, an exception for the host, no harm done.

In every case a message is under way around the wrong call, and must arrive.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
from common import RANK, SIZE, WORLD, end, on_device, pattern, run
from mpi4py import MPI
from numba import cuda
from script import Call, Script

import gmpi
from gmpi.contract import wire

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE
UB = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)
MOST = wire.POSITION_MASK // 32
BAD_RANK = -77  # no wildcard of any MPI library

Build = Callable[[Script], Call]
Case = tuple[str, Build, int, str, str]


def _text(call: str, field: str, value: object, allowed: str, advice: str, what: str) -> str:
    return f"{call} in block 0: {field} is {value}, allowed is {allowed}; {advice} [{what}]"


def _isend(**wrong: int) -> Build:
    """Isend of 4 floats to rank 0 with tag 5, but for what is wrong; and its Wait."""

    def build(s: Script) -> Call:
        n = wrong.get("count", 4)
        datatype = wrong.get("datatype", gmpi.FLOAT)
        b = s.data(pattern(16, 1))
        request = s.isend(
            b, n, datatype, wrong.get("dest", 0), wrong.get("tag", 5), wrong.get("comm", 0)
        )
        return s.wait(request)

    return build


def _irecv(**wrong: int) -> Build:
    def build(s: Script) -> Call:
        b = s.room(16)
        return s.recv(b, 4, gmpi.FLOAT, wrong.get("source", 0), wrong.get("tag", 5))

    return build


FLOATS = "tag 5, communicator 0, count 4 of FLOAT"
RANKS = f"communicator 0 has {SIZE} ranks"
HANDLES = "register it with Context.comm() first"
OWN = "or a number of Context.op()"
TYPES = "pass the constant of the gmpi module, not mpi4py's object or a size"
A_TYPE = "a predefined datatype such as gmpi.FLOAT, or a handle of Context.commit()"
OPS = (
    "one of gmpi.SUM, gmpi.PROD, gmpi.MIN, gmpi.MAX, gmpi.LAND, gmpi.LOR, gmpi.LXOR, gmpi.BAND, "
    "gmpi.BOR, gmpi.BXOR, gmpi.MINLOC, gmpi.MAXLOC, or a number of Context.op()"
)
PAIRS = (
    "gmpi.FLOAT_INT, gmpi.TWOINT, gmpi.DOUBLE_INT, gmpi.LONG_INT, gmpi.SHORT_INT, "
    "gmpi.LONG_DOUBLE_INT"
)


def argument_cases() -> list[Case]:
    """(name, calls, error class, field, whole message)"""
    cases: list[Case] = []

    def add(build: Build, error: int, field: str, text: str) -> None:
        cases.append((f"{field} {len(cases)}", build, error, field, text))

    for dest in (SIZE, BAD_RANK, gmpi.ANY_SOURCE, 1 << 30):
        shown = "ANY_SOURCE" if dest == gmpi.ANY_SOURCE else dest
        allowed = f"0..{SIZE - 1}, or PROC_NULL"
        text = _text("GMPI_Isend", "dest", dest, allowed, RANKS, f"peer {shown}, {FLOATS}")
        add(_isend(dest=dest), gmpi.ERR_RANK, "dest", text)
    for source in (SIZE, BAD_RANK):
        allowed = f"0..{SIZE - 1}, ANY_SOURCE or PROC_NULL"
        text = _text("GMPI_Recv", "source", source, allowed, RANKS, f"peer {source}, {FLOATS}")
        add(_irecv(source=source), gmpi.ERR_RANK, "source", text)

    advice = f"MPI_TAG_UB of this library is {UB}"
    too_high = [UB + 1] if UB < 2**31 - 1 else []  # a tag is a C int
    for tag in (-2, gmpi.ANY_TAG, *too_high):
        shown = "ANY_TAG" if tag == gmpi.ANY_TAG else tag
        what = f"peer 0, tag {shown}, communicator 0, count 4 of FLOAT"
        text = _text("GMPI_Isend", "tag", tag, f"0..{UB}", advice, what)
        add(_isend(tag=tag), gmpi.ERR_TAG, "tag", text)
    for tag in (-2, *too_high):
        what = f"peer 0, tag {tag}, communicator 0, count 4 of FLOAT"
        text = _text("GMPI_Recv", "tag", tag, f"0..{UB}, or ANY_TAG", advice, what)
        add(_irecv(tag=tag), gmpi.ERR_TAG, "tag", text)

    for count in (-1, -(1 << 40), MOST + 1, 1 << 61):
        what = f"peer 0, tag 5, communicator 0, count {count} of FLOAT"
        text = _text("GMPI_Isend", "count", count, f"0..{MOST}", "split the message", what)
        add(_isend(count=count), gmpi.ERR_COUNT, "count", text)
    for datatype in (0, 4, gmpi.FLOAT + 256, gmpi.FLOAT | 0xFF, 0xFFFFFFFF):
        what = f"peer 0, tag 5, communicator 0, count 4 of {datatype:#x}"
        text = _text("GMPI_Isend", "datatype", f"{datatype:#x}", A_TYPE, TYPES, what)
        add(_isend(datatype=datatype), gmpi.ERR_TYPE, "datatype", text)
    for comm in (1, 200, 255):
        what = f"peer 0, tag 5, communicator {comm}, count 4 of FLOAT"
        text = _text("GMPI_Isend", "communicator", comm, "0..0", HANDLES, what)
        add(_isend(comm=comm), gmpi.ERR_COMM, "communicator", text)
    for comm in (-1, 256, 1 << 40):
        what = "peer 0, tag 5, communicator ?, count 4 of FLOAT"
        text = _text("GMPI_Isend", "communicator", "negative or above 255", "0..0", HANDLES, what)
        add(_isend(comm=comm), gmpi.ERR_COMM, "communicator", text)

    for op in (12, -1, 1 << 20):
        what = (
            f"peer 0, tag {'ANY_TAG' if op == gmpi.ANY_TAG else op}, communicator 0, count 2 of INT"
        )
        text = f"GMPI_Allreduce in block 0: op is {op}, allowed is {OPS} [{what}]"
        add(
            lambda s, op=op: s.allreduce(s.data(pattern(8, 1)), s.room(8), 2, gmpi.INT, op),
            gmpi.ERR_OP, "op", text,
        )  # fmt: skip
    for op, n, name, value, allowed in (
        (gmpi.MINLOC, 2, "INT", "gmpi.MINLOC for INT", f"a datatype of pairs: {PAIRS}"),
        (gmpi.MAX, 1, "TWOINT", "gmpi.MAX for TWOINT", f"gmpi.MINLOC or MAXLOC for pairs, {OWN}"),
        (gmpi.BAND, 2, "FLOAT", "gmpi.BAND for FLOAT", f"gmpi.SUM, PROD, MIN or MAX for it, {OWN}"),
        (gmpi.SUM, 8, "C_BOOL", "gmpi.SUM for C_BOOL", f"gmpi.LAND, LOR or LXOR for it, {OWN}"),
    ):  # fmt: skip
        what = f"peer 0, tag {op}, communicator 0, count {n} of {name}"
        text = f"GMPI_Allreduce in block 0: op is {value}, allowed is {allowed} [{what}]"
        datatype = getattr(gmpi, name)
        add(
            lambda s, op=op, n=n, datatype=datatype: s.allreduce(
                s.data(pattern(8, 1)), s.room(8), n, datatype, op
            ),
            gmpi.ERR_OP, "op", text,
        )  # fmt: skip
    what = "peer 0, tag 5, communicator 0, count 4 of DOUBLE_INT"
    text = _text(
        "GMPI_Isend", "datatype", "DOUBLE_INT", "a datatype without gaps between its elements",
        "pass the handle of Context.commit(MPI.DOUBLE_INT)", what,
    )  # fmt: skip
    add(_isend(datatype=gmpi.DOUBLE_INT), gmpi.ERR_TYPE, "datatype", text)
    for root in (SIZE, -1, gmpi.PROC_NULL):
        shown = {gmpi.PROC_NULL: "PROC_NULL", gmpi.ANY_SOURCE: "ANY_SOURCE"}.get(root, root)
        what = f"peer {shown}, tag 0, communicator 0, count 2 of INT"
        text = _text("GMPI_Bcast", "root", root, f"0..{SIZE - 1}", RANKS, what)
        add(lambda s, root=root: s.bcast(s.room(8), 2, gmpi.INT, root), gmpi.ERR_ROOT, "root", text)
    for comm in (9, 256):
        shown = "?" if comm == 256 else 9
        value = "negative or above 255" if comm == 256 else 9
        what = f"peer 0, tag 0, communicator {shown}, count 0 of 0x0"
        text = _text("GMPI_Barrier", "communicator", value, "0..0", HANDLES, what)
        add(lambda s, comm=comm: s.barrier(comm), gmpi.ERR_COMM, "communicator", text)
    return cases + buffer_cases()


def buffer_cases() -> list[Case]:
    bytes_20 = "peer 0, tag 5, communicator 0, count 20 of BYTE"
    null = ("null", "a buffer of at least 20 bytes, or count 0")
    short = ("smaller than the message", "an array of at least 20 bytes, or a lower count")
    cases: list[Case] = []

    def add(build: Build, call: str, words: tuple[str, str]) -> None:
        text = f"{call} in block 0: buffer is {words[0]}, allowed is {words[1]} [{bytes_20}]"
        cases.append((f"{words[0]} {call}", build, gmpi.ERR_BUFFER, "buffer", text))

    add(lambda s: s.wait(s.isend(0, 20, gmpi.BYTE, 0, 5)), "GMPI_Isend", null)
    add(lambda s: s.wait(s.irecv(0, 20, gmpi.BYTE, 0, 5)), "GMPI_Irecv", null)
    add(lambda s: s.wait(s.isend(s.room(19), 20, gmpi.BYTE, 0, 5)), "GMPI_Isend", short)
    add(lambda s: s.wait(s.irecv(s.room(19), 20, gmpi.BYTE, 0, 5)), "GMPI_Irecv", short)
    add(lambda s: s.wait(s.isend_strided(s.room(38), 20, gmpi.BYTE, 0, 5)), "GMPI_Isend", short)
    add(lambda s: s.wait(s.irecv_strided(s.room(38), 20, gmpi.BYTE, 0, 5)), "GMPI_Irecv", short)
    return cases


def wrong_arguments(g: gmpi.Context) -> None:
    for name, build, error, field, text in argument_cases():
        s = Script()
        room = s.room(300)
        r = s.irecv(room, 300, gmpi.BYTE, PREVIOUS, 90)
        wrong = build(s)
        q = s.isend(s.data(pattern(300, RANK)), 300, gmpi.BYTE, NEXT, 90)
        s.wait(q)
        good = s.wait(r)
        s.launch(g)
        try:
            s.collect(g)
        except gmpi.ArgumentError as exc:
            assert str(exc) == text, f"{name}:\n{exc}\n{text}"
            assert (exc.field, exc.error_class, exc.block, exc.more) == (field, error, 0, 0), name
            assert isinstance(exc, ValueError)
        else:
            raise AssertionError(f"{name}: synchronize() did not raise")
        s.collect(g)
        assert wrong.error == error, (name, wrong.status)
        assert good.status == (gmpi.SUCCESS, PREVIOUS, 90, 300, 300), (name, good.status)
        s.expect(room, pattern(300, PREVIOUS), name)
        assert g.pending == []


def nothing_at_all(g: gmpi.Context) -> None:
    """Zero counts need no buffer."""
    s = Script()
    r = s.irecv(0, 0, gmpi.DOUBLE, PREVIOUS, 1)
    q = s.isend(0, 0, gmpi.DOUBLE, NEXT, 1)
    s.wait(q)
    done = s.wait(r)
    s.run(g)
    assert done.status == (gmpi.SUCCESS, PREVIOUS, 1, 0, 0)


def wrong_requests(g: gmpi.Context) -> None:
    """Wait, Test, Waitall and Waitany for what is no open request: ERR_REQUEST, at once."""
    first = Script()
    r = first.irecv(first.room(8), 8, gmpi.BYTE, PREVIOUS, 1)
    q = first.isend(first.data(pattern(8, 1)), 8, gmpi.BYTE, NEXT, 1)
    first.wait(q)
    first.wait(r)
    again = first.wait(r)
    tested = first.test(q)
    first.launch(g)
    _refused(g, first, 2)
    assert again.error == gmpi.ERR_REQUEST and tested.error == gmpi.ERR_REQUEST
    assert tested.flag == 1  # nothing to wait for

    old = first.handle(r)
    context = old >> wire.HANDLE_CONTEXT_SHIFT & wire.HANDLE_CONTEXT_MASK
    other_context = old ^ ((context ^ (context + 1)) << wire.HANDLE_CONTEXT_SHIFT)
    strangers = {
        "stale": old,
        "of another context": other_context,
        "of no slot": old | wire.HANDLE_SLOT_MASK << wire.HANDLE_SLOT_SHIFT,
        "of another generation": old + 2,
        "of the other class": old | 1 << wire.HANDLE_LARGE_SHIFT,
        "small number": 12345,
        "negative": -1,
        "most negative": -(1 << 63),
        "all ones but the sign": (1 << 59) - 1,
    }
    for name, handle in strangers.items():
        s = Script()
        room = s.room(8)
        good = s.irecv(room, 8, gmpi.BYTE, PREVIOUS, 3)
        wrong, for_any = s.plant(handle), s.plant(handle)
        q = s.isend(s.data(pattern(8, RANK)), 8, gmpi.BYTE, NEXT, 3)
        waits = [s.wait(wrong), s.test(wrong), s.waitany(for_any, 1)]
        every = s.waitall([good, wrong])
        s.wait(q)
        s.launch(g)
        _refused(g, s, 4)
        for call in waits:
            assert call.error == gmpi.ERR_REQUEST, (name, call.status)
        assert every.error == gmpi.ERR_REQUEST, name
        assert [st.error for st in every.statuses] == [gmpi.SUCCESS, gmpi.ERR_REQUEST], name
        s.expect(room, pattern(8, PREVIOUS), name)


def _refused(g: gmpi.Context, s: Script, times: int) -> None:
    try:
        s.collect(g)
    except gmpi.ArgumentError as exc:
        assert exc.field == "request" and exc.operation == "GMPI_Wait", exc
        assert "allowed is a request that is open in this context" in str(exc)
        assert exc.more == times - 1, exc
    else:
        raise AssertionError("synchronize() did not raise")
    s.collect(g)


def several_wrong_calls(g: gmpi.Context) -> None:
    """The first one is raised, the others are counted; blocks are told apart."""
    s = Script(callers=3)
    before = len(g.errors)
    for number, caller in enumerate(s.callers):
        for _ in range(number):
            caller.recv(s.room(4), 4, gmpi.BYTE, SIZE + number, 0)
    s.launch(g)
    try:
        s.collect(g)
        raise AssertionError("synchronize() did not raise")
    except gmpi.ArgumentError as exc:
        assert exc.more == 2 and "(and 2 more: see Context.errors)" in str(exc)
    new = g.errors[before:]
    assert sorted(f.block for f in new) == [1, 2, 2]
    assert {(f.block, f.value) for f in new} == {(1, SIZE + 1), (2, SIZE + 2)}
    g.synchronize()  # nothing new


def the_log_is_bounded(g: gmpi.Context) -> None:
    """Of very many errors the very first and the last ones are kept, and all are counted."""
    earlier = g.first_error
    s = Script(threads=1)
    for k in range(300):
        s.recv(s.room(1), 1, gmpi.BYTE, SIZE + k, 0)
    s.launch(g)
    try:
        s.collect(g)
        raise AssertionError("synchronize() did not raise")
    except gmpi.ArgumentError as exc:
        assert exc.value == (SIZE + 300 - 255 if earlier else SIZE), exc.value
    assert len(g.errors) == 256 and g.errors[-1].value == SIZE + 299
    assert g.first_error == (earlier or g.errors[0])


@cuda.jit
def move(ctx, out, room, n, datatype, errors):  # type: ignore[no-untyped-def]
    """Point to point, then collectives, with one datatype for arrays of whatever elements."""
    r = gmpi.GMPI_Irecv(ctx, room, n, datatype, gmpi.PROC_NULL, 5, gmpi.COMM_WORLD)
    s = gmpi.GMPI_Isend(ctx, out, n, datatype, gmpi.PROC_NULL, 5, gmpi.COMM_WORLD)
    errors[0] = gmpi.GMPI_Wait(ctx, r).error
    errors[1] = gmpi.GMPI_Wait(ctx, s).error
    errors[2] = gmpi.GMPI_Bcast(ctx, room, n, datatype, 0, gmpi.COMM_WORLD)
    errors[3] = gmpi.GMPI_Send(ctx, out[::2], 1, datatype, gmpi.PROC_NULL, 5, gmpi.COMM_WORLD).error
    errors[4] = gmpi.GMPI_Allreduce(ctx, out, room, n, datatype, gmpi.SUM, gmpi.COMM_WORLD)
    errors[5] = gmpi.GMPI_Allreduce(
        ctx, gmpi.IN_PLACE, room, n, datatype, gmpi.SUM, gmpi.COMM_WORLD
    )


def elements_of_another_size() -> None:
    """A datatype for an array of other elements: half of the data would move, or twice as much."""
    wide, narrow, raw = np.zeros(16), np.zeros(16, np.float32), np.zeros(128, np.uint8)
    refused = [(wide, gmpi.FLOAT), (narrow, gmpi.DOUBLE), (wide, gmpi.INT32_T)]
    fine = [(wide, gmpi.DOUBLE), (wide, gmpi.INT64_T), (wide, gmpi.UINT8_T), (raw, gmpi.DOUBLE)]
    with gmpi.Context(WORLD, on_error="return") as g:
        for array, datatype in refused + fine:
            errors = on_device(np.full(6, -1))
            out, room = on_device(array), on_device(array)
            before = len(g.errors)
            move[1, 32](g.device, out, room, 2, datatype, errors)
            g.synchronize()
            wrong = any(array is a and datatype == d for a, d in refused)
            expected = gmpi.ERR_TYPE if wrong else gmpi.SUCCESS
            assert (errors.copy_to_host() == expected).all(), (datatype, errors.copy_to_host())
            assert len(g.errors) - before == (6 if wrong else 0)
        text = str(g.errors[0])
        assert "GMPI_Irecv in block 0: datatype is FLOAT, of 4 bytes, for an array whose " in text
        assert "elements have 8, allowed is a datatype of 8 bytes such as gmpi.DOUBLE; " in text, (
            text
        )
        assert text.endswith("count 2 of FLOAT]"), text


def slots_run_out() -> None:
    """More requests than slots: a bounded wait, then GMPI_ERR_NO_RESOURCE; the others go on."""
    patience = 0.2
    settings = {"request_slots": 32, "large_slots": 2, "resource_timeout_s": patience}
    for size, most in ((8, 32), (9000, 2 + 32)):
        with gmpi.Context(WORLD, **settings) as g:
            s = Script()
            rooms = [s.room(size) for _ in range(most + 2)]
            receives = [s.irecv(b, size, gmpi.BYTE, PREVIOUS, k) for k, b in enumerate(rooms)]
            refused = [s.wait(receives[-2]), s.wait(receives[-1])]
            done = s.waitall(receives[:most])

            def send_all(g: gmpi.Context = g, size: int = size, most: int = most) -> None:
                for k in range(most):
                    g.host.Send(pattern(size, RANK + k), NEXT, k)

            sender = threading.Thread(target=send_all)
            began = time.monotonic()
            sender.start()
            s.launch(g)
            sender.join()
            try:
                s.collect(g)
                raise AssertionError("synchronize() did not raise")
            except gmpi.ResourceError as exc:
                assert exc.more == 1 and exc.error_class == gmpi.GMPI_ERR_NO_RESOURCE
                assert str(exc).startswith(
                    "GMPI_Irecv in block 0: request slots is all in use, allowed is "
                    f"{most} requests of this size outstanding at once; wait for requests earlier"
                ), exc
            assert time.monotonic() - began >= 2 * patience
            s.collect(g)
            assert [w.error for w in refused] == [gmpi.GMPI_ERR_NO_RESOURCE] * 2
            assert done.error == gmpi.SUCCESS
            for k, b in enumerate(rooms[:most]):
                s.expect(b, pattern(size, PREVIOUS + k))


def main() -> None:
    with gmpi.Context(WORLD) as g:
        scenarios = [
            wrong_arguments, nothing_at_all, wrong_requests, several_wrong_calls,
            the_log_is_bounded,
        ]  # fmt: skip
        run(scenarios, g)
    run([elements_of_another_size, slots_run_out])
    end()


main()
