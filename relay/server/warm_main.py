"""The warm parent: a process that has imported what others need, and forks them.

    supervisor: Request, with file descriptors  ->  imports, forks, Answer with the process id

Interpreter, Django, the relay and Celery take a process most of its start and half of its memory. A
child that is forked has them already, and shares the memory (`docs/decisions/026-warm-parent.md`).
Each child comes out of a fork of a fork whose middle ends at once: it becomes a child of the
supervisor, which marked itself as the one that adopts (`relay.server.warm`) and watches it like
one that it started itself. The death of a warm parent thus concerns no child.

It has no threads, no sockets but the one to the supervisor, and no connections: a child would share
them. It ends with the supervisor, when the other end of its socket is closed.
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
    """Run as a process of its own, for a rolling restart: new code and settings are read."""
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
            # Such as a setting that is refused: the child that is started without us tells it.
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
        gc.disable()  # what is imported stays; a child has its own thresholds
        _import_from_here()
        # The supervisor ends it, not what a terminal or a service sends to all processes.
        self._handlers = {each: signal.signal(each, signal.SIG_IGN) for each in SIGNALS}
        self._import(imports)

    def prepare(self, request: Request) -> None:
        """Import what a child needs, and keep the collector from it: it would write to the memory.

        Raises:
            Exception: Whatever an import or the settings say.
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
        """Fork a child of the supervisor's; returns its process id, and 0 in the child.

        The child leads its group or session before anybody hears of it.

        Raises:
            OSError: There is no memory or process for it.
        """
        sys.stdout.flush()
        sys.stderr.flush()
        told, telling = os.pipe()
        # A child is asked to stop perhaps before it listens to that.
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
        """Be the child that was asked for; returns its exit code."""
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
    """Import the sources this module is from, as the children do that are not forked (`-P`)."""
    if not sys.flags.safe_path:
        sys.path.pop(0)
    if str(SOURCE_ROOT) not in sys.path[:1]:
        sys.path.insert(0, str(SOURCE_ROOT))


def _receive(connection: socket.socket) -> Received | None:
    """Wait for the next request; None when there will be none."""
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
    with contextlib.suppress(ConnectionError):  # the next look says so
        connection.send(json.dumps(answer).encode())


def _place(fds: Sequence[int], numbers: Sequence[int]) -> None:
    """Give descriptors the numbers that the command line names."""
    floor = max(numbers, default=0) + 1
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, floor) for fd in fds]
    for fd in fds:
        os.close(fd)
    for fd, number in zip(moved, numbers, strict=True):
        os.dup2(fd, number)
        os.close(fd)


def show_as(words: Sequence[str]) -> None:
    """Replace the command line that tools show, as far as there is room in its place."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(stat[45]), int(stat[46])
        room = end - start - 1
        text = b"\0".join(map(os.fsencode, words))[:room]
        # The kernel shows a text that goes on where the last byte is not 0.
        ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


if __name__ == "__main__":
    sys.exit(main())
