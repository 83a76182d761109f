"""Every call of a kernel with one integer after the other that it must refuse: it ends, and nothing
else is harmed. Whichever there are: their names and arguments are read from ``gmpi``.

A rank calls them alone, in a communicator of its own, on the proxied road or with ``--direct``.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from typing import Any

import numpy as np
from common import RANK, WORLD, end, run
from numba import cuda

import gmpi
from gmpi import GMPI_Irecv, GMPI_Isend, GMPI_Wait

DIRECT = "--direct" in sys.argv[1:]
#: One ends the job. Of the others the one half goes on though the other one was refused.
NOT_THESE = (
    "GMPI_Abort", "GMPI_Sendrecv", "GMPI_Sendrecv_replace", "GMPI_Isendrecv",
    "GMPI_Isendrecv_replace",
)  # fmt: skip
ANY = [-1, -2, 1, 5, 63, 64, 256, 1 << 20, 1 << 31, 1 << 32, 1 << 40, 1 << 62, -(1 << 63)]
RANKS = [1, 63, 1 << 20, (1 << 31) - 1, -(1 << 31), -77]
TAGS = [-77, -(1 << 31)]
COUNTS = [-1, 5, 1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1]
#: By argument: what is right, and what is tried in its place.
INTEGERS: dict[str, tuple[int, list[int]]] = {
    **dict.fromkeys(("comm", "win", "request", "message", "errorcode"), (0, ANY)),
    **dict.fromkeys(("dest", "source", "root", "target_rank", "rank"), (0, RANKS)),
    **dict.fromkeys(("tag", "sendtag", "recvtag"), (3, TAGS)),
    "op": (gmpi.SUM, ANY),
    **dict.fromkeys(("count", "sendcount", "recvcount"), (1, COUNTS)),
    **dict.fromkeys(("origin_count", "target_count", "result_count"), (1, COUNTS)),
    **dict.fromkeys(("datatype", "sendtype", "recvtype"), (gmpi.DOUBLE, ANY)),
    **dict.fromkeys(("origin_datatype", "target_datatype"), (gmpi.DOUBLE, ANY)),
    "result_datatype": (gmpi.DOUBLE, ANY),
    **dict.fromkeys(("direction", "disp", "partition", "partition_low", "assertion"), (0, ANY)),
    **dict.fromkeys(("target_disp", "notification_idx"), (0, ANY)),
    **dict.fromkeys(("partition_high", "partitions", "maxdims", "incount", "length"), (1, COUNTS)),
}


def arrays() -> dict[str, Any]:
    ones, zeros = (cuda.to_device(np.full(4, value, np.int64)) for value in (1, 0))
    types = cuda.to_device(np.full(4, gmpi.DOUBLE, np.int64))
    statuses = cuda.to_device(np.zeros((4, 5), np.int64))
    return {
        **dict.fromkeys(("sendcounts", "recvcounts"), ones),
        **dict.fromkeys(("displs", "sdispls", "rdispls", "coords", "indices", "dims"), zeros),
        **dict.fromkeys(("periods", "array_of_partitions", "requests"), zeros),
        **dict.fromkeys(("sendtypes", "recvtypes"), types),
        "statuses": statuses,
    }


def kernel_of(name: str, count: int) -> Any:
    """A kernel that makes one call, and tells nobody what it says."""
    names = ", ".join(f"a{i}" for i in range(count))
    space = {"call": getattr(gmpi, name)}
    exec(f"def only(ctx, {names}):\n    call(ctx, {names})\n", space)
    return cuda.jit(space["only"])


@cuda.jit
def exchange(ctx, out, back):
    receive = GMPI_Irecv(ctx, back, 4, gmpi.DOUBLE, 0, 9, gmpi.COMM_WORLD)
    send = GMPI_Isend(ctx, out, 4, gmpi.DOUBLE, 0, 9, gmpi.COMM_WORLD)
    GMPI_Wait(ctx, receive)
    GMPI_Wait(ctx, send)


def tried(name: str) -> bool:
    if not name.startswith("GMPI_") or name.endswith(("_warp", "_grid")) or name in NOT_THESE:
        return False
    function = getattr(gmpi, name)
    return callable(function) and "status" not in inspect.signature(function).parameters


def one_call_after_the_other(own: Any) -> None:
    for name in filter(tried, dir(gmpi)):
        parameters = list(inspect.signature(getattr(gmpi, name)).parameters)[1:]
        only = kernel_of(name, len(parameters))
        # A call may be right all the same, and what it opens stays open: hence a context for each.
        with (
            contextlib.suppress(gmpi.PendingError),
            gmpi.Context(own, wildcards=not DIRECT, watchdog_s=0, timeout_s=5) as g,
        ):
            for wrong in (p for p in parameters if p in INTEGERS):
                for value in INTEGERS[wrong][1]:
                    known = arrays()
                    given = [
                        value if p == wrong else INTEGERS[p][0] if p in INTEGERS
                        else known.get(p, cuda.to_device(np.zeros(4)))
                        for p in parameters
                    ]  # fmt: skip
                    only[1, 32](g.device, *given)
                    try:
                        g.synchronize(timeout=20)
                    except (gmpi.ArgumentError, gmpi.PendingError, gmpi.ResourceError):
                        pass
                    except gmpi.GMPIError as error:
                        raise AssertionError(f"{name}, {wrong} is {value}: {error}") from error
            out, back = cuda.to_device(np.arange(4.0)), cuda.to_device(np.zeros(4))
            exchange[1, 32](g.device, out, back)
            with contextlib.suppress(gmpi.ArgumentError, gmpi.PendingError):
                g.synchronize()
            assert (back.copy_to_host() == np.arange(4)).all(), name


def main() -> None:
    run([one_call_after_the_other], WORLD.Split(RANK, 0))
    end()


main()
