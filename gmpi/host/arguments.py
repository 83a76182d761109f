"""What is wrong with the arguments of a host's call, before MPI sees them."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI

from gmpi.contract.constants import (
    ANY_SOURCE,
    ANY_TAG,
    OPERATIONS_REDUCE,
    PROC_NULL,
    defined_for,
)
from gmpi.errors import ArgumentError, ArgumentTypeError, DebugError, Fault, MPICallError
from gmpi.fault_words import REDUCTIONS, caller, unfit_reduction_words
from gmpi.faults import any_tag_of_host, broken_words, peer_words
from gmpi.value_words import rank_text, tag_text
from host_proxy.platform.communicator import Communicator
from host_proxy.platform.reductions import Reductions
from host_proxy.reference.failure import Disagreement

_CLASSES = {
    "dest": MPI.ERR_RANK,
    "source": MPI.ERR_RANK,
    "root": MPI.ERR_ROOT,
    "tag": MPI.ERR_TAG,
    "sendtag": MPI.ERR_TAG,
    "recvtag": MPI.ERR_TAG,
    "op": MPI.ERR_OP,
}
_SPECIAL_RANKS: Mapping[str, tuple[int, ...]] = {
    "dest": (PROC_NULL,),
    "source": (ANY_SOURCE, PROC_NULL),
    "root": (),
}


class Argument(NamedTuple):
    """One argument of a call of the host, or of one of a kernel that the host checks.

    Attributes:
        operation: the call, for example ``Isend``.
        block: of a kernel; -1: the host.
    """

    operation: str
    name: str
    block: int = -1

    def __str__(self) -> str:
        return self.name

    def refused(
        self, text: str, value: Any, allowed: str, error_class: int | None = None
    ) -> ArgumentError:
        """The exception that says so; ``error_class`` as MPI would give it."""
        return ArgumentError(self._fault(text, value, allowed, error_class, ArgumentError))

    def has_wrong_type(
        self, text: str, value: Any, allowed: str, error_class: int | None = None
    ) -> ArgumentTypeError:
        """The same for a value that is nothing of the kind."""
        fault = self._fault(text, value, allowed, error_class, ArgumentTypeError)
        return ArgumentTypeError(fault)

    def _fault(
        self, text: str, value: Any, allowed: str, error_class: int | None, kind: Any
    ) -> Fault:
        if error_class is None:
            error_class = int(_CLASSES.get(self.name, MPI.ERR_BUFFER))
        words = f"{self.operation} in {caller(self.block)}: {text}"
        return Fault(
            words, self.operation, self.name, value, allowed, self.block, error_class, kind
        )

    def whole(self, value: Any, allowed: str) -> int:
        """The value as an integer."""
        try:
            return operator.index(value)
        except TypeError:
            raise self.has_wrong_type(
                f"{self.name} is {value!r}, a {type(value).__name__}, allowed is {allowed}",
                value,
                allowed,
            ) from None


def checked_communicator(argument: Argument, value: Any, known: Sequence[Communicator]) -> int:
    """A handle of a registered communicator."""
    allowed = f"0..{len(known) - 1}"
    index = argument.whole(value, allowed)
    if 0 <= index < len(known) and not known[index].is_free:
        return index
    name = argument.name
    text = f"{name} is {index}, allowed is {allowed}; register it with Context.comm() first"
    raise argument.refused(text, index, allowed, MPI.ERR_COMM)


def checked_rank(argument: Argument, value: Any, communicator: Communicator) -> int:
    """A rank of the communicator, or one of the special values that the argument may have."""
    special = _SPECIAL_RANKS[argument.name]
    allowed = " or ".join([f"0..{communicator.size - 1}", *map(rank_text, special)])
    rank = argument.whole(value, allowed)
    if 0 <= rank < communicator.size or rank in special:
        return rank
    advice = f"the communicator has {communicator.size} ranks"
    raise argument.refused(
        f"{argument.name} is {rank_text(rank)}, allowed is {allowed}; {advice}", rank, allowed
    )


def checked_tag(argument: Argument, value: Any, high: int, wildcard: bool) -> int:
    """A tag; ``wildcard``: or ANY_TAG."""
    allowed = f"0..{high}" + (" or ANY_TAG" if wildcard else "")
    tag = argument.whole(value, allowed)
    if 0 <= tag <= high or (wildcard and tag == ANY_TAG):
        return tag
    raise argument.refused(
        f"{argument.name} is {tag_text(tag)}, allowed is {allowed}; MPI_TAG_UB of this library is "
        f"{high}",
        tag,
        allowed,
    )


def require_tag(operation: str, tag: int, high: int, source: int, comm: int) -> None:
    """On a communicator where no receive may use ANY_TAG."""
    if tag == ANY_TAG:
        raise any_tag_of_host(operation, high, source, comm)


def checked_reduction(
    argument: Argument, value: Any, reductions: Reductions, dtype: np.dtype
) -> int:
    """An operation, as kernels name it, or mpi4py's; one that MPI defines for elements of NumPy's
    ``dtype``."""
    known = reductions.number_of(value) if isinstance(value, MPI.Op) else None
    op = argument.whole(value, REDUCTIONS) if known is None else known
    if not 0 <= op < len(reductions.known):
        raise argument.refused(f"{argument.name} is {op}, allowed is {REDUCTIONS}", op, REDUCTIONS)
    defined = defined_for(dtype)
    if op < len(OPERATIONS_REDUCE) and op not in defined:
        found, allowed = unfit_reduction_words(op, f"dtype {dtype}", defined)
        raise argument.refused(f"{argument.name} is {found}, allowed is {allowed}", op, allowed)
    return op


def failed_in_mpi(operation: str, where: str, exc: MPI.Exception) -> MPICallError:
    """What a call of the host raises that MPI has failed; ``where`` is its peer, tag and so on."""
    code = exc.Get_error_code()
    text = (
        f"{operation} in host: MPI call is {code}, allowed is MPI_SUCCESS; "
        f"{exc.Get_error_string()} [{where}]"
    )
    fault = Fault(
        text, operation, "MPI call", code, "MPI_SUCCESS", -1, exc.Get_error_class(), MPICallError
    )
    return MPICallError(fault)


def failed_elsewhere(operation: str, where: str, rank: int, error: int) -> MPICallError:
    """What a call of the host raises whose other rank has failed."""
    allowed, advice = peer_words(rank)
    text = f"{operation} in host: other rank is {rank}, allowed is {allowed}; {advice} [{where}]"
    return MPICallError(
        Fault(text, operation, "other rank", rank, allowed, -1, error, MPICallError)
    )


def refused(operation: str, where: str, comm: int, error: int) -> MPICallError:
    """What a collective of the host raises where one has failed on its communicator."""
    allowed, advice = broken_words()
    text = f"{operation} in host: communicator is {comm}, allowed is {allowed}; {advice} [{where}]"
    return MPICallError(
        Fault(text, operation, "communicator", comm, allowed, -1, error, MPICallError)
    )


def disagreeing(operation: str, exc: Disagreement) -> DebugError:
    """What a collective of the host raises in debug mode that ranks call differently."""
    fault = Fault(
        f"debug mode: {exc.text}", operation, "debug check", None, "", -1, exc.error, DebugError
    )
    return DebugError(fault)
