"""How an operation of the host has ended."""

from __future__ import annotations

from mpi4py import MPI

from gmpi.contract.constants import ANY_TAG, DATATYPE_NAMES, DATATYPES, NO_MESSAGE
from gmpi.errors import DatatypeError
from host_proxy.reference.protocol import Outcome


class HostStatus:
    """How a receive of the host ended (see ``device_lib.context.Status``).

    With mpi4py's methods; ``count`` is in elements of the datatype of the receive.
    """

    def __init__(self, outcome: Outcome, itemsize: int) -> None:
        self.error = outcome.error
        self.source = outcome.source
        self.tag = outcome.tag
        self.nbytes = outcome.nbytes
        self.count = _elements(outcome.nbytes, itemsize)
        self.cancelled = outcome.tag == NO_MESSAGE
        if self.cancelled:
            self.tag = int(ANY_TAG)

    def Get_source(self) -> int:
        """Rank of the sender in the communicator of the receive."""
        return self.source

    def Get_tag(self) -> int:
        """Tag of the message."""
        return self.tag

    def Get_error(self) -> int:
        """Error class."""
        return self.error

    def Is_cancelled(self) -> bool:
        """Whether the receive was cancelled (MPI 4.1 section 3.8.4)."""
        return self.cancelled

    def Get_count(self, datatype: MPI.Datatype | int = MPI.BYTE) -> int:
        """Received elements of mpi4py's datatype, or of a constant such as ``gmpi.FLOAT``
        (MPI 4.1 section 3.2.5)."""
        if isinstance(datatype, int):
            if datatype not in DATATYPE_NAMES:
                raise DatatypeError(
                    f"the datatype is {datatype:#x}, allowed is one of mpi4py or a constant such "
                    "as gmpi.FLOAT"
                )
            datatype = DATATYPES[datatype & 0xFF][1]
        return _elements(self.nbytes, datatype.Get_size())

    def Get_elements(self, datatype: MPI.Datatype) -> int:
        """Received basic elements of mpi4py's datatype (MPI 4.1 section 5.1.11)."""
        status = MPI.Status()
        status.Set_elements(MPI.BYTE, self.nbytes)
        return status.Get_elements(datatype)

    def copy_to(self, status: MPI.Status | None) -> None:
        """Fills in mpi4py's object, if one was passed."""
        if status is None:
            return
        status.Set_source(self.source)
        status.Set_tag(self.tag)
        status.Set_error(self.error)
        status.Set_elements(MPI.BYTE, self.nbytes)
        status.Set_cancelled(self.cancelled)

    def __repr__(self) -> str:
        return (
            f"HostStatus(error={self.error}, source={self.source}, tag={self.tag}, "
            f"count={self.count}, nbytes={self.nbytes})"
        )


def _elements(nbytes: int, itemsize: int) -> int:
    size = max(itemsize, 1)
    return nbytes // size if nbytes % size == 0 else int(MPI.UNDEFINED)
