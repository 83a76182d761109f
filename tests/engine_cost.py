"""How many instructions the compiled engine takes for a record, counted one by one, without a GPU.

    python tests/engine_cost.py

Linux on x86-64. A child process serves records that lie in the ring, and its parent lets it go on
instruction by instruction (ptrace). What belongs to no file is the engine's, and is counted; MPI
and Python are not. The figures are the same on a busy machine. ``docs/measuring.md`` has them.
"""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

import numpy as np
from mpi4py import MPI
from numba import njit
from proxy_producer import make_handle, publish, record_address, seq_of, word0

from gmpi.contract import sizes, wire
from gmpi.contract.constants import DATATYPE_MARK
from host_proxy.compiled.loop import BATCH, run
from host_proxy.platform import mpi_library
from host_proxy.platform import state as st
from host_proxy.platform.make_state import Habits, make_state
from host_proxy.platform.native import compile_entries
from host_proxy.records.completion import write_packet

_TRACE_ME, _CONTINUE, _STEP, _REGISTERS = 0, 7, 9, 12  # requests of ptrace
_WORDS_OF_REGISTERS, _INSTRUCTION_POINTER = 27, 16
_LAYOUT = sizes.Layout(4096, 4096, 64, 8192, 1 << 18)
_FIRST = 1 << 20  # ticket: behind the lap in which slots forget their payload
_BYTE = DATATYPE_MARK | 1 << 8
_TAG = 5
_LONG_NS = 10**15
#: Opcode, flags, elements of a byte, and packets of the completion of records that are served in
#: turn.
KINDS = {
    "null record": [(wire.OP_NULL, 0, 1, 1)],
    "null request": [(wire.OP_PING, 0, 0, 1)],
    "message of 8 bytes": [
        (wire.OP_IRECV, wire.FLAG_BACK, 8, 3),
        (wire.OP_ISEND, wire.FLAG_OUT | wire.FLAG_INLINE, 8, 1),
    ],
}

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def _ptrace(request: int, pid: int, data: object = None) -> None:
    if _libc.ptrace(request, pid, None, data) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"ptrace: {os.strerror(number)}")


@njit
def _publish(g, ticket, op, flags, count, packets):  # type: ignore[no-untyped-def]
    """A record of rank 0, for a message to or from itself."""
    slot = ticket & (_LAYOUT.request_slots - 1)
    if flags & wire.FLAG_INLINE:
        payload = record_address(g, ticket) + wire.HEADER_PACKETS * wire.PACKET_BYTES
        write_packet(payload, ticket, 0, seq_of(ticket))
    handle = make_handle(g, ticket, slot, packets)
    publish(g, ticket, word0(op, flags, _BYTE), 0, count, _TAG, handle, 0)


class Cost:
    """A proxy's state without a proxy, on one rank."""

    def __init__(self) -> None:
        compile_entries()
        self._memory = np.zeros(_LAYOUT.mapped_bytes + 4096, np.uint8)
        mapped = -(-int(self._memory.ctypes.data) // 4096) * 4096
        peers = np.zeros((1, st.P_COUNT), np.int64)
        habits = Habits(flight=4096, idle=(_LONG_NS, 0, 0))
        self.state = make_state(_LAYOUT, mapped, (mapped, 0, 0), peers, 5, habits, st.no_gpu)
        self.state.begin_at(_FIRST)
        self.state.globals[st.G_PYTHON] = 1  # the loop returns when it has nothing to do
        self._tables = np.array([-1]), np.zeros(1, np.int64)
        row = self.state.communicator_table[0]
        row[st.C_HANDLE] = row[st.C_CHUNKS] = mpi_library.handle(MPI.COMM_SELF)
        row[st.C_SIZE] = 1
        row[st.C_PEERS], row[st.C_P2P] = (int(table.ctypes.data) for table in self._tables)

    def of(self, kind: str) -> float:
        """Instructions of the engine for a record, but not what a turn takes that finds nothing."""
        self._serve(kind, BATCH)  # what is done once is done
        return (self._steps(kind, BATCH) - self._steps(kind, 0)) / BATCH

    def _serve(self, kind: str, records: int, stop: bool = False) -> None:
        g = self.state.globals
        first = int(g[st.G_HEAD])
        for i in range(records):
            of = KINDS[kind]
            _publish(self.state.address, first + i, *of[i % len(of)])
        if stop:
            os.kill(os.getpid(), signal.SIGSTOP)
        run(self.state.address)
        while g[st.G_HEAD] != first + records or g[st.G_ACTIVE]:
            run(self.state.address)
        if stop:
            os.kill(os.getpid(), signal.SIGSTOP)
        assert g[st.G_FAULTS] == 0, "a record was refused"

    def _steps(self, kind: str, records: int) -> int:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                _ptrace(_TRACE_ME, 0)
                self._serve(kind, records, stop=True)
                status = 0
            finally:
                os._exit(status)
        found = 0
        try:
            assert _stopped(pid) == signal.SIGSTOP
            code = _code_of_no_file(pid)
            registers = (ctypes.c_uint64 * _WORDS_OF_REGISTERS)()
            _ptrace(_STEP, pid)
            while _stopped(pid) == signal.SIGTRAP:
                _ptrace(_REGISTERS, pid, ctypes.byref(registers))
                at = registers[_INSTRUCTION_POINTER]
                found += any(begin <= at < end for begin, end in code)
                _ptrace(_STEP, pid)
            _ptrace(_CONTINUE, pid)
        finally:
            _, status = os.waitpid(pid, 0)
        assert status == 0, "the records were not served"
        return found


def _stopped(pid: int) -> int:
    """Waits until the child stops: with which signal."""
    _, status = os.waitpid(pid, 0)
    if not os.WIFSTOPPED(status):
        raise ChildProcessError(f"the process that is counted has ended with status {status}")
    return os.WSTOPSIG(status)


def _code_of_no_file(pid: int) -> list[tuple[int, int]]:
    """(begin, end) of memory with code that was compiled in the process."""
    lines = [line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    places = [line[0].split("-") for line in lines if "x" in line[1] and len(line) == 5]
    return [(int(begin, 16), int(end, 16)) for begin, end in places]


def main() -> None:
    cost = Cost()
    for kind in KINDS:
        print(f"{kind:<20}{cost.of(kind):8.1f} instructions a record", flush=True)


if __name__ == "__main__":
    main()
