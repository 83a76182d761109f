"""Tables of pending requests, as ranks would have them, for tests of the diagnosis."""

from __future__ import annotations

from gmpi.diagnose.diagnosis import diagnose
from gmpi.diagnose.tables import Cause, Pending, Table, Unexpected

UNLAUNCHED: list[Pending] = []
PREPARING: list[Pending] = []
A, B = "COMM_WORLD", "other #0.1"
KINDS = {
    "tag", "peer", "communicator", "missing send", "missing receive", "collective", "order",
    "left", "not launched", "missing wait", "cycle", "error", "silent", "follows",
    "partitions", "grid",
}  # fmt: skip


def recv(source: int | None, tag: int | None = 7, comm: str = A, **more: object) -> Pending:
    return make("GMPI_Irecv", "receive", source, tag, comm, **more)


def send(dest: int, tag: int = 7, comm: str = A, **more: object) -> Pending:
    return make("GMPI_Isend", "send", dest, tag, comm, **more)


def collective(name: str = "GMPI_Barrier", comm: str = A, **more: object) -> Pending:
    return make(name, "collective", more.pop("root", None), None, comm, **more)


def reduction(**more: object) -> Pending:
    return collective("GMPI_Iallreduce", **{"reduction": "SUM", **more})


def make(name: str, kind: str, peer: object, tag: object, comm: str, **more: object) -> Pending:
    given = {"datatype": "BYTE", "count": 8, "nbytes": 8, "block": 0, "serial": 0, **more}
    return Pending(name, kind, peer, tag, comm, **given)  # type: ignore[arg-type]


def tables(*pending: list[Pending] | None, **unexpected: list[Unexpected]) -> dict:
    """Tables of ranks 0, 1, ...: their requests, ``None`` for one that left, ``UNLAUNCHED`` for one
    without a kernel so far, ``PREPARING`` for one that compiles; r1=[what came]."""
    size = len(pending)
    members = {A: list(range(size)), B: list(range(size))}
    found = {}
    for rank, requests in enumerate(pending):
        kernels = "none running" if requests is None else "running"
        if requests is UNLAUNCHED:
            kernels = "none launched"
        if requests is PREPARING:
            kernels = "being prepared"
        came = unexpected.get(f"r{rank}", [])
        found[rank] = Table(rank, kernels, requests or [], came, members)
    return found


def first(found: dict) -> Cause:
    causes = diagnose(found)
    assert causes
    return causes[0]


def came(source: int, tag: int = 7, comm: str = A) -> list[Unexpected]:
    return [Unexpected(source, tag, comm, 8)]
