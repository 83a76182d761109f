"""Tables with a row for each call of kernels; docs/make_api.py puts them into their pages."""

from __future__ import annotations

import re

from mpi4py import MPI

import gmpi
from docs import evidence

#: Where mpi4py has the calls of MPI: how the object is called in programs, and its class.
PLACES = (
    ("comm", MPI.Intracomm),
    ("cart", MPI.Cartcomm),
    ("request", MPI.Prequest),
    ("status", MPI.Status),
    ("datatype", MPI.Datatype),
    ("win", MPI.Win),
)
#: Calls that mpi4py names in another way than MPI does.
OTHERWISE = {
    "Comm_rank": "comm.Get_rank()",
    "Comm_size": "comm.Get_size()",
    "Cart_coords": "cart.Get_coords(rank)",
    "Cart_get": "cart.Get_topo()",
    "Cart_rank": "cart.Get_cart_rank(coords)",
    "Cart_shift": "cart.Shift(direction, disp)",
    "Cartdim_get": "cart.Get_dim()",
    "Type_size": "datatype.Get_size()",
    "Error_class": "MPI.Get_error_class(errorcode)",
    "Mrecv": "message.Recv(buf, status)",
    "Imrecv": "message.Irecv(buf)",
    "Request_free": "request.Free()",
    "Request_get_status": "request.Get_status(status)",
    "Test_cancelled": "status.Is_cancelled()",
    "Synchronize": "-",
    "Put_notify": "-",
    "Get_notify": "-",
    "Accumulate_notify": "-",
    "Get_accumulate_notify": "-",
    "Rput_notify": "-",
    "Rget_notify": "-",
    "Raccumulate_notify": "-",
    "Rget_accumulate_notify": "-",
    "Win_get_notify_value": "-",
    "Win_reset_notify_value": "-",
    "Win_fence": "win.Fence(assertion)",
    "Win_flush": "win.Flush(rank)",
    "Win_flush_all": "win.Flush_all()",
    "Win_flush_local": "win.Flush_local(rank)",
    "Win_flush_local_all": "win.Flush_local_all()",
    "Win_lock_all": "win.Lock_all(assertion)",
    "Win_unlock_all": "win.Unlock_all()",
}
#: What can take the direct road; requests of either road are waited for by the same calls.
DIRECT = """
    Isend Irsend Irecv Send Rsend Recv Sendrecv Sendrecv_replace
    Wait Waitall Waitany Waitsome Test Testall Testany Testsome Request_get_status
    Allreduce Bcast Barrier Reduce Gather Scatter Allgather Alltoall Reduce_scatter_block
    Iallreduce Ibcast Ibarrier Ireduce Igather Iscatter Iallgather Ialltoall Ireduce_scatter_block
    Iscan Iexscan
    Reduce_scatter Scan Exscan Gatherv Scatterv Allgatherv Alltoallv Alltoallw
    Neighbor_allgather Neighbor_allgatherv Neighbor_alltoall Neighbor_alltoallv Neighbor_alltoallw
    Psend_init Precv_init Request_free Start Startall Pready
    Pready_range Pready_list Parrived Synchronize Put Get Rput Rget Accumulate Get_accumulate
    Fetch_and_op Compare_and_swap
    Raccumulate Rget_accumulate Win_flush_local Win_flush_local_all
    Put_notify Get_notify Accumulate_notify Get_accumulate_notify
    Rput_notify Rget_notify Raccumulate_notify Rget_accumulate_notify
    Win_get_notify_value Win_reset_notify_value
    Win_fence Win_flush Win_flush_all Win_lock_all Win_unlock_all
    Send_init Rsend_init Recv_init
"""
#: Calls that move nothing between ranks.
LOCAL = re.compile(
    r"Comm_|Cart|Type_size|Error_class|Get_count|Get_elements|Test_cancelled|Wtime|Abort"
)


def _mpi4py(name: str) -> str:
    if name in OTHERWISE:
        return OTHERWISE[name]
    found = [(variable, getattr(cls, name, None)) for variable, cls in PLACES]
    variable, function = next((f for f in found if f[1]), ("MPI", getattr(MPI, name, None)))
    if function is None:
        raise SystemExit(f"mpi4py has no {name}: say in OTHERWISE how it calls MPI_{name}")
    text = (function.__doc__ or "").splitlines()[0]
    several = "(cls," in text
    inside = text.partition("(")[2].rpartition(")")[0]
    while "[" in inside:  # of annotations, such as list[Status]
        inside = re.sub(r"\[[^\[\]]*\]", "", inside)
    names = [part.partition(":")[0].strip() for part in inside.split(",")]
    words = ", ".join(word for word in names if word and word not in ("self", "cls", "/", "*"))
    return f"{'MPI.Request' if several else variable}.{name}({words})"


def porting(names: list[str], parameters: dict[str, str]) -> str:
    """MPI's name, mpi4py's call, and the call of a kernel."""
    rows = ["| MPI | mpi4py, on the host | GMPI, in a kernel |", "|---|---|---|"]
    for name in names:
        short = name.removeprefix("GMPI_")
        mpi = "-" if short == "Synchronize" else f"MPI_{short}"
        host = _mpi4py(short)
        rows.append(
            f"| {mpi} | {host if host == '-' else f'`{host}`'} | `{name}({parameters[name]})` |"
        )
    return "\n".join(rows)


def maturity(names: list[str]) -> str:
    """Scopes, roads, and what is known of each call."""
    rows = ["| call | scopes | direct road | what is known |", "|---|---|---|---|"]
    for name in names:
        short = name.removeprefix("GMPI_")
        scopes = ["block"] if name + "_warp" in gmpi._HOME else ["thread"]
        scopes += [s for s in ("warp", "grid") if f"{name}_{s}" in gmpi._HOME]
        road = "-" if LOCAL.match(short) else "yes" if short in DIRECT.split() else "no"
        rows.append(f"| `{name}` | {', '.join(scopes)} | {road} | {evidence.of(short)} |")
    return "\n".join(rows)
