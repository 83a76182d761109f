"""Partitioned requests that are misused, do not fit, never come or are left behind."""

from __future__ import annotations

import warnings

import numpy as np
from common import RANK, SIZE, TIME_FACTOR, WORLD, barrier, end, every_shape, raises, run
from numba import cuda

import gmpi
from gmpi import (
    GMPI_Parrived,
    GMPI_Pready,
    GMPI_Pready_list,
    GMPI_Pready_range,
    GMPI_Start,
    GMPI_Test,
    GMPI_Wait,
)
from gmpi.lifetime import watchdog

NEXT, PREVIOUS = (RANK + 1) % SIZE, (RANK - 1) % SIZE


@cuda.jit
def use_none(ctx, found):
    found[0] = GMPI_Start(ctx, gmpi.REQUEST_NULL)
    found[1] = GMPI_Pready(ctx, 0, gmpi.REQUEST_NULL)
    found[2] = GMPI_Parrived(ctx, gmpi.REQUEST_NULL, 0)
    found[3] = GMPI_Wait(ctx, gmpi.REQUEST_NULL).error


def no_request(g: gmpi.Context) -> None:
    """Is refused, also by a context that has none: a start took the empty row for one's own."""
    found = cuda.to_device(np.full(4, -1, np.int64))
    use_none[1, 32](g.device, found)
    raises(gmpi.ArgumentError, "GMPI_Start in block 0: request is 0x0", g.synchronize)
    expected = [gmpi.ERR_REQUEST, gmpi.ERR_REQUEST, 1, gmpi.SUCCESS]
    assert found.copy_to_host().tolist() == expected, found.copy_to_host()


@cuda.jit
def misuse(ctx, send, recv, gone, found):
    found[0] = GMPI_Pready(ctx, 0, send)  # not started
    found[1] = GMPI_Parrived(ctx, recv, 0)
    found[2] = GMPI_Start(ctx, gone)
    found[3] = GMPI_Start(ctx, 12345)
    GMPI_Start(ctx, send)
    found[4] = GMPI_Start(ctx, send)  # active
    found[5] = GMPI_Pready(ctx, 2, send)  # none of its partitions
    found[6] = GMPI_Pready(ctx, -1, send)
    GMPI_Pready(ctx, 0, send)
    found[7] = GMPI_Pready(ctx, 0, send)  # twice
    found[8] = GMPI_Pready(ctx, 0, recv)
    GMPI_Start(ctx, recv)
    found[9] = GMPI_Parrived(ctx, recv, 5)
    found[10] = GMPI_Pready_range(ctx, 1, 0, send)
    found[11] = GMPI_Wait(ctx, gone).error
    listed = cuda.local.array(2, np.int32)
    listed[0] = 2  # none of its partitions
    listed[1] = 1
    if GMPI_Pready_list(ctx, 2, listed, send) != gmpi.ERR_ARG:
        found[10] = -1
    GMPI_Wait(ctx, recv)
    GMPI_Wait(ctx, send)
    found[12] = GMPI_Wait(ctx, send).error  # inactive: nothing to wait for


def misuse_in_kernels(g: gmpi.Context) -> None:
    """Is an error class, is told to the host, and disturbs nothing."""
    out, back = (cuda.to_device(np.full(4, RANK, np.int32)) for _ in range(2))
    send = g.Psend_init(out, 2, 2, gmpi.INT, NEXT, 12)
    recv = g.Precv_init(back, 2, 2, gmpi.INT, PREVIOUS, 12)
    gone = g.Psend_init(out, 2, 2, gmpi.INT, gmpi.PROC_NULL, 13)
    g.Request_free(gone)
    found = cuda.to_device(np.full(13, -1, np.int64))
    misuse[1, 32](g.device, send, recv, gone, found)
    error = raises(gmpi.ArgumentError, "GMPI_Pready in block 0: request is", g.synchronize)
    assert error.error_class == gmpi.ERR_REQUEST
    request, argument = gmpi.ERR_REQUEST, gmpi.ERR_ARG
    expected = [
        request, 1, request, request, request, argument, argument, argument, request, 1, argument,
        request, gmpi.SUCCESS,
    ]  # fmt: skip
    assert found.copy_to_host().tolist() == expected, (found.copy_to_host().tolist(), expected)
    texts = [str(fault) for fault in g.errors]
    assert any("GMPI_Pready in block 0: partition is 2, allowed is 0..1" in t for t in texts), texts
    assert any("GMPI_Parrived in block 0: partition is 5" in t for t in texts), texts
    assert any("GMPI_Start in block 0: request is" in t for t in texts), texts
    assert (back.copy_to_host() == PREVIOUS).all()
    g.Request_free(send)
    g.Request_free(recv)


