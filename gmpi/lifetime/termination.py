"""SIGTERM: the kernels of a context are released before its process goes.

Without that, a process goes at once and takes down kernels that are waiting for others, which with
MPS is undefined for every client of the GPU. Python calls handlers of signals in the main thread,
and that may be waiting, inside CUDA or MPI, for just such a kernel; so a thread of its own takes
the signal, from the file that Python's handler in C writes to (``signal.set_wakeup_fd``).

Only where nobody else handles SIGTERM: the handler of a program is its own.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import struct
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gmpi.context import Context

GRACE_S = 5.0  # for kernels to end
_STOP = b"\0"  # no signal has this number
_CREDENTIALS = "3i"  # pid, uid, gid: struct ucred


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class Termination:
    """Takes SIGTERM while one context is open."""

    def __init__(self, context: Context) -> None:
        self._context: Context = weakref.proxy(context)  # whose part we are
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """In the main thread, where nobody handles the signal; does nothing elsewhere."""
        if not _in_main_thread():
            return
        handler = signal.getsignal(signal.SIGTERM)
        left = getattr(handler, "__self__", None)
        if isinstance(left, Termination) and left._thread is None:
            left._release()
        elif handler != signal.SIG_DFL:
            return
        self._reader, self._writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._writer.setblocking(False)
        # Children inherit the file, and in the moments before one has reset its handlers, or has
        # become another program, a signal to it is written there, too. Senders are told apart.
        self._reader.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._thread = threading.Thread(target=self._main, name="gmpi-termination", daemon=True)
        self._thread.start()
        signal.signal(signal.SIGTERM, self._handle)
        before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        if before != -1:  # somebody else's, such as asyncio's: then the handler has to do
            signal.set_wakeup_fd(before)

    def stop(self) -> None:
        """SIGTERM does what it did before."""
        if self._thread is None:
            return
        self._writer.send(_STOP)
        self._thread.join(2 * GRACE_S)
        self._thread = None
        self._release()

    def fork(self) -> None:
        """``stop`` in a child, which has no thread to stop."""
        if self._thread is not None:
            self._thread = None
            self._release()

    def _release(self) -> None:
        if not _in_main_thread():
            return  # only there; the next context does it, or the handler
        if signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        found = signal.set_wakeup_fd(-1)
        if found not in (-1, self._writer.fileno()):
            signal.set_wakeup_fd(found)
        self._reader.close()
        self._writer.close()

    def _handle(self, *_: object) -> None:
        if self._thread is not None:
            self._writer.send(bytes([signal.SIGTERM]))
        else:  # the context was closed by another thread
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

    # --- the thread -------------------------------------------------------------------------------

    def _main(self) -> None:
        room = socket.CMSG_SPACE(struct.calcsize(_CREDENTIALS))
        while True:
            data, ancillary, *_ = self._reader.recvmsg(1, room)
            sender, *_ = struct.unpack(_CREDENTIALS, ancillary[0][2])
            if sender != os.getpid():
                continue
            if data == _STOP:
                return
            if data[0] == signal.SIGTERM:
                break
        self._end()

    def _end(self) -> None:
        """Releases the kernels, then lets the signal do what it does."""
        context = self._context
        context.abort()
        deadline = time.monotonic() + GRACE_S
        while not (ended := context._kernels.have_ended()) and time.monotonic() < deadline:
            time.sleep(0.002)
        text = "kernels have ended" if ended else f"a kernel did not end within {GRACE_S} s"
        print(f"GMPI: rank {context.rank}: SIGTERM: {text}", file=sys.stderr, flush=True)
        libc = ctypes.CDLL(None)  # Python sets handlers in the main thread only
        libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]
        libc.signal(signal.SIGTERM, None)  # SIG_DFL
        os.kill(os.getpid(), signal.SIGTERM)
