"""What is allowed in place of a request or a partition that was refused, and what to do."""

from __future__ import annotations

from gmpi.contract.wire import OP_PARRIVED, OP_PREADY, OP_START

_PARTITIONED = {
    OP_START: "a partitioned request of this context that is not active",
    OP_PREADY: "a partitioned send of this context that has been started",
    OP_PARRIVED: "a partitioned receive of this context",
}


def request_words(op: int) -> tuple[str, str]:
    """(what is allowed, what to do) where a call does not take a request."""
    if op in _PARTITIONED:
        return _PARTITIONED[op], "start it before it is used, wait for it before the next start"
    return (
        "a request that is open in this context",
        "it was completed before, belongs to another context, or is no request",
    )


def partition_words(partitions: int) -> tuple[str, str]:
    """The same of a partition, where the request has so many."""
    return (
        f"0..{partitions - 1}, each once a round",
        "it is none of the request's partitions, or was ready before in this round",
    )