VIEW = (
    "array is a strided view: shape (4,), strides (16,) bytes, elements of 8 bytes, allowed is an "
    "array in one piece"
)


def misuse_of_the_host(g: gmpi.Context) -> None:
    array = cuda.to_device(np.zeros(8, np.float64))
    for text, call in (
        ("partitions is 0", lambda: g.Psend_init(array, 0, 1, gmpi.DOUBLE, NEXT)),
        ("count is -1", lambda: g.Psend_init(array, 1, -1, gmpi.DOUBLE, NEXT)),
        ("array is one of 64 bytes", lambda: g.Psend_init(array, 3, 3, gmpi.DOUBLE, NEXT)),
        ("dest is", lambda: g.Psend_init(array, 1, 1, gmpi.DOUBLE, SIZE)),
        ("tag is ANY_TAG", lambda: g.Psend_init(array, 1, 1, gmpi.DOUBLE, NEXT, -1)),
        ("source is ANY_SOURCE", lambda: g.Precv_init(array, 1, 1, gmpi.DOUBLE, gmpi.ANY_SOURCE)),
        ("datatype is FLOAT, of 4 bytes", lambda: g.Psend_init(array, 1, 1, gmpi.FLOAT, NEXT)),
        ("comm is 77", lambda: g.Psend_init(array, 1, 1, gmpi.DOUBLE, NEXT, 0, 77)),
        (
            f"{VIEW}; pass the whole array and a derived datatype of the view",
            lambda: g.Psend_init(array[::2], 1, 1, gmpi.DOUBLE, NEXT),
        ),
    ):
        raises(gmpi.ArgumentError, text, call)
    raises(gmpi.ArgumentTypeError, "array is a list",
           lambda: g.Psend_init([1.0], 1, 1, gmpi.DOUBLE, NEXT))  # fmt: skip
    raises(gmpi.DatatypeError, "datatype is 0x5", lambda: g.Psend_init(array, 1, 1, 5 << 28, NEXT))
    raises(gmpi.ContextError, "partitioned request of this context", lambda: g.Request_free(7))
    g.register(array)
    raises(gmpi.ContextError, "registered already", lambda: g.register(array))
    request = g.Precv_init(array, 1, 8, gmpi.DOUBLE, PREVIOUS, 14)
    raises(gmpi.ContextError, "1 partitioned requests use it", lambda: g.unregister(array))
    g.Request_free(request)
    g.unregister(array)
    raises(gmpi.ContextError, "not registered", lambda: g.unregister(array))
    raises(gmpi.ContextError, f"{VIEW}; register the whole", lambda: g.register(array[::2]))


@cuda.jit
def try_it(ctx, request, found):
    found[0] = GMPI_Start(ctx, request)
    found[1] = GMPI_Wait(ctx, request).error


def ends_that_differ(g: gmpi.Context) -> None:
    """Are told to both ranks, with both numbers of bytes."""
    array = cuda.to_device(np.zeros(64, np.int32))
    found = cuda.to_device(np.full(2, -1, np.int64))
    send = g.Psend_init(array, 4, 4, gmpi.INT, NEXT, 15)
    recv = g.Precv_init(array, 2, 4, gmpi.INT, PREVIOUS, 15)
    texts = ""
    for request in (send, recv):
        try_it[1, 32](g.device, request, found)
        texts += str(raises(gmpi.ArgumentError, "bytes in", g.synchronize))
        assert gmpi.ERR_COUNT in found.copy_to_host(), found.copy_to_host()
    assert "64 bytes in 4 partitions" in texts and "32 bytes in 2 partitions" in texts, texts
    g.Request_free(send)
    g.Request_free(recv)


@cuda.jit
def start_and_wait(ctx, request, found):
    GMPI_Start(ctx, request)
    found[0] = GMPI_Wait(ctx, request).error


