"""How a message of the mpi4py engine or of the host fails: what its generator gets, and raises."""

from __future__ import annotations

from mpi4py import MPI

from gmpi.contract.constants import ERR_COMM, ERR_OTHER


class Failure(Exception):
    """Something of a message has failed: by itself, what has come is no message of ours.

    Attributes:
        error: the error class.
    """

    def __init__(self, error: int) -> None:
        super().__init__(error)
        self.error = error


class RequestFailure(Failure):
    """MPI has completed a request with an error.

    Attributes:
        cause: what mpi4py has raised.
        status: as far as MPI has filled it in.
    """

    def __init__(self, cause: MPI.Exception, status: MPI.Status) -> None:
        super().__init__(cause.Get_error_class())
        self.cause = cause
        self.status = status


class PeerFailure(Failure):
    """The other rank's part of the message has failed.

    Attributes:
        rank: which one, in the communicator.
    """

    def __init__(self, error: int, rank: int) -> None:
        super().__init__(error)
        self.rank = rank


class BrokenCommunicator(Failure):
    """A collective has failed on the communicator before."""

    def __init__(self) -> None:
        super().__init__(int(ERR_COMM))


class Disagreement(Failure):
    """In debug mode: the ranks of a collective do not call the same.

    Attributes:
        text: where they differ.
    """

    def __init__(self, text: str) -> None:
        super().__init__(int(ERR_OTHER))
        self.text = text


def error_class(exc: MPI.Exception | Failure) -> int:
    return exc.error if isinstance(exc, Failure) else int(exc.Get_error_class())
