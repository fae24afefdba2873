"""The warm parent: a process that has imported what other processes need, and forks them.

    supervisor: Request, with file descriptors  ->  imports, forks, Answer with the process id

Loading the interpreter, Django, the relay and Celery takes most of a process's start and half of
its memory. A forked child has them already, and shares the memory
(`docs/decisions/026-warm-parent.md`).

Each child is the fork of a fork, and the process in the middle ends at once: the child then becomes
a child of the supervisor, which has marked itself as the adopter (`relay.server.warm`) and watches
it like one that it started itself. So the death of a warm parent does not affect any child.

A warm parent has no threads, no sockets except the one to the supervisor, and no connections: a
child would share them. It ends with the supervisor, when the other end of its socket is closed.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import ctypes
import errno
import fcntl
import gc
import importlib
import json
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from relay.server.child import SOURCE_ROOT
from relay.server.warm_request import MAX_FDS, MAX_MESSAGE_BYTES, Request

FAILED: Final = 1
INTERRUPTED: Final = 130
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Received = tuple[Request, list[int]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as a process not forked from the supervisor: it reads code and settings again."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket-fd", type=int, required=True)
    parser.add_argument("--import", dest="imports", action="append", default=[])
    options = parser.parse_args(arguments)
    return run(socket.socket(fileno=options.socket_fd), options.imports)


def run(connection: socket.socket, imports: Sequence[str]) -> int:
    """Import, then fork until the other end is closed. Returns in each child too: its exit code."""
    warm = _Warm(connection, imports)
    while (received := _receive(connection)) is not None:
        request, fds = received
        try:
            warm.prepare(request)
        except Exception as error:
            # For example an invalid setting: the child, started without this process, reports it.
            _answer(connection, {"error": f"{type(error).__name__}: {error}"})
            return FAILED
        answer: dict[str, Any] = {}
        if request.module:
            try:
                pid = warm.fork(request)
            except OSError as error:
                answer = {"errno": error.errno}
            else:
                if pid == 0:
                    return warm.live(request, fds)
                answer = {"pid": pid}
        for fd in fds:
            os.close(fd)
        _answer(connection, answer)
    return 0


class _Warm:
    """What this process has prepared for its children."""

    def __init__(self, connection: socket.socket, imports: Sequence[str]) -> None:
        self._connection = connection
        self._set_up_with: Mapping[str, str] | None = None
        gc.disable()  # imports are never freed; a child sets its own thresholds
        _import_from_here()
        # Only the supervisor ends this process, not signals that a terminal or service sends to
        # all.
        self._handlers = {each: signal.signal(each, signal.SIG_IGN) for each in SIGNALS}
        self._import(imports)

    def prepare(self, request: Request) -> None:
        """Import what a child needs, and freeze it: a garbage collection would write to the memory.

        Raises:
            Exception: Any error of an import or of the settings.
        """
        if self._set_up_with not in (None, request.environment):
            raise RuntimeError("settings were read from another environment")
        if os.environ != request.environment:
            os.environ.clear()
            os.environ.update(request.environment)
        if request.set_up and self._set_up_with is None:
            self._set_up_with = request.environment
            importlib.import_module("django").setup()
            self._import(request.imports)
        elif any(name not in sys.modules for name in request.imports):
            self._import(request.imports)
        if threading.active_count() > 1:
            raise RuntimeError(f"threads before a fork: {threading.enumerate()}")

    def _import(self, names: Sequence[str]) -> None:
        for name in names:
            importlib.import_module(name)
        gc.collect()
        gc.freeze()

    def fork(self, request: Request) -> int:
        """Fork a child of the supervisor's; return its process id, and 0 in the child.

        The child leads its process group or session before its id is reported.

        Raises:
            OSError: There is no memory or process for it.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        told, telling = os.pipe()
        # A child may be asked to stop before it handles signals.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            middle = os.fork()
            if middle == 0:
                try:
                    pid = os.fork()
                except OSError as error:
                    os.write(telling, str(-(error.errno or 1)).encode())
                    os._exit(FAILED)
                if pid:
                    os._exit(0)
                if request.new_session:
                    os.setsid()
                else:
                    os.setpgid(0, 0)
                os.write(telling, str(os.getpid()).encode())
                for each, handler in self._handlers.items():
                    signal.signal(each, handler)
                os.close(told)
                self._connection.close()
                gc.enable()
                return 0
        finally:
            os.close(telling)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        with os.fdopen(told, "rb") as reading:
            found = int(reading.read() or -errno.EAGAIN)
        os.waitpid(middle, 0)
        if found < 0:
            raise OSError(-found, os.strerror(-found))
        return found

    def live(self, request: Request, fds: Sequence[int]) -> int:
        """Run as the requested child, and return its exit code."""
        _place(fds, request.fds)
        if request.folder:
            os.chdir(request.folder)
        module = importlib.import_module(request.module)
        sys.argv = [request.program or str(module.__file__), *request.arguments]
        show_as(request.title or [request.module, *request.arguments])
        try:
            return int(module.main() or 0)
        except KeyboardInterrupt:
            return INTERRUPTED
        except Exception:
            traceback.print_exc()
            return FAILED


def _import_from_here() -> None:
    """Import from the sources of this module, like children that are not forked (`-P`)."""
    if not sys.flags.safe_path:
        sys.path.pop(0)
    if str(SOURCE_ROOT) not in sys.path[:1]:
        sys.path.insert(0, str(SOURCE_ROOT))


def _receive(connection: socket.socket) -> Received | None:
    """Wait for the next request; None if there will be no more."""
    fds = array.array("i")
    try:
        data, ancillary, _, _ = connection.recvmsg(
            MAX_MESSAGE_BYTES, socket.CMSG_SPACE(MAX_FDS * fds.itemsize)
        )
    except ConnectionError:
        return None
    for level, kind, sent in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(sent[: len(sent) - len(sent) % fds.itemsize])
    return (Request.decode(data), list(fds)) if data else None


def _answer(connection: socket.socket, answer: Mapping[str, Any]) -> None:
    with contextlib.suppress(ConnectionError):  # the next `_receive` notices
        connection.send(json.dumps(answer).encode())


def _place(fds: Sequence[int], numbers: Sequence[int]) -> None:
    """Give the descriptors the numbers in the child's command line."""
    floor = max(numbers, default=0) + 1
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, floor) for fd in fds]
    for fd in fds:
        os.close(fd)
    for fd, number in zip(moved, numbers, strict=True):
        os.dup2(fd, number)
        os.close(fd)


def show_as(words: Sequence[str]) -> None:
    """Replace the command line that tools show, as far as it fits into the space of the old one."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(stat[45]), int(stat[46])
        room = end - start - 1
        text = b"\0".join(map(os.fsencode, words))[:room]
        # The kernel reads beyond this area if its last byte is not 0.
        ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


if __name__ == "__main__":
    sys.exit(main())