def waits_that_take_too_long() -> None:
    """Are named by the report, and end."""
    with gmpi.Context(WORLD, watchdog_s=0, timeout_s=0.8) as g:
        array, found = cuda.to_device(np.zeros(8)), cuda.to_device(np.zeros(1, np.int64))
        recv = g.Precv_init(array, 2, 4, gmpi.DOUBLE, PREVIOUS, 17)
        send = g.Psend_init(array, 2, 4, gmpi.DOUBLE, NEXT, 17)
        start_and_wait[1, 32](g.device, recv, found)
        error = raises(gmpi.RequestTimeoutError, "", g.synchronize)
        assert f"partitioned receive from {PREVIOUS} tag 17" in str(error), error
        assert found.copy_to_host()[0] == gmpi.GMPI_ERR_TIMEOUT
        g.Request_free(send)


@cuda.jit
def three_of_eight(ctx, send, recv, how, found):
    GMPI_Start(ctx, recv)
    GMPI_Start(ctx, send)
    GMPI_Pready_range(ctx, 0, 2, send)
    if how == 0:
        while not GMPI_Parrived(ctx, recv, 7):
            pass
        found[0] = GMPI_Wait(ctx, recv).error
    elif how == 1:
        found[0] = GMPI_Wait(ctx, recv).error
    elif how == 2:
        found[0] = GMPI_Wait(ctx, send).error
    else:
        done = False
        while not done:
            done, status = GMPI_Test(ctx, recv)
        found[0] = status.error


def partitions_that_never_come() -> None:
    """Are named, with what the rank has done that should make them ready: by a loop of Parrived,
    by a wait of the receiver, by one of the sender, and by a loop of tests."""
    watchdog.ANSWER_S = 3.0 * TIME_FACTOR  # all ranks live: whoever is late has no core
    for how in range(4 if every_shape() else 1):
        with gmpi.Context(WORLD, watchdog_s=0, timeout_s=0.8) as g:
            array, found = cuda.to_device(np.zeros(16)), cuda.to_device(np.zeros(1, np.int64))
            send = g.Psend_init(array, 8, 2, gmpi.DOUBLE, NEXT, 18)
            recv = g.Precv_init(g.zeros(16), 8, 2, gmpi.DOUBLE, PREVIOUS, 18)
            barrier()
            three_of_eight[1, 32](g.device, send, recv, how, found)
            report = raises(gmpi.RequestTimeoutError, "", g.synchronize).report
            barrier()  # nobody's watchdog may go before all have asked
            rank, what = (RANK, f"send to {NEXT}") if how == 2 else (PREVIOUS, "receive from")
            asks = {0: f"GMPI_Parrived from {PREVIOUS}", 3: f"GMPI_Test from {PREVIOUS}"}
            call = asks.get(how, f"partitioned {what}")
            mine = f"rank {RANK} waits in {call}"  # by the proxies, the receive is open in any case
            causes = [cause for cause in report.causes if cause.text.startswith(mine)]
            assert [cause.kind for cause in causes] == ["partitions"], report.text
            made = f"rank {rank} has made 3 of 8 partitions ready; missing: 3-7"
            assert made in causes[0].text and "tag 18" in causes[0].text, report.text
            assert "block 0" in report.text, report.text
            assert found.copy_to_host()[0] == gmpi.GMPI_ERR_TIMEOUT


def requests_that_are_left() -> None:
    """Are named when the context closes."""
    array = cuda.to_device(np.zeros(8))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with gmpi.Context(WORLD) as g:
            g.Psend_init(array, 2, 4, gmpi.DOUBLE, NEXT, 18)
            g.Precv_init(array, 2, 4, gmpi.DOUBLE, PREVIOUS, 18)
            g.Request_free(g.Psend_init(array, 1, 8, gmpi.DOUBLE, gmpi.PROC_NULL, 19))
    texts = [str(w.message) for w in found if w.category is gmpi.LeakWarning]
    assert len(texts) == 1 and "2 partitioned requests were never freed: " in texts[0], texts
    send = f"partitioned send to {NEXT} tag 18 on communicator 0, 2 partitions of 32 bytes"
    assert send in texts[0] and f"receive from {PREVIOUS} tag 18" in texts[0], texts


def main() -> None:
    with gmpi.Context(WORLD) as g:
        run([no_request, misuse_in_kernels, misuse_of_the_host, ends_that_differ], g)
    waits_that_take_too_long()
    partitions_that_never_come()
    requests_that_are_left()
    end()


main()
